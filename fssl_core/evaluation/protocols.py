"""The evaluations of a trained model, from its weights to one number: the same for every engine."""

import torch
from torch import nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import DataError
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.random import generator


def validation_accuracy(
    model: nn.Module, data: Dataset, *, share: float, seed: int, k: int, temperature: float
) -> float:
    """kNN accuracy on a fixed share of the test set, by which MocoSFL and MonAcoSFL choose their best epoch.

    Args:
        model: from normalised images to features; for these papers with its projector.
        data: the training images are the bank.
        share: of the test images, in (0, 1]; which ones depends on ``seed`` alone.
        seed: of the run.
        k, temperature: of :func:`~fssl_core.evaluation.knn.knn_accuracy`.

    Returns:
        accuracy in [0, 1].

    Raises:
        DataError: the images have no labels.
    """
    _check_labelled(data)
    train, test = data.train, data.test
    count = max(1, round(share * len(test)))
    chosen = torch.randperm(len(test), generator=generator(seed, "validation"))[:count].to(test.labels.device)
    bank, queries = (extract(model, images, data.normalise) for images in (train.images, test.images[chosen]))
    return knn_accuracy(bank, train.labels, queries, test.labels[chosen], k=k, temperature=temperature)


def probe_accuracy(backbone: nn.Module, data: Dataset, *, epochs: int, seed: int) -> float:
    """Linear-probe accuracy on the full test set, in [0, 1]; see :mod:`fssl_core.evaluation.linear_probe`.

    Args:
        backbone: from normalised images to features, without a projector; stays as it is.
        data: labelled images.
        epochs: of the probe.
        seed: of the run.

    Raises:
        DataError: the images have no labels.
    """
    _check_labelled(data)
    train, test = (extract(backbone, part.images, data.normalise) for part in (data.train, data.test))
    probe = linear_probe(
        train, data.train.labels, test, data.test.labels, classes=len(data.classes), epochs=epochs, seed=seed
    )
    return probe.accuracy


def classifier_accuracy(model: nn.Module, data: Dataset) -> float:
    """Accuracy of a model that was trained with labels, no classifier trained on top: on the full test set, in [0, 1].

    Args:
        model: from normalised images to logits ``[B, classes]``; stays as it is.
        data: labelled images.

    Raises:
        DataError: the images have no labels.
    """
    _check_labelled(data)
    logits = extract(model, data.test.images, data.normalise)
    return (logits.argmax(1) == data.test.labels).float().mean().item()


def _check_labelled(data: Dataset) -> None:
    if not data.labelled:
        raise DataError(f"{data.name} has no labels to measure an accuracy by: evaluate on a labelled data set.")
