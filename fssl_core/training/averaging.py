"""Federated averaging: each client trains the whole model, the server makes one model of theirs.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017, Algorithm 1
(FedAvg), with a self-supervised objective in place of the supervised loss: L-DAWA's engine (Algorithm 1), and the
baseline of the split methods. In each round

1. the server sends the global model to the clients that take part; what a client keeps of its own model is said in
   :mod:`fssl_core.federation.client_updates`,
2. each trains it for ``local_epochs`` passes over its own images,
3. the server makes the new global model of theirs by a rule of :mod:`fssl_core.federation.aggregation`.

What else a client has, its target branch and its queue of keys, stays with the client; what some objectives exchange
beside the model is said in :mod:`fssl_core.objectives.base`. Training on all images in one place is the same with one
client.

Clients train one after the other: with local batches of ordinary size, running them in one call does not pay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.augment import augmentation, second_view
from fssl_core.data.datasets import Dataset
from fssl_core.devices import launches_kernels
from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import (
    BY_KIND,
    COORDINATE_RULES,
    LAYERS,
    MORE_THAN_TWICE,
    ROBUST_RULES,
    RULES,
    SHARES,
    Layers,
    Round,
    check_faulty,
    combine,
    combine_coordinates,
    weights,
)
from fssl_core.federation.client_updates import EUC, ClientUpdate, FedEMA, FedU
from fssl_core.federation.clients import ClientMatrix, divergence
from fssl_core.federation.faults import FAULTS, LARGEST_SCALE, falsify, faulty_clients
from fssl_core.federation.participation import sample_clients, without_dropouts
from fssl_core.federation.rows import Rows, Settled
from fssl_core.models import Backbone
from fssl_core.models.cutting import normalises_single_values
from fssl_core.objectives import MoCoV2, Objective, SelfSupervisedModel
from fssl_core.random import generator
from fssl_core.settings import NonNegative, Range, Whole, added, check_choice, check_range, is_own
from fssl_core.training.settings import SELECTIONS, RoundSettings
from fssl_core.training.trainer import RoundTrainer

ALL_MODELS = 100  # of a round that the server holds at once; of more it keeps a sum and so many, to measure
TARGETS = ("kept", "copied")

METHODS: dict[str, dict[str, Any]] = {  # by the name in the papers' tables, what it sets
    "FedAvg": {},
    "FedProx": {"proximal": 0.01},
    "Loss": {"aggregation": "loss"},
    "FedU": {"client_update": FedU()},
    "FedEMA": {"client_update": FedEMA()},
    "EUC": {"client_update": EUC()},
    "M-DAWA": {"aggregation": "m-dawa"},
    "L-DAWA": {"aggregation": "l-dawa"},
    "L-DAWA after FedAvg": {"aggregation": "l-dawa", "fedavg_rounds": 3},  # as its authors' code runs it
    "L-DAWA_FedAvg": {"aggregation": "l-dawa-fedavg"},
    "L-DAWA_Loss": {"aggregation": "l-dawa-loss"},
    "L-DAWA_FedU": {"aggregation": "l-dawa-fedavg", "client_update": FedU()},
}
_NAMES = {
    (
        v.get("aggregation", "fedavg"),
        v.get("client_update", ClientUpdate()).name,
        "proximal" in v,
        "fedavg_rounds" in v,
    ): name
    for name, v in METHODS.items()
}


def method_name(aggregation: str, client_update: str, proximal: float = 0.0, fedavg_rounds: int = 0) -> str:
    """What a federated method is called in the papers' tables, a key of ``METHODS``; else the rules themselves."""
    name = _NAMES.get((aggregation, client_update, proximal > 0, fedavg_rounds > 0))
    name = name or _NAMES.get((aggregation, client_update, proximal > 0, False))
    others = (client_update if client_update != "replace" else "", "proximal" if proximal else "")
    return name or " ".join(filter(None, (aggregation, *others)))


@dataclass(frozen=True, kw_only=True)
class AveragingSettings(RoundSettings):
    """Everything that decides the result of one run.

    Defaults: the federated MoCo-v2 of MocoSFL's code on CIFAR-10 with 5 clients. Zhuang et al. (ICLR 2022), whose
    federated BYOL MocoSFL quotes, have the same rounds, local epochs, batch and learning rate.
    """

    version: ClassVar[int] = 2  # raise when the engine's results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "local training"  # one of each client that takes part in a round

    objective: Objective = field(default_factory=MoCoV2)
    clients: int = 5
    norm: str = "batch"
    # federation
    clients_per_round: int | None = None  # None: all
    rounds: int = 100
    client_dropout: Annotated[float, Range(0, 0.99)] = added(0.0, before=0.0)  # probability to miss a round
    aggregation: str = "fedavg"  # a key of RULES, ROBUST_RULES or COORDINATE_RULES
    assumed_faulty: Annotated[int, Range(0)] = added(0, before=0)  # f: clients of a round, by a robust rule
    layers: str = "tensor"  # what a layer is: each tensor of the state, or all of a module
    fedavg_rounds: Whole = 0  # rounds at the start that use FedAvg whatever the rule: 3 in L-DAWA's code
    client_update: ClientUpdate = field(default_factory=ClientUpdate)  # what a client keeps of its own model
    # clients that send something else than what they have learned: fssl_core.federation.faults
    faulty_share: Annotated[float, Range(0, 1)] = added(0.0, before=0.0)  # of all clients
    fault: str = added("none", before="none")  # a key of FAULTS
    fault_scale: Annotated[float, Range(0, LARGEST_SCALE)] = added(1.0, before=1.0)  # length of the update; 1: as long
    # local training
    local_epochs: int = 5
    batch: int = 128  # images a step; a client with fewer takes all of them
    incomplete_batch: str = added("left out", before="left out")  # of a local epoch; or "kept", as L-DAWA's code does
    target_at_start: str = "kept"  # the target branch of a client's round: its own of before, or the global model
    keep_velocity: bool = False  # SGD's momentum buffer survives between rounds, as do the clients that hold it
    learning_rate: float = 0.032
    schedule: str = "cosine"  # of the learning rate, round by round; or constant
    proximal: NonNegative = 0.0  # mu of FedProx (Li et al., MLSys 2020): adds mu / 2 |w - w_g|^2 to the local loss
    # which model is evaluated, and what is looked at on the way
    selection: str = "knn"  # the global model with the best kNN accuracy; or "last": that of the last round
    probe_every: Whole = 0  # rounds between linear probes of the global model; 0: only the best one, at the end
    keep_every: Whole = 0  # rounds between global models that are kept in the tensors "models"; 0: none

    def check(self) -> None:
        super().check()
        check_choice("aggregation", self.aggregation, (*RULES, *ROBUST_RULES, *COORDINATE_RULES))
        check_choice("layers", self.layers, LAYERS if self.aggregation not in BY_KIND else ["tensor"])
        check_choice("target_at_start", self.target_at_start, TARGETS)
        check_choice("selection", self.selection, SELECTIONS)
        check_range("batch", self.batch, self.objective.smallest_batch)
        if is_own(type(self).local_optimizer):  # which may remember more than the velocity, of all clients in turn
            check_choice("keep_velocity", self.keep_velocity, [False])
        if self.probe_every and not self.probe_epochs:
            raise SettingError("probe_every", self.probe_every, "0 where probe_epochs is 0")
        if self.aggregation in MORE_THAN_TWICE:
            check_faulty(self.aggregation, self.assumed_faulty, self.fewest)
        elif self.assumed_faulty:
            expected = f"0 with {self.aggregation}; a number is for {', '.join(MORE_THAN_TWICE)}"
            raise SettingError("assumed_faulty", self.assumed_faulty, expected)
        check_choice("fault", self.fault, ["none", *FAULTS])
        if bool(self.faulty) != (self.fault != "none"):
            raise SettingError("fault", self.fault, f"one of {', '.join(FAULTS)} with a faulty_share, none without")
        if not self.faulty:
            check_choice("fault_scale", self.fault_scale, [1.0])

    @property
    def pairs(self) -> bool:
        return self.objective.pairs

    @property
    def supervised(self) -> bool:
        return self.objective.supervised

    @property
    def views(self) -> int:
        return 1 if self.supervised else self.objective.views

    @property
    def method(self) -> str:
        """See :func:`method_name`."""
        return method_name(self.aggregation, self.client_update.name, self.proximal, self.fedavg_rounds)

    @property
    def passes(self) -> int:
        """Of a client over its images in a round."""
        return self.local_epochs

    def build_model(self, data: Dataset) -> SelfSupervisedModel:
        if self.supervised and self.objective.classes != len(data.classes):
            expected = f"{len(data.classes)}, the number of classes of {data.name}"
            raise SettingError("objective.classes", self.objective.classes, expected)
        model = self.first_values(data, generator(self.seed, "initialise"))
        return model.to(data.train.images.device, self.dtype)

    def first_values(self, data: Dataset, init: torch.Generator) -> SelfSupervisedModel:
        """The whole model on the CPU, with values from ``init``."""
        return self.objective.build_model(self.build_backbone(data, init), init)

    def taking_part(self, finished: int) -> Tensor:
        """The clients of the round after ``finished`` others, ascending."""
        sampled = sample_clients(self.clients, self.sampled, self.seed, finished)
        return without_dropouts(sampled, self.client_dropout, self.seed, finished)

    @property
    def fewest(self) -> int:
        """Clients in the smallest round."""
        if not self.client_dropout:
            return self.sampled
        return min(len(self.taking_part(finished)) for finished in range(self.rounds))

    @property
    def faulty(self) -> frozenset[int]:
        """The faulty clients."""
        return faulty_clients(self.clients, self.faulty_share, self.seed)

    def local_optimizer(self, worker: ClientMatrix, velocity: ClientMatrix) -> torch.optim.Optimizer:
        """The optimiser of the client that is training."""
        return self.sgd(worker, velocity)

    def trainer(self, data: Dataset, run) -> "AveragingTrainer":
        return AveragingTrainer(self, data, run)

    def backbone(self, model: SelfSupervisedModel) -> nn.Module:
        """The encoder: features are compared, not embeddings."""
        return model.encoder


class AveragingTrainer(RoundTrainer):
    """Trains one federation: :meth:`advance` is one client's part in a round, or the last one's and the server's.

    Args:
        settings, data: see :class:`~fssl_core.training.trainer.Trainer`.
        run: gives access to runs that this one builds on; few objectives need it.

    Attributes:
        shared: the global model, a matrix of one row.
        trained: what the clients of this round have sent so far, a row each; of more than ``ALL_MODELS`` clients,
            where the rule allows it (:attr:`sums`), those of evenly many, by which the round is measured.
        outgoing: what the client that has trained sends: its model, or what it has made of it if it is faulty.
        summed: in such a round the sum of what clients have sent, flat; in float64, their order hardly matters.
        contributions: by client, what they have sent beside it: see :meth:`Learner.contribution`.
        pooled: what the server has made of those of the last round.
        models: states of the global model that were kept on the way, the first one untrained.
    """

    stays: ClassVar[tuple[str, ...]] = ("shared", "client_models", "targets", "velocities")
    compares_models: ClassVar[bool] = False  # the server needs all models of a round at once, whatever the rule
    bytes_of_views: ClassVar[int] = 64 << 20  # made in one call on a GPU

    def __init__(self, settings: AveragingSettings, data: Dataset, run: Any = None) -> None:
        super().__init__(settings, data)
        s = settings
        self.images = torch.tensor([len(part) for part in self.parts])  # that each client trains on
        model = s.build_model(data)
        self.smallest_batch = s.objective.smallest_batch
        if _normalises_single_values(model.encoder, data):
            self.smallest_batch = 2
        check_range("batch", s.batch, self.smallest_batch)
        if self.images.min() < self.smallest_batch:
            kind = type(s.objective).__name__
            expected = f"one that gives every client {self.smallest_batch} images for {kind}, not {self.images.min()}"
            raise SettingError("partition", s.partition, expected)
        self.augment_second = augmentation(second_view(s.augmentation), data.image_size)
        self.federate(model)
        self.memory: list[dict[str, Any]] = [  # what each client remembers besides models
            {
                "rounds": 0,
                "objective": self.learner.initial_state(generator(s.seed, "memory", client)),
                "update": {},
            }
            for client in range(s.clients)
        ]
        self.rows: list[dict[str, float]] = []  # figures of this round's clients so far
        self._stored: list[Tensor] = []  # their models as states of this round have them: each is copied once
        self.skipped: Tensor | None = None  # layers that were not exchanged at the end of the last round, bool [L]
        self.moved: Tensor | None = None  # how far clients' layers were from the global ones, [L]
        self.layer_rows: list[dict[str, Any]] = []
        self.faulty = s.faulty
        self.contributions: dict[int, dict[str, Tensor]] = {}
        self.pooled = s.objective.pool({}, {}, generator(s.seed, "pool", 0))
        self.public = s.objective.public(s, data, run)
        self.models = [self._state_on_cpu()] if s.keep_every else []

    def federate(self, model: SelfSupervisedModel) -> None:
        """Make the matrices of a model that clients train and exchange, all starting from its values."""
        s = self.settings
        self.shared = ClientMatrix(model, 1)
        self.worker = self.outgoing = ClientMatrix(model, 1).requires_grad_()  # the client that is training
        self.velocity = ClientMatrix(model, 1)
        self.trained = ClientMatrix(model, min(s.sampled, ALL_MODELS))
        self.summed: Tensor | None = None
        self.layers = Layers(self.shared, s.layers)
        self.client_models = self.waiting(model) if s.client_update.keeps else None  # clients' last models
        self.began = ClientMatrix(model, 1) if s.client_update.follows_training else None  # the client's local training
        self.velocities = self.waiting(model) if s.keep_velocity else None
        target = s.objective.build_target(model)
        self.target = None if target is None else ClientMatrix(target, 1)
        kept = target is not None and s.target_at_start == "kept"
        self.targets = self.waiting(target) if kept else None
        for velocity in filter(None, (self.velocity, self.velocities)):
            velocity.zero_()
        self.optimizer = s.local_optimizer(self.worker, self.velocity)
        self.learner = s.objective.learner(self.worker, self.target)

    def waiting(self, model: nn.Module) -> Rows:
        """A state of this model for every client, whether it takes part or not."""
        return Rows(model, self.settings.clients, self.room)

    # ---------------------------------------------------------------- a round

    @property
    def progress(self) -> tuple[int, int]:
        sampled = self.settings.sampled
        return self.finished * sampled + len(self.rows), self.total * sampled

    def advance(self) -> None:
        """The next client of the round; after the last one the server aggregates and evaluates the global model."""
        s = self.settings
        sampled = s.taking_part(self.finished)
        self._make_room(len(self._measured(len(sampled))))
        if not self.rows and self.sums(len(sampled)):
            self.summed = self.shared.weights.new_zeros(self.shared.elements, dtype=torch.float64)
        position = len(self.rows)
        if s.objective.begins and self.progress[0] == 0:
            self.begin_objective(sampled)
        self.rows.append(self.train_client(position, int(sampled[position])))
        if len(self.rows) == len(sampled):
            self.close_round(sampled)

    @torch.no_grad()
    def begin_objective(self, sampled: Tensor) -> None:
        """A round without training, before the first one, for an objective that begins with contributions."""
        for client in sampled.tolist():
            self._start(client)
            with self.settings.autocast(self.device):
                self.learner.begin(self.features(self.views(*batch)) for batch in self.batches(client, 0))
            self._contribute(client)
            self.memory[client]["objective"] = self.learner.state_dict()
        self._pool()

    def close_round(self, sampled: Tensor) -> None:
        """The server's part: aggregate the rows of :attr:`trained`, log the round, evaluate the global model.

        Args:
            sampled: the clients that they are of, in order; :attr:`rows` has what each reported.
        """
        rows, self.rows, self._stored = self.rows, [], []
        distances = divergence(self.trained)
        done = self.aggregate(sampled, torch.tensor([row.pop("last_epoch_loss") for row in rows]))
        # Of a figure that some clients lack, as one without negatives, the mean is over the others.
        names = dict.fromkeys(name for row in rows for name in row)
        means = {name: _mean([row[name] for row in rows if name in row]) for name in names}
        cosine = done.model_cosines.mean().item()  # mu_delta of L-DAWA's Fig. 4
        norm = torch.linalg.vector_norm(self.shared.weights).item()
        self._log_layers(done)
        self._pool()
        self.record({**means, "divergence": distances.sum().item(), "cosine": cosine, "model_norm": norm})

    @property
    def rule(self) -> str:
        """The aggregation rule of this round."""
        s = self.settings
        return "fedavg" if self.finished < s.fedavg_rounds else s.aggregation

    def sums(self, clients: int) -> bool:
        """Whether a round of so many clients is a running sum: no model but the sum is needed, and they are many."""
        alone = not (self.compares_models or self.settings.client_update.watches)
        return clients > ALL_MODELS and alone and self.rule in SHARES

    def _measured(self, clients: int) -> range:
        """Places of the clients of a round whose models are kept to its end: all of them, or evenly many."""
        return range(0, clients, -(-clients // ALL_MODELS) if self.sums(clients) else 1)

    def _make_room(self, clients: int) -> None:
        """So many rows of :attr:`trained`."""
        if self.trained.clients != clients:
            self.trained = ClientMatrix(self.shared.row_module(0), clients)

    def train_client(self, position: int, client: int) -> dict[str, float]:
        """Local training from the global model; the result goes to row ``position`` of :attr:`trained`.

        Returns:
            the means over its steps of the loss and the objective's figures, and over its last pass of the loss.
        """
        s = self.settings
        self._start(client)
        self.optimizer.param_groups[0]["lr"] = s.rate(self.finished)
        self._receive(client)
        losses, figures = [], []
        for number in range(s.passes):
            self.begin_pass(number)
            batches = self.batches(client, self.finished * s.passes + number)
            for rows, views in self.prepared(batches):
                loss, logged = self.step(rows, views)
                losses.append(loss)
                figures.append(logged)
        self.check_finite(losses, f"client {client} in round {self.finished + 1}", f"learning_rate={s.learning_rate}")
        self._finish(position, client)
        means = {name: _mean([row[name].item() for row in figures if name in row]) for name in figures[-1]}
        last = losses[-len(batches) :]
        return {"loss": _mean_of(losses), **means, "last_epoch_loss": _mean_of(last)}

    def begin_pass(self, number: int) -> None:
        """Called before the client's pass of this number in the round, from 0; here all passes are alike."""

    def step(self, rows: Tensor, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One optimiser step of the client that is training, on what :meth:`prepared` gave."""
        s = self.settings
        labels = (self.data.train.labels[rows],) if s.supervised else ()
        with s.autocast(self.device):
            loss, figures = self.loss(self.features(views), *labels)
        loss.backward()
        if s.proximal:
            self.worker.weights.grad.add_(self.worker.weights.detach() - self.shared.weights, alpha=s.proximal)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)  # the module's gradients are views of this buffer
        self.learner.after_step()
        return loss.detach(), figures

    def prepared(self, batches: Sequence[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each step its images' numbers and :meth:`views`, of what :meth:`batches` gave.

        On a GPU those of as many steps as :attr:`bytes_of_views` admits are made in one call: to launch the hundreds of
        kernels of an augmentation takes longer than they do.
        """
        image = self.data.train.images[0].numel() * self.settings.dtype.itemsize
        step = len(batches[0][0]) * self.settings.views * image if batches else 1
        ahead = max(1, self.bytes_of_views // step) if launches_kernels(self.device) else 1
        for start in range(0, len(batches), ahead):
            rows, draws = zip(*batches[start : start + ahead], strict=True)
            views = self.views(torch.cat(rows), torch.cat(draws))
            yield from zip(rows, views.split([len(batch) for batch in rows], dim=1), strict=True)

    def views(self, rows: Tensor, draws: Tensor) -> Tensor:
        """Normalised views ``[views, B, C, H, W]`` of what :meth:`batches` gave."""
        s, images = self.settings, self.data.train.images[rows]
        if s.supervised:
            views = self.augment(images, draws[:, 0])[None]
        elif s.views == 2 and self.augment_second == self.augment:  # both in one call
            views = self.augment.two_views(images[None], draws[None])[0]
        else:
            presets = [(self.augment, self.augment_second)[view % 2] for view in range(s.views)]
            views = torch.stack([preset(images, draws[:, view]) for view, preset in enumerate(presets)])
        return self.data.normalise(views, s.dtype)

    def features(self, views: Tensor) -> Tensor:
        """What the model in training sees of the views ``[views, B, C, H, W]``: here themselves."""
        return views

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The local loss of a batch, and figures worth logging, scalars.

        Args:
            inputs: what :meth:`features` gave, ``[views, B, ...]``.
            labels: int64 ``[B]``, where the objective is supervised.
        """
        return self.learner.loss(inputs, *labels)

    @torch.no_grad()
    def aggregate(self, sampled: Tensor, losses: Tensor) -> Round:
        """The global model becomes what the rule makes of the clients' models.

        Args:
            sampled: the clients, in the order of the rows of :attr:`trained`.
            losses: of each in its last local epoch.
        """
        s = self.settings
        rows = slice(None) if self.summed is None else list(self._measured(len(sampled)))
        images, losses = (values.to(self.device) for values in (self.images[sampled[rows]], losses[rows]))
        this = Round(self.shared, self.trained, images, losses, self.layers, s.assumed_faulty)
        # Everything that reads the previous global model comes before it is overwritten.
        _ = this.cosines, this.model_cosines
        self.skipped = s.client_update.skipped(self.finished, self.moved)
        if s.client_update.watches:  # another read of all models
            moved = this.distances.mean(0)
            self.moved = moved if self.skipped is None else torch.where(self.skipped, self.moved, moved)
        if self.summed is not None:
            self.shared.load_row(0, self.summed)
            self.summed = None
        elif self.rule in COORDINATE_RULES:
            combine_coordinates(self.rule, this, self.shared, self.skipped)
        else:
            self.combine(self.weights(this, sampled), this)
        return this

    def combine(self, beta: Tensor, this: Round) -> None:
        """Write the new global model."""
        combine(beta, this, self.shared, self.skipped)

    def weights(self, this: Round, sampled: Tensor) -> Tensor:
        """The table ``beta[client, layer]`` of this round."""
        return weights(self.rule, this)

    # ---------------------------------------------------------------- a client

    def _start(self, client: int) -> None:
        """The client takes over the global model, and goes on with what it has of its own."""
        memory, number = self.memory[client], torch.tensor([client])
        newcomer = memory["rounds"] == 0
        for block in self.downloads(client):
            self.ledger.send(block, "parameters", "down", number)
        self.load(client)
        if self.settings.client_update.keeps and not newcomer:
            self._keep_client_model(client, self._withheld(client))
        if self.began is not None:
            self.began.take(self.worker, [0])
        if self.target is not None:
            if self.targets is not None:
                self.target.take(self.targets, [client])
            else:
                self.target.load_state_dict(_target_state(self.worker))
        if self.velocities is not None:
            self.velocity.take(self.velocities, [client])
        else:
            self.velocity.zero_()
            self.optimizer = self.settings.local_optimizer(self.worker, self.velocity)  # Adam begins afresh
        self.learner.load_state_dict(memory["objective"])

    def load(self, client: int) -> None:
        """The model in training becomes what the client begins with: the global model."""
        self.worker.take(self.shared, [0])

    def downloads(self, client: int) -> Iterator[Tensor]:
        """What the client receives before it trains, tensors ``[1, ...]``."""
        return self._exchanged(self.shared, self._withheld(client))

    def uploads(self, client: int) -> Iterator[Tensor]:
        """What the client sends when it has trained."""
        return self._exchanged(self.outgoing, self.settings.client_update.skipped(self.finished, self.moved))

    def _withheld(self, client: int) -> Tensor | None:
        """Layers that the client goes on with as they are, bool ``[L]``: only one of the last round has them."""
        if self.skipped is None or client not in self.settings.taking_part(self.finished - 1):
            return None
        return self.skipped

    def _exchanged(self, model: ClientMatrix, withheld: Tensor | None) -> Iterator[Tensor]:
        for layer, block in zip(self.layers.of, model.blocks.values(), strict=True):
            if withheld is None or not withheld[layer]:
                yield block

    @torch.no_grad()
    def _keep_client_model(self, client: int, withheld: Tensor | None) -> None:
        """``(1 - kept) * global + kept * client's last``, layer by layer."""
        client_model = self.velocity  # free until the client's own velocity is needed
        client_model.take(self.client_models, [client])
        kept = self.settings.client_update.kept(client_model, self.shared, self.layers, self.memory[client]["update"])
        if withheld is not None:
            kept = torch.where(withheld.cpu(), 1.0, kept)
        for layer, (name, block) in zip(self.layers.of, self.worker.blocks.items(), strict=True):
            if kept[layer] > 0:
                block.lerp_(client_model.blocks[name], kept[layer].item())

    def _receive(self, client: int) -> None:
        """The client gets what clients exchange beside the model."""
        s = self.settings
        if s.objective.shares:
            self.learner.receive(self._exchange(self.pooled, "down", client), client)
        if self.public is not None:
            images, representations = self.public
            if self.memory[client]["rounds"] == 0:
                self._exchange({"representations": representations}, "down", client)
            with s.autocast(self.device):
                self.learner.align(self.features(images[None])[0], representations)

    @torch.no_grad()
    def _contribute(self, client: int) -> None:
        """The client sends what it has made of its images of the last local epoch."""
        s = self.settings
        if not s.objective.shares:
            return
        batches = self.batches(client, (self.finished + 1) * s.passes - 1)
        with s.autocast(self.device):
            inputs = (self.features(self.views(*batch)) for batch in batches)
            contribution = self.learner.contribution(inputs, generator(s.seed, "contribution", self.finished, client))
        self.contributions[client] = self._exchange(contribution, "up", client)

    def _exchange(self, values: dict[str, Tensor], direction: str, client: int) -> dict[str, Tensor]:
        number = torch.tensor([client])
        return {name: self.ledger.send(value[None], "features", direction, number)[0] for name, value in values.items()}

    def _pool(self) -> None:
        """The server makes of what clients sent what those of the next round receive."""
        s = self.settings
        if s.objective.shares:
            ordered = dict(sorted(self.contributions.items()))
            self.pooled = s.objective.pool(ordered, self.pooled, generator(s.seed, "pool", self.finished + 1))
            self.contributions = {}

    def _finish(self, position: int, client: int) -> None:
        """The client remembers what it keeps, and sends its model and what else it exchanges."""
        s = self.settings
        self._contribute(client)
        for matrix, stored in (
            (self.worker, self.client_models),
            (self.target, self.targets),
            (self.velocity, self.velocities),
        ):
            if stored is not None:
                matrix.put(stored, [client])
        memory = self.memory[client]
        if self.began is not None:
            s.client_update.trained(self.began, self.worker, memory["update"])
        memory["objective"] = self.learner.state_dict()
        memory["rounds"] += 1
        self.outgoing = self.worker
        if client in self.faulty:
            self.outgoing = self.velocity  # free until the next client's own velocity is needed
            draw = generator(s.seed, "fault", self.finished, client)
            falsify(self.worker, self.shared, s.fault, s.fault_scale, draw, into=self.outgoing)
        for block in self.uploads(client):
            self.ledger.send(block, "parameters", "up", torch.tensor([client]))
        self._collect(position)

    def _collect(self, position: int) -> None:
        """The server gets the model of the client that has trained."""
        kept = range(self.trained.clients)
        if self.summed is not None:
            sampled = self.settings.taking_part(self.finished)
            share = SHARES[self.rule](self.images[sampled])[position].item()
            self.summed.add_(self.outgoing.row(0), alpha=share)
            kept = self._measured(len(sampled))
        if position in kept:
            self.outgoing.put(self.trained, [kept.index(position)])

    # ---------------------------------------------------------------- evaluation

    def record(self, row: dict[str, float]) -> None:
        s = self.settings
        super().record(row)
        if s.probe_every and self.finished % s.probe_every == 0:
            self.metrics[-1]["linear_probe_accuracy"] = s.probe(self.knn_model(), self.data)
        if s.keep_every and self.finished % s.keep_every == 0:
            self.models.append(self._state_on_cpu())

    def _state_on_cpu(self) -> dict[str, Tensor]:
        """Of the global model; where a resumed run finds those of before, too."""
        return {name: value.cpu() for name, value in self.global_model().state_dict().items()}

    def _log_layers(self, done: Round) -> None:
        squares = [  # of a single number nothing, as in Round
            block.double().square().sum() if block.dim() > 1 else block.new_zeros((), dtype=torch.float64)
            for block in self.shared.blocks.values()
        ]
        norms = self.layers.sums(torch.stack(squares)).sqrt()
        cosines = done.cosines.mean(0)
        for name, norm, cosine in zip(self.layers.names, norms.tolist(), cosines.tolist(), strict=True):
            self.layer_rows.append({"round": self.finished + 1, "layer": name, "norm": norm, "cosine": cosine})

    def global_model(self) -> SelfSupervisedModel:
        return self.shared.row_copy(0)

    def tables(self) -> dict[str, pd.DataFrame]:
        """In addition ``layers``: by round and layer, norm of the global model and mean cosine of the clients to it."""
        return super().tables() | {"layers": pd.DataFrame(self.layer_rows)}

    def tensors(self) -> dict[str, dict[str, Any]]:
        """In addition ``models``, where they were kept: states of the global model by round, ``[rounds, *shape]``."""
        if not self.models:
            return super().tensors()
        stacked = {name: torch.stack([model[name] for model in self.models]) for name in self.models[0]}
        return super().tensors() | {"models": stacked}

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next client depends on."""
        exchanged = {"contributions": self.contributions, "pooled": self.pooled}
        measured = self._measured(len(self.settings.taking_part(self.finished)))
        received = sum(position < len(self.rows) for position in measured)  # rows of this round
        self._stored += [self.trained.row(row) for row in range(len(self._stored), received)]
        return super().state_dict() | {
            "memory": Settled(self.memory),
            "rows": self.rows,
            "trained": Settled(self._stored),
            "summed": self.summed,
            "skipped": self.skipped,
            "moved": self.moved,
            "layer_rows": self.layer_rows,
            "models": Settled(self.models),
            **(exchanged if self.settings.objective.shares else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._stored = list(state["trained"])
        if self._stored:
            self._make_room(len(self._measured(len(self.settings.taking_part(self.finished)))))
            for position, row in enumerate(self._stored):
                self.trained.load_row(position, row)
        for name in ("summed", "skipped", "moved"):
            setattr(self, name, None if state[name] is None else state[name].to(self.device, copy=True))
        for name in ("memory", "rows", "layer_rows", "models"):
            setattr(self, name, state[name])
        if self.settings.objective.shares:
            self.pooled = self._here(state["pooled"])
            self.contributions = {client: self._here(sent) for client, sent in state["contributions"].items()}

    def _here(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.to(self.device) for name, value in values.items()}


def _normalises_single_values(encoder: nn.Module, data: Dataset) -> bool:
    """As of its backbone; of several all are alike."""
    backbone = next((module for module in encoder.modules() if isinstance(module, Backbone)), None)
    return backbone is not None and normalises_single_values(backbone, data.channels, data.image_size)


def _target_state(model: ClientMatrix) -> dict[str, Tensor]:
    """Encoder and projector of a model under the names that they have in a target branch."""
    names = {"encoder": "0", "projector": "1"}
    parts = ((name.partition("."), block) for name, block in model.blocks.items())
    return {f"{names[part]}.{rest}": block[0] for (part, _, rest), block in parts if part in names}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _mean_of(losses: list[Tensor]) -> float:
    return torch.stack(losses).mean().item()
