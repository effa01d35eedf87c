"""Training in stages: which parts a client trains, what that costs it, and on which labels (LW-FedSSL)."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator

from fssl_core.costs.layerwise import GB, GFLOP
from fssl_core.errors import SettingError
from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_style import (
    METHODS,
    MUTED,
    STATED,
    finish,
    first_column,
    method_styles,
    panels,
    use_style,
    write_counts,
)

FROZEN = "#e4e4e4"
DOWN, UP = "#3b6ea5", "#e0a458"  # of the two directions, which no method has
STAGED = {  # column of cost_curves, with memory beside it: title, unit in bytes or multiply-adds, label, x axis
    "memory_bytes": ("(a) memory of a training step", GB, "GB (1000 MiB)", "local epoch"),
    "epoch_macs": ("(b) computation", GFLOP, "GFLOPs of an image and epoch", "local epoch"),
    "round_bytes": ("(c) traffic", MIB, "MiB of a round, both ways", "round"),
}


@use_style()
def resources_by_stage(
    curves: pd.DataFrame, *, subtitle: str, title: str, printed_peaks: Mapping[str, float] | None = None
) -> Figure:
    """What each moment of a training costs a client: memory, computation and traffic, a line for each method.

    Args:
        curves: rows of :func:`~fssl_core.costs.layerwise.cost_curves` with a column memory_bytes added.
        subtitle: the model and its input.
        title: the figure's title.
        printed_peaks: the paper's peak memory by method, in bytes, drawn as diamonds in
            the middle of the stage that needs most.
    """
    fig, grid = panels(len(STAGED), width=3.9, height=3.2)
    styles = method_styles(curves["method"])
    keys: dict[str, Line2D] = {}
    for axes, (column, (name, unit, label, x_label)) in zip(grid, STAGED.items(), strict=True):
        for method, style in styles.items():
            rows = curves[curves["method"] == method].sort_values("round")
            each = rows["local_epochs"].to_numpy() if x_label == "local epoch" else np.ones(len(rows), dtype=int)
            edges = np.concatenate([[0], each.cumsum()])  # a round lasts from one edge to the next
            values = rows[column].to_numpy() / unit
            (keys[method],) = axes.step(
                edges, [*values, values[-1]], where="post", color=style.colour, linestyle=style.line, linewidth=2
            )
            if column == "memory_bytes" and method in (printed_peaks or {}):
                at_peak = np.flatnonzero(values == values.max())
                middle = (edges[at_peak[0]] + edges[at_peak[-1] + 1]) / 2
                diamond = STATED | {"markerfacecolor": style.colour, "markersize": 7}
                axes.plot(middle, printed_peaks[method] / unit, clip_on=False, zorder=4, **diamond)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, edges[-1])
        axes.set_title(name)
        axes.set_xlabel(x_label)
        axes.set_ylabel(label)
    if printed_peaks:
        keys["printed peak"] = Line2D([], [], **STATED)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)


@use_style()
def memory_by_batch(peaks: pd.DataFrame, *, subtitle: str, title: str, printed: pd.DataFrame | None = None) -> Figure:
    """Peak memory against the batch size, a line for each method; methods that coincide share a line's place.

    Args:
        peaks: a row for each method and batch_size with memory_bytes.
        subtitle: the model and its input.
        title: the figure's title.
        printed: the paper's values in the same columns, drawn as diamonds, those of one batch size side by side.
    """
    fig, (axes,) = panels(1, width=6.4, height=3.4)
    styles, keys = method_styles(peaks["method"]), {}
    printed = peaks.iloc[:0] if printed is None else printed
    batches = sorted(peaks["batch_size"].unique())
    apart = 0.012 * batches[-1]
    for number, (method, style) in enumerate(styles.items()):
        rows = peaks[peaks["method"] == method].sort_values("batch_size")
        (keys[method],) = axes.plot(
            rows["batch_size"], rows["memory_bytes"] / GB, color=style.colour, linestyle=style.line,
            marker=style.marker, markersize=6, linewidth=1.8,
        )  # fmt: skip
        stated = printed[printed["method"] == method]
        places = stated["batch_size"] + apart * (number - (len(styles) - 1) / 2)
        axes.plot(places, stated["memory_bytes"] / GB, zorder=4, **STATED | {"markerfacecolor": style.colour})
    if len(printed):
        keys["paper"] = Line2D([], [], **STATED)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xticks(batches)
    axes.set_xlabel("images in a step")
    axes.set_ylabel("peak memory, GB (1000 MiB)")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)


@use_style()
def traffic_by_direction(rows: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Traffic of a client over a whole training, download and upload one after the other in a bar.

    Args:
        rows: a row for each bar, in order: name, down_bytes, up_bytes and printed_bytes (the paper's total, which may
            be missing). The share that is written beside a bar is of the first one.
        subtitle: the model and the length of the training.
        title: the figure's title.
    """
    fig, (axes,) = panels(1, width=8.0, height=0.9 + 0.42 * len(rows))
    whole = rows["down_bytes"] + rows["up_bytes"]
    for place, row in enumerate(rows.itertuples()):
        down, up = row.down_bytes / GB, row.up_bytes / GB
        axes.barh(place, down, 0.62, color=DOWN, edgecolor="black", lw=0.5)
        axes.barh(place, up, 0.62, left=down, color=UP, edgecolor="black", lw=0.5)
        text = f"{down + up:.2f} GB, {(down + up) * GB / whole.iloc[0]:.2f}×"
        axes.annotate(text, (down + up, place), xytext=(9, 0), textcoords="offset points", va="center", fontsize=9)
        if not pd.isna(row.printed_bytes):
            axes.plot(row.printed_bytes / GB, place, zorder=4, clip_on=False, **STATED)
    axes.set_yticks(range(len(rows)), rows["name"])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.22 * whole.max() / GB)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("GB (1000 MiB) of one client in the whole training")
    keys = {
        "download": Patch(facecolor=DOWN, edgecolor="black", lw=0.5),
        "upload": Patch(facecolor=UP, edgecolor="black", lw=0.5),
    }
    if rows["printed_bytes"].notna().any():
        keys["paper"] = Line2D([], [], **STATED)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=3)
    return finish(fig, title, subtitle)


@use_style()
def changes_by_stage(changes: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Which units of an encoder changed in which stage, in the method's colour, and which did not at all, in grey.

    Args:
        changes: a row for each unit that was there: method, stage and unit from 1, and largest_change, of a parameter.
        subtitle: the model and its training.
        title: the figure's title.
    """
    methods = list(dict.fromkeys(changes["method"]))
    stages, units = int(changes["stage"].max()), int(changes["unit"].max())
    fig, grid = panels(len(methods), width=3.6, height=3.3, sharey=True)
    keys = {}
    for axes, method in zip(grid, methods, strict=True):
        colour = METHODS.get(method, METHODS["FedMoCoV3"]).colour
        rows = changes[changes["method"] == method]
        for row in rows.itertuples():
            face = colour if row.largest_change > 0 else FROZEN
            place = (row.unit - 0.5, row.stage - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, facecolor=face, edgecolor="white", lw=0.8))
        if rows["stage"].max() < stages:
            axes.text((units + 1) / 2, stages / 2 + 1, "no other stage", ha="center", va="center", color=MUTED)
        axes.set_xlim(0.5, units + 0.5)
        axes.set_ylim(stages + 0.5, 0.5)
        axes.set_title(method)
        axes.set_xlabel("layer of the encoder")
        axes.xaxis.set_major_locator(_whole_numbers(units))
        axes.yaxis.set_major_locator(_whole_numbers(stages))
        axes.grid(False)
        if first_column(axes):
            axes.set_ylabel("stage")
        keys[f"changed, {method}"] = Patch(facecolor=colour)
    keys["there, and no bit changed"] = Patch(facecolor=FROZEN)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)


def _whole_numbers(count: int) -> FixedLocator | MaxNLocator:
    return FixedLocator(np.arange(1, count + 1)) if count <= 12 else MaxNLocator(12, integer=True)


@use_style()
def class_matrices(counts: Mapping[str, np.ndarray], classes: Sequence[str], *, subtitle: str, title: str) -> Figure:
    """How many images of each class each client holds, a panel for each partition, all in one scale of colours.

    Args:
        counts: by the panel's title, ``[clients, classes]``.
        classes: their names.
        subtitle: the data and what was drawn.
        title: the figure's title.

    Raises:
        SettingError: a matrix has another number of classes than there are names.
    """
    for name, table in counts.items():
        if table.shape[1] != len(classes):
            raise SettingError("counts", table.shape, f"{len(classes)} classes in {name!r}, as many as there are names")
    most = max(int(table.max()) for table in counts.values())
    clients = max(len(table) for table in counts.values())
    fig, grid = panels(len(counts), width=1.6 + 0.28 * clients, height=1.0 + 0.3 * len(classes), sharey=True)
    for axes, (name, table) in zip(grid, counts.items(), strict=True):
        image = axes.imshow(table.T, cmap="Blues", vmin=0, vmax=most, aspect="auto", interpolation="nearest")
        write_counts(axes, table.T, most, fontsize=6.5)
        axes.set_title(name)
        axes.set_xlabel("client")
        axes.xaxis.set_major_locator(FixedLocator(np.arange(len(table))))
        axes.set_yticks(range(len(classes)), classes)
        axes.tick_params(length=0)
        axes.grid(False)
    fig.colorbar(image, ax=grid, label="images", shrink=0.9, pad=0.01)
    return finish(fig, title, subtitle)
