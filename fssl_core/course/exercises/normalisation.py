"""Module 8: what a normalisation takes its mean from, and modular training."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.costs.modular import phase2_bytes
from fssl_core.course.exercise import (
    Wrong,
    as_tensor,
    check_word,
    compare,
    exercise,
    other_units,
    prediction,
    whole_number,
)
from fssl_core.models.layers import norm_layer
from fssl_core.models.twin_norm import TwinNorm

NORMS = {  # that depend on other images or not: kind, and whether the layer is in training mode
    "batch, training": ("batch", True),
    "batch, evaluation": ("batch", False),
    "group": ("group", True),
    "twin": ("twin", True),
}

NO_EPSILON = "Nearly. Add epsilon to the variance, under the root."


@prediction(
    "normalisation/twin",
    record=("mfcl/beyond_normalisation", "laptop"),
    unit="percent",
    within=6,
    too_low="There are ten classes: guessing is right in 10 of 100 cases.",
    too_high="Nine of ten pairs are found. But what for? With twin norm a pair can be found without looking at the "
    "digit, and so the encoder does not learn to look at it.",
)
def twin(record) -> float:
    """MFCL with twin norm as described, linear evaluation, very uneven clients."""
    rows = record[(record["method"] == "MFCL(TN)") & (record["protocol"] == "linear evaluation")]
    return 100 * rows[rows["xi"] == rows["xi"].min()]["accuracy"].mean()


@exercise(
    "normalisation/group_norm",
    over_batch="Your mean runs over the images of the batch, too: that is batch norm.",
    each_channel="Every channel has its own mean in your answer. A group of channels shares one.",
    all_channels="All channels of an image share one mean in your answer. There are several groups.",
    unbiased="Nearly. Normalisations take the biased variance: divide by n, not by n - 1.",
    no_root="Divide by the standard deviation, not by the variance.",
    no_epsilon=NO_EPSILON,
)
def group_norm(answer, generator) -> None:
    x = 2 * torch.randn(4, 6, 2, 2, generator=generator, dtype=torch.float64)
    x += torch.randn(4, 6, 1, 1, generator=generator, dtype=torch.float64)
    x, groups = x / 100, 3  # of a variance beside which epsilon shows
    grouped = x.unflatten(1, (groups, -1))
    dims = (2, 3, 4)
    centred = grouped - grouped.mean(dims, keepdim=True)
    variance = grouped.var(dims, correction=0, keepdim=True)
    compare(
        answer(x, groups),
        F.group_norm(x, groups),
        over_batch=F.batch_norm(x, None, None, training=True),
        each_channel=F.instance_norm(x),
        all_channels=F.group_norm(x, 1),
        unbiased=(centred / (grouped.var(dims, keepdim=True) + 1e-5).sqrt()).flatten(1, 2),
        no_root=(centred / (variance + 1e-5)).flatten(1, 2),
        no_epsilon=(centred / variance.sqrt()).flatten(1, 2),
    )


@exercise(
    "normalisation/others",
    words="The answer is a set of names.",
    training="One of them takes mean and variance from the whole batch, and you left it out.",
    evaluation="In evaluation mode batch norm uses the running statistics, whatever is in the batch.",
    twin="Twin norm looks at the other view of the same image, never at another image.",
    group="Group norm looks at the channels of one image.",
)
def others(answer, generator) -> None:
    found = set()
    one, other = torch.randn(2, 6, 8, 5, 5, generator=generator)
    other[[0, 3]] = one[[0, 3]]  # both views of the first image; all other images are exchanged
    for name, (kind, training) in NORMS.items():
        layer = norm_layer(kind, 8).train(training)
        if not torch.allclose(layer(one)[0], layer(other)[0]):
            found.add(name)
    given = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str) else [answer]
    for name in given:
        check_word(name, NORMS)
    for name in sorted(found ^ set(given)):
        raise Wrong(name.rpartition(" ")[2])


@exercise(
    "normalisation/twin_norm",
    apart="You normalise each view alone: that is group norm. The two views of an image share mean and variance.",
    listing="Your variance is the mean of the two views' own variances. Equation 2 takes it around the common mean.",
    neighbours="You pair neighbours in the batch. It has the K first views, then the K second views.",
    over_batch="Your statistics run over all images. Only the two views of one image belong together.",
    each_channel="Every channel has its own mean in your answer; a group of channels shares one.",
    unbiased="Nearly. Normalisations take the biased variance: divide by n, not by n - 1.",
    groups="You have `per_group` groups. Expected are groups of `per_group` channels.",
    no_epsilon=NO_EPSILON,
)
def twin_norm(answer, generator) -> None:
    x = torch.randn(8, 8, 3, 3, generator=generator)
    x += torch.randn(8, 8, 1, 1, generator=generator)
    x, per_group = x / 100, 4  # of a variance beside which epsilon shows
    twins = x.view(2, 4, 2, per_group, 3, 3)  # [views, K, G, channels, H, W]
    spread, centre = torch.var_mean(twins, dim=(0, 3, 4, 5), keepdim=True)
    neighbours = torch.cat([x[0::2], x[1::2]])
    back = torch.stack(TwinNorm(8, per_group)(neighbours).chunk(2), 1).flatten(0, 1)
    pooled = x.unflatten(1, (-1, per_group))  # [2K, G, channels, H, W]
    variance, mean = torch.var_mean(pooled, dim=(0, 2, 3, 4), correction=0, keepdim=True)
    compare(
        answer(x, per_group),
        TwinNorm(8, per_group)(x).detach(),
        tolerance=1e-3,
        apart=F.group_norm(x, 8 // per_group),
        listing=TwinNorm(8, per_group, "mean")(x).detach(),
        neighbours=back.detach(),
        over_batch=((pooled - mean) / (variance + 1e-5).sqrt()).flatten(1, 2),
        each_channel=TwinNorm(8, 1)(x).detach(),
        unbiased=((twins - centre) / (spread + 1e-5).sqrt()).view_as(x),
        groups=TwinNorm(8, 8 // per_group)(x).detach(),
        no_epsilon=((twins - centre) / twins.var((0, 3, 4, 5), correction=0, keepdim=True).sqrt()).view_as(x),
    )


@exercise(
    "normalisation/partners",
    places="Return, for each first view, the place of its partner among the second views: whole numbers [K].",
    alike="You look for the most similar means. What are the two views' means after twin norm, if the common mean is "
    "subtracted from both?",
    other_way="You found pairs, but for each second view its first one.",
    in_order="The second views are shuffled: their order gives nothing away.",
    few="Too few pairs are found. Look for the second view whose means are nearest to the first view's, sign turned.",
)
def partners(answer, generator) -> None:
    count, groups = 30, 4
    maps = torch.randn(2, count, 8 * groups, 4, 4, generator=generator)
    maps += torch.randn(2, count, 1, 1, 1, generator=generator)  # augmentation made views brighter or darker
    means = TwinNorm(8 * groups, 8)(maps.flatten(0, 1)).view(2, count, groups, -1).mean(-1).detach()  # [2, K, G]
    order = torch.randperm(count, generator=generator)
    second, right = means[1][order], order.argsort()
    given = as_tensor(answer(means[0], second))
    if given.shape != right.shape or given.is_floating_point() or given.dtype is torch.bool:
        raise Wrong("places")

    def share(places: Tensor) -> float:
        return (given == places).float().mean().item()

    if share(right) >= 0.9:
        return
    if share(order) >= 0.9:
        raise Wrong("other_way")
    if share(torch.arange(count)) >= 0.9:
        raise Wrong("in_order")
    raise Wrong("alike" if share(torch.cdist(means[0], second).argmin(1)) >= 0.9 else "few")


@exercise(
    "normalisation/bytes",
    one_view="A pair has two views, and the maps of both are sent.",
    one_pair="Several pairs are sent of each image.",
    values="You count values. How many bytes has a float32?",
    both_ways="Clients send, and the rServer sends nothing back.",
)
def sent(answer, generator) -> None:
    channels, side, images, pairs = (
        whole_number(low, high, generator) for low, high in ((8, 64), (4, 16), (10, 500), (5, 9))
    )
    right = float(phase2_bytes((channels, side, side), images, pairs))
    compare(
        answer((channels, side, side), images, pairs),
        right,
        tolerance=1e-6,
        one_view=right / 2,
        one_pair=right / pairs,
        values=right / 4,
        both_ways=2 * right,
        unit=other_units(right),
    )
