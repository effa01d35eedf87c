"""What became of the papers' claims: a count of all, and a forest of those of which there is a number."""

from collections.abc import Sequence
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fssl_core.claims.verdict import AS_PRINTED, EVIDENCE, OURS, Verdict, number_with_interval, shown
from fssl_core.figures import style
from fssl_core.figures.charts import stacked_bars
from fssl_core.figures.style import PRINTED_MARK
from fssl_core.papers.reference import PAPERS

NEITHER = "not run / prints none"
COLOURS = dict(zip([*OURS[:3], NEITHER], ("#00714f", "#d55e00", "#949494", "#e3e3e3"), strict=True))
MARKERS = dict(zip(EVIDENCE, ("s", "o"), strict=True))
CONSISTENT = {True: "consistent", False: "inconsistent"}
PRINTED = {"consistent": "#56b4e9", "inconsistent": "#cc78bc", NEITHER: "#e3e3e3"}
CLAIMED = "#e8f3ee"
ROW = 0.27  # inches
EDGE = 1.6  # of each row's axis


@style.use_style()
def plot_overview(verdicts: Sequence[Verdict]) -> Figure:
    """How many claims of each paper have which answer: ours by the kind of evidence, and the paper's own numbers."""
    frame = pd.DataFrame([vars(verdict) | {"paper": verdict.paper} for verdict in verdicts])
    frame = frame.replace({"ours": {"not run": NEITHER}})
    printed = frame.drop_duplicates("id")
    printed = printed.assign(ours=printed["paper_consistent"].map(CONSISTENT).fillna(NEITHER))
    panels = {f"our evidence: {kind}": (frame[frame["evidence"] == kind], COLOURS) for kind in EVIDENCE}
    panels["the paper with itself (without readings)"] = printed, PRINTED
    fig, axes = style.panels(len(panels), width=4.2, height=2.6, sharey=True)
    for ax, (title, (rows, colours)) in zip(axes, panels.items(), strict=True):
        table = pd.crosstab(rows["paper"], rows["ours"]).reindex(index=[*PAPERS], columns=[*colours], fill_value=0)
        stacked_bars(ax, table, {name: {"color": colour} for name, colour in colours.items()}, across=True)
        for bars, colour in zip(ax.containers, colours.values(), strict=True):
            look = {"label_type": "center", "fontsize": 8, "color": style.text_on(colour)}
            ax.bar_label(bars, fmt=lambda count: f"{count:.0f}" if count else "", **look)
        ax.set_title(title)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(True, axis="x")
        ax.set_xlabel("claims")
    trained = [verdict for verdict in verdicts if verdict.evidence == "trained" and verdict.ours != "not run"]
    data = ", ".join(sorted({verdict.data for verdict in trained}))
    subtitle = f"counts of claims, a reading each · trained on {data}"
    return style.finish(fig, "What became of the papers' claims", subtitle, columns=7)


@style.use_style()
def plot_verdicts(verdicts: Sequence[Verdict], title: str) -> Figure:
    """A forest: the deciding quantity of each claim with its interval, and where the claim wants it, shaded.

    Intervals are of 95 percent where no other level stands beside them: of several comparisons that decide together,
    each has a higher one.
    Each row has a scale of its own, on which the region's bound lies at 0 and what the claim wants to the right of it;
    the numbers stand beside it, with the paper's where it is of the same quantity. Claims without a number of ours are
    left out, and counted.
    """
    rows = [verdict for verdict in verdicts if verdict.estimate is not None and isfinite(verdict.estimate)]
    fig, (ax,) = style.panels(1, width=11.5, height=max(1.2, ROW * len(rows) + 0.5))
    for number, verdict in enumerate(rows):
        _draw_row(ax, number, verdict)
    ax.axvline(0, color="#404040", linewidth=0.8)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(-EDGE, EDGE)
    ax.set_xticks([])
    ax.set_yticks(range(len(rows)), [_name(verdict) for verdict in rows], fontsize=7.5)
    style.no_axes(ax)
    keys = {word: {"marker": "o", "linestyle": "", "color": COLOURS[word]} for word in OURS[:3]}
    keys |= {kind: {"marker": marker, "linestyle": "", "color": "black"} for kind, marker in MARKERS.items()}
    keys |= {"printed in the paper": PRINTED_MARK, "as claimed": {"facecolor": CLAIMED}}
    left_out = len(verdicts) - len(rows)
    subtitle = f"each row on a scale of its own · {left_out} without a number of ours" if left_out else "own scales"
    subtitle += " · grey beside 0: models not shown to have learned, or a part open; `fssl claims` says which"
    spread = "lines: intervals over seeds, of 95 percent where no other level is given"
    return style.finish(fig, title, subtitle, spread, keys=keys, columns=7)


def _draw_row(ax: Axes, number: int, verdict: Verdict) -> None:
    low, high = verdict.above, verdict.below
    bound = low if isfinite(low) else high
    sign = 1.0 if isfinite(low) or not isfinite(high) else -1.0
    bound = bound if isfinite(bound) else verdict.estimate
    printed = None if verdict.printed_quantity else verdict.printed  # another quantity has no place on this scale
    bounds = [verdict.estimate, verdict.low, verdict.high, printed, low, high]
    size = max((abs(value - bound) for value in bounds if value is not None and isfinite(value)), default=0.0) or 1.0

    def place(value: float) -> float:
        return max(-EDGE, min(EDGE, sign * (value - bound) / size))

    start, end = sorted((place(low), place(high)))
    ax.barh(number, max(end - start, 0.012), left=start, height=0.86, color=CLAIMED, zorder=0)
    colour = COLOURS[verdict.ours]
    if verdict.low is not None and isfinite(verdict.low) and verdict.low < verdict.high:
        ax.plot([place(verdict.low), place(verdict.high)], [number, number], color=colour, linewidth=2)
    ax.plot(place(verdict.estimate), number, marker=MARKERS[verdict.evidence], color=colour, markersize=6)
    numbers = number_with_interval(verdict)
    if printed is not None:
        ax.plot(place(printed), number, zorder=1, **PRINTED_MARK)
        numbers += f"; printed {shown(printed, verdict.unit)}"
    if verdict.evidence == "trained":
        numbers += f" · {verdict.profile}"
    ax.text(EDGE + 0.03, number, numbers, va="center", fontsize=7.5, color=style.MUTED)


def _name(verdict: Verdict) -> str:
    name = verdict.id.partition("-")[2]
    return name if verdict.reading == AS_PRINTED else f"{name}\n{verdict.reading}"
