"""VGG-16-BN (Simonyan and Zisserman, ICLR 2015, configuration D, with batch norm), as units that can be cut apart.

MFCL trains it on CIFAR-10 (Table 15). The three dense layers of the original are left out: as of any backbone here,
maps come out, which a global mean makes features. Convolutions have a bias, as in torchvision's ``vgg16_bn``, whose
features these are for an image side that five halvings leave whole; where they do not, the pooling here rounds up, so
that images smaller than 32 px have a map of one pixel at the end and not none.
"""

from torch import nn

from fssl_core.models.cutting import Backbone
from fssl_core.models.layers import conv_norm

BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # of each block: channels over the width, convolutions


def vgg16(name: str, *, width: int, norm: str, image_size: int, channels: int) -> Backbone:
    """VGG-16 with units ``conv1_1``, ``conv1_2``, ``conv2_1``, ..., one per convolution, and the last ``pool``.

    The pooling after a block opens the unit that follows, so that maps at a cut are not pooled. Arguments are those of
    :func:`~fssl_core.models.build_backbone`; ``image_size`` does not change the model.
    """
    units: dict[str, nn.Module] = {}
    in_channels = channels
    for block, (factor, depth) in enumerate(BLOCKS, start=1):
        for index in range(1, depth + 1):
            conv = conv_norm(norm, in_channels, factor * width, 3, bias=True).append(nn.ReLU(inplace=True))
            if block > 1 and index == 1:
                conv.insert(0, pool())
            units[f"conv{block}_{index}"] = conv
            in_channels = factor * width
    units["pool"] = pool()
    return Backbone(units, name=name, feature_dim=in_channels, channels=channels, image_size=image_size)


def pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(2, ceil_mode=True)
