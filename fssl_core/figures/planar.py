"""Planes: the loss around global models with the path that a federation took, and t-SNE pictures of features."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.figures import style

LEVELS = 14  # about as many colours
START = {"marker": "o", "markersize": 8, "markerfacecolor": "white", "markeredgecolor": "black", "linestyle": ""}
END = {"marker": "*", "markersize": 15, "markerfacecolor": "#ffd92f", "markeredgecolor": "black", "linestyle": ""}
RING = {"color": "white", "linestyle": (0, (3, 2)), "linewidth": 1.4}
STEP = {"color": "#e8412c", "linewidth": 1.8, "marker": ".", "markersize": 6}


@style.use_style()
def loss_landscapes(
    surfaces: pd.DataFrame, paths: pd.DataFrame, rings: pd.DataFrame, *, subtitle: str, title: str
) -> Figure:
    """A panel for each run: the loss by colour, the path of the global models, and the circle of the sharpness.

    A row of panels is of one objective. They share their colours, and so can be compared; losses of different
    objectives cannot. Colours change faster near the row's smallest loss, so that basins show beside cliffs.

    Args:
        surfaces: tidy, with the columns ssl_method (rows of panels), method (columns of panels), x, y and loss on a
            grid; a loss that is not finite is left blank.
        paths: with ssl_method, method, x and y in the order of training, and explained_variance_x and
            explained_variance_y (fractions), which the axes are labelled with.
        rings: with ssl_method, method, x and y, points of one closed line in each panel.

    Raises:
        DataError: a row of panels has no finite loss, or only one.
    """
    rows, columns = ([*dict.fromkeys(surfaces[name])] for name in ("ssl_method", "method"))
    fig, grid = style.panels(len(rows) * len(columns), width=4.4, height=3.9, most=len(columns))
    for number, value in enumerate(rows):
        row_frames = [frame[frame["ssl_method"] == value] for frame in (surfaces, paths, rings)]
        levels = _levels(row_frames[0]["loss"].to_numpy(), value)
        line = grid[number * len(columns) : (number + 1) * len(columns)]
        for axes, name in zip(line, columns, strict=True):
            surface, path, ring = (frame[frame["method"] == name] for frame in row_frames)
            if surface.empty:
                axes.set_axis_off()
                continue
            drawn = _surface(axes, surface, levels)
            axes.set_title(f"{value}, {name}")
            _path(axes, path, ring)
        label = f"held-out loss of {value}"
        fig.colorbar(drawn, ax=line, pad=0.02, ticks=levels[::2], format="{x:.3g}", label=label)
    keys = {
        "global model, round by round": STEP,
        "untrained": START,
        "last round": END,
        "circle of the sharpness": RING | {"color": "black"},
    }
    return style.finish(fig, title, subtitle, keys=keys)


def _levels(losses: np.ndarray, name: str) -> np.ndarray:
    """Bounds of colours from the smallest to the largest loss, finer near the smallest."""
    losses = losses[np.isfinite(losses)]
    low, high = (losses.min(), losses.max()) if len(losses) else (0.0, 0.0)
    if not high > low:
        raise DataError(f"The surfaces of {name} have no two different losses to draw.")
    return low + (high - low) * (np.geomspace(1, 20, LEVELS + 1) - 1) / 19


def _surface(axes: Axes, surface: pd.DataFrame, levels: np.ndarray):
    table = surface.pivot_table("loss", "y", "x", dropna=False)
    losses = np.ma.masked_invalid(table.to_numpy())
    drawn = axes.contourf(table.columns, table.index, losses, levels=levels, cmap="viridis", extend="neither")
    axes.contour(table.columns, table.index, losses, levels=levels, colors="white", linewidths=0.3, alpha=0.6)
    axes.set_aspect("equal")
    axes.grid(False)
    return drawn


def _path(axes: Axes, path: pd.DataFrame, ring: pd.DataFrame) -> None:
    axes.autoscale(False)  # a circle may be larger than the surface
    closed = pd.concat([ring, ring.head(1)])
    axes.plot(closed["x"], closed["y"], **RING)
    axes.plot(path["x"], path["y"], **STEP)
    for index, mark in ((0, START), (-1, END)):
        axes.plot(path["x"].iloc[index], path["y"].iloc[index], zorder=4, **mark)
    for label, axis in ((axes.set_xlabel, "x"), (axes.set_ylabel, "y")):
        share = path[f"explained_variance_{axis}"].iloc[0]
        label(f"{'first' if axis == 'x' else 'second'} component ({100 * share:.0f} % of variance)")


@style.use_style()
def clusters(
    planes: Mapping[str, tuple[Tensor, Tensor]],
    classes: Sequence[str],
    *,
    notes: Mapping[str, str] | None = None,
    subtitle: str,
    title: str,
) -> Figure:
    """Points by class, without scales: neither distances nor directions of a t-SNE picture mean anything.

    Args:
        planes: title of the panel -> points float [N, 2], and their labels int [N], both on the CPU.
        classes: name of each label.
        notes: title of a panel -> a line below it, such as its measures.
    """
    import seaborn as sns

    palette = sns.color_palette("colorblind" if len(classes) <= 10 else "husl", len(classes))
    colours = dict(zip(classes, palette, strict=True))
    present = {classes[label] for _, labels in planes.values() for label in labels.unique().tolist()}
    fig, grid = style.panels(len(planes), width=3.4, height=3.4)
    for axes, (name, (points, labels)) in zip(grid, planes.items(), strict=True):
        x, y = points.numpy().T
        options = {"s": 200 / len(points) ** 0.5, "alpha": 0.7, "linewidth": 0, "legend": False}
        sns.scatterplot(x=x, y=y, hue=[classes[label] for label in labels], palette=colours, ax=axes, **options)
        axes.set_title(name)
        axes.set_xlabel((notes or {}).get(name, ""))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(visible=True, color="#cccccc")
    dot = {"marker": "o", "linestyle": ""}
    keys = {name: {"color": colour, **dot} for name, colour in colours.items() if name in present}
    return style.finish(fig, title, subtitle, keys=keys, columns=10)
