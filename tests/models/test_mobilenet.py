"""MobileNetV2: its block against torchvision's, its strides, and where the cuts lie."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual as TorchvisionBlock

from fssl_core.errors import SettingError
from fssl_core.models import ARCHITECTURES, build, build_backbone, cut, latent_shape
from fssl_core.models.layers import BatchNorm2d, GroupNorm
from fssl_core.models.mobilenet import InvertedResidual
from fssl_core.random import generator


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(0, "test"))


@pytest.mark.parametrize(("out_channels", "stride"), [(8, 1), (8, 2), (12, 2), (12, 1)])
def test_block_equals_torchvisions(out_channels, stride):
    ours = build(lambda: InvertedResidual(8, out_channels, 6, stride, "batch"))
    theirs = TorchvisionBlock(8, out_channels, stride, expand_ratio=6)
    for name, module in theirs.named_modules():
        if isinstance(module, nn.ReLU6):  # the authors' code has ReLU
            theirs.set_submodule(name, nn.ReLU())
    main = [value for name, value in ours.state_dict().items() if not name.startswith("shortcut")]
    for value, source in zip(theirs.state_dict().values(), main, strict=True):
        value.copy_(source)
    x = images(2, 8, 6, 6)
    expected = theirs(x)
    if stride == 1 and out_channels != 8:  # torchvision has no residual connection here
        conv, norm = ours.shortcut
        expected = expected + F.batch_norm(F.conv2d(x, conv.weight), None, None, norm.weight, norm.bias, training=True)
    torch.testing.assert_close(ours(x), expected, rtol=1e-5, atol=1e-5)


def test_projection_shortcut_has_batch_norm_and_plain_filters_whatever_the_norm():
    block = InvertedResidual(8, 12, 6, 1, "group")
    conv, norm = block.shortcut
    assert isinstance(norm, BatchNorm2d)
    assert not conv.standardize
    assert isinstance(block.project[1], GroupNorm)
    assert block.project[0].standardize


def the_authors_forward(state: dict[str, torch.Tensor], x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """MobileNetV2 of the authors' code with batch norm, written out: no activation but those inside of blocks."""
    values = iter(state.values())

    def conv_norm(x, stride=1, groups=1):
        weight, scale, shift, *_ = (next(values) for _ in range(6))
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        return F.batch_norm(x, None, None, scale, shift, training=True)

    stages = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
    x = conv_norm(x, strides[0])
    for (expansion, channels, depth), first in zip(stages, strides[1:], strict=True):
        for index in range(depth):
            stride, before = first if index == 0 else 1, x
            hidden = expansion * x.shape[1]
            x = F.relu(conv_norm(x))
            x = conv_norm(F.relu(conv_norm(x, stride, groups=hidden)))
            if stride == 1:
                x = x + (before if before.shape[1] == channels else conv_norm(before))
    return conv_norm(x)


@pytest.mark.parametrize(
    ("name", "strides"),
    [("mobilenetv2", (1, 1, 1, 2, 2, 1, 2, 1)), ("mobilenetv2-imagenet", (2, 1, 2, 2, 2, 1, 2, 1))],
)
def test_the_whole_network_is_the_authors(name, strides):
    """Two activations more, after the stem and at the end, made a relative difference of 1."""
    backbone, x = build_backbone(name, norm="batch").double(), images(4, 3, 32, 32).double()
    torch.testing.assert_close(backbone(x), the_authors_forward(backbone.state_dict(), x, strides))


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_untrained_features_tell_images_apart(norm):
    """The mean cosine of pooled features of different images: 0.94 and 0.85 with an activation at the end."""
    features = F.normalize(build_backbone("mobilenetv2", norm=norm)(images(16, 3, 32, 32)).mean((2, 3)), dim=1)
    others = ~torch.eye(16, dtype=torch.bool)
    assert (features @ features.T)[others].mean() < 0.3


@pytest.mark.parametrize("cut_layer", [1, 17])
def test_first_and_last_cut_end_with_their_normalisation(cut_layer):
    client, server = cut(build_backbone("mobilenetv2", width=8), cut_layer)
    x = images(2, 3, 16, 16)
    latent = client(x)
    assert (latent < 0).any()
    before = latent.clone()
    assert (server(latent) < 0).any()
    assert torch.equal(latent, before)  # what was sent is not changed in place
    assert (len(server) == 0) is (cut_layer == 17)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("mobilenetv2", [64, 64, 64, 32, 16, 16, 8, 8, 8]),
        ("mobilenetv2-imagenet", [32, 32, 16, 8, 4, 4, 2, 2, 2]),
    ],
)
def test_strides(name, sides):
    backbone = build_backbone(name, width=4, image_size=64)
    assert [latent_shape(backbone, label)[1] for label in range(1, 18, 2)] == sides


def test_width_scales_to_multiples_of_four():
    backbone = build_backbone("mobilenetv2", width=16)
    assert [latent_shape(backbone, label)[0] for label in range(1, 18, 2)] == [8, 4, 8, 8, 16, 24, 40, 80, 320]
    assert backbone.feature_dim == 320
    assert backbone(images(2, 3, 8, 8)).shape == (2, 320, 1, 1)


def test_unknown_strides():
    with pytest.raises(SettingError, match=r"strides='tiny' cannot be used: expected one of cifar, imagenet\."):
        ARCHITECTURES["mobilenetv2"](width=4, norm="group", image_size=32, channels=3, strides="tiny")
