import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from fssl_core.errors import DataError, SettingError
from fssl_core.figures.comparisons import paired_differences, rules_in_order
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import drawn, key

RUNS = pd.DataFrame(
    [
        (method, seed, accuracy)
        for method, accuracies in {
            "FedAvg": (0.5, 0.6, 0.7),
            "L-DAWA": (0.4, 0.6, 0.5),
            "ours": (0.55, 0.66, 0.77),
        }.items()
        for seed, accuracy in enumerate(accuracies)
    ],
    columns=["method", "seed", "accuracy"],
)


def draw(results=RUNS, **values):
    values = {"also": "accuracy", "also_label": "again"} | values
    return drawn(rules_in_order(results, baseline="FedAvg", subtitle="profile laptop", title="Rules", **values))


def test_differences_are_taken_seed_by_seed_whatever_the_order_of_the_runs():
    table = paired_differences(RUNS.sample(frac=1, random_state=0).sort_values("method"), "accuracy", "FedAvg")
    assert table.index.tolist() == ["L-DAWA", "ours"]
    assert table["difference"].tolist() == pytest.approx([-0.1, 0.06])
    spread = [np.std([-0.1, 0, -0.2], ddof=1) / 3**0.5, np.std([0.05, 0.06, 0.07], ddof=1) / 3**0.5]
    assert table["standard_error"].tolist() == pytest.approx(spread)
    assert table["pairs"].tolist() == [3, 3]


def test_a_seed_that_one_of_the_two_lacks_makes_no_pair():
    table = paired_differences(RUNS.drop(index=3), "accuracy", "FedAvg")
    assert table.loc["L-DAWA", ["difference", "pairs"]].tolist() == pytest.approx([-0.1, 2])


def test_bars_are_in_order_and_the_differences_stand_beside_them():
    left, right = draw().axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["ours", "FedAvg", "L-DAWA"]
    bars = [patch for patch in left.patches if isinstance(patch, Rectangle)]
    drawn = {round(bar.get_y() + bar.get_height() / 2): bar for bar in bars}
    assert [drawn[place].get_width() for place in range(3)] == pytest.approx([0.66, 0.6, 0.5])
    assert matplotlib.colors.to_hex(drawn[2].get_facecolor()) == METHOD_COLOURS["L-DAWA"]
    places = [(*line.get_xdata(), *line.get_ydata()) for line in right.get_lines() if line.get_marker() == "s"]
    np.testing.assert_allclose(places, [(6, 0), (-10, 2)], atol=1e-9)
    segments = [container.lines[2][0].get_segments()[0][:, 0] for container in right.containers]
    np.testing.assert_allclose(np.diff(segments), np.array([[2], [20]]) / 3**0.5)


def test_a_second_measure_is_a_circle_over_the_bar():
    figure = draw(RUNS.assign(renewed=RUNS["accuracy"] + 0.1), also="renewed", also_label="statistics renewed")
    circles = next(list(line.get_xdata()) for line in figure.axes[0].get_lines() if line.get_marker() == "o")
    assert circles == pytest.approx([0.76, 0.7, 0.6])
    assert key(figure) == ["a seed", "statistics renewed", "FedAvg", "mean and standard error of the difference"]


def test_one_seed_has_no_error_and_says_so_by_leaving_it_out():
    figure = draw(RUNS[RUNS["seed"] == 0])
    assert "standard error" not in " ".join(key(figure))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(SettingError, match="baseline='Loss' cannot be used: expected one of FedAvg"):
        paired_differences(RUNS, "accuracy", "Loss")
    with pytest.raises(DataError, match="same method and seed"):
        draw(pd.concat([RUNS, RUNS.head(1)]))
