"""Federated averaging of self-supervised models: each client trains the whole model, the server averages.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017, Algorithm 1
(FedAvg), with a self-supervised objective in place of the supervised loss, as the baselines of MocoSFL (Fig. 1, 3,
Table 1) have it. In each round

1. the server sends the global model to the clients that take part,
2. each trains it for ``local_epochs`` passes over its own images,
3. the server replaces the global model by the average of theirs, weighted by their numbers of images.

What else a client has, its target branch and its queue of keys, stays with the client.

Clients train one after the other: with local batches of ordinary size, running them in one call does not pay.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.augment import augmentation
from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix, divergence
from fssl_core.federation.participation import sample_clients
from fssl_core.objectives import MoCoV2, Objective, SelfSupervisedModel
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range
from fssl_core.training.settings import FederationSettings
from fssl_core.training.trainer import Trainer

TARGETS = ("kept", "copied")


@dataclass(frozen=True, kw_only=True)
class AveragingSettings(FederationSettings):
    """Everything that decides the result of one run.

    Defaults: the federated MoCo-v2 of MocoSFL's code on CIFAR-10 with 5 clients. Zhuang et al. (ICLR 2022), whose
    federated BYOL MocoSFL quotes, have the same rounds, local epochs, batch and learning rate.
    """

    version: ClassVar[int] = 1  # raise when the engine's results change: stored runs are then computed again

    objective: Objective = field(default_factory=MoCoV2)
    clients: int = 5
    norm: str = "batch"
    # federation
    clients_per_round: int | None = None  # None: all
    rounds: int = 100
    local_epochs: int = 5
    batch: int = 128  # images a step; a client with fewer takes all of them
    target_at_start: str = "kept"  # the target branch of a client's round: its own of before, or the global model
    keep_velocity: bool = False  # SGD's momentum buffer survives between rounds, as do the clients that hold it
    learning_rate: float = 0.032

    def check(self) -> None:
        super().check()
        if not isinstance(self.objective, Objective):
            raise SettingError("objective", self.objective, "an objective, for example fssl_core.objectives.BYOL()")
        check_choice("target_at_start", self.target_at_start, TARGETS)
        for name in ("rounds", "local_epochs", "batch"):
            check_range(name, getattr(self, name), 1)
        if self.clients_per_round is not None:
            check_range("clients_per_round", self.clients_per_round, 1, self.clients)

    @property
    def sampled(self) -> int:
        """Clients that take part in a round."""
        return self.clients_per_round or self.clients

    def build_model(self, data: Dataset) -> SelfSupervisedModel:
        init = generator(self.seed, "initialise")
        model = self.objective.build_model(self.build_backbone(data, init), init)
        return model.to(data.train.images.device, self.dtype)

    def trainer(self, data: Dataset, run) -> "AveragingTrainer":
        return AveragingTrainer(self, data)

    def trained_backbone(self, run, data: Dataset) -> nn.Module:
        """The encoder that a finished run left, in evaluation mode: normalised images to features."""
        return self.trained_model(run, data).encoder


class AveragingTrainer(Trainer):
    """Trains one federation: :meth:`advance` is a round, :meth:`train_client` one client's part in it.

    Args:
        settings: what to do.
        data: images, normally ``settings.load_data(device)``.
    """

    def __init__(self, settings: AveragingSettings, data: Dataset) -> None:
        super().__init__(settings, data, settings.rounds)
        s = settings
        self.parts = s.divide(data)
        self.augment = augmentation(s.augmentation, data.image_size)
        model = s.build_model(data)
        self.shared = ClientMatrix(model, 1)  # the global model
        self.worker = ClientMatrix(model, 1).requires_grad_()  # the client that is training
        self.velocity = ClientMatrix(model, 1)
        self.trained = ClientMatrix(model, s.sampled)  # what the clients of this round send
        self.velocities = ClientMatrix(model, s.clients) if s.keep_velocity else None
        target = s.objective.build_target(model)
        self.target = None if target is None else ClientMatrix(target, 1)
        kept = target is not None and s.target_at_start == "kept"
        self.targets = ClientMatrix(target, s.clients) if kept else None
        for velocity in filter(None, (self.velocity, self.velocities)):
            velocity.weights.zero_()
        self.optimizer = s.sgd(self.worker, self.velocity)
        self.learner = s.objective.learner(self.worker, self.target)
        self.memory = [  # what each client remembers besides models
            self.learner.initial_state(generator(s.seed, "memory", client)) for client in range(s.clients)
        ]

    # ---------------------------------------------------------------- a round

    def advance(self) -> None:
        """One round of the clients that take part; then the global model is evaluated."""
        s, send = self.settings, self.ledger.send
        sampled = sample_clients(s.clients, s.sampled, s.seed, self.finished)
        rate = s.learning_rate * 0.5 * (1 + math.cos(math.pi * self.finished / s.rounds))
        self.optimizer.param_groups[0]["lr"] = rate
        for block in self.shared.blocks.values():
            send(block.expand(len(sampled), *block.shape[1:]), "parameters", "down", sampled)
        rows = [self.train_client(place, client) for place, client in enumerate(sampled.tolist())]
        distances = divergence(self.trained)
        self.aggregate(sampled)
        # Of a figure that some clients lack, as one without negatives, the mean is over the others.
        names = dict.fromkeys(name for row in rows for name in row)
        means = {name: _mean([row[name] for row in rows if name in row]) for name in names}
        self.record({**means, "divergence": distances.sum().item()})

    def train_client(self, place: int, client: int) -> dict[str, float]:
        """Local training from the global model; the result goes to row ``place`` of :attr:`trained`.

        Returns:
            the means over its steps of the loss and the objective's figures.
        """
        s = self.settings
        self.worker.take(self.shared, [0])
        self._take_local(client)
        losses, figures = [], []
        for local_epoch in range(s.local_epochs):
            number = self.finished * s.local_epochs + local_epoch
            for images, draws in self.batches(client, number):
                loss, logged = self.step(images, draws)
                losses.append(loss)
                figures.append(logged)
        self.check_finite(losses, f"client {client} in round {self.finished + 1}", f"learning_rate={s.learning_rate}")
        self.worker.put(self.trained, [place])
        self._put_local(client)
        means = {name: _mean([row[name].item() for row in figures if name in row]) for name in figures[-1]}
        return {"loss": torch.stack(losses).mean().item(), **means}

    def batches(self, client: int, number: int) -> list[tuple[Tensor, Tensor]]:
        """Images and augmentation draws of a client's pass ``number``; an incomplete last batch is left out.

        Returns:
            for each step, uint8 ``[batch, C, H, W]`` and ``[batch, 2, numbers]``.
        """
        s, part = self.settings, self.parts[client]
        size = min(s.batch, len(part))
        used = len(part) // size * size
        order = part[torch.randperm(len(part), generator=generator(s.seed, "order", number, client))[:used]]
        draws = self.augment.draw(2 * used, generator(s.seed, "augment", number, client)).unflatten(0, (used, 2))
        images = self.data.train.images
        return [
            (images[rows.to(images.device)], numbers)
            for rows, numbers in zip(order.split(size), draws.split(size), strict=True)
        ]

    def step(self, images: Tensor, draws: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One optimiser step of the client that is training, on what :meth:`batches` gave."""
        s = self.settings
        views = self.data.normalise(self.augment.two_views(images[None], draws[None])[0], s.dtype)  # [2, B, C, H, W]
        with s.autocast(self.device):
            loss, figures = self.learner.loss(views)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)  # the module's gradients are views of this buffer
        self.learner.after_step()
        return loss.detach(), figures

    @torch.no_grad()
    def aggregate(self, sampled: Tensor) -> None:
        """The global model becomes the average of the clients' models, weighted by their numbers of images."""
        images = torch.tensor([len(self.parts[client]) for client in sampled.tolist()])
        for name, block in self.trained.blocks.items():  # [clients, *shape]
            received = self.ledger.send(block, "parameters", "up", sampled)
            weights = (images / images.sum()).to(block).view(-1, *[1] * (block.dim() - 1))
            self.shared.blocks[name][0] = (weights * received).sum(0)

    def _take_local(self, client: int) -> None:
        if self.target is not None:
            if self.targets is not None:
                self.target.take(self.targets, [client])
            else:
                self.target.load_state_dict(_target_state(self.shared))
        if self.velocities is not None:
            self.velocity.take(self.velocities, [client])
        else:
            self.velocity.weights.zero_()
        self.learner.load_state_dict(self.memory[client])

    def _put_local(self, client: int) -> None:
        if self.targets is not None:
            self.target.put(self.targets, [client])
        if self.velocities is not None:
            self.velocity.put(self.velocities, [client])
        self.memory[client] = self.learner.state_dict()

    # ---------------------------------------------------------------- evaluation

    def global_model(self) -> SelfSupervisedModel:
        return copy.deepcopy(self.shared.row_module(0))

    def knn_model(self) -> nn.Module:
        """The encoder: features are compared, not embeddings."""
        return self.global_model().encoder

    def backbone(self, model: SelfSupervisedModel) -> nn.Module:
        return model.encoder

    # ---------------------------------------------------------------- interruption

    @property
    def _kept(self) -> list[ClientMatrix]:
        return [matrix for matrix in (self.shared, self.targets, self.velocities) if matrix is not None]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"matrices": [m.all_rows() for m in self._kept], "memory": self.memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for matrix, rows in zip(self._kept, state["matrices"], strict=True):
            matrix.load_all_rows(rows)
        self.memory = state["memory"]


def _target_state(model: ClientMatrix) -> dict[str, Tensor]:
    """Encoder and projector of a model under the names that they have in a target branch."""
    names = {"encoder": "0", "projector": "1"}
    parts = ((name.partition("."), block) for name, block in model.blocks.items())
    return {f"{names[part]}.{rest}": block[0] for (part, _, rest), block in parts if part in names}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
