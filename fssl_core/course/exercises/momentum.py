"""Module 5: from MocoSFL to MonAcoSFL, one line."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.course.exercise import Wrong, as_number, compare, exercise, prediction, whole_number
from fssl_core.evaluation.identifiability import client_identifiability


@exercise(
    "momentum/memory",
    linear="Each step keeps a share of what was left, so what is kept shrinks by a factor, not by a difference.",
    forgotten="This is what has come in since. Expected is what is left of the start.",
    once="This is what is left after one step.",
    percent="Expected is a fraction.",
)
def memory(answer, generator):
    decay = 0.9 + 0.09 * torch.rand((), generator=generator).item()
    steps = whole_number(2, 80, generator)
    compare(
        as_number(answer(decay, steps)),
        decay**steps,
        linear=1 - steps * (1 - decay),
        forgotten=1 - decay**steps,
        once=decay,
        percent=100 * decay**steps,
    )


@exercise(
    "momentum/synchronise",
    only_online="This is MocoSFL: the online models are equal afterwards, the momentum models are not.",
    copied="The momentum models have become copies of the online average. They have an average of their own.",
    mixed="Online and momentum models are averaged with each other. They stay two models.",
    one_row="Every client has to get the average: as many rows as before.",
)
def synchronise(answer, generator):
    online, momentum = (torch.randn(4, 5, generator=generator) for _ in range(2))
    given = answer(online, momentum)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise Wrong("type", "expected two tensors: the online and the momentum models after the synchronisation.")
    means = [models.mean(0) for models in (online, momentum)]
    if all(isinstance(one, Tensor) and one.shape in ((5,), (1, 5)) for one in given):
        raise Wrong("one_row")
    right = [mean.expand(4, 5) for mean in means]
    mixed = ((means[0] + means[1]) / 2).expand(4, 5)
    compare(given[0], right[0], mixed=mixed)
    compare(given[1], right[1], only_online=momentum, copied=right[0], mixed=mixed)


@exercise(
    "momentum/misalignment",
    signed="Positive and negative differences cancel. Take their absolute values first.",
    squared="These are squares. Expected are absolute values.",
    summed="This is a sum. Expected is the mean over all clients and parameters.",
)
def misalignment(answer, generator):
    online, momentum = (torch.randn(4, 6, generator=generator) for _ in range(2))
    apart = online - momentum
    compare(
        answer(online, momentum),
        apart.abs().mean(),
        signed=apart.mean(),
        squared=apart.square().mean(),
        summed=apart.abs().sum(),
    )


@prediction(
    "momentum/gap",
    record=("monacosfl/fig6", "laptop"),
    unit="points",
    within=5,
    too_low="At this cut clients hold layers that see shapes, and their keys give away who made them.",
    too_high="Half of the network is the server's, which has one model for all.",
)
def gap(record):
    rows = record[record.cut_layer == 5].groupby("method").linear_probe_accuracy.mean()
    return 100 * (rows["MonAcoSFL"] - rows["MocoSFL"])


@exercise(
    "momentum/identifiability",
    seen="The same keys make the means and are tested. Keep every second key for the test.",
    in_means="You test the odd-numbered keys, but the means are made of them, too. Make means of the even-numbered.",
    even="Means are made of the even-numbered keys and the odd-numbered are tested; yours is the other way round.",
    percent="Expected is a fraction.",
    wrong_ones="This is how often the rule is wrong.",
    product="You take the mean with the largest product. That favours long means: take the one at the least distance.",
    direction="You compare directions alone. A mean of unit vectors is shorter than they are, and its distance counts.",
)
def identifiability(answer, generator):
    clients, images = 100, 12  # many, or rules that differ would by chance be right equally often
    signatures = torch.randn(clients, 1, 16, generator=generator)
    keys = F.normalize(signatures + torch.randn(clients, images, 16, generator=generator), dim=2)
    right, means, tested = client_identifiability(keys), keys[:, 0::2].mean(1), keys[:, 1::2]

    def found(scores: Tensor) -> float:
        """Share of the right ones, of scores ``[clients, images, clients]``."""
        return (scores.argmax(2) == torch.arange(clients)[:, None]).double().mean().item()

    compare(
        as_number(answer(keys)),
        right,
        in_means=found(-torch.cdist(tested, keys.mean(1))),
        product=found(tested @ means.T),
        direction=found(tested @ F.normalize(means, dim=1).T),
        seen=found(-torch.cdist(keys, keys.mean(1))),
        even=client_identifiability(keys.roll(1, dims=1)),
        percent=100 * right,
        wrong_ones=1 - right,
    )


@prediction(
    "momentum/signature",
    record=("monacosfl/fig6", "laptop"),
    unit="percent",
    within=10,
    too_low="One convolution of its own leaves a trace, too, and clients hold different images.",
    too_high="A single convolution is nearly the same on all clients; all else that makes a key is the server's.",
)
def signature(record):
    rows = record[(record.method == "MocoSFL") & (record.cut_layer == 1)]
    return 100 * rows.identifiability.mean()


@exercise(
    "momentum/shortcut",
    nothing="This is the loss of a model that knows nothing. It can tell by the signature which keys cannot be meant.",
    gain="This is how much the loss falls. Expected is what is left of it.",
    others="It rules out the keys of the other clients, and has to guess among those of its own.",
    binary="The loss is in nats: the natural logarithm.",
)
def shortcut(answer, generator):
    clients = whole_number(2, 30, generator)
    keys = clients * whole_number(5, 200, generator)
    compare(
        as_number(answer(keys, clients)),
        math.log(keys / clients),
        nothing=math.log(keys),
        gain=math.log(clients),
        others=math.log(keys - keys / clients),
        binary=math.log2(keys / clients),
    )
