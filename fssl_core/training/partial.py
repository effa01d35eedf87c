"""Federated averaging where a client holds a part of the model: each number is averaged over those that hold it.

What HeteroFL (:mod:`fssl_core.training.heterofl`) and Split-Mix (:mod:`fssl_core.training.split_mix`) have in common.
A client can afford a share of the network, always the same. Of a tensor of the global model it holds the first so many
entries along each dimension, or nothing; it receives and sends only that. The parts of a tensor are nested, so one pass
from the largest to the smallest gives each number the average of its holders. What nobody held in a round stays.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import SHARES, Round
from fssl_core.settings import Range, check_choice
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.labelled import LabelledSettings

Box = tuple[int, ...]  # of a tensor of these dimensions or larger, the first entries


@dataclass(frozen=True, kw_only=True)
class PartialSettings(LabelledSettings):
    """Settings of a federation whose clients can afford unlike shares of a network and train it with labels."""

    shares: tuple[Annotated[float, Range(1e-3, 1)], ...] = (1.0,)  # of the width, for equally many clients each

    def check(self) -> None:
        super().check()
        if not self.shares:
            raise SettingError("shares", self.shares, "at least one share of the width, for example (1.0, 0.5)")
        check_choice("aggregation", self.aggregation, SHARES)
        check_choice("client_update", self.client_update.name, ["replace"])  # not with layers that a client lacks
        if self.keep_velocity or self.proximal:
            name = "keep_velocity" if self.keep_velocity else "proximal"
            raise SettingError(name, getattr(self, name), f"{name}=0: clients hold parts of the model")

    def trainer(self, data: Dataset, run) -> "PartialTrainer":
        raise NotImplementedError

    def share_of(self, client: int) -> float:
        """What a client can afford: the first clients the first share, and so on."""
        return self.shares[client * len(self.shares) // self.clients]


class PartialTrainer(AveragingTrainer):
    """Trains one federation; see :class:`AveragingTrainer`."""

    compares_models: ClassVar[bool] = True  # a sum of all would not say who holds what

    @abstractmethod
    def held(self, client: int) -> dict[str, Box]:
        """By tensor of the global model's state, the part that a client holds in this round; others it lacks."""

    # ---------------------------------------------------------------- a client

    def downloads(self, client: int) -> Iterator[Tensor]:
        return (self.shared.blocks[name][_first(box)] for name, box in self.held(client).items())

    def uploads(self, client: int) -> Iterator[Tensor]:
        return (self.outgoing.blocks[name][_first(box)] for name, box in self.held(client).items())

    @torch.no_grad()
    def load(self, client: int) -> None:
        for name, block in self.worker.blocks.items():
            block.copy_(self.shared.blocks[name][_first(block.shape[1:])])

    @torch.no_grad()
    def _collect(self, position: int) -> None:
        """What the client does not hold it has not changed."""
        self.trained.load_row(position, self.shared.row(0))
        for name, box in self.held(int(self.settings.taking_part(self.finished)[position])).items():
            where = _first(box)
            self.trained.blocks[name][position : position + 1][where] = self.outgoing.blocks[name][where]

    # ---------------------------------------------------------------- the server

    def combine(self, beta: Tensor, this: Round) -> None:
        """The weights ``beta`` are those of clients that all hold everything; here each part has its own."""
        parts = [self.held(client) for client in self.settings.taking_part(self.finished).tolist()]
        for name in this.received.blocks:
            boxes = {position: held[name] for position, held in enumerate(parts) if name in held}
            for box in sorted(set(boxes.values()), reverse=True):  # nested: a smaller one overwrites
                holders = [position for position, client_box in boxes.items() if client_box >= box]
                self.average(this, name, _first(box)[1:], holders)

    def average(self, this: Round, name: str, where: tuple[slice | int, ...], holders: list[int]) -> None:
        """Write a part of a tensor of the global model: the average over these rows of ``this.received``."""
        if not holders:
            return
        block = this.received.blocks[name]
        rows = (block if len(holders) == this.clients else block[holders])[(slice(None), *where)]
        weights = SHARES[self.rule](this.images[holders]).to(rows)
        mean = torch.mv(rows.reshape(len(holders), -1).T, weights)
        self.shared.blocks[name][0][where] = mean.view(rows.shape[1:])


def _first(box: Box) -> tuple[slice, ...]:
    """The index of a part in a block ``[clients, *shape]``."""
    return (slice(None), *(slice(size) for size in box))
