"""Random numbers by seed and purpose."""

import numpy as np
import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.random import generator


def drawn(*arguments):
    return torch.rand(3, generator=generator(*arguments)).tolist()


def test_equal_arguments_draw_equal_numbers_and_others_do_not():
    assert drawn(1, "order", 2) == drawn(np.int64(1), "order", torch.tensor(2))
    others = [(2, "order", 2), (1, "augment", 2), (1, "order", 3), (1, "order"), (1, "order", 2, 0), (12, "order")]
    assert len({tuple(drawn(*one)) for one in [(1, "order", 2), *others]}) == 7


@pytest.mark.parametrize("seed", [0.5, 1.0, "1", None, [1]])
def test_a_seed_is_a_whole_number(seed):
    """0.5 would draw what 0 draws, under another name."""
    with pytest.raises(SettingError, match=r"^seed=.* cannot be used: expected a whole number\.$"):
        generator(seed, "order")
