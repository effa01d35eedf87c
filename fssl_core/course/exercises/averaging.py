"""Module 3: federated averaging, and why clients that are unlike hurt."""

import torch
from torch import nn

from fssl_core.course.exercise import (
    Wrong,
    as_number,
    as_tensor,
    compare,
    exercise,
    other_units,
    prediction,
    whole_number,
)
from fssl_core.data.partitions import heterogeneity
from fssl_core.federation.aggregation import SHARES
from fssl_core.federation.clients import ClientMatrix, divergence
from fssl_core.models import build_backbone


@exercise(
    "averaging/fedavg",
    unweighted="All clients count alike. One with many images should count more.",
    not_normalised="The weights do not add up to 1: the average of equal models has to be that model.",
    inverted="The client with the fewest images counts most. It should be the other way round.",
    summed="This is the sum of the models. An average of equal models has to be that model.",
    averaged="The weights add up to 1 already: take the sum of the weighted models, not their mean.",
    softmax="All weight is on the client with the most images, as with a softmax of the numbers. Expected are shares.",
)
def fedavg(answer, generator):
    models = torch.randn(4, 6, generator=generator)
    images = torch.randint(1, 9, (4,), generator=generator).float() + torch.tensor([0.0, 3.0, 10.0, 30.0])
    compare(
        answer(models, images),
        SHARES["fedavg"](images).float() @ models,
        unweighted=models.mean(0),
        not_normalised=images @ models,
        inverted=(1 / images / (1 / images).sum()) @ models,
        summed=models.sum(0),
        averaged=SHARES["fedavg"](images).float() @ models / len(models),
        softmax=images.softmax(0) @ models,
    )


@exercise(
    "averaging/divide",
    count="There has to be one list of images for each client.",
    lost="Images are lost: together the clients hold fewer than there are. Where do rounded shares end?",
    twice="An image is with two clients.",
    shares="All images are divided, but a client has more or fewer of a class than its share and rounding make.",
)
def divide(answer, generator):
    classes, clients = 3, 4
    labels = torch.randint(classes, (101,), generator=generator)
    labels = torch.cat([labels, torch.arange(classes)])
    shares = torch.rand(classes, clients, generator=generator) + 0.02
    shares /= shares.sum(1, keepdim=True)
    parts = answer(labels, shares)
    if not isinstance(parts, list | tuple):
        raise Wrong("type", f"expected a list of tensors, one for each client, got {type(parts).__name__}.")
    if len(parts) != clients:
        raise Wrong("count", f"{clients} clients have shares; lists of images that you return: {len(parts)}.")
    parts = [as_tensor(part).flatten() for part in parts]
    if any(part.dtype == torch.bool for part in parts):
        raise Wrong("type", "expected the indices of each client's images, not a mask of all images.")
    together = torch.cat(parts := [part.long() for part in parts])
    if len(together) and not 0 <= together.min() <= together.max() < len(labels):
        span = f"{together.min()} to {together.max()}"
        raise Wrong("type", f"indices of images go from 0 to {len(labels) - 1}, and yours from {span}.")
    if len(together.unique()) < len(together):
        raise Wrong("twice")
    if len(together) < len(labels):
        raise Wrong("lost")
    counts = torch.stack([labels[part].bincount(minlength=classes) for part in parts], 1)  # [classes, clients]
    # Who rounds down and gives the rest to one client is off by less than one image for each of the others.
    if ((counts - shares * labels.bincount()[:, None]).abs() > clients - 1 + 0.01).any():
        raise Wrong("shares")


@exercise(
    "averaging/unlikeness",
    not_halved="The distance of two clients that share no class should be 1: what is moved from one class to another "
    "counts twice in the sum.",
    counts="These are differences of numbers of images. Compare shares: each client's add up to 1.",
    largest="This is the most unlike client. Expected is the mean over the clients.",
    squared="Squared differences are another distance. Expected is the total variation.",
    from_uniform="You compare with equally frequent classes. Compare with the classes of all images together.",
    unweighted="You compare with the mean of the clients' shares. Compare with the classes of all images together, in "
    "which a client with many images counts more.",
    of_classes="You take the mean over the classes, too. Sum over them, then take the mean over the clients.",
)
def unlikeness(answer, generator):
    counts = torch.randint(0, 30, (4, 5), generator=generator) + 1
    labels = torch.arange(5).repeat(4).repeat_interleave(counts.flatten())
    parts = list(torch.arange(len(labels)).split(counts.sum(1).tolist()))
    right = heterogeneity(labels, parts)
    together = counts.sum(0) / counts.sum()
    apart = counts / counts.sum(1, keepdim=True) - together
    compare(
        as_number(answer(counts)),
        right,
        not_halved=2 * right,
        counts=((counts - counts.float().mean(0)).abs().sum(1) / 2).mean().item(),
        largest=(apart.abs().sum(1) / 2).max().item(),
        squared=(apart.square().sum(1) / 2).mean().item(),
        from_uniform=((apart + together - 1 / counts.shape[1]).abs().sum(1) / 2).mean().item(),
        unweighted=((apart - apart.mean(0)).abs().sum(1) / 2).mean().item(),
        of_classes=right / counts.shape[1],
    )


@exercise(
    "averaging/round_bytes",
    one_way="The model crosses twice in a round: down from the server, and up again.",
    no_buffers="Batch norm's running statistics are part of the model's state and travel with it.",
    no_count="Batch norm's count of batches, one number a layer, is part of the model's state, too.",
    numbers="These are numbers, not bytes: a float32 takes four.",
    one_way_no_buffers="Two things are missing: the way back, and batch norm's running statistics, which travel with "
    "the model.",
    one_way_numbers="These are numbers, not bytes: a float32 takes four. And the model crosses twice in a round.",
    bits="These are bits. A byte has eight.",
)
def round_bytes(answer, generator):
    width = 4 * whole_number(1, 4, generator)
    model: nn.Module = build_backbone("resnet10", width=width, norm="batch", image_size=16, channels=1)
    matrix = ClientMatrix(model, 1)
    compare(
        as_number(answer(model)),
        float(2 * 4 * matrix.elements),
        tolerance=0,
        one_way=float(4 * matrix.elements),
        no_buffers=float(2 * 4 * matrix.parameters),
        no_count=float(2 * 4 * (matrix.elements - sum("num_batches" in name for name in model.state_dict()))),
        numbers=float(2 * matrix.elements),
        one_way_no_buffers=float(4 * matrix.parameters),
        one_way_numbers=float(matrix.elements),
        bits=float(2 * 32 * matrix.elements),
        unit=other_units(2 * 4 * matrix.elements),
    )


@exercise(
    "averaging/drift",
    squared="These are squared distances. Take the root of each before the mean.",
    root_of_mean="You take the root of the mean. Take the root of each client's squared distance, then the mean.",
    of_numbers="You take the mean over the weights, too. A distance has the root of a sum over all of them.",
    summed="This is the sum over the clients. Expected is the mean.",
    pairwise="Expected is the distance of each client to the average model, not that to the others.",
    of_average="This is 0, or nearly: clients' differences from their average cancel. Take lengths first.",
)
def drift(answer, generator):
    models = torch.randn(5, 6, generator=generator)
    matrix = ClientMatrix(nn.ParameterList([torch.zeros(6)]), 5)
    matrix.blocks["0"].copy_(models)
    lengths = (models - models.mean(0)).norm(dim=1)
    compare(
        answer(models),
        divergence(matrix).sum(),
        squared=lengths.square().mean(),
        root_of_mean=lengths.square().mean().sqrt(),
        of_numbers=(models - models.mean(0)).abs().mean(),
        summed=lengths.sum(),
        pairwise=torch.cdist(models, models).sum() / 20,
        of_average=torch.tensor(0.0),
    )


@prediction(
    "averaging/dirichlet_loss",
    record=("ldawa/table4", "laptop"),
    unit="points lost (below 0: gained)",
    within=3,
    too_low="It does not get better by more than seeds differ.",
    too_high="That is what happens with labels. Here no client is told what its classes are, and every client's images "
    "teach it to tell images apart.",
)
def dirichlet_loss(record):
    rows = record[(record.method == "FedAvg") & (record.ssl_method == "SimCLR")]
    accuracy = rows.groupby("alpha").accuracy.mean()
    return 100 * (accuracy[0.6] - accuracy[0.1])
