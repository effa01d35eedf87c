"""Traffic and computation of one client in end-to-end, layer-wise and progressive training, in closed form.

Tun et al., "LW-FedSSL", arXiv:2401.11647, Tables 2 to 6, 10 and 11, Fig. 5, Section A.1. The paper says: download and
upload over all rounds; forward passes by fvcore for a single input; the backward pass costs two forward passes, so a
trained part counts three and a frozen one counts one. The rest is our reading, under which the printed cells come out
(``papers/data/accounting_conventions.md``):

- a "GB" is 1000 MiB, a value has 4 bytes; the heads are sent in every round, target branches never,
- a finished block is not sent again: the engine's ledger counts it once more, when the next stage begins (Algorithm 1,
  line 14),
- GFLOPs are of one input in each local epoch, 3 x 180 in all; target branches and the final norm do not count;
  MoCoV3 and BYOL count one view, SimCLR two,
- FedCA, a hypothesis for one row: beside the model a client sends a dictionary of the projections of its images in
  every round, and receives the union of all clients' in every round but the first; two more passes through its encoder
  in each round make them.

What does not come out: Prog-FedSSL's GFLOPs at 224 pixels (Table 11 prints end-to-end's 2028 once more, beside the
ratio of our 1120), the four GFLOPs of SimCLR by one count of the heads, and the ratio 2.29 in Table 6 (ours is 2.28;
the rounded cells give 2.29).

Symbols: ``R`` rounds, ``S`` stages, ``R_s`` rounds of a stage, ``k`` units that a stage adds, ``L_s`` unit, ``H`` and
``P`` heads. One multiply-add counts 1.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fssl_core.costs.parts import HEADS, Encoder, Model, build_model, resnet18, total, vit
from fssl_core.data.datasets import COCO_IMAGES
from fssl_core.errors import SettingError
from fssl_core.federation.schedule import Stage, by_round, schedule
from fssl_core.settings import check_choice

GB = 1000 * 2**20  # bytes
GFLOP = 10**9  # multiply-adds
CLIENTS = 10  # that share COCO
TRAINED_PASSES = 3  # forward, and backward for twice as much (Section A.1)
VIEWS = {"MoCoV3": 1, "BYOL": 1, "SimCLR": 2}  # that count

METHODS = {  # name in the tables: how it trains, the SSL methods that it comes with
    "FedMoCoV3": ("end-to-end", ("MoCoV3",)),
    "FedBYOL": ("end-to-end", ("BYOL",)),
    "FedU": ("end-to-end", ("BYOL",)),  # FedU and FedEMA decide on the client: they send nothing more than FedBYOL
    "FedEMA": ("end-to-end", ("BYOL",)),
    "FedSimCLR": ("end-to-end", ("SimCLR",)),
    "FedCA": ("end-to-end", ("SimCLR",)),
    "LW-FedSSL": ("layer-wise", tuple(HEADS)),
    "Prog-FedSSL": ("progressive", tuple(HEADS)),
}
ADD_ONS = ("none", "depth dropout", "proximal alignment", "representation alignment")
DROPOUT_UNITS = 6  # depth dropout: most units that are present; gives Table 6, whose text states no number


@dataclass(frozen=True)
class Exchange:
    """Bytes of one client in one round."""

    down: int
    up: int

    @property
    def total(self) -> int:
        return self.down + self.up


def round_bytes(stage: Stage, model: Model, *, counters: bool = False) -> Exchange:
    """What a client receives and sends in each round of a stage, in float32.

    Args:
        counters: those of batch norms are sent as well: off in the paper's count, on for this package's ledger.
    """
    sizes = ("parameters", "statistics", *(["counters"] if counters else []))
    down = sum(_sent(stage.exchanged_down, stage, model, size) for size in sizes)
    up = sum(_sent(stage.exchanged_up, stage, model, size) for size in sizes)
    positions = model.encoder.positions
    return Exchange(4 * (down + stage.whole_down * positions), 4 * (up + stage.whole_up * positions))


def _sent(units: range, stage: Stage, model: Model, size: str) -> int:
    """Sum of a size over what goes with these units: the units, what stands before unit 0, the norm and the heads."""
    parts = [model.encoder.norm, model.heads, *([model.encoder.stem] if 0 in units else [])]
    return _over(model.encoder, units, stage, size) + getattr(total(parts), size)


def _over(encoder: Encoder, units: range, stage: Stage, size: str) -> int:
    """Sum of a size over units, of which depth dropout leaves out ``stage.dropped`` earlier ones: the mean draw."""
    sizes = {unit: getattr(encoder.units[unit], size) for unit in units}
    earlier = [sizes[unit] for unit in units if unit in stage.earlier]
    return sum(sizes.values()) - (sum(earlier) * stage.dropped // len(earlier) if earlier else 0)


def communication_bytes(stages: list[Stage], model: Model, **options: Any) -> int:
    """Download and upload of one client over all rounds, in bytes; ``options`` as in :func:`round_bytes`.

    Args:
        stages: from :func:`~fssl_core.federation.schedule.schedule`.
        model: of as many units.
    """
    return sum(stage.rounds * round_bytes(stage, model, **options).total for stage in stages)


def epoch_macs(stage: Stage, model: Model, *, views: int = 1, head_views: int = 1, alignment: bool = False) -> int:
    """Multiply-adds of one input in a local epoch of a stage.

    Args:
        views: passes through the encoder that count: see ``VIEWS``.
        head_views: the same of the heads.
        alignment: representation alignment: two more forward passes through the units of earlier stages.
    """
    encoder = model.encoder
    stem = encoder.stem.macs * (TRAINED_PASSES if 0 in stage.active else 1)
    frozen = _over(encoder, stage.frozen, stage, "macs")
    active = TRAINED_PASSES * _over(encoder, stage.active, stage, "macs")
    aligned = 2 * _over(encoder, stage.earlier, stage, "macs") if alignment else 0
    return views * (stem + frozen + active + aligned) + head_views * TRAINED_PASSES * model.heads.macs


def training_macs(stages: list[Stage], model: Model, *, local_epochs: int = 3, **options: Any) -> int:
    """Multiply-adds of one input in all local epochs of one client; ``options`` as in :func:`epoch_macs`."""
    return local_epochs * sum(stage.rounds * epoch_macs(stage, model, **options) for stage in stages)


@dataclass(frozen=True)
class Resources:
    """Of one client over the whole training: bytes down and up, and multiply-adds of one input in each epoch."""

    communication_bytes: int
    macs: int

    @property
    def communication_gb(self) -> float:
        """In the paper's GB of 1000 MiB."""
        return self.communication_bytes / GB

    @property
    def gflops(self) -> float:
        return self.macs / GFLOP


def build_encoder(architecture: str, image_size: int = 32, patch_size: int = 4) -> Encoder:
    """``"ViT-Tiny"`` with the patch size, or ``"ResNet-18"``, which has none."""
    check_choice("architecture", architecture, ("ViT-Tiny", "ResNet-18"))
    return vit(image_size, patch_size) if architecture == "ViT-Tiny" else resnet18(image_size)


def resources(
    method: str,
    ssl_method: str,
    *,
    architecture: str = "ViT-Tiny",
    image_size: int = 32,
    patch_size: int = 4,
    stages: int | None = None,
    rounds: int = 180,
    batch_size: int = 512,
    add_on: str = "none",
    worst_case: bool = False,
    head_views: int = 1,
) -> Resources:
    """What a row of the paper's tables costs; the defaults are the paper's.

    Args:
        method: a key of ``METHODS``.
        ssl_method: a key of ``VIEWS``.
        architecture: ``"ViT-Tiny"`` or ``"ResNet-18"``.
        stages: of LW-FedSSL and Prog-FedSSL; one for each unit unless given.
        batch_size: matters to FedCA's dictionary alone.
        add_on: one of ``ADD_ONS``. Proximal alignment costs nothing that is counted.
        worst_case: see :func:`~fssl_core.federation.schedule.schedule`.
        head_views: views of the heads that count. With SimCLR, 1 gives three of the four printed GFLOPs, all but
            that of LW-FedSSL, which takes 2; none gives all four.

    Raises:
        SettingError: a name that is not known, or numbers that do not go together.
    """
    check_choice("method", method, METHODS)
    check_choice("add_on", add_on, ADD_ONS)
    kind, ssl_methods = METHODS[method]
    check_choice("ssl_method", ssl_method, ssl_methods)
    if kind == "end-to-end" and add_on != "none":
        raise SettingError("add_on", add_on, f"none with {method}, whose add-ons the paper does not have")
    model = build_model(build_encoder(architecture, image_size, patch_size), ssl_method)
    stages_ = schedule(
        kind,
        len(model.encoder.units),
        rounds=rounds,
        stages=stages,
        worst_case=worst_case,
        most_units=DROPOUT_UNITS if add_on == "depth dropout" else None,
    )
    sent = communication_bytes(stages_, model)
    macs = training_macs(
        stages_, model, views=VIEWS[ssl_method], head_views=head_views, alignment=add_on == "representation alignment"
    )
    if method == "FedCA":
        sent += dictionary_bytes(rounds, CLIENTS, COCO_IMAGES // CLIENTS, batch_size)
        macs += 2 * rounds * total((model.encoder.stem, *model.encoder.units)).macs
    return Resources(sent, macs)


def dictionary_bytes(rounds: int, clients: int, images: int, batch_size: int, embedding: int = 256) -> int:
    """FedCA's dictionaries of one client over all rounds, in bytes of float32; a hypothesis that fits Table 2.

    A projection for each image that a local epoch sees, which leaves out the last incomplete batch: 11,776 = 23 x 512
    of the 11,828 that a client has of COCO. Up in every round; the union of all clients' down from round 2 on.

    Args:
        images: of one client.
        embedding: width of a projection.
    """
    entries = images // batch_size * batch_size  # n
    return 4 * embedding * entries * (rounds + clients * (rounds - 1))


def cost_curves(model: Model, *, rounds: int = 180, local_epochs: int = 3) -> pd.DataFrame:
    """The data of Fig. 5(b) and (c): what each round of the three kinds of training costs a client.

    Staged trainings have a stage for each unit.

    Returns:
        A row for each round: ``method`` (``"FedMoCoV3"``, ``"LW-FedSSL"``, ``"Prog-FedSSL"``), ``round`` and ``stage``
        from 1, ``epoch_macs`` of one input in each of its ``local_epochs``, ``down_bytes``, ``up_bytes`` and their
        sum ``round_bytes``.
    """
    rows = []
    for method in ("FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"):
        plan = schedule(METHODS[method][0], len(model.encoder.units), rounds=rounds)
        for number, stage in enumerate(by_round(plan), start=1):
            sent = round_bytes(stage, model)
            rows.append(
                {
                    "method": method,
                    "round": number,
                    "stage": stage.number,
                    "local_epochs": local_epochs,
                    "epoch_macs": epoch_macs(stage, model),
                    "down_bytes": sent.down,
                    "up_bytes": sent.up,
                    "round_bytes": sent.total,
                }
            )
    return pd.DataFrame(rows)
