import numpy as np
import pandas as pd
import pytest

from fssl_core.figures import momentum
from tests.figures.reading import bars, drawn, key


def test_trajectories_dot_the_jump_at_a_sync():
    frame = pd.DataFrame(
        {
            "method": method, "client": client, "online_x": x, "online_y": client, "momentum_x": x / 2, "momentum_y": 0,
            "synced": synced,
        }
        for method in ("MocoSFL", "MonAcoSFL")
        for client in (0, 1)
        for x, synced in ((0.0, False), (1.0, False), (0.5, True), (2.0, False))
    )  # fmt: skip
    figure = drawn(momentum.trajectories(frame, subtitle="decay 0.99", optima={0: (1, 1), 1: (2, 2)}))
    left, _ = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["MocoSFL", "MonAcoSFL"]
    jumps = [line.get_xdata().tolist() for line in left.lines if line.get_linestyle() == ":"]
    assert jumps == [[1.0, 0.5], [0.5, 0.25]] * 2  # online, momentum of each client
    solid = [line.get_xdata().tolist() for line in left.lines if line.get_linestyle() == "-"]
    assert solid == [[0.0, 1.0], [0.5, 2.0]] * 2
    assert {"online", "momentum", "jump at a sync", "client 0", "client 1"} <= set(key(figure))


def test_misalignment_goes_from_before_to_after_at_a_sync():
    steps = pd.DataFrame(
        {
            "setting": "paper-like", "method": method, "seed": seed, "step": step, "synced": step == 2,
            "misalignment_before_sync": 1.0 + seed, "misalignment": (1.0 + seed) * (10 if step >= 2 else 1),
        }
        for method in ("MocoSFL", "MonAcoSFL")
        for seed in (0, 1)
        for step in (1, 2)
    )  # fmt: skip
    figure = drawn(momentum.misalignment(steps, subtitle="2 seeds"))
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert key(figure) == ["MocoSFL", "MonAcoSFL", "sync"]
    curve = next(line for line in axes.lines if line.get_label() == "MocoSFL")
    assert curve.get_xdata().tolist() == [1, 1, 2, 2]
    np.testing.assert_allclose(curve.get_ydata(), [1.5, 1.5, 1.5, 15.0])
    syncs = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2 and line is not curve]
    syncs = [place for place in syncs if place == 2]
    assert syncs == [2]


def test_misalignment_says_where_a_setting_has_other_seeds():
    rows = [("all", 0), ("all", 1), ("some", 0)]
    steps = pd.DataFrame(
        {
            "setting": setting, "method": "MocoSFL", "seed": seed, "step": step, "synced": False,
            "misalignment_before_sync": 1.0, "misalignment": 1.0,
        }
        for setting, seed in rows
        for step in (1, 2)
    )  # fmt: skip
    figure = drawn(momentum.misalignment(steps, subtitle="2 seeds"))
    assert [axes.get_title("left") for axes in figure.axes] == ["all, n = 2", "some, n = 1"]


def test_identifiability_that_was_nowhere_measured_is_an_empty_panel():
    frame = pd.DataFrame({"cut_layer": [1], "method": ["MocoSFL"], "identifiability": [float("nan")]})
    frame["identifiability_common"] = frame["identifiability"]
    figure = drawn(momentum.identifiability(frame, chance=1.0, x="cut_layer", subtitle="1 of 10 clients"))
    assert key(figure) == ["chance"]


@pytest.mark.parametrize("x", ["setting", "step"])
def test_identifiability_draws_own_and_common_with_chance(x):
    frame = pd.DataFrame(
        {
            "setting": setting, "step": step, "method": method, "seed": seed, "identifiability": 0.9,
            "identifiability_common": 0.2,
        }
        for setting, step in (("long windows", 100), ("short windows", 10))
        for method in ("MocoSFL", "MonAcoSFL")
        for seed in (0, 1)
    )  # fmt: skip
    frame.loc[len(frame)] = {"setting": "long windows", "step": 100, "method": "MocoSFL", "seed": 2}  # not measured
    figure = drawn(momentum.identifiability(frame, chance=0.1, x=x, subtitle="10 clients"))
    (axes,) = figure.axes
    expected = [
        f"{method}, {model}" for method in ("MocoSFL", "MonAcoSFL") for model in ("own models", "one common model")
    ]
    assert key(figure) == [*expected, "chance"]
    assert axes.get_ylabel() == "keys traced to their client (%)"
    if x == "setting":
        assert list(bars(axes).values()) == pytest.approx([0.9, 0.9, 0.2, 0.2] * 2)
    else:
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.9, 0.9])
