import pandas as pd

from fssl_core.figures.comparisons import stated_gains
from tests.figures.reading import drawn

GAINS = pd.DataFrame(
    [("CIFAR-10", 5.21, True, 5.21, 4.26), ("CIFAR-100", 0.52, False, -0.09, float("nan"))],
    columns=["gain", "stated", "holds", "best over best", "L-DAWA over best"],
    index=[7, 3],
)


def draw(frame, rules):
    return drawn(stated_gains(frame, rules, subtitle="printed tables", title="Gains"))


def marks(axes, marker):
    lines = [line for line in axes.lines if line.get_marker() == marker]
    return [(x, round(y)) for line in lines for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if x == x]


def test_each_gain_is_a_row_from_the_top_with_the_stated_number_and_each_way_of_counting():
    figure = draw(GAINS, ["best over best", "L-DAWA over best"])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CIFAR-10", "CIFAR-100"]
    assert axes.yaxis_inverted()
    assert marks(axes, "D") == [(5.21, 0), (0.52, 1)]
    assert marks(axes, "o") == [(5.21, 0), (-0.09, 1)]
    assert marks(axes, "s") == [(4.26, 0)]
    (legend,) = figure.legends
    named = ["stated in the text", "best over best", "L-DAWA over best"]
    assert [text.get_text() for text in legend.get_texts()] == named


def test_gains_that_do_not_hold_are_in_bold():
    figure = draw(GAINS, ["best over best"])
    (axes,) = figure.axes
    assert figure.texts[-1].get_text() == "printed tables · bold: not by the way of counting that its sentence suggests"
    assert draw(GAINS[GAINS["holds"]], ["best over best"]).texts[-1].get_text() == "printed tables"
    assert [label.get_fontweight() for label in axes.get_yticklabels()] == ["normal", "bold"]
    assert [y for _, y in marks(axes, "o")] == [0, 1]  # a single way of counting lies on its row
