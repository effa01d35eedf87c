"""Batch norm's running statistics, measured anew.

A federation averages them like weights, and L-DAWA multiplies them by a cosine besides. Neither gives the mean and the
variance that the global model's activations have. How much of an accuracy is lost by that shows a copy of the model
whose statistics are those of images.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def with_statistics_of(
    model: nn.Module, images: Tensor, normalise: Callable[[Tensor, torch.dtype], Tensor], *, batch: int = 500
) -> nn.Module:
    """A copy of a model, in evaluation mode, whose running statistics are the means of those of batches of images.

    Args:
        model: any module from normalised images to features; stays as it is. Without batch norm the copy is equal.
        images: uint8 [N, C, H, W], on the model's device, in any order but not sorted by class.
        normalise: makes of them what the model expects: ``Dataset.normalise`` of its training images.
        batch: images per forward pass, at least 2; the last one takes what is left.
    """
    model = copy.deepcopy(model).train()
    dtype = next(model.parameters()).dtype
    for number, part in enumerate(images.split(batch), start=1):
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.momentum = 1 / number  # the first batch replaces what was there
        model(normalise(part, dtype))
    return model.eval()
