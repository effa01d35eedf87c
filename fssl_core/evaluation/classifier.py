"""How well a model that was trained with labels classifies, without a classifier trained on top."""

from torch import nn

from fssl_core.data.datasets import Dataset
from fssl_core.evaluation.features import extract


def classifier_accuracy(model: nn.Module, data: Dataset) -> float:
    """Accuracy on the full test set, in [0, 1].

    Args:
        model: from normalised images to logits ``[B, classes]``; stays as it is.
        data: labelled images.
    """
    logits = extract(model, data.test.images, data.normalise)
    return (logits.argmax(1) == data.test.labels).float().mean().item()
