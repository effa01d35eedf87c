"""Which units of a backbone are one layer of layer-wise training, and the encoder that some of them make.

LW-FedSSL: Tun et al., "LW-FedSSL: resource-efficient layer-wise federated self-supervised learning", Sections 3.1, 4.1
and 4.5. A "layer" of the paper is a block of a vision transformer, or one of the four stages of a ResNet; a stage of
training adds one of them, or several (Table 3, :mod:`fssl_core.federation.schedule`).

What the paper leaves open follows from the traffic that it prints (``papers/data/accounting_conventions.md``, Section
1.2): what comes before the first layer, a patch projection or a stem, belongs to the first layer, and the final norm of
a transformer is part of the model, trained and exchanged in every stage.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import nn
from torch.nn.utils import skip_init

from fssl_core.errors import SettingError
from fssl_core.models.cutting import Backbone, output_shape
from fssl_core.models.initialise import initialise_

LAYER = re.compile(r"(layer\d+)_\d+|(block_\d+)")  # the unit's layer, by the unit's name


@dataclass(frozen=True)
class Stages:
    """Names of a backbone's units, in order.

    Args:
        added: the units of each layer.
        tail: units behind the last layer, which end the encoder in every stage.
    """

    added: tuple[tuple[str, ...], ...]
    tail: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.added)


def stages(backbone: Backbone) -> Stages:
    """What there is to add, layer by layer.

    Args:
        backbone: a ResNet or a vision transformer.

    Raises:
        SettingError: another backbone.
    """
    names = [name for name, _ in backbone.named_children()]
    layer_of = {name: match[1] or match[2] for name in names if (match := LAYER.fullmatch(name))}
    if not layer_of:
        raise SettingError("architecture", backbone.name, "a ResNet or a vision transformer, which has layers to add")
    first, last = (names.index(list(layer_of)[end]) for end in (0, -1))
    added = [tuple(units) for _, units in groupby(layer_of, key=layer_of.get)]
    added[0] = (*names[:first], *added[0])
    return Stages(tuple(added), tuple(names[last + 1 :]))


def part(backbone: Backbone, units: Collection[str]) -> Backbone:
    """The named units of a backbone, in its order, as a backbone of its own that shares their modules.

    Args:
        backbone: the whole.
        units: names, the first unit's among them; each must take what the one before it gives.

    Raises:
        SettingError: a name that the backbone does not have, or no first unit.
    """
    named_units = dict(backbone.named_children())
    if next(iter(named_units)) not in units or not set(units) <= set(named_units):
        raise SettingError(
            "units", tuple(units), f"units of {backbone.name} from the first on: {', '.join(named_units)}"
        )
    kept = {name: unit for name, unit in named_units.items() if name in units}
    options = {"name": backbone.name, "channels": backbone.channels, "image_size": backbone.image_size}
    channels, *_ = output_shape(nn.Sequential(*kept.values()), backbone.channels, backbone.image_size)
    return Backbone(kept, feature_dim=channels, **options)


def reshape_layer(in_dim: int, out_dim: int, *, generator: torch.Generator | None = None) -> nn.Module:
    """The temporary linear layer between pooled features ``[B, in_dim]`` and a projector made for ``[B, out_dim]``.

    Section 4.5: where the encoder of a stage is not as wide as the whole one, a linear layer makes up for it and is
    dropped at the end of the stage. Where nothing has to change this is the identity.

    Args:
        in_dim: ``feature_dim`` of the encoder of a stage.
        out_dim: of the whole backbone, 512 for ResNet-18.
        generator: source of the first values, see :func:`~fssl_core.models.initialise.initialise_`.
    """
    if in_dim == out_dim:
        return nn.Identity()
    return initialise_(skip_init(nn.Linear, in_dim, out_dim), generator)
