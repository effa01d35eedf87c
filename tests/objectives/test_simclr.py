import math

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss

from fssl_core.errors import DataError
from fssl_core.objectives.simclr import nt_xent
from tests.objectives.learners import Client, embeddings, small, two_views


def slow(first, second, temperature, one_direction=False):
    """Eq. 1 term by term: the mean loss, and the fraction of embeddings whose positive is the closest of the others."""
    count = len(first)
    z = [[value / math.hypot(*row) for value in row] for row in [*first.tolist(), *second.tolist()]]
    similarity = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in z] for x in z]
    losses, right = [], []
    for i in range(count if one_direction else 2 * count):
        positive = (i + count) % (2 * count)
        others = [k for k in range(2 * count) if k != i]
        below = sum(math.exp(similarity[i][k] / temperature) for k in (range(2 * count) if one_direction else others))
        losses.append(-math.log(math.exp(similarity[i][positive] / temperature) / below))
        right.append(max(others, key=lambda k, row=similarity[i]: row[k]) == positive)
    return sum(losses) / len(losses), sum(right) / len(right)


@pytest.mark.parametrize("loss", ["both-directions", "one-direction"])
@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_loss_and_accuracy_are_equation_1_term_by_term(loss, noise):
    first = embeddings(seed=1)
    second = first + noise * embeddings(seed=2)
    expected = slow(first, second, 0.3, loss == "one-direction")
    value, accuracy = nt_xent(first, second, 0.3, loss)
    assert (value.item(), accuracy.item()) == pytest.approx(expected, abs=1e-7)
    assert value.item() == pytest.approx(expected[0], abs=1e-12)


def test_loss_and_gradients_are_lightlys():
    ours, theirs = ([embeddings(seed=seed).requires_grad_() for seed in (1, 2)] for _ in range(2))
    loss, oracle = nt_xent(*ours, 0.07)[0], NTXentLoss(temperature=0.07)(*theirs)
    torch.testing.assert_close(loss, oracle)
    for one, other in zip(torch.autograd.grad(loss, ours), torch.autograd.grad(oracle, theirs), strict=True):
        torch.testing.assert_close(one, other)


def test_a_perfect_pair_of_one_direction_still_pays_for_itself():
    """Two orthogonal images: of three similarities with others, one is 1 and two are 0; the own is 1, too."""
    z, e = torch.eye(2, dtype=torch.float64), math.e
    assert nt_xent(z, z, 1.0)[0].item() == pytest.approx(math.log((e + 2) / e))
    assert nt_xent(z, z, 1.0, "one-direction")[0].item() == pytest.approx(math.log((2 * e + 2) / e))


def test_learner_takes_temperature_and_loss_from_the_settings():
    views = two_views()
    for values in ({"temperature": 0.5}, {"temperature": 0.5, "loss": "one-direction"}):
        client = Client(small("simclr", **values))
        plain = client.model.train()
        loss, figures = client.loss(views)
        expected, accuracy = slow(*(plain(view) for view in views), 0.5, "loss" in values)
        assert loss.item() == pytest.approx(expected, abs=1e-10)
        assert figures["contrastive_accuracy"].item() == pytest.approx(accuracy)


def test_similarities_do_not_depend_on_the_length_of_embeddings():
    first, second = embeddings(seed=1), embeddings(seed=2)
    torch.testing.assert_close(nt_xent(3 * first, second, 0.1), nt_xent(first, F.normalize(second, dim=1), 0.1))


def test_views_of_other_shapes_are_refused():
    with pytest.raises(DataError, match=r"two views of the same images, got \[4, 8\] and \[3, 8\]"):
        nt_xent(torch.rand(4, 8), torch.rand(3, 8), 0.5)
