import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from fssl_core import notices
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation import knn
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.random import generator


def noisy_classes(count, seed, classes=4, dim=6, noise=1.2):
    """Features around one direction per class, far from separable, and their labels."""
    rng = torch.Generator().manual_seed(seed)
    directions = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(0, classes, (count,), generator=rng)
    return directions[labels] + noise * torch.randn(count, dim, generator=rng), labels


def slow_accuracy(bank, bank_labels, queries, query_labels, k, temperature):
    """One query, one neighbour at a time, in plain Python floats."""
    correct = 0
    for query, label in zip(queries.double().numpy(), query_labels.tolist(), strict=True):
        similarities = [float(query @ x / np.linalg.norm(query) / np.linalg.norm(x)) for x in bank.double().numpy()]
        nearest = sorted(range(len(bank)), key=lambda n: -similarities[n])[:k]
        votes = dict.fromkeys(range(int(bank_labels.max()) + 1), 0.0)
        for n in nearest:
            votes[int(bank_labels[n])] += math.exp(similarities[n] / temperature)
        correct += max(votes, key=votes.get) == label
    return correct / len(queries)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.1), (50, 0.1), (50, 1.0), (300, 0.05)])
def test_accuracy_equals_a_slow_loop(k, temperature):
    bank, queries = noisy_classes(300, seed=1), noisy_classes(60, seed=2)
    accuracy = knn_accuracy(*bank, *queries, k=k, temperature=temperature)
    assert accuracy == slow_accuracy(*bank, *queries, k, temperature)
    assert 0.3 < accuracy < 1  # above chance and not perfect: the comparison says something


@pytest.mark.parametrize("k", [1, 10, 200])
def test_accuracy_equals_scikit_learns(k):
    bank, queries = noisy_classes(500, seed=3), noisy_classes(400, seed=4)
    oracle = KNeighborsClassifier(
        k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1), algorithm="brute"
    )
    oracle.fit(bank[0].double().numpy(), bank[1].numpy())
    expected = oracle.score(queries[0].double().numpy(), queries[1].numpy())
    assert knn_accuracy(*bank, *queries, k=k) == pytest.approx(expected, abs=1e-12)


def test_inside_autocast_neighbours_are_told_apart_as_outside():
    features = torch.randn(200, 8, generator=generator(0, "test")) * 1e-3 + 1  # all within bfloat16's rounding
    labels = torch.arange(200) % 4
    plain = knn_accuracy(features[:150], labels[:150], features[150:], labels[150:], k=5)
    with torch.autocast("cpu", torch.bfloat16):
        assert knn_accuracy(features[:150], labels[:150], features[150:], labels[150:], k=5) == plain


def test_block_size_and_the_scale_of_features_do_not_matter(monkeypatch):
    bank, queries = noisy_classes(300, seed=5), noisy_classes(100, seed=6)
    accuracy = knn_accuracy(*bank, *queries, k=20)
    monkeypatch.setattr(knn, "KNN_BLOCK", 7)
    assert accuracy == knn_accuracy(bank[0] * 1000, bank[1], queries[0] * 0.01, queries[1], k=20)


def test_equally_similar_neighbours_all_vote_whatever_the_order_of_the_bank():
    bank = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1, 1, 0])
    query = torch.tensor([[1.0, 0.0]])
    for order in ([0, 1, 2, 3], [2, 1, 0, 3], [3, 0, 2, 1]):  # k=1, yet all three ties vote: class 1 has two of them
        assert knn_accuracy(bank[order], labels[order], query, torch.tensor([1]), k=1) == 1.0


def test_ties_at_the_end_of_the_neighbours_vote_all_in_the_queries_that_have_them_only():
    bank = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 1, 2, 0])
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    # k=2: the first query's second neighbour is one of three, which win at a high temperature; so is the second's.
    found = [
        knn_accuracy(bank, labels, queries, torch.tensor(expected), k=2, temperature=5.0)
        for expected in ([1, 1, 0], [0, 2, 0])
    ]
    assert found == [1.0, pytest.approx(1 / 3)]
    assert knn_accuracy(bank, labels, queries, torch.tensor([0, 2, 0]), k=2, temperature=0.01) == 1.0


def test_a_tie_between_classes_goes_to_the_lower_label():
    query = torch.tensor([[0.0, 1.0, 0.0]])  # of length 1, so that no similarity is rounded
    bank, labels = query.expand(4, 3), torch.tensor([2, 1, 2, 1])
    assert knn_accuracy(bank, labels, query, torch.tensor([1]), k=4) == 1.0
    assert knn_accuracy(bank, labels, query, torch.tensor([2]), k=4) == 0.0


def test_a_very_small_temperature_is_the_nearest_neighbour():
    bank, queries = noisy_classes(200, seed=7), noisy_classes(100, seed=8)
    # exp(sim / 1e-4) overflows float32 by thousands of orders of magnitude
    assert knn_accuracy(*bank, *queries, k=50, temperature=1e-4) == knn_accuracy(*bank, *queries, k=1)


def test_k_above_the_bank_is_capped_with_one_notice(capsys, monkeypatch):
    monkeypatch.setattr(notices, "_seen", set())
    bank, queries = noisy_classes(30, seed=9), noisy_classes(60, seed=10)
    accuracy = knn_accuracy(*bank, *queries, temperature=2.0)  # far neighbours count for nearly as much as close ones
    assert accuracy == knn_accuracy(*bank, *queries, k=30, temperature=2.0)
    assert accuracy != knn_accuracy(*bank, *queries, k=15, temperature=2.0)
    assert knn_accuracy(*bank, *queries, temperature=2.0) == accuracy
    assert capsys.readouterr().err == "fssl: kNN: k=200 neighbours asked for, the bank has 30; all of them vote.\n"


def test_wrong_settings_and_features_are_refused():
    bank, queries = noisy_classes(30, seed=1), noisy_classes(20, seed=2)
    with pytest.raises(SettingError, match="k=0 cannot be used: expected at least 1"):
        knn_accuracy(*bank, *queries, k=0)
    with pytest.raises(SettingError, match=r"temperature=0\.0 cannot be used: expected a positive number"):
        knn_accuracy(*bank, *queries, temperature=0.0)
    with pytest.raises(DataError, match="features of the queries have 5 dimensions, those before them 6"):
        knn_accuracy(torch.rand(20, 6), torch.zeros(20, dtype=int), torch.rand(20, 5), torch.zeros(20, dtype=int))
    with pytest.raises(DataError, match=r"Of the queries, features .* got \[20, 6\] and \[19\]"):
        knn_accuracy(*bank, queries[0], queries[1][:-1])


@pytest.mark.gpu
def test_cuda_gives_the_same_accuracy():
    bank, queries = noisy_classes(300, seed=1), noisy_classes(100, seed=2)
    on_cuda = [tensor.cuda() for tensor in (*bank, *queries)]
    assert knn_accuracy(*on_cuda, k=20) == pytest.approx(knn_accuracy(*bank, *queries, k=20), abs=0.011)
