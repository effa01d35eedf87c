"""What the images of data sets look like."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

from fssl_core.reporting.plots_style import MUTED, draw_mosaic, finish, mosaic, use_style

COLUMNS = 2  # panels in a row
WIDTH, IMAGES, TITLE = 4.8, 3.6, 0.4  # inches: width of a panel, of the images in it, height of its title


@use_style()
def samples(sets: Mapping[str, Mapping[str, Tensor] | str], *, subtitle: str, title: str) -> Figure:
    """Images of several data sets, a panel each, in it a row for each class.

    Args:
        sets: title of the panel -> by class, its images on the CPU, uint8 ``[images, C, H, W]`` with C 1 or 3 and equal
            shapes within a panel; or a sentence that says why there are none.
        subtitle: where the images come from.
        title: the figure's title.
    """
    shown = list(sets.items())
    most = max((len(row) for _, value in shown if not isinstance(value, str) for row in value.values()), default=10)
    side = IMAGES / most
    heights = [
        TITLE + side * max(1 if isinstance(value, str) else len(value) for _, value in shown[first : first + COLUMNS])
        for first in range(0, len(shown), COLUMNS)
    ]
    size = WIDTH * COLUMNS, sum(heights)
    fig, grid = plt.subplots(
        len(heights), COLUMNS, figsize=size, squeeze=False, layout="constrained", height_ratios=heights
    )
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (name, value) in zip(grid.flat, shown, strict=False):
        axes.set_title(name)
        if isinstance(value, str):
            axes.text(0, 1, value, transform=axes.transAxes, va="top", fontsize=9, color=MUTED)
            continue
        axes.set_axis_on()
        draw_mosaic(axes, mosaic(value.values()), list(value))
        axes.tick_params(axis="y", labelsize=8)
        axes.set_anchor("NW")
    return finish(fig, title, subtitle)
