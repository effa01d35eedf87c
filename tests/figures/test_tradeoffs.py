from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import DataError
from fssl_core.figures.style import METHOD_COLOURS, METHODS
from fssl_core.figures.tradeoffs import RING, pareto_front, ranked, scatter
from tests.figures.reading import drawn, key, written

CHOICES = {  # accuracy by probe and by fine-tuning, MiB, billions of multiply-adds, MiB
    ("FedSimCLR", ""): (0.60, 0.70, 20, 200, 30),
    ("LW-FedSSL", "k = 1"): (0.40, 0.50, 10, 90, 10),
    ("LW-FedSSL", "k = 2"): (0.50, 0.45, 15, 140, 15),  # by fine-tuning beaten by k = 1
    ("Prog-FedSSL", "k = 2"): (0.495, 0.445, 15, 141, 16),  # hardly beside it, and beaten
    ("MonAcoSFL", "cut 1"): (0.30, 0.55, 1, 4, 900),
}
RUNS = pd.DataFrame(
    [
        {
            "method": method, "choice": choice, "protocol": protocol, "seed": seed, "accuracy": accuracy + 0.02 * seed,
            "memory": memory, "macs": macs, "traffic": traffic,
        }
        for (method, choice), (probe, tuned, memory, macs, traffic) in CHOICES.items()
        for protocol, accuracy in (("linear probe", probe), ("fine-tuning", tuned))
        for seed in (-1, 0, 1)
    ]
)  # fmt: skip
NEEDS = {"memory": "memory (MiB)", "macs": "computation (billions)", "traffic": "traffic (MiB)"}
WORDS = {"subtitle": "profile laptop", "title": "Accuracy and cost"}


def test_front_is_what_a_slow_search_finds():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.integers(0, 6, (60, 3)), columns=["a", "b", "cost"])  # with ties

    def beaten(row):
        return any(
            other.a >= row.a
            and other.b >= row.b
            and other.cost <= row.cost
            and (other.a, other.b, other.cost) != (row.a, row.b, row.cost)
            for other in frame.itertuples()
        )

    expected = [not beaten(row) for row in frame.itertuples()]
    found = pareto_front(frame.set_axis(range(100, 160)), high=["a", "b"], low=["cost"])
    assert found.tolist() == expected
    assert 0 < sum(expected) < 60
    assert found.index[0] == 100


def test_front_of_one_column_is_its_best_value():
    frame = pd.DataFrame({"a": [1, 3, 3, 2]})
    assert pareto_front(frame, high=["a"]).tolist() == [False, True, True, False]
    assert pareto_front(frame, low=["a"]).tolist() == [True, False, False, False]


def test_front_refuses_a_missing_value():
    with pytest.raises(DataError, match=r"Rows without a value in a, b cannot be compared"):
        pareto_front(pd.DataFrame({"a": [1.0], "b": [float("nan")]}), high=["a"], low=["b"])


def draw(results=RUNS):
    return drawn(scatter(results, NEEDS, "accuracy", choice="choice", panel="protocol", low=NEEDS, log=True, **WORDS))


def points(axes):
    """The means, in the order of drawing."""
    return [container.lines[0] for container in axes.containers]


def rings(axes):
    (line,) = (line for line in axes.lines if line.get_markersize() == RING["markersize"])
    return set(line.get_xdata())


def steps(axes):
    (front,) = (line for line in axes.lines if line.get_drawstyle().startswith("steps"))
    return list(front.get_xdata())


def test_every_choice_is_a_point_with_its_name_in_every_panel():
    axes = draw().axes
    assert len(axes) == 6
    for number, panel in enumerate(axes):
        resource, protocol = number % 3, number // 3
        assert [line.get_xdata()[0] for line in points(panel)] == [values[2 + resource] for values in CHOICES.values()]
        expected = [values[protocol] for values in CHOICES.values()]
        np.testing.assert_allclose([line.get_ydata()[0] for line in points(panel)], expected)
        assert [line.get_color() for line in points(panel)] == [METHOD_COLOURS[method] for method, _ in CHOICES]
        assert written(panel) == [choice for _, choice in CHOICES if choice]
        assert panel.get_xscale() == "log"
        assert panel.get_title("left") == ("linear probe", "fine-tuning")[protocol]
    assert [panel.get_xlabel() for panel in axes[3:]] == [f"{label}; less is better" for label in NEEDS.values()]
    assert axes[0].get_ylabel() == "accuracy (%)"


def test_each_panel_names_its_own_points():
    tuned = RUNS["protocol"] == "fine-tuning"
    first, *_, last = draw(RUNS[~tuned | RUNS["choice"].isin(["k = 1", "cut 1"])]).axes
    assert written(first) == ["k = 1", "k = 2", "k = 2", "cut 1"]
    assert written(last) == ["k = 1", "cut 1"]


def test_names_cover_neither_each_other_nor_points():
    figure = draw()
    for panel in figure.axes:
        names = [text.get_window_extent() for text in panel.texts if text.get_text()]
        assert not any(one.overlaps(other) for one, other in combinations(names, 2))
        points = [panel.transData.transform(container.lines[0].get_xydata()[0]) for container in panel.containers]
        assert not any(name.contains(*point) for name, point in product(names, points))


def test_rings_are_the_front_of_all_goals_and_steps_that_of_the_panel():
    axes = draw().axes
    assert rings(axes[0]) == {20, 10, 15, 1}
    assert rings(axes[3]) == {20, 10, 1}
    assert steps(axes[0]) == [1, 10, 15, 20]
    assert steps(axes[2]) == [10, 15, 30]  # the split client has the most traffic and the least accuracy
    assert steps(axes[3]) == [1, 20]


def test_short_names_are_written_into_the_markers_and_more_may_be_better():
    runs = RUNS[RUNS["protocol"] == "linear probe"].assign(cut=1)
    figure = scatter(
        runs, {"traffic": "traffic", "macs": "error"}, "accuracy", choice="cut", high=["macs"], low=["traffic"], **WORDS
    )
    traffic, error = drawn(figure).axes
    assert written(traffic) == ["1"] * 4
    assert error.get_xlabel() == "error; more is better"
    assert steps(error) == [200]  # the most accurate has most of it
    assert key(figure)[-2:] == ["front of all goals", "front of the two axes"]


def test_spreads_are_those_of_the_seeds_and_none_for_a_single_one():
    (bars,) = draw().axes[0].containers[0].lines[2][1:]
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [0.58, 0.62])
    assert all(not container.lines[2] for container in draw(RUNS[RUNS["seed"] == 0]).axes[0].containers)


def test_a_choice_without_accuracy_is_refused():
    with pytest.raises(DataError, match="Rows without a value in accuracy, memory"):
        draw(RUNS.assign(accuracy=float("nan")))


def test_without_goals_there_are_points_in_given_styles_and_references():
    runs = pd.DataFrame(
        [["GN", "MFCL", 0.6, 0.50], ["GN", "MFCL", 0.5, 0.70], ["TN", "MFCL", 0.9, 0.10], ["TN", "all", 0.4, 0.30]],
        columns=["norm", "where", "matching", "knn_accuracy"],
    )
    styles = {"TN": METHODS["MFCL(TN)"], "GN": METHODS["MFCL(GN)"], "BN": METHODS["MFCL(BN)"]}
    figure = scatter(
        runs, {"matching": "matching (%)"}, "knn_accuracy", hue="norm", panel="where", percent=["matching"],
        styles=styles, references={"chance": {"knn_accuracy": 0.1}, "guess": {"matching": 0.2}}, **WORDS,
    )  # fmt: skip
    first, second = drawn(figure).axes
    assert [axes.get_title("left") for axes in figure.axes] == ["MFCL", "all"]
    group, twin = points(first)
    assert group.get_xydata().round(12).tolist() == [[0.55, 0.6]]
    assert twin.get_color() == METHOD_COLOURS["MFCL(TN)"]
    assert points(second)[0].get_xydata().tolist() == [[0.4, 0.3]]
    assert key(figure) == ["guess", "GN", "TN", "chance"]
    assert first.xaxis.get_major_formatter()(0.5) == "50"


def test_rows_are_ranked_by_the_first_column_and_a_missing_value_is_not_drawn():
    runs = pd.DataFrame(
        [
            ["FedSimCLR", 0.30, 20, None],
            ["FedSimCLR", 0.40, 20, None],
            ["MocoSFL", 0.60, 1, 0.9],
            ["MFCL", 0.5, 3, 1.0],
        ],
        columns=["method", "accuracy", "memory", "explained"],
    )
    labels = {"accuracy": "probe (%)", "memory": "memory (MB)", "explained": "explained (%)"}
    figure = ranked(
        runs, labels, log=["memory"], percent=["accuracy", "explained"], bold=["MocoSFL"], italic=["MFCL"], **WORDS
    )
    accuracy, memory, explained = drawn(figure).axes
    names = accuracy.get_yticklabels()
    assert [name.get_text() for name in names] == ["MocoSFL", "MFCL", "FedSimCLR"]
    assert [name.get_fontweight() for name in names] == ["bold", "normal", "normal"]
    assert [name.get_fontstyle() for name in names] == ["normal", "italic", "normal"]
    assert accuracy.get_ylim()[0] > accuracy.get_ylim()[1]  # the first row is on top
    np.testing.assert_allclose([line.get_xydata()[0] for line in points(accuracy)], [[0.6, 0], [0.5, 1], [0.35, 2]])
    assert [line.get_color() for line in points(accuracy)] == [
        METHOD_COLOURS[name] for name in ("MocoSFL", "MFCL", "FedSimCLR")
    ]
    assert [line.get_xdata()[0] for line in points(memory)] == [1, 3, 20]
    assert [tuple(line.get_xydata()[0]) for line in points(explained)] == [(0.9, 0), (1.0, 1)]
    assert memory.get_xscale() == "log"
    assert accuracy.get_xlim() == explained.get_xlim()
    assert accuracy.get_xlim()[0] < 0 < 1 < accuracy.get_xlim()[1]
    assert [axes.get_xlabel() for axes in figure.axes] == [*labels.values()]
