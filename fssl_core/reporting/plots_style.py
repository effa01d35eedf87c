"""The one look of all figures: a style without global effect, a fixed colour per method, and what figures share."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor

MUTED = "#5f6368"
GREY = "#949494"
CUT_LAYER = "cut layer (layers on the client)"
STATED = {"linestyle": "", "marker": "D", "markersize": 6, "markerfacecolor": "white", "markeredgecolor": "black"}


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
    # CIELAB); the variants of L-DAWA are greens
    "M-DAWA": MethodStyle("#0705b9", "p", (0, (6, 1.5))),
    "Loss": MethodStyle("#feba32", "8", "--"),
    "FedU": MethodStyle("#4ca0ed", "H", (0, (3, 1, 1, 1))),
    "EUC": MethodStyle("#b01c86", (4, 1, 0), ":"),
    "FedEMA": MethodStyle("#fcc1e5", (4, 1, 45), "--"),
    "FedProx": MethodStyle("#835421", (6, 1, 0), "-."),
    "L-DAWA_FedAvg": MethodStyle("#53e18d", "d", "-."),
    "L-DAWA_Loss": MethodStyle("#09392c", (3, 1, 0), "--"),
    "L-DAWA_FedU": MethodStyle("#7ea343", (3, 1, 180), (0, (3, 1, 1, 1))),
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
    "MFCL(GN)": MethodStyle("#0a3aa8", (9, 1, 0), "-."),
    "Orchestra": MethodStyle("#c8b879", (3, 1, 45), ":"),
    "FeatARC": MethodStyle("#493a2a", (5, 1, 18), (0, (3, 1, 1, 1))),
    "MOON": MethodStyle("#4979f7", (4, 0, 65), "--"),
    "FSL": MethodStyle("#0a3a79", (8, 0, 11), ":"),
}
# For what is no method of a paper: your own method, photographs, rules
OTHERS = (
    MethodStyle("#222222", "o", "-"),
    MethodStyle("#8c6bb1", "s", (0, (4, 1.2))),
    MethodStyle("#737373", "^", "-."),
    MethodStyle("#c08f2f", "D", ":"),
)
METHOD_COLOURS: dict[str, str] = {name: style.colour for name, style in METHODS.items()}


def method_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """The fixed style of each known method; anything else takes the next of ``OTHERS``, which no method has."""
    others = cycle(OTHERS)
    return {name: METHODS[name] if name in METHODS else next(others) for name in dict.fromkeys(names)}


@contextmanager
def use_style() -> Iterator[None]:
    """The figures' look for the plots made inside; also a decorator. Nothing outside is changed."""
    import seaborn as sns  # with scipy it takes a second; the plots are imported long before one is drawn

    look = {
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
    with plt.rc_context(look):
        yield


def panels(
    count: int, *, width: float = 4.0, height: float = 3.1, most: int = 3, **share: bool
) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` axes, at most ``most`` in a row; ``share`` goes to ``plt.subplots``."""
    columns = min(count, most)
    rows = -(-count // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **share
    )
    axes = list(axes.flat)
    for unused in axes[count:]:
        unused.set_axis_off()
    return fig, axes[:count]


def finish(fig: Figure, title: str, subtitle: str, spread: str = "") -> Figure:
    """Write title and subtitle above the axes, take the figure out of pyplot, and return it.

    A notebook then shows it once, as the cell's last expression. A figure with error bars or bands says in ``spread``
    what they are, which ends its subtitle: see :func:`spread_note`.
    """
    subtitle = " · ".join(part for part in (subtitle, spread) if part)
    width, height = fig.get_size_inches()
    title = textwrap.fill(title, int(9.5 * width))
    subtitle = textwrap.fill(subtitle, int(13 * width))
    title_height, subtitle_height = 0.22 * (1 + title.count("\n")), 0.18 * (1 + subtitle.count("\n"))
    header = title_height + subtitle_height + 0.2
    height += header
    fig.set_size_inches(width, height)
    fig.text(0.008, 1 - 0.04 / height, title, fontsize=12, fontweight="bold", va="top")
    fig.text(0.008, 1 - (0.06 + title_height) / height, subtitle, fontsize=9, color=MUTED, va="top")
    fig.get_layout_engine().set(rect=(0, 0, 1, 1 - header / height))
    plt.close(fig)
    return fig


def legend_below(fig: Figure, columns: int = 4) -> None:
    """One legend for all panels, under them."""
    keys = {}
    for axes in fig.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            keys.setdefault(label, handle)
    if "chance" in keys:
        keys["chance"] = keys.pop("chance")  # the last one, whatever was drawn first
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=min(columns, len(keys)))


def first_column(axes: Axes) -> bool:
    """Whether a panel is the leftmost of its row and so carries the label of the y axis."""
    return axes.get_subplotspec().is_first_col()


def percent_axis(axes: Axes, label: str) -> None:
    """Fractions on the y axis shown as percent; ``label`` may be the name of their column."""
    axes.yaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.3g}")
    axes.set_ylabel(f"{label.replace('_', ' ').replace('knn', 'kNN')} (%)")


def category_axis(axes: Axes, names: Sequence[object]) -> None:
    """Names under groups of bars, whose places are 0, 1, 2 and so on."""
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")


def text_on(colour: str | tuple[float, ...]) -> str:
    """Black or white, whichever is read better on a colour."""
    return "white" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.55 else "black"  # its luma, ITU-R BT.601


def write_counts(axes: Axes, counts: np.ndarray, most: float, *, fontsize: float) -> None:
    """Numbers other than 0 into the cells of a matrix drawn in blues that end at ``most``."""
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = "white" if counts[row, column] > 0.6 * most else "black"
        axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=fontsize, color=colour)


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
    number = f", n = {min(counts)} to {max(counts)}" if len(counts) > 1 else ""
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
    apart: Callable[[float, float], float],
    *,
    hue: str = "method",
) -> None:
    """For each of ``styles`` the mean and standard deviation over rows, usually seeds, with each row as a dot.

    Args:
        axes: where to draw.
        rows: tidy, with the columns ``x``, ``y`` and ``hue``; rows without ``y`` are left out.
        x: column of the x axis.
        y: column of the y axis.
        styles: value of ``hue`` -> its style.
        apart: x and the line's number, counted from the middle one -> where it is drawn, so that error bars do not
            cover each other.
        hue: column whose values become lines.
    """
    for number, (name, style) in enumerate(styles.items()):
        seeds = {
            apart(place, number - (len(styles) - 1) / 2): values.to_numpy()
            for place, values in rows[rows[hue] == name].dropna(subset=y).groupby(x)[y]
        }
        if not seeds:
            continue
        mean, std = np.array([mean_and_std(values) for values in seeds.values()]).T
        axes.errorbar(
            np.array([*seeds]), mean, std, label=name, color=style.colour, marker=style.marker, linestyle=style.line,
            markersize=6, capsize=3,
        )  # fmt: skip
        for place, values in seeds.items():
            axes.plot([place] * len(values), values, ".", color=style.colour, alpha=0.35, markersize=4, zorder=1)


def mosaic(rows: Iterable[Tensor]) -> np.ndarray:
    """Images of one shape in rows and columns, with white lines between them.

    Args:
        rows: each uint8 ``[images, C, H, W]`` with C 1 or 3.

    Returns:
        uint8 ``[height, width, 3]``.
    """
    images = torch.stack(list(rows))  # [rows, images, C, H, W]
    gap = max(1, images.shape[-1] // 16)
    images = F.pad(images, (0, gap, 0, gap), value=255)
    pixels = images.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)  # [rows * H, images * W, C]
    return pixels.expand(-1, -1, 3).numpy()


def draw_mosaic(axes: Axes, pixels: np.ndarray, names: Sequence[str]) -> None:
    """A :func:`mosaic` with a name beside each of its rows."""
    axes.imshow(pixels, interpolation="nearest")
    axes.set_yticks((np.arange(len(names)) + 0.5) * (len(pixels) / len(names)) - 0.5, names)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
