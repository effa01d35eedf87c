"""Parameters and multiply-adds of the parts of a model, from widths and depths alone; no model is built.

The parts are those that LW-FedSSL (Tun et al., arXiv:2401.11647) trains and sends separately: what stands before the
first unit, each unit, the final norm, and the heads. The paper states ViT-Tiny with 12 blocks and heads of width 512
and 256; its resource tables decide the rest: no bias in the query-key-value projection, no class token, fixed
positions, heads with batch norm and without biases.

Unit: one multiply-add counts 1, as in fvcore, which the authors used. As there, layer norm counts 5 for each element of
its input and batch norm 2, or 1 without scale and shift; the products of the attention count; biases, softmax,
activations, additions and max-pooling count nothing. Average pooling, 1 for each element in fvcore, is left out: of
ResNet-18 it is a hundred-thousandth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fssl_core.errors import SettingError
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
        return Part(
            self.parameters + other.parameters,
            self.statistics + other.statistics,
            self.counters + other.counters,
            self.macs + other.macs,
        )


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
    projector = mlp_head(encoder.feature_dim, PROJECTOR, output_norm=True)
    return Model(encoder, projector, mlp_head(PROJECTOR[-1], HEADS[ssl_method]))


def vit(
    image_size: int = 32,
    patch_size: int = 4,
    *,
    width: int = 192,
    depth: int = 12,
    mlp_ratio: int = 4,
    channels: int = 3,
) -> Encoder:
    """A vision transformer of pre-norm blocks; the defaults are ViT-Tiny as the paper uses it.

    Args:
        image_size: side in pixels.
        patch_size: side in pixels; divides the image's.
        width: ``D``; the number of attention heads changes neither parameters nor multiply-adds.
        depth: number of blocks, the units.
        mlp_ratio: width of a block's hidden layer over ``D``.
        channels: of an image.

    Raises:
        SettingError: a patch size that does not divide the image size.
    """
    tokens = token_count(image_size, patch_size)  # N
    for name, value in (("width", width), ("depth", depth), ("mlp_ratio", mlp_ratio), ("channels", channels)):
        check_range(name, value, low=1)
    patch = channels * patch_size**2
    attention = 4 * width**2  # query, key, value and output projection: 3 D^2 + D^2
    mlp = 2 * mlp_ratio * width**2
    block = Part(
        parameters=attention + mlp + (1 + mlp_ratio + 1) * width + 2 * 2 * width,  # three biases, two layer norms
        macs=tokens * (attention + mlp) + 2 * tokens**2 * width + 2 * 5 * tokens * width,
    )
    return Encoder(
        stem=Part(parameters=patch * width + width, macs=tokens * patch * width),
        units=(block,) * depth,
        norm=Part(parameters=2 * width, macs=5 * tokens * width),
        feature_dim=width,
        positions=tokens * width,
    )


def token_count(image_size: int, patch_size: int) -> int:
    """``N``: patches of an image; there is no class token.

    Raises:
        SettingError: a patch size that does not divide the image size.
    """
    if patch_size < 1 or image_size % patch_size:
        raise SettingError("patch_size", patch_size, f"a divisor of image_size={image_size}")
    return (image_size // patch_size) ** 2


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
    stem = conv_norm(channels, width, 7, image_size // 2)
    side, inputs, units = image_size // 4, width, []
    for number in range(4):
        outputs = width * 2**number
        side //= 1 if number == 0 else 2
        layers = [conv_norm(inputs, outputs, 3, side), *[conv_norm(outputs, outputs, 3, side)] * 3]
        if inputs != outputs:
            layers.append(conv_norm(inputs, outputs, 1, side))  # the shortcut of the first block
        units.append(total(layers))
        inputs = outputs
    return Encoder(stem, tuple(units), norm=Part(), feature_dim=inputs)


def conv_norm(inputs: int, outputs: int, kernel_size: int, side: int) -> Part:
    """A convolution without bias, whose result is ``side x side``, and its batch norm."""
    conv = Part(inputs * outputs * kernel_size**2, macs=inputs * outputs * kernel_size**2 * side**2)
    return conv + batch_norm(outputs, side**2)


def batch_norm(channels: int, positions: int = 1, *, affine: bool = True) -> Part:
    """Batch norm of ``channels x positions`` elements."""
    scale_and_shift = 2 * channels if affine else 0
    return Part(scale_and_shift, 2 * channels, counters=1, macs=(1 + affine) * channels * positions)


def mlp_head(inputs: int, widths: Sequence[int], *, output_norm: bool = False) -> Part:
    """Linear layers without bias, batch norm after all but the last.

    Args:
        inputs: width of the input.
        widths: of the layers; none: a head that is not there.
        output_norm: batch norm without scale and shift after the last layer.
    """
    layers = []
    for number, width in enumerate(widths, start=1):
        layers.append(Part(inputs * width, macs=inputs * width))
        if number < len(widths) or output_norm:
            layers.append(batch_norm(width, affine=number < len(widths)))
        inputs = width
    return total(layers)
