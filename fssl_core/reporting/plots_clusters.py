"""Clusters of classes on a plane: t-SNE pictures, a panel each."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from fssl_core.reporting.plots_style import finish, panels, use_style


@use_style()
def clusters(
    planes: Mapping[str, tuple[Tensor, Tensor]],
    classes: Sequence[str],
    *,
    notes: Mapping[str, str] | None = None,
    subtitle: str,
    title: str,
) -> Figure:
    """Points by class, without scales: neither distances nor directions of a t-SNE picture mean anything.

    Args:
        planes: title of the panel -> points float [N, 2], and their labels int [N], both on the CPU.
        classes: name of each label.
        notes: title of a panel -> a line below it, such as its measures.
        subtitle: profile, data and seeds.
        title: the figure's title.
    """
    import seaborn as sns

    colours = sns.color_palette("colorblind" if len(classes) <= 10 else "husl", len(classes))
    fig, grid = panels(len(planes), width=3.4, height=3.4)
    keys = {}
    for axes, (name, (points, labels)) in zip(grid, planes.items(), strict=True):
        size = 200 / len(points) ** 0.5
        for label in labels.unique().tolist():
            x, y = points[labels == label].T
            axes.scatter(x, y, s=size, color=colours[label], linewidths=0, alpha=0.7, label=classes[label])
            keys[label] = Line2D([], [], color=colours[label], marker="o", linestyle="")
        axes.set_title(name)
        axes.set_xlabel((notes or {}).get(name, ""))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color("#cccccc")
    ordered = sorted(keys)
    names = [classes[label] for label in ordered]
    fig.legend([keys[label] for label in ordered], names, loc="outside lower left", ncols=min(10, len(ordered)))
    return finish(fig, title, subtitle)
