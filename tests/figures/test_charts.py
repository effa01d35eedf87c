import numpy as np
import pandas as pd
import pytest
import torch

from fssl_core.data import Dataset, ImageSet
from fssl_core.data.partitions import heterogeneity
from fssl_core.errors import SettingError
from fssl_core.figures import charts
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import diamonds, drawn, key, line_of, lines, spreads, written


def texts(figure):
    return [text.get_text() for text in figure.texts]


@pytest.mark.parametrize(("clients", "classes"), [(5, 10), (20, 100), (200, 10)])
def test_partition_shows_counts_and_heterogeneity(clients, classes):
    holders = torch.arange(clients)
    labels = (holders % classes).repeat_interleave(7)  # seven images of one class each
    images = ImageSet(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels)
    data = Dataset("made", images, images, tuple(f"class {i}" for i in range(classes)), official=False)
    parts = [torch.arange(7 * client, 7 * client + 7) for client in range(clients)]
    figure = drawn(charts.partition(data, parts, subtitle="digits · one-class"))
    axes = figure.axes[0]
    number = f"{heterogeneity(labels, parts):.2f}"
    assert texts(figure) == ["Who holds what", f"digits · one-class · heterogeneity {number} (0 = IID)"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("client", "class")
    counts = torch.zeros(clients, classes, dtype=torch.int64)
    counts[holders, holders % classes] = 7
    np.testing.assert_array_equal(axes.collections[0].get_array(), counts.T)
    assert len(axes.get_yticks()) <= 20
    assert len(written(axes)) == (clients if clients == 5 else 0)  # numbers only where they can be read


def test_partitions_share_a_scale_and_need_a_name_for_each_class():
    counts = {"even": np.array([[2, 2], [2, 2]]), "uneven": np.array([[4, 0], [0, 4]])}
    figure = drawn(charts.counts_of_classes(counts, ["a", "b"], subtitle="s", title="t"))
    even, uneven, _ = figure.axes
    assert even.collections[0].get_clim() == uneven.collections[0].get_clim() == (0, 4)
    assert (written(even), written(uneven)) == (["2"] * 4, ["4", "4"])
    drawn(charts.counts_of_classes(counts, [r"$\x$", "b"], subtitle="s", title="t"))  # a name, and no formula
    with pytest.raises(SettingError, match="3 classes in 'even'"):
        charts.counts_of_classes(counts, ["a", "b", "c"], subtitle="s", title="t")


def test_curves_draw_means_with_their_spread_in_percent():
    rows = [
        {"method": method, "clients": f"{clients} clients", "cut_layer": cut, "seed": seed, "knn": level + 0.02 * seed}
        for clients in (5, 20)
        for method, level in (("MocoSFL", 0.4), ("MonAcoSFL", 0.6))
        for cut in (1, 3)
        for seed in (0, 1, 2)
    ]
    figure = drawn(
        charts.curves(
            pd.DataFrame(rows), "cut_layer", {"knn": "knn_accuracy"}, panel="clients", percent=["knn"], chance=0.1,
            subtitle="profile laptop", title="cuts",
        )
    )  # fmt: skip
    left, right = figure.axes
    assert [axes.get_title("left") for axes in (left, right)] == ["5 clients", "20 clients"]
    assert left.get_ylabel() == "kNN accuracy (%)"
    assert left.yaxis.get_major_formatter()(0.5) == "50"
    assert key(figure) == ["MocoSFL", "MonAcoSFL", "chance"]
    np.testing.assert_allclose(line_of(left, METHOD_COLOURS["MocoSFL"]).get_ydata(), 0.42)
    np.testing.assert_allclose(spreads(left)[:2], [[0.40, 0.44]] * 2)  # the sample deviation of 0.40, 0.42, 0.44
    assert sum(len(dots.get_offsets()) for dots in left.collections if len(dots.get_paths()) == 1) >= 12


@pytest.mark.parametrize("chart", ["curves", "by_round"])
@pytest.mark.parametrize(
    ("untrained", "levels"),
    [
        ([0.2, 0.2], {"black": [0.2, 0.3]}),  # both methods begin with the same models
        ([0.2, 0.25], {METHOD_COLOURS["MocoSFL"]: [0.2, 0.3], METHOD_COLOURS["MonAcoSFL"]: [0.25, 0.35]}),
        ([np.nan, np.nan], {}),
    ],
)
def test_curves_draw_what_untrained_models_reach(chart, untrained, levels):
    frame = pd.DataFrame(
        {"method": method, "round": x, "knn": 0.5, "untrained_knn": level + 0.1 * (x - 1) + 0.01 * seed}
        for method, level in zip(("MocoSFL", "MonAcoSFL"), untrained, strict=True)
        for x in (1, 2)
        for seed in (-1, 1)
    )
    where = ("round",) if chart == "curves" else ()
    options = {"panel": None, "percent": ["knn"], "subtitle": "toy", "title": "t"}
    figure = drawn(getattr(charts, chart)(frame, *where, {"knn": "kNN"}, **options))
    expected = ["MocoSFL", "MonAcoSFL", "untrained"]
    assert key(figure) == (expected if levels else expected[:2])
    dashed = {line.get_color(): line for line in lines(figure.axes[0]) if line.get_path_effects()}
    assert dashed.keys() == levels.keys()
    for colour, values in levels.items():
        np.testing.assert_allclose(dashed[colour].get_ydata(), values)
        reached = [line_of(figure.axes[0], METHOD_COLOURS[method]) for method in ("MocoSFL", "MonAcoSFL")]
        assert all(dashed[colour].get_zorder() < line.get_zorder() for line in reached)  # nothing hides the results


@pytest.mark.parametrize(("own_axes", "limits"), [(False, 1), (True, 2)])
def test_panels_of_a_metric_share_a_scale_unless_they_are_far_apart(own_axes, limits):
    frame = pd.DataFrame(
        {"ssl_method": ssl, "method": "FedAvg", "round": x, "norm": level * x, "cosine": 1 / x}
        for ssl, level in (("SimCLR", 1), ("Barlow Twins", 100))
        for x in (1, 2)
    )
    metrics = {"norm": "norm", "cosine": "cosine"}
    figure = drawn(charts.by_round(frame, metrics, own_axes=own_axes, subtitle="toy", title="t"))
    assert len({axes.get_ylim() for axes in figure.axes[:2]}) == limits


def test_curves_draw_any_quantity_as_it_is_beside_the_papers():
    frame = pd.DataFrame(
        {"kind": kind, "epsilon": x, "error": level + x} for kind, level in (("a", 0), ("b", 10)) for x in (0.5, 1, 4)
    )
    figure = drawn(
        charts.curves(
            frame, "epsilon", {"error": "MSE"}, hue="kind", paper=frame.iloc[[0]].assign(error=7), subtitle="toy",
            title="Error",
        )
    )  # fmt: skip
    (axes,) = figure.axes
    assert texts(figure) == ["Error", "toy"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epsilon", "MSE")
    assert axes.get_xticks().tolist() == [0.5, 1, 4]
    assert key(figure) == ["a", "b", "paper"]
    first, second = (line for line in lines(axes) if line.get_marker() != "D")
    assert [line.get_ydata().tolist() for line in (first, second)] == [[0.5, 1, 4], [10.5, 11, 14]]
    np.testing.assert_allclose(second.get_xdata() - first.get_xdata(), 0.04)  # apart, but next to their tick
    assert diamonds(axes) == {(0.48, 7)}


def test_stacked_bars_begin_where_the_last_part_ends():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    table = pd.DataFrame({"a": [1, 2], "b": [3, 4]}, index=["x", "y"])
    looks = {"a": {"color": "red"}, "b": {"color": "blue"}}
    assert charts.stacked_bars(axes, table, looks, across=True).tolist() == [4, 6]
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 1), (0, 2), (1, 3), (2, 4)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert axes.yaxis_inverted()
