"""Speed of kNN: `pytest -m benchmark -s tests/benchmarks/test_knn.py`, about half a minute.

CPU time on one thread, in turn, medians. Beside ours: a plain function with a matrix product and ``topk``, as the
authors of MocoSFL and many others have it, and scikit-learn's classifier with the same votes. Neither lets neighbours
vote that are as similar as the k-th. The bank is CIFAR's in size, the queries are a validation share of its test set.
"""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.random import generator
from tests.benchmarks.timing import milliseconds

pytestmark = pytest.mark.benchmark

K, TEMPERATURE = 200, 0.1
BAR = 1.05  # times the fastest of the others: what a measurement leaves open


def plain(bank: Tensor, bank_labels: Tensor, queries: Tensor, labels: Tensor, classes: int, block: int = 256) -> float:
    bank, correct = F.normalize(bank).T.contiguous(), 0
    for query, label in zip(queries.split(block), labels.split(block), strict=True):
        weight, nearest = (F.normalize(query) @ bank).topk(K)
        votes = F.one_hot(bank_labels[nearest], classes) * (weight / TEMPERATURE).exp()[:, :, None]
        correct += (votes.sum(1).argmax(1) == label).sum().item()
    return correct / len(queries)


def scikit_learn(bank: Tensor, bank_labels: Tensor, queries: Tensor, labels: Tensor) -> float:
    like_ours = {"metric": "cosine", "weights": lambda distance: np.exp((1 - distance) / TEMPERATURE)}
    classifier = KNeighborsClassifier(K, algorithm="brute", **like_ours)
    return classifier.fit(bank.numpy(), bank_labels.numpy()).score(queries.numpy(), labels.numpy())


@pytest.mark.parametrize(("dim", "classes"), [(512, 10), (1024, 100)])
def test_knn_is_as_fast_as_a_plain_function_and_scikit_learn(dim, classes):
    draw = generator(0, "benchmark")
    directions = 0.15 * torch.randn(classes, dim, generator=draw)
    bank_labels, labels = (torch.randint(0, classes, (count,), generator=draw) for count in (50_000, 2_000))
    bank, queries = (directions[y] + torch.randn(len(y), dim, generator=draw) for y in (bank_labels, labels))
    data = (bank, bank_labels, queries, labels)
    functions = partial(knn_accuracy, *data), partial(plain, *data, classes), partial(scikit_learn, *data)
    assert len({function() for function in functions}) == 1  # the very same predictions
    ours, *others = milliseconds(*functions, repeats=3, warm_up=1)
    print(f"\n{classes} classes, {dim} features: ours {ours:.0f} ms; plain {others[0] / ours:.2f} of that, ", end="")
    print(f"scikit-learn {others[1] / ours:.2f}")
    assert ours <= BAR * min(others)
