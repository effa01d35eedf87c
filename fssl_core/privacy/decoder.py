"""Decoders from activations back to images: what a model inversion attack trains.

The networks of MocoSFL's and MonAcoSFL's code (``official_code.attack`` of ``papers/data/monacosfl_settings.yaml``), by
their names there: ``res_normN4C64`` is a residual block to 64 channels, four more of them, and two stages that double
the image size where the latent is still too small and are one more block where it is not (three or more stages where
the latent is more than four times too small), and a last block to the image's channels, through a sigmoid.
``conv_normN4C64`` has convolutions with normalisation in place of the blocks.

A decoder is made of :mod:`fssl_core.models.layers`, so the decoders of several targets can be rows of one
:class:`~fssl_core.federation.clients.ClientMatrix`.

Differs from the authors' code: their third decoder, ``custom``, is left out; no convolution has a bias;
the first values are those of :mod:`fssl_core.models.initialise`. With group norm, filters are standardised where the
norm follows at once, and those of a transposed convolution never.
"""

import re
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.models.initialise import build
from fssl_core.models.layers import Conv2d, ConvTranspose2d, conv_norm, norm_layer
from fssl_core.models.resnet import shortcut

Shape = tuple[int, int, int]  # channels, height, width
NORM = "batch"  # of every layer


class DecoderName(NamedTuple):
    """What a name such as ``res_normN4C64`` stands for."""

    residual: bool
    blocks: int  # N: between the first block and the up-sampling
    channels: int  # C

    @classmethod
    def parse(cls, name: str) -> "DecoderName":
        """Read a name.

        Raises:
            SettingError: it is not of the form ``res_normN<blocks>C<channels>`` or ``conv_normN<blocks>C<channels>``.
        """
        match = re.fullmatch(r"(res|conv)_normN(\d+)C([1-9]\d*)", name)
        if match is None:
            expected = "res_normN<blocks>C<channels> or conv_normN<blocks>C<channels>, for example res_normN4C64"
            raise SettingError("decoder", name, expected)
        return cls(match[1] == "res", int(match[2]), int(match[3]))


def decoder_versions(name: str) -> dict[str, int]:
    """Of the decoder with this name, if it is another than when runs were stored: those are computed again."""
    return {} if DecoderName.parse(name).residual else {"conv_norm": 2}


class ResidualBlock(nn.Module):
    """Pre-activation: norm, ReLU and a 3x3 convolution, twice; nothing follows the addition."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm = norm_layer(NORM, in_channels)
        self.conv1 = conv_norm(NORM, in_channels, out_channels, 3)
        self.conv2 = Conv2d(out_channels, out_channels, 3)
        self.shortcut = shortcut(NORM, in_channels, out_channels, stride=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu_(self.conv1(F.relu_(self.norm(x))))
        return self.conv2(hidden) + self.shortcut(x)


def upsamplings(latent_shape: Shape, image_shape: Shape) -> int:
    """How often a latent's height and width are doubled to reach the image's.

    Raises:
        SettingError: the ratio is not the same power of two for both.
    """
    (_, h, w), (_, height, width) = latent_shape, image_shape
    doublings = max(height // h, 1).bit_length() - 1
    if (h << doublings, w << doublings) != (height, width):
        expected = f"height and width of the images, {height} x {width}, divided by one power of two"
        raise SettingError("latent_shape", tuple(latent_shape), expected)
    return doublings


def build_decoder(
    name: str, latent_shape: Shape, image_shape: Shape, *, generator: torch.Generator | None = None
) -> nn.Sequential:
    """A decoder on the CPU with its first values, from ``[B, c, h, w]`` to images ``[B, C, H, W]`` in (0, 1).

    Args:
        name: ``res_normN<blocks>C<channels>`` or ``conv_normN<blocks>C<channels>``.
        latent_shape: (c, h, w) of what a client sends for one image.
        image_shape: (C, H, W).
        generator: source of the first values, on the CPU; without one, always the same values.

    Raises:
        SettingError: for an unknown name, or where the latent cannot be doubled to the image's size.
    """
    residual, blocks, channels = DecoderName.parse(name)
    doublings = upsamplings(latent_shape, image_shape)

    def block(in_channels: int) -> list[nn.Module]:
        make = ResidualBlock(in_channels, channels) if residual else conv_norm(NORM, in_channels, channels, 3)
        return [make, nn.ReLU(inplace=True)]

    def double() -> list[nn.Module]:
        return [ConvTranspose2d(channels, channels, 3, 2), norm_layer(NORM, channels), nn.ReLU(inplace=True)]

    def make() -> nn.Sequential:
        stages = [block(latent_shape[0])] + [block(channels) for _ in range(blocks)]
        stages += [double() for _ in range(doublings)] + [block(channels) for _ in range(2 - doublings)]
        colours = image_shape[0]
        last = ResidualBlock(channels, colours) if residual else conv_norm(NORM, channels, colours, 3)
        return nn.Sequential(*(layer for stage in stages for layer in stage), last, nn.Sigmoid())

    return build(make, generator)
