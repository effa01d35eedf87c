"""Parameters and multiply-adds of the parts of a model, counted on the engine's own modules without computing anything.

The parts are those that LW-FedSSL (Tun et al., arXiv:2401.11647) trains and sends separately: what stands before the
first unit, each unit, the final norm, and the heads. The paper states ViT-Tiny with 12 blocks and heads of width 512
and 256; its resource tables decide the rest: no bias in the query-key-value projection, no class token, fixed
positions, heads with batch norm and without biases.

Multiply-adds are those of :mod:`fssl_core.costs.compute`, but for average pooling: of ResNet-18 it is a
hundred-thousandth.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from operator import add

from torch import nn

from fssl_core.costs.compute import forward_macs
from fssl_core.errors import SettingError
from fssl_core.models import Backbone, build_backbone
from fssl_core.models.cutting import output_shape
from fssl_core.models.heads import MLP
from fssl_core.models.stages import stages
from fssl_core.models.vit import vit as vit_backbone
from fssl_core.settings import check_choice, check_range

PROJECTOR = (512, 512, 256)  # widths of the projector H (Section 4.1)
HEADS = {"MoCoV3": (512, 256), "BYOL": (512, 256), "SimCLR": ()}  # widths of the predictor P: none with SimCLR


@dataclass(frozen=True)
class Part:
    """Sizes of one part.

    Args:
        parameters: values that are trained.
        statistics: running means and variances of batch norms, sent with the parameters.
        counters: batch norms, each of which has a counter of steps. The paper's traffic leaves no room for them (with
            them Prog-FedSSL at 224 pixels would round to 5.27 GB, not 5.26); in this package they are sent.
        macs: multiply-adds of a forward pass of one input.
    """

    parameters: int = 0
    statistics: int = 0
    counters: int = 0
    macs: int = 0

    @property
    def values(self) -> int:
        """What crosses the network when the part is sent, by the paper's count."""
        return self.parameters + self.statistics

    def __add__(self, other: "Part") -> "Part":
        return Part(*map(add, astuple(self), astuple(other)))


def total(parts: Sequence[Part]) -> Part:
    """All parts as one."""
    return sum(parts, Part())


@dataclass(frozen=True)
class Encoder:
    """An encoder that is trained unit by unit.

    Args:
        stem: what stands before the first unit and is trained with it.
        units: ``[L_1, ..., L_S]``.
        norm: what follows the last unit and is always trained.
        feature_dim: width of the output.
        positions: values of a table that nobody trains, sent with a whole sub-model.
    """

    stem: Part
    units: tuple[Part, ...]
    norm: Part
    feature_dim: int
    positions: int = 0


@dataclass(frozen=True)
class Model:
    """An encoder ``F`` with its projection head ``H`` and prediction head ``P``."""

    encoder: Encoder
    projector: Part
    predictor: Part

    @property
    def heads(self) -> Part:
        return self.projector + self.predictor


def build_model(encoder: Encoder, ssl_method: str) -> Model:
    """An encoder with the paper's heads, ``H`` of widths ``PROJECTOR`` and ``P`` of those in ``HEADS``.

    Raises:
        SettingError: another method than MoCoV3, BYOL and SimCLR.
    """
    check_choice("ssl_method", ssl_method, HEADS)
    predictor = mlp_head(PROJECTOR[-1], HEADS[ssl_method]) if HEADS[ssl_method] else Part()
    return Model(encoder, mlp_head(encoder.feature_dim, PROJECTOR, output_norm="plain"), predictor)


def counted(module: nn.Module, input_shape: Sequence[int]) -> Part:
    """Sizes of a module that gets inputs of this shape, without the batch."""
    statistics = sum(value.numel() for name, value in module.named_buffers() if "running_" in name)
    counters = sum(name.endswith("num_batches_tracked") for name, _ in module.named_buffers())
    macs = forward_macs(module, input_shape)
    parameters = sum(value.numel() for value in module.parameters())
    return Part(parameters, statistics, counters, macs.products + macs.normalisation)


def encoder_of(backbone: Backbone) -> Encoder:
    """A backbone by its parts.

    Args:
        backbone: a vision transformer or a ResNet; its first unit is the stem.
    """
    modules, layers = dict(backbone.named_children()), stages(backbone)
    first, *units = layers.added
    groups = [first[:1], first[1:], *units, *([layers.tail] if layers.tail else [])]
    shape, parts = (backbone.channels, backbone.image_size, backbone.image_size), []
    for names in groups:
        part = nn.Sequential(*(modules[name] for name in names))
        parts.append(counted(part, shape))
        shape = output_shape(part, shape[0], shape[1])
    stem, *units = parts
    norm = units.pop() if layers.tail else Part()
    positions = sum(value.numel() for name, value in backbone.named_buffers() if name.endswith("positions"))
    return Encoder(stem, tuple(units), norm, backbone.feature_dim, positions)


@cache
def vit(image_size: int = 32, patch_size: int = 4, *, width: int = 192, depth: int = 12, channels: int = 3) -> Encoder:
    """A vision transformer of pre-norm blocks; the defaults are ViT-Tiny as the paper uses it.

    Args:
        image_size: side in pixels.
        patch_size: side in pixels; divides the image's.
        width: numbers of a token, a multiple of 4; how many attention heads share them changes no size.
        depth: number of blocks, the units.
        channels: of an image.

    Raises:
        SettingError: a patch size that does not divide the image size.
    """
    token_count(image_size, patch_size)
    for name, value in (("width", width), ("depth", depth), ("channels", channels)):
        check_range(name, value, low=1)
    shape = {"image_size": image_size, "channels": channels, "patch": patch_size}
    return encoder_of(vit_backbone("vit", width=width, heads=1, norm="layer", depth=depth, **shape))


def token_count(image_size: int, patch_size: int) -> int:
    """``N``: patches of an image; there is no class token.

    Raises:
        SettingError: a patch size that does not divide the image size.
    """
    if patch_size < 1 or image_size % patch_size:
        raise SettingError("patch_size", patch_size, f"a divisor of image_size={image_size}")
    return (image_size // patch_size) ** 2


@cache
def resnet18(image_size: int = 32, *, width: int = 64, channels: int = 3) -> Encoder:
    """ResNet-18 with the stem for ImageNet, 7x7 stride 2 and max-pooling, and its four stages as units.

    That stem fits Table 4 at 32 pixels. The temporary layer that reshapes a sub-model's output to 512 is neither sent
    nor counted there.

    Args:
        image_size: side in pixels, a multiple of 32.
        width: channels of the stem; each stage after the first doubles them.

    Raises:
        SettingError: a side that is not a multiple of 32.
    """
    if image_size < 32 or image_size % 32:
        raise SettingError("image_size", image_size, "a positive multiple of 32, which the strides divide")
    shape = {"image_size": image_size, "channels": channels}
    return encoder_of(build_backbone("resnet18-imagenet", norm="batch", width=width, **shape))


@cache
def mlp_head(inputs: int, widths: tuple[int, ...], *, output_norm: str = "none") -> Part:
    """A head of the engine, :class:`~fssl_core.models.heads.MLP`, without a bias after its last layer."""
    return counted(MLP(inputs, widths, output_norm=output_norm, output_bias=False), (inputs,))
