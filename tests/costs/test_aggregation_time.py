import pytest
import torch

from fssl_core.costs.aggregation_time import (
    IMPLEMENTATIONS,
    PLAIN_RULES,
    aggregation_times,
    made_up_round,
    plain_aggregate,
)
from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import combine, weights
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone


@pytest.fixture(scope="module")
def made():
    model = build_backbone("resnet10", width=4, norm="batch", image_size=16).double()
    return made_up_round(model, clients=3)


@pytest.mark.parametrize("rule", PLAIN_RULES)
def test_both_ways_to_write_a_rule_give_the_same_model(rule, made):
    into = ClientMatrix(made.previous.row_module(0), 1)
    combine(weights(rule, made), made, into)
    states = [made.received.state_dict(client) for client in range(3)]
    plain = plain_aggregate(rule, made.previous.state_dict(0), states, made.images)
    assert plain.keys() == into.blocks.keys()
    for name, block in into.blocks.items():
        torch.testing.assert_close(plain[name], block[0], rtol=0, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def test_made_up_clients_differ_from_the_global_model_and_from_each_other(made):
    assert ((made.model_cosines > 0.98) & (made.model_cosines < 1)).all()  # 1 / sqrt(1 + 0.1^2) = 0.995
    assert len(set(made.model_cosines.flatten().tolist())) == 3
    again = made_up_round(made.previous.row_module(0), clients=3)
    torch.testing.assert_close(again.received.weights, made.received.weights, rtol=0, atol=0)


def test_times_are_seconds_of_the_work_alone(made):
    before = made.received.weights.clone(), made.previous.weights.clone()
    table = aggregation_times(["fedavg", "m-dawa"], made, repeats=2)
    assert list(table) == ["rule", *IMPLEMENTATIONS]
    assert table["rule"].to_list() == ["fedavg", "m-dawa"]
    assert ((table[[*IMPLEMENTATIONS]] > 1e-6) & (table[[*IMPLEMENTATIONS]] < 5)).all(axis=None)
    for kept, now in zip(before, (made.received.weights, made.previous.weights), strict=True):
        torch.testing.assert_close(now, kept, rtol=0, atol=0)


def test_what_cannot_be_timed_is_refused(made):
    with pytest.raises(SettingError, match="rule='loss' cannot be used: expected one of fedavg, m-dawa, l-dawa"):
        aggregation_times(["loss"], made)
    with pytest.raises(SettingError, match="repeats=0"):
        aggregation_times(["fedavg"], made, repeats=0)
    with pytest.raises(SettingError, match="rule='loss'"):
        plain_aggregate("loss", {}, [], made.images)
