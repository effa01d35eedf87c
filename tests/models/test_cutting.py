"""Cuts: the papers' labels, sizes and shapes, from the settings file itself."""

from pathlib import Path

import pytest
import torch
import yaml

import fssl_core.papers
from fssl_core.errors import SettingError
from fssl_core.models import ARCHITECTURES, build_backbone, client_elements, cut, cut_layers, latent_shape, norms_of
from fssl_core.random import generator

SETTINGS = yaml.safe_load(Path(fssl_core.papers.__path__[0], "data", "monacosfl_settings.yaml").read_text("utf-8"))
CUTS = SETTINGS["official_code"]["cut_layer"]


@pytest.fixture(scope="module")
def backbones():
    names = ("resnet18", "mobilenetv2")
    return {(name, size): build_backbone(name, image_size=size) for name in names for size in (32, 224)}


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("row", CUTS["resnet18"]["table"], ids=lambda row: str(row["label"]))
def test_resnet18_equals_the_settings_file(backbones, row, size):
    backbone = backbones["resnet18", size]
    assert client_elements(backbone, row["label"]) == row[f"params{size}"]
    assert list(latent_shape(backbone, row["label"])) == row[f"out{size}"]


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("row", CUTS["mobilenetv2"]["table"], ids=lambda row: str(row["label"]))
def test_mobilenetv2_equals_the_settings_file(backbones, row, size):
    backbone = backbones["mobilenetv2", size]
    assert client_elements(backbone, row["label"]) == row["params"]
    assert list(latent_shape(backbone, row["label"])) == row[f"out{size}"]


@pytest.mark.parametrize("label", range(1, 18, 2))
def test_label_counts_the_convolutions_of_resnet18(label):
    client, _ = cut(build_backbone("resnet18", width=4), label)
    names = [name for name, layer in client.named_modules() if hasattr(layer, "standardize")]
    assert sum("shortcut" not in name for name in names) == label


@pytest.mark.parametrize(
    ("name", "last"), [("resnet10", 9), ("resnet18", 17), ("resnet34", 33), ("resnet50", 33), ("mobilenetv2", 17)]
)
def test_labels(name, last):
    assert cut_layers(build_backbone(name, width=4)) == tuple(range(1, last + 1, 2))


@pytest.mark.parametrize("name", ["resnet10", "mobilenetv2"])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_parts_make_the_whole(name, norm):
    backbone = build_backbone(name, width=4, norm=norm, image_size=16).eval()
    x = torch.randn(2, 3, 16, 16, generator=generator(0, "test"))
    for label in cut_layers(backbone):
        client, server = cut(backbone, label)
        latent = client(x)
        assert tuple(latent.shape[1:]) == latent_shape(backbone, label)
        assert torch.equal(server(latent), backbone(x))
        assert len(client) == (label + 1) // 2
        merged = {**client.state_dict(), **server.state_dict()}
        assert list(merged) == list(backbone.state_dict())
        assert all(merged[key].data_ptr() == value.data_ptr() for key, value in backbone.state_dict().items())


def test_latent_shape_computes_nothing():
    backbone = build_backbone("resnet10", width=4, norm="batch").double()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    assert latent_shape(backbone, 3) == (4, 32, 32)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_unknown_cut():
    with pytest.raises(SettingError, match=r"cut_layer=4 cannot be used: expected one of 1, 3, 5, 7, 9\."):
        cut(build_backbone("resnet10", width=4), 4)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"name": "vgg"}, r"architecture='vgg' cannot be used: expected one of resnet10, resnet18, .*mobilenetv2"),
        ({"norm": "none"}, r"norm='none' cannot be used: expected one of group, batch"),
        ({"width": 6}, r"width=6 cannot be used: expected a positive multiple of 4"),
        ({"width": 0}, r"width=0 cannot be used: expected a positive multiple of 4"),
        ({"image_size": 0}, r"image_size=0 cannot be used: expected at least 1"),
        ({"channels": 0}, r"channels=0 cannot be used: expected at least 1"),
    ],
)
def test_bad_settings(setting, message):
    with pytest.raises(SettingError, match=message):
        build_backbone(**{"name": "resnet10", **setting})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_trains_on_small_images(name):
    backbone = build_backbone(name, width=4, norm=norms_of(name)[0], image_size=8, channels=1)
    out = backbone(torch.randn(2, 1, 8, 8, generator=generator(0, "test")))
    assert out.shape[1] == backbone.feature_dim
    out.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in backbone.parameters())
