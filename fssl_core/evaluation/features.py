"""Features of a frozen model, computed once: every image passes the model exactly once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fssl_core.errors import DataError, SettingError
from fssl_core.models import GlobalPool


@torch.no_grad()
def extract(
    model: nn.Module, images: Tensor, normalise: Callable[[Tensor, torch.dtype], Tensor], *, batch: int = 512
) -> Tensor:
    """Features of ``images``, without augmentation, the model in evaluation mode.

    Call it inside ``torch.autocast`` for lower precision; the features are float32 all the same.

    Args:
        model: any module from float images [B, C, H, W] to [B, D]; more dimensions are flattened to D. Every
            module's training flag is put back afterwards, also after an error.
        images: uint8 [N, C, H, W], on the model's device.
        normalise: makes of them what the model expects: ``Dataset.normalise`` of its training images.
        batch: images per forward pass.

    Returns:
        float32 [N, D] on the images' device.

    Raises:
        DataError: there are no images, or they are not uint8.
    """
    if images.dtype != torch.uint8 or images.dim() != 4 or len(images) == 0:
        raise DataError(
            f"Features need uint8 images [N, C, H, W] with N > 0, got {images.dtype} {list(images.shape)}: "
            "pass the `images` of an ImageSet as loaded, not scaled."
        )
    dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
    with evaluating(model):
        parts = [model(normalise(part, dtype)).flatten(1).float() for part in images.split(batch)]
    return torch.cat(parts)  # [N, D]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; then each module's own mode again (a frozen part may differ from the rest)."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def unpooled(backbone: nn.Module) -> nn.Module:
    """The backbone without the global pooling at its end, sharing its modules: to maps ``[B, C, h, w]``.

    Raises:
        SettingError: the backbone does not end in a :class:`~fssl_core.models.GlobalPool`.
    """
    units = list(backbone.children()) if isinstance(backbone, nn.Sequential) else []
    if not units or not isinstance(units[-1], GlobalPool):
        last = type(units[-1] if units else backbone).__name__
        expected = f"'pooled', because the pre-trained backbone ends in {last} and not in GlobalPool"
        raise SettingError("features", "unpooled", expected)
    return nn.Sequential(*units[:-1])


def standardised(train_x: Tensor, test_x: Tensor) -> tuple[Tensor, Tensor]:
    """Features ``[N, D]`` and ``[M, D]`` of two sets, each with mean 0 and standard deviation 1 over the first one.

    What a model scales its features by then decides nothing. A feature that is constant in the first set becomes 0
    there, and keeps its scale in the second.
    """
    deviation, mean = torch.std_mean(train_x, dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    return (train_x - mean) / scale, (test_x - mean) / scale


def check_features(
    name: str, features: Tensor, labels: Tensor, classes: int | None = None, *, like: Tensor | None = None
) -> None:
    """Raise :class:`DataError` unless ``features`` are finite [N, D] with one label each, N > 0.

    Args:
        name: what the features are of, as a message says it.
        features, labels: to be checked.
        classes: number of classes; where it is given, labels must be in [0, classes).
        like: other features [M, D], which have to be as wide.
    """
    if not isinstance(features, Tensor) or not isinstance(labels, Tensor) or labels.is_floating_point():
        raise DataError(f"Of the {name}, features have to be a tensor [N, D] and labels one of whole numbers [N].")
    if features.dim() != 2 or labels.shape != features.shape[:1] or len(features) == 0:
        raise DataError(
            f"Of the {name}, features [N, D] and labels [N] with N > 0 are needed, "
            f"got {list(features.shape)} and {list(labels.shape)}."
        )
    if like is not None and features.shape[1] != like.shape[1]:
        raise DataError(
            f"The features of the {name} have {features.shape[1]} dimensions, those before them {like.shape[1]}: "
            "take both from one model."
        )
    if not features.isfinite().all():
        raise DataError(
            f"The features of the {name} are not all finite: the model that made them has diverged. "
            "Evaluate an earlier checkpoint or lower the learning rate."
        )
    if classes is not None and (labels.min() < 0 or labels.max() >= classes):
        raise DataError(f"Labels of the {name} span {labels.min()} to {labels.max()}: expected 0 to {classes - 1}.")
