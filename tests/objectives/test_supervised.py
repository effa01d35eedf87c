import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fssl_core.objectives import Objective
from tests.objectives.learners import Client, small, two_views


def test_loss_and_accuracy_are_those_of_the_first_view():
    client, (first, second) = Client(small("supervised")), two_views(batch=6)
    labels = torch.tensor([0, 3, 1, 1, 2, 0])
    with torch.no_grad():
        rows = client.model.train()(first).tolist()
    terms = [math.log(sum(map(math.exp, row))) - row[label] for row, label in zip(rows, labels.tolist(), strict=True)]
    right = [row[label] == max(row) for row, label in zip(rows, labels.tolist(), strict=True)]
    loss, figures = client.learner.loss(torch.stack([first, second]), labels)
    assert loss.item() == pytest.approx(sum(terms) / 6, abs=1e-12)
    assert figures["train_accuracy"].item() == pytest.approx(sum(right) / 6)
    torch.testing.assert_close(Client(small("supervised")).learner.loss(first[None], labels)[0], loss)


def test_classifier_is_one_linear_layer():
    model = Client(small("supervised")).model
    assert [list(weight.shape) for weight in model.projector.parameters()] == [[4, 64], [4]]
    assert not list(model.predictor.parameters())


def test_ones_own_supervised_objective_may_go_without_a_projector():
    @dataclass(frozen=True, kw_only=True)
    class Mine(Objective):
        supervised: ClassVar[bool] = True
        name: str = "mine"
        projector: tuple[int, ...] = ()

        def learner(self, online, target): ...

    assert Mine().projector == ()
