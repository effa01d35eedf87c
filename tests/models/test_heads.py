"""Pooling and the heads against their formulas."""

import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.models import GlobalPool
from fssl_core.models.heads import MLP, OUTPUT_NORMS
from fssl_core.random import generator


def test_global_pool_is_the_mean_over_pixels():
    x = torch.arange(24.0).view(1, 2, 3, 4)
    assert GlobalPool()(x).tolist() == [[sum(range(12)) / 12, sum(range(12, 24)) / 12]]


def test_projector_is_linear_relu_linear():
    projector = MLP(6, (5, 4), batch_norm=False, generator=generator(0, "model")).double()
    x = torch.randn(3, 6, generator=generator(0, "test"), dtype=torch.float64)
    w1, b1, w2, b2 = projector.state_dict().values()
    torch.testing.assert_close(projector(x), (x @ w1.T + b1).clamp(min=0) @ w2.T + b2, rtol=1e-12, atol=1e-12)


def plain_mlp(mlp: MLP, affine: bool) -> nn.Sequential:
    """PyTorch's own layers with the same values."""
    copy = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4, bias=False)).append(
        nn.BatchNorm1d(4, affine=affine)
    )
    copy.load_state_dict(mlp.state_dict())
    return copy.double()


@pytest.mark.parametrize("output_norm", ["affine", "plain"])
def test_mlp_with_batch_norm_at_its_end_is_pytorchs(output_norm):
    mlp = MLP(6, (5, 4), output_norm=output_norm, generator=generator(0, "model")).double()
    plain = plain_mlp(mlp, output_norm == "affine")
    x = torch.randn(7, 6, generator=generator(0, "test"), dtype=torch.float64)
    for train in (True, False):  # evaluation uses the statistics of the batch before
        torch.testing.assert_close(mlp.train(train)(x), plain.train(train)(x), rtol=0, atol=1e-12)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(mlp.state_dict()[name].to(value), value, rtol=0, atol=1e-12)


def test_mlp_has_a_bias_at_its_end_where_asked_and_of_use():
    for values, expected in (({}, True), ({"output_bias": False}, False), ({"output_norm": "plain"}, False)):
        assert ("3.bias" in MLP(6, (5, 4), **values).state_dict()) == expected


def test_mlps_first_values_do_not_depend_on_the_norm_at_its_end():
    weights = [MLP(6, (5, 4), output_norm=norm, generator=generator(0, "m"))[3].weight for norm in OUTPUT_NORMS]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_an_unknown_norm_is_named():
    with pytest.raises(SettingError, match="output_norm='group'"):
        MLP(6, (5, 4), output_norm="group")
