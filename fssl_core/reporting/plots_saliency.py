"""Saliency maps of several networks under the images that they see, and what share lies where."""

from collections.abc import Mapping

import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.reporting.plots_style import (
    GREY,
    OTHERS,
    draw_mosaic,
    finish,
    mean_and_std,
    mosaic,
    spread_note,
    use_style,
)

HEAT = "magma"
ROW = 0.55  # inches
CEILING = 0.99  # quantile of a map from which on it is brightest: a few pixels would else leave the rest black


@use_style()
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
        subtitle: profile, data and seeds.
        title: the figure's title.

    Raises:
        DataError: a map does not have the images' shape, or the names differ.
    """
    size = (len(images), *images.shape[2:])
    if any(tuple(of.shape) != size for of in maps.values()) or [*maps] != [*shares]:
        raise DataError(f"Maps {list(size)} and shares need the same names, got {[*maps]} and {[*shares]}.")
    rows = [images.expand(-1, 3, -1, -1), *(_coloured(of) for of in maps.values())]
    pixels = mosaic(rows)
    height = ROW * len(rows)
    width = height * pixels.shape[1] / pixels.shape[0]
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(width + 5.2, height), layout="constrained", width_ratios=(width, 2.8)
    )
    draw_mosaic(left, pixels, ["image", *maps])
    left.set_anchor("NE")
    for place, values in enumerate(shares.values(), start=1):
        mean, std = mean_and_std(values.numpy())
        right.plot(values, [place + 0.22] * len(values), ".", color=GREY, alpha=0.3, markersize=3)
        right.errorbar(mean, place, xerr=std, color=OTHERS[0].colour, marker="o", markersize=6, capsize=3)
    right.axvline(0.5, color=GREY, linestyle=":", zorder=1)
    right.set_xlim(0, 1)
    right.set_ylim(len(rows) - 0.5, -0.5)
    right.set_yticks(range(1, len(rows)), [])
    right.tick_params(axis="y", length=0)
    right.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}")
    right.set_xlabel(f"{share_label} (%)")
    sizes = map(len, shares.values())
    return finish(fig, title, subtitle, spread_note(sizes, "circles", "lines", over="images"))


def _coloured(maps: Tensor) -> Tensor:
    """Maps ``[n, H, W]`` as colours, uint8 ``[n, 3, H, W]``."""
    ceiling = maps.flatten(1).quantile(CEILING, dim=1)[:, None, None].clamp_min(1e-12)
    colours = torch.from_numpy(matplotlib.colormaps[HEAT]((maps / ceiling).clamp(0, 1).numpy(), bytes=True))
    return colours[..., :3].permute(0, 3, 1, 2)
