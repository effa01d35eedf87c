"""Recorded results by slider and menu: each choice draws the picture anew from a record, and nothing is trained.

A picture is one of matplotlib's, with a fixed layout, so that it is there within a fraction of a second.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fssl_core.errors import FsslError
from fssl_core.figures import client_costs
from fssl_core.figures.style import MUTED, method_styles, use_style
from fssl_core.papers import records
from fssl_core.papers.names import MIB
from fssl_core.paths import records_root
from fssl_core.settings import check_choice

BOTH = "both"
PANELS = (  # column, title, unit, factor
    ("accuracy", "accuracy", "%", 100),
    ("bytes_per_client_epoch", "traffic of a client and epoch", "MiB", 1 / MIB),
    ("psnr", "what an attacker restores", "dB PSNR", 1),
    ("identifiability", "keys traced to their client", "%", 100),
)
PICKED = {"color": "#f0e442", "alpha": 0.5, "zorder": 0, "linewidth": 0}  # behind the cut whose values are written out
PARTS = {  # column: name and look
    "activation_bytes": ("activations and gradients", client_costs.PARTS["activations and gradients"]),
    "sync_bytes": ("parameters", client_costs.PARTS["parameter synchronisation"]),
}
RULES = {"one-way": "one way", "two-way": "two ways", "two-way-momentum": "two ways, momentum models too"}


def profiles_of(artifact: str) -> list[str]:
    """The profiles at which an artifact, such as ``"monacosfl/fig6"``, is recorded, the most faithful first.

    Raises:
        FsslError: there are none, as outside of a clone of the project.
    """
    profiles = records.recorded_profiles(artifact)
    if not profiles:
        raise FsslError(f"No record of {artifact} is in {records_root()}: open this in a clone of the project.")
    return profiles


@cache
def recorded(artifact: str, profile: str) -> pd.DataFrame:
    """The numbers of a reference record; ``attrs`` has profile and data in words as ``subtitle``, and its ``seeds``.

    Raises:
        FsslError: nothing is recorded.
        SettingError: nothing is recorded at this profile.
    """
    check_choice("profile", profile, profiles_of(artifact))
    about, frame = records.about_record(artifact, profile), records.recorded_results(artifact, profile)
    frame.attrs["subtitle"] = " · ".join(filter(None, [f"profile {profile}", about.get("data", "")]))
    frame.attrs["seeds"] = about.get("seeds", [])
    return frame


@use_style()
def one_cut(results: pd.DataFrame, cut_layer: int, method: str = BOTH, accuracy: str = "linear probe") -> Figure:
    """What a cut costs and gives: accuracy, traffic, attack and client signature against the cut, one cut picked out.

    Args:
        results: a row for each method, cut and seed, as ``monacosfl/beyond_tradeoff`` records them.
        cut_layer: the cut whose values are written out.
        method: one of the methods, or ``"both"``.
        accuracy: ``"linear probe"`` or ``"kNN"``.

    Raises:
        SettingError: a cut, a method or an accuracy that is not there.
    """
    columns = {"linear probe": "linear_probe_accuracy", "kNN": "knn_accuracy"}
    check_choice("accuracy", accuracy, columns)
    check_choice("cut_layer", cut_layer, sorted(set(results["cut_layer"])))
    check_choice("method", method, [BOTH, *results["method"].unique()])
    results = results.assign(accuracy=results[columns[accuracy]])
    styles = method_styles(results["method"])
    shown = list(styles) if method == BOTH else [method]
    figure = Figure(figsize=(10, 5.8))
    for axes, (column, title, unit, factor) in zip(figure.subplots(2, 2, sharex=True).flat, PANELS, strict=True):
        values = results.assign(value=results[column] * factor).dropna(subset="value")
        texts = []
        for name in shown:
            rows, style = values[values["method"] == name], styles[name]
            mean = rows.groupby("cut_layer")["value"].mean()
            axes.plot(mean, color=style.colour, linestyle=style.line, marker=style.marker, label=name)
            axes.plot(rows["cut_layer"], rows["value"], ".", color=style.colour, alpha=0.4)
            texts.append(f"{name} {mean.loc[cut_layer]:.3g}")
        label = f"{accuracy} accuracy" if column == "accuracy" else title
        written = f"{label} ({unit})\ncut {cut_layer}: {' · '.join(texts)}"
        axes.set_title(written, loc="left", y=1.02)  # where it goes takes as long to find as all lines to draw
        axes.set_ylim(0, 1.08 * values["value"].max())  # the same for every choice
        axes.locator_params(axis="y", nbins=5)
        axes.axvspan(cut_layer - 0.3, cut_layer + 0.3, **PICKED)
        axes.set_xticks(sorted(set(values["cut_layer"])))
    for axes in figure.axes[2:]:
        axes.set_xlabel("cut layer (layers on the client)")
    return _finish(figure, "One cut, four sides", results, "lines: mean over seeds, dots: each seed")


@use_style()
def traffic_by_cut(traffic: pd.DataFrame, network: str, rule: str, cut_layer: int) -> Figure:
    """Bytes of a client and epoch by cut, activations below parameters, with one cut written out.

    Args:
        traffic: as ``monacosfl/fig3`` records it.
        network: one of :func:`networks`.
        rule: a key of ``RULES``: which models cross the network at a synchronisation.
        cut_layer: the cut whose values are written out.

    Raises:
        SettingError: a network, rule or cut that is not there.
    """
    check_choice("network", network, networks(traffic))
    check_choice("rule", rule, RULES)
    rows = traffic[(traffic["architecture"] + ", " + traffic["strides"] == network) & (traffic["rule"] == rule)]
    rows = rows.set_index("cut_layer").sort_index()
    check_choice("cut_layer", cut_layer, list(rows.index))
    figure = Figure(figsize=(8, 4))
    axes, below = figure.subplots(), np.zeros(len(rows))
    for column, (name, look) in PARTS.items():
        heights = rows[column].to_numpy() / MIB
        axes.bar(range(len(rows)), heights, bottom=below, edgecolor="white", label=name, **look)
        below = below + heights
    picked = list(rows.index).index(cut_layer)
    axes.axvspan(picked - 0.48, picked + 0.48, **PICKED)
    least = rows.index[below.argmin()]
    parts = [f"{rows.loc[cut_layer, column] / MIB:,.0f} MiB of {name}" for column, (name, _) in PARTS.items()]
    axes.set_title(f"cut {cut_layer}: {' + '.join(parts)}; least at cut {least}", loc="left")
    axes.set_xticks(range(len(rows)), rows.index)
    axes.set_xlabel("cut layer (layers on the client)")
    axes.set_ylabel("MiB")
    return _finish(figure, f"What a client sends: {network}, {RULES[rule]}", traffic, "counted, not trained")


@use_style()
def momentum_distance(distances: pd.DataFrame, setting: str, first_step: int, method: str = BOTH) -> Figure:
    """Distance between a client's online and momentum models over 400 training steps, a line for each method.

    Args:
        distances: as ``monacosfl/fig9`` records them.
        setting: one of its settings.
        first_step: where the picture begins.
        method: one of the methods, or ``"both"``.

    Raises:
        SettingError: a setting or a method that is not there.
    """
    check_choice("setting", setting, list(distances["setting"].unique()))
    check_choice("method", method, [BOTH, *distances["method"].unique()])
    window = distances["step"].between(first_step, first_step + 399)
    rows = distances[(distances["setting"] == setting) & window]
    styles = method_styles(distances["method"])
    figure = Figure(figsize=(8, 4))
    axes = figure.subplots()
    for name in [name for name in styles if method in (BOTH, name)]:
        mean = rows[rows["method"] == name].groupby("step")["misalignment"].mean()
        axes.plot(mean, color=styles[name].colour, linestyle=styles[name].line, label=name, linewidth=1.3)
    for step in sorted(set(rows.loc[rows["synced"] == 1, "step"])):
        axes.axvline(step, color=MUTED, linewidth=0.5, alpha=0.5, zorder=0)
    axes.set_xlim(first_step, first_step + 399)
    axes.set_ylim(0, 1.05 * distances.loc[distances["setting"] == setting, "misalignment"].max())
    axes.set_xlabel("training step")
    axes.set_ylabel("mean absolute difference of weights")
    rows.attrs["seeds"] = sorted({*rows["seed"]})  # some settings have fewer than the record
    note = "lines: mean over seeds, thin lines: synchronisations"
    return _finish(figure, f"Online and momentum model: {setting}", rows, note)


def networks(traffic: pd.DataFrame) -> list[str]:
    """The networks that ``monacosfl/fig3`` records, with their strides: ``"resnet18, cifar"``."""
    return list((traffic["architecture"] + ", " + traffic["strides"]).unique())


def explorer(draw: Callable[..., Figure], **choices: Sequence[Any]) -> Any:
    """A widget that draws with what is chosen: a slider for numbers, a menu for words.

    Where there is no kernel behind it, as on a page of the book, it is the picture of the first choices.

    Args:
        draw: of a picture, from one value for each name of ``choices``.
        choices: values by name; the first is the one to begin with, or the middle one of numbers.
    """
    import ipywidgets as widgets

    class Explorer(widgets.VBox):
        def _repr_mimebundle_(self, **options: Any) -> Mapping[str, Any]:
            still = base64.b64encode(picture.value).decode()
            return super()._repr_mimebundle_(**options) | {"image/png": still, "text/plain": f"shown: {values()}"}

    controls = {}
    for name, options in choices.items():
        ordered = all(isinstance(option, int | float) for option in options)
        kind = widgets.SelectionSlider if ordered else widgets.Dropdown
        value = options[len(options) // 2] if ordered else options[0]
        controls[name] = kind(options=list(options), value=value, description=name.replace("_", " "))

    def values() -> dict[str, Any]:
        return {name: control.value for name, control in controls.items()}

    def update(_: Any = None) -> None:
        picture.value = png(draw(**values()))

    picture = widgets.Image(format="png")
    update()
    for control in controls.values():
        control.observe(update, "value")
    boxes = widgets.HBox(list(controls.values()), layout=widgets.Layout(flex_flow="row wrap"))
    return Explorer([boxes, picture])


def png(figure: Figure) -> bytes:
    """A figure as a PNG, without the day in it."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=90, metadata={"Software": None}, pil_kwargs={"compress_level": 1})
    return file.getvalue()


def _finish(figure: Figure, title: str, results: pd.DataFrame, note: str) -> Figure:
    """Title, what it is drawn from, and a legend, at fixed places: to compute a layout takes longer than to draw."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(0.8 / width, 0.85 / height, 1 - 0.2 / width, 1 - 0.95 / height, wspace=0.15, hspace=0.35)
    figure.text(0.01, 1 - 0.1 / height, title, fontsize=12, fontweight="bold", va="top")
    seeds = results.attrs.get("seeds")
    told = [results.attrs.get("subtitle", ""), f"seeds {records.seeds_in_words(seeds)}" if seeds else "", note]
    subtitle = " · ".join(filter(None, told))
    figure.text(0.01, 1 - 0.32 / height, subtitle, fontsize=9, color=MUTED, va="top")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="lower left", ncols=4)
    return figure
