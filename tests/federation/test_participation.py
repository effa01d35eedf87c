import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.federation.participation import auto_adjust, sample_clients
from fssl_core.papers.reference import paper_settings


def test_everyone_takes_part_when_the_count_is_everyone():
    assert sample_clients(5, 5, seed=0, epoch=3).tolist() == [0, 1, 2, 3, 4]


def test_samples_differ_by_epoch_and_repeat_by_seed():
    draws = [tuple(sample_clients(20, 5, seed=1, epoch=epoch).tolist()) for epoch in range(30)]
    assert all(len(set(draw)) == 5 and list(draw) == sorted(draw) for draw in draws)
    assert len(set(draws)) > 20
    assert draws[7] == tuple(sample_clients(20, 5, seed=1, epoch=7).tolist())
    assert set(sum(draws, ())) == set(range(20))


@pytest.mark.parametrize("count", [0, 6])
def test_a_count_out_of_range_is_an_error(count):
    with pytest.raises(SettingError, match=f"clients_per_epoch={count} .*1 to 5"):
        sample_clients(5, count, seed=0, epoch=0)


def test_auto_adjust_gives_what_the_reference_lists():
    for row in paper_settings("mocosfl")["official_code"]["auto_adjust_result"]:
        rule = auto_adjust(row["clients"])
        assert rule.client_batch == row["batch"]
        assert rule.syncs_per_epoch == row["sync_per_epoch"]
        assert rule.clients_per_epoch == round(row["clients"] * row["ratio"])


@pytest.mark.parametrize("clients", [5, 20, 100, 200, 1000])
def test_auto_adjust_keeps_fifty_steps_between_syncs(clients):
    assert auto_adjust(clients).steps_between_syncs(50_000, clients) == 50


@pytest.mark.parametrize("clients", [0, 1001])
def test_auto_adjust_refuses_other_numbers(clients):
    with pytest.raises(SettingError, match=f"clients={clients}"):
        auto_adjust(clients)


def test_global_random_state_is_not_touched():
    before = torch.random.get_rng_state()
    sample_clients(10, 3, seed=0, epoch=0)
    assert torch.equal(before, torch.random.get_rng_state())
