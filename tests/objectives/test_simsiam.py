import copy
import math

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity

from fssl_core.objectives.simsiam import negative_cosine
from tests.objectives.learners import Client, embeddings, small, two_views


def test_loss_is_equation_1_term_by_term_and_lightlys():
    p, z = embeddings(seed=1), embeddings(seed=2)
    terms = []
    for x, y in zip(p.tolist(), z.tolist(), strict=True):
        terms.append(-sum(a * b for a, b in zip(x, y, strict=True)) / math.hypot(*x) / math.hypot(*y))
    assert negative_cosine(p, z).item() == pytest.approx(sum(terms) / 6, abs=1e-12)
    torch.testing.assert_close(negative_cosine(p, z), NegativeCosineSimilarity()(p, z))


def test_gradients_are_those_of_constant_embeddings():
    """Stop-gradient: the embeddings that are predicted, computed in advance, change no gradient."""
    client, views = Client(small("simsiam")), two_views()
    plain = copy.deepcopy(client.model).train().requires_grad_()
    with torch.no_grad():
        z = [plain.projector(plain.encoder(view)) for view in views]
    oracle = NegativeCosineSimilarity()
    expected = (oracle(plain(views[0]), z[1]) + oracle(plain(views[1]), z[0])) / 2
    expected.backward()
    loss, _ = client.loss(views)
    loss.backward()
    torch.testing.assert_close(loss, expected)
    for one, other in zip(client.learner.online.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-9)


def test_deviation_tells_a_collapse():
    client = Client(small("simsiam"))
    _, figures = client.loss(two_views(batch=64))
    assert 0.5 / 16**0.5 < figures["embedding_std"] < 1.2 / 16**0.5
    same = two_views(batch=1, noise=0.0).expand(2, 64, 3, 8, 8)
    collapsed = Client(small("simsiam", output_norm="none"))
    with torch.no_grad():
        collapsed.online.blocks["projector.3.bias"][0] += torch.arange(16)  # in one place, which is not 0
    assert collapsed.loss(same)[1]["embedding_std"] < 1e-6


def test_projector_ends_in_a_batch_norm_without_scale_and_shift():
    projector = Client(small("simsiam")).model.projector
    assert list(projector.state_dict()) == [
        "0.weight",
        *(f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
        "3.weight",
        *(f"4.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")),
    ]
