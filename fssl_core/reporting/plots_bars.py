"""Grouped bars for tables of results: ours with their spread, the papers' printed values as diamonds."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fssl_core.reporting.plots_style import (
    GREY,
    METHODS,
    MUTED,
    STATED,
    category_axis,
    finish,
    first_column,
    mean_and_std,
    method_styles,
    panels,
    percent_axis,
    spread_note,
    text_on,
    use_style,
)

GROUP = 0.84  # width of the bars of one x, whose places are 1 apart


@use_style()
def beside_paper_bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    subtitle: str,
    title: str,
    panel: str | None = None,
    paper: pd.DataFrame | None = None,
    x_label: str | None = None,
    x_format: Callable[[object], str] = str,
    y_label: str | None = None,
    percent: bool = True,
    chance: float | None = None,
    in_a_row: int | None = None,
) -> Figure:
    """A bar for each x and method: mean and standard deviation over rows, usually seeds, with each row as a dot.

    The mean is written into its bar, and over it the number of rows where bars differ in that; where only the paper has
    a value, "not run" stands instead.

    Args:
        frame: tidy, with the columns ``x``, ``y``, ``hue`` and ``panel``; rows without ``y`` are left out.
        x: column of the groups of bars: numbers ascend, words come in order of appearance.
        y: column of the heights.
        hue: column whose values become the bars of a group. A method has its colour of all figures;
            ``"MocoSFL-1"`` and ``"MocoSFL-3"`` are shades of the colour of MocoSFL.
        subtitle: profile, data and seeds.
        title: the figure's title.
        panel: column whose values become panels with their titles; None for one panel.
        paper: the paper's values in the same columns and the same unit, one row a cell. Panels and groups that only
            the paper has are drawn, too: pass the rows that belong to the figure.
        x_label: the column's name unless given.
        x_format: how a value of ``x`` is written.
        y_label: the column's name unless given.
        percent: ``y`` is a fraction and shown as percent.
        chance: ``y`` of guessing, drawn as a line.
        in_a_row: panels side by side, at most; None: 2 of 4 panels, else 3.
    """
    ours, paper = frame.dropna(subset=y), frame.iloc[:0] if paper is None else paper
    names = [None] if panel is None else list(dict.fromkeys([*frame[panel], *paper[panel]]))
    groups, methods = (list(dict.fromkeys([*frame[column], *paper[column]])) for column in (x, hue))
    if pd.api.types.is_numeric_dtype(frame[x]):
        groups = sorted(groups)
    sizes = ours.groupby([x, hue] if panel is None else [panel, x, hue]).size()
    say_number = sizes.nunique() > 1
    colours = _colours(methods)
    width = GROUP / len(methods)
    most = in_a_row or (2 if len(names) == 4 else 3)
    fig, grid = panels(len(names), width=max(3.4, 1.0 + 0.3 * len(groups) * len(methods)), most=most, sharey=True)
    for axes, name in zip(grid, names, strict=True):
        for place, group in enumerate(groups):
            for number, method in enumerate(methods):
                here = {x: group, hue: method} | ({} if panel is None else {panel: name})
                position = place + width * (number - (len(methods) - 1) / 2)
                values = _of(ours, here)[y].to_numpy(dtype=float)
                stated = _of(paper, here)[y].to_list()
                _bar(axes, position, 0.9 * width, values, stated, colours[method], percent, say_number)
        if chance is not None:
            axes.axhline(chance, color=GREY, linestyle=":", zorder=0.5)
        if panel is not None:
            axes.set_title(str(name))
        category_axis(axes, [x_format(group) for group in groups])
        axes.set_xlim(-0.6, len(groups) - 0.4)
        if say_number:
            axes.margins(y=0.15)
        axes.set_xlabel(x if x_label is None else x_label)
        if first_column(axes):
            label = y if y_label is None else y_label
            percent_axis(axes, label) if percent else axes.set_ylabel(label)
    keys = {str(method): Patch(facecolor=colour, edgecolor="black", lw=0.5) for method, colour in colours.items()}
    if len(paper):
        keys["paper"] = Line2D([], [], **STATED)
    if chance is not None:
        keys["chance"] = Line2D([], [], color=GREY, linestyle=":")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=min(len(keys), 3 if len(names) == 1 else 6))
    return finish(fig, title, subtitle, spread_note(sizes, "bars", "lines"))


def _of(frame: pd.DataFrame, values: dict[str, object]) -> pd.DataFrame:
    return frame[np.logical_and.reduce([frame[column] == value for column, value in values.items()])]


def _bar(
    axes: Axes,
    position: float,
    width: float,
    values: np.ndarray,
    stated: list[float],
    colour: str,
    percent: bool,
    say_number: bool,
) -> None:
    text, text_colour = "not run" if stated else "", GREY
    if len(values):
        mean, std = mean_and_std(values)
        spread = {"yerr": std, "capsize": 2.5, "error_kw": {"lw": 1.2}} if len(values) > 1 else {}
        axes.bar(position, mean, width, color=colour, edgecolor="black", lw=0.5, **spread)
        if len(values) > 1:
            axes.plot([position + 0.25 * width] * len(values), values, ".", color="black", alpha=0.5, markersize=3.5)
        text = f"{100 * mean:.1f}" if percent else f"{mean:,.4g}"
        text_colour = text_on(colour)
    for value in stated:
        axes.plot(position, value, zorder=4, **STATED | {"markerfacecolor": colour})
    place = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom"}
    behind = {} if len(values) else {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}}
    axes.annotate(text, (position, 0), rotation=90, fontsize=7.5, color=text_colour, **place, **behind)
    if len(values) and say_number:
        top = np.nanmax([mean + std, *values, *stated])
        axes.annotate(f"n={len(values)}", (position, top), rotation=90, fontsize=6.5, color=MUTED, **place)


def _colours(names: Iterable[str]) -> dict[str, tuple[float, float, float]]:
    """The fixed colour of a method; one named with its cut (MocoSFL-3) has its method's, lighter after the first."""
    methods = {name: _method(name) for name in names}
    styles = method_styles(methods.values())
    seen: dict[str, int] = {}
    colours = {}
    for name, method in methods.items():
        number = seen[method] = seen.get(method, -1) + 1
        colour = np.array(to_rgb(styles[method].colour))
        colours[name] = tuple(1 - (1 - colour) * 0.5**number)
    return colours


def _method(name: str) -> str:
    method, _, cut = str(name).rpartition("-")
    return method if method in METHODS and cut.isdigit() else name
