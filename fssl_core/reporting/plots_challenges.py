"""What federated self-supervised learning needs: accuracy by batch, by number of clients, and by kind of negatives."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from fssl_core.reporting.plots_style import (
    GREY,
    MethodStyle,
    category_axis,
    finish,
    first_column,
    legend_below,
    lines_over_seeds,
    mean_and_std,
    method_styles,
    panels,
    percent_axis,
    spread_note,
    use_style,
)

LINES = {"a": ("batch", "images in a client's step"), "b": ("clients", "clients sharing the same images")}
TITLES = {"a": "(a) batch", "b": "(b) clients", "c": "(c) negatives"}
APART = 1.03  # neighbours' places on a logarithmic axis, so that error bars do not cover each other


@use_style()
def challenges(
    results: pd.DataFrame,
    metric: str = "knn_accuracy",
    *,
    subtitle: str,
    title: str,
    chance: float | None = None,
) -> Figure:
    """Accuracy against the batch (a), the number of clients (b) and what the queue holds (c).

    Mean and standard deviation over rows, usually seeds, with each row as a dot. Under a bar of panel (c) stands the
    mean similarity of the queries to these negatives.

    Args:
        results: a row per run and panel, with the columns panel ("a", "b" or "c"; others are left out), method,
            ``metric`` (a fraction), batch, clients, negatives and negative_similarity, of which a panel reads its own.
        metric: the accuracy to draw.
        subtitle: profile, data and seeds.
        title: the figure's title.
        chance: accuracy of guessing, drawn as a line.
    """
    styles = method_styles(results.loc[results["panel"].isin(TITLES), "method"])
    fig, grid = panels(3, width=3.7, height=3.3, sharey=True)
    for axes, (panel, heading) in zip(grid, TITLES.items(), strict=True):
        rows = results[results["panel"] == panel].dropna(subset=metric)
        if panel in LINES:
            _lines(axes, rows, *LINES[panel], metric, styles)
        else:
            _bars(axes, rows, metric, styles)
        if chance is not None:
            axes.axhline(chance, color=GREY, linestyle=":", label="chance", zorder=1)
        axes.set_title(heading)
        if first_column(axes):
            percent_axis(axes, metric)
    legend_below(fig)
    drawn = results[results["panel"].isin(TITLES)].dropna(subset=metric)
    sizes = drawn.groupby(["panel", "method", "batch", "clients", "negatives"], dropna=False).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers and bars", "lines"))


def _lines(axes: Axes, rows: pd.DataFrame, x: str, label: str, metric: str, styles: Mapping[str, MethodStyle]) -> None:
    drawn = {name: style for name, style in styles.items() if name in set(rows["method"])}
    lines_over_seeds(axes, rows, x, metric, drawn, lambda place, number: place * APART**number)
    ticks = sorted(rows[x].unique().astype(int))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(ticks)
    axes.set_xlabel(label)


def _bars(axes: Axes, rows: pd.DataFrame, metric: str, styles: Mapping[str, MethodStyle]) -> None:
    labels = []
    for place, ((name, method), runs) in enumerate(rows.groupby(["negatives", "method"], sort=False)):
        mean, std = mean_and_std(runs[metric].to_numpy())
        spread = {"yerr": std, "capsize": 3} if len(runs) > 1 else {}
        axes.bar(place, mean, 0.6, color=styles[method].colour, edgecolor="black", lw=0.5, alpha=0.85, **spread)
        axes.plot([place] * len(runs), runs[metric], ".", color="black", alpha=0.5, markersize=4)
        similarity = runs["negative_similarity"].mean()
        labels.append(name if pd.isna(similarity) else f"{name}\n{round(similarity, 2) + 0.0:.2f}")  # no -0.00
    category_axis(axes, labels)
    axes.set_xlabel("keys in the queue, their similarity to queries")
