"""Layers: weight standardisation, normalisations, and many clients in one call against a loop over clients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix, forward_loop, forward_stacked
from fssl_core.models import build_backbone
from fssl_core.models.initialise import initialise_
from fssl_core.models.layers import (
    BatchNorm2d,
    Conv2d,
    ConvTranspose2d,
    GroupNorm,
    conv_norm,
    norm_layer,
    standardize,
)
from fssl_core.random import generator


def normal(*shape: int, key: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=generator(0, "test", key), dtype=torch.float64)


def stack(modules: list[nn.Module]) -> dict[str, torch.Tensor]:
    """Parameters and buffers of all modules, [clients, *shape]; parameters are leaves."""
    parameters = {name for name, _ in modules[0].named_parameters()}
    return {
        name: torch.stack([module.state_dict()[name] for module in modules]).requires_grad_(name in parameters)
        for name in modules[0].state_dict()
    }


def assert_stacked_equals_loop(modules: list[nn.Module], images: torch.Tensor, calls: int = 2) -> None:
    """Outputs, gradients and running statistics after some calls; ``images`` is [clients, batch, C, H, W]."""
    state = stack(modules)
    flat = images.transpose(0, 1).flatten(1, 2)  # [batch, clients * C, H, W]
    for call in range(calls):
        together = functional_call(modules[0], state, (flat,))
        alone = torch.cat([module(x) for module, x in zip(modules, images, strict=True)], dim=1)
        torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
        weights = normal(*alone.shape, key=call)
        (together * weights).sum().backward()
        (alone * weights).sum().backward()
    # In units of the largest: some are zero but for rounding, as that of a shift in front of another batch norm.
    scale = max(parameter.grad.abs().max() for module in modules for parameter in module.parameters())
    for name, parameter in modules[0].named_parameters():
        grads = torch.stack([dict(module.named_parameters())[name].grad for module in modules])
        assert state[name].grad.shape == (len(modules), *parameter.shape)
        torch.testing.assert_close(state[name].grad / scale, grads / scale, rtol=0, atol=1e-12)
    for name, _ in modules[0].named_buffers():
        buffers = torch.stack([dict(module.named_buffers())[name] for module in modules])
        torch.testing.assert_close(state[name], buffers, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("architecture", "norm", "training"),
    [
        *((name, norm, True) for name in ("resnet10", "resnet50", "mobilenetv2") for norm in ("group", "batch")),
        *(("resnet10", norm, False) for norm in ("group", "batch")),
        *(("resnet10", "twin", training) for training in (True, False)),
    ],
)
def test_stacked_models_equal_a_loop(architecture, norm, training):
    clients = [
        build_backbone(architecture, width=4, norm=norm, generator=generator(0, "client", client)).double()
        for client in range(3)
    ]
    for key, client in enumerate(clients):  # so that no parameter or buffer is the same for two clients
        for value in client.state_dict().values():
            value.add_(0.1 * normal(*value.shape, key=key).abs())
        client.train(training)
    assert_stacked_equals_loop(clients, normal(3, 2, 3, 16, 16))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv2d(4, 6, 3, 2, groups=2, bias=True, standardize=True),
        lambda: ConvTranspose2d(4, 6, 3, 2, bias=True),
    ],
)
def test_stacked_convolution_with_stride_bias_and_where_it_has_them_groups(make):
    convs = [make().double() for _ in range(3)]
    for key, conv in enumerate(convs):
        for value in conv.state_dict().values():
            value.copy_(normal(*value.shape, key=key))
    assert_stacked_equals_loop(convs, normal(3, 2, 4, 7, 7))


def test_one_client_of_a_stack_does_not_see_the_others():
    norm = norm_layer("batch", 4).double()
    state = {name: value.detach() for name, value in stack([norm, norm]).items()}
    x = normal(5, 8, 3, 3)
    other = torch.cat([x[:, :4], 100 * x[:, 4:]], dim=1)
    first, second = functional_call(norm, state, (x,)), functional_call(norm, state, (other,))
    torch.testing.assert_close(first[:, :4], second[:, :4], rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(8, 3, 3, 3), (16, 1, 3, 3), (6, 5, 1, 1), (2, 8, 3, 3, 3)])
def test_standardize_is_the_formula_of_the_paper(shape):
    weight = 0.1 * normal(*shape) + 0.3
    mean = weight.mean(dim=(-3, -2, -1), keepdim=True)
    std = weight.std(dim=(-3, -2, -1), keepdim=True)  # unbiased
    torch.testing.assert_close(standardize(weight), (weight - mean) / std, rtol=1e-7, atol=1e-7)
    official = (weight - mean) / (std + 1e-5)
    assert ((standardize(weight) - official).abs() <= official.abs() * 1e-5 / std + 1e-7).all()


def test_standardize_equals_the_batch_norm_formulation():
    weight = normal(8, 3, 3, 3)
    size = weight[0].numel()
    gain = torch.full((8,), ((size - 1) / size) ** 0.5, dtype=torch.float64)
    expected = F.batch_norm(weight.reshape(1, 8, -1), None, None, weight=gain, training=True, eps=1e-10)
    torch.testing.assert_close(standardize(weight), expected.view_as(weight), rtol=1e-12, atol=1e-12)


def test_standardized_convolution_ignores_scale_and_offset_of_its_filters():
    conv = Conv2d(3, 4, 3, standardize=True).double()
    x = normal(2, 3, 6, 6)
    expected = conv(x).detach()
    with torch.no_grad():
        conv.weight.mul_(7).add_(0.5)
    torch.testing.assert_close(conv(x), expected, rtol=1e-6, atol=1e-6)


def test_plain_convolution_is_pytorchs():
    conv = Conv2d(3, 4, 7, 2).double()
    x = normal(2, 3, 15, 15)
    torch.testing.assert_close(conv(x), F.conv2d(x, conv.weight, stride=2, padding=3), rtol=0, atol=0)
    assert "standardize" not in repr(conv)
    assert "standardize=True" in repr(Conv2d(3, 4, 3, standardize=True))


@pytest.mark.parametrize(("kernel_size", "stride"), [(3, 2), (5, 4), (3, 1)])
def test_transposed_convolution_is_the_adjoint_of_a_convolution_and_multiplies_the_size(kernel_size, stride):
    up = ConvTranspose2d(3, 4, kernel_size, stride).double()
    x, y = normal(2, 3, 7, 5), normal(2, 4, 7 * stride, 5 * stride, key=1)
    assert up(x).shape == y.shape
    down = F.conv2d(y, up.weight, stride=stride, padding=kernel_size // 2)
    torch.testing.assert_close((up(x) * y).sum(), (x * down).sum(), rtol=1e-12, atol=1e-12)  # <A'x, y> = <x, Ay>


@pytest.mark.parametrize("options", [{}, {"channels_per_group": 3}])
def test_stacked_twin_norm_has_groups_of_its_own_for_each_client(options):
    for variance in ("pooled", "mean"):
        norms = [norm_layer("twin", 3, variance=variance, **options).double() for _ in range(2)]
        for key, norm in enumerate(norms):
            for value in norm.state_dict().values():
                value.copy_(normal(*value.shape, key=key))
        assert_stacked_equals_loop(norms, normal(2, 4, 3, 5, 5))


@pytest.mark.parametrize(("channels", "groups"), [(2, 1), (4, 1), (8, 2), (64, 16)])
def test_group_norm_has_four_channels_per_group(channels, groups):
    norm = GroupNorm(channels).double()
    x = normal(2, channels, 3, 3)
    grouped = x.view(2, groups, -1)
    expected = (grouped - grouped.mean(-1, keepdim=True)) / (grouped.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(norm(x), expected.view_as(x), rtol=1e-12, atol=1e-12)


def test_batch_norm_is_pytorchs_with_a_float_counter():
    ours, theirs = BatchNorm2d(6).double(), nn.BatchNorm2d(6).double()
    for call in range(3):
        x = 2 * normal(4, 6, 3, 3, key=call) + 1
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    assert ours.num_batches_tracked == 3
    assert all(value.dtype == torch.float64 for value in ours.state_dict().values())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value.double(), rtol=1e-12, atol=1e-12)
    theirs.load_state_dict(ours.eval().state_dict())
    torch.testing.assert_close(ours(x), theirs.eval()(x), rtol=1e-12, atol=1e-12)
    ours(x)
    assert ours.num_batches_tracked == 3  # evaluation changes nothing


def test_unknown_norm():
    with pytest.raises(SettingError, match=r"norm='layer' cannot be used: expected one of group, batch, twin\."):
        norm_layer("layer", 8)


@pytest.mark.parametrize(
    ("norm", "options"), [("group", {}), ("batch", {}), ("twin", {}), ("twin", {"variance": "mean"})]
)
def test_bf16_autocast_keeps_float32_gradients(norm, options):
    layer = nn.Sequential(conv_norm(norm, 3, 8, 3)[0], norm_layer(norm, 8, **options))
    state = stack([layer, layer])
    x = torch.randn(2, 6, 8, 8, generator=generator(0, "test"))
    exact = functional_call(layer, state, (x,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = functional_call(layer, state, (x,))
    torch.testing.assert_close(rough.float(), exact, rtol=0.05, atol=0.05)
    rough.float().square().sum().backward()
    gradient = state["0.weight"].grad
    assert gradient.dtype == torch.float32
    assert gradient.isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("architecture", ["resnet10", "mobilenetv2"])
def test_stacked_models_equal_a_loop_on_cuda(architecture):
    clients = [
        build_backbone(architecture, width=4, generator=generator(0, "client", client)).double().cuda()
        for client in range(3)
    ]
    state = stack(clients)
    images = normal(3, 2, 3, 16, 16).cuda()
    together = functional_call(clients[0], state, (images.transpose(0, 1).flatten(1, 2),))
    alone = torch.cat([client(x) for client, x in zip(clients, images, strict=True)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)
    singles = [client.float() for client in clients]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        rough = functional_call(singles[0], stack(singles), (images.float().transpose(0, 1).flatten(1, 2),))
        rough_alone = torch.cat([client(x.float()) for client, x in zip(singles, images, strict=True)], dim=1)
    assert (rough - alone).norm() < 1.5 * (rough_alone - alone).norm() < 0.3 * alone.norm()


@pytest.mark.parametrize("clients", [1, 3])
def test_strided_depthwise_convolutions_are_float32s_under_autocast(monkeypatch, clients):
    """Of a model alone and of stacked ones; what comes out is bfloat16 again, what is learned float32."""
    monkeypatch.setattr("fssl_core.models.layers.multiplies_bfloat16", lambda: True)
    layer = initialise_(Conv2d(4, 4, 3, 2, groups=4, bias=True), generator(0, "initialise"))
    state = stack([layer] * clients)
    images = torch.rand(2, 4 * clients, 8, 8, generator=generator(0, "images")).requires_grad_()
    exact = functional_call(layer, state, (images,))
    with torch.autocast("cpu", torch.bfloat16):
        made = functional_call(layer, state, (images,))
    assert made.dtype == torch.bfloat16
    assert torch.equal(made, exact.bfloat16())
    weights = torch.rand(made.shape, generator=generator(0, "weights")).bfloat16()
    wanted = torch.autograd.grad(exact, (images, *state.values()), weights.float())
    for gradient, expected in zip(torch.autograd.grad(made, (images, *state.values()), weights), wanted, strict=True):
        assert torch.equal(gradient, expected)


# ---------------------------------------------------------------- memory layout


def bottleneck(norm: str) -> nn.Sequential:
    layers = nn.Sequential(conv_norm(norm, 3, 8, 3), nn.ReLU(inplace=True), conv_norm(norm, 8, 16, 3, 2))
    return initialise_(layers, generator(0, "initialise"))


@pytest.mark.parametrize(
    ("norm", "precision", "instructions", "expected"),
    [
        ("batch", True, True, True),
        ("batch", True, False, False),
        ("batch", False, True, False),
        ("group", True, True, False),
    ],
)
def test_channels_lie_side_by_side_where_that_is_fast(monkeypatch, norm, precision, instructions, expected):
    monkeypatch.setattr("fssl_core.models.layers.multiplies_bfloat16", lambda: instructions)
    images = torch.rand(4, 3, 12, 12, generator=generator(0, "images"))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision):
        maps = bottleneck(norm)(images)
    assert maps.is_contiguous(memory_format=torch.channels_last) == expected
    assert maps.is_contiguous() != expected


def test_the_layout_changes_no_more_than_rounding(monkeypatch):
    monkeypatch.setattr("fssl_core.models.layers.multiplies_bfloat16", lambda: True)
    images = torch.rand(4, 3, 12, 12, generator=generator(0, "images"))
    made = {}
    for name in ("float32", "bfloat16", "channels last"):
        network = bottleneck("batch")
        for module in network.modules():
            if isinstance(module, Conv2d):
                assert module.channels_last
                module.channels_last = name == "channels last"
        with torch.autocast("cpu", torch.bfloat16, enabled=name != "float32"):
            maps = network(images).float()
        maps.square().sum().backward()
        made[name] = maps.detach(), *(value.grad for value in network.parameters())
    for expected, plain, fast in zip(*made.values(), strict=True):
        rounding = (plain - expected).norm()
        assert (fast - expected).norm() <= 2 * rounding + 1e-6 * expected.norm()


def test_all_clients_in_one_call_keep_their_layout():
    matrix = ClientMatrix(bottleneck("batch"), 3)
    images = torch.rand(3, 2, 3, 12, 12, generator=generator(0, "images"))
    with torch.autocast("cpu", torch.bfloat16):
        together, alone = forward_stacked(matrix.module(), images), forward_loop(matrix.row_modules(), images)
        folded = matrix.module()(images.transpose(0, 1).flatten(1, 2))
    torch.testing.assert_close(together.float(), alone.float(), rtol=0.05, atol=0.05)
    assert folded.is_contiguous()
