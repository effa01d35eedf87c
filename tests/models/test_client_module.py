"""Client module, decoder and remaining backbone against Tables 9 and 10, and against torchvision's ResNets."""

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.func import functional_call

from fssl_core.costs.compute import forward_macs
from fssl_core.errors import SettingError
from fssl_core.models import CUTS, build_backbone, client_module, cut, decoder, joined, remaining_backbone
from fssl_core.models.heads import MLP
from fssl_core.models.layers import BatchNorm2d, GroupNorm
from fssl_core.models.twin_norm import TwinNorm
from fssl_core.papers.reference import paper_table
from fssl_core.random import generator

TABLES = {"resnet18": ("table9", 2, 38_976, 77_853), "resnet50": ("table10", 4, 260_928, 521_565)}
OPERATIONS = {
    nn.Conv2d: "Conv2D",
    nn.ConvTranspose2d: "Conv2DTranspose",
    nn.MaxPool2d: "MaxPool2D",
    TwinNorm: "TN",
    nn.ReLU: "ReLU",
}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def images(batch: int = 4, side: int = 16, channels: int = 3) -> torch.Tensor:
    return torch.rand(batch, channels, side, side, generator=generator(0, "images"))


def printed(table: str) -> list[tuple]:
    """Operations of Table 9 or 10: name, then channels in and out, kernel, stride and padding of a convolution."""
    rows = paper_table("mfcl", table)
    return [
        (
            operation,
            *(int(value) for metric, value in zip(cells.metric, cells.value, strict=True) if metric != "present"),
        )
        for (_, operation), cells in rows.groupby(["layer_index", "operation"], sort=False)
    ]


def built(module: nn.Module) -> list[tuple]:
    """The same of modules."""
    found = []
    for layer in module.modules():
        operation = next((name for kind, name in OPERATIONS.items() if isinstance(layer, kind)), None)
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            sizes = (layer.kernel_size, layer.stride, layer.padding)
            found.append((operation, layer.in_channels, layer.out_channels, *(side for side, _ in sizes)))
        elif operation:
            found.append((operation, layer.kernel_size, layer.stride) if operation == "MaxPool2D" else (operation,))
    return found


@pytest.mark.parametrize("architecture", TABLES)
def test_layers_and_parameter_counts_are_those_of_tables_9_and_10(architecture):
    table, at, encoder_count, both_count = TABLES[architecture]
    assert CUTS[architecture] == at
    client, mirror = client_module(architecture, at), decoder(architecture, at, as_printed=True)
    rows = printed(table)
    assert built(client) + built(mirror) == rows
    counts = [value.numel() for value in (*client.parameters(), *mirror.parameters())]
    expected, channels = [], 0
    for operation, *sizes in rows:
        if operation.startswith("Conv"):
            in_channels, channels, kernel, *_ = sizes
            expected += [in_channels * channels * kernel**2, channels]
        elif operation == "TN":
            expected += [channels, channels]
    assert counts == expected
    assert (count(client), sum(counts)) == (encoder_count, both_count)
    restoring = built(decoder(architecture, at))
    changed = [(ours, theirs) for ours, theirs in zip(restoring, built(mirror), strict=True) if ours != theirs]
    assert changed == [(("Conv2DTranspose", 64, 3, 3, 2, 1), ("Conv2DTranspose", 64, 3, 3, 1, 1))]


@pytest.mark.parametrize(("architecture", "norm"), [*((name, "twin") for name in CUTS), ("resnet18", "group")])
def test_the_decoder_restores_the_resolution_and_as_printed_halves_it(architecture, norm):
    x = images()
    for at in range(1, 8):
        client = client_module(architecture, at, norm, width=4)
        maps = client(x)
        assert maps.shape[1] == client.feature_dim
        assert (maps >= 0).all()
        out = decoder(architecture, at, norm, width=4)(maps)
        assert out.shape == x.shape
        assert ((out > 0) & (out < 1)).all()
        assert decoder(architecture, at, norm, width=4, as_printed=True)(maps).shape == (4, 3, 8, 8)


def test_products_of_one_image():
    client, mirror = client_module("resnet18", 2), decoder("resnet18", 2, as_printed=True)
    products = forward_macs(client, (3, 32, 32)).products, forward_macs(mirror, (64, 32, 32)).products
    assert (round(products[0] / 1e6, 1), round(sum(products) / 1e6, 1)) == (
        39.5,
        49.4,
    )  # accounting_conventions.md, 2.1


def test_the_client_modules_of_resnet18_and_vgg16_are_identical():
    resnet, vgg = (client_module(name, 2, width=8, generator=generator(0, "model")) for name in ("resnet18", "vgg16"))
    assert [(name, value.tolist()) for name, value in resnet.state_dict().items()] == [
        (name, value.tolist()) for name, value in vgg.state_dict().items()
    ]


def main_path(module: nn.Module) -> list[tuple]:
    """Shape and stride of all convolutions that are not in a shortcut."""
    convs = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d))
    return [(tuple(layer.weight.shape), layer.stride) for name, layer in convs if "shortcut" not in name]


@pytest.mark.parametrize("architecture", ["resnet10", "resnet18", "vgg16"])
def test_client_module_and_rest_have_the_convolutions_of_the_whole(architecture):
    whole = build_backbone(architecture, width=4, norm="batch")
    shapes, x = {name: value.shape for name, value in whole.state_dict().items()}, images()
    for at in range(1, 8):
        client, rest = (
            client_module(architecture, at, width=4),
            remaining_backbone(architecture, at, width=4, image_size=16),
        )
        assert main_path(client) + main_path(rest) == main_path(whole)
        assert {name: value.shape for name, value in rest.state_dict().items()}.items() <= shapes.items()
        maps = client(x)
        assert (rest.channels, rest.image_size) == maps.shape[1:3]
        assert rest(maps).shape == whole(x).shape
        assert rest.feature_dim == whole.feature_dim


def test_the_rest_equals_torchvisions_last_blocks():
    whole = torchvision.models.resnet18()
    theirs = nn.Sequential(whole.layer1[1], whole.layer2, whole.layer3, whole.layer4)
    rest = remaining_backbone("resnet18", 3)
    for value, source in zip(rest.state_dict().values(), theirs.state_dict().values(), strict=True):
        source.copy_(value)
    maps = torch.rand(4, 64, 8, 8, generator=generator(0, "maps"))
    expected = theirs(maps)
    torch.testing.assert_close(rest(maps), expected, rtol=1e-4, atol=1e-4)
    cut_block = remaining_backbone("resnet18", 2)  # one more convolution, whose shortcut began at the client
    missing, _ = cut_block.load_state_dict(rest.state_dict(), strict=False)
    assert {name.split(".")[0] for name in missing} == {"layer1_0"}
    first = whole.layer1[0]
    first.conv2.load_state_dict(cut_block.layer1_0.conv2[0].state_dict())
    expected = theirs(F.relu(first.bn2(first.conv2(maps))))
    torch.testing.assert_close(cut_block.train()(maps), expected, rtol=1e-4, atol=1e-4)


def test_resnet50_takes_the_channels_of_table_10_by_a_projection():
    whole, rest = build_backbone("resnet50", norm="batch", width=4), remaining_backbone("resnet50", 4, width=4)
    assert rest.channels == 8  # 128 of width 64
    assert [name for name, _ in rest.named_children()] == [name for name, _ in whole.named_children()][2:]
    shapes = {name: tuple(value.shape) for name, value in whole.state_dict().items()}
    other = {name: tuple(value.shape) for name, value in rest.state_dict().items() if shapes.get(name) != value.shape}
    assert {name: shape for name, shape in other.items() if len(shape) == 4} == {
        "layer1_1.conv1.0.weight": (4, 8, 1, 1),
        "layer1_1.shortcut.0.weight": (16, 8, 1, 1),
    }
    for at in (2, 3, 5, 6):  # in the middle of a block
        client = client_module("resnet50", at, width=4)
        assert remaining_backbone("resnet50", at, width=4)(client(images())).shape == (4, 128, 2, 2)


def test_joined_modules_are_one_model_and_come_apart_again():
    client, rest = client_module("resnet10", 2, width=4), remaining_backbone("resnet10", 2, width=4)
    model, x = joined(client, rest).eval(), images()
    assert torch.equal(model(x), rest(client(x)))
    front, back = cut(model, 1)
    assert torch.equal(back(front(x)), model(x))
    assert next(front.parameters()) is next(client.parameters())
    with pytest.raises(SettingError, match="rest='resnet50 for maps of 8 channels' cannot be used: expected one for 4"):
        joined(client, remaining_backbone("resnet50", 4, width=4))


def test_a_modular_network_has_its_norm_in_the_client_module_only():
    for norm, kind in (("twin", TwinNorm), ("group", GroupNorm), ("batch", BatchNorm2d)):
        model = build_backbone("resnet18-modular", width=4, norm=norm, generator=generator(0, "model"))
        norms = {name.split(".")[0]: type(layer) for name, layer in model.named_modules() if hasattr(layer, "eps")}
        assert norms.pop("client_module") is kind
        assert set(norms.values()) == {BatchNorm2d}
        assert not any(getattr(layer, "standardize", False) for layer in model.modules())
    assert model.name == "resnet18-modular"
    assert model(images()).shape == (4, model.feature_dim, 2, 2)
    whole = count(build_backbone("resnet18-modular", norm="twin"))
    assert whole == count(build_backbone("resnet18", norm="batch")) + 64 + 64  # two biases


def test_groups_of_the_comparison():
    twin, group = (client_module("resnet18", 1, norm).conv1[1] for norm in ("twin", "group"))
    assert (twin.num_groups, group.num_groups) == (64 // 8, 64 // 16)
    assert client_module("resnet18", 1, "group", channels_per_group=4).conv1[1].num_groups == 16
    mirror = decoder("resnet18", 1, "twin", channels_per_group=2, variance="mean")
    assert (mirror.up1[1].num_groups, mirror.up1[1].variance) == (1, "mean")  # 2 does not divide 3 channels


def test_all_clients_in_one_call_equal_a_loop():
    models = []
    for key in range(2):
        alike = {"width": 16, "generator": generator(0, "client", key)}
        models.append(nn.Sequential(client_module("resnet18", 2, **alike), decoder("resnet18", 2, **alike)).double())
    state = {
        name: torch.stack([model.state_dict()[name] for model in models]) for name, _ in models[0].named_parameters()
    }
    views = images(8).double().view(2, 4, 3, 16, 16)  # [clients, 2K, C, H, W]
    together = functional_call(models[0], state, (views.transpose(0, 1).flatten(1, 2),))
    alone = torch.cat([model(x) for model, x in zip(models, views, strict=True)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)


def test_first_values_follow_from_the_generator_alone():
    before = torch.get_rng_state()
    for make in (client_module, decoder, remaining_backbone):
        first, again, other = (make("resnet10", 2, width=4, generator=generator(0, "model", key)) for key in (0, 0, 1))
        values = [torch.cat([value.flatten() for value in module.parameters()]) for module in (first, again, other)]
        assert torch.equal(values[0], values[1])
        assert not torch.equal(values[0], values[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_projection_layers_of_table_11():
    head = MLP(8, (8, 8, 4), output_norm="affine", generator=generator(0, "head"))
    names = {nn.Linear: "Dense", BatchNorm2d: "BN", nn.ReLU: "ReLU"}
    assert [names[type(layer)] for layer in head] == list(paper_table("mfcl", "table11").operation)


def test_what_cannot_be_built():
    with pytest.raises(
        SettingError, match="architecture='mobilenetv2' cannot be used: expected one of resnet10, resnet18"
    ):
        client_module("mobilenetv2", 2)
    for make in (client_module, decoder, remaining_backbone):
        with pytest.raises(SettingError, match="cut=8 cannot be used: expected one of 1, 2, 3, 4, 5, 6, 7"):
            make("resnet18", 8)
    with pytest.raises(SettingError, match="norm='layer' cannot be used: expected one of group, batch, twin"):
        client_module("resnet18", 2, "layer")
    with pytest.raises(SettingError, match="image_size=30 cannot be used: expected a multiple of 4, which the decoder"):
        decoder("resnet18", 6, image_size=30)
