"""What a client's share of the network costs: divergence, multiply-adds and memory (MocoSFL, Fig. 3)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from fssl_core.papers.names import MIB
from fssl_core.reporting.plots_style import (
    CUT_LAYER,
    METHODS,
    OTHERS,
    STATED,
    category_axis,
    finish,
    mean_and_std,
    panels,
    spread_note,
    use_style,
)

STYLES = {"FL-SSL": METHODS["FL-MoCoV2"], "MocoSFL": METHODS["MocoSFL"]}
ABOVE = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}


@use_style()
def divergence_and_costs(
    divergence: pd.DataFrame,
    costs: pd.DataFrame,
    *,
    subtitle: str,
    title: str,
    paper: pd.DataFrame | None = None,
) -> Figure:
    """Divergence by cut and synchronisation frequency; multiply-adds and memory of a client, the paper's as diamonds.

    Args:
        divergence: a row per run with the columns scheme (``"FL-SSL"`` or ``"MocoSFL"``), cut_layer, syncs_per_epoch
            and divergence (above 0); FL-SSL has no cut and becomes a horizontal line. Mean and standard deviation
            over rows, usually seeds.
        costs: rows of ``costs.compute_table``, of one architecture and norm.
        subtitle: profile, data and seeds of the divergence, architecture of the costs.
        title: the figure's title.
        paper: the paper's values in columns of ``costs``: scheme, cut_layer, batch, forward_macs and memory_bytes, of
            which a row may leave out either.
    """
    costs, paper = _with_client(costs), _with_client(costs.iloc[:0] if paper is None else paper)
    clients = list(dict.fromkeys(costs["client"]))
    fig, (left, middle, right) = panels(3, width=4.1, height=3.4)
    keys = _divergence(left, divergence)
    _macs(middle, clients, costs, paper)
    keys |= _memory(right, clients, costs, paper)
    if len(paper):
        keys["paper"] = Line2D([], [], **STATED)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    sizes = divergence.groupby(["scheme", "cut_layer", "syncs_per_epoch"], dropna=False).size()
    return finish(fig, title, subtitle, spread_note(sizes, "(a), markers", "lines"))


def _with_client(rows: pd.DataFrame) -> pd.DataFrame:
    """With a column client, ``"FL-SSL"`` or the split method's name with its cut: ``"MocoSFL-3"``."""
    cuts = rows["cut_layer"].map(lambda cut: "" if pd.isna(cut) else f"-{cut:.0f}")
    return rows.assign(client=rows["scheme"] + cuts.astype(str))


# ------------------------------------------------------------------------------------------------------ divergence


def _divergence(axes: Axes, rows: pd.DataFrame) -> dict[str, Line2D]:
    keys = {}
    split, whole = (rows[rows["scheme"] == scheme] for scheme in ("MocoSFL", "FL-SSL"))
    frequencies = sorted(split["syncs_per_epoch"].unique())
    for number, (frequency, colour) in enumerate(zip(frequencies, _shades(len(frequencies)), strict=True)):
        runs = split[split["syncs_per_epoch"] == frequency].groupby("cut_layer")["divergence"]
        mean, std = np.array([mean_and_std(values.to_numpy()) for _, values in runs]).T
        label = f"MocoSFL, {frequency:g} sync{'s' if frequency != 1 else ''} per epoch"
        marker = OTHERS[number % len(OTHERS)].marker
        axes.errorbar(list(runs.groups), mean, std, color=colour, marker=marker, markersize=6, capsize=3)
        keys[label] = Line2D([], [], color=colour, marker=marker, markersize=6)
    if len(whole):
        style, (mean, std) = STYLES["FL-SSL"], mean_and_std(whole["divergence"].to_numpy())
        keys["FL-SSL, whole model"] = axes.axhline(mean, color=style.colour, linestyle=style.line, linewidth=2)
        if std:
            axes.axhspan(mean - std, mean + std, color=style.colour, alpha=0.12, lw=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sorted(split["cut_layer"].unique().astype(int)))
    axes.set_xlabel(CUT_LAYER)
    axes.set_ylabel("divergence (Eq. 4)")
    axes.set_title("(a) divergence of the clients")
    return keys


def _shades(count: int) -> list[tuple[float, float, float]]:
    """From a light shade of MocoSFL's colour to the colour itself."""
    colour = np.array(to_rgb(STYLES["MocoSFL"].colour))
    return [tuple(1 - (1 - colour) * strength) for strength in np.linspace(1 if count == 1 else 0.4, 1, count)]


# ----------------------------------------------------------------------------------------------------------- costs


def _macs(axes: Axes, clients: Sequence[str], costs: pd.DataFrame, paper: pd.DataFrame) -> None:
    counted = costs.drop_duplicates("client").set_index("client")  # of one image, whatever the batch
    for place, client in enumerate(clients):
        row = counted.loc[client]
        millions = row["forward_macs"] / 1e6
        axes.bar(place, millions, 0.6, color=STYLES[row["scheme"]].colour, edgecolor="black", lw=0.5)
        stated = paper.loc[paper["client"] == client, "forward_macs"].dropna() / 1e6
        axes.plot([place] * len(stated), stated, zorder=4, **STATED)
        axes.annotate(
            f"{millions:,.1f}\n{100 * row['share_of_whole']:.4g} %", (place, max([millions, *stated + 12])), **ABOVE
        )
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])
    _client_axis(axes, clients, "(b) computation for one image", "million multiply-adds")


def _memory(axes: Axes, clients: Sequence[str], costs: pd.DataFrame, paper: pd.DataFrame) -> dict[str, Patch]:
    batches = sorted(costs["batch"].unique(), reverse=True)
    width, keys = 0.84 / len(batches), {}
    for number, batch in enumerate(batches):
        rows = costs[costs["batch"] == batch].set_index("client")
        hatch = "////" * number
        keys[f"memory at batch {batch}"] = Patch(facecolor="white", edgecolor="black", lw=0.5, hatch=hatch)
        for client, row in rows.iterrows():
            shift = width * (number - (len(batches) - 1) / 2) if (costs["client"] == client).sum() > 1 else 0
            place, mib = clients.index(client) + shift, row["memory_bytes"] / MIB
            colour = STYLES[row["scheme"]].colour
            axes.bar(place, mib, 0.9 * width, color=colour, edgecolor="black", lw=0.5, hatch=hatch)
            here = paper[(paper["client"] == client) & (paper["batch"] == batch)]
            stated = here["memory_bytes"].dropna() / MIB
            axes.plot([place] * len(stated), stated, zorder=4, **STATED)
            axes.annotate(f"{mib:,.3g}", (place, max([mib, *1.15 * stated])), **ABOVE)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    axes.set_ylim(low, 2 * high)
    _client_axis(axes, clients, "(b) memory of training", "MiB")
    return keys


def _client_axis(axes: Axes, clients: Sequence[str], title: str, label: str) -> None:
    category_axis(axes, clients)
    axes.set_ylabel(label)
    axes.set_title(title)
