"""The two modules of MFCL, and the decoder that the first is trained with.

MFCL: Motamedi and Kim, Section 2.1, Tables 1, 9, 10 and 15. A client holds the first ``cut`` convolutions of a network
and trains them, with a decoder that mirrors them, to reconstruct images; the rServer holds the rest, which it trains on
the maps that clients send.

The client module is a plain stack of 3x3 convolutions with bias, each followed by a norm and ReLU:

- ``resnet18`` and ``resnet10``: the network's own convolutions without its shortcuts. That is Table 9 for a cut at 2.
  Table 1 has cuts up to 7 and gives only the count: from 6 on, ResNet-18 has one of stride 2, as in the network.
- ``resnet50``: Table 10 (64, 64, 128 and 128 channels, all of stride 1), which are not the network's own. What would
  follow is open: more of the last width.
- ``vgg16``: the network's own. Pooling comes before the convolution that follows it, so maps are never pooled last.

The rest is what the network has behind its first ``cut`` convolutions. Where the cut goes through a residual block, the
block's input is not there any more, and its other convolutions go without a shortcut. Where the stack has other
channels than the network, the first layers behind the cut take those, a whole block by a projection in its shortcut.

Differs from the paper: Tables 9 and 10 pool at the end of the client module and never restore the resolution, while
Table 3 counts unpooled maps. Here, as in public code of the first author, maps are not pooled, the decoder starts with
the pooling, and its last transposed convolution has stride 2. ``as_printed=True`` leaves that stride out. A sigmoid
ends the decoder, since the loss, binary cross-entropy, needs values from 0 to 1; the tables do not have it.
"""

import math
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.models.cutting import Backbone
from fssl_core.models.initialise import build
from fssl_core.models.layers import Conv2d, ConvTranspose2d, conv_norm, norm_layer
from fssl_core.models.resnet import DEPTHS, BasicBlock, Bottleneck
from fssl_core.models.vgg import BLOCKS, pool, vgg16
from fssl_core.settings import check_choice, check_range

CUTS = {"resnet10": 2, "resnet18": 2, "resnet50": 4, "vgg16": 2}  # Tables 9, 10 and 15; ResNet-10 is ours
LARGEST_CUT = 7  # Table 1
GROUP_NORM_CHANNELS = 16  # per group: where Table 17 has the accuracy that Table 2 gives for group norm


class Layer(NamedTuple):
    """A convolution of the plain stack."""

    in_channels: int
    out_channels: int
    stride: int = 1
    pooled: bool = False  # a 2x2 max-pooling comes before it

    @property
    def shrinks(self) -> int:
        """What it divides height and width by."""
        return self.stride * (2 if self.pooled else 1)


def plain_stack(architecture: str, cut: int, *, width: int = 64, channels: int = 3) -> list[Layer]:
    """The convolutions of a client module.

    Args:
        architecture: a key of ``CUTS``.
        cut: how many.
        width: channels of the first.
        channels: channels of an image.

    Raises:
        SettingError: an argument that cannot be used.
    """
    check_choice("architecture", architecture, CUTS)
    check_choice("cut", cut, range(1, LARGEST_CUT + 1))
    check_range("width", width, low=1)
    check_range("channels", channels, low=1)
    if architecture == "vgg16":
        layers = [(factor, 1, factor > 1 and i == 0) for factor, depth in BLOCKS for i in range(depth)]
    elif architecture == "resnet50":
        layers = [(1, 1, False)] * 2 + [(2, 1, False)] * (LARGEST_CUT - 2)
    else:
        layers = [(1, 1, False)]
        for stage, depth in enumerate(DEPTHS[architecture][1]):
            first = 2 if stage > 0 else 1
            layers += [(1 << stage, first if i == 0 else 1, False) for i in range(2 * depth)]
    stack, in_channels = [], channels
    for factor, stride, pooled in layers[:cut]:
        stack.append(Layer(in_channels, factor * width, stride, pooled))
        in_channels = factor * width
    return stack


def client_module(
    architecture: str,
    cut: int,
    norm: str = "twin",
    *,
    width: int = 64,
    channels: int = 3,
    image_size: int = 32,
    channels_per_group: int | None = None,
    variance: str = "pooled",
    generator: torch.Generator | None = None,
) -> Backbone:
    """The first layers of a network, on the CPU: images ``[B, channels, H, W]`` to maps ``[B, feature_dim, h, w]``.

    Args:
        architecture: a key of ``CUTS``.
        cut: number of convolutions, 1 to 7; ``CUTS`` has the paper's.
        norm: ``"twin"``, ``"group"`` or ``"batch"``. No filters are standardised.
        width: channels of the first convolution, 64 in the paper.
        channels: channels of an image.
        image_size: side of an image in pixels. It does not change the model.
        channels_per_group: of group and twin norm, or all channels where there are fewer; None: 16 and 8, or all
            channels where that does not divide them.
        variance: of twin norm, see :class:`~fssl_core.models.twin_norm.TwinNorm`.
        generator: source of the first values, on the CPU; without one, always the same values.

    Raises:
        SettingError: an argument that cannot be used.
    """
    stack = plain_stack(architecture, cut, width=width, channels=channels)
    for layer in stack if channels_per_group else ():
        if layer.out_channels > channels_per_group and layer.out_channels % channels_per_group:
            expected = f"a divisor of the {layer.out_channels} channels of a layer, or at least as many"
            raise SettingError("channels_per_group", channels_per_group, expected)
    normalisation = (norm, channels_per_group, variance)
    return build(lambda: _client_module(architecture, stack, image_size, *normalisation), generator)


def _client_module(
    architecture: str,
    stack: list[Layer],
    image_size: int,
    norm: str,
    channels_per_group: int | None = None,
    variance: str = "pooled",
) -> Backbone:
    units: dict[str, nn.Module] = {}
    for index, layer in enumerate(stack, start=1):
        conv = Conv2d(layer.in_channels, layer.out_channels, 3, layer.stride, bias=True)
        tail = _norm_relu(layer.out_channels, norm, channels_per_group, variance)
        units[f"conv{index}"] = nn.Sequential(*([pool()] if layer.pooled else []), conv, *tail)
    options = {"name": architecture, "channels": stack[0].in_channels, "image_size": image_size}
    return Backbone(units, feature_dim=stack[-1].out_channels, **options)


def decoder(
    architecture: str,
    cut: int,
    norm: str = "twin",
    *,
    as_printed: bool = False,
    width: int = 64,
    channels: int = 3,
    image_size: int = 32,
    channels_per_group: int | None = None,
    variance: str = "pooled",
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """The mirror of a client module, on the CPU: maps ``[B, C, h, w]`` to images ``[B, channels, H, W]`` in (0, 1).

    Args:
        as_printed: no transposed convolution of stride 2 makes up for the pooling; images have half the side.

    The other arguments are those of the :func:`client_module` that it decodes.

    Raises:
        SettingError: an argument that cannot be used.
    """
    stack = plain_stack(architecture, cut, width=width, channels=channels)
    halvings = 2 * math.prod(layer.shrinks for layer in stack)
    if image_size % halvings:
        raise SettingError("image_size", image_size, f"a multiple of {halvings}, which the decoder doubles back to")

    def make() -> nn.Sequential:
        units: dict[str, nn.Module] = {"pool": nn.MaxPool2d(2, 2)}
        for index, layer in reversed(list(enumerate(stack, start=1))):
            stride = layer.shrinks * (1 if as_printed or index > 1 else 2)
            up = ConvTranspose2d(layer.out_channels, layer.in_channels, 3, stride, bias=True)
            units[f"up{index}"] = nn.Sequential(up, *_norm_relu(layer.in_channels, norm, channels_per_group, variance))
        units["conv"] = Conv2d(channels, channels, 3, bias=True)
        units["sigmoid"] = nn.Sigmoid()
        return nn.Sequential(OrderedDict(units))

    return build(make, generator)


def _norm_relu(channels: int, norm: str, channels_per_group: int | None, variance: str) -> tuple[nn.Module, nn.Module]:
    if norm == "group" and channels_per_group is None:
        channels_per_group = GROUP_NORM_CHANNELS
    return norm_layer(norm, channels, channels_per_group, variance), nn.ReLU(inplace=True)


def remaining_backbone(
    architecture: str,
    cut: int,
    *,
    norm: str = "batch",
    width: int = 64,
    image_size: int = 32,
    generator: torch.Generator | None = None,
) -> Backbone:
    """The rServer's part, on the CPU: maps ``[B, channels, h, w]`` of a client module to ``[B, feature_dim, h', w']``.

    Its units have their names in the whole network; ``channels`` and ``image_size`` are those of the maps.

    Args:
        architecture, cut, width, image_size: those of the :func:`client_module`.
        norm: batch norm in the paper.
        generator: source of the first values, on the CPU; without one, always the same values.

    Raises:
        SettingError: an argument that cannot be used.
    """
    stack = plain_stack(architecture, cut, width=width)
    return build(lambda: _remaining_backbone(architecture, stack, image_size, norm), generator)


def _remaining_backbone(architecture: str, stack: list[Layer], image_size: int, norm: str) -> Backbone:
    side = image_size
    for layer in stack:
        side = math.ceil(side / layer.shrinks)
    cut, width, in_channels = len(stack), stack[0].out_channels, stack[-1].out_channels
    if architecture == "vgg16":
        whole = vgg16(architecture, width=width, norm=norm, image_size=image_size, channels=stack[0].in_channels)
        units, feature_dim = dict(list(whole.named_children())[cut:]), whole.feature_dim
    else:
        units, feature_dim = _remaining_blocks(architecture, cut, in_channels, width, norm)
    return Backbone(units, name=architecture, feature_dim=feature_dim, channels=in_channels, image_size=side)


def _remaining_blocks(
    architecture: str, cut: int, in_channels: int, width: int, norm: str
) -> tuple[dict[str, nn.Module], int]:
    """Residual blocks behind the first ``cut`` convolutions of a ResNet, and their last number of channels."""
    block, depths = DEPTHS[architecture]
    convolutions = 3 if block is Bottleneck else 2
    units: dict[str, nn.Module] = {}
    before = 1  # convolutions before the block: the stem's
    for stage, depth in enumerate(depths):
        for index in range(depth):
            taken = min(max(cut - before, 0), convolutions)  # by the client
            before += convolutions
            if taken < convolutions:
                stride = 2 if stage > 0 and index == 0 else 1
                whole = block(in_channels, width << stage, stride, norm)
                units[f"layer{stage + 1}_{index}"] = _behind(whole, taken, in_channels, norm) if taken else whole
                in_channels = block.expansion * (width << stage)
    return units, in_channels


def _behind(block: BasicBlock | Bottleneck, taken: int, in_channels: int, norm: str) -> nn.Sequential:
    """The convolutions of a block behind its first ``taken``, each with norm and ReLU, without the shortcut."""
    names = [name for name, _ in block.named_children() if name != "shortcut"][taken:]
    units: dict[str, nn.Module] = {}
    for name in names:
        conv = block.get_submodule(name)[0]
        layers = conv_norm(norm, in_channels, conv.out_channels, conv.kernel_size[0], conv.stride[0])
        units[name] = layers.append(nn.ReLU(inplace=True))
        in_channels = conv.out_channels
    return nn.Sequential(OrderedDict(units))


def joined(client: Backbone, rest: Backbone) -> Backbone:
    """One model of the two modules, which it shares: what is deployed in the end (Section 2.1).

    Its first unit, ``client_module``, is the client's; a cut with label 1 takes it apart again.

    Args:
        client: of :func:`client_module`.
        rest: of :func:`remaining_backbone`.

    Raises:
        SettingError: ``rest`` takes other maps than ``client`` gives.
    """
    if client.feature_dim != rest.channels:
        raise SettingError("rest", f"{rest.name} for maps of {rest.channels} channels", f"one for {client.feature_dim}")
    units = {"client_module": client, **dict(rest.named_children())}
    options = {"name": rest.name, "channels": client.channels, "image_size": client.image_size}
    return Backbone(units, feature_dim=rest.feature_dim, **options)


def modular(architecture: str, *, width: int, norm: str, image_size: int, channels: int) -> Backbone:
    """A whole network of both modules, cut as in the paper: ``norm`` in the client module, batch norm behind it.

    It is trained from end to end in Table 5: FedSimCLR with another norm after its first convolutions. The arguments
    are those of :func:`client_module`.
    """
    stack = plain_stack(architecture, CUTS[architecture], width=width, channels=channels)
    client = _client_module(architecture, stack, image_size, norm)
    backbone = joined(client, _remaining_backbone(architecture, stack, image_size, "batch"))
    backbone.name = f"{architecture}-modular"
    return backbone
