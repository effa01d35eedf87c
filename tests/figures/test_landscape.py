import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import QuadContourSet

from fssl_core.errors import DataError
from fssl_core.figures.planar import END, START, STEP, loss_landscapes
from tests.figures.reading import drawn

PANELS = [(ssl, method) for ssl in ("SimCLR", "Barlow Twins") for method in ("FedAvg", "L-DAWA")]
HEIGHT = {"SimCLR": 2.0, "Barlow Twins": 60.0}


def frame(ssl, method, rows, columns):
    return pd.DataFrame(rows, columns=columns).assign(ssl_method=ssl, method=method)


def surface(ssl, method):
    depth = {"FedAvg": 1.0, "L-DAWA": 0.5}[method] * HEIGHT[ssl]
    axis = np.linspace(-3, 3, 7)
    return frame(ssl, method, [(x, y, depth + x * x + y * y) for y in axis for x in axis], ["x", "y", "loss"])


SURFACES = pd.concat([surface(*panel) for panel in PANELS])
PATHS = pd.concat([frame(*panel, [(2, 1), (1, 1), (0, 0)], ["x", "y"]) for panel in PANELS]).assign(
    explained_variance_x=0.61, explained_variance_y=0.2
)
RINGS = pd.concat([frame(*panel, [(5, 0), (0, 5), (-5, 0), (0, -5)], ["x", "y"]) for panel in PANELS])


def draw(surfaces=SURFACES, paths=PATHS, rings=RINGS):
    return drawn(loss_landscapes(surfaces, paths, rings, subtitle="profile laptop", title="Landscapes"))


def planes(figure):
    return [axes for axes in figure.axes if axes.get_title(loc="left")]


def test_each_run_has_its_panel_with_its_path_from_start_to_end():
    axes = planes(draw())
    assert [panel.get_title(loc="left") for panel in axes] == [f"{ssl}, {method}" for ssl, method in PANELS]
    for panel in axes:
        lines = {line.get_marker(): line for line in panel.get_lines()}
        np.testing.assert_allclose(lines[STEP["marker"]].get_xydata(), [(2, 1), (1, 1), (0, 0)])
        np.testing.assert_allclose(lines[START["marker"]].get_xydata(), [(2, 1)])
        np.testing.assert_allclose(lines[END["marker"]].get_xydata(), [(0, 0)])
        assert panel.get_xlabel() == "first component (61 % of variance)"
        assert panel.get_ylabel() == "second component (20 % of variance)"


def test_a_row_shares_its_colours_and_rows_do_not():
    filled = [
        next(part for part in panel.collections if isinstance(part, QuadContourSet) and part.filled)
        for panel in planes(draw())
    ]
    levels = [part.levels for part in filled]
    np.testing.assert_array_equal(levels[0], levels[1])
    np.testing.assert_array_equal(levels[2], levels[3])
    assert levels[0][[0, -1]].tolist() == pytest.approx([1.0, 20.0])  # of both panels
    assert levels[2][[0, -1]].tolist() == pytest.approx([30.0, 78.0])
    assert (np.diff(levels[0], 2) > 0).all()  # finest at the bottom


def test_lengths_are_true_and_a_circle_that_is_larger_than_the_surface_does_not_widen_it():
    for panel in planes(draw()):
        assert panel.get_aspect() == 1
        assert panel.get_xlim() == pytest.approx((-3, 3))
        assert panel.get_ylim() == pytest.approx((-3, 3))


def test_losses_that_are_not_finite_are_left_blank_and_a_run_without_a_surface_has_no_panel():
    surfaces = SURFACES.copy()
    surfaces.iloc[0, surfaces.columns.get_loc("loss")] = np.inf
    draw(surfaces)
    three = SURFACES[~((SURFACES["ssl_method"] == "Barlow Twins") & (SURFACES["method"] == "L-DAWA"))]
    assert len(planes(draw(three))) == 3


def test_a_surface_without_relief_is_refused():
    with pytest.raises(DataError, match="SimCLR have no two different losses"):
        draw(SURFACES.assign(loss=1.0))
