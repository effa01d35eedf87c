"""HeteroFL: a weak client trains the first channels of every layer, on the averaging engine.

Diao, Ding and Tarokh, "HeteroFL: computation and communication efficient federated learning for heterogeneous clients",
ICLR 2021, Section 3 and Algorithm 1. A client that can afford the share r of the width has of each layer the first r of
its channels, W_g[: r d, : r k]; the server averages each entry over the clients that hold it. Three things go with it:

- *Static batch norm.* Running statistics are neither kept in training nor exchanged. After a round those of the global
  model are the means over batches of all clients' images, for its evaluation.
- *Scaler.* In training, activations of a sub-model are divided by r after each convolution.
- *Masked cross-entropy.* The logits of classes that a client has no image of are 0 in its loss, and its rows of the
  classifier for them do not count in the average.

As in the authors' code the average is not weighted by numbers of images (``aggregation="uniform"``).

Differs: in the networks here a normalisation follows each convolution, and divides the scaler out up to its epsilon:
``norm(x / r, eps)`` is ``norm(x, r^2 eps)``, which is how it is computed. Gradients are not clipped. A client's share
is the same in all rounds (the paper's "fix"; its "dynamic" draws it anew). The batches behind the statistics are not
augmented; their passes count as evaluation, and the ledger has nothing of them. With all shares 1, without static batch
norm and mask, this is FedAvg to the bit.
"""

from dataclasses import dataclass, replace
from math import isclose
from typing import ClassVar

import torch
from torch import Tensor

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.errors import SettingError
from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.federation.aggregation import Round
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import CHANNELS_PER_GROUP, DEPTHS
from fssl_core.models.layers import BatchNorm2d, GroupNorm
from fssl_core.objectives import SelfSupervisedModel
from fssl_core.objectives.base import classify
from fssl_core.settings import check_choice
from fssl_core.training.partial import Box, PartialSettings, PartialTrainer

CLASSIFIER = "projector."  # where a supervised model has it


@dataclass(frozen=True, kw_only=True)
class HeteroFLSettings(PartialSettings):
    """Everything that decides the result of one run.

    Defaults: five levels of width, each half of the one before, as in the paper's experiments; local training as in
    :class:`fssl_core.training.moon.MoonSettings`, so that supervised methods differ in nothing else.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again
    method: ClassVar[str] = "HeteroFL"

    aggregation: str = "uniform"
    shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    static_batch_norm: bool = True
    scaler: bool = True
    mask_classes: bool = True

    def check(self) -> None:
        super().check()
        check_choice("architecture", self.architecture, DEPTHS)  # whose first channels are a network of their own
        for share in self.shares:
            channels = round(self.width * share)
            if not isclose(self.width * share, channels) or channels % CHANNELS_PER_GROUP:
                expected = f"shares that leave of width={self.width} a multiple of {CHANNELS_PER_GROUP} channels"
                raise SettingError("shares", self.shares, expected)

    def narrowed(self, share: float) -> "HeteroFLSettings":
        """Settings whose whole model is that of a client which can afford this share."""
        return replace(self, width=round(self.width * share), shares=(1.0,))

    def trainer(self, data: Dataset, run) -> "HeteroFLTrainer":
        return HeteroFLTrainer(self, data, run)


class HeteroFLTrainer(PartialTrainer):
    """Trains one federation; see :class:`fssl_core.training.averaging.AveragingTrainer`."""

    def federate(self, model: SelfSupervisedModel) -> None:
        super().federate(model)
        s, labels = self.settings, self.data.train.labels
        self.tools = {}  # by share, what trains a sub-model
        for share in set(s.shares):
            narrow = model if share == 1 else s.narrowed(share).build_model(self.data)
            if s.scaler:
                scale(narrow, share)
            worker = ClientMatrix(narrow, 1).requires_grad_()
            self.tools[share] = worker, ClientMatrix(narrow, 1), s.objective.learner(worker, None)
        present = torch.stack([labels[part].bincount(minlength=s.objective.classes) > 0 for part in self.parts])
        self.present = present if s.mask_classes else torch.ones_like(present)  # classes of a client, [clients, C]

    def held(self, client: int) -> dict[str, Box]:
        worker = self.tools[self.settings.share_of(client)][0]
        exchanged = worker.parameter_blocks if self.settings.static_batch_norm else worker.blocks
        return {name: tuple(block.shape[1:]) for name, block in exchanged.items()}

    # ---------------------------------------------------------------- a client

    def train_client(self, position: int, client: int) -> dict[str, float]:
        self.worker, self.velocity, self.learner = self.tools[self.settings.share_of(client)]
        return super().train_client(position, client)

    def load(self, client: int) -> None:
        super().load(client)
        self._absent = ~self.present[client]  # of the client that is training

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.learner.online(inputs[0]).masked_fill(self._absent, 0)
        loss, accuracy = classify(logits, *labels)
        return loss, {"train_accuracy": accuracy}

    # ---------------------------------------------------------------- the server

    def average(self, this: Round, name: str, where: tuple[slice | int, ...], holders: list[int]) -> None:
        present = self.present[self.settings.taking_part(self.finished)[holders].to(self.present.device)]
        if not name.startswith(CLASSIFIER) or present.all():
            return super().average(this, name, where, holders)
        for row in range(self.settings.objective.classes):
            with_class = [position for position, has in zip(holders, present[:, row].tolist(), strict=True) if has]
            super().average(this, name, (row, *where[1:]), with_class)
        return None

    def combine(self, beta: Tensor, this: Round) -> None:
        super().combine(beta, this)
        if self.settings.static_batch_norm:
            theirs = torch.cat(list(self.parts)).sort().values  # the clients' images, and no others
            train = ImageSet(self.data.train.images[theirs], self.data.train.labels[theirs])
            with self.settings.autocast(self.device):
                renewed = with_statistics_of(self.global_model(), train, self.data.normalise)
            for name, value in renewed.named_buffers():
                self.shared.blocks[name][0] = value


def scale(model: SelfSupervisedModel, share: float) -> None:
    """The scaler before each normalisation of a sub-model, as its epsilon."""
    for layer in model.modules():
        if isinstance(layer, BatchNorm2d | GroupNorm):
            layer.eps *= share**2
