"""Decoders: their layers by name and by what is missing in size, and the residual block step by step."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.models import build
from fssl_core.models.layers import BatchNorm2d, Conv2d, ConvTranspose2d
from fssl_core.privacy.decoder import ResidualBlock, build_decoder, upsamplings
from fssl_core.random import generator


def count(decoder: nn.Module, kind: type) -> int:
    return sum(isinstance(layer, kind) for layer in decoder.modules())


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(0, "test"), dtype=torch.float64)


def test_doublings_at_the_cuts_of_resnet18_are_those_of_the_authors():
    sides = [32, 32, 32, 16, 16, 8, 8, 4, 4]  # of the latent at cuts 1, 3, ..., 17
    assert [upsamplings((64, side, side), (3, 32, 32)) for side in sides] == [0, 0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("latent", "blocks", "doublings"),
    [((8, 32, 32), 8, 0), ((8, 16, 16), 7, 1), ((8, 8, 8), 6, 2), ((8, 4, 4), 6, 3), ((8, 2, 2), 6, 4)],
)
def test_the_authors_decoder_has_two_stages_that_double_or_are_blocks(latent, blocks, doublings):
    decoder = build_decoder("res_normN4C64", latent, (3, 32, 32))
    assert (count(decoder, ResidualBlock), count(decoder, ConvTranspose2d)) == (blocks, doublings)
    assert count(decoder, nn.ReLU) == blocks - 1 + doublings  # after every stage but the last
    images = decoder(torch.randn(2, *latent, generator=generator(0, "test")))
    assert images.shape == (2, 3, 32, 32)
    assert images.min() > 0
    assert images.max() < 1
    assert all(layer.stride == (2, 2) for layer in decoder.modules() if isinstance(layer, ConvTranspose2d))


def test_the_plain_decoder_has_a_convolution_in_place_of_every_block():
    decoder = build_decoder("conv_normN2C8", (4, 8, 8), (1, 16, 16))
    assert (count(decoder, Conv2d), count(decoder, ConvTranspose2d), count(decoder, BatchNorm2d)) == (5, 1, 6)
    conv, norm = decoder[-2]  # the authors' decoder normalises in front of the sigmoid, too
    assert (conv.bias, norm.num_features, type(decoder[-1])) == (None, 1, nn.Sigmoid)
    assert decoder(torch.zeros(2, 4, 8, 8)).shape == (2, 1, 16, 16)


@pytest.mark.parametrize("channels", [4, 6])
def test_residual_block_is_norm_relu_convolution_twice_beside_a_shortcut(channels):
    block = build(lambda: ResidualBlock(4, channels), generator(0, "block")).double().eval()
    x = 3 * normal(2, 4, 5, 5)
    state = block.state_dict()
    scale = (1 + 1e-5) ** 0.5  # an untrained batch norm in evaluation mode only divides by this
    hidden = F.conv2d((x / scale).clamp_min(0), state["conv1.0.weight"], padding=1)
    expected = F.conv2d((hidden / scale).clamp_min(0), state["conv2.weight"], padding=1)
    expected += x if channels == 4 else F.conv2d(x, state["shortcut.0.weight"]) / scale
    torch.testing.assert_close(block(x), expected, rtol=1e-10, atol=1e-10)


def test_first_values_come_from_the_generator():
    first, again, other = (
        torch.cat(
            [value.flatten() for value in build_decoder("res_normN0C8", (4, 4, 4), (1, 8, 8), **given).parameters()]
        )
        for given in ({}, {}, {"generator": generator(1, "decoder")})
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["custom", "res_normN4", "res_normN4C0", "res_normN-1C8", "vgg_normN4C64"])
def test_unknown_name(name):
    with pytest.raises(SettingError, match=rf"decoder='{name}' .* expected res_normN<blocks>C<channels> or conv_normN"):
        build_decoder(name, (4, 4, 4), (3, 8, 8))


@pytest.mark.parametrize("latent", [(4, 5, 5), (4, 8, 4), (4, 64, 64), (4, 3, 3), (4, 11, 11)])
def test_a_latent_that_doubling_does_not_bring_to_the_size_of_the_image(latent):
    with pytest.raises(SettingError, match="height and width of the images, 32 x 32, divided by one power of two"):
        build_decoder("res_normN4C64", latent, (3, 32, 32))
