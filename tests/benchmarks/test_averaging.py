"""Overhead of the averaging engine: `pytest -m benchmark -s tests/benchmarks/test_averaging.py`, about two minutes.

CPU time on one thread, in turn, medians. ResNet-18 of width 16, images of 32 px, batch 64: a client's local steps in
the engine, against a loop over modules, an optimiser and a loss as one would write it first, on the same views.
"""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.objectives import BYOL, BarlowTwins, MoCoV2, SimCLR
from fssl_core.objectives.barlow_twins import barlow_twins_loss
from fssl_core.objectives.moco import KeyQueue, info_nce
from fssl_core.objectives.simclr import nt_xent
from fssl_core.random import generator
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from tests.benchmarks.timing import milliseconds, train_on

pytestmark = pytest.mark.benchmark

BATCH = 64
BAR = 1.05


def engine(objective) -> tuple[AveragingTrainer, Tensor, Tensor]:
    settings = AveragingSettings(
        objective=objective, dataset="noise", partition="iid", clients=1, width=16, batch=BATCH, seed=0
    )
    pixels = torch.randint(0, 256, (BATCH, 3, 32, 32), generator=generator(0, "images")).to(torch.uint8)
    images = ImageSet(pixels, torch.arange(BATCH) % 10)
    trainer = AveragingTrainer(settings, Dataset("noise", images, images, tuple("0123456789"), official=False))
    (batch,) = trainer.batches(0, 0)
    trainer.worker.take(trainer.shared, [0])
    trainer.learner.load_state_dict(trainer.memory[0]["objective"])
    return trainer, *batch


class Bare:
    """Modules, an optimiser, a loss."""

    def __init__(self, trainer: AveragingTrainer) -> None:
        self.o = trainer.settings.objective
        self.model = copy.deepcopy(trainer.global_model()).requires_grad_().train()
        self.target = copy.deepcopy(nn.Sequential(self.model.encoder, self.model.projector)).requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
        self.queue = KeyQueue(6000, self.o.projector[-1])
        self.loss = {"byol": self.byol, "moco-v2": self.moco, "simclr": self.simclr, "barlow-twins": self.barlow_twins}

    def step(self, views: Tensor) -> None:
        loss = self.loss[self.o.name](*views)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def follow(self) -> None:
        online = [*self.model.encoder.parameters(), *self.model.projector.parameters()]
        for old, new in zip(self.target.parameters(), online, strict=True):
            old.mul_(0.99).add_(new, alpha=0.01)

    def byol(self, first: Tensor, second: Tensor) -> Tensor:
        self.follow()
        predictions = self.model(first), self.model(second)
        with torch.no_grad():
            targets = self.target(second), self.target(first)
        return sum((2 - 2 * F.cosine_similarity(p, t)).mean() for p, t in zip(predictions, targets, strict=True))

    def moco(self, first: Tensor, second: Tensor) -> Tensor:
        self.follow()
        query = F.normalize(self.model(first), dim=1)
        with torch.no_grad():
            key = F.normalize(self.target(second), dim=1)
        loss, _ = info_nce(query, key, self.queue.keys.clone(), self.o.temperature)
        self.queue.push(key)
        return loss

    def simclr(self, first: Tensor, second: Tensor) -> Tensor:
        return nt_xent(self.model(first), self.model(second), self.o.temperature)[0]

    def barlow_twins(self, first: Tensor, second: Tensor) -> Tensor:
        return barlow_twins_loss(self.model(first), self.model(second), self.o.redundancy_weight)[0]


def test_the_engine_adds_at_most_a_twentieth_to_a_bare_loop():
    print("\nobjective    | engine ms  bare ms | ratio   bar")
    missed = []
    for objective in (MoCoV2(), BYOL(), SimCLR(), BarlowTwins()):
        trainer, rows, draws = engine(objective)
        bare = Bare(trainer)

        def bare_step(trainer=trainer, bare=bare, images=trainer.data.train.images[rows], draws=draws) -> None:
            views = trainer.augment.two_views(images[None], draws[None])[0]
            bare.step(trainer.data.normalise(views))

        ours, theirs = milliseconds(partial(train_on, trainer, [(rows, draws)]), bare_step, repeats=9)
        print(f"{objective.name:12} | {ours:9.0f} {theirs:8.0f} |  {ours / theirs:.2f}  {BAR:.2f}")
        if ours > BAR * theirs:
            missed.append(objective.name)
    assert not missed
