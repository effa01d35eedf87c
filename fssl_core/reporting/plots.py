"""Figures of many notebooks (who holds what, curves, pictures), and those of MonAcoSFL: cuts, momentum, keys.

Every figure of this package takes tidy data and an explicit subtitle; what is of one idea stands in a file of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogFormatterSciNotation, LogLocator, MaxNLocator, NullLocator
from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.data.partitions import class_counts, heterogeneity
from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_style import (
    CUT_LAYER,
    GREY,
    MUTED,
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
    write_counts,
)

SYNC = "#b8b8b8"
ARCHITECTURES = {"resnet18": "ResNet-18", "mobilenetv2": "MobileNetV2"}


@use_style()
def partition(data: Dataset, parts: Sequence[Tensor], *, subtitle: str, title: str = "Who holds what") -> Figure:
    """How the images of each class are spread over the clients.

    Args:
        data: the images that are spread.
        parts: indices of each client's training images.
        subtitle: data and partition scheme; the partition's heterogeneity, 0 (IID) to 1, is added.
        title: the figure's title.
    """
    labels, classes = data.train.labels, data.classes
    if not data.labelled:  # only the sizes of the clients can be shown
        labels, classes = torch.zeros_like(labels), ("no labels",)
    counts = class_counts(labels, parts, len(classes)).numpy().T  # [classes, clients]
    rows, columns = counts.shape
    fig, (axes,) = panels(1, width=min(10.0, 4.0 + 0.3 * columns), height=min(5.0, 1.2 + 0.24 * rows))
    image = axes.imshow(counts, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    axes.grid(False)
    if columns <= 40:  # white lines between clients, as long as they are thinner than the cells
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.grid(True, axis="x", which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="minor", length=0)
    if rows <= 20 and columns <= 20:
        write_counts(axes, counts, counts.max(), fontsize=7)
    axes.set_xlabel("client")
    axes.xaxis.set_major_locator(FixedLocator(np.arange(columns)) if columns <= 20 else MaxNLocator(10, integer=True))
    step = -(-rows // 20)  # at most 20 class names
    axes.set_yticks(range(0, rows, step), [classes[row] for row in range(0, rows, step)])
    axes.set_ylabel("class")
    fig.colorbar(image, ax=axes, label="images", shrink=0.9, pad=0.02)
    return finish(fig, title, f"{subtitle} · heterogeneity {heterogeneity(labels, parts):.2f} (0 = IID)")


def accuracy_by_cut(
    results: pd.DataFrame,
    metric: str = "linear_probe_accuracy",
    *,
    subtitle: str,
    title: str = "Accuracy by cut layer",
    hue: str = "method",
    panel: str | None = "clients",
    chance: float | None = None,
) -> Figure:
    """Accuracy against the cut layer: mean and standard deviation over seeds, each seed as a dot.

    Args:
        results: a row per run with the columns cut_layer, ``metric`` (a fraction), ``hue`` and ``panel``.
        metric: the accuracy to draw.
        subtitle: profile, data and seeds.
        title: the figure's title.
        hue: column whose values become lines.
        panel: column whose values become panels, e.g. clients or dataset; None for one panel.
        chance: accuracy of guessing, drawn as a line.
    """
    if panel == "clients":
        results = results.assign(clients=results["clients"].astype(str) + " clients")
    return curves(
        results, "cut_layer", metric, hue=hue, panel=panel, chance=chance, subtitle=subtitle, title=title,
        x_label=CUT_LAYER, percent=True,
    )  # fmt: skip


@use_style()
def curves(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    subtitle: str,
    title: str,
    panel: str | None = None,
    x_label: str | None = None,
    y_label: str | None = None,
    percent: bool = False,
    chance: float | None = None,
) -> Figure:
    """A quantity against a number: mean and standard deviation over rows, usually seeds, with each row as a dot.

    Args:
        frame: tidy, with the columns ``x``, ``y``, ``hue`` and ``panel``; rows without ``y`` are left out.
        x: column of the x axis; its values become the ticks.
        y: column of the y axis.
        hue: column whose values become lines; a method has its colour of all figures.
        subtitle: profile, data and seeds.
        title: the figure's title.
        panel: column whose values become panels with their titles; None for one panel.
        x_label: the column's name unless given.
        y_label: the column's name unless given.
        percent: ``y`` is a fraction and shown as percent.
        chance: ``y`` of guessing, drawn as a line.
    """
    styles = method_styles(frame[hue])
    groups = [(None, frame)] if panel is None else list(frame.groupby(panel, sort=False))
    fig, grid = panels(len(groups), width=max(3.4, 5.5 / len(groups)), sharey=True)
    ticks = sorted(frame[x].unique())
    apart = 0.08 * min(np.diff(ticks), default=1)
    for axes, (value, rows) in zip(grid, groups, strict=True):
        lines_over_seeds(axes, rows, x, y, styles, lambda place, number: place + apart * number, hue=hue)
        if chance is not None:
            axes.axhline(chance, color=GREY, linestyle=":", label="chance", zorder=1)
        if panel is not None:
            axes.set_title(str(value))
        axes.set_xticks(ticks)
        axes.set_xlabel(x if x_label is None else x_label)
        if first_column(axes):
            label = y if y_label is None else y_label
            percent_axis(axes, label) if percent else axes.set_ylabel(label)
    legend_below(fig)
    cell = [hue, x] if panel is None else [panel, hue, x]
    sizes = frame.dropna(subset=y).groupby(cell).size()
    return finish(fig, title, subtitle, spread_note(sizes, "markers", "lines"))


@use_style()
def traffic_by_cut(frame: pd.DataFrame, *, subtitle: str, title: str = "Traffic of one client in one epoch") -> Figure:
    """Bytes for activations and for parameter synchronisation at each cut, with the cheapest cut marked.

    Args:
        frame: a row per cut with the columns architecture, strides, rule, cut_layer, activation_bytes,
            sync_bytes and total_bytes; a panel per architecture, strides and rule.
        subtitle: image size, images and syncs.
        title: the figure's title.
    """
    import seaborn as sns

    groups = list(frame.groupby(["architecture", "strides", "rule"], sort=False))
    rules = frame["rule"].nunique()
    several = frame.groupby("architecture")["strides"].nunique()
    fig, grid = panels(len(groups), width=4.4, height=2.9, most=rules)
    activation, sync = sns.color_palette("colorblind")[9], "#595959"
    for axes, ((architecture, strides, rule), rows) in zip(grid, groups, strict=True):
        rows = rows.sort_values("cut_layer").reset_index()
        mib = rows[["activation_bytes", "sync_bytes", "total_bytes"]] / MIB
        axes.bar(rows.index, mib["activation_bytes"], color=activation)
        axes.bar(rows.index, mib["sync_bytes"], bottom=mib["activation_bytes"], color=sync, hatch="////", edgecolor="w")
        best = int(mib["total_bytes"].idxmin())
        least, top = mib["total_bytes"].min(), mib["total_bytes"].max()
        axes.annotate(  # from above the tallest bar, so that the text never covers a neighbour
            f"cheapest: {least:.1f} MiB", (best, least), xytext=(best, 1.06 * top), ha="center", fontsize=8,
            fontweight="bold", arrowprops={"arrowstyle": "-|>", "color": "black"},
        )  # fmt: skip
        name = ARCHITECTURES.get(architecture, architecture)
        name += f", {'CIFAR' if strides == 'cifar' else 'ImageNet'} strides" if several[architecture] > 1 else ""
        axes.set_title(f"{name}, {rule}")
        axes.set_xticks(rows.index, rows["cut_layer"])
        axes.get_xticklabels()[best].set_fontweight("bold")
        axes.grid(False, axis="x")
        axes.set_ylim(0, 1.2 * top)
        if first_column(axes):
            axes.set_ylabel("MiB")
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("cut layer = 2 × code index − 1")
    bars = [Patch(color=activation), Patch(facecolor=sync, hatch="////", edgecolor="w")]
    labels = ["activations and gradients", "parameter synchronisation"]
    fig.legend(bars, labels, loc="outside lower left", ncols=2)
    return finish(fig, title, subtitle)


@use_style()
def pictures(images: Mapping[str, Tensor], *, subtitle: str, title: str) -> Figure:
    """Images side by side, under their names.

    Args:
        images: name -> uint8 or float in [0, 1], [3, H, W] or [1, H, W].
        subtitle: where the images come from.
        title: the figure's title.
    """
    fig, grid = panels(len(images), width=2.0, height=2.0, most=6)
    for axes, (name, image) in zip(grid, images.items(), strict=True):
        _picture(axes, image)
        axes.set_title(name, loc="center")
        axes.set_axis_off()
    return finish(fig, title, subtitle)


def _picture(axes: Axes, image: Tensor) -> None:
    pixels = image.cpu().permute(1, 2, 0).numpy()
    grey = pixels.shape[-1] == 1
    axes.imshow(pixels[..., 0] if grey else pixels, cmap="gray", vmin=0, vmax=255 if pixels.dtype == np.uint8 else 1)


@use_style()
def activation_grid(
    image: Tensor,
    activations: Mapping[int, Tensor],
    *,
    subtitle: str,
    title: str = "What a layer still shows of the image",
    captions: Mapping[int, str] | None = None,
    channels: int = 3,
) -> Figure:
    """The input image and the first channels of each layer's activation, each channel stretched to its own range.

    Args:
        image: uint8, [3, H, W] or [1, H, W].
        activations: layer -> float, [channels, h, w]; put the channels to show first.
        subtitle: model, image and how channels were chosen.
        title: the figure's title.
        captions: layer -> a short text under its column, e.g. its similarity to the input.
        channels: rows to draw.
    """
    columns = 1 + len(activations)
    fig, grid = panels(columns * channels, width=1.35, height=1.35, most=columns)
    for axes in grid:
        axes.set_axis_off()
    _picture(grid[0], image)
    grid[0].set_title("input", loc="center")
    for column, (layer, maps) in enumerate(activations.items(), start=1):
        for row in range(min(channels, len(maps))):
            axes = grid[row * columns + column]
            axes.imshow(maps[row].float().cpu().numpy(), cmap="viridis", interpolation="nearest")
            if row == 0:
                axes.set_title(f"layer {layer}", loc="center")
        size = f"{maps.shape[-2]}×{maps.shape[-1]}"
        text = size if captions is None else f"{size}\n{captions[layer]}"
        bottom = grid[(channels - 1) * columns + column]
        bottom.text(0.5, -0.06, text, transform=bottom.transAxes, ha="center", va="top", fontsize=8, color=MUTED)
    return finish(fig, title, subtitle)


@use_style()
def trajectories(
    frame: pd.DataFrame,
    *,
    subtitle: str,
    title: str = "Online and momentum models between and at syncs",
    optima: Mapping[int, tuple[float, float]] | None = None,
) -> Figure:
    """Paths of the clients' online (solid) and momentum (dashed) models in the plane; jumps at a sync are dotted.

    Args:
        frame: positions in order of time with the columns method, client, online_x, online_y, momentum_x, momentum_y
            and synced. A row with ``synced`` is the position right after a sync, so the way there is the jump.
        subtitle: decay, steps and syncs.
        title: the figure's title.
        optima: client -> where its own loss is smallest, drawn as a star.
    """
    import seaborn as sns

    methods = list(dict.fromkeys(frame["method"]))
    fig, grid = panels(len(methods), width=4.6, height=4.0, most=2, sharex=True, sharey=True)
    clients = sorted(frame["client"].unique())
    colours = dict(zip(clients, sns.color_palette("colorblind", len(clients)), strict=True))
    for axes, method in zip(grid, methods, strict=True):
        for client, rows in frame[frame["method"] == method].groupby("client"):
            colour, synced = colours[client], rows["synced"].to_numpy(dtype=bool)
            for model, line in (("online", "-"), ("momentum", (0, (4, 1.5)))):
                x, y = rows[f"{model}_x"].to_numpy(), rows[f"{model}_y"].to_numpy()
                starts = np.flatnonzero(synced)
                for begin, end in zip([0, *starts], [*starts, len(x)], strict=True):
                    axes.plot(x[begin:end], y[begin:end], linestyle=line, color=colour, linewidth=1.6)
                for after in starts:
                    jump = slice(after - 1, after + 1)
                    axes.plot(x[jump], y[jump], linestyle=":", color=colour, linewidth=1.3)
                axes.plot(x[0], y[0], "o", color="black", markersize=5, zorder=4)
                marker = {"marker": "o", "linestyle": "", "markersize": 6, "markeredgecolor": colour}
                axes.plot(x[-1], y[-1], color=colour if model == "online" else "white", zorder=4, **marker)
            if optima is not None:
                axes.plot(*optima[client], "*", color=colour, markersize=12, markeredgecolor="black", zorder=5)
        axes.set_title(method)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xlabel("parameter 1")
    grid[0].set_ylabel("parameter 2")
    keys = {
        "online": Line2D([], [], color=MUTED),
        "momentum": Line2D([], [], color=MUTED, linestyle=(0, (4, 1.5))),
        "jump at a sync": Line2D([], [], color=MUTED, linestyle=":"),
        "start": Line2D([], [], color="black", marker="o", markersize=5, linestyle=""),
        "end, online": Line2D([], [], color=MUTED, marker="o", markersize=6, linestyle=""),
        "end, momentum": Line2D([], [], color=MUTED, marker="o", markersize=6, linestyle="", markerfacecolor="white"),
    }
    if optima is not None:
        keys["a client's own optimum"] = Line2D([], [], color=MUTED, marker="*", markersize=10, linestyle="")
    keys |= {f"client {client}": Patch(color=colour) for client, colour in colours.items()}
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    return finish(fig, title, subtitle)


@use_style()
def misalignment(
    steps: pd.DataFrame,
    *,
    subtitle: str,
    title: str = "Distance between online and momentum client models",
) -> Figure:
    """Misalignment over the steps (Eq. 2): mean over seeds, their range as a band, syncs as thin vertical lines.

    At a sync the curve goes straight from the value before it to the value after it.

    Args:
        steps: a row per step with the columns setting, method, seed, step, misalignment, misalignment_before_sync and
            synced; a panel per setting.
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    groups = list(steps.groupby("setting", sort=False))
    most = 2 if len(groups) == 4 else 3
    fig, grid = panels(len(groups), width=max(4.0, 6.5 / len(groups)), height=3.2, most=most, sharey=True)
    styles = method_styles(steps["method"])
    lowest = steps.loc[steps["step"] >= steps["step"].max() / 50, "misalignment"].min()  # it starts at almost nothing
    for axes, (setting, rows) in zip(grid, groups, strict=True):
        syncs = rows.loc[rows["synced"].astype(bool), "step"].unique()
        for sync in syncs:
            axes.axvline(sync, color=SYNC, linewidth=0.8 if len(syncs) <= 20 else 0.3, zorder=0)
        for name in dict.fromkeys(rows["method"]):
            before_and_after = rows[rows["method"] == name].melt(
                ["step", "seed"], ["misalignment_before_sync", "misalignment"], "moment"
            )  # "misalignment_before_sync" sorts after "misalignment": descending puts it first
            curve = before_and_after.groupby(["step", "moment"])["value"].agg(["mean", "min", "max"])
            curve = curve.sort_index(ascending=[True, False]).reset_index()
            axes.plot(curve["step"], curve["mean"], color=styles[name].colour, linestyle=styles[name].line, label=name)
            axes.fill_between(curve["step"], curve["min"], curve["max"], color=styles[name].colour, alpha=0.2, lw=0)
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7 * lowest)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))  # 2 and 5 too
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(False, axis="x")
        axes.set_title(setting)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if first_column(axes):
            axes.set_ylabel("mean |online − momentum|")
    handles, labels = grid[0].get_legend_handles_labels()
    sync_key = Line2D([], [], color=SYNC, linewidth=0.8)
    fig.legend([*handles, sync_key], [*labels, "sync"], loc="outside lower left", ncols=4)
    several = steps["seed"].nunique() > 1
    return finish(fig, title, subtitle, "lines: mean, bands: least to largest over seeds" if several else "")


@use_style()
def identifiability(
    frame: pd.DataFrame,
    *,
    chance: float,
    subtitle: str,
    x: str = "setting",
    title: str = "Can a key tell which client made it?",
) -> Figure:
    """Client identifiability of the keys through the clients' own models, beside the same images through one model.

    Numbers on the x axis (steps, cut layers) give lines, words give bars; both with the mean over seeds, bars with
    their standard deviation.

    Args:
        frame: columns ``x``, method, identifiability and identifiability_common (fractions); NaNs are left out.
        chance: accuracy of guessing, 1 / clients.
        subtitle: profile, data and seeds.
        x: column of the x axis.
        title: the figure's title.
    """
    frame = frame.dropna(subset=["identifiability"])
    styles = method_styles(frame["method"])
    values = list(dict.fromkeys(frame[x]))
    numeric = pd.api.types.is_numeric_dtype(frame[x])
    fig, (axes,) = panels(1, width=7.5 if numeric else max(7.5, 1.6 * len(values)), height=3.2)
    draw = _identifiability_lines if numeric else _identifiability_bars
    for number, (name, style) in enumerate(styles.items()):
        rows = frame[frame["method"] == name]
        for model, column in enumerate(("identifiability", "identifiability_common")):
            label = f"{name}, {('own models', 'one common model')[model]}"
            draw(axes, rows.groupby(x)[column], values, style, model, (2 * number + model, 2 * len(styles)), label)
    axes.axhline(chance, color="black", linestyle=":", linewidth=1.2, label="chance")
    axes.set_xlabel(CUT_LAYER if x == "cut_layer" else "" if x == "setting" else x)
    axes.set_ylim(0, 1.04)
    percent_axis(axes, "keys traced to their client")
    legend_below(fig, columns=3)
    sizes = frame.groupby(["method", x]).size()
    lines = "lines: mean over seeds" if sizes.max() > 1 else ""
    return finish(fig, title, subtitle, lines if numeric else spread_note(sizes, "bars", "lines"))


def _identifiability_lines(axes: Axes, seeds, values, style, common: int, place, label: str) -> None:
    mean = seeds.mean()
    axes.plot(
        mean.index, mean, label=label, color=style.colour, linestyle=":" if common else "-", marker=style.marker,
        markerfacecolor="white" if common else style.colour, markevery=max(1, len(mean) // 12),
    )  # fmt: skip


def _identifiability_bars(axes: Axes, seeds, values, style, common: int, place, label: str) -> None:
    number, of = place
    summary = np.array([mean_and_std(seeds.get_group(value).to_numpy()) for value in values])
    position = np.arange(len(values)) + 0.8 * ((number + 0.5) / of - 0.5)
    axes.bar(
        position, summary[:, 0], 0.74 / of, yerr=summary[:, 1], capsize=2, label=label, edgecolor=style.colour,
        color="white" if common else style.colour, hatch="////" if common else None,
    )  # fmt: skip
    axes.set_xticks(range(len(values)), values)
    axes.grid(False, axis="x")
