"""Momentum models of clients (MonAcoSFL): their paths, their distance to the online models, and whose key it is."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullLocator

from fssl_core.figures import style
from fssl_core.figures.charts import MOST_TICKS, bars, by_round, curves
from fssl_core.figures.style import MUTED

SYNC = "#b8b8b8"
MODELS = {"identifiability": "own models", "identifiability_common": "one common model"}


@style.use_style()
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
        optima: client -> where its own loss is smallest, drawn as a star.
    """
    groups, dashed = dict(list(frame.groupby("method", sort=False))), (0, (4, 1.5))
    fig, grid = style.panels(len(groups), width=4.6, height=4.0, most=2, sharex=True, sharey=True)
    clients = sorted(frame["client"].unique())
    colours = dict(zip(clients, (look.colour for look in cycle(style.OTHERS[1::2] + style.OTHERS[::2])), strict=False))
    for axes, (method, runs) in zip(grid, groups.items(), strict=True):
        for client, rows in runs.groupby("client"):
            colour, starts = colours[client], np.flatnonzero(rows["synced"])
            for model, line, face in (("online", "-", colour), ("momentum", dashed, "white")):
                points = rows[[f"{model}_x", f"{model}_y"]].to_numpy()
                for part in np.split(points, starts):
                    axes.plot(*part.T, linestyle=line, color=colour, linewidth=1.6)
                for after in starts:
                    axes.plot(*points[after - 1 : after + 1].T, linestyle=":", color=colour, linewidth=1.3)
                axes.plot(*points[0], "o", color="black", markersize=5, zorder=4)
                axes.plot(*points[-1], "o", color=face, markersize=6, markeredgecolor=colour, zorder=4)
            if optima is not None:
                axes.plot(*optima[client], "*", color=colour, markersize=12, markeredgecolor="black", zorder=5)
        axes.set_title(method)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xlabel("parameter 1")
    grid[0].set_ylabel("parameter 2")
    keys = {
        "online": {},
        "momentum": {"linestyle": dashed},
        "jump at a sync": {"linestyle": ":"},
        "start": {"color": "black", "marker": "o", "markersize": 5, "linestyle": ""},
        "end, online": {"marker": "o", "linestyle": ""},
        "end, momentum": {"marker": "o", "linestyle": "", "markerfacecolor": "white"},
        **({} if optima is None else {"a client's own optimum": {"marker": "*", "markersize": 10, "linestyle": ""}}),
    }
    keys = {label: {"color": MUTED, **look} for label, look in keys.items()}
    keys |= {f"client {client}": {"facecolor": colour} for client, colour in colours.items()}
    return style.finish(fig, title, subtitle, keys=keys)


@style.use_style()
def misalignment(
    steps: pd.DataFrame, *, subtitle: str, title: str = "Distance between online and momentum client models"
) -> Figure:
    """Misalignment over the steps (Eq. 2): mean over seeds, their range as a band, syncs as thin vertical lines.

    At a sync the curve goes straight from the value before it to the value after it.

    Args:
        steps: a row per step with the columns setting, method, seed, step, misalignment, misalignment_before_sync and
            synced; a panel per setting, which says its number of seeds where others have another.
    """
    seeds = steps.groupby("setting")["seed"].nunique()
    groups = list(steps.groupby("setting", sort=False))
    most = 2 if len(groups) == 4 else 3
    fig, grid = style.panels(len(groups), width=max(4.0, 6.5 / len(groups)), height=3.2, most=most, sharey=True)
    styles = style.method_styles(steps["method"])
    started = steps["step"] > max(1, steps["step"].max() / 50)
    lowest = steps.loc[started, "misalignment"].min()  # it starts at almost nothing
    for axes, (setting, rows) in zip(grid, groups, strict=True):
        for name in dict.fromkeys(rows["method"]):
            before_and_after = rows[rows["method"] == name].melt(
                ["step", "seed"], ["misalignment_before_sync", "misalignment"], "moment"
            )  # "misalignment_before_sync" sorts after "misalignment": descending puts it first
            curve = before_and_after.groupby(["step", "moment"])["value"].agg(["mean", "min", "max"])
            curve = curve.sort_index(ascending=[True, False]).reset_index()
            axes.plot(curve["step"], curve["mean"], color=styles[name].colour, linestyle=styles[name].line, label=name)
            axes.fill_between(curve["step"], curve["min"], curve["max"], color=styles[name].colour, alpha=0.2, lw=0)
        syncs = rows.loc[rows["synced"].astype(bool), "step"].unique()
        for sync in syncs:
            axes.axvline(sync, color=SYNC, linewidth=0.8 if len(syncs) <= 20 else 0.3, zorder=0, label="sync")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))  # 2 and 5 too
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(False, axis="x")
        number = f", n = {seeds[setting]}" if seeds.nunique() > 1 else ""
        axes.set_title(f"{setting}{number}")
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("mean |online − momentum|")
    if started.any():  # all have its axis: set before all are drawn, it would keep the others' top
        grid[0].set_ylim(bottom=0.7 * lowest)
    several = steps["seed"].nunique() > 1
    return style.finish(fig, title, subtitle, "lines: mean, bands: least to largest over seeds" if several else "")


def identifiability(frame: pd.DataFrame, *, chance: float, subtitle: str, x: str = "setting") -> Figure:
    """Client identifiability of the keys through the clients' own models, beside the same images through one model.

    Numbers on the x axis (steps, cut layers) give lines, words give bars; both with the mean over seeds and their
    standard deviation, as bands where the numbers are many.

    Args:
        frame: columns ``x``, method, identifiability and identifiability_common (fractions); NaNs are left out.
        chance: accuracy of guessing, 1 / clients.
        x: column of the x axis.
    """
    frame = frame.dropna(subset=["identifiability"])
    methods = [rows for _, rows in frame.groupby("method", sort=False)] or [frame]
    tidy = pd.concat([rows.melt([x, "method"], [*MODELS], "model", "traced") for rows in methods], ignore_index=True)
    tidy["keys"] = tidy["method"] + ", " + tidy["model"].map(MODELS)
    title = "Can a key tell which client made it?"
    common = {"hue": "keys", "chance": chance, "subtitle": subtitle, "title": title}
    label, y_label = {"cut_layer": style.CUT_LAYER, "setting": ""}.get(x, x), "keys traced to their client"
    if pd.api.types.is_numeric_dtype(frame[x]):
        common |= {"metrics": {"traced": y_label}, "percent": ["traced"]}
        many = frame[x].nunique() > MOST_TICKS
        figure = by_round(tidy, x=x, panel=None, **common) if many else curves(tidy, x, x_label=label, **common)
        figure.axes[0].set_ylim(0, 1.04)
        return figure
    return bars(tidy, x, "traced", y_label=y_label, x_label=label, **common)
