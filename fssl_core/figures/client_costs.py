"""What a client's share of the network costs it: divergence, computation, memory and traffic."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from fssl_core.costs.layerwise import GB, GFLOP
from fssl_core.figures import style
from fssl_core.figures.charts import stacked_bars
from fssl_core.figures.style import BAR, METHODS, PRINTED_MARK
from fssl_core.papers.names import MIB
from fssl_core.settings import check_choice

ARCHITECTURES = {"resnet18": "ResNet-18", "mobilenetv2": "MobileNetV2"}
SCHEMES = {"FL-SSL": METHODS["FL-MoCoV2"], "MocoSFL": METHODS["MocoSFL"]}
STAGED = {  # column of cost_curves, with memory beside it: title, unit in bytes or multiply-adds, label, x axis
    "memory_bytes": ("(a) memory of a training step", GB, "GB (1000 MiB)", "local epoch"),
    "epoch_macs": ("(b) computation", GFLOP, "10⁹ multiply-adds, image and epoch", "local epoch"),
    "round_bytes": ("(c) traffic", MIB, "MiB of a round, both ways", "round"),
}
DIRECTIONS = {"download": {"color": "#3b6ea5", **BAR}, "upload": {"color": "#e0a458", **BAR}}  # colours of no method
# Pale, so that the lines stand out; hatches tell the parts apart in grey print too.
PARTS: dict[str, dict[str, str]] = {
    "activations": {"facecolor": "#cfe3f1"},
    "momentum activations": {"facecolor": "#cfe3f1", "hatch": "...."},
    "gradients": {"facecolor": "#9fc5de"},
    "parameters": {"facecolor": "#d9d9d9", "hatch": "////"},
    "momentum parameters": {"facecolor": "#ececec", "hatch": "\\\\\\\\"},
    "activations and gradients": {"facecolor": "#56b4e9"},
    "parameter synchronisation": {"facecolor": "#595959", "hatch": "////"},
}
APART = 0.12  # of two lines at a cut, whose bars are 1 apart, so that error bars do not cover each other
CHEAPEST = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.8}
ABOVE = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}


# --------------------------------------------------------------------------------------------------------- traffic


@style.use_style()
def traffic_and_accuracy(traffic: pd.DataFrame, results: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Bytes of one client by cut, part upon part, with the cheapest cut framed; accuracies on a second axis.

    A panel without results shows the bars alone: an accuracy never stands over the traffic of another model.

    Args:
        traffic: tidy, with the columns panel, cut_layer, part (a key of ``PARTS``) and bytes. A panel for each value
            of panel, in order of appearance; rows of the same part and cut are added.
        results: a row per run with the columns panel, cut_layer, method and linear_probe_accuracy (a fraction): mean
            and standard deviation over rows, usually seeds.

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
    metric = "linear_probe_accuracy"
    results = results.dropna(subset=metric)
    fig, grid = style.panels(len(groups), width=5.2, height=3.6, most=2)
    styles = style.method_styles(results["method"])
    for axes, (panel, rows) in zip(grid, groups.items(), strict=True):
        mib = rows.pivot_table("bytes", "cut_layer", "part", aggfunc="sum", fill_value=0) / MIB
        _stack(axes, mib[[part for part in PARTS if part in mib]])
        axes.set_title(panel)
        axes.set_xlabel(style.CUT_LAYER)
        axes.set_ylabel("MiB")
        panel_rows = results[results["panel"] == panel]
        if len(panel_rows):
            above = axes.twinx()
            positioned = panel_rows.assign(cut_layer=panel_rows["cut_layer"].map(list(mib.index).index))
            style.lines_over_seeds(above, positioned, "cut_layer", metric, styles, apart=APART)
            above.set_ylim(0, 1)
            above.grid(False)
            above.spines["right"].set_visible(True)
            style.percent_axis(above.yaxis, metric)
    sizes = results.groupby(["panel", "method", "cut_layer"]).size()
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "markers", "lines"))


def _stack(axes: Axes, mib: pd.DataFrame) -> float:
    """Stacked bars, a row of ``mib`` for each cut, with the cheapest framed; returns the longest."""
    whole = stacked_bars(
        axes, mib, {part: {"edgecolor": "white", "linewidth": 0.4, **look} for part, look in PARTS.items()}
    )
    best = int(whole.argmin())
    axes.bar(best, whole[best], zorder=2.5, label="cheapest cut", **CHEAPEST)
    axes.get_xticklabels()[best].set_fontweight("bold")
    return whole.max()


@style.use_style()
def traffic_by_cut(frame: pd.DataFrame, *, subtitle: str, title: str = "Traffic of one client in one epoch") -> Figure:
    """Bytes for activations and for parameter synchronisation at each cut, with the cheapest cut marked.

    Args:
        frame: a row per cut with the columns architecture, strides, rule, cut_layer, activation_bytes,
            sync_bytes and total_bytes; a panel per architecture, strides and rule.
        subtitle: image size, images and syncs.
    """
    groups = list(frame.groupby(["architecture", "strides", "rule"], sort=False))
    several = frame.groupby("architecture")["strides"].nunique()
    fig, grid = style.panels(len(groups), width=4.4, height=2.9, most=frame["rule"].nunique())
    for axes, ((architecture, strides, rule), rows) in zip(grid, groups, strict=True):
        mib = rows.sort_values("cut_layer").set_index("cut_layer").filter(like="_bytes") / MIB
        parts = {"activations and gradients": mib["activation_bytes"], "parameter synchronisation": mib["sync_bytes"]}
        top = _stack(axes, pd.DataFrame(parts))
        best, least = int(mib["total_bytes"].argmin()), mib["total_bytes"].min()
        axes.annotate(  # from above the tallest bar, so that the text never covers a neighbour
            f"cheapest: {least:.1f} MiB", (best, least), (best, 1.06 * top), ha="center", fontsize=8, fontweight="bold",
            arrowprops={"arrowstyle": "-|>", "color": "black"},
        )  # fmt: skip
        name = ARCHITECTURES.get(architecture, architecture)
        name += f", {'CIFAR' if strides == 'cifar' else 'ImageNet'} strides" if several[architecture] > 1 else ""
        axes.set_title(f"{name}, {rule}")
        axes.set_ylim(0, 1.2 * top)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("MiB")
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("cut layer = 2 × code index − 1")
    return style.finish(fig, title, subtitle)


@style.use_style()
def traffic_by_direction(rows: pd.DataFrame, *, subtitle: str, title: str) -> Figure:
    """Traffic of a client over a whole training, download and upload one after the other in a bar.

    Args:
        rows: a row for each bar, in order: name, down_bytes, up_bytes and printed_bytes (the paper's total, which may
            be missing). The share that is written beside a bar is of the first one.
        subtitle: the model and the length of the training.
    """
    fig, (axes,) = style.panels(1, width=8.0, height=0.9 + 0.42 * len(rows))
    gb = pd.DataFrame({"download": rows["down_bytes"] / GB, "upload": rows["up_bytes"] / GB}).set_axis(rows["name"])
    whole = stacked_bars(axes, gb, DIRECTIONS, width=0.62, across=True)
    for index, length in enumerate(whole):
        text = f"{length:.2f} GB, {length / whole[0]:.2f}×"
        axes.annotate(text, (length, index), (9, 0), textcoords="offset points", va="center", fontsize=9)
    if rows["printed_bytes"].notna().any():
        marker = PRINTED_MARK | {"zorder": 4, "clip_on": False, "label": "paper"}
        axes.plot(rows["printed_bytes"] / GB, range(len(rows)), **marker)
    axes.set_xlim(0, 1.22 * whole.max())
    axes.grid(True, axis="x")
    axes.set_xlabel("GB (1000 MiB) of one client in the whole training")
    return style.finish(fig, title, subtitle)


# --------------------------------------------------------------------------------- divergence, computation, memory


@style.use_style()
def divergence_and_costs(
    divergence: pd.DataFrame, costs: pd.DataFrame, *, paper: pd.DataFrame, subtitle: str, title: str
) -> Figure:
    """Divergence by cut and synchronisation frequency; multiply-adds and memory of a client, the paper's as diamonds.

    Args:
        divergence: a row per run with the columns scheme (``"FL-SSL"`` or ``"MocoSFL"``), cut_layer, syncs_per_epoch
            and divergence (above 0); FL-SSL has no cut and becomes a horizontal line. Mean and standard deviation
            over rows, usually seeds.
        costs: rows of ``costs.compute_table``, of one architecture and norm.
        subtitle: profile, data and seeds of the divergence, architecture of the costs.
        paper: the paper's values in columns of ``costs``: scheme, cut_layer, batch, forward_macs and memory_bytes, of
            which a row may leave out either.
    """
    fig, (left, middle, right) = style.panels(3, width=4.1, height=3.4)
    _divergence(left, divergence)
    costs, paper = (
        rows.assign(client=rows["scheme"] + rows["cut_layer"].map(lambda cut: "" if pd.isna(cut) else f"-{cut:.0f}"))
        for rows in (costs, paper)
    )  # MocoSFL-3
    counted = costs.drop_duplicates("client").assign(batch=0)  # of one image, whatever the batch
    texts = [
        f"{macs / 1e6:,.1f}\n{100 * share:.4g} %"
        for macs, share in counted[["forward_macs", "share_of_whole"]].to_numpy()
    ]
    _costs(middle, counted, paper.assign(batch=0), "forward_macs", 1e6, texts)
    middle.set_ylim(top=1.25 * middle.get_ylim()[1])
    middle.set_title("(b) computation for one image")
    middle.set_ylabel("million multiply-adds")
    right.set_yscale("log")
    _costs(right, costs, paper, "memory_bytes", MIB, [f"{size / MIB:,.3g}" for size in costs["memory_bytes"]])
    right.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    right.yaxis.set_minor_locator(NullLocator())
    right.set_ylim(top=2 * right.get_ylim()[1])
    right.set_title("(b) memory of training")
    right.set_ylabel("MiB")
    keys = {
        f"memory at batch {batch}": {"facecolor": "white", "hatch": "////" * number, **BAR}
        for number, batch in enumerate(sorted(costs["batch"].unique(), reverse=True))
    } | ({"paper": PRINTED_MARK} if len(paper) else {})
    sizes = divergence.groupby(["scheme", "cut_layer", "syncs_per_epoch"], dropna=False).size()
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "(a), markers", "lines"), keys=keys)


def _divergence(axes: Axes, rows: pd.DataFrame) -> None:
    split, whole = (rows[rows["scheme"] == scheme] for scheme in ("MocoSFL", "FL-SSL"))
    names = {
        frequency: f"MocoSFL, {frequency:g} sync{'s' if frequency != 1 else ''} per epoch"
        for frequency in sorted(split["syncs_per_epoch"].unique())
    }
    styles = dict(reversed(style.method_styles(reversed(names.values())).items()))  # the most frequent is darkest
    named = split.assign(name=split["syncs_per_epoch"].map(names))
    style.lines_over_seeds(axes, named, "cut_layer", "divergence", styles, hue="name")
    if len(whole):
        look, (mean, std) = SCHEMES["FL-SSL"], style.mean_and_std(whole["divergence"].to_numpy())
        axes.axhline(mean, color=look.colour, linestyle=look.line, linewidth=2, label="FL-SSL, whole model")
        axes.axhspan(mean - std, mean + std, color=look.colour, alpha=0.12, lw=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sorted(split["cut_layer"].unique().astype(int)))
    axes.set_xlabel(style.CUT_LAYER)
    axes.set_ylabel("divergence (Eq. 4)")
    axes.set_title("(a) divergence of the clients")


def _costs(axes: Axes, rows: pd.DataFrame, paper: pd.DataFrame, column: str, unit: float, texts: list[str]) -> None:
    """A bar for each client and batch, the smaller batches hatched, with the paper's values and a text over it."""
    clients, batches = list(dict.fromkeys(rows["client"])), sorted(rows["batch"].unique(), reverse=True)
    width = 0.84 / max(len(batches), 1.4)
    for row, text in zip(rows.to_dict("records"), texts, strict=True):
        number, alone = batches.index(row["batch"]), (rows["client"] == row["client"]).sum() == 1
        x_position = clients.index(row["client"]) + (0 if alone else width * (number - (len(batches) - 1) / 2))
        height, colour = row[column] / unit, SCHEMES[row["scheme"]].colour
        axes.bar(x_position, height, 0.9 * width, color=colour, hatch="////" * number, **BAR)
        printed_rows = paper[(paper["client"] == row["client"]) & (paper["batch"] == row["batch"])]
        printed_values = printed_rows[column].dropna() / unit
        axes.plot([x_position] * len(printed_values), printed_values, zorder=4, **PRINTED_MARK)
        axes.annotate(text, (x_position, max([height, *printed_values])), (0, 6 if len(printed_values) else 3), **ABOVE)
    style.category_axis(axes, clients)


@style.use_style()
def resources_by_stage(
    curves: pd.DataFrame, *, subtitle: str, title: str, printed_peaks: Mapping[str, float] | None = None
) -> Figure:
    """What each moment of a training costs a client: memory, computation and traffic, a line for each method.

    Args:
        curves: rows of :func:`~fssl_core.costs.layerwise.cost_curves` with a column memory_bytes added.
        subtitle: the model and its input.
        printed_peaks: the paper's peak memory by method, in bytes, drawn as diamonds in
            the middle of the stage that needs most.
    """
    fig, grid = style.panels(len(STAGED), width=3.9, height=3.2)
    for axes, (column, (name, unit, label, x_label)) in zip(grid, STAGED.items(), strict=True):
        for method, look in style.method_styles(curves["method"]).items():
            rows = curves[curves["method"] == method].sort_values("round")
            each = rows["local_epochs"].to_numpy() if x_label == "local epoch" else np.ones(len(rows), dtype=int)
            edges = np.concatenate([[0], each.cumsum()])  # a round lasts from one edge to the next
            values = rows[column].to_numpy() / unit
            axes.stairs(values, edges, baseline=None, color=look.colour, linestyle=look.line, linewidth=2, label=method)
            if column == "memory_bytes" and method in (printed_peaks or {}):
                at_peak = np.flatnonzero(values == values.max())
                middle = (edges[at_peak[0]] + edges[at_peak[-1] + 1]) / 2
                diamond = PRINTED_MARK | {"markerfacecolor": look.colour, "markersize": 7}
                axes.plot(middle, printed_peaks[method] / unit, clip_on=False, zorder=4, **diamond)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, edges[-1])
        axes.set_title(name)
        axes.set_xlabel(x_label)
        axes.set_ylabel(label)
    return style.finish(fig, title, subtitle, keys={"paper": PRINTED_MARK} if printed_peaks else {})
