"""Saliency maps: how strongly each pixel of an image moves what a network makes of it.

Simonyan, Vedaldi and Zisserman, "Deep inside convolutional networks: visualising image classification models and
saliency maps", 2014, Section 3: the absolute gradient of a class score with respect to the pixels. They take the
largest over the colours; here it is the sum, so that a share of a map is a share of the absolute gradient. MFCL
(Motamedi and Kim, TMLR), Figure 4, shows such maps of an image with an object in each half, and does not say of which
number the gradient is.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import DataError


def saliency(
    model: nn.Module,
    images: Tensor,
    normalise: Callable[[Tensor, torch.dtype], Tensor],
    directions: Tensor,
    *,
    batch: int = 256,
) -> Tensor:
    """The absolute gradient of linear scores of the features, summed over colours, mean over the scores.

    Args:
        model: from float images [B, C, H, W] to [B, D]; more dimensions are flattened to D. Seen in evaluation mode,
            where images do not mix; stays as it is.
        images: uint8 [N, C, H, W], on the model's device.
        normalise: makes of images in [0, 1] what the model expects: ``Dataset.normalise`` of its training images. The
            gradient is with respect to the images in [0, 1], before it.
        directions: a score in each row, [K, D]: what the features are multiplied with. For the margin of a linear
            classifier the difference of two of its rows.
        batch: images per forward pass.

    Returns:
        [N, H, W], at least 0.

    Raises:
        DataError: the directions are for other features than the model has.
    """
    dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
    model = copy.deepcopy(model).eval().requires_grad_(False)
    maps = []
    with torch.enable_grad():
        for part in images.split(batch):
            pixels = (part.to(dtype) / 255).requires_grad_()
            features = model(normalise(pixels, dtype)).flatten(1)  # [B, D]
            if directions.shape[1:] != features.shape[1:]:
                raise DataError(f"Directions {list(directions.shape)} do not fit features {list(features.shape)}.")
            scores = (features @ directions.to(features).T).sum(0)  # [K]
            gradients = [torch.autograd.grad(score, pixels, retain_graph=True)[0].abs().sum(1) for score in scores]
            maps.append(torch.stack(gradients).mean(0))
    return torch.cat(maps)


def side_by_side(left: Tensor, right: Tensor) -> Tensor:
    """Pairs of images as one image each, of the same size: both squeezed to half their width, with anti-aliasing.

    Args:
        left, right: uint8 [N, C, H, W], W even.

    Raises:
        DataError: their shapes differ, or W is odd.
    """
    if left.shape != right.shape or left.shape[-1] % 2:
        raise DataError(f"Halves need images of one shape and even width: {list(left.shape)}, {list(right.shape)}.")
    height, width = left.shape[-2:]
    squeezed = [
        F.interpolate(half.float(), size=(height, width // 2), mode="bilinear", antialias=True)
        for half in (left, right)
    ]
    return torch.cat(squeezed, dim=3).round().clamp(0, 255).to(torch.uint8)


def left_share(maps: Tensor) -> Tensor:
    """The share of each map [N, H, W], in [0, 1], that lies in its left half: [N]; W even, NaN for a map of zeros."""
    left, right = (half.flatten(1).sum(1) for half in maps.chunk(2, dim=2))
    return left / (left + right)
