"""Accuracy against what it asks of a client: memory, computation and traffic side by side."""

from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_attack import pareto_front
from fssl_core.reporting.plots_style import (
    GREY,
    MethodStyle,
    finish,
    first_column,
    mean_and_std,
    method_styles,
    panels,
    percent_axis,
    spread_note,
    use_style,
)

GIGA = 10**9
RESOURCES = {  # column: its unit, the label of its axis
    "memory_bytes": (MIB, "peak memory of a client (MiB)"),
    "macs": (GIGA, "multiply-adds of a client (billions)"),
    "traffic_bytes": (MIB, "traffic of a client (MiB)"),
}
LETTER = 4.9  # mean width in points, of a name at size 8
Box = tuple[float, float, float, float]  # left, bottom, right, top
RING = {"marker": "o", "markersize": 15, "mfc": "none", "mec": "black", "mew": 1.2}


@use_style()
def accuracy_by_resource(
    results: pd.DataFrame,
    *,
    subtitle: str,
    title: str = "Accuracy against what a client needs",
) -> Figure:
    """A row of panels for each protocol, a panel for each resource (logarithmic), a point for each choice.

    Points are means over rows, usually seeds, with the standard deviation of the accuracy. A point is ringed where no
    other one is at least as good in accuracy and all three resources and better in one; the grey steps are the fronts
    of a panel's two axes: the best accuracy for no more than this.

    Args:
        results: a row per run and protocol with the columns method, choice (written beside its point; may be empty),
            protocol, accuracy (a fraction) and those of ``RESOURCES`` (bytes, and multiply-adds).
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    styles = method_styles(results["method"])
    rows = {protocol: _points(runs) for protocol, runs in results.groupby("protocol", sort=False)}
    fig, grid = panels(len(RESOURCES) * len(rows), width=4.1, height=3.7, sharex="col", sharey="row")
    drawn = []
    for number, (protocol, points) in enumerate(rows.items()):
        here = grid[len(RESOURCES) * number :][: len(RESOURCES)]
        for axes, (resource, (unit, label)) in zip(here, RESOURCES.items(), strict=True):
            drawn.append((axes, points.assign(x=points[resource] / unit)))
            _panel(*drawn[-1], styles)
            axes.set_title(protocol)
            if number == len(rows) - 1:
                axes.set_xlabel(f"{label}; less is better")
            if first_column(axes):
                percent_axis(axes, "accuracy")
    keys = {name: Line2D([], [], linestyle="", color=s.colour, marker=s.marker) for name, s in styles.items()}
    keys["Pareto front of accuracy and all three resources"] = Line2D([], [], linestyle="", **RING | {"markersize": 11})
    keys["Pareto front of the two axes"] = Line2D([], [], color=GREY, linewidth=1.2)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=len(keys))
    sizes = results.groupby(["protocol", "method", "choice"], dropna=False).size()
    finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))
    fig.draw_without_rendering()  # from here on it is known where points are
    for axes, points in drawn:
        _name(axes, points)
    return fig


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    choices = runs.groupby(["method", "choice"], sort=False)
    points = choices[["accuracy", *RESOURCES]].mean()
    points["spread"] = choices["accuracy"].agg(lambda values: mean_and_std(values.to_numpy())[1])
    points["ringed"] = pareto_front(points, high=["accuracy"], low=list(RESOURCES))
    return points


def _panel(axes: Axes, points: pd.DataFrame, styles: dict[str, MethodStyle]) -> None:
    front = points[pareto_front(points, high=["accuracy"], low=["x"])].sort_values("x")
    axes.step(front["x"], front["accuracy"], where="post", color=GREY, linewidth=1.2, zorder=0.5)
    for (method, _), point in points.iterrows():
        style = styles[method]
        axes.errorbar(
            point["x"], point["accuracy"], point["spread"] or None, color=style.colour, marker=style.marker,
            markersize=9, markeredgecolor="white", markeredgewidth=0.6, elinewidth=1, capsize=2,
        )  # fmt: skip
        if point["ringed"]:
            axes.plot(point["x"], point["accuracy"], **RING)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.margins(0.18, 0.12)


def _name(axes: Axes, points: pd.DataFrame) -> None:
    """Write each choice beside its point, where it covers least of points, spreads and other names."""
    to_points = 72 / axes.figure.dpi  # as offsets are given
    places = axes.transData.transform(points[["x", "accuracy"]]) * to_points
    tops = axes.transData.transform(points.assign(top=points["accuracy"] + points["spread"])[["x", "top"]]) * to_points
    spreads = (tops - places)[:, 1]
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in places]
    taken += [(x - 2, y - spread, x + 2, y + spread) for (x, y), spread in zip(places, spreads, strict=True)]
    for (_, choice), (x, y), (_, point) in zip(points.index, places, points.iterrows(), strict=True):
        boxes = {}
        for right, up in product((True, False), (5, -3.5, -12)):
            left = x + 10 if right else x - 10 - LETTER * len(choice)
            boxes[right, up] = (left, y + up, left + LETTER * len(choice), y + up + 7)
        right, up = min(boxes, key=lambda side: sum(_shared(boxes[side], other) for other in taken))
        taken.append(boxes[right, up])
        axes.annotate(
            choice, (point["x"], point["accuracy"]), (10 if right else -10, up), textcoords="offset points",
            fontsize=8, ha="left" if right else "right",
        )  # fmt: skip


def _shared(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    width, height = (min(one[end + 2], other[end + 2]) - max(one[end], other[end]) for end in (0, 1))
    return max(width, 0) * max(height, 0)
