"""What attackers reconstruct: pictures of each case of MFCL's Table 8, and two attacks on two systems by depth."""

from collections.abc import Mapping

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.reporting.plots_attack import MEASURES
from fssl_core.reporting.plots_style import (
    GREY,
    METHOD_COLOURS,
    OTHERS,
    MethodStyle,
    draw_mosaic,
    finish,
    first_column,
    lines_over_seeds,
    mean_and_std,
    mosaic,
    spread_note,
    use_style,
)

PANEL_ROW = 5  # mosaics side by side
PARTS = {  # of an attack's errors, by the name in the key
    "views": MethodStyle(METHOD_COLOURS["MFCL"], "o", ""),
    "images": MethodStyle(OTHERS[1].colour, "s", ""),
}
AXES = {**MEASURES, "explained": "explained share"}


@use_style()
def reconstruction_cases(
    results: pd.DataFrame,
    pictures: Mapping[str, Tensor],
    *,
    rows: tuple[str, ...] = ("view 1", "view 2", "image"),
    subtitle: str,
    title: str,
) -> Figure:
    """Reconstructions, a panel for each attack; below, four measures of all attacks, a row each.

    Markers are means and standard deviations over rows of ``results``, usually seeds, with each row as a dot.

    Args:
        results: a row per attack and part with the columns attack (its name), part (``"views"`` or ``"images"``), mse,
            psnr (decibel), ssim and explained (see :func:`fssl_core.privacy.image_quality.explained`); and grey_mse,
            of a grey view. Attacks are drawn in their order.
        pictures: name -> uint8 ``[rows, images, C, H, W]``, a panel each; first what is to be found.
        rows: what each row of a panel is.
        subtitle: profile, data and seeds.
        title: the figure's title.

    Raises:
        DataError: a picture has not as many rows as there are names, or another shape than the first.
    """
    shapes = {name: list(images.shape) for name, images in pictures.items()}
    first = next(iter(shapes.values()))
    if any(shape != first for shape in shapes.values()) or first[0] != len(rows):
        raise DataError(f"Panels of {len(rows)} rows need images [{len(rows)}, images, C, H, W], all alike: {shapes}.")
    attacks = list(dict.fromkeys(results["attack"]))
    mosaics = {name: mosaic(images) for name, images in pictures.items()}
    height, width = next(iter(mosaics.values())).shape[:2]
    lines = -(-len(mosaics) // PANEL_ROW)
    top, bottom = lines * (0.35 + 2.0 * height / width), 1.3 + 0.24 * len(attacks)  # inches
    fig = plt.figure(figsize=(11.0, top + bottom), layout="constrained")
    upper, lower = fig.subfigures(2, 1, height_ratios=(top, bottom))
    grid = list(upper.subplots(lines, PANEL_ROW, squeeze=False).flat)
    for axes, (name, pixels) in zip(grid, mosaics.items(), strict=False):
        draw_mosaic(axes, pixels, rows if first_column(axes) else [""] * len(rows))
        axes.set_title(name)
    for axes in grid[len(mosaics) :]:
        axes.set_axis_off()
    measured = list(lower.subplots(1, len(AXES), sharey=True))
    for axes, (measure, label) in zip(measured, AXES.items(), strict=True):
        _rows(axes, results, attacks, measure)
        axes.set_xlabel(label)
        axes.set_title(f"{'right' if measure == 'mse' else 'left'} is more private")
    measured[0].axvline(results["grey_mse"].mean(), color=GREY, linestyle=":", zorder=1)
    measured[0].set_xlim(left=-0.04 * measured[0].get_xlim()[1])  # or the markers of exact attacks are cut in two
    measured[0].set_yticks(range(len(attacks)), attacks)
    measured[0].set_ylim(len(attacks) - 0.5, -0.5)
    keys = {name: Line2D([], [], color=s.colour, marker=s.marker, linestyle="") for name, s in PARTS.items()}
    keys["a grey view"] = Line2D([], [], color=GREY, linestyle=":")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=len(keys))
    sizes = results.groupby(["attack", "part"]).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))


def _rows(axes: Axes, results: pd.DataFrame, attacks: list[str], measure: str) -> None:
    """Each attack at its height, the parts a little apart."""
    for part, above in zip(PARTS, (-0.16, 0.16), strict=True):
        style = PARTS[part]
        for place, attack in enumerate(attacks):
            values = results[(results["attack"] == attack) & (results["part"] == part)][measure].to_numpy()
            if len(values):
                mean, std = mean_and_std(values)
                axes.errorbar(
                    mean, place + above, xerr=std, color=style.colour, marker=style.marker, markersize=6, capsize=2
                )
                axes.plot(values, [place + above] * len(values), ".", color=style.colour, alpha=0.35, markersize=4)
    axes.tick_params(axis="y", length=0)


ATTACKS = {  # a decoder that is trained, or a search of pixels; and with less knowledge
    "decoder": ("o", (0, (4, 1.2))),
    "search": ("s", "-"),
    "search, model unknown": ("^", ":"),
}


@use_style()
def attacks_by_depth(
    results: pd.DataFrame,
    originals: Tensor,
    found: Mapping[tuple[str, str], Mapping[int, Tensor]],
    *,
    subtitle: str,
    title: str,
) -> Figure:
    """Reconstructions by system, attack and layers on the client; below, four measures by layers.

    Lines are means and standard deviations over rows of ``results``, usually seeds, with each row as a dot.

    Args:
        results: a row per attack with the columns system (a method), attack (a key of ``ATTACKS``), layers, mse, psnr
            (decibel), ssim and explained (see :func:`fssl_core.privacy.image_quality.explained`); and the same with
            ``mean_image_`` before them, of the mean of an attacker's images as the guess for every image.
        originals: the attacked images, uint8 ``[images, C, H, W]``.
        found: (system, attack) -> layers -> uint8 ``[images, C, H, W]``; a panel each.
        subtitle: profile, data and seeds.
        title: the figure's title.

    Raises:
        DataError: reconstructions are not of the originals' shape.
    """
    shapes = {tuple(images.shape) for by_layers in found.values() for images in by_layers.values()}
    if shapes != {tuple(originals.shape)}:
        raise DataError(f"Reconstructions need the shape of the originals, {list(originals.shape)}, got {shapes}.")
    images = originals.shape[0]
    most = 1 + max(map(len, found.values()))
    top, bottom = 0.55 + (10.0 / len(found)) * most / images, 3.3  # inches
    fig = plt.figure(figsize=(11.0, top + bottom), layout="constrained")
    upper, lower = fig.subfigures(2, 1, height_ratios=(top, bottom))
    for axes, ((system, attack), by_layers) in zip(
        upper.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        layers = sorted(by_layers)
        draw_mosaic(axes, mosaic([originals, *(by_layers[n] for n in layers)]), ["", *map(str, layers)])
        axes.set_anchor("N")
        axes.set_title(f"{system}:\n{attack}")
    styles = {f"{system}: {attack}": MethodStyle(METHOD_COLOURS[system], *ATTACKS[attack]) for system, attack in found}
    named = results.assign(line=results["system"] + ": " + results["attack"])
    for axes, (measure, label) in zip(lower.subplots(1, len(AXES)), AXES.items(), strict=True):
        lines_over_seeds(axes, named, "layers", measure, styles, lambda x, number: x + 0.07 * number, hue="line")
        axes.axhline(results[f"mean_image_{measure}"].mean(), color=GREY, linestyle="-.", zorder=1)
        axes.set_xticks(sorted(results["layers"].unique()))
        axes.set_xlabel("layers on the client")
        axes.set_ylabel(label)
        axes.set_title(f"{'higher' if measure == 'mse' else 'lower'} is more private")
        if measure == "mse":
            axes.set_ylim(bottom=0)
    keys = {name: Line2D([], [], color=s.colour, marker=s.marker, linestyle=s.line) for name, s in styles.items()}
    keys["guess: mean image"] = Line2D([], [], color=GREY, linestyle="-.")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=3)
    sizes = results.groupby(["system", "attack", "layers"]).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))
