"""Gains and what they cost: points of several goals with their Pareto fronts, ranked rows, and quoted costs."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from fssl_core.errors import DataError
from fssl_core.figures import style
from fssl_core.figures.style import GREY, PRINTED_MARK, MethodStyle

LETTER = 4.9  # mean width in points, of a name at size 8
Box = tuple[float, float, float, float]  # left, bottom, right, top
RING = {"marker": "o", "markersize": 20, "mfc": "none", "mec": "black", "mew": 1.3, "linestyle": ""}
COUNTED = {"color": "black", "linestyle": ":", "linewidth": 1.3}
QUOTED = {"linestyle": "", "markerfacecolor": "white", "markeredgecolor": GREY, "markeredgewidth": 1.8, "markersize": 8}


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


@style.use_style()
def scatter(
    runs: pd.DataFrame,
    xs: Mapping[str, str],
    y: str,
    *,
    subtitle: str,
    title: str,
    hue: str = "method",
    choice: str | None = None,
    panel: str | None = None,
    high: Collection[str] = (),
    low: Collection[str] = (),
    log: bool = False,
    percent: Collection[str] = (),
    styles: Mapping[str, MethodStyle] | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Points of a fraction against several quantities: means over rows, usually seeds, with standard deviations.

    Each row is a dot. Where there are goals, a point is ringed if no other one is at least as good in all of them and
    better in one, and grey steps are the front of a panel's two axes: the best ``y`` for no more of x, or no less.

    Args:
        runs: tidy, a row per run.
        xs: columns of the x axes -> their labels, a column of panels each.
        y: column of the y axis, a fraction shown as percent; more is better.
        hue: column that decides colour and marker.
        choice: column that tells the points of one ``hue`` apart, and is written at them: into the marker when it is
            short everywhere, as a number of layers; else beside it, where it covers least.
        panel: column whose values become rows of panels; side by side where there is one quantity only.
        high: the columns of ``xs`` that are goals of which more is better.
        low: those of which less is better.
        log: whether the x axes are logarithmic.
        percent: the columns of ``xs`` that are fractions and shown as percent.
        styles: value of ``hue`` -> its style, if they are no methods.
        references: name -> column -> a value to mark: upright lines for columns of ``xs``, a level one for ``y``.

    Raises:
        DataError: a goal of a point is missing.
    """
    styles = style.method_styles(runs[hue]) if styles is None else {name: styles[name] for name in runs[hue].unique()}
    runs = runs.assign(choice="" if choice is None else runs[choice].astype(str))
    groups = {"": runs} if panel is None else dict(list(runs.groupby(panel, sort=False)))
    beside = runs["choice"].str.len().max() > 2
    most = len(xs) if len(xs) > 1 else 2 if len(groups) == 4 else 3
    fig, grid = style.panels(
        len(xs) * len(groups), width=4.2, height=3.7, most=most, sharex="col" if len(xs) > 1 else False,
        sharey="row" if len(xs) > 1 else True,
    )  # fmt: skip
    drawn = []
    for axes, ((name, rows), (x, label)) in zip(grid, product(groups.items(), xs.items()), strict=True):
        cells = rows.groupby([hue, "choice"], sort=False)
        points, spreads = cells[[y, *xs]].mean(), cells[[y, *xs]].std()
        if x in [*high, *low]:
            _front(axes, points, x, y, high, low)
        for zorder, ((method, of), point) in enumerate(points.iterrows(), start=3):
            _point(axes, point[[x, y]], spreads.loc[(method, of), [x, y]], styles[method], "" if beside else of, zorder)
        for method, look in styles.items():
            dots = rows[(rows[hue] == method) & rows.duplicated([hue, "choice"], keep=False)]
            axes.plot(dots[x], dots[y], ".", color=look.colour, alpha=0.5, markersize=4)
        for reference, values in (references or {}).items():
            if x in values:
                axes.axvline(values[x], color=GREY, linestyle="-.", zorder=1, label=reference)
            if y in values:
                axes.axhline(values[y], **style.CHANCE | {"label": reference})
        _scale(axes, log=log, percent=x in percent)
        axes.margins(0.18, 0.12)
        axes.set_title(str(name))
        if len(xs) == 1 or axes.get_subplotspec().is_last_row():
            axes.set_xlabel(f"{label}{'; less is better' if x in low else '; more is better' if x in high else ''}")
        if axes.get_subplotspec().is_first_col():
            style.percent_axis(axes.yaxis, y)
        names = [of for _, of in points.index]
        drawn.append((axes, names, points[[x, y]].to_numpy(), spreads[y].fillna(0).to_numpy()))
    sizes = runs.groupby([hue, "choice", *([panel] if panel else [])]).size()
    keys = {name: {"color": look.colour, "marker": look.marker, "linestyle": ""} for name, look in styles.items()}
    if high or low:
        keys["front of all goals"] = RING | {"markersize": 11}
    style.finish(fig, title, subtitle, style.spread_note(sizes, "markers", "lines"), keys=keys)
    if beside:
        fig.draw_without_rendering()  # from here on it is known where points are
        for panel_points in drawn:
            _name(*panel_points)
    return fig


def _scale(axes: Axes, *, log: bool, percent: bool, ticks: Sequence[int] = (1, 2, 5)) -> None:
    """The x axis logarithmic, with ticks at these multiples of powers of ten, or of fractions shown as percent."""
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=ticks))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    if percent:
        axes.xaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.3g}")


def _front(axes: Axes, points: pd.DataFrame, x: str, y: str, high: Collection[str], low: Collection[str]) -> None:
    """Steps through the front of the two axes, and rings around that of all goals."""
    front = points[pareto_front(points, high=[y, *({x} & {*high})], low=[*({x} & {*low})])].sort_values(x)
    where = "post" if x in low else "pre"
    axes.step(front[x], front[y], where=where, color=GREY, linewidth=1.2, zorder=0.5, label="front of the two axes")
    ringed = points[pareto_front(points, high=[y, *high], low=[*low])]
    axes.plot(ringed[x], ringed[y], zorder=2.5, **RING)


def _point(axes: Axes, point: pd.Series, spread: pd.Series, look: MethodStyle, inside: str, zorder: int) -> None:
    across, up = (None if np.isnan(length) else length for length in spread)
    axes.errorbar(
        *point, up, across, color=look.colour, marker=look.marker, markersize=11 if inside else 8, capsize=2,
        markeredgecolor="white", markeredgewidth=0.6, elinewidth=1, zorder=zorder, alpha=1 if inside else 0.8,
    )  # fmt: skip
    text = {"ha": "center", "va": "center_baseline", "fontsize": 7, "color": "white", "fontweight": "bold"}
    axes.text(*point, inside, zorder=zorder + 0.5, **text)


def _name(axes: Axes, names: Sequence[str], points: np.ndarray, spreads: np.ndarray) -> None:
    """Write each name beside its point, where it covers least of points, spreads and other names."""
    to_points = 72 / axes.figure.dpi  # as offsets are given
    positions = axes.transData.transform(points) * to_points
    heights = axes.transData.transform(points + np.stack([0 * spreads, spreads], 1))[:, 1] * to_points - positions[:, 1]
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in positions]
    taken += [(x - 2, y - height, x + 2, y + height) for (x, y), height in zip(positions, heights, strict=True)]
    for name, (x, y), point in zip(names, positions, points, strict=True):
        boxes = {}
        for right, up in product((True, False), (5, -3.5, -12)):
            left = x + 10 if right else x - 10 - LETTER * len(name)
            boxes[right, up] = (left, y + up, left + LETTER * len(name), y + up + 7)
        right, up = min(boxes, key=lambda side: sum(_shared(boxes[side], other) for other in taken))
        taken.append(boxes[right, up])
        offset, side = (10, "left") if right else (-10, "right")
        axes.annotate(name, point, (offset, up), textcoords="offset points", fontsize=8, ha=side)


def _shared(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    width, height = (min(one[end + 2], other[end + 2]) - max(one[end], other[end]) for end in (0, 1))
    return max(width, 0) * max(height, 0)


@style.use_style()
def ranked(
    runs: pd.DataFrame,
    columns: Mapping[str, str],
    *,
    subtitle: str,
    title: str,
    log: Collection[str] = (),
    percent: Collection[str] = (),
    bold: Collection[str] = (),
    italic: Collection[str] = (),
) -> Figure:
    """A row for each method, the highest mean of the first column on top, and a panel for each column.

    So many methods that their points would cover each other in a plane can be read here, each under its name.

    Args:
        runs: a row per run with the column method and those of ``columns``; a missing value is not drawn.
        columns: column -> label of its axis.
        log: the columns whose axes are logarithmic.
        percent: those that are fractions, shown as percent from 0 to 100.
        bold, italic: methods whose names are written so.
    """
    leading = runs.groupby("method", sort=False)[next(iter(columns))]
    methods = leading.mean().sort_values(ascending=False, kind="stable").index
    styles = style.method_styles(runs["method"])
    fig, grid = style.panels(len(columns), width=1.75, height=0.6 + 0.22 * len(methods), most=len(columns), sharey=True)
    for axes, (column, label) in zip(grid, columns.items(), strict=True):
        for number, method in enumerate(methods):
            values = runs.loc[runs["method"] == method, column].dropna().to_numpy()
            style.rows_over_seeds(axes, [values], styles[method], start=number)
        _scale(axes, log=column in log, percent=column in percent, ticks=(1,))
        axes.set_xlabel(label)
        axes.margins(x=0.12)
        if column in percent:
            axes.set_xlim(-0.07, 1.07)  # markers at either end stay whole
    grid[0].set_yticks(range(len(methods)), methods)
    for name in grid[0].get_yticklabels():
        name.set_fontweight("bold" if name.get_text() in bold else "normal")
        name.set_fontstyle("italic" if name.get_text() in italic else "normal")
    grid[0].set_ylim(len(methods) - 0.4, -0.6)
    return style.finish(fig, title, subtitle, style.spread_note(leading.count(), "markers", "lines"))


@style.use_style()
def quoted_costs(
    printed: pd.DataFrame,
    ours: pd.DataFrame,
    costs: Mapping[str, str],
    counted: Mapping[str, float],
    *,
    subtitle: str,
    title: str,
) -> Figure:
    """A row for each setting: a panel for each cost (logarithmic), in the last one our accuracies without a cost.

    None of our accuracies stands over the cost of another model on other data.

    Args:
        printed: a row for each setting and method, with the columns setting, method, accuracy (a fraction), quoted
            (whether its costs come from another paper; it is hollow then) and those of ``costs``.
        ours: a row per run with the columns setting, method, accuracy (a fraction) and data (what it was trained on);
            points are means, usually over seeds, with the standard deviation.
        costs: column of ``printed``: the label of its axis.
        counted: of some of these columns our count for the method that is not quoted, a dotted line.
    """
    settings, methods = list(dict.fromkeys(printed["setting"])), list(dict.fromkeys(ours["method"]))
    sizes = ours.groupby(["setting", "method"])["accuracy"].count()
    styles = style.method_styles([*printed["method"], *methods])
    fig, grid = style.panels((len(costs) + 1) * len(settings), width=3.1, height=2.9, most=len(costs) + 1, sharey=True)
    for axes, (setting, (cost, label)) in zip(grid, product(settings, [*costs.items(), ("", "")]), strict=True):
        if axes.get_subplotspec().is_first_col():
            style.percent_axis(axes.yaxis, "test accuracy")
            axes.set_ylim(0, 1)
        if not cost:
            setting_rows = ours[ours["setting"] == setting]
            axes.set_title(f"{setting}: ours, {', '.join(setting_rows['data'].unique()) or 'not run'}")
            _own_accuracies(axes, setting_rows, {name: styles[name] for name in methods}, sizes.nunique() > 1)
            continue
        for row in printed[printed["setting"] == setting].to_dict("records"):
            look, name = styles[row["method"]], f"{row['method']}, paper"
            if row["quoted"]:
                mark, name = QUOTED | {"marker": look.marker}, f"{name} (cost quoted)"
            else:
                mark = PRINTED_MARK | {"markerfacecolor": look.colour, "markersize": 8}
            axes.plot(row[cost], row["accuracy"], zorder=3, label=name, **mark)
        if cost in counted:
            axes.axvline(counted[cost], label="cost as counted here", **COUNTED)
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.set_xlabel(label)
        axes.set_title(f"{setting}: printed")
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "ours, markers", "lines"))


def _own_accuracies(axes: Axes, runs: pd.DataFrame, styles: Mapping[str, MethodStyle], say_number: bool) -> None:
    for index, (method, look) in enumerate(styles.items()):
        values = runs.loc[runs["method"] == method, "accuracy"].to_numpy()
        if len(values):
            mean, std = style.mean_and_std(values)
            axes.errorbar(
                index, mean, std or None, color=look.colour, marker=look.marker, linestyle="", markersize=9, capsize=3,
                label=f"{method}, ours",
            )  # fmt: skip
            written = f"{100 * mean:.1f}" + (f"\nn={len(values)}" if say_number else "")
            axes.annotate(written, (index, mean + std), (0, 9), textcoords="offset points", ha="center", fontsize=8)
    style.category_axis(axes, [""] * len(styles))
    axes.set_xlim(-0.7, max(len(styles), 1) - 0.3)
