import math

import pandas as pd
import pytest
import torch

from fssl_core.costs.link import Link, mean_seconds, round_seconds
from fssl_core.errors import SettingError
from fssl_core.federation.ledger import Ledger
from tests.training.test_averaging import tiny, trained

SLOW = Link(up=8.0, down=16.0, latency=0.0)  # one and two million bytes a second


def traffic(*rounds: list[tuple[int, int]]) -> pd.DataFrame:
    """By round and client, thousands of bytes up and down."""
    ledger = Ledger(len(rounds[0]))
    for clients in rounds:
        for client, (up, down) in enumerate(clients):
            for thousands, way in ((up, "up"), (down, "down")):
                ledger.send(torch.zeros(1, 250 * thousands), "parameters", way, torch.tensor([client]))
        ledger.close_epoch()
    return ledger.table()


def test_one_client_without_latency_takes_bytes_over_bandwidth():
    table = round_seconds(traffic([(1000, 0)], [(0, 1000)], [(3000, 5000)]), SLOW)
    assert table.seconds.tolist() == pytest.approx([1.0, 0.5, 3 + 2.5], rel=1e-15)
    assert (table.epoch.tolist(), table.slowest.tolist()) == ([1, 2, 3], [0, 0, 0])


def test_the_slowest_client_of_a_round_decides():
    rounds = [(100, 50), (40, 900), (300, 0)], [(100, 0), (99, 0), (0, 0)]
    table = round_seconds(traffic(*rounds), SLOW)
    assert table.seconds.tolist() == pytest.approx([0.04 + 0.45, 0.1])
    assert table.slowest.tolist() == [1, 0]


def test_all_purposes_count():
    one, ledger = torch.tensor([0]), Ledger(1)
    for purpose in ("activations", "gradients", "features", "momentum_parameters"):
        ledger.send(torch.zeros(1, 250_000), purpose, "up", one)
    ledger.close_epoch()
    assert round_seconds(ledger.table(), SLOW).seconds.tolist() == pytest.approx([4.0])


def test_latency_is_paid_twice_for_each_round_trip_and_not_by_a_round_without_messages():
    link = SLOW.changed(latency=0.05)
    rounds = traffic([(1000, 0)], [(0, 0)])
    for round_trips, waiting in ((1, 0.1), (50, 5.0)):
        table = round_seconds(rounds, link, round_trips=round_trips)
        assert table.seconds.tolist() == pytest.approx([1 + waiting, 0.0])
        assert table.slowest.tolist() == [0, -1]


def test_a_faster_link_is_faster_in_its_own_direction_only():
    rounds = traffic([(1000, 2000)])
    seconds = [round_seconds(rounds, SLOW.changed(**v)).seconds.sum() for v in ({}, {"up": 80.0}, {"down": 160.0})]
    assert seconds == pytest.approx([2.0, 1.1, 1.1])


def test_stragglers_are_log_normal_with_median_1_and_others_in_each_round():
    link = Link(straggling=0.5)
    drawn = torch.cat([link.slow_downs(epoch, 500) for epoch in range(40)]).log()
    assert drawn.mean().item() == pytest.approx(0, abs=0.02)
    assert drawn.std().item() == pytest.approx(0.5, abs=0.01)
    assert (drawn > math.log(3.2)).double().mean().item() == pytest.approx(0.01, abs=0.003)
    assert not torch.equal(link.slow_downs(1, 5), link.slow_downs(2, 5))
    assert (Link().slow_downs(1, 5) == 1).all()


def test_with_stragglers_a_round_takes_as_long_as_the_slow_downs_of_its_seed_say():
    rounds = traffic(*[[(1000, 0)] * 5] * 30)
    links = [SLOW.changed(straggling=0.5, seed=seed) for seed in (0, 1)]
    tables = [round_seconds(rounds, link) for link in links]
    for number, seconds, slowest in tables[0].itertuples(index=False):
        slow = links[0].slow_downs(number, 5)
        assert (seconds, slowest) == (pytest.approx(slow.max().item()), int(slow.argmax()))
    assert round_seconds(rounds, links[0]).equals(tables[0])
    assert not tables[1].equals(tables[0])
    alone = round_seconds(traffic(*[[(1000, 0)]] * 30), links[0])
    assert tables[0].seconds.mean() > 1.2 * alone.seconds.mean()  # more clients, slower slowest ones


def test_the_mean_over_draws_is_that_of_so_many_seeds():
    rounds, link = traffic([(10, 20), (30, 5)], [(7, 7), (0, 0)], [(0, 0), (0, 0)]), Link(straggling=0.5, seed=7)
    one_by_one = [round_seconds(rounds, link.changed(seed=7 + draw), round_trips=3).seconds.sum() for draw in range(5)]
    assert mean_seconds(rounds, link, round_trips=3, draws=5) == pytest.approx(sum(one_by_one) / 5, rel=1e-12)
    steady = Link(latency=0.2)
    assert mean_seconds(rounds, steady) == pytest.approx(round_seconds(rounds, steady).seconds.sum(), rel=1e-12)
    assert mean_seconds(Ledger(2).table(), link) == 0
    with pytest.raises(SettingError, match="draws=0"):
        mean_seconds(rounds, link, draws=0)


def test_the_mean_slowest_of_ten_is_the_expectation_of_a_maximum():
    density = torch.distributions.Normal(0.0, 1.0)
    z = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    weight = 10 * density.cdf(z) ** 9 * density.log_prob(z).exp()
    expected = torch.trapezoid(weight * torch.exp(0.5 * z), z).item()
    assert expected == pytest.approx(2.26, abs=0.01)
    delivery = traffic([(1000, 0)] * 10)  # one second each
    assert mean_seconds(delivery, SLOW.changed(straggling=0.5), draws=4000) == pytest.approx(expected, rel=0.02)


def test_the_order_of_rows_does_not_matter():
    rounds, link = traffic([(10, 20), (30, 5)], [(7, 7), (1, 2)]), Link(straggling=1.0)
    assert round_seconds(rounds[::-1], link).equals(round_seconds(rounds, link))


def test_a_run_of_federated_averaging_takes_its_models_up_and_down():
    trainer = trained(tiny())
    size = 8 * trainer.shared.elements  # float64
    table = round_seconds(trainer.tables()["traffic"], Link(up=1.0, down=2.0))
    assert table.seconds.tolist() == pytest.approx([0.1 + 8e-6 * size * 1.5] * 2)


def test_what_cannot_be_used_names_itself():
    rounds = traffic([(1, 1), (1, 1)])
    for values in ({"up": 0.0}, {"down": -1.0}, {"latency": -0.1}, {"straggling": float("nan")}):
        (name,) = values
        with pytest.raises(SettingError, match=f"{name}="):
            Link(**values)
    with pytest.raises(SettingError, match="round_trips=0"):
        round_seconds(rounds, Link(), round_trips=0)
    with pytest.raises(SettingError, match=r"traffic=.*table 'traffic', which has gradients_up, too"):
        round_seconds(rounds.drop(columns="gradients_up"), Link())
    with pytest.raises(SettingError, match=r"traffic=\[1\] .*a row for each client, .* in epoch 1"):
        round_seconds(rounds.query("client == 1"), Link())
    assert round_seconds(Ledger(2).table(), Link()).empty
