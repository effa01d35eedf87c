"""Images: side by side under their names, in mosaics, samples of data sets, activations, and saliency maps."""

from collections.abc import Iterable, Mapping

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.figures import style

COLUMNS = 2  # panels of samples in a row
WIDTH, IMAGES, TITLE = 4.8, 3.6, 0.4  # inches: width of a panel, of the images in it, height of its title
CHANNELS = 3  # of an activation, a row each
ROW = 0.55  # inches, of a row of maps
CEILING = 0.99  # quantile of a map from which on it is brightest: a few pixels would else leave the rest black


def mosaic(rows: Iterable[Tensor]) -> np.ndarray:
    """Images of one shape in rows and columns, with white lines between them.

    Args:
        rows: each uint8 ``[images, C, H, W]`` with C 1 or 3.

    Returns:
        uint8 ``[height, width, 3]``.

    Raises:
        DataError: the rows have different shapes.
    """
    rows = list(rows)
    if any(row.shape != rows[0].shape for row in rows):
        raise DataError(f"Images side by side need the shape of the first, got {[list(row.shape) for row in rows]}.")
    images = torch.stack(rows)  # [rows, images, C, H, W]
    gap = max(1, images.shape[-1] // 16)
    images = F.pad(images, (0, gap, 0, gap), value=255)
    pixels = images.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)  # [rows * H, images * W, C]
    return pixels.expand(-1, -1, 3).numpy()


def draw_mosaic(axes: Axes, rows: Mapping[str, Tensor], *, named: bool = True, title: str = "") -> None:
    """A :func:`mosaic` of rows by name, which stands beside each of them unless they are not to be ``named``."""
    pixels = mosaic(rows.values())
    axes.imshow(pixels, interpolation="nearest")
    ticks = (np.arange(len(rows)) + 0.5) * (len(pixels) / len(rows)) - 0.5
    axes.set_yticks(ticks, list(rows) if named else [""] * len(rows))
    axes.set_xticks([])
    style.no_axes(axes)
    axes.set_title(title)


@style.use_style()
def side_by_side(images: Mapping[str, Tensor], *, subtitle: str, title: str) -> Figure:
    """Images under their names.

    Args:
        images: name -> uint8 or float in [0, 1], [3, H, W] or [1, H, W].
        subtitle: where the images come from.
    """
    fig, grid = style.panels(len(images), width=2.0, height=2.0, most=6)
    for axes, (name, image) in zip(grid, images.items(), strict=True):
        _picture(axes, image)
        axes.set_title(name, loc="center")
        axes.set_axis_off()
    return style.finish(fig, title, subtitle)


def _picture(axes: Axes, image: Tensor) -> None:
    pixels = image.cpu().permute(1, 2, 0).numpy()
    grey = pixels.shape[-1] == 1
    axes.imshow(pixels[..., 0] if grey else pixels, cmap="gray", vmin=0, vmax=255 if pixels.dtype == np.uint8 else 1)


@style.use_style()
def samples(sets: Mapping[str, Mapping[str, Tensor] | str], *, subtitle: str, title: str) -> Figure:
    """Images of several data sets, a panel each, in it a row for each class.

    Args:
        sets: title of the panel -> by class, its images on the CPU, uint8 ``[images, C, H, W]`` with C 1 or 3 and equal
            shapes within a panel; or a sentence that says why there are none.
        subtitle: where the images come from.
    """
    shown = [value for value in sets.values() if not isinstance(value, str)]
    most = max((len(images) for value in shown for images in value.values()), default=10)
    rows = [1 if isinstance(value, str) else len(value) for value in sets.values()]
    heights = [TITLE + IMAGES / most * max(rows[first : first + COLUMNS]) for first in range(0, len(rows), COLUMNS)]
    height = sum(heights) / len(heights)
    fig, grid = style.panels(len(sets), width=WIDTH, height=height, most=COLUMNS, height_ratios=heights)
    for axes, (name, value) in zip(grid, sets.items(), strict=True):
        if isinstance(value, str):
            axes.set_axis_off()
            axes.set_title(name)
            axes.text(0, 1, value, transform=axes.transAxes, va="top", fontsize=9, color=style.MUTED)
            continue
        draw_mosaic(axes, value, title=name)
        axes.tick_params(axis="y", labelsize=8)
        axes.set_anchor("NW")
    return style.finish(fig, title, subtitle)


@style.use_style()
def activation_grid(
    image: Tensor,
    activations: Mapping[int, Tensor],
    *,
    subtitle: str,
    title: str = "What a layer still shows of the image",
    captions: Mapping[int, str] | None = None,
) -> Figure:
    """The input image and the first channels of each layer's activation, each stretched to its own range.

    Args:
        image: uint8, [3, H, W] or [1, H, W].
        activations: layer -> float, [channels, h, w]; put the channels to show first.
        subtitle: model, image and how channels were chosen.
        captions: layer -> a short text under its column, e.g. its similarity to the input.
    """
    columns = 1 + len(activations)
    fig, grid = style.panels(columns * CHANNELS, width=1.35, height=1.35, most=columns)
    for axes in grid:
        axes.set_axis_off()
    _picture(grid[0], image)
    grid[0].set_title("input", loc="center")
    for column, (layer, maps) in enumerate(activations.items(), start=1):
        for axes, channel in zip(grid[column::columns], maps.float().cpu().numpy(), strict=False):
            axes.imshow(channel, cmap="viridis", interpolation="nearest")
        grid[column].set_title(f"layer {layer}", loc="center")
        size = f"{maps.shape[-2]}×{maps.shape[-1]}"
        text = size if captions is None else f"{size}\n{captions[layer]}"
        bottom = grid[(CHANNELS - 1) * columns + column]
        bottom.text(0.5, -0.06, text, transform=bottom.transAxes, ha="center", va="top", fontsize=8, color=style.MUTED)
    return style.finish(fig, title, subtitle)


@style.use_style()
def saliency_maps(
    images: Tensor,
    maps: Mapping[str, Tensor],
    shares: Mapping[str, Tensor],
    *,
    share_label: str,
    subtitle: str,
    title: str,
) -> Figure:
    """Images in the first row, their maps in a row for each network; beside it a share of the map.

    A map is drawn relative to its own brightest pixels. Of the shares there are dots, one for each image, also those
    that are not drawn, and their mean and standard deviation.

    Args:
        images: uint8 ``[n, C, H, W]`` with C 1 or 3, on the CPU.
        maps: name of the network -> float ``[n, H, W]``, at least 0.
        shares: the same names -> what share of the map of each image lies on the half of interest, ``[N]`` in [0, 1].
        share_label: what share that is.

    Raises:
        DataError: a map does not have the images' shape, or the names differ.
    """
    size = (len(images), *images.shape[2:])
    if any(tuple(of.shape) != size for of in maps.values()) or [*maps] != [*shares]:
        raise DataError(f"Maps {list(size)} and shares need the same names, got {[*maps]} and {[*shares]}.")
    rows = {"image": images.expand(-1, 3, -1, -1), **{name: _coloured(of) for name, of in maps.items()}}
    height = ROW * len(rows)
    width = height * size[0] * size[2] / (len(rows) * size[1])
    fig, (left, right) = style.panels(2, width=(width + 5.2) / 2, height=height, width_ratios=(width, 2.8))
    draw_mosaic(left, rows)
    left.set_anchor("NE")
    style.rows_over_seeds(right, [values.numpy() for values in shares.values()], style.OTHERS[0], start=1)
    right.axvline(0.5, color=style.GREY, linestyle=":", zorder=1)
    right.set_xlim(0, 1)
    right.set_ylim(len(rows) - 0.5, -0.5)
    right.set_yticks(range(1, len(rows)), [])
    style.percent_axis(right.xaxis, share_label)
    sizes = map(len, shares.values())
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "circles", "lines", over="images"))


def _coloured(maps: Tensor) -> Tensor:
    """Maps ``[n, H, W]`` as colours, uint8 ``[n, 3, H, W]``."""
    ceiling = maps.flatten(1).quantile(CEILING, dim=1)[:, None, None].clamp_min(1e-12)
    colours = torch.from_numpy(matplotlib.colormaps["magma"]((maps / ceiling).clamp(0, 1).numpy(), bytes=True))
    return colours[..., :3].permute(0, 3, 1, 2)
