"""Seconds that a server needs for one aggregation, measured on this machine.

L-DAWA (Ur Rehman et al., ICCV 2023), Table 1, states 0.29 s for FedAvg, 0.38 s for L-DAWA and 22.65 s for M-DAWA, with
10 clients and a ResNet-18, and neither the machine nor what the time covers. Here a rule is timed in three ways:

engine
    :mod:`fssl_core.federation.aggregation`: models as the rows of a matrix, products of a tensor for all clients at
    once, and the cosine of the whole model put together from them
engine_receiving
    the same, and before it every model is copied into its row
plain
    as one would write it first, state dict by state dict (:func:`plain_aggregate`), on the models as they come; for
    M-DAWA each is copied into one long vector, as Eq. 2 suggests
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.federation.aggregation import Layers, Round, combine, weights
from fssl_core.federation.clients import ClientMatrix
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range

IMPLEMENTATIONS = ("engine", "engine_receiving", "plain")
PLAIN_RULES = ("fedavg", "m-dawa", "l-dawa")

State = dict[str, Tensor]


def made_up_round(model: nn.Module, clients: int) -> Round:
    """A round without training: clients' models are the global one and noise of a tenth of each tensor's norm.

    How long a rule takes does not depend on the values. Clients have 1, 2, 3, ... images and equal losses.
    """
    previous, received = ClientMatrix(model, 1), ClientMatrix(model, clients)
    draw = generator(0, "aggregation time")
    for block in received.blocks.values():
        noise = torch.randn(block.shape, generator=draw, dtype=torch.float32).to(block)
        size = block[0].norm() / max(1, block[0].numel()) ** 0.5
        block.add_(noise, alpha=0.1 * size.item())
    return Round(previous, received, torch.arange(1, clients + 1), torch.zeros(clients), Layers(previous))


@torch.no_grad()
def plain_aggregate(rule: str, previous: State, received: Sequence[State], images: Tensor) -> State:
    """The new global model, with one model after the other and one tensor after the other: Eqs. 1, 3 and 4.

    Args:
        rule: ``"fedavg"``, ``"m-dawa"`` or ``"l-dawa"``.
        previous: the global model that the clients started from.
        received: theirs.
        images: how many each trained on, ``[K]``.

    Raises:
        SettingError: another rule.
    """
    check_choice("rule", rule, PLAIN_RULES)
    if rule == "l-dawa":
        betas = [{name: _cosine(previous[name], state[name]) for name in state} for state in received]
    elif rule == "m-dawa":
        whole = _vector(previous)
        betas = [dict.fromkeys(state, _cosine(whole, _vector(state))) for state in received]
    else:
        shares = len(received) * images / images.sum()
        betas = [dict.fromkeys(previous, share) for share in shares]
    return {
        name: sum(beta[name] * state[name] for beta, state in zip(betas, received, strict=True)) / len(received)
        for name in previous
    }


def _vector(state: State) -> Tensor:
    """A copy of the whole model; single numbers, batch norm's counts, are no weights."""
    return torch.cat([tensor.flatten() for tensor in state.values() if tensor.dim()])


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    """Eq. 2; 1 for single numbers and where a tensor is zero."""
    lengths = first.norm() * second.norm()
    return (first * second).sum() / lengths if first.dim() and lengths > 0 else lengths.new_ones(())


def aggregation_times(rules: Sequence[str], round_state: Round, *, repeats: int = 5) -> pd.DataFrame:
    """Medians over repeats, in which all ways take turns, so that what else the machine does meets them alike.

    Args:
        rules: of ``PLAIN_RULES``.
        round_state: models to aggregate, of :func:`made_up_round`; they stay as they are.
        repeats: measurements of each, after one that is not counted.

    Returns:
        a row per rule with the columns rule and, in seconds of one aggregation, ``IMPLEMENTATIONS``.

    Raises:
        SettingError: an unknown rule, or no measurement.
    """
    check_range("repeats", repeats, 1)
    works = _works(round_state)
    seconds = {(rule, name): [_seconds(work, rule, round_state)] for rule in rules for name, work in works.items()}
    for _ in range(repeats):
        for (rule, name), measured in seconds.items():
            measured.append(_seconds(works[name], rule, round_state))
    medians = {key: median(measured[1:]) for key, measured in seconds.items()}
    return pd.DataFrame({"rule": rule, **{name: medians[rule, name] for name in works}} for rule in rules)


def _works(round_state: Round) -> dict[str, Callable[[str], object]]:
    """For each implementation the aggregation by a rule."""
    model = round_state.previous.row_module(0)
    message, result, rows = ClientMatrix(model, 1), ClientMatrix(model, 1), ClientMatrix(model, round_state.clients)
    states = [
        {name: block[k] for name, block in round_state.received.blocks.items()} for k in range(round_state.clients)
    ]
    previous = {name: block[0] for name, block in round_state.previous.blocks.items()}

    def engine(rule: str, received: ClientMatrix = round_state.received) -> None:
        fresh = replace(round_state, received=received)  # a round remembers its products
        combine(weights(rule, fresh), fresh, result)

    def engine_receiving(rule: str) -> None:
        for client in range(round_state.clients):
            message.put(rows, [client])
        engine(rule, rows)

    def plain(rule: str) -> None:
        plain_aggregate(rule, previous, states, round_state.images)

    return dict(zip(IMPLEMENTATIONS, (engine, engine_receiving, plain), strict=True))


def _seconds(work: Callable[[str], object], rule: str, round_state: Round) -> float:
    _wait(round_state)
    start = time.perf_counter()
    work(rule)
    _wait(round_state)
    return time.perf_counter() - start


def _wait(round_state: Round) -> None:
    if round_state.received.weights.is_cuda:
        torch.cuda.synchronize(round_state.received.weights.device)
