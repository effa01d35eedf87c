from dataclasses import replace

import pytest
import torch
from torch import nn

from fssl_core.data import ImageSet, load_dataset
from fssl_core.errors import DataError
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.evaluation.protocols import classifier_accuracy, probe_accuracy, validation_accuracy


class Counter(nn.Flatten):
    """Pixels as features; counts the images that pass."""

    images = 0

    def forward(self, x):
        self.images += len(x)
        return super().forward(x)


def pixels(data, part):
    return ((part.images / 255 - data.mean[:, None, None]) / data.std[:, None, None]).flatten(1)


def test_validation_uses_a_fixed_share_of_the_test_set():
    data, model = load_dataset("digits"), Counter()
    options = {"k": 5, "temperature": 0.1}
    accuracy = validation_accuracy(model, data, share=0.2, seed=3, **options)
    assert model.images == len(data.train) + round(0.2 * len(data.test))
    assert accuracy == validation_accuracy(model, data, share=0.2, seed=3, **options)
    whole = knn_accuracy(
        pixels(data, data.train), data.train.labels, pixels(data, data.test), data.test.labels, **options
    )
    assert validation_accuracy(model, data, share=1.0, seed=3, **options) == whole
    others = {validation_accuracy(model, data, share=0.05, seed=seed, **options) for seed in range(6)}
    assert len(others) > 1


def test_probe_passes_every_image_once_through_the_backbone():
    data, model = load_dataset("digits"), Counter()
    accuracy = probe_accuracy(model, data, epochs=3, seed=1)
    assert model.images == len(data.train) + len(data.test)
    probe = linear_probe(
        pixels(data, data.train),
        data.train.labels,
        pixels(data, data.test),
        data.test.labels,
        classes=10,
        epochs=3,
        seed=1,
    )
    assert accuracy == probe.accuracy
    assert torch.is_tensor(probe.weight)


def test_images_without_labels_are_refused():
    data = load_dataset("digits")
    none = replace(data, train=ImageSet(data.train.images, torch.full_like(data.train.labels, -1)), classes=())
    with pytest.raises(DataError, match="digits has no labels"):
        validation_accuracy(Counter(), none, share=0.2, seed=3, k=5, temperature=0.1)
    with pytest.raises(DataError, match="digits has no labels"):
        probe_accuracy(Counter(), none, epochs=1, seed=1)


def test_a_classifiers_accuracy_is_the_share_of_test_images_whose_largest_logit_is_right():
    data = load_dataset("digits")

    class Constant(nn.Module):
        def forward(self, images):
            return torch.eye(10)[3].expand(len(images), 10)

    assert classifier_accuracy(Constant(), data) == pytest.approx((data.test.labels == 3).float().mean().item())
