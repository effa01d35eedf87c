"""ResNet-18 with the stem of the ImageNet paper (He et al., CVPR 2016): 7x7, stride 2, and a max-pool of stride 2.

LW-FedSSL (Tun et al., Table 4) trains it on images of 32 px: only this stem fits the traffic and the FLOPs that the
paper prints (``papers/data/accounting_conventions.md``, Section 1.2).
"""

from torch import nn

from fssl_core.models.cutting import Backbone
from fssl_core.models.resnet import resnet


def resnet_imagenet(name: str, *, width: int, norm: str, image_size: int, channels: int) -> Backbone:
    """Arguments as those of :func:`~fssl_core.models.resnet.resnet`; the stem is the same for all image sizes."""
    backbone = resnet("resnet18", width=width, norm=norm, image_size=224, channels=channels)  # 7x7 from 128 px
    backbone.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
    backbone.name, backbone.image_size = name, image_size
    return backbone
