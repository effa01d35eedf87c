"""An architecture of a user's own: a function under a new name in ``ARCHITECTURES``."""

import pytest
import torch
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.experiments import split_settings
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


def test_dropout_which_draws_from_the_global_generator_is_refused(monkeypatch):
    register(monkeypatch, Conv2d(4, 8, 3), nn.Dropout(0.1))
    with pytest.raises(SettingError, match="a model without Dropout, with which equal settings"):
        build_backbone("own", width=4)
    register(monkeypatch, Conv2d(4, 8, 3), nn.Dropout2d(0.0))  # which does nothing
    assert build_backbone("own", width=4)


@pytest.mark.parametrize(
    "layer", [nn.Softmax(dim=1), nn.ChannelShuffle(2), nn.PReLU(), nn.PReLU(8), nn.InstanceNorm2d(8, affine=True)]
)
def test_layers_that_look_across_channels_run_one_client_at_a_time_or_not_at_all(monkeypatch, layer):
    """In one call the channels of all clients stand side by side; parameters of PyTorch's layers are of one client."""
    register(monkeypatch, Conv2d(4, 8, 3), layer)
    settings = split_settings("smoke", architecture="own", clients=5, cut_layer=3, width=4)
    data = settings.load_data()
    with pytest.raises(
        SettingError, match=r"backend='auto' cannot be used: expected 'loop': layers of own look across"
    ):
        settings.trainer(data, None)
    settings.changed(backend="loop").trainer(data, None).advance()
    assert settings.changed(cut_layer=1).trainer(data, None)  # the server has that layer
    register(monkeypatch, Conv2d(4, 8, 3), nn.GELU())
    assert settings.trainer(data, None)
