"""MobileNetV2 (Sandler et al., 2018) in the variant of MocoSFL's and MonAcoSFL's code, as units that can be cut apart.

Differences from the paper, all as in that code: ReLU instead of ReLU6, and none after the stem and after the last
convolution, so that both end with their normalisation; residual connections in all blocks of stride 1,
with a 1x1 projection where the number of channels changes; the strides of CIFAR unless asked otherwise. The
projection is a plain convolution with batch norm even where all other normalisations are group norms, which is why a
client of batch 1 has running statistics in this model.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.models.cutting import Backbone
from fssl_core.models.layers import CHANNELS_PER_GROUP, conv_norm
from fssl_core.models.resnet import shortcut
from fssl_core.settings import check_choice

# Expansion, channels and number of blocks of the seven stages
STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
STEM_CHANNELS, LAST_CHANNELS = 32, 1280
STRIDES = {  # of the stem and of the first block of each stage
    "cifar": (1, 1, 1, 2, 2, 1, 2, 1),
    "imagenet": (2, 1, 2, 2, 2, 1, 2, 1),
}


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection without activation; a residual connection at stride 1."""

    def __init__(self, in_channels: int, out_channels: int, expansion: int, stride: int, norm: str) -> None:
        super().__init__()
        hidden = expansion * in_channels
        self.expand = conv_norm(norm, in_channels, hidden, 1)
        self.depthwise = conv_norm(norm, hidden, hidden, 3, stride, groups=hidden)
        self.project = conv_norm(norm, hidden, out_channels, 1)
        self.stride = stride
        if stride == 1:
            self.shortcut = shortcut("batch", in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(F.relu_(self.depthwise(F.relu_(self.expand(x)))))
        return out + self.shortcut(x) if self.stride == 1 else out


def mobilenetv2(
    name: str, *, width: int, norm: str, image_size: int, channels: int, strides: str = "cifar"
) -> Backbone:
    """MobileNetV2 with units ``stem``, ``stage1`` to ``stage7`` and ``last``.

    The other arguments are those of :func:`~fssl_core.models.build_backbone`; ``image_size`` does not change the model.

    Args:
        width: 64 for the paper's channels; other widths scale them, to the nearest multiple of four.
        strides: ``"cifar"`` (three halvings, the papers' model at every image size) or ``"imagenet"`` (five).

    Raises:
        SettingError: unknown ``strides``.
    """
    check_choice("strides", strides, STRIDES)

    def scaled(count: int) -> int:
        return max(1, round(count * width / 64 / CHANNELS_PER_GROUP)) * CHANNELS_PER_GROUP

    stem_stride, *stage_strides = STRIDES[strides]
    in_channels = scaled(STEM_CHANNELS)
    units: dict[str, nn.Module] = {"stem": conv_norm(norm, channels, in_channels, 3, stem_stride)}
    for stage, ((expansion, count, depth), first_stride) in enumerate(zip(STAGES, stage_strides, strict=True), start=1):
        blocks = nn.Sequential()
        for index in range(depth):
            stride = first_stride if index == 0 else 1
            blocks.append(InvertedResidual(in_channels, scaled(count), expansion, stride, norm))
            in_channels = scaled(count)
        units[f"stage{stage}"] = blocks
    units["last"] = conv_norm(norm, in_channels, scaled(LAST_CHANNELS), 1)
    return Backbone(units, name=name, feature_dim=scaled(LAST_CHANNELS), channels=channels, image_size=image_size)
