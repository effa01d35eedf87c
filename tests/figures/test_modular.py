import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from fssl_core.errors import SettingError
from fssl_core.figures.diagrams import APART, balance_cases, map_sides, normalisation_sets
from fssl_core.figures.style import NORMALISATIONS
from tests.figures.reading import drawn, lines, spreads

WORDS = {"subtitle": "profile smoke", "title": "modules"}


def test_what_is_pooled_is_coloured_and_the_watched_map_framed():
    reached = np.zeros((2, 4), dtype=bool)
    reached[0, [1, 3]] = True
    group, twin = drawn(normalisation_sets({"GN: one": ~reached, "TN: two": reached}, index=(0, 1), **WORDS)).axes
    faces = [[to_hex(face) for face in row] for row in twin.images[0].get_array().tolist()]
    assert faces == np.where(reached, NORMALISATIONS["TN"].colour, APART).tolist()
    assert to_hex(group.images[0].get_array()[0, 0]) == NORMALISATIONS["GN"].colour
    (frame,) = twin.patches
    assert (frame.get_y(), frame.get_x()) == (-0.5, 0.5)
    assert [label.get_text() for label in twin.get_xticklabels()] == ["1", "2", "1", "2"]  # twins share a number
    assert twin.get_ylim() == (1.5, -0.5)  # channel 1 on top


def test_sides_are_drawn_by_variant_with_a_star_where_maps_are_sent():
    layers = ["image", "conv 1", "pool"]
    rows = [
        ("ResNet", variant, layer, side, sent)
        for variant, place in (("printed", 2), ("ours", 1))
        for layer, side, sent in zip(layers, (8, 8, 4), (place == i for i in range(3)), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["architecture", "variant", "layer", "side", "sent"])
    (axes,) = drawn(map_sides(frame, **WORDS)).axes
    printed, printed_star, ours, ours_star = axes.lines
    assert list(printed.get_ydata()) == list(ours.get_ydata()) == [8, 8, 4]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in (printed_star, ours_star)] == [
        ([2], [4]),
        ([1], [8]),
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == layers


def test_clients_are_stacked_by_class_beside_their_mean_and_losses_have_their_range():
    cases = {"even": np.array([[2, 2], [4, 4]]), "odd": np.array([[4, 0], [0, 4]])}
    lost = pd.DataFrame(
        [("even", 0.0, 0.0), ("even", 0.5, 0.0), ("odd", 0.0, 0.0), ("odd", 0.5, 0.5), ("odd", 0.5, 0.3)],
        columns=["case", "missing", "total_variation"],
    )
    even, odd, losses = drawn(balance_cases(cases, lost, **WORDS)).axes
    bars = [(bar.get_y(), bar.get_height()) for bar in odd.patches]  # class by class: two clients and their mean
    assert bars == [(0, 4), (0, 0), (0, 2), (4, 0), (0, 4), (2, 2)]
    assert [label.get_text() for label in even.get_xticklabels()] == ["1", "2", "mean"]
    odd_line = [line for line in lines(losses) if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"][1]
    np.testing.assert_allclose(odd_line.get_ydata(), [0, 0.4])
    np.testing.assert_allclose(spreads(losses)[-1], [0.3, 0.5])
    with pytest.raises(SettingError, match=r"'other' .*one of even, odd"):
        balance_cases(cases, lost.replace("odd", "other"), **WORDS)
