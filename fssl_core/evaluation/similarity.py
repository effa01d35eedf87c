"""How much of its input a layer still shows: the largest correlation of one of its channels with the grey image.

MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024), Fig. 2, shows activations of an untrained network and says that
those of low layers "highly resemble" the image. The paper gives no number; this one is ours.

Read it beside the same number for another image. Deep activations have many channels of few pixels, and one of many
smooth maps resembles any image with large bright and dark areas, whatever the network saw.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.models import Backbone, cut_layers

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey, ITU-R BT.601


@torch.no_grad()
def activations(backbone: Backbone, images: Tensor) -> dict[int, Tensor]:
    """What a client would send at each cut, in one forward pass.

    Args:
        backbone: of any architecture; it is used in its present mode, training or evaluation.
        images: as the model takes them, ``[B, channels, H, W]``.

    Returns:
        cut layer -> ``[B, c, h, w]``.
    """
    sent = {}
    for layer, unit in zip(cut_layers(backbone), backbone, strict=False):  # a last unit without parameters is no cut
        images = sent[layer] = unit(images)
    return sent


def grey(images: Tensor) -> Tensor:
    """Brightness of images ``[..., 3, H, W]``, of any type, as float ``[..., H, W]`` in the same range."""
    return torch.einsum("...chw,c->...hw", images.float(), images.new_tensor(LUMA, dtype=torch.float32))


def channel_similarity(maps: Tensor, references: Tensor) -> Tensor:
    """Absolute Pearson correlation of every channel, up-sampled bilinearly, with every reference.

    Args:
        maps: one image's activation, float ``[C, h, w]``.
        references: grey images, float ``[R, H, W]``.

    Returns:
        ``[R, C]`` in [0, 1]; 0 for a channel or a reference that has one value everywhere.
    """
    maps = F.interpolate(maps[None].float(), size=references.shape[-2:], mode="bilinear", align_corners=False)[0]
    maps, references = maps.flatten(1), references.float().flatten(1)
    deviations = _deviation(references)[:, None] * _deviation(maps)
    centred = references - references.mean(1, keepdim=True)  # one side is enough, and the maps are large
    covariance = centred @ maps.T / maps.shape[1]
    return (covariance / deviations).abs().clamp_max(1)


def _deviation(rows: Tensor) -> Tensor:
    """Standard deviation of every row; infinite where a row is constant up to rounding."""
    deviation = rows.std(1, correction=0)
    return deviation.where(deviation > 1e-5 * rows.norm(dim=1) / rows.shape[1] ** 0.5, torch.inf)
