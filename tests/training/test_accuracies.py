import pytest
import torch
from torch import nn

from fssl_core.data import load_dataset
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.objectives import Supervised
from fssl_core.training.averaging import AveragingSettings


class Counter(nn.Flatten):
    """Pixels as features; counts the images that pass."""

    images = 0

    def forward(self, x):
        self.images += len(x)
        return super().forward(x)


def pixels(data, part):
    return ((part.images / 255 - data.mean[:, None, None]) / data.std[:, None, None]).flatten(1)


def settings(**values) -> AveragingSettings:
    return AveragingSettings(dataset="digits", objective=Supervised(classes=10), knn_k=5, **values)


def test_validation_uses_a_fixed_share_of_the_test_set():
    data, model = load_dataset("digits"), Counter()

    def accuracy(share, seed):
        return settings(validation_share=share, seed=seed).knn_accuracy(model, data)

    first = accuracy(0.2, 3)
    assert model.images == len(data.train) + round(0.2 * len(data.test))
    assert first == accuracy(0.2, 3)
    labels = data.train.labels, data.test.labels
    train, test = (pixels(data, part) for part in (data.train, data.test))
    assert accuracy(1.0, 3) == knn_accuracy(train, labels[0], test, labels[1], k=5, temperature=0.1)
    assert len({accuracy(0.05, seed) for seed in range(6)}) > 1


def test_probe_passes_every_image_once_through_the_backbone():
    data, model = load_dataset("digits"), Counter()
    accuracy = settings(probe_epochs=3, seed=1).probe(model, data)
    assert model.images == len(data.train) + len(data.test)
    labels = data.train.labels, data.test.labels
    train, test = (pixels(data, part) for part in (data.train, data.test))
    options = {"classes": 10, "epochs": 3, "seed": 1}
    assert accuracy == linear_probe(train, labels[0], test, labels[1], **options).accuracy


def test_a_classifiers_accuracy_is_the_share_of_test_images_whose_largest_logit_is_right():
    data = load_dataset("digits")

    class Constant(nn.Module):
        def forward(self, images):
            return torch.eye(10)[3].expand(len(images), 10)

    accuracies = settings(probe_epochs=0).accuracies(Constant(), data)
    assert accuracies == {"test_accuracy": pytest.approx((data.test.labels == 3).float().mean().item())}
