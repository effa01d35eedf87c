import numpy as np
import pandas as pd
import pytest

from fssl_core.figures.comparisons import challenges
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import bars, drawn, key, line_of


def runs(panel, method, **points):
    """Two seeds, 0.02 apart, for each value of the panel's column."""
    ((column, accuracies),) = points.items()
    return [
        {"panel": panel, "method": method, column: value, "knn_accuracy": accuracy + 0.02 * seed}
        for value, accuracy in accuracies.items()
        for seed in (0, 1)
    ]


RESULTS = pd.DataFrame(
    runs("a", "FL-MoCoV2", batch={8: 0.2, 128: 0.4})
    + runs("a", "FL-BYOL", batch={128: 0.3, 8: 0.1})
    + runs("b", "FL-MoCoV2", clients={5: 0.4, 100: 0.2})
    + runs("b", "MocoSFL", clients={5: 0.5, 100: 0.5})
    + runs("c", "FL-MoCoV2", negatives={"fresh": 0.4, "random": 0.1})
    + [{"panel": "variants", "method": "another"}]
)
RESULTS.loc[RESULTS["negatives"] == "fresh", "negative_similarity"] = [0.5, 0.7]


def draw(results=RESULTS):
    return drawn(challenges(results, subtitle="profile laptop", title="Figure 1", chance=0.1))


def test_every_panel_draws_the_means_over_its_own_rows():
    figure = draw()
    batch, clients, negatives = figure.axes
    moco, byol = (line_of(batch, METHOD_COLOURS[name]) for name in ("FL-MoCoV2", "FL-BYOL"))
    np.testing.assert_allclose(moco.get_ydata(), [0.21, 0.41])
    np.testing.assert_allclose(byol.get_ydata(), [0.11, 0.31])
    assert (moco.get_xdata(orig=False) < byol.get_xdata(orig=False)).all()  # apart
    np.testing.assert_allclose(moco.get_xdata(orig=False), [8, 128], rtol=0.02)  # and next to their tick
    assert moco.get_color() == METHOD_COLOURS["FL-MoCoV2"]
    assert [text.get_text() for text in batch.get_xticklabels()] == ["8", "128"]
    np.testing.assert_allclose(line_of(clients, METHOD_COLOURS["MocoSFL"]).get_ydata(), [0.51, 0.51])
    assert [*bars(negatives).values()] == pytest.approx([0.41, 0.11])
    names = key(figure)
    assert names == ["FL-MoCoV2", "FL-BYOL", "MocoSFL", "chance"]


def test_negatives_are_written_with_their_similarity_where_it_was_measured():
    assert [text.get_text() for text in draw().axes[2].get_xticklabels()] == ["fresh\n0.60", "random"]


def test_runs_without_the_accuracy_are_left_out():
    lost = RESULTS.copy()
    lost.loc[(lost["panel"] == "a") & (lost["batch"] == 8), "knn_accuracy"] = float("nan")
    batch = draw(lost).axes[0]
    assert [text.get_text() for text in batch.get_xticklabels()] == ["128"]
