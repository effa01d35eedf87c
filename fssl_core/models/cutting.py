"""A backbone as a list of units, and its cut into the client's and the server's part.

Cuts carry the papers' labels 1, 3, 5, ...: with label ``l`` the client holds the first ``(l + 1) / 2`` units. In a
ResNet of basic blocks the label is the number of convolutions on the client (1x1 shortcuts not counted), 17 for all
of ResNet-18; elsewhere it is only a label.
"""

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fssl_core.models.layers import uses_batch_statistics
from fssl_core.settings import check_choice


class Backbone(nn.Sequential):
    """Units in order, images ``[B, channels, H, W]`` in and feature maps ``[B, feature_dim, h, w]`` out.

    Args:
        units: modules by name. The places to cut are after every unit that has parameters.
        name: the architecture's name.
        feature_dim: channels of the last feature map.
        channels: channels of an image.
        image_size: side in pixels that the model is made for.
    """

    def __init__(
        self, units: Mapping[str, nn.Module], *, name: str, feature_dim: int, channels: int, image_size: int
    ) -> None:
        super().__init__(OrderedDict(units))
        self.name = name
        self.feature_dim = feature_dim
        self.channels = channels
        self.image_size = image_size


def cut_layers(backbone: Backbone) -> tuple[int, ...]:
    """The labels 1, 3, 5, ... at which a backbone can be cut; the last leaves no parameters to the server."""
    cuts = sum(next(unit.parameters(), None) is not None for unit in backbone)
    return tuple(range(1, 2 * cuts, 2))


def cut(backbone: Backbone, cut_layer: int) -> tuple[nn.Sequential, nn.Sequential]:
    """The client's and the server's units, under their names in the backbone and sharing its modules.

    Raises:
        SettingError: ``cut_layer`` is not one of :func:`cut_layers`.
    """
    check_choice("cut_layer", cut_layer, cut_layers(backbone))
    units = list(backbone.named_children())
    first = (cut_layer + 1) // 2
    return nn.Sequential(OrderedDict(units[:first])), nn.Sequential(OrderedDict(units[first:]))


def client_elements(backbone: Backbone, cut_layer: int) -> int:
    """Number of values in the state dict of the client's part, buffers included: what one upload carries."""
    client, _ = cut(backbone, cut_layer)
    return sum(value.numel() for value in client.state_dict().values())


def latent_shape(backbone: Backbone, cut_layer: int) -> tuple[int, int, int]:
    """Shape (channels, height, width) of what the client sends for one image, found without computing anything."""
    client, _ = cut(backbone, cut_layer)
    return output_shape(client, backbone.channels, backbone.image_size)


def output_shape(module: nn.Module, channels: int, side: int) -> tuple[int, ...]:
    """Shape of what a module makes of one image ``[channels, side, side]``, found without computing anything."""
    state = {name: value.to("meta") for name, value in module.state_dict().items()}
    dtype = next((parameter.dtype for parameter in module.parameters()), None)
    images = torch.empty(2, channels, side, side, dtype=dtype, device="meta")
    with torch.no_grad(), _WithoutNormalisation():
        return tuple(torch.func.functional_call(module, state, (images,)).shape[1:])


def normalises_single_values(part: nn.Module, channels: int, side: int) -> bool:
    """Whether batch norm sees maps of one pixel, in which this first part of a network, of such images, ends.

    A batch of one image is one value of each channel then, which has no variance.
    """
    return uses_batch_statistics(part) and output_shape(part, channels, side)[1:] == (1, 1)


class _WithoutNormalisation(TorchFunctionMode):
    """Normalisations return what they are given. They change no shape, and of a shape's time they take nine tenths."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function in (functional.batch_norm, functional.group_norm, functional.layer_norm):
            return arguments[0]
        return function(*arguments, **(keywords or {}))
