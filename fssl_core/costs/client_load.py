"""What a whole training asks of one client, with any engine that trains without labels, counted on the run's modules.

LW-FedSSL (Tun et al., arXiv:2401.11647) and MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024) both shrink what a
client computes and holds, and count it in their own ways: the one for a single input of a vision transformer and as the
peak of a process, the other not at all. Here both are counted by one rule, at the sizes of the run, without training:

- computation in multiply-adds. A trained part costs three forward passes, one of them forward, two backward; a frozen
  part and the part that follows by a moving average cost one, as nothing flows back through them. All images that a
  client uses count, both views, in every epoch. The loss, the optimiser and the augmentation do not,
- memory in bytes when the forward passes of a step end (:class:`~fssl_core.costs.compute.Memory`), in the stage in
  which it is largest: a bound of the peak from below. Images in store, workspaces and passing results are left out. A
  transformer's attention keeps its weights, as it does without a fused kernel.

Layer-wise and split training are counted to the byte. In plain federated averaging and MFCL what autograd keeps of the
loss itself is left out (similarities of a batch, queue or dictionary), as are Orchestra's passes before the first round
and its local clustering. What a client keeps beside its model counts as a second model: a target branch; its last model
(FedU, FedEMA, MOON) and the global one (FedProx, MOON); a queue; the dictionary of FedCA.

Differs from the papers: LW-FedSSL's GFLOPs leave out the target branch and one view of MoCoV3 and BYOL; MocoSFL's rule
(:data:`~fssl_core.costs.compute.MOCOSFL_PASSES`) has one pass for backward. Under a precision of bfloat16 autograd
keeps 2 bytes of most values; here they have 4.

What a client sends and receives is counted where it happens, by the run's own ledger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fssl_core.costs.activations import ADAM_STATES
from fssl_core.costs.compute import Memory, forward_macs, nbytes, saved_bytes, training_memory
from fssl_core.costs.layerwise import TRAINED_PASSES
from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.schedule import Stage
from fssl_core.models.cutting import output_shape
from fssl_core.objectives.base import Learner, Objective
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings, LayerwiseTrainer
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
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


def client_load(settings: AveragingSettings | SplitSettings | ModularSettings, data: Dataset) -> ClientLoad:
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
    if isinstance(settings, ModularSettings):
        return _modular(settings, data)
    if type(settings) in (AveragingSettings, AutoencoderSettings, MoonSettings):  # others hold parts, or train twice
        return _averaging(settings, data)
    expected = "settings of averaging, layer-wise, split or modular training"
    raise SettingError("settings", type(settings).__name__, expected)


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
    by_round = [s.local_epochs * int(used[s.taking_part(finished)].sum()) for finished in range(s.rounds)]
    macs = sum(count * loads[stage].image_macs for count, stage in zip(by_round, plan, strict=True))
    return ClientLoad(macs / s.clients, tuple(loads.values()))


def _stage(trainer: LayerwiseTrainer, stage: Stage, batch: int) -> StageLoad:
    """The engine makes the model of the stage; it takes no step."""
    trainer.enter(stage)
    s, worker, learner = trainer.settings, trainer.worker, trainer.learner
    image = trainer.data.shape
    features = output_shape(trainer.frozen, trainer.data.channels, trainer.data.image_size)
    macs = TRAINED_PASSES * forward_macs(learner.online, features).total
    if stage.frozen:
        macs += forward_macs(trainer.frozen, image).total
    if trainer.target is not None:
        macs += forward_macs(learner.target, features).total
    states = ADAM_STATES if s.optimizer == "adamw" else int(s.momentum > 0)
    memory = Memory(
        model_bytes=nbytes([*worker.blocks.values(), *trainer.frozen.state_dict().values()]),
        gradient_bytes=worker.weights.grad.nbytes,
        optimiser_bytes=states * worker.weights.nbytes,
        momentum_model_bytes=0 if trainer.target is None else nbytes(trainer.target.blocks.values()),
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


# ---------------------------------------------------------------- averaging, and MFCL, whose first phase is that


def images_seen(settings: AveragingSettings | SplitSettings | ModularSettings, data: Dataset) -> int:
    """How many images all steps of a training take, both phases of MFCL together; views of one image count once.

    Raises:
        SettingError: settings of another engine.
    """
    s = settings
    if isinstance(s, ModularSettings):
        parts = s.phase1.divide(data)
        received = sum(len(parts[client]) for client in s.received.tolist())
        batch = min(s.batch, received)
        return images_seen(s.phase1, data) + s.epochs * s.pairs_per_epoch * (received // batch * batch)
    sizes = [len(part) for part in s.divide(data)]
    if isinstance(s, SplitSettings):  # as many steps as the smallest client has
        return s.epochs * s.sampled * (min(sizes) // s.client_batch * s.client_batch)
    if isinstance(s, AveragingSettings):
        rounds = (s.taking_part(finished).tolist() for finished in range(s.rounds))
        return s.local_epochs * sum(s.used(sizes[client]) for clients in rounds for client in clients)
    raise SettingError("settings", type(s).__name__, "settings of averaging, layer-wise, split or modular training")


def views_of(objective: Objective) -> tuple[int, int]:
    """Views of an image through the model in training, and through the target branch."""
    if objective.supervised:
        return 1, 0
    if objective.name == "moco-v2":
        return (2, 2) if objective.symmetric else (1, 1)
    if objective.name == "orchestra":  # of its three views, the target sees one and the model one, and a rotated one
        return 2, 1
    return objective.views, objective.views * objective.has_target


def _averaging(settings: AveragingSettings, data: Dataset) -> ClientLoad:
    s, image = settings, data.shape
    images = [len(part) for part in s.divide(data)]
    seen = images_seen(s, data)
    model = s.build_model(data)
    target = s.objective.build_target(model)
    forward = forward_macs(model, image).total
    online, targets = views_of(s.objective)
    contrasts = isinstance(s, MoonSettings) and s.objective.contrast_weight > 0
    macs = (TRAINED_PASSES * online + 2 * contrasts) * forward
    if target is not None:
        macs += targets * forward_macs(target, image).total
    of_dictionary = 2 * forward * seen / s.local_epochs if s.objective.name == "fedca" else 0  # of a last pass

    parameters, whole = nbytes(model.parameters()), nbytes(model.state_dict().values())
    matrices = ClientMatrix(model, 1).requires_grad_(), None if target is None else ClientMatrix(target, 1)
    remembered = s.objective.learner(*matrices).initial_state(generator(s.seed, "memory", 0))
    kept = _tensor_bytes(remembered) + (0 if target is None else nbytes(target.state_dict().values()))
    kept += whole * (2 * contrasts + s.client_update.keeps + s.client_update.follows_training + (s.proximal > 0))
    if s.objective.name == "fedca":
        kept += sum(images) * s.objective.projector[-1] * next(model.parameters()).element_size()
    adam = isinstance(s, AutoencoderSettings)
    memory = Memory(
        model_bytes=whole,
        gradient_bytes=parameters,
        optimiser_bytes=parameters * (ADAM_STATES if adam else s.momentum > 0),
        momentum_model_bytes=kept,
        saved_bytes=saved_bytes(model, image, online * min(s.batch, max(images))),
    )
    return ClientLoad((seen * macs + of_dictionary) / s.clients, (StageLoad(1, macs, memory),))


def _modular(settings: ModularSettings, data: Dataset) -> ClientLoad:
    """The first phase, and a forward pass for each view that is sent."""
    s = settings
    check_choice("missing", s.missing, (0.0,))
    first = _averaging(s.phase1, data)
    module = s.phase1.build_model(data).client_module
    sent = VIEWS * s.pairs * sum(map(len, s.phase1.divide(data))) / s.clients
    return replace(first, macs=first.macs + sent * forward_macs(module, data.shape).total)


def _tensor_bytes(value: object) -> int:
    """Of all tensors in nested plain values."""
    if isinstance(value, Tensor):
        return value.nbytes
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(_tensor_bytes, inside))


# ---------------------------------------------------------------- split


def _split(settings: SplitSettings, data: Dataset) -> ClientLoad:
    s = settings
    check_choice("freeze_client", s.freeze_client, (False,))
    smallest = min(len(part) for part in s.divide(data))
    check_range("client_batch", s.client_batch, 1, smallest)
    client, image = s.build_model(data)[0], data.shape
    views = VIEWS if s.both_views else 1  # through either model
    memory = training_memory(client, image, views * s.client_batch)
    if s.momentum == 0:
        memory = replace(memory, optimiser_bytes=0)
    load = StageLoad(1, views * (TRAINED_PASSES + 1) * forward_macs(client, image).total, memory)
    return ClientLoad(images_seen(s, data) * load.image_macs / s.clients, (load,))
