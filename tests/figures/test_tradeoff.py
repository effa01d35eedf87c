import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.figures.client_costs import CHEAPEST, PARTS, traffic_and_accuracy
from fssl_core.figures.style import METHOD_COLOURS
from fssl_core.papers.names import MIB
from tests.figures.reading import drawn, key, line_of, spreads


def bars(panel, **parts):
    """MiB of each part at the cuts 1, 3 and 9."""
    return [
        {"panel": panel, "cut_layer": cut, "part": part.replace("_", " "), "bytes": mib * MIB}
        for part, values in parts.items()
        for cut, mib in zip((1, 3, 9), values, strict=True)
    ]


FORMULA = bars("formula", parameters=[1, 2, 9], activations=[10, 6, 3])  # not in the order of the stack
COUNTED = bars("counted", activations=[5, 4, 1], gradients=[5, 4, 1], momentum_parameters=[0, 1, 2])
TRAFFIC = pd.DataFrame(FORMULA + COUNTED)
RUNS = pd.DataFrame(
    [
        ("counted", method, cut, seed, level - cut / 100 + 0.02 * seed)
        for method, level in (("MocoSFL", 0.5), ("MonAcoSFL", 0.6))
        for cut in (1, 9)  # cut 3 was not run
        for seed in (0, 1, 2)
    ],
    columns=["panel", "method", "cut_layer", "seed", "linear_probe_accuracy"],
)


def draw(traffic=TRAFFIC, results=RUNS):
    return drawn(traffic_and_accuracy(traffic, results, subtitle="profile laptop", title="Traffic"))


def heights(axes):
    """Part -> bottom and top of its bars."""
    return {
        bars.get_label(): [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars]
        for bars in axes.containers
        if bars.get_label() in [*PARTS, "cheapest cut"]
    }


def test_parts_are_stacked_in_the_same_order_and_the_cheapest_cut_is_framed():
    formula, counted, _ = draw().axes
    assert heights(formula) == {
        "activations": [(0, 10), (0, 6), (0, 3)],
        "parameters": [(10, 11), (6, 8), (3, 12)],
        "cheapest cut": [(0, 8)],  # neither the smallest activation nor the smallest model
    }
    assert heights(counted)["momentum parameters"] == [(10, 10), (8, 9), (2, 4)]
    frame = counted.containers[-1].patches[0]
    assert frame.get_x() + frame.get_width() / 2 == 2  # the place of cut 9
    assert frame.get_linewidth() == CHEAPEST["linewidth"]
    assert [label.get_text() for label in counted.get_xticklabels()] == ["1", "3", "9"]
    assert counted.get_ylabel() == "MiB"


def test_accuracies_stand_over_the_traffic_of_their_own_model_only():
    figure = draw()
    assert len(figure.axes) == 3  # one second axis, none for the formula
    accuracy = figure.axes[2]
    mocosfl, monacosfl = (line_of(accuracy, METHOD_COLOURS[name]) for name in ("MocoSFL", "MonAcoSFL"))
    np.testing.assert_allclose(mocosfl.get_xdata(), [-0.06, 1.94])  # the cuts that were run, next to their places
    np.testing.assert_allclose(monacosfl.get_xdata(), [0.06, 2.06])
    np.testing.assert_allclose(mocosfl.get_ydata(), [0.51, 0.43])
    np.testing.assert_allclose(monacosfl.get_ydata(), [0.61, 0.53])
    np.testing.assert_allclose(spreads(accuracy)[:2], [[0.49, 0.53], [0.41, 0.45]])  # of 0.49, 0.51, 0.53 and so on
    assert monacosfl.get_color() == METHOD_COLOURS["MonAcoSFL"]
    assert accuracy.get_ylabel() == "linear probe accuracy (%)"
    assert accuracy.get_ylim() == (0, 1)


def test_the_key_names_every_part_and_method_once():
    names = ["activations", "parameters", "gradients", "momentum parameters", "cheapest cut", "MocoSFL", "MonAcoSFL"]
    assert sorted(key(draw())) == sorted(names)


def test_without_runs_there_are_bars_alone():
    assert len(draw(results=RUNS.iloc[:0]).axes) == 2


def test_what_has_no_bar_is_refused():
    with pytest.raises(SettingError, match="part='keys' cannot be used: expected one of activations, momentum"):
        draw(TRAFFIC.assign(part="keys"))
    with pytest.raises(SettingError, match="cut_layer=5 cannot be used: expected one of 1, 3, 9"):
        draw(results=RUNS.replace({"cut_layer": {9: 5}}))
    with pytest.raises(SettingError, match="panel='others' cannot be used: expected one of formula, counted"):
        draw(results=RUNS.assign(panel="others"))
