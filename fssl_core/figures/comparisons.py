"""Comparisons of single notebooks: rules in order, stated gains beside counted ones, and what makes training hard."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fssl_core.errors import DataError
from fssl_core.figures import style
from fssl_core.figures.style import GREY, MEANS, OTHERS, PRINTED_MARK, MethodStyle
from fssl_core.settings import check_choice

LINES = {"a": ("batch", "images in a client's step"), "b": ("clients", "clients sharing the same images")}
TITLES = {"a": "(a) batch", "b": "(b) clients", "c": "(c) negatives"}


def paired_differences(results: pd.DataFrame, metric: str, baseline: str) -> pd.DataFrame:
    """Differences to a baseline run of the same seed: what the seeds have in common cancels.

    Args:
        results: a row per run with the columns method, seed and ``metric``; rows without ``metric`` are left out.
        baseline: the method that the others are compared with.

    Returns:
        a row for each other method, in order of appearance, with the columns difference (the mean over pairs, in the
        unit of ``metric``), standard_error (of that mean; NaN for one pair) and pairs.

    Raises:
        SettingError: there is no such baseline.
        DataError: there are two runs of one method and seed.
    """
    check_choice("baseline", baseline, list(results["method"]))
    if results.duplicated(["method", "seed"]).any():
        raise DataError("Two runs have the same method and seed: choose one of them.")
    table = results.pivot(index="seed", columns="method", values=metric)[list(dict.fromkeys(results["method"]))]
    differences = table.drop(columns=baseline).sub(table[baseline], axis=0)
    return pd.DataFrame(
        {"difference": differences.mean(), "standard_error": differences.sem(), "pairs": differences.count()}
    )


@style.use_style()
def rules_in_order(
    results: pd.DataFrame, *, baseline: str, also: str, also_label: str, subtitle: str, title: str
) -> Figure:
    """Left: a bar for each method, best first, with each seed as a dot. Right: differences to the baseline by seed.

    Args:
        results: a row per run with the columns method, seed, accuracy (of a linear probe, a fraction) and ``also``;
            bars are means and standard deviations of the accuracy over seeds.
        baseline: the method that the others are compared with, seed by seed: mean and standard error, in points.
        also: column of a second fraction, whose mean is drawn as a circle over the bar.
        also_label: what it is, for the legend.

    Raises:
        SettingError, DataError: as :func:`paired_differences`.
    """
    import seaborn as sns

    paired = paired_differences(results, "accuracy", baseline)
    means = results.groupby("method")["accuracy"].mean().sort_values(ascending=False)
    order, colours = list(means.index), {name: of.colour for name, of in style.method_styles(results["method"]).items()}
    fig, (left, right) = style.panels(2, width=5.2, height=0.9 + 0.33 * len(order), sharey=True)
    several = results["seed"].nunique() > 1
    options = {"y": "method", "order": order, "ax": left}
    sns.barplot(
        results, x="accuracy", hue="method", palette=colours, width=0.7, errorbar="sd" if several else None,
        capsize=0.3, **options, **MEANS,
    )  # fmt: skip
    sns.stripplot(results, x="accuracy", color="black", alpha=0.6, label="a seed", **options, **style.DOTS)
    style.move_dots(left, up=0.2)
    seconds = results.groupby("method")[also].mean().reindex(order)
    left.plot(seconds, order, "o", markersize=6, markerfacecolor="white", markeredgecolor="black", label=also_label)
    for index, mean in enumerate(means):
        left.annotate(
            f"{100 * mean:.1f}", (0, index), (4, 0), textcoords="offset points", va="center", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
        )  # fmt: skip
    others = [name for name in order if name != baseline]
    for name, row in (100 * paired.loc[others, ["difference", "standard_error"]]).iterrows():
        error = None if pd.isna(row["standard_error"]) else row["standard_error"]
        right.errorbar(
            row["difference"], order.index(name), xerr=error, fmt="s", color=colours[name], markeredgecolor="black",
            markeredgewidth=0.5, markersize=6, capsize=3, ecolor="black", elinewidth=1.2,
        )  # fmt: skip
    several = paired["standard_error"].notna().any()
    errors = {"mean and standard error of the difference": {"color": "black", "marker": "s", "markersize": 5}}
    left.axvline(means[baseline], color=GREY, linestyle=":", zorder=3, label=baseline)
    right.axvline(0, color=GREY, linestyle=":")
    style.percent_axis(left.xaxis, "linear probe accuracy")
    left.set_ylabel("")
    right.set_xlabel(f"difference to {baseline} of the same seed (points)")
    for axes in (left, right):
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    sizes = results.groupby("method")["accuracy"].count()
    return style.finish(
        fig, title, subtitle, style.spread_note(sizes, "left, bars", "lines"), keys=errors if several else {}
    )


@style.use_style()
def stated_gains(frame: pd.DataFrame, rules: Sequence[str], *, subtitle: str, title: str) -> Figure:
    """A line for each gain that a text states: the stated number as a diamond, a marker for each way of counting.

    What a rule gives within rounding of the stated number lies on the diamond. Rows that do not hold are in bold.

    Args:
        frame: a row per gain with the columns gain (its name, unique), stated, holds (bool: by the way that its
            sentence suggests) and the ``rules``, in points; a missing number is left out.
        rules: columns of the ways of counting, the one that the text uses first; at most four.
        subtitle: what the numbers are made from.
    """
    rows = frame.reset_index(drop=True)
    fig, (axes,) = style.panels(1, width=8.6, height=0.9 + 0.27 * len(rows))
    looks = dict(zip(rules, OTHERS, strict=False))
    offset = 0.5 / max(1, len(looks) - 1)  # of the row's height, so that equal numbers do not cover each other
    axes.axvline(0, color=GREY, linewidth=1, zorder=0.5)
    axes.plot(
        rows["stated"], rows.index, **PRINTED_MARK | {"markersize": 11, "zorder": 2, "label": "stated in the text"}
    )
    for number, (rule, look) in enumerate(looks.items()):
        y_values = rows.index + offset * (number - (len(looks) - 1) / 2)
        marks = {"marker": look.marker, "color": look.colour, "markersize": 5, "alpha": 0.9, "zorder": 3}
        axes.plot(rows[rule], y_values, linestyle="", label=rule, **marks)
    axes.set_yticks(rows.index, rows["gain"])
    for label, holds in zip(axes.get_yticklabels(), rows["holds"], strict=True):
        label.set_fontweight("normal" if holds else "bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("gain (points)")
    bold = "" if rows["holds"].all() else "bold: not by the way of counting that its sentence suggests"
    return style.finish(fig, title, subtitle, bold, columns=3)


@style.use_style()
def challenges(results: pd.DataFrame, *, subtitle: str, title: str, chance: float) -> Figure:
    """Accuracy against the batch (a), the number of clients (b) and what the queue holds (c).

    Mean and standard deviation over rows, usually seeds, with each row as a dot. Under a bar of panel (c) stands the
    mean similarity of the queries to these negatives.

    Args:
        results: a row per run and panel, with the columns panel ("a", "b" or "c"; others are left out), method,
            knn_accuracy (a fraction), batch, clients, negatives and negative_similarity; a panel reads its own.
        chance: accuracy of guessing, drawn as a line.
    """
    import seaborn as sns

    metric = "knn_accuracy"
    results = results[results["panel"].isin(TITLES)].dropna(subset=metric)
    styles = style.method_styles(results["method"])
    fig, grid = style.panels(3, width=3.7, height=3.3, sharey=True)
    for axes, (panel, heading) in zip(grid, TITLES.items(), strict=True):
        rows = results[results["panel"] == panel]
        if panel in LINES:
            x, label = LINES[panel]
            drawn: dict[str, MethodStyle] = {name: styles[name] for name in dict.fromkeys(rows["method"])}
            style.lines_over_seeds(axes, rows, x, metric, drawn, factor=1.03)
            axes.set_xscale("log")
            ticks = sorted(rows[x].unique().astype(int))
            axes.set_xticks(ticks, ticks)
            axes.xaxis.set_minor_locator(NullLocator())
        elif len(rows):
            label = "keys in the queue, their similarity to queries"
            similar = rows.groupby("negatives", sort=False)["negative_similarity"].mean()
            names = {name: name if pd.isna(of) else f"{name}\n{round(of, 2) + 0.0:.2f}" for name, of in similar.items()}
            options = {"x": rows["negatives"].map(names), "y": metric, "data": rows, "ax": axes}  # no -0.00
            sns.barplot(
                hue="method", palette={name: of.colour for name, of in styles.items()}, width=0.6, capsize=0.2,
                errorbar="sd" if rows.duplicated(["negatives", "method"]).any() else None, legend=False, **options,
                **MEANS,
            )  # fmt: skip
            sns.stripplot(color="black", alpha=0.5, legend=False, **options, **style.DOTS)
            style.move_dots(axes, across=0.15)
            axes.grid(False, axis="x")
            axes.tick_params(axis="x", length=0)
        axes.axhline(chance, **style.CHANCE)
        axes.set_title(heading)
        axes.set_xlabel(label)
        if axes.get_subplotspec().is_first_col():
            style.percent_axis(axes.yaxis, metric)
    sizes = results.groupby(["panel", "method", "batch", "clients", "negatives"], dropna=False).size()
    return style.finish(fig, title, subtitle, style.spread_note(sizes, "markers and bars", "lines"))
