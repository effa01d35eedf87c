import math

import pytest
import torch

from fssl_core.federation.received import LARGEST, unusable

USUAL = {
    "stem.0.weight": torch.linspace(-3, 3, 5),
    "stem.1.running_mean": torch.tensor([-2.0, 2.0]),
    "stem.1.running_var": torch.tensor([0.0, 900.0]),
    "stem.1.num_batches_tracked": torch.tensor(5e6),  # after 200 rounds of 25,000 steps each
}


def test_what_training_gives_can_be_used():
    assert unusable(USUAL) == ""
    assert unusable({"weight": torch.tensor([LARGEST, -LARGEST])}) == ""


@pytest.mark.parametrize("name", ["stem.0.weight", "stem.1.running_var", "stem.1.num_batches_tracked"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -1e30])
def test_one_value_that_is_not_finite_or_too_large_is_named(name, value):
    spoiled = USUAL[name].clone()
    spoiled.view(-1)[-1] = value
    assert unusable(USUAL | {name: spoiled}).startswith(f"values in {name!r} that are not finite or beyond")


def test_a_variance_is_not_below_zero():
    """The root of it would be NaN for all, and each other value of it is of a usual size."""
    negative = torch.tensor([1.0, -1e-3])
    assert unusable(USUAL | {"stem.1.running_var": negative}) == "a variance below zero in 'stem.1.running_var'"
    assert unusable(USUAL | {"stem.1.running_mean": negative}) == ""
