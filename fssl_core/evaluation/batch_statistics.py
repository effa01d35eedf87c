"""Batch norm's running statistics, measured anew.

A federation averages them like weights, and L-DAWA multiplies them by a cosine besides. Neither gives the mean and the
variance that the global model's activations have. How much of an accuracy is lost by that shows a copy of the model
whose statistics are those of images.
"""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fssl_core.data.datasets import ImageSet
from fssl_core.random import generator


def with_statistics_of(
    model: nn.Module, data: ImageSet, normalise: Callable[[Tensor, torch.dtype], Tensor], *, batch: int = 500
) -> nn.Module:
    """A copy of a model, in evaluation mode, whose running statistics are the means of those of batches of images.

    Args:
        model: any module from normalised images to features; stays as it is. Without batch norm the copy is equal.
        data: images, on the model's device. Where they lie class by class, as those of a folder do, batches take them
            in a random order that is always the same: the variance within one class is less than that of all.
        normalise: makes of them what the model expects: ``Dataset.normalise`` of its training images.
        batch: images per forward pass, at least 2; the last one takes what is left, and counts by its size. If that is
            one image, all take nearly as many.
    """
    images, dtype = data.images, next(model.parameters()).dtype
    if (data.labels.diff() >= 0).all():
        mixed = torch.randperm(len(images), generator=generator(0, "batch statistics"))
        images = images[mixed.to(images.device)]
    parts = images.split(batch)
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch norm has no variance of one value
        parts = images.tensor_split(len(parts))
    return with_statistics_over(model, (normalise(part, dtype) for part in parts))


@torch.no_grad()
def with_statistics_over(model: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """The same of batches that the model takes as they are, ``[B, ...]`` each; one counts by its size."""
    seen = 0
    model = copy.deepcopy(model).eval()  # twin norm would take images for pairs
    momentum = {layer.train(): layer.momentum for layer in model.modules() if isinstance(layer, _BatchNorm)}
    for batch in batches:
        seen += len(batch)
        for layer in momentum:
            layer.momentum = len(batch) / seen  # the first batch replaces what was there
        model(batch)
    for layer, own in momentum.items():
        layer.momentum = own  # fine-tuning goes on with it
    return model.eval()
