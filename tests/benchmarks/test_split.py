"""Speed of the split engine: `pytest -m benchmark -s tests/benchmarks/test_split.py`, about three minutes.

CPU time on one thread, alternating between what is compared, the median of several repeats: only ratios within one
run mean something, to about a tenth. Both sides live in one process, so both have :func:`keep_freed_memory`; the first
rounds, in which the heap grows, are not counted. ResNet-18 of width 16, images of 32 px, queue of 6000 keys of 1024
numbers, one query view and one key view, 100 images a step.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.models.layers import Conv2d
from fssl_core.objectives.moco import KeyQueue, info_nce
from fssl_core.random import generator
from fssl_core.training.split import SplitSettings, SplitTrainer
from tests.benchmarks.timing import milliseconds
from tests.training.plain_split import PlainSplit

pytestmark = pytest.mark.benchmark


# ---------------------------------------------------------------- the two sides


def engine(clients: int, batch: int, cut_layer: int) -> tuple[SplitTrainer, Tensor, Tensor]:
    """A trainer with a full queue, and the images and augmentation draws of a step."""
    settings = SplitSettings(
        dataset="noise",
        partition="iid",
        clients=clients,
        client_batch=batch,
        cut_layer=cut_layer,
        width=16,
        symmetric=False,
        seed=0,
    )
    pixels = torch.randint(0, 256, (clients * batch, 3, 32, 32), generator=generator(0, "images")).to(torch.uint8)
    images = ImageSet(pixels, torch.arange(len(pixels)) % 10)
    trainer = SplitTrainer(settings, Dataset("noise", images, images, tuple("0123456789"), official=False))
    order, draws = trainer.start_epoch()
    keys = torch.randn(settings.queue_size, settings.projector_dim, generator=generator(0, "keys"))
    trainer.server.queue.push(F.normalize(keys, dim=1))
    return trainer, trainer.data.train.images[order[:, 0]], draws[:, 0]


class PlainLoop(PlainSplit):
    """The oracle of the tests with the engine's queue and loss in place of its loops over keys."""

    def __init__(self, trainer: SplitTrainer, *, reference_layers: bool) -> None:
        client, server = trainer.clients.online.row_module(0), trainer.server.online.module()
        super().__init__(client, server, trainer.settings.clients, trainer.settings)
        self.queue = KeyQueue(trainer.settings.queue_size, trainer.settings.projector_dim)
        self.queue.push(trainer.server.queue.keys)
        if reference_layers:
            for model in (*self.online, *self.momentum, self.server, self.momentum_server):
                use_reference_convolution(model)

    def loss(self, queries: Tensor, keys: Tensor) -> Tensor:
        return info_nce(queries, keys, self.queue.keys, self.s.temperature)[0]

    def push(self, keys: Tensor) -> None:
        self.queue.push(keys)


class ReferenceConv2d(nn.Conv2d):
    """Weight standardisation step by step, as in the authors' code."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def use_reference_convolution(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, Conv2d) and module.standardize:
            module.__class__ = ReferenceConv2d


# ---------------------------------------------------------------- what is measured


def test_a_step_against_the_plain_loop():
    """From uint8 images to updated weights. In the plain loop each client augments its own images and the layers are
    the authors'. The columns after the bar show what the engine gains beyond these two: `given views` leaves the
    augmentation out on both sides, `our layers` gives the plain loop our fast weight standardisation, too. `dense` is
    the same step with all 100 images in one client, whose time no federation can beat: where the client part is small,
    as at cut 1, it leaves little to gain.
    """
    print("\nclients batch cut | engine ms  plain ms | ratio   bar | given views  our layers  dense")
    missed = []
    for clients, batch, cut_layer, bar in (
        (100, 1, 1, 0.80),
        (100, 1, 3, 0.70),
        (100, 1, 7, 0.50),
        (100, 1, 13, 0.35),
        (20, 5, 7, 0.90),
        (5, 20, 7, 1.10),
    ):
        trainer, images, draws = engine(clients, batch, cut_layer)
        dense, dense_images, dense_draws = engine(1, clients * batch, cut_layer)
        plain = PlainLoop(trainer, reference_layers=True)
        plain_ours = PlainLoop(trainer, reference_layers=False)
        views, everyone = trainer.clients.views(images, draws), range(clients)

        ours, views_ours, views_plain, given_views, our_layers, one_model = milliseconds(
            partial(trainer.step, images, draws),
            partial(trainer.clients.views, images, draws),
            partial(client_by_client, trainer.clients.views, images, draws),
            partial(plain.step, *views, everyone),
            partial(plain_ours.step, *views, everyone),
            partial(dense.step, dense_images, dense_draws),
        )
        theirs, inside = views_plain + given_views, ours - views_ours
        ratio = ours / theirs
        print(
            f"{clients:7} {batch:5} {cut_layer:3} | {ours:9.0f} {theirs:9.0f} |  {ratio:.2f}  {bar:.2f} | "
            f"{inside / given_views:11.2f} {inside / our_layers:11.2f} {ours / one_model:6.2f}"
        )
        if ratio > bar:
            missed.append((clients, batch, cut_layer))
    assert not missed


def client_by_client(views: Callable[[Tensor, Tensor], object], images: Tensor, draws: Tensor) -> None:
    for i in range(len(images)):
        views(images[i : i + 1], draws[i : i + 1])


def test_the_client_part_against_one_dense_model():
    """Forward, key forward, backward, SGD and EMA of 100 clients, and of one model on the same 100 images."""
    print("\ncut | 100 clients ms  dense ms | ratio   bar")
    missed = []
    for cut_layer, bar in ((3, 1.2), (7, 1.3), (13, 1.5)):
        sides = []
        for clients in (100, 1):
            trainer, images, draws = engine(clients, 100 // clients, cut_layer)
            sides.append(partial(client_part, trainer, *trainer.clients.views(images, draws)))
        federation, one_model = milliseconds(*sides, repeats=9)
        print(f"{cut_layer:3} | {federation:14.0f} {one_model:9.0f} |  {federation / one_model:.2f}  {bar:.2f}")
        if federation > bar * one_model:
            missed.append(cut_layer)
    assert not missed


def client_part(trainer: SplitTrainer, queries: Tensor, keys: Tensor) -> None:
    """What :meth:`SplitTrainer.step` does on the clients."""
    trainer.clients.active_momentum.average_towards_(trainer.clients.active_online, trainer.settings.ema_decay)
    activations = trainer.clients.online_forward(queries)
    with torch.no_grad():
        trainer.clients.momentum_forward(keys)
    activations.backward(torch.full_like(activations, 1e-4))
    trainer.clients.optimizer.step()
    trainer.clients.optimizer.zero_grad(set_to_none=False)


@pytest.mark.parametrize(("clients", "batch", "cut_layer"), [(100, 1, 13), (20, 5, 7), (5, 20, 7)])
def test_both_sides_compute_the_same(clients, batch, cut_layer):
    """Up to float32, in which a ReLU may flip; in float64 they agree to 1e-10 (tests/training/test_split.py)."""
    trainer, images, draws = engine(clients, batch, cut_layer)
    plain, reference = (PlainLoop(trainer, reference_layers=value) for value in (False, True))
    views, start = trainer.clients.views(images, draws), flat_state(trainer.clients.online.state_dict(0))
    for _ in range(2):
        loss = trainer.step(images, draws)[0].item()
        assert plain.step(*views, range(clients)) == pytest.approx(loss, abs=1e-3)
        assert reference.step(*views, range(clients)) == pytest.approx(loss, abs=1e-3)
    end, other = flat_state(trainer.clients.online.state_dict(0)), flat_state(plain.online[0].state_dict())
    assert (end - other).norm() < 0.05 * (end - start).norm()


def flat_state(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in state.values()])
