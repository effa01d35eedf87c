import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from fssl_core.figures.client_costs import divergence_and_costs, traffic_by_cut
from fssl_core.figures.style import METHOD_COLOURS
from fssl_core.papers.names import MIB
from tests.figures.reading import bars, diamonds, drawn, key, lines, spreads

RUNS = pd.DataFrame(
    [("MocoSFL", cut, syncs, cut / syncs * factor) for cut in (1, 3) for syncs in (1, 10) for factor in (0.9, 1.1)]
    + [("FL-SSL", None, None, value) for value in (40.0, 44.0)],
    columns=["scheme", "cut_layer", "syncs_per_epoch", "divergence"],
)
COSTS = pd.DataFrame(
    [
        ("FL-SSL", None, 128, 500e6, 1.0, 1000 * MIB),
        ("MocoSFL", 1, 128, 2e6, 0.004, 64 * MIB),
        ("MocoSFL", 1, 1, 2e6, 0.004, 0.5 * MIB),
        ("MocoSFL", 3, 128, 100e6, 0.2, 200 * MIB),
        ("MocoSFL", 3, 1, 100e6, 0.2, 2 * MIB),
    ],
    columns=["scheme", "cut_layer", "batch", "forward_macs", "share_of_whole", "memory_bytes"],
).astype({"cut_layer": "Int64"})
PAPER = pd.DataFrame(
    [("FL-SSL", None, 128, 590e6, 1100 * MIB), ("MocoSFL", 3, 128, None, 227 * MIB)],
    columns=["scheme", "cut_layer", "batch", "forward_macs", "memory_bytes"],
)


def draw(runs=RUNS, costs=COSTS, paper=PAPER):
    return drawn(divergence_and_costs(runs, costs, paper=paper, subtitle="profile laptop", title="Figure 3"))


def test_divergence_is_a_line_for_each_frequency_and_one_for_the_whole_model():
    figure = draw()
    axes = figure.axes[0]
    rare, often = (line for line in lines(axes) if len(line.get_xdata()) == 2 and line.get_marker() == "o")
    np.testing.assert_allclose(rare.get_xydata(), [(1, 1), (3, 3)])
    np.testing.assert_allclose(often.get_ydata(), [0.1, 0.3])
    assert to_rgb(often.get_color()) == pytest.approx(to_rgb(METHOD_COLOURS["MocoSFL"]))
    np.testing.assert_allclose(spreads(axes)[0], [1 - 0.02**0.5, 1 + 0.02**0.5])  # of 0.9 and 1.1
    whole = next(line for line in axes.lines if line.get_color() == METHOD_COLOURS["FL-MoCoV2"])
    assert list(whole.get_ydata()) == [42, 42]
    assert axes.get_xticks().tolist() == [1, 3]
    names = key(figure)
    assert names[:3] == ["MocoSFL, 1 sync per epoch", "MocoSFL, 10 syncs per epoch", "FL-SSL, whole model"]


def test_costs_are_bars_by_client_with_the_papers_values_as_diamonds_at_their_place():
    _, macs, memory = draw().axes
    assert [label.get_text() for label in macs.get_xticklabels()] == ["FL-SSL", "MocoSFL-1", "MocoSFL-3"]
    assert bars(macs) == {0: 500, 1: 2, 2: 100}
    assert diamonds(macs) == {(0, 590)}
    assert [text.get_text() for text in macs.texts] == ["500.0\n100 %", "2.0\n0.4 %", "100.0\n20 %"]
    # a client with one batch stands on its tick, one with two on either side of it
    assert bars(memory) == {0: 1000, 0.79: 64, 1.21: 0.5, 1.79: 200, 2.21: 2}
    assert diamonds(memory) == {(0, 1100), (1.79, 227)}
    assert memory.get_ylabel() == "MiB"


def test_the_legend_names_the_paper_only_where_it_has_values():
    names = key(draw())
    assert names[-3:] == ["memory at batch 128", "memory at batch 1", "paper"]
    without = draw(paper=PAPER.iloc[:0])
    assert key(without)[-1] == "memory at batch 1"
    assert not any(diamonds(axes) for axes in without.axes[1:])


def test_a_single_frequency_and_seed_and_no_whole_model_can_be_drawn():
    axes = draw(runs=RUNS[(RUNS["scheme"] == "MocoSFL") & (RUNS["syncs_per_epoch"] == 10)].iloc[::2]).axes[0]
    (line,) = lines(axes)
    np.testing.assert_allclose(line.get_ydata(), [0.09, 0.27])


def test_traffic_by_cut_stacks_the_parts_and_marks_the_cheapest():
    frame = pd.DataFrame(
        {
            "architecture": "resnet18", "strides": "cifar", "rule": rule, "cut_layer": cut,
            "activation_bytes": activation * 2**20, "sync_bytes": sync * 2**20,
            "total_bytes": (activation + sync) * 2**20,
        }
        for rule, ways in (("one-way", 1), ("two-way", 2))
        for cut, activation, sync in ((1, 30, 0), (3, 20, 5 * ways), (5, 10, 12 * ways))
    )  # fmt: skip
    figure = drawn(traffic_by_cut(frame, subtitle="250 images"))
    one_way, two_way = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["ResNet-18, one-way", "ResNet-18, two-way"]
    assert one_way.get_ylabel() == "MiB"
    assert [bar.get_height() for bar in one_way.patches[:3]] == [30, 20, 10]
    assert [text.get_text() for text in one_way.texts] == ["cheapest: 22.0 MiB"]
    assert one_way.texts[0].xy == (2, 22)
    assert two_way.texts[0].xy == (0, 30)
    assert key(figure) == ["activations and gradients", "parameter synchronisation", "cheapest cut"]
