import matplotlib
import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.figures.diagrams import KINDS, scaling
from tests.figures.reading import drawn, key

VECTORS = pd.DataFrame(
    [
        ("(a) FedAvg", "global model", 0.0, 1.0),
        ("(a) FedAvg", "client", 2.0, -0.5),
        ("(a) FedAvg", "FedAvg", 1.0, 0.25),
        ("(b) L-DAWA", "global model", 0.0, 1.0),
        ("(b) L-DAWA", "client, scaled", -0.5, 0.1),
    ],
    columns=["panel", "kind", "x", "y"],
)
ANGLES = pd.DataFrame(
    {"angle_before_degrees": [180.0, 0.0, 90.0], "angle_after_degrees": [0.0, 0.0, 90.0], "length_factor": [1, 1, 0.0]}
)


def draw(vectors=VECTORS):
    return drawn(scaling(vectors, ANGLES, subtitle="exact", title="Vectors"))


def test_each_case_has_its_arrows_from_the_origin_on_axes_of_one_scale():
    first, second, *_ = draw().axes
    tips = [text.xy for text in first.texts]
    assert tips == [(0.0, 1.0), (2.0, -0.5), (1.0, 0.25)]
    assert [text.xyann for text in first.texts] == [(0, 0)] * 3
    assert [text.arrow_patch.get_edgecolor() for text in second.texts] == [
        matplotlib.colors.to_rgba(KINDS[kind]["color"]) for kind in ("global model", "client, scaled")
    ]
    for axes in (first, second):
        assert axes.get_aspect() == 1
        (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert low < -0.5 < 2 < high
        assert bottom < -0.5 < 1 < top
    assert first.get_title("left") == "(a) FedAvg"


def test_angle_and_length_are_lines_in_the_order_of_the_angle():
    *_, angle, length = draw().axes
    after, unscaled = (line for line in angle.lines if len(line.get_xdata()) == 3 or line.get_linestyle() == "--")
    np.testing.assert_array_equal(after.get_xydata(), [[0, 0], [90, 90], [180, 0]])
    np.testing.assert_array_equal(unscaled.get_xydata(), [[0, 0], [180, 180]])
    np.testing.assert_array_equal(length.lines[0].get_xydata(), [[0, 1], [90, 0], [180, 1]])


def test_the_key_names_what_is_drawn_and_another_kind_is_refused():
    assert key(draw()) == ["global model", "client", "client, scaled", "FedAvg"]
    with pytest.raises(SettingError, match="kind='server' cannot be used: expected one of global model, client"):
        draw(VECTORS.replace("client", "server"))
