"""An architecture of a user's own: a function under a new name in ``ARCHITECTURES``."""

import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.models import ARCHITECTURES, Backbone, build_backbone, cut_layers
from fssl_core.models.layers import Conv2d


def register(monkeypatch, *layers: nn.Module) -> None:
    def make(*, width: int, norm: str, image_size: int, channels: int) -> Backbone:
        like = {"channels": channels, "image_size": image_size}
        first = nn.Sequential(Conv2d(channels, width, 3, 2), nn.ReLU())
        return Backbone({"first": first, "second": nn.Sequential(*layers)}, name="own", feature_dim=8, **like)

    monkeypatch.setitem(ARCHITECTURES, "own", make)


def test_it_is_built_by_its_name_with_the_settings_of_a_run(monkeypatch):
    register(monkeypatch, Conv2d(4, 8, 3, 2))
    backbone = build_backbone("own", width=4, image_size=16, channels=1)
    assert cut_layers(backbone) == (1, 3)
    assert backbone(torch.zeros(2, 1, 16, 16)).shape == (2, 8, 4, 4)


@pytest.mark.parametrize(
    ("layers", "made"), [([Conv2d(4, 12, 3, 2)], r"\[B, 12, 8, 8\]"), ([Conv2d(4, 8, 3), nn.Flatten()], r"\[B, 2048\]")]
)
def test_what_it_makes_is_what_it_says(monkeypatch, layers, made):
    """Else a head that is as wide as it says would fail in the first step, or be left without its last channels."""
    register(monkeypatch, *layers)
    with pytest.raises(SettingError, match=rf"architecture='own' .* says feature_dim=8 and makes {made}"):
        build_backbone("own", width=4)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 8, 1), nn.ConvTranspose2d(4, 8, 1), nn.GroupNorm(1, 4), nn.BatchNorm2d(4)]
)
def test_a_layer_that_could_not_be_trained_is_refused_by_name(monkeypatch, layer):
    register(monkeypatch, layer)
    with pytest.raises(SettingError, match=rf"fssl_core.models.layers in place of torch.nn.{type(layer).__name__}"):
        build_backbone("own", width=4)
