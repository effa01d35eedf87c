"""Twin normalization: Equations 2 and 3 written out, the listing of Table 18, and what each norm depends on."""

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.models import build_backbone, client_module, decoder, needs_pairs, paired
from fssl_core.models.layers import BatchNorm2d, GroupNorm, norm_layer
from fssl_core.models.twin_norm import TwinNorm
from tests.models.test_layers import normal


def twin_norm(channels: int, per_group: int, variance: str = "pooled") -> TwinNorm:
    norm = TwinNorm(channels, per_group, variance).double()
    with torch.no_grad():
        norm.weight.copy_(normal(channels, key=1))
        norm.bias.copy_(normal(channels, key=2))
    return norm


def slow_twin_norm(x, weight, bias, groups, variance):
    """Group by group, image by image; the variance around the mean of both views, or the mean of the views' own."""
    images, channels = len(x) // 2, x.shape[1]
    out = torch.empty_like(x)
    for i in range(images):
        for group in torch.arange(channels).chunk(groups):
            views = [x[i][group], x[i + images][group]]
            mean = torch.stack(views).sum() / (2 * views[0].numel())
            if variance == "equation":  # as written: a map for a mean, the squared norm of maps for a variance
                mean = sum(channel for view in views for channel in view) / (2 * len(group))
                norms = [(channel - mean).norm() ** 2 for view in views for channel in view]
                squares = sum(norms) / (2 * len(group))
            elif variance == "pooled":
                squares = sum((view - mean).square().sum() for view in views) / (2 * views[0].numel())
            else:
                squares = sum(view.var(correction=0) for view in views) / 2
            for j, view in ((i, views[0]), (i + images, views[1])):
                normal_view = (view - mean) / (squares + 1e-5).sqrt()
                out[j, group] = normal_view * weight[group, None, None] + bias[group, None, None]
    return out


@pytest.mark.parametrize("variance", ["pooled", "mean", "equation"])
@pytest.mark.parametrize(("channels", "per_group", "groups"), [(16, 8, 2), (6, 2, 3), (3, 8, 1), (12, 8, 1), (4, 1, 4)])
def test_equals_the_equations_and_their_gradients(channels, per_group, groups, variance):
    norm = twin_norm(channels, per_group, variance)
    x = (normal(6, channels, 3, 5) + torch.arange(6).view(6, 1, 1, 1)).requires_grad_()
    slow = slow_twin_norm(x, norm.weight, norm.bias, groups, variance)
    torch.testing.assert_close(norm(x), slow, rtol=1e-10, atol=1e-10)
    weights, inputs = normal(*x.shape, key=3), (x, norm.weight, norm.bias)
    for fast, reference in zip(
        torch.autograd.grad((norm(x) * weights).sum(), inputs),
        torch.autograd.grad((slow * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(fast, reference, rtol=1e-10, atol=1e-10)


def test_equation_and_listing_differ_by_the_squared_half_difference_of_the_views_means():
    x = normal(6, 16, 4, 4) + 3 * normal(6, 2, 1, 1, key=1).repeat_interleave(8, dim=1)
    first, second = x.view(2, 3, 2, 8, 4, 4)  # [K, G, Lambda, H, W]
    mean = (first.mean((2, 3, 4)) + second.mean((2, 3, 4))) / 2  # [K, G]
    variances = []
    for variance in ("pooled", "mean"):
        deviation = TwinNorm(16, 8, variance).double()(x).view(2, 3, 2, -1)[0]  # (x - mean) / sqrt(var + eps)
        largest = deviation.abs().argmax(-1, keepdim=True)
        numerator = first.flatten(2).gather(-1, largest)[..., 0] - mean
        variances.append((numerator / deviation.gather(-1, largest)[..., 0]).square() - 1e-5)
    expected = ((first.mean((2, 3, 4)) - second.mean((2, 3, 4))) / 2).square()
    torch.testing.assert_close(variances[0] - variances[1], expected, rtol=1e-10, atol=1e-10)
    assert (expected > 0.01).all()


def test_the_literal_equation_in_evaluation_and_what_twins_have_in_common_in_each_reading():
    x = normal(4, 16, 3, 3)
    norm = twin_norm(16, 8, "equation")
    together = norm(x)
    alone = torch.cat([norm(torch.cat([image[None]] * 2))[:1] for image in x])  # its own twin
    norm.eval()
    torch.testing.assert_close(norm(x), alone, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(norm(x[:1]), alone[:1], rtol=1e-10, atol=1e-10)
    with paired(norm):
        assert torch.equal(norm(x), together)
    assert not torch.allclose(together, alone)
    for variance in ("pooled", "mean", "equation"):
        out = TwinNorm(16, 8, variance).double()(x).view(2, 2, 2, 8, 3, 3)  # [2, K, G, Lambda, H, W]
        groups = out.mean((3, 4, 5))
        torch.testing.assert_close(groups[0], -groups[1], rtol=0, atol=1e-12)  # the shortcut
        assert (out.mean(3).sum(0).abs().max().item() < 1e-12) is (variance == "equation")  # pixel by pixel, too


def test_batch_norm_depends_on_other_images_and_twin_norm_on_the_twin():
    x = normal(8, 16, 4, 4)  # 4 images
    other, twin = x.clone(), x.clone()
    other[[1, 5]] += normal(2, 16, 4, 4, key=1)  # both views of image 1
    twin[4] += normal(16, 4, 4, key=1)  # the second view of image 0
    depends = {}
    for norm in (BatchNorm2d(16), GroupNorm(16, 8), TwinNorm(16, 8)):
        first = [norm.double()(batch)[0] for batch in (x, other, twin)]
        depends[type(norm).__name__] = tuple(not torch.equal(first[0], view) for view in first[1:])
    assert depends == {"BatchNorm2d": (True, True), "GroupNorm": (False, False), "TwinNorm": (False, True)}


def test_with_one_channel_per_group_group_norm_is_instance_norm_and_twin_norm_is_not():
    x = normal(4, 6, 5, 5)
    instance = F.instance_norm(x)
    torch.testing.assert_close(GroupNorm(6, 1).double()(x), instance, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(TwinNorm(6, 1).double()(x), instance, atol=0.01)
    same = torch.cat([x, x])  # twins that are equal
    torch.testing.assert_close(TwinNorm(6, 1).double()(same), F.instance_norm(same), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variance", ["pooled", "mean"])
def test_in_evaluation_an_image_is_its_own_twin_unless_paired(variance):
    norm, x = twin_norm(16, 8, variance), normal(4, 16, 3, 3)
    together = norm(x)
    norm.eval()
    alone = F.group_norm(x, 2, norm.weight, norm.bias)
    torch.testing.assert_close(norm(x), alone, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(norm(x[:1]), alone[:1], rtol=1e-10, atol=1e-10)
    with paired(norm):
        with paired(norm):
            assert torch.equal(norm(x), together)
        assert torch.equal(norm(x), together)
    torch.testing.assert_close(norm(x), alone, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(norm.train()(torch.cat([x, x]))[:4], alone, rtol=1e-10, atol=1e-10)


def test_a_batch_that_cannot_be_halved_is_refused():
    message = r"batch=3 cannot be used: expected an even number: K first views, then the K second views of the same"
    norm = TwinNorm(8)
    with pytest.raises(SettingError, match=message):
        norm(torch.zeros(3, 8, 2, 2))
    with pytest.raises(SettingError, match=message), paired(norm.eval()):
        norm(torch.zeros(3, 8, 2, 2))


def test_unknown_arguments():
    with pytest.raises(SettingError, match="variance='biased' cannot be used: expected one of pooled, mean, equation"):
        norm_layer("twin", 8, variance="biased")
    for kind in ("twin", "group"):
        with pytest.raises(SettingError, match="channels_per_group=0 cannot be used: expected at least 1"):
            norm_layer(kind, 8, 0)


def test_channels_are_one_group_where_they_cannot_be_divided():
    for kind in ("twin", "group"):
        groups = [norm_layer(kind, channels, 6).num_groups for channels in (3, 6, 12, 20)]
        assert groups == [1, 1, 2, 1]  # group norm had three groups of 20 channels, which torch refuses
    assert norm_layer("twin", 12).num_groups == client_module("resnet18", 1, "group", width=40).conv1[1].num_groups == 1


@pytest.mark.parametrize("norm", ["twin", "group"])
def test_groups_of_a_client_module_are_as_they_are_asked_for_or_refused(norm):
    for width, asked_for in ((20, 6), (12, 8), (40, 16)):
        expected = f"channels_per_group={asked_for} cannot be used: expected a divisor of the {width} channels"
        with pytest.raises(SettingError, match=expected):
            client_module("resnet18", 1, norm, width=width, channels_per_group=asked_for)
    for asked_for, groups in ((16, 1), (12, 1), (6, 2)):
        module = client_module("resnet18", 1, norm, width=12, channels_per_group=asked_for)
        assert module.conv1[1].num_groups == groups
    decoder("resnet18", 1, norm, width=12, channels_per_group=2)  # the three channels of an image are one group


def test_models_with_twin_norm_need_both_views_in_one_batch():
    assert needs_pairs(build_backbone("resnet10", width=4, norm="twin"))
    assert needs_pairs(client_module("resnet18", 2, width=8))
    assert not needs_pairs(build_backbone("resnet10", width=4, norm="batch"))
    assert norm_layer("twin", 64).num_groups == 8
    assert norm_layer("twin", 64, 32).num_groups == 2
