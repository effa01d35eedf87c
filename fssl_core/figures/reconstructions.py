"""What attackers make of what they see: their images, and measures of how alike these are to the originals."""

from collections.abc import Collection, Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.figures import style
from fssl_core.figures.image_grids import draw_mosaic
from fssl_core.figures.style import METHOD_COLOURS, OTHERS, MethodStyle

MEASURES = {"mse": "MSE", "psnr": "PSNR (dB)", "ssim": "SSIM"}  # pixels in [0, 1]
EXPLAINED = {**MEASURES, "explained": "explained share"}
REFERENCES = {"untrained": ("untrained decoder", ":"), "mean_image": ("mean image", "-.")}
PANEL_ROW = 5  # mosaics side by side
FOUND = ("view 1", "view 2", "image")  # by an attack: the rows of a mosaic
PARTS = {  # of an attack's errors
    "views": MethodStyle(METHOD_COLOURS["MFCL"], "o", ""),
    "images": MethodStyle(OTHERS[1].colour, "s", ""),
}
ATTACKS = {  # a decoder that is trained, or a search of pixels; and with less knowledge
    "decoder": ("o", (0, (4, 1.2))),
    "search": ("s", "-"),
    "search, model unknown": ("^", ":"),
}


def _pictures_above(
    pictures: Mapping[str, Mapping[str, Tensor]], measures: float, *, columns: int | None = None
) -> tuple[Figure, SubFigure]:
    """A figure whose upper part has a mosaic for each name, its rows named in the first column, and its lower part.

    Args:
        pictures: title -> name of the row -> uint8 ``[images, C, H, W]``; none: there is no upper part.
        measures: height of the lower part, in inches.
        columns: mosaics side by side; None for all.

    Raises:
        DataError: images are not of one shape.
    """
    if not pictures:
        fig = plt.figure(figsize=(11.0, measures), layout="constrained")
        return fig, fig.subfigures()
    shapes = {tuple(images.shape) for rows in pictures.values() for images in rows.values()}
    if len(shapes) != 1:
        raise DataError(f"Reconstructions need the shape of the originals, got {sorted(map(list, shapes))}.")
    (count, _, height, width), columns = shapes.pop(), columns or len(pictures)
    most, lines = max(map(len, pictures.values())), -(-len(pictures) // columns)
    above = 0.36 + 0.18 * max(title.count("\n") for title in pictures)  # inches, of the titles
    top = lines * (above + 10.2 / columns * most * height / (count * width))
    fig = plt.figure(figsize=(11.0, top + measures), layout="constrained")
    upper, lower = fig.subfigures(2, 1, height_ratios=(top, measures))
    grid = list(upper.subplots(lines, columns, squeeze=False).flat)
    for axes in grid:
        axes.set_axis_off()
    names = [list(rows) for rows in pictures.values()]
    for number, (axes, (title, rows)) in enumerate(zip(grid, pictures.items(), strict=False)):
        axes.set_axis_on()
        axes.set_anchor("N")
        named = number % columns == 0 or names[number] != names[number - 1]
        draw_mosaic(axes, rows, named=named, title=title)
    return fig, lower


def _by_layers(
    fig: SubFigure,
    results: pd.DataFrame,
    x: str,
    x_label: str,
    measures: Collection[str],
    styles: Mapping[str, MethodStyle],
    references: Collection[str],
) -> str:
    """Measures by the number of layers on the client, with the means of their references; says what spreads are."""
    ticks = sorted(results[x].unique())
    apart = 0.08 * min(np.diff(ticks), default=1)
    for axes, measure in zip(fig.subplots(1, len(measures)), measures, strict=True):
        style.lines_over_seeds(axes, results, x, measure, styles, apart=apart)
        for reference in references:
            label, line = REFERENCES[reference]
            mean = results.groupby(x)[f"{reference}_{measure}"].mean()
            axes.plot(mean.index, mean, color=style.GREY, linestyle=line, zorder=1, label=label)
        axes.set_xticks(ticks)
        axes.set_xlabel(x_label)
        axes.set_ylabel(EXPLAINED[measure])
        axes.set_title(f"{'higher' if measure == 'mse' else 'lower'} is more private")
        if measure == "mse":
            axes.set_ylim(bottom=0)
    return style.spread_note(results.groupby(["method", x]).size(), "markers", "lines")


@style.use_style()
def inversion_attack(
    results: pd.DataFrame,
    originals: Tensor | None,
    reconstructions: Mapping[str, Mapping[int, Tensor]],
    *,
    subtitle: str,
    title: str = "What an attacker makes of the activations",
) -> Figure:
    """Reconstructed images by cut and method; below, MSE, PSNR and SSIM by cut with their reference lines.

    Lines are means and standard deviations over rows, usually seeds, with each row as a dot. The reference lines are
    means over methods and seeds.

    Args:
        results: a row per attacked model with the columns method and cut_layer, the measures mse, psnr (decibel) and
            ssim, and the same with ``untrained_`` and with ``mean_image_`` before them.
        originals: the attacked images, uint8 ``[images, C, H, W]`` with C 1 or 3.
        reconstructions: method -> cut layer -> uint8 ``[images, C, H, W]``; the same cuts for each method. Empty where
            there are none: then measures are drawn alone.

    Raises:
        DataError: reconstructions are not of the originals' shape, or methods have different cuts.
    """
    cuts = [sorted(by_cut) for by_cut in reconstructions.values()]
    if any(other != cuts[0] for other in cuts):
        raise DataError(f"Reconstructions of methods stand side by side, so they need the same cuts, got {cuts}.")
    pictures = {
        method: {"original": originals, **{f"cut {cut}": by_cut[cut] for cut in cuts[0]}}
        for method, by_cut in reconstructions.items()
    }
    fig, lower = _pictures_above(pictures, 3.6)
    styles = style.method_styles(results["method"])
    spread = _by_layers(lower, results, "cut_layer", style.CUT_LAYER, MEASURES, styles, REFERENCES)
    return style.finish(fig, title, subtitle, spread)


@style.use_style()
def attacks_by_depth(
    results: pd.DataFrame,
    originals: Tensor,
    reconstructions: Mapping[tuple[str, str], Mapping[int, Tensor]],
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
        reconstructions: (system, attack) -> layers -> uint8 ``[images, C, H, W]``; a panel each.

    Raises:
        DataError: reconstructions are not of the originals' shape.
    """
    pictures = {
        f"{system}:\n{attack}": {
            "original": originals,
            **{f"cut {layers}": by_layers[layers] for layers in sorted(by_layers)},
        }
        for (system, attack), by_layers in reconstructions.items()
    }
    fig, lower = _pictures_above(pictures, 3.3)
    styles = {
        f"{system}: {attack}": MethodStyle(METHOD_COLOURS[system], *ATTACKS[attack])
        for system, attack in reconstructions
    }
    named = results.assign(method=results["system"] + ": " + results["attack"])
    spread = _by_layers(lower, named, "layers", "layers on the client", EXPLAINED, styles, ["mean_image"])
    return style.finish(fig, title, subtitle, spread)


@style.use_style()
def reconstruction_cases(results: pd.DataFrame, pictures: Mapping[str, Tensor], *, subtitle: str, title: str) -> Figure:
    """Reconstructions, a panel for each attack; below, four measures of all attacks, a row each.

    Markers are means and standard deviations over rows of ``results``, usually seeds, with each row as a dot.

    Args:
        results: a row per attack and part with the columns attack (its name), part (``"views"`` or ``"images"``), mse,
            psnr (decibel), ssim and explained (see :func:`fssl_core.privacy.image_quality.explained`); and grey_mse,
            of a grey view. Attacks are drawn in their order.
        pictures: name -> uint8 ``[3, images, C, H, W]``, a panel each with the rows of ``FOUND``; first what is to be
            found. Empty where there are none: then measures are drawn alone.

    Raises:
        DataError: a picture has another number of rows, or another shape than the first.
    """
    shapes = {name: list(images.shape) for name, images in pictures.items()}
    first = next(iter(shapes.values()), None)
    if any(shape != first or shape[0] != len(FOUND) for shape in shapes.values()):
        raise DataError(
            f"Panels of {len(FOUND)} rows need images [{len(FOUND)}, images, C, H, W], all alike: {shapes}."
        )
    attacks = list(dict.fromkeys(results["attack"]))
    named = {name: dict(zip(FOUND, images, strict=True)) for name, images in pictures.items()}
    fig, lower = _pictures_above(named, 1.3 + 0.24 * len(attacks), columns=PANEL_ROW)
    measured = list(lower.subplots(1, len(EXPLAINED), sharey=True))
    for axes, (measure, label) in zip(measured, EXPLAINED.items(), strict=True):
        values = results.groupby(["attack", "part"])[measure].apply(np.array).to_dict()
        for (part, look), start in zip(PARTS.items(), (-0.24, 0.08), strict=True):
            each = [values.get((attack, part), np.array([])) for attack in attacks]
            style.rows_over_seeds(axes, each, look, start=start, label=part)
        axes.set_xlabel(label)
        axes.set_title(f"{'right' if measure == 'mse' else 'left'} is more private")
    mse = measured[0]
    mse.axvline(results["grey_mse"].mean(), color=style.GREY, linestyle=":", zorder=1, label="a grey view")
    mse.set_xlim(left=-0.04 * mse.get_xlim()[1])  # or the markers of exact attacks are cut in two
    mse.set_yticks(range(len(attacks)), attacks)
    mse.set_ylim(len(attacks) - 0.5, -0.5)
    sizes = results.groupby(["attack", "part"]).size()
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "markers", "lines"))


@style.use_style()
def reconstructions_by_arm(originals: Tensor, reconstructions: Mapping[str, Tensor], *, subtitle: str) -> Figure:
    """A row of attacked images, and one of its reconstructions for each attacked model.

    Args:
        originals: uint8 ``[images, C, H, W]`` with C 1 or 3.
        reconstructions: label of the row -> uint8 of the same shape.

    Raises:
        DataError: a reconstruction is not of the originals' shape.
    """
    rows = {"original": originals, **reconstructions}
    count, _, height, width = originals.shape
    fig, (axes,) = style.panels(1, width=8.5, height=6.0 * len(rows) * height / (count * width))
    draw_mosaic(axes, rows)
    return style.finish(fig, "What the attacker makes of the activations", subtitle)
