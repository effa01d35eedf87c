"""Krum, multi-Krum, the median and the trimmed mean, against numpy, scipy and loops, and where they break."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import (
    COORDINATE_RULES,
    MORE_THAN_TWICE,
    Layers,
    Round,
    combine,
    combine_coordinates,
    weights,
)
from fssl_core.federation.clients import ClientMatrix
from fssl_core.random import generator
from tests.federation.test_aggregation import State, federation, network
from tests.federation.test_aggregation import a_round as plain_round

ROBUST = ["median", "trimmed-mean", "krum", "multi-krum"]
SIZES = [(5, 1), (6, 1), (7, 2), (10, 3)]  # clients, f


def a_round(previous: State, received: list[State], faulty: int) -> Round:
    numbers = range(1, len(received) + 1)
    return replace(plain_round(previous, received, images=numbers, losses=numbers), faulty=faulty)


def aggregated(rule: str, previous: State, received: list[State], faulty: int) -> State:
    r = a_round(previous, received, faulty)
    into = ClientMatrix(network(), 1)
    if rule in COORDINATE_RULES:
        combine_coordinates(rule, r, into)
    else:
        combine(weights(rule, r), r, into)
    return into.state_dict(0)


def krum_scores(received: list[State], faulty: int) -> list[float]:
    parameters = [name for name, _ in network().named_parameters()]
    vectors = [np.concatenate([state[name].numpy().ravel() for name in parameters]) for state in received]
    scores = []
    for one, vector in enumerate(vectors):
        squares = sorted(((vector - other) ** 2).sum() for two, other in enumerate(vectors) if two != one)
        scores.append(sum(squares[: len(vectors) - faulty - 2]))
    return scores


# ---------------------------------------------------------------- the rules, slowly


@pytest.mark.parametrize(("clients", "faulty"), SIZES)
def test_coordinate_rules_are_those_of_numpy_and_scipy(clients, faulty):
    previous, received = federation(clients=clients)
    median, trimmed = (aggregated(rule, previous, received, faulty) for rule in ("median", "trimmed-mean"))
    for name in previous:
        values = np.stack([state[name].numpy() for state in received])
        np.testing.assert_allclose(median[name], np.median(values, axis=0), rtol=0, atol=1e-14)
        expected = trim_mean(values, (faulty + 1e-6) / clients, axis=0)
        np.testing.assert_allclose(trimmed[name], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("clients", "faulty"), SIZES)
def test_krum_is_the_model_with_the_least_score_and_multi_krum_the_mean_of_those_with_the_least(clients, faulty):
    previous, received = federation(clients=clients)
    order = np.argsort(krum_scores(received, faulty))
    one, several = (aggregated(rule, previous, received, faulty) for rule in ("krum", "multi-krum"))
    for name in previous:
        assert torch.equal(one[name], received[order[0]][name])
        mean = torch.stack([received[place][name] for place in order[: clients - faulty]]).mean(0)
        torch.testing.assert_close(several[name], mean, rtol=0, atol=1e-14)


def test_krum_looks_at_parameters_and_takes_the_statistics_along():
    previous, received = federation(clients=5, spread=0.1)
    chosen = int(np.argmin(krum_scores(received, 1)))
    received[chosen]["1.running_var"] += 1e6
    new = aggregated("krum", previous, received, 1)
    assert all(torch.equal(value, received[chosen][name]) for name, value in new.items())


@pytest.mark.parametrize("piece", [1, 7, 64])
@pytest.mark.parametrize("rule", ROBUST)
def test_the_pieces_do_not_matter(rule, piece, monkeypatch):
    problem = federation(clients=5)
    whole = aggregated(rule, *problem, 1)
    monkeypatch.setattr("fssl_core.federation.aggregation.PIECE", piece)
    for name, value in aggregated(rule, *problem, 1).items():
        torch.testing.assert_close(value, whole[name], rtol=0, atol=1e-14)


def test_gaps_of_small_updates_of_large_float32_models():
    """Of their norms and products nothing would be left."""
    random, model = generator(0, "gaps"), nn.Linear(512, 512, bias=False)
    with torch.no_grad():
        model.weight.add_(10)
    previous, received = ClientMatrix(model, 1), ClientMatrix(model, 4)
    for row in received.blocks["weight"]:
        row += 1e-3 * torch.randn(row.shape, generator=random)
    r = Round(previous, received, torch.ones(4), torch.ones(4), Layers(previous), 0)
    rows = received.blocks["weight"].double().flatten(1)
    expected = (rows[:, None] - rows).square().sum(2)
    torch.testing.assert_close(r.gaps, expected, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- what they promise


def attacked(clients: int, attackers: int, value: float) -> tuple[State, list[State], list[State]]:
    """The global model, honest clients near it, and attackers who send one value in every number."""
    previous, received = federation(clients=clients, spread=0.1)
    honest = received[attackers:]
    return previous, honest, [{name: torch.full_like(v, value) for name, v in previous.items()}] * attackers


def within(state: State, honest: list[State]) -> bool:
    """Whether each number lies between the least and the greatest of the honest clients'."""
    for name, value in state.items():
        values = torch.stack([other[name] for other in honest])
        if not ((value >= values.amin(0) - 1e-12) & (value <= values.amax(0) + 1e-12)).all():
            return False
    return True


@pytest.mark.parametrize("value", [1e6, -1e6, 3.0])
@pytest.mark.parametrize(("clients", "faulty"), SIZES)
@pytest.mark.parametrize("rule", ROBUST)
def test_as_many_attackers_as_assumed_do_not_move_the_result_out_of_the_honest_range(rule, clients, faulty, value):
    previous, honest, attackers = attacked(clients, faulty, value)
    new = aggregated(rule, previous, [*honest, *attackers], faulty)
    assert within(new, honest)
    if rule == "krum":
        assert any(all(torch.equal(new[name], one[name]) for name in new) for one in honest)
    if rule == "multi-krum":
        for name, result in new.items():
            torch.testing.assert_close(result, torch.stack([one[name] for one in honest]).mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "clients", "faulty", "attackers"),
    [("median", 5, 1, 3), ("median", 6, 1, 3), ("trimmed-mean", 7, 2, 3), ("krum", 7, 2, 4), ("multi-krum", 7, 2, 3)],
)
def test_more_attackers_than_a_rule_takes_break_it(rule, clients, faulty, attackers):
    """Colluding ones, far away: Krum's are its own nearest neighbours as soon as they are K - f - 1."""
    previous, honest, others = attacked(clients, attackers, 1e6)
    assert not within(aggregated(rule, previous, [*others, *honest], faulty), honest)


def test_one_attacker_moves_a_mean_as_far_as_it_likes():
    previous, honest, attackers = attacked(10, 1, 1e6)
    r = a_round(previous, [*honest, *attackers], 0)
    into = ClientMatrix(network(), 1)
    combine(weights("uniform", r), r, into)
    assert into.blocks["0.weight"].min() > 1e5 - 100


def test_values_that_are_not_finite_are_trimmed():
    previous, honest, (attacker,) = attacked(5, 1, float("nan"))
    for rule in COORDINATE_RULES:
        assert within(aggregated(rule, previous, [*honest, attacker], 1), honest)


@pytest.mark.parametrize("rule", ROBUST)
def test_aggregating_models_is_aggregating_updates(rule):
    previous, received = federation(clients=7)
    updates = [{name: value - previous[name] for name, value in state.items()} for state in received]
    still = {name: torch.zeros_like(value) for name, value in previous.items()}
    update = aggregated(rule, still, updates, 2)
    for name, value in aggregated(rule, previous, received, 2).items():
        torch.testing.assert_close(value, previous[name] + update[name], rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", ROBUST)
def test_the_order_of_clients_does_not_matter(rule):
    previous, received = federation(clients=7)
    other = aggregated(rule, previous, [received[place] for place in (3, 0, 6, 5, 1, 4, 2)], 2)
    for name, value in aggregated(rule, previous, received, 2).items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-13)


def test_of_equal_scores_the_first_client_counts():
    previous, received = federation(clients=5)
    table = weights("krum", a_round(previous, [received[0]] * 5, 1))
    assert table[:, 0].tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("rule", COORDINATE_RULES)
def test_layers_that_are_not_exchanged_stay(rule):
    previous, received = federation(clients=5)
    r = a_round(previous, received, 1)
    skipped = torch.tensor([name == "3.weight" for name in r.layers.names])
    into = ClientMatrix(network(), 1)
    into.load_state_dict(previous)
    combine_coordinates(rule, r, into, skipped)
    moved: dict[str, Tensor] = into.state_dict(0)
    assert [name for name, value in moved.items() if torch.equal(value, previous[name])] == ["3.weight"]


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(("rule", "clients", "most"), [("trimmed-mean", 6, 2), ("krum", 6, 1), ("multi-krum", 7, 2)])
def test_a_rule_names_the_numbers_of_faults_that_it_takes(rule, clients, most):
    problem = federation(clients=clients)
    aggregated(rule, *problem, most)
    for faulty in (0, most + 1):
        with pytest.raises(SettingError, match=rf"assumed_faulty={faulty} .*1 to {most}, .*{rule}.* {clients} clients"):
            aggregated(rule, *problem, faulty)


@pytest.mark.parametrize(("rule", "least"), [("trimmed-mean", 3), ("krum", 5), ("multi-krum", 5)])
def test_a_rule_names_the_number_of_clients_that_it_needs(rule, least):
    assert set(MORE_THAN_TWICE) == {"trimmed-mean", "krum", "multi-krum"}
    aggregated(rule, *federation(clients=least), 1)
    with pytest.raises(SettingError, match=rf"aggregation='{rule}' .*{least - 1} clients in a round: it needs {least}"):
        aggregated(rule, *federation(clients=least - 1), 1)


def test_a_rule_of_the_other_kind_or_shape_names_itself(monkeypatch):
    r = a_round(*federation(clients=5), 1)
    with pytest.raises(SettingError, match=r"aggregation='krum' .*median, trimmed-mean"):
        combine_coordinates("krum", r, r.previous)
    monkeypatch.setitem(COORDINATE_RULES, "mine", lambda values, faulty: values.mean())
    with pytest.raises(SettingError, match=r"aggregation='mine' .* a rule that makes \[\d+\] of .*, not of shape \[\]"):
        combine_coordinates("mine", r, r.previous)
    with pytest.raises(SettingError, match=r"aggregation='median' .*fedavg"):
        weights("median", r)
