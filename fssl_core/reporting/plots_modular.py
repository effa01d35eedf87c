"""MFCL without training: what a normalisation pools, where maps shrink, who holds which class, what a client pays."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from fssl_core.errors import SettingError
from fssl_core.reporting.plots_style import (
    METHOD_COLOURS,
    MUTED,
    OTHERS,
    STATED,
    category_axis,
    finish,
    first_column,
    method_styles,
    panels,
    text_on,
    use_style,
)

APART = "#e4e4e4"  # of what is not pooled
NORMS = {"BN": "#737373", "GN": "#8c6bb1", "TN": METHOD_COLOURS["MFCL"]}


@use_style()
def normalisation_sets(
    reached: Mapping[str, np.ndarray], *, place: tuple[int, int], subtitle: str, title: str
) -> Figure:
    """Which channels of which images decide one normalised map: a panel for each normalisation.

    Args:
        reached: by a title that starts with a key of ``NORMS``, bool ``[C, 2K]``, whether the map at ``place`` depends
            on this one; the columns are K first views and then the K second views of the same images.
        place: channel and column of that map, which has a frame.
        subtitle: how it was found.
        title: the figure's title.
    """
    channels, views = next(iter(reached.values())).shape
    fig, grid = panels(len(reached), width=1.2 + 0.3 * views, height=1.1 + 0.26 * channels, sharey=True)
    for axes, (name, cells) in zip(grid, reached.items(), strict=True):
        colour = NORMS.get(name[:2], OTHERS[0].colour)
        for row, column in np.ndindex(channels, views):
            face = colour if cells[row, column] else APART
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=face, edgecolor="white", lw=1.2))
        axes.add_patch(Rectangle(place[::-1], 1, 1, fill=False, edgecolor="black", lw=2))
        axes.axvline(views / 2, color="black", linestyle="--", lw=1)
        axes.set_xlim(0, views)
        axes.set_ylim(channels, 0)
        axes.xaxis.set_major_locator(FixedLocator(np.arange(views) + 0.5))
        axes.set_xticklabels([str(column % (views // 2) + 1) for column in range(views)])
        axes.yaxis.set_major_locator(FixedLocator(np.arange(channels) + 0.5))
        axes.set_yticklabels([str(channel + 1) for channel in range(channels)])
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_title(name)
        axes.set_xlabel("image: first views | second views")
        if first_column(axes):
            axes.set_ylabel("channel")
    return finish(fig, title, subtitle)


@use_style()
def map_sides(rows: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Side of the maps from the image through client module and decoder, a panel for each architecture.

    Args:
        rows: in order of the layers, the same for all variants: architecture, variant, layer, side (in pixels) and
            sent (whether this map goes to the rServer).
        subtitle: what was built.
        title: the figure's title.
    """
    names = list(dict.fromkeys(rows["architecture"]))
    fig, grid = panels(len(names), width=4.6, height=3.5)
    styles = dict(zip(dict.fromkeys(rows["variant"]), cycle((OTHERS[3], OTHERS[0])), strict=False))
    for axes, name in zip(grid, names, strict=True):
        here = rows[rows["architecture"] == name]
        for (variant, style), size in zip(
            styles.items(), cycle(({"ms": 8, "lw": 3}, {"ms": 4, "lw": 1.5})), strict=False
        ):
            line = here[here["variant"] == variant]
            places = np.arange(len(line))
            axes.plot(places, line["side"], color=style.colour, linestyle=style.line, marker=style.marker, **size)
            sent = line["sent"].to_numpy()
            axes.plot(places[sent], line["side"][sent], "*", ms=15, mfc="white", mec=style.colour, mew=1.5, zorder=4)
        category_axis(axes, list(line["layer"]))
        axes.tick_params(axis="x", rotation=90)
        axes.set_ylim(0, 1.12 * here["side"].max())
        axes.set_yticks(sorted({0, *here["side"]}))
        axes.set_title(name)
        if first_column(axes):
            axes.set_ylabel("side of a map (pixels)")
    keys = {
        variant: Line2D([], [], color=s.colour, linestyle=s.line, marker=s.marker, ms=5)
        for variant, s in styles.items()
    }
    keys["sent to the rServer"] = Line2D([], [], linestyle="", marker="*", ms=13, mfc="white", mec="black")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=3)
    return finish(fig, title, subtitle)


@use_style()
def balance_cases(cases: Mapping[str, np.ndarray], lost: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Who holds which classes, what they make together, and how uneven that becomes when clients are missing.

    Args:
        cases: by name, images of each class that each client holds, ``[clients, classes]``.
        lost: a row for each case and each choice of clients that deliver: case (as in ``cases``), missing (the share,
            0 to 1, that do not) and total_variation (0 to 1). Their mean is drawn, with the least and the largest.
        subtitle: what was made up.
        title: the figure's title.

    Raises:
        SettingError: a case in ``lost`` is not in ``cases``.
    """
    for name in lost["case"].unique():
        if name not in cases:
            raise SettingError("lost", name, f"one of {', '.join(cases)}")
    columns = 3
    above = -(-len(cases) // columns)
    fig = plt.figure(figsize=(10.5, 2.4 * above + 3.1), layout="constrained")
    frame = fig.add_gridspec(above + 1, columns, height_ratios=[2.4] * above + [3.1])
    keys: dict[str, Patch | Line2D] = {}
    for number, (name, counts) in enumerate(cases.items()):
        axes = fig.add_subplot(frame[divmod(number, columns)])
        keys |= _stacked_classes(axes, counts)
        axes.set_title(name)
        if number % columns == 0:
            axes.set_ylabel("images")
    axes = fig.add_subplot(frame[above, :])
    keys |= _total_variation(axes, list(cases), lost)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)


def _stacked_classes(axes: Axes, counts: np.ndarray) -> dict[str, Patch]:
    """A bar for each client, and one for the mean client, which has the pooled classes' shares."""
    import seaborn as sns

    clients, classes = counts.shape
    bars = np.vstack([counts, counts.mean(axis=0)])
    places = [*range(clients), clients + 0.6]
    colours = sns.color_palette("colorblind", classes)
    for label, colour in enumerate(colours):
        below = bars[:, :label].sum(axis=1)
        axes.bar(places, bars[:, label], 0.8, bottom=below, color=colour, edgecolor="white", lw=0.4)
    axes.set_xticks(places, [*(str(client + 1) for client in range(clients)), "mean"])
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set_ylim(0, 1.06 * bars.sum(axis=1).max())
    axes.set_xlabel("client")
    axes.axvline(clients - 0.2, color=MUTED, linestyle=":", lw=1)
    return {f"class {label + 1}": Patch(facecolor=colour) for label, colour in enumerate(colours)}


def _total_variation(axes: Axes, names: list[str], lost: pd.DataFrame) -> dict[str, Line2D]:
    import seaborn as sns

    shares = np.sort(lost["missing"].unique())
    apart = 0.05 * (np.diff(shares).min() if len(shares) > 1 else 1)
    markers, keys = cycle("osD^vPX"), {}
    for number, (name, colour) in enumerate(zip(names, sns.color_palette("dark", len(names)), strict=True)):
        spread = lost[lost["case"] == name].groupby("missing")["total_variation"].agg(["mean", "min", "max"])
        if spread.empty:
            continue
        places = spread.index.to_numpy() + apart * (number - (len(names) - 1) / 2)
        mean, least, most = spread.to_numpy().T
        style = {"color": colour, "marker": next(markers), "ms": 5, "lw": 1, "capsize": 2.5}
        axes.errorbar(places, mean, np.clip([mean - least, most - mean], 0, None), **style)  # 0 but for rounding
        keys[name] = Line2D([], [], color=colour, marker=style["marker"], ms=5, lw=1)
    axes.set_xticks(shares, [f"{100 * share:.0f}" for share in shares])
    axes.set_ylim(bottom=-0.02)
    axes.set_title("What the rServer has when clients are missing: mean, least and largest over all choices of them")
    axes.set_xlabel("missing clients (%)")
    axes.set_ylabel("total variation distance\nto balanced classes")
    return keys


@use_style()
def client_costs(rows: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """What one client pays, on logarithmic axes: a panel for each resource, ours as bars and the paper's as diamonds.

    Args:
        rows: resource (the panel's title), unit, architecture, method, ours and printed; either may be missing.
        subtitle: how ours was counted.
        title: the figure's title.
    """
    names = list(dict.fromkeys(rows["resource"]))
    styles = method_styles(rows["method"])
    fig, grid = panels(len(names), width=4.3, height=3.6)
    width = 0.84 / len(styles)
    for axes, name in zip(grid, names, strict=True):
        here = rows[rows["resource"] == name]
        low, high = here[["ours", "printed"]].min(axis=None), here[["ours", "printed"]].max(axis=None)
        architectures = list(dict.fromkeys(here["architecture"]))
        axes.set_yscale("log")
        bottom = low / (high / low) ** 0.35  # so far down that no diamond covers a number
        axes.set_ylim(bottom, 3 * high)
        for number, (method, style) in enumerate(styles.items()):
            for row in here[here["method"] == method].itertuples():
                place = architectures.index(row.architecture) + width * (number - (len(styles) - 1) / 2)
                if not np.isnan(row.ours):
                    axes.bar(place, row.ours, 0.9 * width, color=style.colour, edgecolor="black", lw=0.5)
                    text = {"xytext": (0, 4), "textcoords": "offset points", "rotation": 90, "fontsize": 7.5}
                    text |= {"ha": "center", "va": "bottom", "color": text_on(style.colour)}
                    axes.annotate(f"{row.ours:.1e}", (place, bottom), **text)
                axes.plot(place, row.printed, zorder=4, **STATED | {"markerfacecolor": style.colour})
        category_axis(axes, architectures)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_title(name)
        axes.set_ylabel(here["unit"].iloc[0])
    keys = {method: Patch(facecolor=s.colour, edgecolor="black", lw=0.5) for method, s in styles.items()}
    keys["paper"] = Line2D([], [], **STATED)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)
