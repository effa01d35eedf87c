"""What an attack recovers, and what privacy costs: reconstructions, their error by cut, and three goals at once."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_style import (
    CUT_LAYER,
    GREY,
    MethodStyle,
    draw_mosaic,
    finish,
    lines_over_seeds,
    mean_and_std,
    method_styles,
    mosaic,
    panels,
    percent_axis,
    spread_note,
    use_style,
)

MEASURES = {"mse": "MSE", "psnr": "PSNR (dB)", "ssim": "SSIM"}  # pixels in [0, 1]
MORE_PRIVATE = {"mse": "higher", "psnr": "lower", "ssim": "lower"}
RING = {"marker": "o", "markersize": 20, "mfc": "none", "mec": "black", "mew": 1.3}
REFERENCES = {"untrained": ("untrained decoder", ":"), "mean_image": ("mean image", "-.")}


@use_style()
def inversion_attack(
    results: pd.DataFrame,
    originals: Tensor,
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
        reconstructions: method -> cut layer -> uint8 ``[images, C, H, W]``; the same cuts for each method.
        subtitle: profile, data and seeds.
        title: the figure's title.

    Raises:
        DataError: reconstructions are not of the originals' shape, or methods have different cuts.
    """
    mosaics = _mosaics(originals, reconstructions)
    cuts = sorted(next(iter(reconstructions.values())))
    height, width = next(iter(mosaics.values())).shape[:2]
    side = 10.4 / len(mosaics)  # inches, of a mosaic
    top, bottom = 0.55 + side * height / width, 3.6
    fig = plt.figure(figsize=(11.0, top + bottom), layout="constrained")
    upper, lower = fig.subfigures(2, 1, height_ratios=(top, bottom))
    for axes, (method, pixels) in zip(upper.subplots(1, len(mosaics), squeeze=False)[0], mosaics.items(), strict=True):
        draw_mosaic(axes, pixels, ["original", *(f"cut {cut}" for cut in cuts)])
        axes.set_title(method)
    styles = method_styles(results["method"])
    for axes, measure in zip(lower.subplots(1, len(MEASURES)), MEASURES, strict=True):
        _measure(axes, results, measure, styles)
    keys = {name: _key(style) for name, style in styles.items()}
    keys |= {label: Line2D([], [], color=GREY, linestyle=line) for label, line in REFERENCES.values()}
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=len(keys))
    sizes = results.groupby(["method", "cut_layer"]).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))


def _measure(axes: Axes, results: pd.DataFrame, measure: str, styles: Mapping[str, MethodStyle]) -> None:
    cuts = sorted(results["cut_layer"].unique())
    apart = 0.08 * min(np.diff(cuts), default=1)
    lines_over_seeds(axes, results, "cut_layer", measure, styles, lambda cut, number: cut + apart * number)
    for reference, (_, line) in REFERENCES.items():
        mean = results.groupby("cut_layer")[f"{reference}_{measure}"].mean()
        axes.plot(mean.index, mean, color=GREY, linestyle=line, zorder=1)
    axes.set_xticks(cuts)
    axes.set_xlabel(CUT_LAYER)
    axes.set_ylabel(MEASURES[measure])
    axes.set_title(f"{MEASURES[measure].partition(' ')[0]}: {MORE_PRIVATE[measure]} is more private")
    if measure == "mse":
        axes.set_ylim(bottom=0)


def _mosaics(originals: Tensor, reconstructions: Mapping[str, Mapping[int, Tensor]]) -> dict[str, np.ndarray]:
    """For each method a row of originals and one for each cut, a column per image."""
    cuts = [sorted(by_cut) for by_cut in reconstructions.values()]
    if not cuts or any(other != cuts[0] for other in cuts):
        raise DataError(f"Reconstructions of methods stand side by side, so they need the same cuts, got {cuts}.")
    mosaics = {}
    for method, by_cut in reconstructions.items():
        rows = [originals, *(by_cut[cut] for cut in cuts[0])]
        if any(row.shape != originals.shape for row in rows):
            shapes = [list(row.shape) for row in rows]
            raise DataError(f"Reconstructions need the shape of the originals, {shapes[0]}, got {shapes[1:]}.")
        mosaics[method] = mosaic(rows)
    return mosaics


def pareto_front(frame: pd.DataFrame, *, high: Sequence[str] = (), low: Sequence[str] = ()) -> pd.Series:
    """Whether no other row is at least as good in every column and better in one.

    Args:
        frame: a row for each choice.
        high: columns of which more is better.
        low: columns of which less is better.

    Returns:
        bool, with the frame's index.

    Raises:
        DataError: a value is missing, so that rows cannot be compared.
    """
    goals = np.concatenate([frame[list(high)].to_numpy(dtype=float), -frame[list(low)].to_numpy(dtype=float)], axis=1)
    if np.isnan(goals).any():
        raise DataError(f"Rows without a value in {', '.join([*high, *low])} cannot be compared: leave them out.")
    as_good = (goals[:, None] >= goals).all(-1)  # [better, worse]
    better = as_good & (goals[:, None] > goals).any(-1)
    return pd.Series(~better.any(0), index=frame.index)


@use_style()
def accuracy_traffic_privacy(
    results: pd.DataFrame,
    metric: str = "linear_probe_accuracy",
    *,
    subtitle: str,
    title: str = "Accuracy, traffic and privacy",
) -> Figure:
    """Accuracy against traffic and against the attack's error: a point for each cut, with its number, and method.

    Points are means over rows, usually seeds, with the standard deviation in both directions. A point is ringed where
    no other one is at least as good in all three goals and better in one; the grey steps are the fronts of the two
    goals of a panel.

    Args:
        results: a row per run with the columns method, cut_layer, ``metric`` (a fraction), bytes_per_client_epoch and
            mse of the attack (pixels in [0, 1]).
        metric: the accuracy to draw.
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    points = results.groupby(["method", "cut_layer"], sort=False)[[metric, "bytes_per_client_epoch", "mse"]]
    mean = points.mean().rename(columns={"bytes_per_client_epoch": "traffic"})
    spread = points.agg(lambda values: mean_and_std(values.to_numpy())[1]).set_axis(mean.columns, axis=1)
    mean["traffic"] /= MIB
    spread["traffic"] /= MIB
    best = pareto_front(mean, high=[metric, "mse"], low=["traffic"])
    styles = method_styles(results["method"])
    fig, grid = panels(2, width=5.0, height=4.0, sharey=True)
    for axes, x in zip(grid, ("traffic", "mse"), strict=True):
        _front(axes, mean, metric, x)
        for number, ((method, cut), point) in enumerate(mean.iterrows()):
            style, error, layer = styles[method], spread.loc[(method, cut)], 3 + number  # a number stays with its point
            axes.errorbar(
                point[x], point[metric], xerr=error[x] or None, yerr=error[metric] or None, color=style.colour,
                marker=style.marker, markersize=13, elinewidth=1, capsize=2, zorder=layer,
            )  # fmt: skip
            axes.text(
                point[x], point[metric], cut, ha="center", va="center_baseline", fontsize=8, color="white",
                fontweight="bold", zorder=layer + 0.5,
            )  # fmt: skip
            if best[method, cut]:
                axes.plot(point[x], point[metric], zorder=layer, **RING)
    traffic, privacy = grid
    traffic.set_xlabel("traffic of one client in one epoch (MiB); less is better")
    privacy.set_xlabel("MSE of the attack; more is better")
    percent_axis(traffic, metric)
    for axes in grid:
        axes.margins(0.1)
        axes.set_xlim(left=0)
    fig.get_layout_engine().set(wspace=0.06)  # or the last number of one axis touches the first of the next
    keys = {name: _key(style, line=False) for name, style in styles.items()}
    keys["Pareto front of all three goals"] = Line2D([], [], linestyle="", **RING | {"markersize": 13})
    keys["Pareto front of the two axes"] = Line2D([], [], color=GREY, linewidth=1.2)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=len(keys))
    return finish(fig, title, subtitle, spread_note(points.size(), "markers", "lines"))


def _front(axes: Axes, mean: pd.DataFrame, metric: str, x: str) -> None:
    """Through the points of the panel's front: the best accuracy at no more than this traffic, or no less MSE."""
    goals = {"low": ["traffic"]} if x == "traffic" else {"high": ["mse"]}
    front = mean[pareto_front(mean, high=[metric, *goals.get("high", [])], low=goals.get("low", []))].sort_values(x)
    where = "post" if x == "traffic" else "pre"
    axes.step(front[x], front[metric], where=where, color=GREY, linewidth=1.2, zorder=0.5)


def _key(style: MethodStyle, line: bool = True) -> Line2D:
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle=style.line if line else "")
