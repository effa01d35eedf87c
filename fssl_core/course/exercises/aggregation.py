"""Module 6: rules of aggregation as tables of weights."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.course.exercise import Wrong, as_tensor, compare, exercise, numbers, parts, prediction, whole_number
from fssl_core.federation.aggregation import Layers, Round, combine, weights
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models.layers import conv_norm


@prediction(
    "aggregation/gap",
    record=("ldawa/beyond_aggregation", "laptop"),
    unit="points",
    within=5,
    too_low="The paper's rule is not as bad as that here.",
    too_high="The paper prints gains. This record is of a short training of a small model, where the rule loses. "
    "Keep your reason for a gain: the module comes back to it.",
)
def gap(record) -> float:
    """L-DAWA less FedAvg, linear probe."""
    mean = record.groupby("method")["accuracy"].mean()
    return 100 * (mean["L-DAWA"] - mean["FedAvg"])


@exercise(
    "aggregation/l_dawa",
    not_divided="Your cosines are right. What would the new model be if all clients sent the old one back?",
    normalised="Your weights sum to one in each layer. Is that in the rule? Divide by the number of clients.",
    whole_model="You have one cosine for a client. L-DAWA has one for each layer: norms and products of that layer.",
    among_clients="You compare clients with their average. The rule compares them with the model they started from.",
    products="You have products of vectors, not cosines: divide by both norms.",
    updates="You compare what a client has changed with the old layer. The rule compares the client's new layer.",
    transposed="You have a row for each layer. Expected is a row for each client, a column for each layer.",
)
def l_dawa(answer, generator) -> None:
    previous, received = _layers(generator)
    clients = len(received[0])
    known = _round(previous, received)
    cosines = known.cosines
    means = torch.stack([F.cosine_similarity(rows, rows.mean(0), dim=1) for rows in received], 1)
    products = torch.stack([rows @ row for row, rows in zip(previous, received, strict=True)], 1)
    changes = [F.cosine_similarity(rows - row, row[None]) for row, rows in zip(previous, received, strict=True)]
    compare(
        answer(previous, received),
        weights("l-dawa", known),
        not_divided=cosines,
        normalised=weights("l-dawa-normalised", known),
        whole_model=weights("m-dawa", known),
        among_clients=means / clients,
        products=products / clients,
        updates=torch.stack(changes, 1) / clients,
        transposed=weights("l-dawa", known).T,
    )


@exercise(
    "aggregation/combine",
    normalised="You divide by the sum of the weights. Equation 1 does not: that sum is part of the rule.",
    first_layer="You use the weights of the first layer for all layers.",
    unweighted="You take the mean of the clients: where do the weights come in?",
    list="Return a list with one vector for each layer, as you were given one.",
    rows="Yours has a row for each client still: add the weighted models of the clients up.",
)
def combined(answer, generator) -> None:
    _, received = _layers(generator)
    beta = torch.rand(len(received[0]), len(received), generator=generator, dtype=torch.float64)
    known = _round([rows[0] for rows in received], received)
    new = ClientMatrix(nn.ParameterList(known.previous.blocks.values()), 1)
    combine(beta, known, new)
    given = answer(beta, received)
    if not isinstance(given, list | tuple):
        raise Wrong("list")

    def with_weights(table: Tensor) -> Tensor:
        return torch.cat([table[:, layer] @ rows for layer, rows in enumerate(received)])

    layers = [as_tensor(layer) for layer in parts(given, len(received), "list")]
    if all(layer.shape == rows.shape for layer, rows in zip(layers, received, strict=True)):
        raise Wrong("rows")
    for layer, rows in zip(layers, received, strict=True):
        if layer.shape != rows.shape[1:]:
            raise Wrong(
                "shape", f"a layer of the answer has the shape {[*layer.shape]}; expected is [{rows.shape[1]}]."
            )
    compare(
        torch.cat([layer.flatten() for layer in layers]),
        new.row(0),
        normalised=with_weights(beta / beta.sum(0)),
        first_layer=with_weights(beta[:, :1].expand_as(beta)),
        unweighted=torch.cat([rows.mean(0) for rows in received]),
    )


@exercise(
    "aggregation/factors",
    pair="Return two tensors: the preference [K, L], and the shrinking [L].",
    over_layers="You sum over layers. Which clients a layer prefers is seen in a column of the table.",
    mean="Your shrinking is the mean weight of a client. What do the clients' weights add up to?",
    product="Preference times shrinking has to give the table back.",
)
def factors(answer, generator) -> None:
    beta = weights("l-dawa", _round(*_layers(generator)))
    preference, shrinking = (as_tensor(part).double() for part in parts(answer(beta), 2, "pair"))
    sums = beta.sum(0)
    if shrinking.numel() == len(beta) and torch.allclose(shrinking.flatten(), beta.sum(1)):
        raise Wrong("over_layers")
    compare(shrinking.squeeze(), sums, mean=beta.mean(0))
    compare(preference, beta / sums, product=preference)


@exercise(
    "aggregation/norm",
    pair="Return two numbers: the norm under equal weights, and under L-DAWA.",
    no_differences="You count only what the clients have in common, c times the old layer. What is left of the "
    "directions in which they differ, when K of them are averaged?",
    not_averaged="The clients' own directions partly cancel. The mean of K vectors at right angles, each of length s, "
    "is s divided by the root of K long.",
    same="Both rules give the same in your answer. By which factor do their weights differ, if all cosines are c?",
    once_more="For L-DAWA you applied the cosine to a part only: it multiplies all that is averaged.",
)
def norm(answer, generator) -> None:
    clients = whole_number(2, 9, generator)
    cosine = 0.3 + 0.6 * torch.rand((), generator=generator).item()
    given = numbers(answer(cosine, clients), 2, "pair")
    directions = torch.eye(clients + 1, dtype=torch.float64)  # the old layer, and one direction for each client
    received = cosine * directions[0] + (1 - cosine**2) ** 0.5 * directions[1:]
    known = _round([directions[0]], [received])
    right = [(weights(rule, known)[:, 0] @ received).norm() for rule in ("uniform", "l-dawa")]
    equal, own = right[0].item(), (1 - cosine**2) / clients
    compare(
        given,
        torch.stack(right),
        no_differences=[cosine, cosine**2],
        not_averaged=[1, cosine],
        same=[equal, equal],
        once_more=[equal, (cosine**4 + own) ** 0.5],
    )


@exercise(
    "aggregation/smaller",
    triple="Return three factors: of the output, of the gradient, and of a step relative to the weights.",
    no_norm="Without the batch norm you would be right about the output. What does batch norm divide by?",
    gradient="A smaller layer gives the same output. The same change of the output then takes a smaller change of the "
    "weights: what does this say of the gradient?",
    relative="Output and gradient are right. A step is the rate times the gradient; now divide by the weights, which "
    "have changed, too.",
)
def smaller(answer, generator) -> None:
    scale = 0.3 + 0.4 * torch.rand((), generator=generator).item()
    given = numbers(answer(scale), 3, "triple")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(whole_number(0, 2**31, generator))
        unit = conv_norm("batch", 3, 8, 3).double()
    images = 10 * torch.randn(16, 3, 8, 8, dtype=torch.float64, generator=generator)
    direction = torch.randn(16, 8, 8, 8, dtype=torch.float64, generator=generator)
    found = []
    for factor in (1.0, scale):
        weight = (factor * unit[0].weight).detach().requires_grad_()
        out = torch.func.functional_call(unit, {"0.weight": weight}, images)
        (gradient,) = torch.autograd.grad((out * direction).sum(), weight)
        lengths = torch.stack([out.detach().norm(), gradient.norm(), weight.detach().norm()])
        found.append(torch.stack([lengths[0], lengths[1], lengths[1] / lengths[2]]))
    compare(
        given,
        found[1] / found[0],
        tolerance=0.01,
        no_norm=[scale, 1, 1 / scale],
        gradient=[1, scale, 1],
        relative=[1, 1 / scale, 1 / scale],
    )


def _layers(generator: torch.Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Two layers of a global model, ``[N]`` each, and what four clients made of them, ``[4, N]``."""
    previous = [torch.randn(size, generator=generator, dtype=torch.float64) for size in (6, 9)]
    noise = [torch.randn(4, len(row), generator=generator, dtype=torch.float64) for row in previous]
    return previous, [row + scale * own for row, own, scale in zip(previous, noise, (0.4, 0.9), strict=True)]


def _round(previous: Sequence[Tensor], received: Sequence[Tensor]) -> Round:
    clients = len(received[0])
    before, after = (ClientMatrix(nn.ParameterList(previous), count) for count in (1, clients))
    for block, rows in zip(after.blocks.values(), received, strict=True):
        block.copy_(rows)
    return Round(before, after, torch.ones(clients), torch.zeros(clients), Layers(before))
