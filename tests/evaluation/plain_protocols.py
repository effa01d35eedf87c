"""The evaluations of a trained model, from its weights to one number, as functions."""

import torch
from torch import nn

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.random import generator


def features(model: nn.Module, data: Dataset, part: ImageSet) -> torch.Tensor:
    return extract(model, part.images, data.normalise)


def validation_accuracy(
    model: nn.Module, data: Dataset, *, share: float, seed: int, k: int, temperature: float
) -> float:
    """kNN accuracy on a share of the test images."""
    count = max(1, round(share * len(data.test)))
    chosen = torch.randperm(len(data.test), generator=generator(seed, "validation"))[:count]
    bank, queries = (features(model, data, part) for part in (data.train, data.test))
    return knn_accuracy(
        bank, data.train.labels, queries[chosen], data.test.labels[chosen], k=k, temperature=temperature
    )


def probe_accuracy(backbone: nn.Module, data: Dataset, *, epochs: int, seed: int) -> float:
    """Of a linear classifier on all test images."""
    train, test = (features(backbone, data, part) for part in (data.train, data.test))
    labels = data.train.labels, data.test.labels
    return linear_probe(train, labels[0], test, labels[1], classes=len(data.classes), epochs=epochs, seed=seed).accuracy


def classifier_accuracy(model: nn.Module, data: Dataset) -> float:
    """Of a model's own logits on all test images."""
    return (features(model, data, data.test).argmax(1) == data.test.labels).float().mean().item()
