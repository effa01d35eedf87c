"""First values: their distribution, and that they come from the generator alone."""

import pytest
import torch
from torch import nn

from fssl_core.models import build, build_backbone, initialise_
from fssl_core.models.heads import MLP
from fssl_core.models.layers import BatchNorm2d, Conv2d, ConvTranspose2d
from fssl_core.random import generator


def values(module: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in module.state_dict().values()])


@pytest.mark.parametrize("norm", ["group", "batch", "twin"])
def test_values_follow_from_the_generator_and_not_from_the_global_one(norm):
    before = torch.get_rng_state()
    first, again, other = (
        build_backbone("resnet10", width=4, norm=norm, generator=generator(0, "model", key)) for key in (0, 0, 1)
    )
    assert torch.equal(values(first), values(again))
    assert not torch.equal(values(first), values(other))
    assert torch.equal(
        values(build_backbone("resnet10", width=4, norm=norm)), values(build_backbone("resnet10", width=4, norm=norm))
    )
    MLP(8, (8, 8), generator=generator(0, "model"))
    assert torch.equal(torch.get_rng_state(), before)


def test_plain_layers_are_xavier_uniform_with_zero_bias():
    conv, up = Conv2d(16, 32, 3, bias=True), ConvTranspose2d(16, 32, 3, 2, bias=True)
    layers = nn.ModuleDict({"linear": nn.Linear(50, 30), "conv": conv, "up": up})
    initialise_(layers, generator(0, "model"))
    for layer, fans in ((layers["linear"], 50 + 30), (conv, 9 * (16 + 32)), (up, 9 * (16 + 32))):
        bound = (6 / fans) ** 0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not layer.bias.any()


def test_standardized_convolutions_keep_pytorchs_default():
    conv = initialise_(Conv2d(16, 32, 3, standardize=True), generator(0, "model"))
    bound = (16 * 9) ** -0.5  # kaiming_uniform_ with a = sqrt(5)
    assert conv.weight.abs().max() <= bound
    assert conv.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_norms_start_as_the_identity():
    norm = build(lambda: BatchNorm2d(4))
    expected = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
    for name, value in norm.state_dict().items():
        assert (value == expected[name]).all(), name


@pytest.mark.parametrize(
    "make", [lambda: nn.PReLU(3), lambda: nn.LayerNorm(4), lambda: nn.InstanceNorm2d(4, affine=True)]
)
def test_layers_whose_first_values_are_constants_have_pytorchs(make):
    assert torch.equal(values(build(make)), values(make()))


class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(4))


@pytest.mark.parametrize("make", [lambda: nn.Embedding(3, 4), Mask])
def test_layer_without_a_rule(make):
    """What is built has no values before; of a buffer they would be what the memory held."""
    name = make().__class__.__name__
    with pytest.raises(TypeError, match=rf"no rule to initialise a {name}: add one to models/initialise\.py"):
        build(lambda: nn.Sequential(make()))
