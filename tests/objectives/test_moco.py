import math

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.loss.memory_bank import MemoryBankModule

from fssl_core.errors import SettingError
from fssl_core.objectives.moco import KeyQueue, info_nce
from fssl_core.random import generator
from tests.objectives.learners import Client, small, two_views


def unit(count, dim=6, seed=0):
    return F.normalize(torch.randn(count, dim, generator=generator(seed, "unit"), dtype=torch.float64), dim=1)


def test_loss_is_equation_1_term_by_term():
    queries, positives, negatives = unit(5, seed=1), unit(5, seed=2), unit(7, seed=3)
    terms = []
    for query, positive in zip(queries, positives, strict=True):
        up = math.exp(query @ positive / 0.2)
        terms.append(-math.log(up / (up + sum(math.exp(query @ other / 0.2) for other in negatives))))
    loss, accuracy = info_nce(queries, positives, negatives, 0.2)
    assert loss.item() == pytest.approx(sum(terms) / 5, abs=1e-12)
    closest = [(q @ p > negatives @ q).all().item() for q, p in zip(queries, positives, strict=True)]
    assert accuracy.item() == pytest.approx(sum(closest) / 5)


def test_loss_equals_lightly():
    queries, positives, negatives = (value.float() for value in (unit(4, seed=1), unit(4, seed=2), unit(9, seed=3)))
    oracle = NTXentLoss(temperature=0.1, memory_bank_size=(9, 6))
    assert isinstance(oracle.memory_bank, MemoryBankModule)
    oracle.memory_bank.bank = negatives.clone()
    oracle.memory_bank.bank_ptr = torch.zeros(1, dtype=torch.long)
    loss, _ = info_nce(queries, positives, negatives, 0.1)
    torch.testing.assert_close(loss, oracle(queries, positives))


def test_the_similarity_that_is_logged_is_the_mean_over_queries_and_negatives():
    client = Client(small("moco-v2"))
    client.train([two_views(seed=1)], 0.01)
    keys, views = client.learner.queue.keys.tolist(), two_views()
    queries = client.online.module().train()(views[0]).tolist()
    cosines = [sum(a * b for a, b in zip(q, k, strict=True)) / math.hypot(*q) for q in queries for k in keys]
    assert min(cosines) < 0 < max(cosines)
    _, figures = client.loss(views)
    assert figures["negative_similarity"].item() == pytest.approx(sum(cosines) / len(cosines), abs=1e-10)


def test_without_negatives_the_loss_is_zero():
    loss, accuracy = info_nce(unit(3), unit(3, seed=1), unit(0), 0.1)
    assert (loss.item(), accuracy.item()) == (0.0, 1.0)


@pytest.mark.parametrize("counts", [[2, 2, 2], [3, 3, 3, 3], [1, 4, 2, 5, 1], [7], [12, 3], [5, 5]])
def test_queue_holds_the_latest_keys_and_none_twice(counts):
    queue, expected = KeyQueue(5, 2), []
    pushed = 0
    for count in counts:
        keys = torch.arange(pushed, pushed + count).float()[:, None].expand(-1, 2)
        pushed += count
        queue.push(keys)
        expected = list(range(pushed))[-5:]
        assert sorted(queue.keys[:, 0].tolist()) == expected
        assert len(queue) == len(expected)


def test_queue_goes_on_from_its_state():
    first, second = KeyQueue(5, 2), KeyQueue(5, 2)
    first.push(torch.rand(3, 2, generator=generator(0, "keys")))
    second.load_state_dict(first.state_dict())
    for queue in (first, second):
        queue.push(torch.ones(4, 2))
    assert torch.equal(first.keys, second.keys)


def test_a_queue_needs_room():
    with pytest.raises(SettingError, match="queue_size=0"):
        KeyQueue(0, 2)
