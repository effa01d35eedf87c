"""VGG-16-BN against torchvision's."""

import pytest
import torch
import torchvision
from torch import nn

from fssl_core.models import build_backbone
from fssl_core.random import generator


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    with torch.device("meta"):  # the dense layers are only counted
        return torchvision.models.vgg16_bn()


def test_equals_torchvision(theirs):
    ours = build_backbone("vgg16", norm="batch", generator=generator(0, "model"))
    features = theirs.features.to_empty(device="cpu")
    for value, source in zip(ours.state_dict().values(), features.state_dict().values(), strict=True):
        assert value.shape == source.shape
        source.copy_(value)
    x = torch.randn(4, 3, 32, 32, generator=generator(0, "test"))
    torch.testing.assert_close(ours(x), features(x), rtol=1e-4, atol=1e-4)  # training, which updates the statistics
    torch.testing.assert_close(ours.eval()(x), features.eval()(x), rtol=1e-4, atol=1e-4)
    assert ours(x).shape == (4, ours.feature_dim, 1, 1)


def test_with_its_dense_layers_it_has_the_138_million_parameters_that_the_paper_counts(theirs):
    ours = build_backbone("vgg16", norm="batch")
    dense = sum(value.numel() for value in theirs.classifier.parameters())
    assert sum(value.numel() for value in ours.parameters()) + dense == 138_365_992


@pytest.mark.parametrize("image_size", [8, 28])
def test_small_images_leave_one_pixel(image_size):
    backbone = build_backbone("vgg16", width=4, norm="group", channels=1)
    assert backbone(torch.zeros(2, 1, image_size, image_size)).shape == (2, 32, 1, 1)
