"""What a cut costs and what it gives: traffic as stacked bars, accuracy as lines over them."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_style import (
    CUT_LAYER,
    MethodStyle,
    finish,
    legend_below,
    mean_and_std,
    method_styles,
    panels,
    percent_axis,
    spread_note,
    use_style,
)
from fssl_core.settings import check_choice

# Pale, so that the lines stand out; hatches tell the parts apart in grey print too.
PARTS: dict[str, dict[str, str]] = {
    "activations": {"facecolor": "#cfe3f1"},
    "momentum activations": {"facecolor": "#cfe3f1", "hatch": "...."},
    "gradients": {"facecolor": "#9fc5de"},
    "parameters": {"facecolor": "#d9d9d9", "hatch": "////"},
    "momentum parameters": {"facecolor": "#ececec", "hatch": "\\\\\\\\"},
}
APART = 0.12  # of two lines at a cut, whose bars are 1 apart, so that error bars do not cover each other
CHEAPEST = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.8}


@use_style()
def traffic_and_accuracy(
    traffic: pd.DataFrame,
    results: pd.DataFrame,
    metric: str = "linear_probe_accuracy",
    *,
    subtitle: str,
    title: str = "Traffic and accuracy by cut layer",
) -> Figure:
    """Bytes of one client by cut, part upon part, with the cheapest cut framed; accuracies on a second axis.

    A panel without results shows the bars alone: an accuracy never stands over the traffic of another model.

    Args:
        traffic: tidy, with the columns panel, cut_layer, part (a key of ``PARTS``) and bytes. A panel for each value
            of panel, in order of appearance; rows of the same part and cut are added.
        results: a row per run with the columns panel, cut_layer, method and ``metric`` (a fraction): mean and
            standard deviation over rows, usually seeds.
        metric: the accuracy to draw.
        subtitle: profile, data and seeds.
        title: the figure's title.

    Raises:
        SettingError: a part that is none of ``PARTS``, or results of a panel or at a cut without traffic.
    """
    for part in traffic["part"].unique():
        check_choice("part", part, PARTS)
    groups = dict(list(traffic.groupby("panel", sort=False)))
    for panel, runs in results.groupby("panel"):
        check_choice("panel", panel, groups)
        for cut in set(runs["cut_layer"]):
            check_choice("cut_layer", cut, sorted(set(groups[panel]["cut_layer"])))
    fig, grid = panels(len(groups), width=5.2, height=3.6, most=2)
    styles = method_styles(results["method"])
    for axes, (panel, rows) in zip(grid, groups.items(), strict=True):
        cuts = sorted(set(rows["cut_layer"]))
        _stack(axes, rows, cuts)
        axes.set_title(panel)
        axes.set_xlabel(CUT_LAYER)
        axes.set_ylabel("MiB")
        here = results[results["panel"] == panel].dropna(subset=metric)
        if len(here):
            _lines(axes.twinx(), here, metric, cuts, styles)
    legend_below(fig, columns=4)
    sizes = results.dropna(subset=metric).groupby(["panel", "method", "cut_layer"]).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))


def _stack(axes: Axes, rows: pd.DataFrame, cuts: list[int]) -> None:
    mib = rows.pivot_table("bytes", "part", "cut_layer", aggfunc="sum", fill_value=0) / MIB
    places, bottom = range(len(cuts)), 0.0
    for part in (part for part in PARTS if part in mib.index):
        heights = mib.loc[part, cuts].to_numpy()
        axes.bar(places, heights, bottom=bottom, edgecolor="white", linewidth=0.4, label=part, **PARTS[part])
        bottom = bottom + heights
    best = int(bottom.argmin())
    axes.bar(best, bottom[best], zorder=2.5, label="cheapest cut", **CHEAPEST)
    axes.set_xticks(places, cuts)
    axes.get_xticklabels()[best].set_fontweight("bold")
    axes.grid(False, axis="x")


def _lines(axes: Axes, results: pd.DataFrame, metric: str, cuts: list[int], styles: dict[str, MethodStyle]) -> None:
    for number, (name, runs) in enumerate(results.groupby("method", sort=False)):
        style, seeds = styles[name], runs.groupby("cut_layer")[metric]
        summary = np.array([[cuts.index(cut), *mean_and_std(values.to_numpy())] for cut, values in seeds])
        summary[:, 0] += APART * (number - (len(styles) - 1) / 2)
        axes.errorbar(
            *summary.T, label=name, color=style.colour, marker=style.marker, linestyle=style.line, capsize=3,
            markersize=7, markeredgecolor="white", linewidth=2,
        )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.grid(False)
    axes.spines["right"].set_visible(True)
    percent_axis(axes, metric)
