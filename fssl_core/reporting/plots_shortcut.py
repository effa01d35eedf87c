"""How well a model finds the second view of an image, against what its embedding is good for."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fssl_core.reporting.plots_style import (
    GREY,
    METHODS,
    OTHERS,
    finish,
    first_column,
    mean_and_std,
    panels,
    percent_axis,
    spread_note,
    use_style,
)

NORMS = {  # whatever the federation, the style that MFCL has with this normalisation
    "BN": METHODS["MFCL(BN)"],
    "GN": METHODS["MFCL(GN)"],
    "GN, groups of TN": OTHERS[0],
    "TN": METHODS["MFCL(TN)"],
    "TN, views apart": METHODS["MFCL(TN), views apart"],
}


@use_style()
def neighbours_by_matching(
    results: pd.DataFrame,
    panel: str,
    *,
    chance: float,
    subtitle: str,
    title: str = "Matching views, and being of use",
) -> Figure:
    """kNN accuracy against contrastive accuracy: to the right pairs are found more often, further up images are.

    A large marker is the mean over rows, usually seeds, with the standard deviation in both directions; each row is a
    dot.

    Args:
        results: a row per run with the columns normalisation (a key of ``NORMS``), ``panel``, contrastive_accuracy and
            knn_accuracy (fractions).
        panel: column whose values become panels with their titles.
        chance: kNN accuracy of guessing, drawn as a line.
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    styles = {name: style for name, style in NORMS.items() if name in set(results["normalisation"])}
    x, y = "contrastive_accuracy", "knn_accuracy"
    groups = dict([*results.groupby(panel, sort=False)])
    fig, grid = panels(len(groups), width=3.9, height=3.2, most=2 if len(groups) == 4 else 3, sharex=True, sharey=True)
    for axes, (name, rows) in zip(grid, groups.items(), strict=True):
        for norm, runs in rows.groupby("normalisation", sort=False):
            style = styles[norm]
            (across, width), (up, height) = (mean_and_std(runs[column].to_numpy()) for column in (x, y))
            axes.errorbar(
                across, up, xerr=width or None, yerr=height or None, color=style.colour, marker=style.marker,
                markersize=10, markeredgecolor="white", markeredgewidth=0.6, elinewidth=1, capsize=2,
            )  # fmt: skip
            if len(runs) > 1:
                axes.plot(runs[x], runs[y], ".", color=style.colour, alpha=0.6, markersize=4)
        axes.axhline(chance, color=GREY, linestyle=":", zorder=0.5)
        axes.set_title(str(name))
        axes.set_xlabel("contrastive accuracy (%)")
        if first_column(axes):
            percent_axis(axes, y)
    grid[0].set_xlim(0, 1)
    grid[0].set_ylim(bottom=0)
    grid[0].xaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.3g}")
    keys = {name: Line2D([], [], linestyle="", color=s.colour, marker=s.marker) for name, s in styles.items()}
    keys["chance"] = Line2D([], [], color=GREY, linestyle=":")
    fig.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=4)
    sizes = results.groupby([panel, "normalisation"]).size()
    return finish(fig, title, subtitle, spread_note(sizes, "large markers", "lines"))
