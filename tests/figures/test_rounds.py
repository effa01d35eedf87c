import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.figures.charts import by_round
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import drawn

RUNS = pd.DataFrame(
    [
        (ssl_method, method, seed, number, level + number / 100 + 0.02 * seed, 5 - number)
        for ssl_method in ("SimCLR", "Barlow Twins")
        for method, level in (("FedAvg", 0.3), ("L-DAWA", 0.4))
        for seed in (0, 1, 2)
        for number in (1, 2, 3)
    ],
    columns=["ssl_method", "method", "seed", "round", "accuracy", "loss"],
)
METRICS = {"accuracy": "linear probe accuracy", "loss": "mean local loss"}


def draw(frame=RUNS, metrics=METRICS, **values):
    return drawn(by_round(frame, metrics, subtitle="profile laptop", title="rounds", **values))


def band(axes, number):
    """Round -> lower and upper edge."""
    corners = pd.DataFrame(axes.collections[number].get_paths()[0].vertices[:-1], columns=["round", "value"])
    return {place: (values.min(), values.max()) for place, values in corners.groupby("round")["value"]}


def test_metrics_are_rows_and_ssl_methods_columns():
    axes = draw().axes
    assert [panel.get_title("left") for panel in axes] == ["SimCLR", "Barlow Twins", "", ""]
    assert [panel.get_ylabel() for panel in axes] == ["linear probe accuracy", "", "mean local loss", ""]
    assert axes[0].get_ylim() == axes[1].get_ylim() != axes[2].get_ylim()
    assert draw(percent=["accuracy"]).axes[0].get_ylabel() == "linear probe accuracy (%)"


def test_a_line_is_the_mean_over_seeds_in_a_band_of_one_standard_deviation():
    axes = draw().axes[0]
    fedavg, ldawa = axes.lines
    np.testing.assert_allclose(fedavg.get_ydata(), [0.33, 0.34, 0.35])
    np.testing.assert_allclose(ldawa.get_ydata(), [0.43, 0.44, 0.45])
    assert ldawa.get_color() == METHOD_COLOURS["L-DAWA"]
    for place, edges in band(axes, 1).items():
        np.testing.assert_allclose(edges, [0.40 + place / 100, 0.44 + place / 100])  # of 0, 0.02 and 0.04 above
    assert not draw(RUNS[RUNS["seed"] == 0]).axes[0].collections  # one seed has no spread


def test_a_round_that_was_not_evaluated_is_left_out_of_its_line():
    frame = RUNS.copy()
    frame.loc[(frame["round"] == 2) & (frame["method"] == "FedAvg"), "accuracy"] = np.nan
    fedavg, ldawa = draw(frame).axes[0].lines
    assert list(fedavg.get_xdata()) == [1, 3]
    assert list(ldawa.get_xdata()) == [1, 2, 3]
    never = frame.assign(accuracy=frame["accuracy"].where(frame["method"] == "FedAvg"))
    assert len(draw(never).axes[0].lines) == 1


def test_one_group_has_its_metrics_side_by_side_and_any_column_makes_the_lines():
    simclr = RUNS[RUNS["ssl_method"] == "SimCLR"]
    axes = draw(simclr, panel=None, hue="seed", log=["loss"]).axes
    assert [panel.get_ylabel() for panel in axes] == [*METRICS.values()]
    assert axes[0].get_position().y0 == pytest.approx(axes[1].get_position().y0)
    assert [panel.get_yscale() for panel in axes] == ["linear", "log"]
    assert len(axes[0].lines) == 3


def test_chance_stands_where_accuracies_are():
    axes = draw(percent=["accuracy"], chance=0.1).axes
    assert ["chance" in [line.get_label() for line in panel.lines] for panel in axes] == [True, True, False, False]


def test_a_metric_that_is_not_drawn_is_refused():
    with pytest.raises(SettingError, match="metric='knn' cannot be used: expected one of accuracy, loss"):
        draw(percent=["knn"])


def test_a_band_ends_where_the_quantity_does_and_the_figure_says_so():
    frame = RUNS.assign(cosine=0.99 + 0.005 * RUNS["seed"])  # mean 0.995, standard deviation 0.005
    frame.loc[frame["method"] == "FedAvg", "cosine"] += 0.003
    figure = draw(frame, {"cosine": "cosine"}, bounds={"cosine": (-1, 1)})
    for lower, upper in band(figure.axes[0], 0).values():
        np.testing.assert_allclose((lower, upper), (0.993, 1.0))
    note = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "bands: ±\u00a01 sample standard deviation over seeds, cut off where the quantity ends" in note
    free = " ".join(text.get_text() for text in draw(frame, {"cosine": "cosine"}).texts).replace("\n", " ")
    assert "cut off" not in free
    with pytest.raises(SettingError, match="sine"):
        draw(frame, {"cosine": "cosine"}, bounds={"sine": (-1, 1)})


def test_the_band_of_a_fraction_ends_at_one():
    frame = RUNS.assign(accuracy=0.96 + 0.04 * (RUNS["seed"] > 0))
    for _, upper in band(draw(frame, {"accuracy": "accuracy"}, percent=["accuracy"]).axes[0], 0).values():
        assert upper == 1
