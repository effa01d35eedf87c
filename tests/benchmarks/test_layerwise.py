"""Frozen layers shared by both branches: `pytest -m benchmark -s tests/benchmarks/test_layerwise.py`, about a minute.

CPU time on one thread, in turn, medians. The last stage of ViT-Tiny, 11 of 12 blocks frozen, images of 32 px, batch 16,
MoCoV3 with the paper's heads: a local step of the engine, against one that runs the frozen blocks for each branch, as
Algorithm 2 of LW-FedSSL reads. In passes through a block: 30 against 52 for each image (2 views; 11 frozen blocks once
or twice; the last one forward in both branches and, twice as long, backward), so 0.58 is what arithmetic promises.

The tests of equality are ordinary ones. Losses and weights are the same to the bit, not to a tolerance, because both
sides run the same operations on the same values in batches of the same size. That needs

- a frozen target that starts as a copy (``target_at_start``) and follows by ``lerp_``: ``a + (1 - m) * (b - a)`` leaves
  ``a = b`` as it is, while ``m * a + (1 - m) * b`` would round,
- statistics of frozen batch norms that stand still,
- the same layers left out in both branches (depth dropout).
"""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor

from fssl_core.federation.schedule import Stage
from fssl_core.objectives import BYOL
from fssl_core.training.layerwise import LayerStack, LayerwiseSettings, LayerwiseTrainer
from tests.benchmarks.timing import milliseconds, train_on
from tests.costs.step_memory import noise
from tests.training.test_layerwise import tiny
from tests.training.test_split import tiny_data

BAR = 0.65  # of the time with frozen layers in each branch


class TwoBranches(LayerwiseTrainer):
    """The engine with frozen layers in each branch, those of the target a copy that follows the others."""

    def enter(self, stage: Stage) -> None:
        super().enter(stage)
        self.frozen_target = copy.deepcopy(self.frozen)
        outputs, targets = self.learner.outputs, self.learner.targets
        self.learner.outputs = lambda views: outputs(self.through(self.frozen, views))
        self.learner.targets = lambda views: targets(self.through(self.frozen_target, views))

    def through(self, frozen: LayerStack, views: Tensor) -> Tensor:
        if not self.stage.frozen:
            return views
        with torch.no_grad():
            return frozen(views.flatten(0, 1)).unflatten(0, views.shape[:2])

    def features(self, views: Tensor) -> Tensor:
        return views

    def _start(self, client: int) -> None:
        super()._start(client)
        self.frozen_target.left_out = self.left_out
        self.frozen_target.load_state_dict(self.frozen.state_dict())  # Algorithm 2, line 4

    @torch.no_grad()
    def step(self, rows: Tensor, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.enable_grad():
            result = super().step(rows, views)
        for mine, theirs in zip(self.frozen_target.parameters(), self.frozen.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.settings.objective.ema_decay)  # line 15
        return result


def recorded(trainer: LayerwiseTrainer) -> list[Tensor]:
    """A list to which every step of the trainer adds its loss from now on."""
    losses, step = [], trainer.step

    def step_and_record(rows: Tensor, draws: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, figures = step(rows, draws)
        losses.append(loss)
        return loss, figures

    trainer.step = step_and_record
    return losses


@pytest.mark.benchmark
def test_a_step_of_the_last_stage_takes_at_most_0_65_of_one_with_frozen_layers_in_each_branch():
    settings = LayerwiseSettings(batch=16, rounds=12, local_epochs=1, clients=1, probe_epochs=0, seed=0)
    sides = [kind(settings, noise(settings)) for kind in (LayerwiseTrainer, TwoBranches)]
    losses = [recorded(trainer) for trainer in sides]
    for trainer in sides:
        trainer.enter(trainer.plan[-1])
        trainer.train_client(0, 0)
    batches = sides[0].batches(0, 0)
    shared, twice = milliseconds(*(partial(train_on, trainer, batches) for trainer in sides), warm_up=2, repeats=7)
    print("\nfrozen layers in each branch ms   shared ms   ratio    bar")
    print(f"{twice:31.0f} {shared:11.0f} {shared / twice:7.2f} {BAR:6.2f}")
    assert torch.stack(losses[0]).unique().numel() == 10
    assert torch.equal(*map(torch.stack, losses))
    assert shared <= BAR * twice


# ---------------------------------------------------------------- equal to the bit


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"most_layers": 2},
        {"stages": 2, "clients": 4, "clients_per_round": 2},
        {"objective": BYOL(projector=(16, 8), predictor=(16, 8), ema_decay=0.996)},
        {"architecture": "resnet10", "norm": "batch", "width": 8},
        {"precision": "bfloat16"},
    ],
    ids=["blocks", "depth dropout", "two blocks a stage", "BYOL", "batch norm", "bfloat16"],
)
def test_frozen_layers_in_each_branch_give_the_same_losses_and_weights_to_the_bit(values):
    settings = tiny(**{"precision": "float32", "clients": 2, "rounds": 4, "batch": 12} | values)
    sides = [kind(settings, tiny_data()) for kind in (LayerwiseTrainer, TwoBranches)]
    losses = [recorded(trainer) for trainer in sides]
    for trainer in sides:
        while trainer.finished < trainer.total:
            trainer.advance()
    assert len(losses[0]) >= 8
    assert torch.equal(*map(torch.stack, losses))
    assert sides[0].metrics == sides[1].metrics
    shared, twice = (trainer.global_model().state_dict() for trainer in sides)
    assert all(torch.equal(value, twice[name]) for name, value in shared.items())
    frozen, target = (stack.state_dict() for stack in (sides[1].frozen, sides[1].frozen_target))
    assert all(torch.equal(value, target[name]) for name, value in frozen.items())


def test_statistics_of_frozen_batch_norms_stand_still():
    trainer = LayerwiseTrainer(tiny(architecture="resnet10", norm="batch", width=8, precision="float32"), tiny_data())
    while trainer.finished < 4:
        trainer.advance()
    trainer.advance()  # the first client of stage 3
    before = copy.deepcopy(trainer.frozen.state_dict())
    assert any("running_mean" in name for name in before)
    while trainer.finished < 6:
        trainer.advance()
    assert all(torch.equal(value, before[name]) for name, value in trainer.frozen.state_dict().items())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_moving_average_of_equal_values_is_equal_to_the_bit(precision):
    for decay in (0.0, 0.3, 0.5, 0.99, 0.996, 0.999, 1.0):
        objective = BYOL(projector=(16, 8), predictor=(16, 8), ema_decay=decay)
        trainer = LayerwiseTrainer(tiny(objective=objective, precision=precision), tiny_data())
        online = trainer.worker.weights.detach()[: trainer.target.parameters].clone()
        for _ in range(5):
            trainer.learner.follow()
        assert torch.equal(trainer.target.weights, online)
    if precision == "float32":  # as the paper writes it, it rounds
        assert not torch.equal(0.99 * online + (1 - 0.99) * online, online)
