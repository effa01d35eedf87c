import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from fssl_core.figures.charts import bars
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import bars as heights
from tests.figures.reading import diamonds, drawn, key, written

COLUMNS = {"x": "clients", "y": "accuracy", "hue": "method", "panel": "labels"}
OURS = pd.DataFrame(
    [
        ("1%", 5, "MocoSFL-1", 0, 0.70),
        ("1%", 5, "MocoSFL-1", 1, 0.80),
        ("1%", 5, "MocoSFL-3", 0, 0.60),
        ("1%", 20, "MocoSFL-3", 0, float("nan")),
        ("10%", 20, "MocoSFL-1", 0, 0.90),
    ],
    columns=["labels", "clients", "method", "seed", "accuracy"],
)
PAPER = pd.DataFrame(
    [("1%", 5, "MocoSFL-1", 0.84), ("1%", 5, "FL-BYOL", 0.73), ("1%", 100, "MocoSFL-1", 0.82)],
    columns=["labels", "clients", "method", "accuracy"],
)


def draw(frame, **options):
    return drawn(bars(frame, **COLUMNS, subtitle="profile laptop", title="Table", **options))


def test_bars_are_means_with_the_papers_values_as_diamonds_at_the_same_place():
    one, ten = draw(OURS, paper=PAPER, chance=0.1, y_label="accuracy").axes
    assert [axes.get_title("left") for axes in (one, ten)] == ["1%", "10%"]
    assert [label.get_text() for label in one.get_xticklabels()] == ["5", "20", "100"]
    assert heights(one) == {-0.27: pytest.approx(0.75), 0: 0.60}  # first and second of three methods at 5 clients
    assert diamonds(one) == {(-0.27, 0.84), (0.27, 0.73), (1.73, 0.82)}
    assert sorted(written(one)) == ["60.0", "75.0", "n=1", "n=2", "not run", "not run"]  # FL-BYOL, and 100 clients
    assert one.get_ylabel() == "accuracy (%)"
    assert heights(ten) == {0.73: 0.90}
    assert diamonds(ten) == set()
    assert sorted(written(ten)) == ["90.0", "n=1"]


def test_panels_stand_below_each_other_where_one_is_allowed_in_a_row():
    one, ten = (axes.get_position() for axes in draw(OURS, in_a_row=1).axes)
    assert ten.y1 < one.y0
    beside = [axes.get_position() for axes in draw(OURS).axes]
    assert beside[0].x1 < beside[1].x0


def test_a_method_named_with_its_cut_is_a_shade_of_the_methods_colour():
    figure = draw(OURS, paper=PAPER)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["MocoSFL-1", "MocoSFL-3", "FL-BYOL", "paper"]
    first, second, byol = (to_rgb(patch.get_facecolor()) for patch in legend.get_patches())
    assert first == pytest.approx(to_rgb(METHOD_COLOURS["MocoSFL"]))
    assert second == pytest.approx([1 - (1 - channel) / 2 for channel in first], abs=0.01)
    assert byol == pytest.approx(to_rgb(METHOD_COLOURS["FL-BYOL"]))


def test_a_number_is_read_where_its_bar_ends_below_it():
    """White over a dark bar, it would be white on white: it has a rim in the colour of the bar."""
    frame = pd.DataFrame({"clients": 5, "labels": "1%", "method": ["FSL", "FedAvg"], "accuracy": [0.0, 0.9]})
    figure = draw(frame)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    left, right, bottom, top = (round(edge) for edge in figure.axes[0].bbox.get_points().T.ravel())
    pixels = np.asarray(canvas.buffer_rgba())[::-1][bottom:top, left:right, :3]
    assert (np.abs(pixels - 255 * np.array(to_rgb(METHOD_COLOURS["FSL"]))).max(-1) < 20).sum() > 50


def test_the_legend_names_the_paper_only_where_it_has_values():
    assert key(draw(OURS, paper=PAPER, chance=0.1)) == ["MocoSFL-1", "MocoSFL-3", "FL-BYOL", "paper", "chance"]
    assert key(draw(OURS)) == key(draw(OURS, paper=PAPER.iloc[:0])) == ["MocoSFL-1", "MocoSFL-3"]


def test_each_bar_has_the_line_of_its_untrained_models():
    """Where nothing is known of them there is none."""
    figure = draw(OURS.assign(untrained=[0.2, 0.4, float("nan"), float("nan"), 0.1]))
    levels = [
        [(line.get_xdata().mean(), line.get_ydata()[0]) for line in axes.lines if line.get_label() == "untrained"]
        for axes in figure.axes
    ]
    at = pytest.approx(-0.2)
    assert [[place for place in panel if place[1] == place[1]] for panel in levels] == [
        [(at, pytest.approx(0.3))],
        [(pytest.approx(0.8), 0.1)],
    ]
    assert key(figure) == ["MocoSFL-1", "MocoSFL-3", "untrained"]


def test_other_units_are_written_as_they_are():
    figure = bars(
        OURS[OURS["seed"] == 0].assign(accuracy=1234.2),
        "clients",
        "accuracy",
        hue="method",
        subtitle="s",
        title="t",
        percent=False,
    )
    assert written(figure.axes[0]) == ["1,234"] * 4
    assert figure.axes[0].get_ylabel() == "accuracy"


def test_bars_say_of_how_many_runs_they_are_where_they_differ_in_it():
    alike = OURS[OURS["seed"] == 0]
    assert sorted(written(draw(alike).axes[0])) == ["60.0", "70.0"]
    said = "profile laptop · bars: mean, lines: ±\u00a01 sample standard deviation over seeds, "
    said += "n\u00a0=\u00a01\u00a0to\u00a02"
    assert said in {text.get_text().replace("\n", " ") for text in draw(OURS).texts}
    assert "profile laptop" in {text.get_text() for text in draw(alike).texts}


def test_groups_that_are_numbers_ascend():
    frame = OURS.assign(share=[1.0, 1.0, 1.0, 0.1, 0.01], accuracy=0.5)
    figure = bars(frame, "share", "accuracy", hue="method", x_format="{:.0%}".format, subtitle="s", title="t")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1%", "10%", "100%"]


def test_costs_of_many_magnitudes_have_logarithmic_axes_of_their_own():
    rows = pd.DataFrame(
        [("traffic", "FedSimCLR", 1e12, 2e12), ("traffic", "MFCL", 1e11, None), ("memory", "MFCL", None, 1e8)],
        columns=["resource", "method", "cost", "printed"],
    ).assign(architecture="ResNet-18")
    figure = bars(
        rows, "architecture", "cost", panel="resource", paper=rows.assign(cost=rows["printed"]), percent=False,
        log=True, subtitle="s", title="t",
    )  # fmt: skip
    traffic, memory = drawn(figure).axes
    assert heights(traffic) == pytest.approx({-0.2: 1e12, 0.2: 1e11})
    assert traffic.get_yscale() == memory.get_yscale() == "log"
    assert [*diamonds(traffic), *diamonds(memory)] == [pytest.approx((-0.2, 2e12)), pytest.approx((0.2, 1e8))]
    assert (sorted(written(traffic)), written(memory)) == (["1.0e+11", "1.0e+12"], ["not run"])
    assert traffic.get_ylim() != memory.get_ylim()
