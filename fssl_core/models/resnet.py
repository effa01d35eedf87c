"""ResNet (He et al., 2016) with the stems of MocoSFL's and MonAcoSFL's code, as units that can be cut apart.

ResNet-18 and deeper have the blocks of the paper; ResNet-10 has one basic block per stage, for small profiles. The
stem is a 3x3 convolution with stride 1 up to 32 px, a 3x3 convolution with stride 2 up to 127 px, and a 7x7 convolution
with stride 2 from 128 px. Only :func:`resnet_imagenet` has a max-pool.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.models.cutting import Backbone
from fssl_core.models.layers import conv_norm


def shortcut(norm: str, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Identity where the shape stays, else a 1x1 convolution and its normalisation."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return conv_norm(norm, in_channels, out_channels, 1, stride)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the ReLU follows the addition."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = conv_norm(norm, in_channels, channels, 3, stride)
        self.conv2 = conv_norm(norm, channels, channels, 3)
        self.shortcut = shortcut(norm, in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.conv2(F.relu_(self.conv1(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, the last with four times the channels; the stride is in the 3x3."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int, norm: str) -> None:
        super().__init__()
        out_channels = self.expansion * channels
        self.conv1 = conv_norm(norm, in_channels, channels, 1)
        self.conv2 = conv_norm(norm, channels, channels, 3, stride)
        self.conv3 = conv_norm(norm, channels, out_channels, 1)
        self.shortcut = shortcut(norm, in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu_(self.conv2(F.relu_(self.conv1(x))))
        return F.relu_(self.conv3(hidden) + self.shortcut(x))


DEPTHS = {  # name: block, number of blocks in each of the four stages
    "resnet10": (BasicBlock, (1, 1, 1, 1)),
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
}


def resnet(name: str, *, width: int, norm: str, image_size: int, channels: int) -> Backbone:
    """A ResNet with units ``stem``, ``layer1_0``, ``layer1_1``, ...: one per block.

    Args:
        name: a key of ``DEPTHS``.
        width: channels of the stem and the first stage; later stages double them.
        norm: ``"group"`` (with weight standardisation), ``"batch"`` or ``"twin"``.
        image_size: side in pixels, which chooses the stem.
        channels: channels of an image.
    """
    block, depths = DEPTHS[name]
    kernel_size, stride = (3, 1) if image_size <= 32 else (3, 2) if image_size < 128 else (7, 2)
    stem = conv_norm(norm, channels, width, kernel_size, stride)
    units: dict[str, nn.Module] = {"stem": stem.append(nn.ReLU(inplace=True))}
    in_channels = width
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            units[f"layer{stage + 1}_{index}"] = block(in_channels, width << stage, stride, norm)
            in_channels = block.expansion * (width << stage)
    return Backbone(units, name=name, feature_dim=in_channels, channels=channels, image_size=image_size)


def resnet_imagenet(name: str, *, width: int, norm: str, image_size: int, channels: int) -> Backbone:
    """ResNet-18 with the stem of the ImageNet paper for all image sizes: 7x7, stride 2, and a max-pool of stride 2.

    LW-FedSSL (Tun et al., Table 4) trains it on images of 32 px: only this stem fits the traffic and the FLOPs that the
    paper prints (``papers/data/accounting_conventions.md``, Section 1.2). Arguments are those of :func:`resnet`.
    """
    backbone = resnet("resnet18", width=width, norm=norm, image_size=224, channels=channels)  # 7x7 from 128 px
    backbone.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
    backbone.name, backbone.image_size = name, image_size
    return backbone
