"""Module 2: contrastive learning from the loss up."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.course.exercise import Wrong, as_number, as_tensor, compare, exercise, prediction, whole_number
from fssl_core.objectives.moco import KeyQueue
from fssl_core.objectives.moco import info_nce as engines_info_nce
from fssl_core.objectives.simclr import nt_xent as engines_nt_xent


@exercise(
    "contrastive/info_nce",
    no_positive="The positive belongs into the denominator, too: without it the loss can fall below 0.",
    of_others="The positives of other queries are among your candidates. A query has its own one, and the negatives.",
    no_temperature="The similarities are not divided by the temperature.",
    multiplied="You multiply by the temperature. Divide: a low one makes differences count more.",
    no_logarithm="This is the mean chance of the positive. The loss is the mean of minus its logarithm.",
    sign="The sign is wrong: the loss falls when query and positive become more similar.",
    summed="This is the sum over the batch. Expected is the mean.",
)
def info_nce(answer, generator):
    queries, positives, negatives = (F.normalize(torch.randn(n, 8, generator=generator)) for n in (6, 6, 20))
    temperature = 0.3
    right, _ = engines_info_nce(queries, positives, negatives, temperature)
    own, others = (queries * positives).sum(1), queries @ negatives.T
    chances = torch.cat([own[:, None], others], 1).div(temperature).softmax(1)[:, 0]
    without = (others / temperature).logsumexp(1) - own / temperature
    compare(
        answer(queries, positives, negatives, temperature),
        right,
        no_positive=without.mean(),
        of_others=F.cross_entropy(torch.cat([queries @ positives.T, others], 1) / temperature, torch.arange(6)),
        no_temperature=engines_info_nce(queries, positives, negatives, 1.0)[0],
        multiplied=engines_info_nce(queries, positives, negatives, 1 / temperature)[0],
        no_logarithm=chances.mean(),
        sign=-right,
        summed=right * len(queries),
    )


@exercise(
    "contrastive/nt_xent",
    zero_itself="A similarity of 0 on the diagonal still counts, as exp(0) = 1. What has to count for nothing is -inf.",
    no_positive="The positive belongs into the denominator, too: of the 2B - 1 others it is one.",
    with_itself="An embedding is compared with itself, too. Leave the diagonal out.",
    one_view="Only the first view's embeddings look for their partners. All 2B do.",
    within_view="The negatives are those of the other view only. All other 2B - 2 of the batch are.",
    one_direction="Only the first view's embeddings look for their partners, and only among the second view's. "
    "All 2B do, among the 2B - 1 others.",
    no_temperature="The similarities are not divided by the temperature.",
    multiplied="You multiply by the temperature. Divide: a low one makes differences count more.",
    not_normalised="The embeddings are not unit vectors: normalise them first.",
    summed="This is the sum over the embeddings. Expected is the mean.",
)
def nt_xent(answer, generator):
    first, second = (2 * torch.randn(5, 8, generator=generator) for _ in range(2))
    temperature = 0.5
    right, _ = engines_nt_xent(first, second, temperature)
    unit = F.normalize(torch.cat([first, second]), dim=1)
    rows = _nt_xent_rows(unit, temperature)
    across = F.normalize(first) @ F.normalize(second).T / temperature
    targets = torch.arange(5)
    within = (F.cross_entropy(across, targets) + F.cross_entropy(across.T, targets)) / 2
    positives = torch.arange(10).roll(5)
    similarity = unit @ unit.T / temperature
    own = similarity.gather(1, positives[:, None])
    hidden = similarity.masked_fill(torch.eye(10, dtype=torch.bool), -torch.inf)
    compare(
        answer(first, second, temperature),
        right,
        zero_itself=F.cross_entropy(similarity.masked_fill(torch.eye(10, dtype=torch.bool), 0.0), positives),
        no_positive=(hidden.scatter(1, positives[:, None], -torch.inf).logsumexp(1) - own[:, 0]).mean(),
        with_itself=F.cross_entropy(similarity, positives),
        one_view=rows[:5].mean(),
        within_view=within,
        one_direction=F.cross_entropy(across, targets),
        no_temperature=_nt_xent_rows(unit, 1.0).mean(),
        multiplied=_nt_xent_rows(unit, 1 / temperature).mean(),
        not_normalised=_nt_xent_rows(torch.cat([first, second]), temperature).mean(),
        summed=rows.sum(),
    )


def _nt_xent_rows(z: Tensor, temperature: float) -> Tensor:
    """The loss of each of the 2B embeddings, ``[2B]``."""
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(z) // 2), reduction="none")


@exercise(
    "contrastive/ignorance",
    all_of_them="An embedding is not compared with itself: it guesses among one fewer.",
    pairs="There are 2B embeddings, not B.",
    negatives="The positive is among those that it guesses from.",
    share="This is the chance to guess rightly. The loss is the negative logarithm of it.",
    sign="The sign is wrong: the loss is minus the logarithm of a chance, which is below 1.",
    binary="The loss is in nats: the natural logarithm.",
)
def ignorance(answer, generator):
    batch = whole_number(4, 500, generator)
    compare(
        as_number(answer(batch)),
        math.log(2 * batch - 1),
        all_of_them=math.log(2 * batch),
        pairs=math.log(batch),
        negatives=math.log(2 * batch - 2),
        share=1 / (2 * batch - 1),
        sign=-math.log(2 * batch - 1),
        binary=math.log2(2 * batch - 1),
    )


@exercise(
    "contrastive/ema",
    swapped="The two weights are swapped: with a decay of 0.99 the momentum model hardly moves in a step.",
    replaced="The momentum model is the online model now. It should follow slowly.",
    frozen="The momentum model has not moved.",
    added="The weights have to add up to 1.",
)
def ema(answer, generator):
    momentum, online = (torch.randn(7, generator=generator) for _ in range(2))
    decay = 0.9
    compare(
        answer(momentum, online, decay),
        decay * momentum + (1 - decay) * online,
        swapped=(1 - decay) * momentum + decay * online,
        replaced=online,
        frozen=momentum,
        added=decay * momentum + online,
    )


@exercise(
    "contrastive/queue",
    grows="The queue grows for ever: it holds more than `size` keys.",
    keeps_old="The newest keys are lost. When the queue is full, the oldest give way.",
    forgets="The old keys are all gone, although there is room for some of them.",
    order="The keys are in another order than expected: the oldest first, new ones at the end.",
)
def queue(answer, generator):
    size, keys = 8, torch.randn(17, 2, generator=generator).split([3, 3, 3, 8])  # half full, full, and all new
    engines, given = KeyQueue(size, 2), torch.empty(0, 2)
    for held, batch in enumerate(keys):
        before = given
        given = as_tensor(answer(given, batch, size))
        engines.push(batch)
        right = torch.cat([before, batch])[-size:]
        if len(given) > size:
            raise Wrong("grows")
        if given.shape == right.shape and torch.equal(_sorted(given), _sorted(right)) and not torch.equal(given, right):
            raise Wrong("order")
        newest_first = torch.cat([batch, before])[:size]
        compare(given, right, keeps_old=torch.cat([before, batch])[:size], forgets=batch, order=newest_first)
        if not torch.equal(_sorted(given), _sorted(engines.keys)):
            raise Wrong("other", f"after {held + 1} batches the queue holds other keys than the engine's.")


def _sorted(keys: Tensor) -> Tensor:
    return keys[keys[:, 0].argsort()]


@prediction(
    "contrastive/random_negatives",
    record=("mocosfl/fig1", "laptop"),
    unit="points",
    within=3,
    too_low="Random unit vectors are far from every query, so they teach little. It does cost.",
    too_high="Even easy negatives keep the features from collapsing, and most of the accuracy stays.",
)
def random_negatives(record):
    rows = record[(record["objective.name"] == "moco-v2") & (record.batch == 32) & (record.clients == 5)]
    accuracy = rows.groupby("objective.negatives").knn_accuracy.mean()
    return 100 * (accuracy["fresh"] - accuracy["random"])
