"""ResNet against torchvision's, and its stems."""

import pytest
import torch
import torchvision
from torch import nn

from fssl_core.models import build_backbone
from fssl_core.random import generator


def torchvision_trunk(name: str, image_size: int) -> nn.Module:
    model = getattr(torchvision.models, name)()
    if image_size < 128:
        model.conv1 = nn.Conv2d(3, 64, 3, 1 if image_size <= 32 else 2, padding=1, bias=False)
    layers = (model.layer1, model.layer2, model.layer3, model.layer4)
    return nn.Sequential(model.conv1, model.bn1, model.relu, *layers)


@pytest.mark.parametrize(
    ("name", "image_size"), [("resnet18", 32), ("resnet18", 64), ("resnet18", 224), ("resnet34", 32), ("resnet50", 32)]
)
def test_equals_torchvision(name, image_size):
    theirs = torchvision_trunk(name, image_size)
    ours = build_backbone(name, norm="batch", image_size=image_size)
    theirs_state, ours_state = theirs.state_dict(), ours.state_dict()
    for value, source in zip(ours_state.values(), theirs_state.values(), strict=True):  # same order of layers
        assert value.shape == source.shape
        source.copy_(value)
    x = torch.randn(2, 3, 32, 32, generator=generator(0, "test"))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)  # training, which updates the statistics
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)
    assert ours(x).shape[1] == ours.feature_dim


@pytest.mark.parametrize(
    ("image_size", "kernel_size", "stride"),
    [(8, 3, 1), (16, 3, 1), (28, 3, 1), (32, 3, 1), (33, 3, 2), (64, 3, 2), (127, 3, 2), (128, 7, 2), (224, 7, 2)],
)
def test_stem_follows_the_image_size(image_size, kernel_size, stride):
    conv = build_backbone("resnet10", width=4, image_size=image_size).stem[0]
    assert (conv.kernel_size, conv.stride) == ((kernel_size, kernel_size), (stride, stride))


def test_resnet10_has_one_basic_block_per_stage():
    backbone = build_backbone("resnet10", width=8, channels=1)
    assert [name for name, _ in backbone.named_children()] == ["stem", "layer1_0", "layer2_0", "layer3_0", "layer4_0"]
    assert backbone(torch.zeros(2, 1, 16, 16)).shape == (2, 64, 2, 2)


def test_every_unit_ends_with_a_relu_and_leaves_its_input_alone():
    x = torch.randn(2, 3, 16, 16, generator=generator(0, "test"))
    for unit in build_backbone("resnet10", width=4):
        before = x.clone()
        out = unit(x)
        assert torch.equal(x, before)
        assert (out >= 0).all()
        x = out.detach()


def test_only_group_norm_standardises():
    for norm, expected in (("group", {True}), ("batch", {False})):
        convs = [
            layer for layer in build_backbone("resnet18", width=4, norm=norm).modules() if hasattr(layer, "groups")
        ]
        assert {conv.standardize for conv in convs} == expected
