"""Diagrams without training: vectors under a cosine, what is pooled, where maps shrink, who trains and holds what."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator

from fssl_core.figures import style
from fssl_core.figures.charts import stacked_bars
from fssl_core.figures.style import METHODS, NORMALISATIONS, OTHERS
from fssl_core.settings import check_choice

KINDS = {  # of a vector: how its arrow looks
    "global model": {"color": "black", "linewidth": 2.4},
    "client": {"color": "#56b4e9", "linewidth": 1.6},
    "client, scaled": {"color": "#0173b2", "linewidth": 1.6, "linestyle": (0, (3, 1.2))},
    "FedAvg": {"color": METHODS["FedAvg"].colour, "linewidth": 3.0},
    "L-DAWA": {"color": METHODS["L-DAWA"].colour, "linewidth": 3.0},
}
APART = FROZEN = "#e4e4e4"  # of what is not pooled, or not trained


@style.use_style()
def scaling(vectors: pd.DataFrame, angles: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Vectors in the plane, a panel for each of two cases, then angle and length after scaling by the cosine.

    Args:
        vectors: a row per arrow from the origin with the columns panel (two of them, (a) and (b)), kind (a key of
            ``KINDS``), x and y.
        angles: a row per client with the columns angle_before_degrees and angle_after_degrees, to the global model,
            and length_factor, the length after scaling over that before.
        subtitle: what was computed.

    Raises:
        SettingError: a kind that is none of ``KINDS``.
    """
    for kind in vectors["kind"].unique():
        check_choice("kind", kind, KINDS)
    groups = dict(list(vectors.groupby("panel", sort=False)))
    fig, grid = style.panels(len(groups) + 2, width=4.2, height=3.4, most=2)
    reach = 1.12 * np.hypot(vectors["x"], vectors["y"]).max()
    height = min(0, vectors["y"].min()) - 0.12 * reach, max(vectors["y"].max() + 0.1 * reach, reach)
    for axes, (panel, rows) in zip(grid, groups.items(), strict=False):
        _arrows(axes, rows, reach, height)
        axes.set_title(panel)
    angles = angles.sort_values("angle_before_degrees")
    before = angles["angle_before_degrees"]
    lines = {"angle_after_degrees": "angle after (degrees)", "length_factor": "length after / before"}
    for letter, axes, (column, label) in zip("cd", grid[len(groups) :], lines.items(), strict=True):
        axes.set_title(f"({letter}) {label.partition(' ')[0]} after scaling")
        axes.plot(before, angles[column], color=KINDS["L-DAWA"]["color"])
        axes.axvline(90, color=style.MUTED, linestyle=":", linewidth=1)
        axes.xaxis.set_major_locator(MultipleLocator(45))
        axes.set_xlabel("angle before (degrees)")
        axes.set_ylabel(label)
    unscaled = grid[len(groups)]
    unscaled.plot([0, 180], [0, 180], color=style.MUTED, linestyle="--", linewidth=1)
    unscaled.text(128, 146, "unscaled", color=style.MUTED, fontsize=8, ha="right", va="center")
    unscaled.yaxis.set_major_locator(MultipleLocator(45))
    unscaled.set_ylim(-5, 185)
    keys = {kind: look for kind, look in KINDS.items() if kind in set(vectors["kind"])}
    return style.finish(fig, title, subtitle, keys=keys, columns=5)


def _arrows(axes: Axes, rows: pd.DataFrame, reach: float, height: tuple[float, float]) -> None:
    for kind, x, y in rows[["kind", "x", "y"]].itertuples(index=False):
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11, **KINDS[kind]}
        axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops=arrow)
    axes.plot(0, 0, "o", color="black", markersize=3)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(height)
    axes.set_aspect("equal")
    axes.axhline(0, color=style.MUTED, linewidth=0.6, zorder=0)
    axes.axvline(0, color=style.MUTED, linewidth=0.6, zorder=0)
    axes.set_xticks([])
    axes.set_yticks([])
    style.no_axes(axes)


def _cells(axes: Axes, faces: Sequence[Sequence[str]], x_names: Sequence[object], y_names: Sequence[object]) -> None:
    """A matrix of colours from the top, with white lines between the cells; None leaves a cell empty."""
    axes.imshow(
        [[(1.0, 1.0, 1.0) if face is None else to_rgb(face) for face in row] for row in faces],
        aspect="auto", interpolation="nearest",
    )  # fmt: skip
    for ticks, names in ((axes.set_xticks, x_names), (axes.set_yticks, y_names)):
        step = -(-len(names) // 12)
        ticks(range(0, len(names), step), names[::step])
        ticks(np.arange(len(names) + 1) - 0.5, minor=True)
    style.no_axes(axes)
    axes.grid(True, which="minor", color="white", linewidth=1.2)


@style.use_style()
def normalisation_sets(
    reached: Mapping[str, np.ndarray], *, index: tuple[int, int], subtitle: str, title: str
) -> Figure:
    """Which channels of which images decide one normalised map: a panel for each normalisation.

    Args:
        reached: by a title that starts with BN, GN or TN, bool ``[C, 2K]``, whether the map at ``index`` depends
            on this one; the columns are K first views and then the K second views of the same images.
        index: channel and column of that map, which has a frame.
        subtitle: how it was found.
    """
    channels, views = next(iter(reached.values())).shape
    fig, grid = style.panels(len(reached), width=1.2 + 0.3 * views, height=1.1 + 0.26 * channels, sharey=True)
    images = [*range(1, views // 2 + 1)] * 2
    for axes, (name, cells) in zip(grid, reached.items(), strict=True):
        colour = NORMALISATIONS.get(name[:2], OTHERS[0]).colour
        _cells(axes, np.where(cells, colour, APART), images, range(1, channels + 1))
        axes.add_patch(Rectangle((index[1] - 0.5, index[0] - 0.5), 1, 1, fill=False, edgecolor="black", lw=2))
        axes.axvline(views / 2 - 0.5, color="black", linestyle="--", lw=1)
        axes.set_title(name)
        axes.set_xlabel("image: first views | second views")
    grid[0].set_ylabel("channel")
    return style.finish(fig, title, subtitle)


@style.use_style()
def changes_by_stage(changes: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Which units of an encoder changed in which stage, in the method's colour, and which did not at all, in grey.

    Args:
        changes: a row for each unit that was there: method, stage and unit from 1, and largest_change, of a parameter.
        subtitle: the model and its training.
    """
    methods, keys = list(dict.fromkeys(changes["method"])), {}
    stages, units = (range(1, int(changes[name].max()) + 1) for name in ("stage", "unit"))
    fig, grid = style.panels(len(methods), width=3.6, height=3.3, sharey=True)
    for axes, method in zip(grid, methods, strict=True):
        colour = METHODS.get(method, METHODS["FedMoCoV3"]).colour
        rows = changes[changes["method"] == method]
        largest = rows.pivot(index="stage", columns="unit", values="largest_change").reindex(stages, columns=units)
        faces = [
            [None if np.isnan(size) else colour if size > 0 else FROZEN for size in row] for row in largest.to_numpy()
        ]
        _cells(axes, faces, units, stages)
        if rows["stage"].max() < len(stages):
            middle = (len(units) - 1) / 2, len(stages) / 2
            axes.text(*middle, "no other stage", ha="center", va="center", color=style.MUTED)
        axes.set_title(method)
        axes.set_xlabel("layer of the encoder")
        keys[f"changed, {method}"] = {"facecolor": colour}
    grid[0].set_ylabel("stage")
    return style.finish(fig, title, subtitle, keys=keys | {"there, and no bit changed": {"facecolor": FROZEN}})


@style.use_style()
def map_sides(rows: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Side of the maps from the image through client module and decoder, a panel for each architecture.

    Args:
        rows: in order of the layers, the same for all variants: architecture, variant, layer, side (in pixels) and
            sent (whether this map goes to the rServer).
        subtitle: what was built.
    """
    groups, variants = dict(list(rows.groupby("architecture", sort=False))), list(dict.fromkeys(rows["variant"]))
    fig, grid = style.panels(len(groups), width=4.6, height=3.5)
    for axes, (name, panel_rows) in zip(grid, groups.items(), strict=True):
        for number, variant in enumerate(variants):
            look, thin = (OTHERS[3], OTHERS[0])[number % 2], 1 + number % 2  # a thin line over a thick one
            line = panel_rows[panel_rows["variant"] == variant].reset_index()
            axes.plot(
                line["side"], color=look.colour, linestyle=look.line, marker=look.marker, ms=8 / thin, lw=3 / thin,
                label=variant,
            )  # fmt: skip
            axes.plot(line["side"][line["sent"]], "*", ms=15, mfc="white", mec=look.colour, mew=1.5, zorder=4)
        style.category_axis(axes, list(line["layer"]))
        axes.tick_params(axis="x", rotation=90)
        axes.set_ylim(0, 1.12 * panel_rows["side"].max())
        axes.set_yticks(sorted({0, *panel_rows["side"]}))
        axes.set_title(name)
    grid[0].set_ylabel("side of a map (pixels)")
    star = {"linestyle": "", "marker": "*", "markersize": 13, "markerfacecolor": "white", "markeredgecolor": "black"}
    return style.finish(fig, title, subtitle, keys={"sent to the rServer": star})


@style.use_style()
def balance_cases(cases: Mapping[str, np.ndarray], lost: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Who holds which classes, what they make together, and how uneven that becomes when clients are missing.

    Args:
        cases: by name, images of each class that each client holds, ``[clients, classes]``.
        lost: a row for each case and each choice of clients that deliver: case (as in ``cases``), missing (the share,
            0 to 1, that do not) and total_variation (0 to 1). Their mean is drawn, with the least and the largest.
        subtitle: what was made up.

    Raises:
        SettingError: a case in ``lost`` is not in ``cases``.
    """
    import seaborn as sns

    for name in lost["case"].unique():
        check_choice("lost", name, cases)
    columns = 3
    above = -(-len(cases) // columns)
    fig = plt.figure(figsize=(10.5, 2.4 * above + 3.1), layout="constrained")
    frame = fig.add_gridspec(above + 1, columns, height_ratios=[2.4] * above + [3.1])
    for number, (name, counts) in enumerate(cases.items()):
        axes = fig.add_subplot(frame[divmod(number, columns)])
        clients, classes = counts.shape
        colours = sns.color_palette("colorblind", classes)
        bars = pd.DataFrame(np.vstack([counts, counts.mean(axis=0)]), [*range(1, clients + 1), "mean"])
        bars.columns = [f"class {label + 1}" for label in range(classes)]
        options = {label: {"color": colour, "edgecolor": "white"} for label, colour in zip(bars, colours, strict=True)}
        axes.set_ylim(0, 1.06 * stacked_bars(axes, bars, options).max())
        axes.grid(True, axis="y")
        axes.axvline(clients - 0.5, color=style.MUTED, linestyle=":", lw=1)
        axes.set_xlabel("client")
        axes.set_title(name)
        if number % columns == 0:
            axes.set_ylabel("images")
    axes = fig.add_subplot(frame[above, :])
    missing = lost.assign(missing=100 * lost["missing"])
    shares = np.sort(missing["missing"].unique())
    moved = 0.05 * np.diff(shares).min(initial=100) * (pd.Series(range(len(cases)), list(cases)) - (len(cases) - 1) / 2)
    sns.lineplot(
        missing.assign(missing=missing["missing"] + missing["case"].map(moved)), x="missing", y="total_variation",
        hue="case", style="case", hue_order=list(cases), style_order=list(cases), palette="dark", dashes=False,
        markers=list("osD^vPX")[: len(cases)], errorbar=("pi", 100), err_style="bars", err_kws={"capsize": 2},
        ax=axes,
    )  # fmt: skip
    axes.set_xticks(shares)
    axes.set_ylim(bottom=-0.02)
    axes.set_title("What the rServer has when clients are missing: mean, least and largest over all choices of them")
    axes.set_xlabel("missing clients (%)")
    axes.set_ylabel("total variation distance\nto balanced classes")
    return style.finish(fig, title, subtitle)
