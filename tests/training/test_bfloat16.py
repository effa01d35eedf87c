"""Every engine and evaluation in bfloat16 against float32: it learns, and learns the same up to rounding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.augment import augmentation
from fssl_core.data.randaugment import RandAugment
from fssl_core.devices import autocast, in_full_precision
from fssl_core.evaluation.fine_tuning import FineTuneSettings, FineTuning
from fssl_core.evaluation.landscape import held_out_loss
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings
from fssl_core.models import GlobalPool, build_backbone
from fssl_core.objectives import SimCLR
from fssl_core.random import generator
from fssl_core.training.layerwise import LayerwiseTrainer
from fssl_core.training.trainer import Trainer
from tests.training.every_engine import ENGINES, patterns, train, trainer

PRECISIONS = ("float32", "bfloat16")
CPU = torch.device("cpu")


def update(ours: Trainer) -> Tensor:
    """How training moved the parameters of the global model."""
    start = {name: value.clone() for name, value in ours.global_model().named_parameters()}
    train(ours)
    end = dict(ours.global_model().named_parameters())
    return torch.cat([(end[name] - value).detach().flatten() for name, value in start.items()])


# MobileNetV2 makes maps of one pixel of images of eight, and group norm of four numbers: its gradient is rounding.
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "split, MobileNetV2"])
def test_an_engine_moves_weights_as_float32_does(name):
    # Steps so small that rounding is not amplified; with many of them two trainings part whatever the arithmetic.
    exact, rough = (trainer(name, precision=precision, learning_rate=0.0002) for precision in PRECISIONS)
    one, other = update(exact), update(rough)
    assert one.norm() > 0
    assert {value.dtype for value in rough.global_model().state_dict().values()} == {torch.float32}
    adam = isinstance(exact, LayerwiseTrainer)  # whose first steps are signs: of small gradients those of rounding
    assert F.cosine_similarity(one, other, dim=0) > (0.25 if adam else 0.6)  # of unlike ones it is 0
    assert 0.7 < one.norm() / other.norm() < 1.4
    losses = [[row["loss"] for row in ours.metrics] for ours in (exact, rough)]
    assert losses[1] == pytest.approx(losses[0], rel=0.2, abs=0.05)  # Orchestra's clusters jump
    assert rough.ledger.table().equals(exact.ledger.table())


@pytest.mark.parametrize("name", ["supervised", "split learning, local losses"])
def test_labels_are_learned(name):
    values = {"rounds": 8, "local_epochs": 2, "norm": "group", "augmentation": "none", "keep_velocity": True}
    if name != "supervised":
        del values["keep_velocity"]
    found = {}
    for precision in PRECISIONS:
        ours = trainer(name, precision=precision, **values)
        train(ours)
        assert ours.metrics[-1]["loss"] < 0.2 * ours.metrics[0]["loss"]
        assert ours.metrics[-1]["train_accuracy"] > 0.95
        found[precision] = ours.summary()["test_accuracy"]
    assert found["bfloat16"] == pytest.approx(found["float32"], abs=0.13)  # one of eight images


# ---------------------------------------------------------------- evaluations


def gaussians(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten well separated classes, ``[N, 32]``."""
    centres = 3 * torch.randn(10, 32, generator=generator(0, "centres"))
    labels = torch.arange(count) % 10
    return centres[labels] + torch.randn(count, 32, generator=generator(seed, "points")), labels


FEW_LABELS = SemiSupervisedSettings(pretraining=ENGINES["SimCLR"](), epochs=20, hidden=32)
HEADS = {
    "linear probe": lambda *data: linear_probe(*data, classes=10, epochs=100).accuracy,
    "few labels": lambda *data: FEW_LABELS.train_head(*data, classes=10).accuracy,
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_trained_inside_one_autocast_learns(name):
    data = (*gaussians(400, 1), *gaussians(200, 2))
    expected = HEADS[name](*data)
    with autocast(CPU, "bfloat16"):
        assert HEADS[name](*data) == expected
    assert expected > 0.95


def test_a_loop_inside_one_autocast_is_what_does_not_learn():
    """The fault that these tests are there for; without it they could not fail."""

    def train_head(images: Tensor, labels: Tensor) -> float:
        weight = torch.zeros(10, 32, requires_grad=True)
        for _ in range(50):
            (gradient,) = torch.autograd.grad(F.cross_entropy(F.linear(images, weight), labels), weight)
            with torch.no_grad():
                weight -= 0.1 * gradient
        return (F.linear(images, weight).argmax(1) == labels).float().mean().item()

    data = gaussians(400, 1)
    with torch.autocast("cpu", torch.bfloat16):  # ours has no stale copy on a CPU without instructions for bfloat16
        assert train_head(*data) < 0.2
        assert in_full_precision(train_head)(*data) > 0.98


def test_fine_tuning_learns():
    data, found = patterns(train=80, test=40), {}
    for precision in PRECISIONS:
        backbone = build_backbone(
            "resnet10", width=8, norm="batch", image_size=8, channels=1, generator=generator(0, "initialise")
        )
        settings = FineTuneSettings(
            pretraining=trainer("SimCLR").settings,
            epochs=8,
            warmup_epochs=1,
            batch=20,
            base_learning_rate=0.05,
            augmentation=RandAugment(operations=0),
            precision=precision,
        )
        tuning = FineTuning(settings, nn.Sequential(backbone, GlobalPool()), data, data, torch.arange(80))
        for _ in range(8):
            tuning.train_epoch()
        found[precision] = tuning.rows[-1]["accuracy"]
    assert found["float32"] >= 0.9
    assert found["bfloat16"] == pytest.approx(found["float32"], abs=0.06)


def test_the_loss_of_a_landscape_is_that_of_the_model_it_is_asked_for():
    """Model after model through one function: none is behind a stale copy."""
    data, objective = patterns(train=8, test=32), SimCLR(projector=(8,))
    backbone = build_backbone(
        "resnet10", width=8, norm="batch", image_size=8, channels=1, generator=generator(0, "initialise")
    )
    model = objective.build_model(backbone, generator(0, "heads"))
    rough, exact = (
        held_out_loss(objective, model, data, augmentation("digits", 8), images=32, batch=16, precision=precision)
        for precision in reversed(PRECISIONS)
    )
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    other = {name: value * (1 + torch.rand(value.shape, generator=generator(1, name))) for name, value in start.items()}
    values = [(exact(state), rough(state)) for state in (start, other, start)]
    for float32, bfloat16 in values:
        assert bfloat16 == pytest.approx(float32, rel=0.05)
    assert values[0] == values[2]
    assert abs(values[0][0] - values[1][0]) > 0.01
