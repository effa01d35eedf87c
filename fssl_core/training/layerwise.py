"""Layer-wise and progressive training: a schedule that the averaging engine follows.

Tun et al., "LW-FedSSL: Resource-efficient Layer-wise Federated Self-supervised Learning", arXiv:2401.11647, Section 3,
Algorithms 1 to 4. Training has stages (:mod:`fssl_core.federation.schedule`). In each, the clients train and exchange
one part of the encoder and the heads; what earlier stages have finished stays frozen in front of it (LW-FedSSL), or
is trained along (Prog-FedSSL). The engine of :mod:`fssl_core.training.averaging` sees the model of the stage only.

The frozen part is run once for both branches. The target branch is a copy of the online branch when local training
starts (Algorithms 2 and 4), and a moving average of two equal things that do not move is equal to both: so the frozen
part of the target is that of the online branch, to the bit, and no copy of it exists.

Differs from the paper: a frozen batch norm uses its running statistics. The linear layer that brings the features of
a ResNet's early stages to the width of the heads is averaged and counted like the rest, and dropped with its stage;
the paper's traffic leaves it out. A client that has missed the end of a stage receives the finished layers when it
takes part again; the paper's traffic has no such message (nor the one at the end of each stage, Algorithm 1, line 14).
"""

import copy
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import AVERAGES, Round
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.schedule import KINDS, Stage, by_round
from fssl_core.federation.schedule import schedule as stages_of
from fssl_core.models import GlobalPool, part, reshape_layer, stages
from fssl_core.objectives import MoCoV3, Objective, SelfSupervisedModel
from fssl_core.objectives.moon import moon_loss
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range, Temperature, check_choice
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer

OPTIMIZERS = ("adamw", "sgd")


@dataclass(frozen=True, kw_only=True)
class LayerwiseSettings(AveragingSettings):
    """Federated averaging in stages.

    Defaults: Section 4.1, and for what it leaves open ``papers/data/lwfedssl_settings.yaml``.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again

    objective: Objective = field(default_factory=MoCoV3)
    image_size: int | None = 32
    partition: str = "iid"
    clients: int = 10
    augmentation: str = "mocov3"
    architecture: str = "vit-tiny"
    width: int = 64  # of each of the three heads
    norm: str = "layer"
    rounds: int = 180
    local_epochs: int = 3
    batch: int = 512
    target_at_start: str = "copied"
    optimizer: str = "adamw"
    learning_rate: float = 3e-4  # 1.5e-4 * batch / 256
    weight_decay: float = 1e-5
    schedule: str = "constant"
    selection: str = "last"
    # stages
    scheme: str = "layer-wise"  # or "progressive", "end-to-end"
    stages: Count | None = None  # S; None: one for each layer of the encoder
    worst_case: bool = False  # clients fetch the whole sub-model in every round (Section 4.3)
    # add-ons (Section 4.6)
    most_layers: Count | None = None  # depth dropout: a client uses at most so many layers in a round
    representation_alignment: NonNegative = 0.0  # weight of MOON's loss (Li et al., CVPR 2021)
    alignment_temperature: Temperature = 0.5
    client_dropout: Annotated[float, Range(0, 0.99)] = 0.0  # probability that a client misses a round

    def check(self) -> None:
        super().check()
        check_choice("scheme", self.scheme, KINDS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        needed: dict[str, tuple] = {}  # what other settings have to be
        if self.scheme != "end-to-end":  # a stage starts with what the last one left, not with what clients had
            needed = {"selection": ("last",), "keep_velocity": (False,)}
            needed |= {"target_at_start": ("copied",)} if self.objective.has_target else {}
            if self.client_update.keeps:
                raise SettingError("client_update", self.client_update.name, "replace, unless scheme is end-to-end")
        if self.optimizer == "adamw":
            needed |= {"keep_velocity": (False,)}
        if self.most_layers is not None:  # the weights of those that have a layer are made to add up to one
            needed |= {"aggregation": AVERAGES, "layers": ("tensor",)}
        for name, allowed in needed.items():
            check_choice(name, getattr(self, name), allowed)

    @property
    def pairs(self) -> bool:
        return self.scheme == "end-to-end" and super().pairs  # a frozen layer normalises each view alone

    def plan(self, layers: int) -> list[Stage]:
        """The stage of every round, of an encoder with so many layers."""
        plan = stages_of(
            self.scheme,
            layers,
            rounds=self.rounds,
            stages=self.stages,
            worst_case=self.worst_case,
            most_units=self.most_layers,
        )
        return by_round(plan)

    def local_optimizer(self, worker: ClientMatrix, velocity: ClientMatrix) -> torch.optim.Optimizer:
        if self.optimizer == "sgd":
            return super().local_optimizer(worker, velocity)
        return torch.optim.AdamW([worker.weights], lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def trainer(self, data: Dataset, run) -> "LayerwiseTrainer":
        return LayerwiseTrainer(self, data, run)


class LayerStack(nn.Sequential):
    """Layers of an encoder, of which some can be left out of a forward pass."""

    left_out: Collection[str] = ()

    def forward(self, x: Tensor) -> Tensor:
        for name, unit in self.named_children():
            if name not in self.left_out:
                x = unit(x)
        return x


class LayerwiseTrainer(AveragingTrainer):
    """Trains one federation stage by stage; see :class:`AveragingTrainer`.

    Attributes:
        whole: the whole model, of which layers that no stage has reached have their first values.
        stage: the one under way.
        part: what is trained in it, made of modules of :attr:`whole`.
        frozen: what stands in front of that.
        previous: the clients' last models of the part, with alignment; else None.
    """

    stays: ClassVar[tuple[str, ...]] = (*AveragingTrainer.stays, "previous")
    compares_models: ClassVar[bool] = True  # the distance between clients

    def federate(self, model: SelfSupervisedModel) -> None:
        """Of the whole model, that of the first stage."""
        self.whole, self.left_out = model, set()
        s = self.settings
        if s.most_layers is not None and not s.architecture.startswith("vit"):
            expected = "None: depth dropout needs layers that leave the shape as it is, those of a vision transformer"
            raise SettingError("most_layers", s.most_layers, expected)
        self.units = stages(model.encoder[0])  # of each layer; and the tail, which ends the encoder in every stage
        self.plan = s.plan(len(self.units))
        self.enter(self.plan[0])

    def enter(self, stage: Stage) -> None:
        """Make the model of a stage; its new layers have their first values."""
        s, backbone = self.settings, self.whole.encoder[0]
        self.stage = stage
        self.frozen = self._stack(stage.frozen).requires_grad_(False).eval()
        active = self._stack(stage.active, *self.units.tail)
        width = part(backbone, self._names(stage.present)).feature_dim
        reshape = reshape_layer(width, backbone.feature_dim, generator=generator(s.seed, "reshape", stage.number))
        encoder = nn.Sequential(active, GlobalPool(), reshape.to(self.device, s.dtype))
        self.part = SelfSupervisedModel(encoder, self.whole.projector, self.whole.predictor)
        super().federate(self.part)
        self.previous = self.waiting(self.part) if s.representation_alignment else None
        if self.previous is not None:
            self.learner.together = False  # the first view is looked at below
            self._encoded: list[Tensor] = []  # what the objective runs the encoder on, in order
            self._embeddings: list[Tensor] = []  # what the projector makes of it
            self.learner.online.encoder.register_forward_pre_hook(lambda _, inputs: self._encoded.append(inputs[0]))
            self.learner.online.projector.register_forward_hook(lambda *call: self._embeddings.append(call[2]))

    def _names(self, layers: range) -> list[str]:
        return [name for layer in layers for name in self.units.added[layer]]

    def _stack(self, layers: range, *tail: str) -> "LayerStack":
        names = [*self._names(layers), *tail]
        return LayerStack(OrderedDict((name, getattr(self.whole.encoder[0], name)) for name in names))

    def advance(self) -> None:
        if self.plan[self.finished] is not self.stage:
            self.enter(self.plan[self.finished])
        super().advance()

    # ---------------------------------------------------------------- a client

    def _start(self, client: int) -> None:
        draw = generator(self.settings.seed, "depth dropout", self.finished, client)
        earlier = torch.randperm(len(self.stage.earlier), generator=draw)[: self.stage.dropped]
        names = (self.units.added[layer][-1] for layer in earlier.tolist())  # of the first, not the patch projection
        self.left_out = set(names)
        online, target = self.learner.online, self.learner.target
        for stack in (self.frozen, online.encoder[0], *([] if target is None else [target[0][0]])):
            stack.left_out = self.left_out
        super()._start(client)
        memory = self.memory[client]
        memory["held"] = sorted({*memory.get("held", []), *self._used()})
        if self.previous is not None:
            if memory.get("aligned") == self.stage.number:
                previous = self.previous.row_module(client)
            else:  # no model of its own in this stage yet
                previous = self.shared.row_module(0)
            self.references = [copy.deepcopy(model) for model in (self.shared.row_module(0), previous)]
            for model in self.references:
                model.encoder[0].left_out = self.left_out

    def features(self, views: Tensor) -> Tensor:
        if not self.stage.frozen:
            return views
        with torch.no_grad():
            return self.frozen(views.flatten(0, 1)).unflatten(0, views.shape[:2])

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.settings
        if self.previous is None:
            return super().loss(inputs, *labels)
        self._encoded.clear(), self._embeddings.clear()
        loss, figures = super().loss(inputs, *labels)
        with torch.no_grad():
            others = [model.embed(self._encoded[0]) for model in self.references]
        alignment = moon_loss(self._embeddings[0], *others, s.alignment_temperature)
        return loss + s.representation_alignment * alignment, figures | {"alignment": alignment.detach()}

    @torch.no_grad()
    def _finish(self, position: int, client: int) -> None:
        for name, block in self.worker.blocks.items():
            if self._unit(name) in self.left_out:  # weight decay has moved it all the same
                block.copy_(self.shared.blocks[name])
        super()._finish(position, client)
        self.memory[client]["left_out"] = sorted(self.left_out)
        if self.previous is not None:
            self.worker.put(self.previous, [client])
            self.memory[client]["aligned"] = self.stage.number

    @staticmethod
    def _unit(name: str) -> str:
        """The unit of the encoder that a tensor of :attr:`part` belongs to; empty for other tensors."""
        module, _, rest = name.partition(".0.")
        return rest.partition(".")[0] if module == "encoder" else ""

    # ---------------------------------------------------------------- what is exchanged

    def downloads(self, client: int) -> Iterator[Tensor]:
        """The part in training, and of the frozen one what the client does not hold yet, or all of it."""
        yield from self._sent(self.shared, self._withheld(client), whole=self.stage.whole_down)
        whole = self.settings.worst_case
        held = [] if whole else self.memory[client].get("held", [])
        for unit in self._used():
            for name, value in getattr(self.frozen, unit).state_dict().items():
                if unit not in held and (whole or name != "positions"):
                    yield value[None]

    def _used(self) -> list[str]:
        """Frozen units that the client of this round runs."""
        return [name for name in self._names(self.stage.frozen) if name not in self.left_out]

    def uploads(self, client: int) -> Iterator[Tensor]:
        withheld = self.settings.client_update.skipped(self.finished, self.moved)
        return self._sent(self.outgoing, withheld, whole=self.stage.whole_up)

    def _sent(self, model: ClientMatrix, withheld: Tensor | None, *, whole: bool) -> Iterator[Tensor]:
        """The part in training; values that nobody trains only where a sub-model is sent as a whole."""
        for layer, (name, block) in zip(self.layers.of, model.blocks.items(), strict=True):
            held_back = withheld is not None and withheld[layer]
            if not held_back and self._unit(name) not in self.left_out and (whole or not name.endswith(".positions")):
                yield block

    # ---------------------------------------------------------------- the server

    def weights(self, this: Round, sampled: Tensor) -> Tensor:
        """Each layer is averaged over the clients that had it."""
        beta = super().weights(this, sampled)
        if not self.stage.dropped:
            return beta
        absent = [self.memory[client]["left_out"] for client in sampled.tolist()]
        units = [self._unit(name) for name in self.trained.blocks]  # layers of a table are tensors here
        had = torch.tensor([[unit not in left_out for unit in units] for left_out in absent]).to(beta)
        total = (beta * had).sum(0)
        return torch.where(total > 0, beta * had / total, beta)  # one that nobody had stays: all rows are the old one

    def close_round(self, sampled: Tensor) -> None:
        self.distance = self._weight_distance()
        super().close_round(sampled)

    def _weight_distance(self) -> float:
        """Mean L2 distance between the encoder of one client, drawn at random, and those of the others (Fig. 6)."""
        clients = self.trained.clients
        if clients < 2:
            return 0.0
        draw = generator(self.settings.seed, "compared client", self.finished)
        one = int(torch.randint(clients, (), generator=draw))
        squares = torch.zeros(clients, dtype=torch.float64)
        for name, block in self.trained.parameter_blocks.items():
            if self._unit(name):
                squares += (block - block[one]).flatten(1).square().sum(1).double().cpu()
        return squares.sqrt().sum().item() / (clients - 1)

    def aggregate(self, sampled: Tensor, losses: Tensor) -> Round:
        this = super().aggregate(sampled, losses)
        self.part.load_state_dict(self.shared.state_dict(0))  # its modules are those of the whole model
        return this

    def record(self, row: dict[str, float]) -> None:
        super().record({"stage": self.stage.number, **row, "weight_distance": self.distance})

    def global_model(self) -> SelfSupervisedModel:
        return copy.deepcopy(self.whole)

    def knn_model(self) -> nn.Module:
        """The encoder of the stage, without what reshapes its features."""
        stack = self._stack(self.stage.present, *self.units.tail)
        return copy.deepcopy(nn.Sequential(stack, GlobalPool()))

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"whole": dict(self.whole.state_dict()), "stage": self.stage.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.whole.load_state_dict(state["whole"])
        self.enter(next(stage for stage in self.plan if stage.number == state["stage"]))
        super().load_state_dict(state)
