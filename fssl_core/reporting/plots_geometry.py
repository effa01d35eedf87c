"""What weighting by the cosine does to a client's vector: Figure 3 of L-DAWA, drawn in the plane."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from fssl_core.reporting.plots_style import METHODS, MUTED, finish, panels, use_style
from fssl_core.settings import check_choice

KINDS = {  # of a vector: how its arrow looks
    "global model": {"color": "black", "linewidth": 2.4},
    "client": {"color": "#56b4e9", "linewidth": 1.6},
    "client, scaled": {"color": "#0173b2", "linewidth": 1.6, "linestyle": (0, (3, 1.2))},
    "FedAvg": {"color": METHODS["FedAvg"].colour, "linewidth": 3.0},
    "L-DAWA": {"color": METHODS["L-DAWA"].colour, "linewidth": 3.0},
}


@use_style()
def scaling(
    vectors: pd.DataFrame,
    angles: pd.DataFrame,
    *,
    subtitle: str,
    title: str = "What the cosine does to a client's vector",
) -> Figure:
    """Vectors in the plane, a panel for each of two cases, then angle and length after scaling by the cosine.

    Args:
        vectors: a row per arrow from the origin with the columns panel (two of them, (a) and (b)), kind (a key of
            ``KINDS``), x and y.
        angles: a row per client with the columns angle_before_degrees and angle_after_degrees, to the global model,
            and length_factor, the length after scaling over that before.
        subtitle: what was computed.
        title: the figure's title.

    Raises:
        SettingError: a kind that is none of ``KINDS``.
    """
    for kind in vectors["kind"].unique():
        check_choice("kind", kind, KINDS)
    groups = dict(list(vectors.groupby("panel", sort=False)))
    fig, grid = panels(len(groups) + 2, width=4.2, height=3.4, most=2)
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
        axes.axvline(90, color=MUTED, linestyle=":", linewidth=1)
        axes.xaxis.set_major_locator(MultipleLocator(45))
        axes.set_xlabel("angle before (degrees)")
        axes.set_ylabel(label)
    unscaled = grid[len(groups)]
    unscaled.plot([0, 180], [0, 180], color=MUTED, linestyle="--", linewidth=1)
    unscaled.text(138, 146, "unscaled", color=MUTED, fontsize=8, ha="right", va="center")
    unscaled.yaxis.set_major_locator(MultipleLocator(45))
    unscaled.set_ylim(-5, 185)
    drawn = [kind for kind in KINDS if kind in set(vectors["kind"])]
    fig.legend([Line2D([], [], **_line(KINDS[kind])) for kind in drawn], drawn, loc="outside lower left", ncols=5)
    return finish(fig, title, subtitle)


def _line(look: Mapping) -> dict:
    return {name: look[name] for name in ("color", "linewidth", "linestyle") if name in look}


def _arrows(axes: Axes, rows: pd.DataFrame, reach: float, height: tuple[float, float]) -> None:
    for kind, x, y in rows[["kind", "x", "y"]].itertuples(index=False):
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11, **_line(KINDS[kind])}
        axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops=arrow)
    axes.plot(0, 0, "o", color="black", markersize=3)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(height)
    axes.set_aspect("equal")
    axes.axhline(0, color=MUTED, linewidth=0.6, zorder=0)
    axes.axvline(0, color=MUTED, linewidth=0.6, zorder=0)
    axes.grid(False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
