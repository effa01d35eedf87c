"""Many rules on equal terms: their accuracies in order, and how far each is from one of them, seed by seed."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fssl_core.errors import DataError
from fssl_core.reporting.plots_style import GREY, finish, mean_and_std, method_styles, panels, spread_note, use_style
from fssl_core.settings import check_choice


def paired_differences(
    results: pd.DataFrame, metric: str, baseline: str, *, by: str = "method", pair: str = "seed"
) -> pd.DataFrame:
    """Differences to a baseline run of the same seed: what the seeds have in common cancels.

    Args:
        results: a row per run with the columns ``by``, ``pair`` and ``metric``; rows without ``metric`` are left out.
        metric: what is compared.
        baseline: a value of ``by``.
        by: column of what is compared with the baseline.
        pair: column that says which runs belong together.

    Returns:
        a row for each other value of ``by``, in order of appearance, with the columns difference (the mean over
        pairs, in the unit of ``metric``), standard_error (of that mean; NaN for one pair) and pairs.

    Raises:
        SettingError: there is no such baseline.
        DataError: there are two runs of one ``by`` and ``pair``.
    """
    check_choice("baseline", baseline, list(results[by]))
    if results.duplicated([by, pair]).any():
        raise DataError(f"Two runs have the same {by} and {pair}: choose one of them.")
    table = results.pivot(index=pair, columns=by, values=metric)[list(dict.fromkeys(results[by]))]
    differences = table.drop(columns=baseline).sub(table[baseline], axis=0)
    return pd.DataFrame(
        {"difference": differences.mean(), "standard_error": differences.sem(), "pairs": differences.count()}
    )


@use_style()
def rules_in_order(
    results: pd.DataFrame,
    metric: str = "accuracy",
    *,
    baseline: str,
    subtitle: str,
    title: str,
    also: str | None = None,
    also_label: str = "",
    x_label: str = "linear probe accuracy",
) -> Figure:
    """Left: a bar for each method, best first, with each seed as a dot. Right: differences to the baseline by seed.

    Args:
        results: a row per run with the columns method, seed, ``metric`` (a fraction) and ``also``.
        metric: the length of the bars: mean and standard deviation over seeds.
        baseline: the method that the others are compared with, seed by seed: mean and standard error, in points.
        subtitle: profile, data and seeds.
        title: the figure's title.
        also: column of a second fraction, whose mean is drawn as a circle over the bar.
        also_label: what it is, for the legend.
        x_label: what ``metric`` is.

    Raises:
        SettingError, DataError: as :func:`paired_differences`.
    """
    paired = paired_differences(results, metric, baseline)
    order = results.groupby("method")[metric].mean().sort_values(ascending=False).index
    styles = method_styles(results["method"])
    fig, (left, right) = panels(2, width=5.2, height=0.9 + 0.33 * len(order), sharey=True)
    keys = {"a seed": Line2D([], [], color="black", marker=".", linestyle="", alpha=0.6)}
    for place, name in enumerate(order):
        rows, colour = results[results["method"] == name], styles[name].colour
        mean, std = mean_and_std(rows[metric].dropna().to_numpy())
        spread = {"xerr": std, "capsize": 3, "error_kw": {"lw": 1.2}} if len(rows) > 1 else {}
        left.barh(place, mean, 0.7, color=colour, edgecolor="black", lw=0.5, alpha=0.9, **spread)
        left.plot(rows[metric], [place + 0.2] * len(rows), ".", color="black", alpha=0.6, markersize=4)
        left.annotate(
            f"{100 * mean:.1f}", (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
        )  # fmt: skip
        if also is not None:
            left.plot(rows[also].mean(), place, "o", markersize=6, markerfacecolor="white", markeredgecolor="black")
        if name != baseline:
            _difference(right, place, paired.loc[name], colour)
    base = results.loc[results["method"] == baseline, metric].mean()
    left.axvline(base, color=GREY, linestyle=":", zorder=3)
    right.axvline(0, color=GREY, linestyle=":")
    if also is not None:
        keys[also_label] = Line2D([], [], marker="o", linestyle="", markerfacecolor="white", markeredgecolor="black")
    if paired["standard_error"].notna().any():
        keys["mean and standard error of the difference"] = Line2D([], [], color="black", marker="s", markersize=5)
    keys[baseline] = Line2D([], [], color=GREY, linestyle=":")
    left.set_yticks(range(len(order)), order)
    left.invert_yaxis()
    left.xaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.3g}")
    left.set_xlabel(f"{x_label} (%)")
    right.set_xlabel(f"difference to {baseline} of the same seed (points)")
    for axes in (left, right):
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    sizes = results.groupby("method")[metric].count()
    return finish(fig, title, subtitle, spread_note(sizes, "left, bars", "lines"))


def _difference(axes: Axes, place: int, row: pd.Series, colour: str) -> None:
    error = 100 * row["standard_error"]
    axes.errorbar(
        100 * row["difference"], place, xerr=None if np.isnan(error) else error, fmt="s", color=colour,
        markeredgecolor="black", markeredgewidth=0.5, markersize=6, capsize=3, ecolor="black", elinewidth=1.2,
    )  # fmt: skip
