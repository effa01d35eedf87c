"""What became of the papers' claims: a count of all, and a forest of those of which there is a number."""

import textwrap
from collections.abc import Sequence
from math import inf, isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fssl_core.claims.verdict import AS_PRINTED, EVIDENCE, OURS, Verdict, number_with_interval, shown
from fssl_core.papers.reference import PAPERS
from fssl_core.reporting.plots_style import MUTED, STATED, finish, panels, use_style

COLOURS = dict(zip(OURS, ("#029e73", "#d55e00", "#949494", "#e3e3e3"), strict=True))
MARKERS = dict(zip(EVIDENCE, ("s", "o"), strict=True))
ROW = 0.27  # inches
EDGE = 1.6  # of each row's axis


@use_style()
def plot_overview(verdicts: Sequence[Verdict]) -> Figure:
    """How many claims of each paper have which answer: ours by the kind of evidence, and the paper's own numbers."""
    frame = pd.DataFrame([vars(verdict) | {"paper": verdict.paper} for verdict in verdicts])
    fig, axes = panels(3, width=4.2, height=2.6, sharey=True)
    for ax, kind in zip(axes, EVIDENCE, strict=False):
        table = pd.crosstab(*(frame[frame["evidence"] == kind][name] for name in ("paper", "ours")))
        table = table.reindex(index=[*PAPERS], columns=[*OURS], fill_value=0)
        _stacked(ax, table, COLOURS)
        ax.set_title(f"our evidence: {kind}")
    printed = frame.drop_duplicates("id")
    words = printed["paper_consistent"].map({True: "consistent", False: "inconsistent"}).fillna("prints none")
    table = pd.crosstab(printed["paper"], words).reindex(index=[*PAPERS], fill_value=0)
    colours = {"consistent": "#56b4e9", "inconsistent": "#cc78bc", "prints none": "#e3e3e3"}
    _stacked(axes[2], table.reindex(columns=[*colours], fill_value=0), colours)
    axes[2].set_title("the paper with itself")
    trained = [verdict for verdict in verdicts if verdict.evidence == "trained" and verdict.ours != "not run"]
    data = sorted({verdict.data for verdict in trained})
    keys = [Patch(color=colour, label=name) for name, colour in (COLOURS | colours).items() if name != "not run"]
    keys.insert(3, Patch(color=COLOURS["not run"], label="not run / prints none"))
    fig.legend(handles=keys[:-1], loc="outside lower left", ncols=7)
    return finish(
        fig, "What became of the papers' claims", f"counts of claims, a reading each · trained on {', '.join(data)}"
    )


def _stacked(ax: Axes, table: pd.DataFrame, colours: dict[str, str]) -> None:
    left = pd.Series(0, index=table.index)
    for name, counts in table.items():
        bars = ax.barh(range(len(table)), counts, left=left, color=colours[name])
        ax.bar_label(bars, [str(count) if count else "" for count in counts], label_type="center", fontsize=8)
        left = left + counts
    ax.set_yticks(range(len(table)), table.index)
    ax.invert_yaxis()
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("claims")
    ax.grid(False, axis="y")


@use_style()
def plot_verdicts(verdicts: Sequence[Verdict], title: str) -> Figure:
    """A forest: the deciding quantity of each claim with its interval of 95 percent, where the claim wants it, shaded.

    Each row has a scale of its own, on which the region's bound lies at 0 and what the claim wants to the right of it;
    the numbers stand beside it. Claims without a number of ours are left out, and counted.
    """
    rows = [verdict for verdict in verdicts if verdict.estimate is not None and isfinite(verdict.estimate)]
    fig, (ax,) = panels(1, width=11.5, height=max(1.2, ROW * len(rows) + 0.5))
    for number, verdict in enumerate(rows):
        _draw_row(ax, number, verdict)
    ax.axvline(0, color="#404040", linewidth=0.8)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(-EDGE, EDGE)
    ax.set_xticks([])
    ax.set_yticks(range(len(rows)), [_name(verdict) for verdict in rows], fontsize=7.5)
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    keys = [Line2D([], [], marker="o", linestyle="", color=COLOURS[word], label=word) for word in OURS[:3]]
    keys += [Line2D([], [], marker=MARKERS[kind], linestyle="", color=MUTED, label=kind) for kind in EVIDENCE]
    keys += [Line2D([], [], **STATED, label="printed in the paper"), Patch(color="#e8f3ee", label="as claimed")]
    fig.legend(handles=keys, loc="outside lower left", ncols=7)
    left_out = len(verdicts) - len(rows)
    subtitle = f"each row on a scale of its own · {left_out} without a number of ours" if left_out else "own scales"
    return finish(fig, textwrap.shorten(title, 110), subtitle, "lines: intervals of 95 percent over seeds")


def _draw_row(ax: Axes, number: int, verdict: Verdict) -> None:
    low, high = (bound if bound is not None else edge for bound, edge in ((verdict.above, -inf), (verdict.below, inf)))
    bound = low if isfinite(low) else high
    sign = 1.0 if isfinite(low) or not isfinite(high) else -1.0
    bound = bound if isfinite(bound) else verdict.estimate
    known = [verdict.estimate, verdict.low, verdict.high, verdict.printed, low, high]
    size = max((abs(value - bound) for value in known if value is not None and isfinite(value)), default=0.0) or 1.0

    def place(value: float) -> float:
        return max(-EDGE, min(EDGE, sign * (value - bound) / size))

    start, end = sorted((place(low), place(high)))
    ax.barh(number, max(end - start, 0.012), left=start, height=0.86, color="#e8f3ee", zorder=0)
    colour = COLOURS[verdict.ours]
    if verdict.low is not None and isfinite(verdict.low) and verdict.low < verdict.high:
        ax.plot([place(verdict.low), place(verdict.high)], [number, number], color=colour, linewidth=2)
    ax.plot(place(verdict.estimate), number, marker=MARKERS[verdict.evidence], color=colour, markersize=6)
    numbers = number_with_interval(verdict)
    if verdict.printed is not None:
        ax.plot(place(verdict.printed), number, zorder=1, **STATED)
        numbers += f"; printed {shown(verdict.printed, verdict.unit)}"
    ax.text(EDGE + 0.03, number, numbers, va="center", fontsize=7.5, color=MUTED)


def _name(verdict: Verdict) -> str:
    name = verdict.id.partition("-")[2]
    return name if verdict.reading == AS_PRINTED else f"{name}\n{verdict.reading}"
