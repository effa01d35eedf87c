from pathlib import Path

import pytest

from fssl_core.figures.verdicts import plot_overview, plot_verdicts
from fssl_core.papers.reference import PAPERS
from fssl_core.reporting import gallery
from tests.figures.reading import drawn, key, written

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def verdicts():
    """What became of the claims by the project's own records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield gallery.kept_verdicts()


def test_every_claim_is_counted_once_in_each_papers_row_the_first_paper_on_top(verdicts):
    figure = drawn(plot_overview(verdicts))
    exact, trained, printed = figure.axes
    assert [label.get_text() for label in exact.get_yticklabels()] == [*PAPERS]
    assert exact.yaxis_inverted()
    assert trained.yaxis_inverted()
    assert sum(bar.get_width() for axes in (exact, trained) for bar in axes.patches) == len(verdicts)
    assert sum(bar.get_width() for bar in printed.patches) == len({verdict.id for verdict in verdicts})
    assert sum(map(int, written(exact))) + sum(map(int, written(trained))) == len(verdicts)
    assert {"reproduced", "consistent", "not run / prints none"} <= set(key(figure))


def test_each_claim_with_a_number_has_a_row_and_the_others_are_counted(verdicts):
    own = [verdict for verdict in verdicts if verdict.paper == "mocosfl"]
    numbers = [verdict for verdict in own if verdict.estimate is not None]
    title = "A title that is longer than a line, " * 5
    figure = drawn(plot_verdicts(own, title))
    assert figure.texts[0].get_text().split() == title.split()
    (axes,) = figure.axes
    assert len(axes.get_yticklabels()) == len(numbers)
    assert f"{len(own) - len(numbers)} without a number of ours" in " ".join(text.get_text() for text in figure.texts)
    assert {"exact", "trained", "printed in the paper", "as claimed"} <= set(key(figure))
    assert "of 95 percent where no other level is given" in " ".join(text.get_text() for text in figure.texts)
    labelled = zip(figure.legends[0].legend_handles, key(figure), strict=True)
    assert {mark.get_color() for mark, label in labelled if label in ("exact", "trained")} == {"black"}
