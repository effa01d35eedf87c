"""Bytes between one client and the server in one epoch of split federated learning, in closed form.

MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024), Section 4.1 and Fig. 3, states no formula. Its authors'
calculator counts a latent up and its gradient down for every image, and the client model once per synchronisation;
:func:`split_traffic` has this rule and two that also count what it leaves out. :func:`engine_traffic` counts every
message of this package's engine, as its ledger does.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod

import pandas as pd

from fssl_core.models import Backbone, build_backbone, client_elements, cut_layers, latent_shape
from fssl_core.settings import check_choice, check_range

VALUE_BYTES = 4  # of a float32
RULES = {  # how often the client's state dict crosses the network at one synchronisation
    "one-way": 1,  # the authors' calculator
    "two-way": 2,  # up and down; puts the optimum of ResNet-18 where the paper states it
    "two-way-momentum": 4,  # up and down, of the online and the momentum model, as MonAcoSFL does
}


@dataclass(frozen=True)
class SplitTraffic:
    """Traffic of one client in one epoch, in bytes.

    Args:
        activation_bytes: latents up and their gradients down.
        sync_bytes: client models at all synchronisations.
    """

    activation_bytes: int
    sync_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.activation_bytes + self.sync_bytes


def split_traffic(backbone: Backbone, cut_layer: int, *, images: int, syncs: int, rule: str) -> SplitTraffic:
    """The paper's kind of count: one view per image, momentum activations ignored.

    Args:
        backbone: the whole model.
        cut_layer: label of the cut, see :func:`~fssl_core.models.cut_layers`.
        images: images that the client processes in the epoch.
        syncs: synchronisations in the epoch.
        rule: a key of ``RULES``.

    Raises:
        SettingError: unknown cut or rule, or a negative number.
    """
    check_choice("rule", rule, RULES)
    check_range("images", images, low=0)
    check_range("syncs", syncs, low=0)
    return SplitTraffic(
        activation_bytes=VALUE_BYTES * 2 * images * prod(latent_shape(backbone, cut_layer)),
        sync_bytes=VALUE_BYTES * RULES[rule] * syncs * client_elements(backbone, cut_layer),
    )


@dataclass(frozen=True)
class EngineTraffic:
    """All messages of one purpose and direction between one client and the server in one epoch.

    Args:
        purpose: ``"activations"``, ``"momentum_activations"``, ``"gradients"``, ``"parameters"`` or
            ``"momentum_parameters"``.
        direction: ``"up"`` (client to server) or ``"down"``.
        bytes: their total.
    """

    purpose: str
    direction: str
    bytes: int


def engine_traffic(
    backbone: Backbone,
    cut_layer: int,
    *,
    images: int,
    syncs: int,
    momentum_sync: bool,
    symmetric: bool = True,
    sampled: bool = True,
    freeze_client: bool = False,
) -> tuple[EngineTraffic, ...]:
    """What the split engine sends for one client in one epoch, to the byte.

    A sampled client sends the latents of both branches, receives the gradient of the online ones, and uploads its
    model at every synchronisation. Every client, sampled or not, downloads the average. Buffers count as parameters.
    A frozen client only sends: its latents once where both views pass through both branches, which are the same.

    Args:
        backbone: the whole model.
        cut_layer: label of the cut.
        images: images that the client processes in the epoch: its steps times its batch.
        syncs: synchronisations in the epoch.
        momentum_sync: momentum models are averaged as well: on in MonAcoSFL, off in MocoSFL.
        symmetric: both views pass through both branches, rather than one view through each:
            ``SplitSettings.both_views``.
        sampled: the client takes part in this epoch.
        freeze_client: the client part is neither trained nor synchronised.

    Returns:
        One record for each purpose and direction that occurs.

    Raises:
        SettingError: unknown cut, or a negative number.
    """
    check_range("images", images, low=0)
    check_range("syncs", syncs, low=0)
    views = 2 if symmetric else 1
    latents = VALUE_BYTES * images * views * prod(latent_shape(backbone, cut_layer))
    models = VALUE_BYTES * syncs * client_elements(backbone, cut_layer)
    synchronised = ("parameters", "momentum_parameters") if momentum_sync else ("parameters",)
    records = []
    if freeze_client:
        once = ("activations",) if symmetric else ("activations", "momentum_activations")
        return tuple(EngineTraffic(purpose, "up", latents) for purpose in once if sampled)
    if sampled:
        records += [
            EngineTraffic("activations", "up", latents),
            EngineTraffic("momentum_activations", "up", latents),
            EngineTraffic("gradients", "down", latents),
            *(EngineTraffic(purpose, "up", models) for purpose in synchronised),
        ]
    records += [EngineTraffic(purpose, "down", models) for purpose in synchronised]
    return tuple(records)


def traffic_table(
    architectures: Sequence[str], rules: Sequence[str] = tuple(RULES), *, image_size: int, images: int, syncs: int
) -> pd.DataFrame:
    """:func:`split_traffic` of every architecture, cut and rule, a row each.

    Args:
        architectures: names for :func:`~fssl_core.models.build_backbone`.
        rules: keys of ``RULES``.

    Returns:
        Columns ``architecture``, ``cut_layer`` (label), ``code_index`` (units on the client), ``rule``,
        ``image_size``, ``images``, ``syncs``, ``activation_bytes``, ``sync_bytes`` and ``total_bytes``.

    Raises:
        SettingError: unknown architecture or rule, or a negative number.
    """
    for rule in rules:
        check_choice("rule", rule, RULES)
    rows = []
    for architecture in architectures:
        backbone = build_backbone(architecture, image_size=image_size, values=False)
        for cut_layer in cut_layers(backbone):
            one_way = split_traffic(backbone, cut_layer, images=images, syncs=syncs, rule="one-way")
            for rule in rules:
                traffic = replace(one_way, sync_bytes=RULES[rule] * one_way.sync_bytes)
                rows.append(
                    {
                        "architecture": architecture,
                        "cut_layer": cut_layer,
                        "code_index": (cut_layer + 1) // 2,
                        "rule": rule,
                        "image_size": image_size,
                        "images": images,
                        "syncs": syncs,
                        **asdict(traffic),
                        "total_bytes": traffic.total_bytes,
                    }
                )
    return pd.DataFrame(rows)
