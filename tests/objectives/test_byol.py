import math

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity

from fssl_core.objectives.byol import byol_loss
from tests.objectives.learners import embeddings


def test_loss_is_equation_2_term_by_term():
    predictions, targets = embeddings(5, 7, 1), embeddings(5, 7, 2)
    terms = []
    for p, z in zip(predictions.tolist(), targets.tolist(), strict=True):
        p, z = ([value / math.hypot(*v) for value in v] for v in (p, z))
        terms.append(sum((a - b) ** 2 for a, b in zip(p, z, strict=True)))
    assert byol_loss(predictions, targets).item() == pytest.approx(sum(terms) / 5, abs=1e-12)


def test_loss_is_lightlys_up_to_a_constant():
    predictions, targets = (embeddings(5, 7, seed).requires_grad_() for seed in (1, 2))
    loss = byol_loss(predictions, targets)
    torch.testing.assert_close(loss, 2 + 2 * NegativeCosineSimilarity()(predictions, targets))
    loss.backward()
    assert targets.grad is None  # the target branch gets no gradient
