"""What a defence of the client part costs and gains: accuracy against an attack's error, and what the attack sees."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.reporting.plots_style import (
    GREY,
    MUTED,
    MethodStyle,
    draw_mosaic,
    finish,
    method_styles,
    mosaic,
    panels,
    percent_axis,
    use_style,
)

MEASURES = {"mse": "MSE of the attack", "ssim": "SSIM of the attack, axis reversed"}  # pixels in [0, 1]


@use_style()
def accuracy_against_attack(
    results: pd.DataFrame,
    metric: str = "linear_probe_accuracy",
    *,
    subtitle: str,
    title: str = "What resistance costs and gains",
) -> Figure:
    """Accuracy against the attack's MSE and SSIM; to the right is more private in both panels.

    A large marker is the mean over rows, usually seeds, each of which is a dot. Colour and shape say what the client
    part was made of, a hollow marker that it was frozen.

    Args:
        results: a row per run with the columns client_part (its origin), frozen, ``metric`` (a fraction), mse and
            ssim of the attack, and mean_image_mse and mean_image_ssim, those of an attacker that guesses the mean of
            its own images.
        metric: the accuracy to draw.
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    styles = method_styles(results["client_part"])
    arms = dict(list(results.groupby(["client_part", "frozen"], sort=False)))
    fig, grid = panels(2, width=4.8, height=3.8, sharey=True)
    for axes, (measure, label) in zip(grid, MEASURES.items(), strict=True):
        for (part, frozen), rows in arms.items():
            style = styles[part]
            axes.plot(rows[measure], rows[metric], ".", color=style.colour, alpha=0.55, markersize=5)
            axes.plot(rows[measure].mean(), rows[metric].mean(), **_marker(style, frozen))
        axes.axvline(results[f"mean_image_{measure}"].mean(), color=GREY, linestyle="-.", zorder=1)
        axes.margins(0.12)
        axes.set_xlabel(label)
    mse, ssim = grid
    mse.set_xlim(left=0)
    ssim.invert_xaxis()
    _arrow(mse)
    percent_axis(mse, metric)
    keys = {
        f"{part}, {'frozen' if frozen else 'trained on'}": Line2D([], [], **_marker(styles[part], frozen))
        for part, frozen in arms
    }
    keys["guess: mean image"] = Line2D([], [], color=GREY, linestyle="-.")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=3)
    return finish(fig, title, subtitle)


def _marker(style: MethodStyle, frozen: bool) -> dict[str, object]:
    fill = "white" if frozen else style.colour
    return {
        "linestyle": "", "marker": style.marker, "color": style.colour, "markerfacecolor": fill, "markersize": 10,
        "markeredgewidth": 2,
    }  # fmt: skip


def _arrow(axes: Axes) -> None:
    axes.text(1, 1.02, "more private →", transform=axes.transAxes, ha="right", color=MUTED, fontsize=9)


@use_style()
def reconstructions_by_arm(
    originals: Tensor,
    reconstructions: Mapping[str, Tensor],
    *,
    subtitle: str,
    title: str = "What the attacker makes of the activations",
) -> Figure:
    """A row of attacked images, and one of its reconstructions for each attacked model.

    Args:
        originals: uint8 ``[images, C, H, W]`` with C 1 or 3.
        reconstructions: label of the row -> uint8 of the same shape.
        subtitle: profile, data and seed.
        title: the figure's title.

    Raises:
        DataError: a reconstruction is not of the originals' shape.
    """
    rows = {"original": originals, **reconstructions}
    for name, images in rows.items():
        if images.shape != originals.shape:
            raise DataError(f"{name!r} has the shape {list(images.shape)}, its originals {list(originals.shape)}.")
    pixels = mosaic(rows.values())
    height, width = pixels.shape[:2]
    fig, (axes,) = panels(1, width=8.5, height=6.0 * height / width)
    draw_mosaic(axes, pixels, list(rows))
    return finish(fig, title, subtitle)
