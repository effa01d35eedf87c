"""Curves over the rounds of a federation: accuracy, loss, divergence or norms, round by round."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fssl_core.reporting.plots_style import (
    GREY,
    MethodStyle,
    finish,
    first_column,
    legend_below,
    mean_and_std,
    method_styles,
    panels,
    percent_axis,
    spread_note,
    use_style,
)
from fssl_core.settings import check_choice


@use_style()
def by_round(
    frame: pd.DataFrame,
    metrics: Mapping[str, str],
    *,
    subtitle: str,
    title: str,
    hue: str = "method",
    panel: str | None = "ssl_method",
    percent: Collection[str] = (),
    chance: float | None = None,
    log: Collection[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Quantities against the round: the mean over rows, usually seeds, as a line, their standard deviation as a band.

    A panel for each value of ``panel`` and each metric; metrics are rows of panels, unless there is one value only.

    Args:
        frame: tidy, with the columns round (from 1), ``hue``, ``panel`` and the metrics; a round without a metric is
            left out of its line.
        metrics: column -> label of the y axis.
        subtitle: profile, data and seeds.
        title: the figure's title.
        hue: column whose values become lines; a method has its colour of all figures.
        panel: column whose values become panels with their titles; None for one.
        percent: the metrics that are fractions and shown as percent.
        chance: of guessing, drawn as a line where a metric is shown as percent.
        log: the metrics whose axis is logarithmic.
        bounds: metric -> the least and the largest value that it can have, where its bands end; those of a fraction
            end at 0 and 1.

    Raises:
        SettingError: ``percent``, ``log`` or ``bounds`` names no metric.
    """
    bounds = dict.fromkeys(percent, (0.0, 1.0)) | dict(bounds or {})
    for name in (*bounds, *log):
        check_choice("metric", name, metrics)
    styles = method_styles(frame[hue])
    groups = [(None, frame)] if panel is None else list(frame.groupby(panel, sort=False))
    columns = len(groups) if len(groups) > 1 else min(3, len(metrics))
    fig, grid = panels(
        len(groups) * len(metrics), width=max(3.6, 7.5 / columns), height=2.9, most=columns,
        sharey="row" if len(groups) > 1 else False,
    )  # fmt: skip
    cut = False
    places = ((metric, value, rows) for metric in metrics for value, rows in groups)
    for axes, (metric, value, rows) in zip(grid, places, strict=True):
        for name, style in styles.items():
            cut |= _line(axes, rows[rows[hue] == name].groupby("round")[metric], name, style, bounds.get(metric))
        if chance is not None and metric in percent:
            axes.axhline(chance, color=GREY, linestyle=":", label="chance", zorder=1)
        if panel is not None and (len(groups) == 1 or axes.get_subplotspec().is_first_row()):
            axes.set_title(str(value))
        if metric in log:
            axes.set_yscale("log")
        if first_column(axes) or len(groups) == 1:
            percent_axis(axes, metrics[metric]) if metric in percent else axes.set_ylabel(metrics[metric])
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlabel("round")
    legend_below(fig)
    cell = [hue, "round"] if panel is None else [panel, hue, "round"]
    note = spread_note(frame.groupby(cell)[list(metrics)].count().to_numpy().ravel(), "lines", "bands")
    return finish(fig, title, subtitle, f"{note}, cut off where the quantity ends" if cut else note)


def _line(axes: Axes, rounds, name: str, style: MethodStyle, bounds: tuple[float, float] | None) -> bool:
    """Draw a line with its band; whether the band was cut off at ``bounds``."""
    seeds = {number: values.dropna().to_numpy() for number, values in rounds}
    seeds = {number: values for number, values in seeds.items() if len(values)}
    if not seeds:
        return False
    places, (mean, std) = [*seeds], np.array([mean_and_std(values) for values in seeds.values()]).T
    axes.plot(
        places, mean, label=name, color=style.colour, linestyle=style.line, marker=style.marker, markersize=5,
        markevery=max(1, len(places) // 12),
    )  # fmt: skip
    band = np.array([mean - std, mean + std])
    ends = band if bounds is None else band.clip(*bounds)
    if std.any():
        axes.fill_between(places, *ends, color=style.colour, alpha=0.18, linewidth=0)
    return bool((ends != band).any())
