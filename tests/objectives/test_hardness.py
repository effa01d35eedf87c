"""Hardness of a memory: closed form against sum, growth, and the keys that a real queue holds."""

from itertools import pairwise

import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.objectives.hardness import hardness, queue_hardness, summed_hardness
from fssl_core.objectives.moco import KeyQueue

GAMMAS = (0.3, 0.5, 0.9, 0.99, 0.9999)
MEMORY = 6000
DIVISORS = [batch for batch in range(1, MEMORY + 1) if MEMORY % batch == 0]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(
    ("batch", "memory"), [(1, 6000), (100, 6000), (101, 6000), (7, 20), (20, 20), (21, 20), (3, 0)]
)
def test_closed_form_equals_the_sum(batch, memory, gamma):
    expected = summed_hardness(batch, memory, 0.7, gamma)
    assert hardness(batch, memory, 0.7, gamma) == pytest.approx(expected, rel=1e-9, abs=0)


def test_by_hand():
    assert summed_hardness(2, 7, 0.5, 0.5) == 2 * 0.5 * (0.5 + 0.25 + 0.125)
    assert queue_hardness(2, 7, 0.5, 0.5) == 2 * 0.5 * (0.5 + 0.25 + 0.125) + 1 * 0.5 * 0.0625


@pytest.mark.parametrize("gamma", GAMMAS)
def test_grows_with_the_batch_where_it_divides_the_memory(gamma):
    values = [hardness(batch, MEMORY, 1.0, gamma) for batch in DIVISORS]
    assert all(small < large for small, large in pairwise(values))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_never_falls_when_the_memory_grows(gamma):
    values = [hardness(100, memory, 1.0, gamma) for memory in range(6001)]
    assert values == sorted(values)


def test_floor_makes_a_larger_batch_worse():
    # a memory of 6: two batches of 3, but only one of 4, and none of 7
    for gamma, falls in ((0.2, False), (0.34, True), (0.9, True)):  # 3 + 3 gamma > 4 above 1/3
        assert (hardness(4, 6, 1.0, gamma) < hardness(3, 6, 1.0, gamma)) == falls
    assert hardness(7, 6, 1.0, 0.9) == 0
    assert hardness(3001, MEMORY, 1.0, 0.99) < 0.51 * hardness(3000, MEMORY, 1.0, 0.99)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_queue_never_loses_by_a_larger_batch_and_agrees_at_divisors(gamma):
    values = [queue_hardness(batch, MEMORY, 1.0, gamma) for batch in range(1, MEMORY + 500)]
    assert all(large >= small * (1 - 1e-12) for small, large in pairwise(values))
    assert [values[batch - 1] for batch in DIVISORS] == [hardness(batch, MEMORY, 1.0, gamma) for batch in DIVISORS]


@pytest.mark.parametrize(("batch", "memory"), [(4, 12), (5, 12), (7, 12), (12, 12), (20, 12), (1, 3)])
def test_queue_of_the_loss_holds_what_is_counted(batch, memory):
    queue = KeyQueue(memory, 1)
    steps = 40
    for step in range(steps):
        queue.push(torch.full((batch, 1), float(step)))
    age = steps - queue.keys.flatten().double()
    assert queue_hardness(batch, memory, 0.8, 0.6) == pytest.approx((0.8 * 0.6**age).sum().item(), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch", 0, "at least 1"),
        ("memory", -1, "at least 0"),
        ("eta", 0.0, "a number above 0"),
        ("gamma", 1.0, "a number above 0 and below 1"),
        ("gamma", 0.0, "a number above 0 and below 1"),
        ("gamma", float("nan"), "a number above 0 and below 1"),
    ],
)
@pytest.mark.parametrize("function", [summed_hardness, hardness, queue_hardness])
def test_bad_values(function, name, value, expected):
    values = {"batch": 4, "memory": 12, "eta": 1.0, "gamma": 0.5, name: value}
    with pytest.raises(SettingError, match=rf"{name}=.* cannot be used: expected {expected}\."):
        function(**values)
