"""Stated gains beside what the printed tables give under several ways of counting."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fssl_core.reporting.plots_style import GREY, OTHERS, STATED, finish, panels, use_style


@use_style()
def stated_gains(
    frame: pd.DataFrame,
    rules: Sequence[str],
    *,
    subtitle: str,
    title: str,
    x_label: str = "gain (points)",
) -> Figure:
    """A line for each gain that a text states: the stated number as a diamond, a marker for each way of counting.

    What a rule gives within rounding of the stated number lies on the diamond. Rows that no rule matches are in bold.

    Args:
        frame: a row per gain with the columns gain (its name, unique), stated, holds (bool) and the ``rules``, in
            points; a missing number is left out.
        rules: columns of the ways of counting, the one that the text uses first; at most four.
        subtitle: what the numbers are made from.
        title: the figure's title.
        x_label: of the axis.
    """
    rows = frame.reset_index(drop=True)
    fig, (axes,) = panels(1, width=8.6, height=0.9 + 0.27 * len(rows))
    styles = dict(zip(rules, OTHERS, strict=False))
    apart = 0.5 / max(1, len(styles) - 1)  # of the row's height, so that equal numbers do not cover each other
    axes.axvline(0, color=GREY, linewidth=1, zorder=0.5)
    for number, (rule, style) in enumerate(styles.items()):
        places = rows.index + apart * (number - (len(styles) - 1) / 2)
        axes.plot(
            rows[rule], places, linestyle="", marker=style.marker, color=style.colour, markersize=5, alpha=0.9, zorder=3
        )
    axes.plot(rows["stated"], rows.index, **STATED | {"markersize": 11, "zorder": 2})
    axes.set_yticks(rows.index, rows["gain"])
    for label, holds in zip(axes.get_yticklabels(), rows["holds"], strict=True):
        label.set_fontweight("normal" if holds else "bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(x_label)
    keys = [Line2D([], [], **STATED | {"markersize": 10})]
    keys += [Line2D([], [], linestyle="", marker=style.marker, color=style.colour) for style in styles.values()]
    fig.legend(keys, ["stated in the text", *styles], loc="outside lower left", ncols=3)
    return finish(fig, title, subtitle)
