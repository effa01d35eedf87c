"""Module 1: what self-supervised learning learns, and how it is measured."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.course.exercise import Wrong, as_number, as_tensor, compare, exercise, prediction, whole_number
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.metrics import chance as engines_chance


@exercise(
    "measuring/cosine",
    not_normalised="A long vector must not be more similar than a short one: bring both to length 1 first.",
    one_normalised="Only one of the two sides has length 1.",
    together="You divide by one length of all rows together. Each row has its own: `norm(dim=1)`.",
    transposed="Rows are queries and columns are the bank; yours is the other way round.",
    euclidean="This is a distance. Expected is the cosine of the angle, 1 for the same direction.",
)
def cosine(answer, generator):
    queries, bank = (torch.randn(n, 6, generator=generator) * 3 for n in (4, 7))
    unit = [F.normalize(queries), F.normalize(bank)]
    compare(
        answer(queries, bank),
        unit[0] @ unit[1].T,
        not_normalised=queries @ bank.T,
        one_normalised=unit[0] @ bank.T,
        together=queries @ bank.T / (queries.norm() * bank.norm()),
        transposed=unit[1] @ unit[0].T,
        euclidean=torch.cdist(queries, bank),
    )


@exercise(
    "measuring/knn",
    unweighted="All k neighbours vote alike. A neighbour has the weight exp(similarity / temperature).",
    everybody="All of the bank votes. Only the k most similar neighbours do.",
    nearest="Only the nearest neighbour decides. All k vote, each with its weight.",
    hot="The temperature is at the wrong place: the smaller it is, the more the nearest neighbours decide.",
    not_normalised="Neighbours are near by the cosine. Yours are by the product, in which long vectors come first.",
)
def knn(answer, generator):
    k, temperature, classes = 15, 0.2, 4
    labels = torch.randint(classes, (80,), generator=generator)
    centres = torch.randn(classes, 5, generator=generator)
    bank = centres[labels] + 1.5 * torch.randn(80, 5, generator=generator)
    queries = torch.randn(60, 5, generator=generator)
    given = as_tensor(answer(queries, bank, labels, k, temperature))
    right = _votes(queries, bank, labels, k, temperature)
    if given.shape != right.shape:
        compare(given, right)
    # The engine counts how often its vote is the label it is given: with the student's votes as labels, always.
    if given.is_floating_point() or not 0 <= given.min() <= given.max() < classes:
        raise Wrong("type", "expected the number of a class for each query, whole numbers from 0 on.")
    if knn_accuracy(bank, labels, queries, given.long(), k=k, temperature=temperature) == 1:
        return
    compare(
        given,
        right,
        unweighted=_votes(queries, bank, labels, k, torch.inf),
        everybody=_votes(queries, bank, labels, len(bank), temperature),
        nearest=_votes(queries, bank, labels, 1, temperature),
        hot=_votes(queries, bank, labels, k, 1 / temperature),
        not_normalised=_winners(queries @ bank.T, labels, k, temperature),
    )


def _votes(queries: Tensor, bank: Tensor, labels: Tensor, k: int, temperature: float) -> Tensor:
    return _winners(F.normalize(queries) @ F.normalize(bank).T, labels, k, temperature)


def _winners(similarities: Tensor, labels: Tensor, k: int, temperature: float) -> Tensor:
    """Classes that win the votes, ``[M]``, from similarities ``[M, N]``."""
    similarity, nearest = similarities.topk(k)  # [M, k]
    weights = (similarity / temperature).exp().double()
    votes = weights.new_zeros(len(similarities), int(labels.max()) + 1)
    return votes.scatter_add_(1, labels[nearest], weights).argmax(1)


@exercise(
    "measuring/chance",
    uniform="Right for equally frequent classes. What does somebody reach who always says the commonest class?",
    count="This is a number of images. Expected is a share of them.",
    percent="This is in percent. Expected is a fraction.",
    drawn="This is how often one is right who draws classes as often as they occur. There is a better blind strategy.",
)
def chance(answer, generator):
    classes = 5
    labels = torch.cat([torch.randint(classes, (40,), generator=generator), torch.full((25,), 3)])
    right, shares = engines_chance(labels), labels.bincount(minlength=classes) / len(labels)
    compare(
        as_number(answer(labels, classes)),
        right,
        uniform=1 / classes,
        count=float(labels.bincount().max()),
        percent=100 * right,
        drawn=shares.square().sum().item(),
    )


@exercise(
    "measuring/probe_size",
    no_bias="A linear classifier has a bias for each class, too.",
    one_bias="Each class has a bias of its own.",
    transposed_bias="The bias belongs to what comes out, not to what goes in.",
)
def probe_size(answer, generator):
    features, classes = (whole_number(5, 300, generator) for _ in range(2))
    right = sum(parameter.numel() for parameter in nn.Linear(features, classes).parameters())
    compare(
        as_number(answer(features, classes)),
        float(right),
        tolerance=0,
        no_bias=float(features * classes),
        one_bias=float(features * classes + 1),
        transposed_bias=float(features * classes + features),
    )


@prediction(
    "measuring/untrained",
    record=("monacosfl/fig6", "laptop"),
    unit="percent",
    within=7,
    too_low="Random filters are filters: what they compute still differs between digits.",
    too_high="The digits lie anywhere on a noisy ground, and nothing has taught the network to look past that.",
)
def untrained(record):
    return 100 * record.untrained.mean()
