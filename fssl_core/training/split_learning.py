"""Supervised federated split learning: clients train the first layers, the server the rest, averaged every round.

Two ways to train the client part, ``gradients``:

``"local"``   Han, Bhatti, Lee and Moon, "Accelerating federated learning with split learning on locally generated
              losses", ICML 2021 workshop on federated learning for user privacy: MFCL's baseline "FSL". Each client
              has a small head of its own on its activations and trains by the cross-entropy of that; nothing comes
              back from the server during a round. The heads are averaged with the client parts.
``"server"``  Thapa et al., "SplitFed: when federated learning meets split learning", AAAI 2022: the server returns the
              gradient of the activations.

In each round

1. the server sends the client part to the clients that take part,
2. each passes over its images ``local_epochs`` times. In a step, all clients that have a batch left send the
   activations of one augmented view and the labels; the server trains on them (``variant``), the clients on theirs,
3. the client parts are averaged, weighted by the numbers of images.

The self-supervised method of this kind is :mod:`fssl_core.training.split`. What is not copied from there: clients of
unlike size each use all of their images; nothing is synchronised within a round.

Differs: the server has one model. With ``"SFL-V1"`` it makes one update of the activations of all clients together
(the paper of SplitFed keeps a server model for each client and averages them every round, which is FedAvg with other
traffic; the mean gradient of Han et al. is that of the batch together where all send equally many), with ``"SFL-V2"``
one for each client, in a random order. Momentum starts at zero with each round on the clients, and stays at the server.
Han et al. leave the head's form to the task; ours is a pooled linear classifier unless ``auxiliary`` gives it hidden
layers. Labels cross as int64 and count as activations.
"""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.participation import sample_clients
from fssl_core.models.cutting import cut, latent_shape, normalises_single_values
from fssl_core.models.heads import MLP, GlobalPool
from fssl_core.objectives.base import classify
from fssl_core.random import generator
from fssl_core.settings import Count, check_choice, check_range
from fssl_core.training.settings import RoundSettings
from fssl_core.training.split_server import VARIANTS
from fssl_core.training.trainer import RoundTrainer

GRADIENTS = ("local", "server")


@dataclass(frozen=True, kw_only=True)
class SplitLearningSettings(RoundSettings):
    """Everything that decides the result of one run.

    Defaults: those of :class:`fssl_core.training.moon.MoonSettings`, so that the supervised methods differ in nothing
    else; the cut is MFCL's for ResNet-18, as near as its units allow.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again
    selection: ClassVar[str] = "last"  # the model that is kept, as supervised federations have it
    supervised: ClassVar[bool] = True

    partition: str = "dirichlet:0.5"
    clients: int = 10
    cut_layer: int = 3  # stem and first block
    gradients: str = "local"
    auxiliary: tuple[Count, ...] = ()  # widths of hidden layers of a client's own head
    variant: str = "SFL-V1"
    clients_per_round: int | None = None  # None: all
    rounds: int = 100
    local_epochs: int = 10
    batch: int = 64  # images a client and step; a client with fewer takes all of them
    learning_rate: float = 0.01
    weight_decay: float = 1e-5
    schedule: str = "constant"  # of both learning rates, round by round; or cosine

    def check(self) -> None:
        super().check()
        check_choice("gradients", self.gradients, GRADIENTS)
        check_choice("variant", self.variant, VARIANTS)
        if self.auxiliary:
            check_choice("gradients", self.gradients, ("local",))

    @property
    def method(self) -> str:
        """By the name in MFCL's tables, or that of the variant of SplitFed."""
        return "FSL" if self.gradients == "local" else self.variant

    def build_model(self, data: Dataset) -> nn.Sequential:
        """Client part, server part, pooling and classifier with their first values, on the images' device."""
        init = generator(self.seed, "initialise")
        backbone = self.build_backbone(data, init)
        classifier = MLP(backbone.feature_dim, (len(data.classes),), generator=init)
        model = nn.Sequential(*cut(backbone, self.cut_layer), GlobalPool(), classifier)
        return model.to(data.train.images.device, self.dtype)

    def build_client(self, layers: nn.Module, data: Dataset) -> nn.Sequential:
        """What a client trains: its ``layers``, and where it learns from its own loss a ``head``."""
        parts = {"layers": layers}
        if self.gradients == "local":
            init = generator(self.seed, "initialise auxiliary")
            channels, _, _ = latent_shape(self.build_backbone(data, init), self.cut_layer)
            head = MLP(channels, (*self.auxiliary, len(data.classes)), batch_norm=False, generator=init)
            parts["head"] = nn.Sequential(GlobalPool(), head).to(data.train.images.device, self.dtype)
        return nn.Sequential(OrderedDict(parts))

    def trainer(self, data: Dataset, run) -> "SplitLearningTrainer":
        return SplitLearningTrainer(self, data)

    def backbone(self, model: nn.Sequential) -> nn.Sequential:
        """Without the classifier."""
        return model[:-1]


class Worker:
    """A client in one round: its part of the model, an optimiser, and the batches of the pass under way."""

    def __init__(self, settings: SplitLearningSettings, client: int, shared: nn.Module, learning_rate: float) -> None:
        self.client = torch.tensor([client])
        self.model = ClientMatrix(shared, 1).requires_grad_()
        velocity = ClientMatrix(shared, 1)
        velocity.weights.zero_()
        self.optimizer = settings.sgd(self.model, velocity)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.module = self.model.module()
        self.batches: list[tuple[Tensor, Tensor]] = []

    def update(self) -> None:
        """Step by the gradients that were accumulated."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)  # the module's gradients are views of this buffer


class SplitLearningTrainer(RoundTrainer):
    """Trains one federation: :meth:`advance` is a round.

    Attributes:
        shared: the clients' part after the last average, a matrix of one row.
        server: the server's part with pooling and classifier, a matrix of one row.
    """

    stays: ClassVar[tuple[str, ...]] = ("shared", "server", "velocity")

    def __init__(self, settings: SplitLearningSettings, data: Dataset) -> None:
        super().__init__(settings, data)
        s = settings
        model = s.build_model(data)
        smallest, largest = min(map(len, self.parts)), max(map(len, self.parts))
        together = s.variant == "SFL-V1" and s.sampled > 1 and smallest == largest  # in each step of the server
        part = model[0] if together else model[:2]
        if min(s.batch, smallest) == 1 and normalises_single_values(part, data.channels, data.image_size):
            check_range("batch", s.batch, 2)
            raise SettingError("partition", s.partition, "one that gives every client 2 images, not 1, for batch norm")
        self.shared = ClientMatrix(s.build_client(model[0], data), 1)
        self.server = ClientMatrix(model[1:], 1).requires_grad_()
        self.velocity = ClientMatrix(model[1:], 1)
        self.velocity.weights.zero_()
        self.optimizer = s.sgd(self.server, self.velocity)
        self.server_model = self.server.module()
        self.updates = 0  # of the server in this round

    # ---------------------------------------------------------------- a round

    def advance(self) -> None:
        """Every sampled client passes over its images; the client parts are averaged; the model is evaluated."""
        s = self.settings
        rate = s.rate(self.finished)
        self.optimizer.param_groups[0]["lr"] = rate
        self.updates = 0
        sampled = sample_clients(s.clients, s.sampled, s.seed, self.finished)
        for block in self.shared.blocks.values():
            self.ledger.send(block.expand(len(sampled), *block.shape[1:]), "parameters", "down", sampled)
        model = self.shared.row_module(0)
        workers = [Worker(s, client, model, rate) for client in sampled.tolist()]
        steps: list[dict[str, Tensor]] = []
        for local_epoch in range(s.local_epochs):
            for worker in workers:
                worker.batches = self.batches(int(worker.client), self.finished * s.local_epochs + local_epoch)
            for step in range(max(len(worker.batches) for worker in workers)):
                steps.append(self.step([worker for worker in workers if step < len(worker.batches)], step))
        losses = [row["loss"] for row in steps]
        self.check_finite(losses, f"round {self.finished + 1}", f"learning_rate={s.learning_rate}")
        self.average(sampled, workers)
        means = {name: torch.stack([row[name] for row in steps]).mean().item() for name in steps[0]}
        self.record({**means, "server_updates": self.updates})

    # ---------------------------------------------------------------- a step

    def step(self, workers: list[Worker], step: int) -> dict[str, Tensor]:
        """One step of some clients and the server.

        Returns:
            means over the clients, scalars: the server's loss and accuracy, and the loss of the clients' own heads.
        """
        s, train, send = self.settings, self.data.train, self.ledger.send
        activations, labels = [], []
        for worker in workers:
            rows, draws = worker.batches[step]
            view = self.data.normalise(self.augment(train.images[rows], draws[:, 0]), s.dtype)  # [b, C, H, W]
            with s.autocast(self.device):
                activations.append(worker.module.layers(view).to(s.dtype))  # [b, c, h, w]
            labels.append(train.labels[rows])
        received = [
            (
                send(sent.detach()[None], "activations", "up", worker.client)[0],
                send(client_labels[None], "activations", "up", worker.client)[0],
            )
            for worker, sent, client_labels in zip(workers, activations, labels, strict=True)
        ]
        gradients, figures = self.train_server(received)
        own_losses = []
        for worker, sent, client_labels, gradient in zip(workers, activations, labels, gradients, strict=True):
            if s.gradients == "server":
                sent.backward(send(gradient[None], "gradients", "down", worker.client)[0])
            else:
                with s.autocast(self.device):
                    loss, _ = classify(worker.module.head(sent), client_labels)
                loss.backward()
                own_losses.append(loss.detach())
            worker.update()
        return figures | ({"local_loss": torch.stack(own_losses).mean()} if own_losses else {})

    def train_server(self, received: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor | None], dict[str, Tensor]]:
        """One update for all clients together, or one for each.

        Args:
            received: activations ``[b, c, h, w]`` and labels ``[b]`` of each client.

        Returns:
            for each client the gradient of the mean loss of its own images with respect to its activations, None
            where clients do not wait for it; the figures.
        """
        s = self.settings
        if s.variant == "SFL-V1":
            order = [list(range(len(received)))]
        else:
            draw = generator(s.seed, "turns", self.finished, self.updates)
            order = [[index] for index in torch.randperm(len(received), generator=draw).tolist()]
        gradients: list[Tensor | None] = [None] * len(received)
        losses, accuracies, sizes = [], [], [len(client_labels) for _, client_labels in received]
        for indices in order:
            batch = torch.cat([received[index][0] for index in indices]).requires_grad_(s.gradients == "server")
            with s.autocast(self.device):
                logits = self.server_model(batch)
                loss, accuracy = classify(logits, torch.cat([received[index][1] for index in indices]))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)
            self.updates += 1
            if batch.grad is not None:
                parts = batch.grad.split([sizes[index] for index in indices])
                for index, part in zip(indices, parts, strict=True):
                    gradients[index] = part * (len(batch) / sizes[index])  # the mean is over the images of all
            losses.append(loss.detach())
            accuracies.append(accuracy)
        figures = {"loss": torch.stack(losses).mean(), "train_accuracy": torch.stack(accuracies).mean()}
        return gradients, figures

    # ---------------------------------------------------------------- the end of a round

    @torch.no_grad()
    def average(self, sampled: Tensor, workers: list[Worker]) -> None:
        """The client parts, weighted by images: the clients' part of the next round."""
        images = [len(self.parts[client]) for client in sampled.tolist()]
        for name, block in self.shared.blocks.items():
            mean = torch.zeros_like(block)
            for worker, count in zip(workers, images, strict=True):
                sent = self.ledger.send(worker.model.blocks[name], "parameters", "up", worker.client)
                mean.add_(sent, alpha=count / sum(images))
            block.copy_(mean)

    def global_model(self) -> nn.Sequential:
        """Client part, server part, pooling and classifier; a copy."""
        return copy.deepcopy(nn.Sequential(self.shared.row_module(0).layers, *self.server_model))
