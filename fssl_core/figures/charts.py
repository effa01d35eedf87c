"""Charts of tidy tables: who holds what, curves, bars beside the paper's values, and stacked bars."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.data.partitions import class_counts, heterogeneity
from fssl_core.errors import SettingError
from fssl_core.figures import style
from fssl_core.settings import check_choice

MOST_TICKS = 15  # of a number, of which each value has its tick
WIDTH = 0.8  # of the bars of one x, whose places are 1 apart
SAME = 1e-9  # accuracies of untrained models that are no further apart


@style.use_style()
def partition(data: Dataset, parts: Sequence[Tensor], *, subtitle: str, title: str = "Who holds what") -> Figure:
    """How the images of each class are spread over the clients.

    Args:
        data: the images that are spread.
        parts: indices of each client's training images.
        subtitle: data and partition scheme; the partition's heterogeneity, 0 (IID) to 1, is added.
    """
    labels, classes = data.train.labels, data.classes
    if not data.labelled:  # only the sizes of the clients can be shown
        labels, classes = torch.zeros_like(labels), ("no labels",)
    counts = class_counts(labels, parts, len(classes)).numpy()
    uneven = heterogeneity(labels, parts)
    return counts_of_classes(
        {"": counts}, classes, subtitle=f"{subtitle} · heterogeneity {uneven:.2f} (0 = IID)", title=title
    )


@style.use_style()
def counts_of_classes(counts: Mapping[str, np.ndarray], classes: Sequence[str], *, subtitle: str, title: str) -> Figure:
    """How many images of each class each client holds, a panel for each partition, all in one scale of colours.

    Args:
        counts: by the panel's title, ``[clients, classes]``.
        classes: their names.
        subtitle: the data and what was drawn.

    Raises:
        SettingError: a matrix has another number of classes than there are names.
    """
    import seaborn as sns

    for name, table in counts.items():
        if table.shape[1] != len(classes):
            raise SettingError("counts", table.shape, f"{len(classes)} classes in {name!r}, as many as there are names")
    most, clients = max(int(table.max()) for table in counts.values()), max(len(table) for table in counts.values())
    width, height = min(10.0, 1.0 + 3.0 / len(counts) + 0.28 * clients), min(5.0, 1.2 + 0.26 * len(classes))
    fig, grid = style.panels(len(counts), width=width, height=height, sharey=True)
    readable = clients <= 20 and len(classes) <= 20
    for axes, (name, table) in zip(grid, counts.items(), strict=True):
        written = np.where(table.T > 0, table.T.astype(str), "") if readable else False
        sns.heatmap(
            table.T, ax=axes, cmap="Blues", vmin=0, vmax=most, annot=written, fmt="", annot_kws={"size": 7}, cbar=False,
            linewidths=[1 if clients <= 40 else 0],
        )  # fmt: skip
        axes.set_title(name)
        axes.set_xlabel("client")
        clients_step, classes_step = (-(-count // 20) for count in table.shape)
        axes.set_xticks(np.arange(0, len(table), clients_step) + 0.5, range(0, len(table), clients_step))
        names = [one.replace("$", r"\$") for one in classes[::classes_step]]  # two of them would be read as a formula
        axes.set_yticks(np.arange(0, len(classes), classes_step) + 0.5, names, rotation=0)
        axes.tick_params(length=0)
    grid[0].set_ylabel("class")
    fig.colorbar(grid[-1].collections[0], ax=grid, label="images", shrink=0.9, pad=0.02)
    return style.finish(fig, title, subtitle)


@style.use_style()
def curves(
    frame: pd.DataFrame,
    x: str,
    metrics: Mapping[str, str],
    *,
    subtitle: str,
    title: str,
    hue: str = "method",
    panel: str | None = None,
    x_label: str | None = None,
    percent: Collection[str] = (),
    chance: float | None = None,
    paper: pd.DataFrame | None = None,
) -> Figure:
    """Quantities against a number: mean and standard deviation over rows, usually seeds, with each row as a dot.

    A panel for each metric and each value of ``panel``; metrics are rows of panels, unless there is one value only.

    Args:
        frame: tidy, with the columns ``x``, ``hue``, ``panel`` and the metrics; a row without a metric is left out.
            What an untrained model reaches (``untrained`` beside ``accuracy``, ``untrained_<metric>`` beside others,
            as :func:`~fssl_core.experiments.run_beside_untrained` names them) is drawn as a line where it is known.
        x: column of the x axis; its values become the ticks.
        metrics: column -> label of the y axis.
        hue: column whose values become lines; a method has its colour of all figures.
        panel: column whose values become panels with their titles; None for one.
        x_label: the column's name unless given.
        percent: the metrics that are fractions and shown as percent.
        chance: of guessing, drawn as a line where a metric is shown as percent.
        paper: the paper's values in the same columns, drawn as diamonds, those of one x side by side.

    Raises:
        SettingError: ``percent`` names no metric.
    """
    ticks, styles = sorted(frame[x].unique()), style.method_styles(frame[hue])
    steps = np.diff(ticks)
    offset = min(0.08 * min(steps), 0.03 * sum(steps)) if len(steps) else 0.08  # markers stay at their x
    keys = {} if paper is None else {"paper": style.PRINTED_MARK}

    def draw(axes: Axes, rows: pd.DataFrame, metric: str) -> None:
        style.lines_over_seeds(axes, rows, x, metric, styles, hue=hue, apart=offset)
        if len(ticks) <= MOST_TICKS:
            axes.set_xticks(ticks)
        if len(ticks) == 1:  # markers beside their x stay near it
            axes.set_xlim(ticks[0] - 1, ticks[0] + 1)
        if paper is not None:
            for number, (name, look) in enumerate(styles.items()):
                paper_rows = paper[paper[hue] == name]
                x_values = paper_rows[x] + offset * (number - (len(styles) - 1) / 2)
                axes.plot(
                    x_values, paper_rows[metric], **style.PRINTED_MARK | {"markerfacecolor": look.colour, "zorder": 4}
                )

    fig, sizes = _grid(frame, x, metrics, draw, hue, panel, x_label or x, percent, (), chance)
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "markers", "lines"), keys=keys)


@style.use_style()
def by_round(
    frame: pd.DataFrame,
    metrics: Mapping[str, str],
    *,
    subtitle: str,
    title: str,
    hue: str = "method",
    panel: str | None = "ssl_method",
    percent: Collection[str] = (),
    log: Collection[str] = (),
    chance: float | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    x: str = "round",
    own_axes: bool = False,
) -> Figure:
    """:func:`curves` over the rounds of a federation, with the standard deviation as a band.

    Args:
        frame: as there, with the column round (from 1), or another one that is ``x``.
        metrics, subtitle, title, hue, panel, percent, chance: as there.
        log: the metrics whose axis is logarithmic.
        bounds: metric -> the least and the largest value that it can have, where its bands end; those of a fraction
            end at 0 and 1.
        own_axes: panels of one metric are drawn in scales of their own, where these are far apart.

    Raises:
        SettingError: ``percent``, ``log`` or ``bounds`` names no metric.
    """
    import seaborn as sns

    bounds = dict.fromkeys(percent, (0.0, 1.0)) | dict(bounds or {})
    for name in bounds:
        check_choice("metric", name, metrics)
    frame = frame.assign(**{hue: frame[hue].astype(str)})
    styles = style.method_styles(frame[hue])
    options = {"palette": {name: of.colour for name, of in styles.items()}, **style.dashes_and_markers(hue, styles)}
    every = max(1, frame[x].nunique() // 12)
    cut = []

    def draw(axes: Axes, rows: pd.DataFrame, metric: str) -> None:
        low, high = bounds.get(metric, (-np.inf, np.inf))

        def band(values: pd.Series) -> tuple[float, float]:
            mean, std = style.mean_and_std(values.to_numpy())
            cut.append(mean - std < low or mean + std > high)
            return max(mean - std, low), min(mean + std, high)

        rows = rows.dropna(subset=metric)
        several = rows.duplicated([hue, x]).any()
        sns.lineplot(
            rows, x=x, y=metric, hue=hue, **options, errorbar=band if several else None, markersize=7,
            markeredgewidth=0.5, markevery=every, ax=axes,
        )  # fmt: skip
        for above, line in enumerate(reversed(axes.lines)):  # the first, a baseline, on top: others run close to it
            line.set_zorder(2 + above / 100)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))

    fig, sizes = _grid(frame, x, metrics, draw, hue, panel, x, percent, log, chance, own_axes)
    note = style.spread_note(sizes, "lines", "bands")
    return style.finish(fig, title, subtitle, f"{note}, cut off where the quantity ends" if any(cut) else note)


def _grid(
    frame: pd.DataFrame,
    x: str,
    metrics: Mapping[str, str],
    draw: Callable[[Axes, pd.DataFrame, str], None],
    hue: str,
    panel: str | None,
    x_label: str,
    percent: Collection[str],
    log: Collection[str],
    chance: float | None,
    own_axes: bool = False,
) -> tuple[Figure, Iterable[int]]:
    """A panel for each metric and value of ``panel``, and of how many rows each mean is."""
    for name in (*percent, *log):
        check_choice("metric", name, metrics)
    groups = [(None, frame)] if panel is None else list(frame.groupby(panel, sort=False))
    count = len(groups) * len(metrics)
    columns = len(groups) if min(len(groups), len(metrics)) > 1 else min(3, count)
    share = False if len(groups) == 1 or own_axes else "row" if len(metrics) > 1 else True
    fig, grid = style.panels(count, width=max(3.6, 7.0 / columns), height=3.0, most=columns, sharey=share)
    panels = ((metric, value, rows) for metric in metrics for value, rows in groups)
    for axes, (metric, value, rows) in zip(grid, panels, strict=True):
        draw(axes, rows, metric)
        _draw_untrained(axes, rows, x, metric, hue)
        axes.set_xlabel(x_label)
        axes.set_ylabel("")
        if chance is not None and metric in percent:
            axes.axhline(chance, **style.CHANCE)
        if panel is not None and (len(metrics) == 1 or len(groups) == 1 or axes.get_subplotspec().is_first_row()):
            axes.set_title(str(value))
        if metric in log:
            axes.set_yscale("log")
        if axes.get_subplotspec().is_first_col() or len(groups) == 1:
            style.percent_axis(axes.yaxis, metrics[metric]) if metric in percent else axes.set_ylabel(metrics[metric])
    cell = [hue, x] if panel is None else [panel, hue, x]
    return fig, frame.groupby(cell)[list(metrics)].count().to_numpy().ravel()


def _untrained(frame: pd.DataFrame, metric: str) -> str | None:
    """The column that says what an untrained model reaches of a metric; None where nothing is known of it."""
    name = "untrained" if metric == "accuracy" else f"untrained_{metric}"
    return name if name in frame and frame[name].notna().any() else None


def _draw_untrained(axes: Axes, rows: pd.DataFrame, x: str, metric: str, hue: str) -> None:
    """A line over x; one in the colour of each method where their untrained models differ."""
    if (column := _untrained(rows, metric)) is None:
        return
    levels = rows.dropna(subset=metric).pivot_table(column, x, hue, sort=False).sort_index()  # means over seeds
    colours = {name: look.colour for name, look in style.method_styles(levels.columns).items()}
    if (levels.max(axis=1) - levels.min(axis=1)).max() < SAME:
        levels, colours = levels.mean(axis=1).to_frame("all"), {"all": "black"}
    axes.plot([], [], **style.UNTRAINED)  # for the legend
    for name, line in levels.items():
        look = style.UNTRAINED | {"color": colours[name], "label": None}
        axes.axhline(line.iloc[0], **look) if len(line) == 1 else axes.plot(line.index, line, **look)


@style.use_style()
def bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    subtitle: str,
    title: str,
    hue: str = "method",
    panel: str | None = None,
    paper: pd.DataFrame | None = None,
    x_label: str | None = None,
    x_format: Callable[[object], str] = str,
    y_label: str | None = None,
    percent: bool = True,
    log: bool = False,
    chance: float | None = None,
    in_a_row: int | None = None,
) -> Figure:
    """A bar for each x and method: mean and standard deviation over rows, usually seeds, with each row as a dot.

    The mean is written into its bar, and over it the number of rows where bars differ in that; where only the paper has
    a value, a diamond, "not run" stands instead.

    Args:
        frame: tidy, with the columns ``x``, ``y``, ``hue`` and ``panel``; rows without ``y`` are left out. What an
            untrained model reaches is a line across its bar where the frame has it, as in :func:`curves`.
        x: column of the groups of bars: numbers ascend, words come in order of appearance.
        y: column of the heights.
        hue: column whose values become the bars of a group, in the styles of :func:`style.method_styles`.
        panel: column whose values become panels with their titles; None for one panel.
        paper: the paper's values in the same columns and the same unit, one row a cell. Panels and groups that only
            the paper has are drawn, too: pass the rows that belong to the figure.
        x_label: the column's name unless given.
        x_format: how a value of ``x`` is written.
        y_label: the column's name unless given.
        percent: ``y`` is a fraction and shown as percent.
        log: each panel has a logarithmic axis of its own.
        chance: ``y`` of guessing, drawn as a line.
        in_a_row: panels side by side, at most; None: 2 of 4 panels, else 3.
    """
    paper = frame.iloc[:0] if paper is None else paper.dropna(subset=y)
    frame, paper = (rows.assign(**{hue: rows[hue].astype(str)}) for rows in (frame, paper))
    ours = frame.dropna(subset=y)
    names = [None] if panel is None else list(dict.fromkeys([*frame[panel], *paper[panel]]))
    groups, methods = (list(dict.fromkeys([*frame[column], *paper[column]])) for column in (x, hue))
    if pd.api.types.is_numeric_dtype(frame[x]):
        groups = sorted(groups)
    sizes = ours.groupby([x, hue] if panel is None else [panel, x, hue]).size()
    options = {
        "x": x, "y": y, "hue": hue, "order": groups, "hue_order": methods, "legend": False,
        "palette": {name: of.colour for name, of in style.method_styles(methods).items()},
    }  # fmt: skip
    most = in_a_row or (2 if len(names) == 4 else 3)
    width = max(3.4, 1.0 + 0.3 * len(groups) * len(methods))
    fig, grid = style.panels(len(names), width=width, most=most, sharey=not log)
    for axes, name in zip(grid, names, strict=True):
        panel_rows, paper_rows = (rows if panel is None else rows[rows[panel] == name] for rows in (ours, paper))
        _draw_bars(axes, panel_rows, paper_rows, options, log)
        _draw_untrained_bars(axes, panel_rows, options)
        _write_means(axes, panel_rows, paper_rows, options, percent, sizes.nunique() > 1)
        if chance is not None:
            axes.axhline(chance, **style.CHANCE)
        if panel is not None:
            axes.set_title(str(name))
        style.category_axis(axes, [x_format(group) for group in groups])
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.set_xlabel(x if x_label is None else x_label)
        axes.set_ylabel("")
        if axes.get_subplotspec().is_first_col():
            label = y if y_label is None else y_label
            style.percent_axis(axes.yaxis, label) if percent else axes.set_ylabel(label)
    keys = {name: {"facecolor": colour, **style.BAR} for name, colour in options["palette"].items()}
    keys |= {"paper": style.PRINTED_MARK} if len(paper) else {}
    note = style.spread_note(sizes, "bars", "lines")
    return style.finish(fig, title, subtitle, note, keys=keys, columns=3 if len(names) == 1 else 6)


def _draw_bars(axes: Axes, ours: pd.DataFrame, paper: pd.DataFrame, options: dict, log: bool) -> None:
    import seaborn as sns

    if log:
        values = pd.concat([ours[options["y"]], paper[options["y"]]])
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        bottom = values.min() / (values.max() / values.min()) ** 0.4  # so far down that no diamond covers a number
        axes.set_ylim(bottom, 3 * values.max())
    if len(ours):
        several = ours.duplicated([options["x"], options["hue"]], keep=False)
        sns.barplot(
            ours, **options, ax=axes, dodge=True, width=WIDTH, gap=0.1, errorbar="sd" if several.any() else None,
            capsize=0.25 / len(options["hue_order"]), **style.MEANS,
        )  # fmt: skip
        if several.any():
            dots = {"palette": dict.fromkeys(options["palette"], "black"), "alpha": 0.5, **style.DOTS}
            sns.stripplot(ours[several], **options | dots, dodge=True, ax=axes)
            style.move_dots(axes, across=0.22 / len(options["hue_order"]))
    if len(paper):
        sns.stripplot(
            paper, **options, dodge=True, jitter=False, marker="D", size=6, edgecolor="black", linewidth=1, ax=axes,
            zorder=4,
        )  # fmt: skip


def _place(cell: tuple, options: dict) -> float:
    """Of the middle of a bar, whose cell is its x and method."""
    group, method = cell
    number, methods = options["hue_order"].index(method), len(options["hue_order"])
    return options["order"].index(group) + WIDTH * ((number + 0.5) / methods - 0.5)


def _untrained_levels(ours: pd.DataFrame, options: dict) -> dict[tuple, float]:
    """By cell, what an untrained model reaches; empty where nothing is known of it."""
    column = _untrained(ours, options["y"])
    return {} if column is None else ours.groupby([options["x"], options["hue"]])[column].mean().to_dict()


def _draw_untrained_bars(axes: Axes, ours: pd.DataFrame, options: dict) -> None:
    """What an untrained model reaches, across each bar."""
    half = 0.5 * WIDTH / len(options["hue_order"])
    for cell, level in _untrained_levels(ours, options).items():
        place = _place(cell, options)
        axes.plot([place - half, place + half], [level] * 2, **style.UNTRAINED | {"zorder": 3.5})


def _write_means(
    axes: Axes, ours: pd.DataFrame, paper: pd.DataFrame, options: dict, percent: bool, say_number: bool
) -> None:
    """Each mean into its bar, with the number of rows over it, or that there is only the paper's."""
    x, y, hue = options["x"], options["y"], options["hue"]
    values = {cell: rows.to_numpy() for cell, rows in ours.groupby([x, hue])[y]}
    printed = {cell: rows.max() for cell, rows in paper.groupby([x, hue])[y]}
    levels = _untrained_levels(ours, options)
    text = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom", "rotation": 90}
    at_bottom = text | {"xycoords": axes.get_xaxis_transform(), "fontsize": 7.5, "zorder": 5}
    for cell in values | printed:
        x_position = _place(cell, options)
        if cell not in values:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            axes.annotate("not run", (x_position, 0), color=style.GREY, bbox=box, **at_bottom)
            continue
        mean, std = style.mean_and_std(values[cell])
        written = f"{100 * mean:.1f}" if percent else f"{mean:,.4g}" if abs(mean) < 1e6 else f"{mean:.1e}"
        colour = options["palette"][cell[1]]
        rim = style.rim(colour, 4)  # for a bar shorter than its number, and lines across it
        axes.annotate(written, (x_position, 0), color=style.text_on(colour), path_effects=rim, **at_bottom)
        if say_number:
            top = np.nanmax([mean + std, *values[cell], printed.get(cell, np.nan), levels.get(cell, np.nan)])
            number = {"color": style.MUTED, "fontsize": 6.5, "path_effects": style.rim(), "zorder": 4.5}
            axes.annotate(f"n={len(values[cell])}", (x_position, top), **number, **text)
            axes.margins(y=0.15)


def stacked_bars(
    axes: Axes, table: pd.DataFrame, options: Mapping[str, Mapping], *, width: float = WIDTH, across: bool = False
) -> np.ndarray:
    """Bars part upon part, or with ``across`` beside each other in a row, and their whole lengths.

    Args:
        table: a row for each bar, whose index is written at it, and a column for each part, its key in the legend.
        options: of each part, as matplotlib's bars take it.
        width: of a bar; bars are 1 apart.
        across: whether bars are horizontal, the first one on top.
    """
    ends = np.zeros(len(table))
    draw, start, axis = (axes.barh, "left", axes.yaxis) if across else (axes.bar, "bottom", axes.xaxis)
    for part, lengths in table.items():
        draw(range(len(table)), lengths, width, **{start: ends}, label=str(part), **options[part])
        ends = ends + lengths.to_numpy()
    axis.set_ticks(range(len(table)), table.index)
    axis.set_tick_params(length=0)
    axis.grid(False)
    if across:
        axes.set_ylim(len(table) - 0.5, -0.5)
    return ends
