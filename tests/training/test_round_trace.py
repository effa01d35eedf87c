import sys

import pytest

from fssl_core.objectives import SimCLR
from fssl_core.training.averaging import METHODS, AveragingTrainer
from fssl_core.training.round_trace import models_kept, trace_round
from tests.training.test_averaging import assert_same_model, tiny, trained
from tests.training.test_split import tiny_data

CLIENTS, STEPS = 4, 4  # 48 images: two batches of 6 for each client, twice


def federation(method="L-DAWA", **values):
    return tiny(objective=SimCLR(projector=(8,)), **METHODS[method] | values)


def test_a_round_has_the_four_steps_of_figure_1_in_order_and_leaves_one_model():
    trainer = AveragingTrainer(federation(), tiny_data())
    steps = trace_round(trainer).set_index("step")
    assert steps["order"].to_dict() == {"local SSL": 1, "upload": 2, "divergence": 3, "averaging": 4}
    assert steps["calls"].to_list() == [CLIENTS * STEPS, CLIENTS, 1, 1]
    assert steps["first_call"].to_list() == [1, 1 + STEPS, 1 + CLIENTS * (STEPS + 1), 2 + CLIENTS * (STEPS + 1)]
    assert steps.loc["upload", "last_call"] == CLIENTS * (STEPS + 1)  # the server waits for all
    assert steps["models_kept"].unique() == [1]
    assert trainer.finished == 1


def test_a_round_that_clients_miss_has_as_many_fewer():
    settings = federation(client_dropout=0.5)
    trainer = AveragingTrainer(settings, tiny_data())
    while len(settings.taking_part(trainer.finished)) == CLIENTS:
        trace_round(trainer)
    few, finished = len(settings.taking_part(trainer.finished)), trainer.finished
    steps = trace_round(trainer).set_index("step")
    assert steps["calls"].to_list() == [few * STEPS, few, 1, 1]
    assert trainer.finished == finished + 1
    assert not trainer.rows


def test_watching_changes_nothing():
    before = sys.getprofile()
    watched = AveragingTrainer(federation(), tiny_data())
    for _ in range(2):
        trace_round(watched)
    assert sys.getprofile() is before
    assert_same_model(watched, trained(federation()))


@pytest.mark.parametrize(("method", "after"), [("L-DAWA", 1), ("FedU", 1 + CLIENTS)])
def test_models_are_counted_where_clients_keep_theirs_and_within_a_round(method, after):
    trainer = AveragingTrainer(federation(method), tiny_data())
    trainer.advance()
    assert models_kept(trainer) == after + CLIENTS  # there is a row for everyone who is expected
    assert trace_round(trained(federation(method), rounds=1))["models_kept"].unique() == [after]
