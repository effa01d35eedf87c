"""The one look of all figures: a style without global effect, a fixed colour per method, and what figures share."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke

MUTED = "#5f6368"
GREY = "#949494"
CUT_LAYER = "cut layer (layers on the client)"
PRINTED_MARK = {"linestyle": "", "marker": "D", "markersize": 6, "markerfacecolor": "white", "markeredgecolor": "black"}
BAR = {"edgecolor": "black", "linewidth": 0.5}
DOTS = {"size": 3.5, "edgecolor": "white", "linewidth": 0.4, "jitter": False}  # seaborn's, of seeds, on dark bars too
CHANCE = {"color": GREY, "linestyle": ":", "zorder": 0.5, "label": "chance"}
DASHES = {"-": "", "--": (3.7, 1.6), "-.": (6.4, 1.6, 1, 1.6), ":": (1, 1.65)}  # matplotlib's, as seaborn takes them


def rim(colour: str = "white", width: float = 2.2) -> list[AbstractPathEffect]:
    """Path effects that keep a line or a text apart from what is under it."""
    return [Stroke(linewidth=width, foreground=colour), Normal()]


UNTRAINED = {  # what a model reaches before it is trained; under curves, with a rim on bars
    "color": "black", "linestyle": (0, (4, 1.5)), "linewidth": 1.2, "label": "untrained", "zorder": 1.5,
    "path_effects": rim(),
}  # fmt: skip
MEANS = {  # seaborn's bars, with error bars; their white rim shows them on dark bars
    "saturation": 1, "err_kws": {"linewidth": 1.2, "color": "black", "path_effects": rim()}, **BAR,
}  # fmt: skip
LAST = (  # in a legend
    "front of all goals", "front of the two axes", "cheapest cut", "a grey view", "mean image", "paper",
    "untrained", "chance",
)  # fmt: skip


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn; marker and line tell methods apart in grey print too.

    Args:
        colour: hexadecimal.
        marker: matplotlib's letter, or (points, 1, angle) of a star.
        line: matplotlib's name, or its (offset, dashes).
    """

    colour: str
    marker: str | tuple
    line: str | tuple


# seaborn's "colorblind" colours, fixed per method so that a method looks the same in every figure of every paper
METHODS: dict[str, MethodStyle] = {
    "MocoSFL": MethodStyle("#d55e00", "o", (0, (4, 1.2))),
    "MonAcoSFL": MethodStyle("#0173b2", "s", "-"),
    "FedAvg": MethodStyle("#949494", "v", "-."),
    "L-DAWA": MethodStyle("#029e73", "D", "-"),
    "FedSimCLR": MethodStyle("#cc78bc", "^", "--"),
    "FedMoCoV3": MethodStyle("#ca9161", "P", "-."),
    "LW-FedSSL": MethodStyle("#56b4e9", "X", "-"),
    "Prog-FedSSL": MethodStyle("#7a5195", "*", (0, (5, 1, 1, 1))),
    "MFCL": MethodStyle("#b8a800", "h", "-"),
    "FL-BYOL": MethodStyle("#a23b4a", "<", ":"),
    "FL-MoCoV2": MethodStyle("#4b5320", ">", ":"),
    # L-DAWA's tables, chosen to stay apart from each other with protanopia and deuteranopia, too (a distance of 20 in
    # CIELAB; 11 between FedAvg and L-DAWA with deuteranopia); the variants of L-DAWA are greens
    "M-DAWA": MethodStyle("#0705b9", "p", (0, (6, 1.5))),
    "Loss": MethodStyle("#feba32", "8", "--"),
    "FedU": MethodStyle("#4ca0ed", "H", (0, (3, 1, 1, 1))),
    "EUC": MethodStyle("#b01c86", (4, 1, 0), ":"),
    "FedEMA": MethodStyle("#fcc1e5", (4, 1, 45), "--"),
    "FedProx": MethodStyle("#835421", (6, 1, 0), "-."),
    "L-DAWA_FedAvg": MethodStyle("#53e18d", "d", "-."),
    "L-DAWA_Loss": MethodStyle("#09392c", (3, 1, 0), "--"),
    "L-DAWA_FedU": MethodStyle("#7ea343", (3, 1, 180), (0, (3, 1, 1, 1))),
    # with three rounds of FedAvg first: the method's shape and half of its strength, as variants have it
    "L-DAWA after FedAvg": MethodStyle("#80ceb9", (4, 0, 0), "--"),
    "M-DAWA after FedAvg": MethodStyle("#8382dc", (5, 0, 0), "--"),
    # LW-FedSSL's Table 2 beside the above; the name of an SSL method alone is training in one place
    "Scratch": MethodStyle("#404040", (8, 1, 0), ":"),
    "SimCLR": MethodStyle("#e8d849", (7, 0, 0), "-."),
    "MoCoV3": MethodStyle("#693a0a", (3, 0, 30), "-."),
    "BYOL": MethodStyle("#0a69e8", (4, 0, 20), "-."),
    "FedBYOL": MethodStyle("#590a89", (5, 1, 36), "--"),
    "FedCA": MethodStyle("#69e8a8", (3, 0, 90), "--"),
    # MFCL's, with twin norm as MFCL itself
    "MFCL(TN)": MethodStyle("#a89c00", (6, 0, 15), "-"),
    "MFCL(TN), views apart": MethodStyle("#d6cf6a", (5, 0, 36), "--"),
    "MFCL(BN)": MethodStyle("#492a49", (7, 1, 0), "--"),
    "MFCL(BN), own statistics": MethodStyle("#a58fa5", (7, 0, 26), ":"),
    "MFCL(GN)": MethodStyle("#0a3aa8", (9, 1, 0), "-."),
    "Orchestra": MethodStyle("#c8b879", (3, 1, 45), ":"),
    "FeatARC": MethodStyle("#493a2a", (5, 1, 18), (0, (3, 1, 1, 1))),
    "MOON": MethodStyle("#4979f7", (4, 0, 65), "--"),
    "FSL": MethodStyle("#0a3a79", (8, 0, 11), ":"),
    # robust rules of aggregation, beside FedAvg's grey and L-DAWA's green
    "median": MethodStyle("#7b241c", (3, 2, 0), "--"),
    "trimmed mean": MethodStyle("#e59866", (4, 2, 0), "-."),
    "Krum": MethodStyle("#f6d55c", (5, 2, 0), ":"),
}
# For what is no method of a paper: your own method, photographs, rules
OTHERS = (
    MethodStyle("#222222", "o", "-"),
    MethodStyle("#8c6bb1", "s", (0, (4, 1.2))),
    MethodStyle("#737373", "^", "-."),
    MethodStyle("#c08f2f", "D", ":"),
)
NORMALISATIONS = {  # whatever the federation, the style that MFCL has with this normalisation
    "BN": METHODS["MFCL(BN)"],
    "BN, own statistics": METHODS["MFCL(BN), own statistics"],
    "GN": METHODS["MFCL(GN)"],
    "GN, groups of TN": OTHERS[0],
    "TN": METHODS["MFCL(TN)"],
    "TN, views apart": METHODS["MFCL(TN), views apart"],
    "TN, equation": OTHERS[1],
    "TN, listing": OTHERS[2],
}
METHOD_COLOURS: dict[str, str] = {name: style.colour for name, style in METHODS.items()}


def method_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """The fixed style of each known method, in order of appearance.

    Anything else takes the next of ``OTHERS``, which no method has. A variant, such as ``"MocoSFL-3"`` (a cut),
    ``"FedSimCLR(GN)"`` or ``"MocoSFL, one common model"``, has its method's, from one to the next lighter, and the
    last still to be seen.
    """
    methods = {name: _method(str(name)) for name in names}
    variants = Counter(methods.values())
    others, seen, styled, styles = cycle(OTHERS), Counter(), dict(METHODS), {}
    for name, method in methods.items():
        if method not in styled:
            styled[method] = next(others)
        style, number = styled[method], seen[method]
        seen[method] += 1
        line = "-" if style.line != "-" else "--"
        strength = 1 - number * min(0.5, 0.7 / max(1, variants[method] - 1))
        styles[name] = replace(style, colour=lighter(style.colour, strength), line=line) if number else style
    return styles


def _method(name: str) -> str:
    whole = name.partition(",")[0]
    method, _, cut = whole.rpartition("-")
    shorter = (name, method if cut.isdigit() else name, whole, whole.partition("(")[0])
    return next((known for known in shorter if known in METHODS), whole)


def lighter(colour: str, strength: float) -> str:
    """A colour mixed with white: 1 leaves it as it is, 0 is white."""
    return to_hex(1 - (1 - np.array(to_rgb(colour))) * strength)


@contextmanager
def use_style() -> Iterator[None]:
    """The figures' look for what is drawn inside; also a decorator. Nothing outside is changed.

    Where an error ends the drawing, no unfinished figure is left for pyplot to show.
    """
    import seaborn as sns  # with scipy it takes a second; figures are imported long before one is drawn

    options = {
        **sns.plotting_context("notebook", font_scale=0.85),
        **sns.axes_style("ticks"),
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.8,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "figure.dpi": 100,
        "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    }
    before = plt.get_fignums()
    with plt.rc_context(options):
        try:
            yield
        except Exception:
            for number in {*plt.get_fignums()} - {*before}:
                plt.close(number)
            raise


def panels(
    count: int, *, width: float = 4.0, height: float = 3.1, most: int = 3, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` axes, at most ``most`` in a row; ``options`` go to ``plt.subplots``."""
    columns = min(count, most)
    rows = -(-count // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )
    axes = list(axes.flat)
    for unused in axes[count:]:
        unused.set_axis_off()
    return fig, axes[:count]


def finish(
    fig: Figure,
    title: str,
    subtitle: str,
    spread: str = "",
    *,
    keys: Mapping[str, Mapping] | None = None,
    columns: int = 4,
) -> Figure:
    """Write title and subtitle above the axes and one legend below, take the figure out of pyplot, and return it.

    The legend has everything that was drawn with a ``label``, each label once, and ``keys``, the looks of lines or,
    with a facecolor, of areas; at most ``columns`` stand side by side. A notebook shows the figure once, as the cell's
    last expression. A figure with error bars or bands says in ``spread`` what they are, which ends its subtitle: see
    :func:`spread_note`.
    """
    handles = _labelled(fig)
    for label, options in (keys or {}).items():
        handles[label] = Patch(**options) if "facecolor" in options else Line2D([], [], **options)
    names = sorted(handles, key=lambda name: LAST.index(name) if name in LAST else -1)
    if names:
        entries = [handles[name] for name in names]
        fig.legend(entries, names, loc="outside lower left", ncols=min(columns, len(names)))
    subtitle = " · ".join(part for part in (subtitle, spread) if part)
    width, height = fig.get_size_inches()
    title = textwrap.fill(title, int(9.5 * width))
    held = subtitle.replace(" · ", "\u00a0· ")  # a line may end with a dot, not begin with one
    subtitle = textwrap.fill(held, int(13 * width), break_on_hyphens=False).replace("\u00a0·", " ·")
    title_height, subtitle_height = 0.22 * (1 + title.count("\n")), 0.18 * (1 + subtitle.count("\n"))
    header = title_height + subtitle_height + 0.2
    height += header
    fig.set_size_inches(width, height)
    fig.text(0.008, 1 - 0.04 / height, title, fontsize=12, fontweight="bold", va="top")
    fig.text(0.008, 1 - (0.06 + title_height) / height, subtitle, fontsize=9, color=MUTED, va="top")
    fig.get_layout_engine().set(rect=(0, 0, 1, 1 - header / height))
    plt.close(fig)
    return fig


def _labelled(fig: Figure) -> dict[str, Artist]:
    """What was drawn with a label, by label."""
    keys: dict[str, Artist] = {}
    for axes in fig.axes:
        if axes.get_legend() is not None:  # seaborn's own
            axes.get_legend().remove()
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            keys.setdefault(label, handle)
            if isinstance(handle, Line2D) and not len(handle.get_xdata()):  # nothing but an entry of seaborn's legend
                handle.remove()
    return keys


def percent_axis(axis: Axis, label: str) -> None:
    """Fractions on an axis shown as percent; ``label`` may be the name of their column."""
    axis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.3g}")
    axis.set_label_text(f"{label.replace('_', ' ').replace('knn', 'kNN')} (%)")


def category_axis(axes: Axes, names: Sequence[object]) -> None:
    """Names under groups of bars, whose places are 0, 1, 2 and so on; what is in brackets gets a line of its own."""
    axes.set_xticks(range(len(names)), [str(name).replace(" (", "\n(") for name in names])
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")


def no_axes(axes: Axes) -> None:
    """Leave names at an image or a row, but neither ticks nor lines."""
    axes.tick_params(which="both", length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def text_on(colour: str | tuple[float, ...]) -> str:
    """Black or white, whichever is read better on a colour."""
    return "white" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.55 else "black"  # its luma, ITU-R BT.601


def move_dots(axes: Axes, *, across: float = 0.0, up: float = 0.0) -> None:
    """Move the dots of a strip plot beside the error bars of their means."""
    for dots in axes.collections:
        dots.set_offsets(np.add(dots.get_offsets(), (across, up)))


def spread_note(sizes: Iterable[int], means: str, spreads: str, *, over: str = "seeds") -> str:
    """What is drawn as a mean and what as its spread, in words; nothing where no mean has a spread.

    Args:
        sizes: how many values are behind each mean.
        means: how means are drawn, e.g. ``"bars"``.
        spreads: how their spread is drawn, e.g. ``"lines"`` or ``"bands"``.
        over: what the values are.
    """
    counts = {int(size) for size in sizes if size}
    if max(counts, default=1) == 1:
        return ""
    number = f", n\u00a0=\u00a0{min(counts)}\u00a0to\u00a0{max(counts)}" if len(counts) > 1 else ""  # on one line
    return f"{means}: mean, {spreads}: ±\u00a01 sample standard deviation over {over}{number}"


def mean_and_std(values: np.ndarray) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; the latter is 0 for a single seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def lines_over_seeds(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    y: str,
    styles: Mapping[str, MethodStyle],
    *,
    hue: str = "method",
    apart: float = 0.0,
    factor: float = 1.0,
) -> None:
    """For each of ``styles`` the mean and standard deviation over rows, usually seeds, with each row as a dot.

    Args:
        rows: tidy, with the columns ``x``, ``y`` and ``hue``; rows without ``y`` are left out.
        x: column of the x axis, numbers.
        styles: value of ``hue`` -> its style.
        apart: distance between neighbouring lines along x, so that error bars do not cover each other.
        factor: the same as a factor, for a logarithmic axis.
    """
    import seaborn as sns

    rows = rows[rows[hue].isin(styles.keys())].dropna(subset=y)
    if rows.empty:
        return
    several = rows.duplicated([hue, x]).any()
    number = rows[hue].map({name: index - (len(styles) - 1) / 2 for index, name in enumerate(styles)}).astype(float)
    moved = rows.assign(**{x: rows[x].astype(float) * factor**number + apart * number, hue: rows[hue].astype(str)})
    options = {"data": moved, "x": x, "y": y, "hue": hue, "ax": axes} | {
        "palette": {str(name): style.colour for name, style in styles.items()},
        "hue_order": [str(name) for name in styles if name in set(rows[hue])],
    }
    spread = {"errorbar": "sd", "err_style": "bars", "err_kws": {"capsize": 3}} if several else {"errorbar": None}
    sns.lineplot(**options, **dashes_and_markers(hue, styles), **spread, markersize=7.5, markeredgewidth=0.5)
    if several:
        sns.scatterplot(**options, s=14, alpha=0.4, linewidth=0, legend=False, zorder=1)


def dashes_and_markers(hue: str, styles: Mapping[str, MethodStyle]) -> dict[str, object]:
    """The styles of methods as seaborn's lineplot takes them."""
    lines = {str(name): style.line for name, style in styles.items()}
    return {
        "style": hue,
        "dashes": {name: DASHES[line] if isinstance(line, str) else line[1] for name, line in lines.items()},
        "markers": {str(name): style.marker for name, style in styles.items()},
    }


def rows_over_seeds(
    axes: Axes, rows: Iterable[np.ndarray], look: MethodStyle, *, start: float = 0.0, label: str | None = None
) -> None:
    """For each row the mean and standard deviation of its values along x, a dot below for each value if they differ.

    Args:
        axes: where to draw; the first row is at the height ``start``, the others are 1 apart.
        rows: the values of each, usually one for every seed; an empty row is left out.
        look: of the means.
        label: in the legend.
    """
    for number, values in enumerate(rows):
        if not len(values):
            continue
        (mean, std), y_position = mean_and_std(values), start + number
        axes.errorbar(
            mean, y_position, xerr=std or None, color=look.colour, marker=look.marker, linestyle="", markersize=6,
            capsize=2, label=label,
        )  # fmt: skip
        if (values != values[0]).any():
            axes.plot(values, [y_position + 0.2] * len(values), ".", color=look.colour, alpha=0.35, markersize=4)
    axes.tick_params(axis="y", length=0)
