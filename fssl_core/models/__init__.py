"""Backbones, the cut that splits one between client and server, and heads."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from fssl_core.errors import SettingError
from fssl_core.models.client_module import CUTS, client_module, decoder, joined, modular, remaining_backbone
from fssl_core.models.cutting import Backbone, client_elements, cut, cut_layers, latent_shape, output_shape
from fssl_core.models.heads import GlobalPool
from fssl_core.models.initialise import build, initialise_
from fssl_core.models.layers import CHANNELS_PER_GROUP, NORMS, uses_batch_statistics
from fssl_core.models.mobilenet import mobilenetv2
from fssl_core.models.resnet import DEPTHS, resnet, resnet_imagenet
from fssl_core.models.stages import part, reshape_layer, stages
from fssl_core.models.twin_norm import TwinNorm, needs_pairs, paired
from fssl_core.models.vgg import vgg16
from fssl_core.models.vit import NORM, VITS, initialise_vit_, vit
from fssl_core.settings import check_choice, check_range, is_own

ARCHITECTURES: dict[str, Callable[..., Backbone]] = {
    **{name: partial(resnet, name) for name in DEPTHS},
    "mobilenetv2": partial(mobilenetv2, "mobilenetv2"),
    "mobilenetv2-imagenet": partial(mobilenetv2, "mobilenetv2-imagenet", strides="imagenet"),
    "resnet18-imagenet": partial(resnet_imagenet, "resnet18-imagenet"),
    "vgg16": partial(vgg16, "vgg16"),
    **{f"{name}-modular": partial(modular, name) for name in CUTS},
    **{name: partial(vit, name, depth=depth) for name, depth in VITS.items()},
}

# Of architectures that compute something else than when runs of them were stored: those runs are computed again.
VERSIONS = {"mobilenetv2": 2, "mobilenetv2-imagenet": 2}

TORCHS_OWN = (nn.Conv2d, nn.ConvTranspose2d, nn.GroupNorm, nn.BatchNorm2d)  # cannot run all clients in one call


def norms_of(name: str) -> tuple[str, ...]:
    """The normalisations that an architecture, a key of ``ARCHITECTURES``, can be built with."""
    return (NORM,) if name in VITS else NORMS


def build_backbone(
    name: str,
    *,
    width: int = 64,
    norm: str = "group",
    image_size: int = 32,
    channels: int = 3,
    generator: torch.Generator | None = None,
    values: bool = True,
) -> Backbone:
    """A backbone on the CPU with its first values.

    Args:
        name: a key of ``ARCHITECTURES``.
        width: 64 for the papers' number of channels; other multiples of 4 scale it. Of a transformer, that of a head.
        norm: ``"group"`` (4 channels per group, standardised convolutions), ``"batch"`` or ``"twin"``, for which both
            views of an image must be in one batch; of a vision transformer ``"layer"``.
        image_size: side of an image in pixels; chooses the stem of a ResNet, and the patches of a transformer.
        channels: channels of an image.
        generator: source of the first values, on the CPU; without one, always the same values.
        values: False: shapes only, on the device "meta", which takes no memory however wide the model is.

    Raises:
        SettingError: naming the argument that cannot be used.
    """
    check_choice("architecture", name, ARCHITECTURES)
    if norm not in norms_of(name):
        raise SettingError("norm", norm, f"one of {', '.join(norms_of(name))}: those of {name}")
    if width < CHANNELS_PER_GROUP or width % CHANNELS_PER_GROUP:
        raise SettingError("width", width, f"a positive multiple of {CHANNELS_PER_GROUP}, the channels of a group")
    check_range("image_size", image_size, low=1)
    check_range("channels", channels, low=1)
    make = partial(ARCHITECTURES[name], width=width, norm=norm, image_size=image_size, channels=channels)
    if not values:
        with torch.device("meta"):
            return make()
    backbone = build(make, generator, initialise_vit_ if name in VITS else initialise_)
    if is_own(ARCHITECTURES[name]):
        _check_own(name, backbone)
    return backbone


def _check_own(name: str, backbone: Backbone) -> None:
    # A client matrix would only say that shapes or dtypes do not fit, and not before the first step.
    for layer in backbone.modules():
        if type(layer) in TORCHS_OWN:
            expected = f"a model with the layers of fssl_core.models.layers in place of torch.nn.{type(layer).__name__}"
            raise SettingError("architecture", name, expected)
        if isinstance(layer, _DropoutNd) and layer.p:  # it draws from torch's global generator
            expected = f"a model without {type(layer).__name__}, with which equal settings do not give equal numbers"
            raise SettingError("architecture", name, expected)
    shape = output_shape(backbone, backbone.channels, backbone.image_size)
    if len(shape) != 3 or shape[0] != backbone.feature_dim:
        expected = (
            f"a model of maps [B, feature_dim, h, w], where its Backbone says feature_dim={backbone.feature_dim} "
            f"and makes [B, {', '.join(map(str, shape))}]"
        )
        raise SettingError("architecture", name, expected)


__all__ = [
    "ARCHITECTURES",
    "CUTS",
    "VERSIONS",
    "Backbone",
    "GlobalPool",
    "TwinNorm",
    "build",
    "build_backbone",
    "client_elements",
    "client_module",
    "cut",
    "cut_layers",
    "decoder",
    "initialise_",
    "joined",
    "latent_shape",
    "needs_pairs",
    "norms_of",
    "paired",
    "part",
    "remaining_backbone",
    "reshape_layer",
    "stages",
    "uses_batch_statistics",
]
