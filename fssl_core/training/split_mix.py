"""Split-Mix: a network is split into narrow base networks, of which a client trains as many as it can afford.

Hong, Wang, Wang and Zhou, "Efficient split-mix federated learning for on-demand and in-situ customization", ICLR 2022,
Section 4 and Algorithms 1 and 2. There are B base networks of 1/B of the width, with first values of their own. In each
round

1. a client that can afford the share R of the width gets R B of them. Its first is the next in a queue of shuffled
   bases that all clients share, so that every base is trained equally often; the others are drawn from the rest,
2. it trains each by itself, on the same batches,
3. each base is averaged over the clients that had it, weighted by their images.

An ensemble of some bases is a network of the wanted width: logits are their mean, features stand beside each other. The
full ensemble is what is evaluated.

Differs: the authors rescale first values and activations for the narrower width. A normalisation follows each
convolution here and divides that out but for its epsilon; the effect on the step size is left out. They mask
cross-entropy where clients have few classes (HeteroFL's trick), which Algorithm 1 does not have and neither do we. The
logged loss is the sum over a client's bases. With one base, and all clients able to afford it, this is FedAvg to the
bit.
"""

from dataclasses import dataclass, replace
from math import isclose
from typing import ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.models import CHANNELS_PER_GROUP
from fssl_core.objectives import SelfSupervisedModel
from fssl_core.objectives.base import classify
from fssl_core.random import generator
from fssl_core.settings import Count
from fssl_core.training.partial import Box, PartialSettings, PartialTrainer


@dataclass(frozen=True, kw_only=True)
class SplitMixSettings(PartialSettings):
    """Everything that decides the result of one run.

    Defaults: bases of 1/8 of the width, and clients that can afford 1/8, 1/4, 1/2 and all of it, as in the authors'
    experiments; local training as in :class:`fssl_core.training.moon.MoonSettings`.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again
    method: ClassVar[str] = "Split-Mix"

    shares: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)
    bases: Count = 8  # B

    def check(self) -> None:
        super().check()
        if self.width % (CHANNELS_PER_GROUP * self.bases):
            expected = f"a number that divides width={self.width} into multiples of {CHANNELS_PER_GROUP} channels"
            raise SettingError("bases", self.bases, expected)
        if not all(isclose(share * self.bases, round(share * self.bases)) for share in self.shares):
            raise SettingError("shares", self.shares, f"multiples of 1/{self.bases}, the width of a base network")

    def bases_of(self, client: int, finished: int) -> list[int]:
        """The base networks that a client trains in the round after ``finished`` others, ascending."""
        position = self.taking_part(finished).tolist().index(client)
        passed, position = divmod(finished * self.sampled + position, self.bases)  # of the queue
        first = int(torch.randperm(self.bases, generator=generator(self.seed, "bases", passed))[position])
        drawn = torch.randperm(self.bases, generator=generator(self.seed, "more bases", finished, client)).tolist()
        drawn.remove(first)
        return sorted([first, *drawn[: round(self.share_of(client) * self.bases) - 1]])

    def first_values(self, data: Dataset, init: torch.Generator) -> SelfSupervisedModel:
        base = replace(self, width=self.width // self.bases, bases=1, shares=(1.0,))
        models = [super(SplitMixSettings, base).first_values(data, init) for _ in range(self.bases)]
        encoder = Beside(model.encoder for model in models)
        return SelfSupervisedModel(encoder, MeanOf(model.projector for model in models), nn.Identity())

    def trainer(self, data: Dataset, run) -> "SplitMixTrainer":
        return SplitMixTrainer(self, data, run)


class Beside(nn.ModuleList):
    """Features of several encoders beside each other: images to ``[B, encoders * D]``."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([encoder(images) for encoder in self], dim=1)


class MeanOf(nn.ModuleList):
    """Mean logits of several classifiers, each of its own features: ``[B, classifiers * D]`` to ``[B, classes]``."""

    def forward(self, features: Tensor) -> Tensor:
        pairs = zip(self, features.chunk(len(self), dim=1), strict=True)
        return torch.stack([classifier(client_features) for classifier, client_features in pairs]).mean(0)


class SplitMixTrainer(PartialTrainer):
    """Trains one federation; see :class:`fssl_core.training.averaging.AveragingTrainer`.

    The model in training is the whole ensemble, of which the client's bases run. What the optimiser makes of the
    others is never sent.
    """

    def held(self, client: int) -> dict[str, Box]:
        bases = self.settings.bases_of(client, self.finished)
        starts = tuple(f"{part}.{base}." for part in ("encoder", "projector") for base in bases)
        blocks = self.shared.blocks
        return {name: tuple(block.shape[1:]) for name, block in blocks.items() if name.startswith(starts)}

    def load(self, client: int) -> None:
        super().load(client)
        self._bases = self.settings.bases_of(client, self.finished)  # of the client that is training

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        model = self.learner.online
        outcomes = [classify(model.projector[base](model.encoder[base](inputs[0])), *labels) for base in self._bases]
        losses, accuracies = (torch.stack(values) for values in zip(*outcomes, strict=True))
        return losses.sum(), {"train_accuracy": accuracies.mean()}
