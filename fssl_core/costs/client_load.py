"""What a whole training asks of one client, layer-wise or in split learning, counted on the modules of the run.

LW-FedSSL (Tun et al., arXiv:2401.11647) and MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024) both shrink what a
client computes and holds, and count it in their own ways: the one for a single input of a vision transformer and as the
peak of a process, the other not at all. Here both are counted by one rule, at the sizes of the run, without training:

- computation in multiply-adds. A trained part costs three forward passes, one of them forward, two backward; a frozen
  part and the part that follows by a moving average cost one, as nothing flows back through them. All images that a
  client uses count, both views, in every epoch. The loss, the optimiser and the augmentation do not,
- memory in bytes when the forward passes of a step end (:class:`~fssl_core.costs.compute.Memory`), in the stage in
  which it is largest: a bound of the peak from below. Images in store, workspaces and passing results are left out. A
  transformer's attention keeps its weights, as it does without a fused kernel.

Differs from the papers: LW-FedSSL's GFLOPs leave out the target branch and one view of MoCoV3 and BYOL; MocoSFL's rule
(:data:`~fssl_core.costs.compute.MOCOSFL_PASSES`) has one pass for backward. Under a precision of bfloat16 autograd
keeps 2 bytes of most values; here they have 4.

What a client sends and receives is counted where it happens, by the run's own ledger.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fssl_core.costs.activations import ADAMW_STATES
from fssl_core.costs.compute import Memory, forward_macs, saved_bytes, training_memory
from fssl_core.costs.layerwise import TRAINED_PASSES
from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.schedule import Stage
from fssl_core.objectives.base import Learner
from fssl_core.settings import check_choice, check_range
from fssl_core.training.layerwise import LayerwiseSettings, LayerwiseTrainer
from fssl_core.training.split import SplitSettings

VIEWS = 2
OBJECTIVES = ("simclr", "moco-v3", "byol")  # of layer-wise training: both views through every branch
ALONE = {  # settings of a federation, as a single client has them
    "clients": 1,
    "clients_per_round": None,
    "client_dropout": 0.0,
    "partition": "iid",
    "aggregation": "fedavg",
    "assumed_faulty": 0,
    "faulty_share": 0.0,
    "fault": "none",
    "fault_scale": 1.0,
}
PLAIN = {"most_layers": None, "representation_alignment": 0.0, "proximal": 0.0}  # add-ons change what a client needs


@dataclass(frozen=True)
class StageLoad:
    """A client in one stage of a training.

    Args:
        number: of the stage, from 1; split learning has one.
        image_macs: multiply-adds of an image in an epoch.
        memory: what the client holds.
    """

    number: int
    image_macs: int
    memory: Memory


@dataclass(frozen=True)
class ClientLoad:
    """A client over a whole training.

    Args:
        macs: multiply-adds; the mean over clients, where they have unequally many images or not all take part.
        stages: the first one first.
    """

    macs: float
    stages: tuple[StageLoad, ...]

    @property
    def peak(self) -> StageLoad:
        """The stage that needs most memory."""
        return max(self.stages, key=lambda stage: stage.memory.total_bytes)

    @property
    def memory_bytes(self) -> int:
        return self.peak.memory.total_bytes


def client_load(settings: LayerwiseSettings | SplitSettings, data: Dataset) -> ClientLoad:
    """Computation and memory of one client.

    Args:
        settings: of a run, without add-ons.
        data: its images, normally ``settings.load_data()``: their number, shape and division count, not their pixels.

    Raises:
        SettingError: settings of another kind, or with something that is not counted here.
    """
    if isinstance(settings, LayerwiseSettings):
        return _layerwise(settings, data)
    if isinstance(settings, SplitSettings):
        return _split(settings, data)
    raise SettingError("settings", type(settings).__name__, "LayerwiseSettings or SplitSettings")


# ---------------------------------------------------------------- layer-wise


def _layerwise(settings: LayerwiseSettings, data: Dataset) -> ClientLoad:
    s = settings
    check_choice("objective.name", s.objective.name, OBJECTIVES)
    for name, value in PLAIN.items():
        check_choice(name, getattr(s, name), (value,))
    if s.client_update.keeps:
        raise SettingError("client_update", s.client_update.name, "replace, with which clients keep no second model")
    images = [len(part) for part in s.divide(data)]
    alone = s.changed(**ALONE, keep_every=0)
    trainer = LayerwiseTrainer(alone, data)
    batch = min(s.batch, max(images))
    plan = s.plan(len(trainer.units))
    loads = {stage: _stage(trainer, stage, batch) for stage in dict.fromkeys(plan)}
    used = torch.tensor([s.used(count) for count in images])
    images_seen = [s.local_epochs * int(used[s.taking_part(finished)].sum()) for finished in range(s.rounds)]
    macs = sum(count * loads[stage].image_macs for count, stage in zip(images_seen, plan, strict=True))
    return ClientLoad(macs / s.clients, tuple(loads.values()))


def _stage(trainer: LayerwiseTrainer, stage: Stage, batch: int) -> StageLoad:
    """The engine makes the model of the stage; it takes no step."""
    trainer.enter(stage)
    s, worker, learner = trainer.settings, trainer.worker, trainer.learner
    image = _image(trainer.data)
    features = _output_shape(trainer.frozen, image, s.dtype)
    macs = TRAINED_PASSES * forward_macs(learner.online, features).total
    if stage.frozen:
        macs += forward_macs(trainer.frozen, image).total
    if trainer.target is not None:
        macs += forward_macs(learner.target, features).total
    states = ADAMW_STATES if s.optimizer == "adamw" else int(s.momentum > 0)
    memory = Memory(
        model_bytes=_nbytes([*worker.blocks.values(), *trainer.frozen.state_dict().values()]),
        gradient_bytes=worker.weights.grad.nbytes,
        optimiser_bytes=states * worker.weights.nbytes,
        momentum_model_bytes=0 if trainer.target is None else _nbytes(trainer.target.blocks.values()),
        saved_bytes=saved_bytes(_LocalLoss(learner), (batch, *features), VIEWS),
    )
    return StageLoad(stage.number, VIEWS * macs, memory)


class _LocalLoss(nn.Module):
    """The loss of a batch as a function of its views ``[2, B, ...]``, so that it can be counted as a module is."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.online, self.target = learner.online, learner.target  # to be moved with this module
        self.learner = learner

    def forward(self, views: Tensor) -> Tensor:
        return self.learner.loss(views)[0]


# ---------------------------------------------------------------- split


def _split(settings: SplitSettings, data: Dataset) -> ClientLoad:
    s = settings
    check_choice("freeze_client", s.freeze_client, (False,))
    smallest = min(len(part) for part in s.divide(data))
    check_range("client_batch", s.client_batch, 1, smallest)
    client, image = s.build_model(data)[0], _image(data)
    views = VIEWS if s.both_views else 1  # through either model
    memory = training_memory(client, image, views * s.client_batch)
    if s.momentum == 0:
        memory = replace(memory, optimiser_bytes=0)
    load = StageLoad(1, views * (TRAINED_PASSES + 1) * forward_macs(client, image).total, memory)
    # as many steps as the smallest client has
    images_seen = s.epochs * s.sampled * (smallest - smallest % s.client_batch)
    return ClientLoad(images_seen * load.image_macs / s.clients, (load,))


# ---------------------------------------------------------------- both


def _image(data: Dataset) -> tuple[int, int, int]:
    return data.channels, data.image_size, data.image_size


def _output_shape(module: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """Of one input, found without computing anything."""
    with torch.no_grad():
        return tuple(copy.deepcopy(module).to("meta")(torch.empty(1, *shape, dtype=dtype, device="meta")).shape[1:])


def _nbytes(values: Iterable[Tensor]) -> int:
    return sum(value.nbytes for value in values)
