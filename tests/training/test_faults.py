"""Faulty clients, clients that drop out and robust rules in the engines."""

import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import COORDINATE_RULES
from fssl_core.federation.client_updates import FedEMA
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.faults import FAULTS, falsify, faulty_clients
from fssl_core.federation.participation import sample_clients, without_dropouts
from fssl_core.models.layers import BatchNorm2d, Conv2d
from fssl_core.objectives import SimSiam
from fssl_core.random import generator
from fssl_core.training import averaging
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.secure_averaging import SecureAutoencoderSettings
from fssl_core.training.split_mix import SplitMixSettings
from tests.training import test_heterofl, test_layerwise
from tests.training.test_averaging import a_round, assert_same_model, tiny, tiny_data, trained
from tests.training.test_averaging_methods import same, states

NEW = {"client_dropout", "assumed_faulty", "faulty_share", "fault", "fault_scale"}


def quick(**values) -> AveragingSettings:
    """One step a client and round; of five clients the faulty one, at a share of 0.2, is always the same."""
    defaults = {
        "objective": SimSiam(projector=(16, 8), predictor=(4, 8)),
        "clients": 5,
        "rounds": 3,
        "local_epochs": 1,
        "batch": 9,
        "probe_epochs": 0,
    }
    return tiny(**defaults | values)


def faulty(fault: str = "sign-flip", **values) -> AveragingSettings:
    return quick(**{"faulty_share": 0.2, "fault": fault} | values)


def honest_and_faulty(settings: AveragingSettings) -> tuple[AveragingTrainer, AveragingTrainer, int]:
    """One round without and with faults from the same start, and the faulty client of five."""
    (one,) = settings.faulty
    names = {"faulty_share": 0.0, "fault": "none", "fault_scale": 1.0}
    return trained(settings.changed(**names), rounds=1), trained(settings, rounds=1), one


# ---------------------------------------------------------------- who, and what


def test_the_faulty_clients_are_a_share_that_grows_and_depends_on_the_seed():
    drawn = [faulty_clients(20, share, seed=3) for share in (0.0, 0.1, 0.25, 1.0)]
    assert [len(clients) for clients in drawn] == [0, 2, 5, 20]
    assert drawn[0] < drawn[1] < drawn[2] < drawn[3] == set(range(20))
    assert len({faulty_clients(20, 0.25, seed) for seed in range(10)}) > 5


def matrices() -> tuple[ClientMatrix, ClientMatrix, ClientMatrix]:
    """A global model, what a client made of it, whose filters alone moved by more than statistics, and room."""
    model = torch.nn.Sequential(Conv2d(3, 40, 3), BatchNorm2d(40)).double()
    received, own, into = (ClientMatrix(model, 1) for _ in range(3))
    own.blocks["0.weight"] += torch.randn(own.blocks["0.weight"].shape, generator=generator(0, "update"))
    own.blocks["1.running_var"] += 5
    return received, own, into


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_replaces_the_direction_of_an_update_and_has_its_length(fault, scale):
    received, own, into = matrices()
    falsify(own, received, fault, scale, generator(0, "fault"), into=into)
    update, sent = ((matrix.weights - received.weights).detach() for matrix in (own, into))
    assert sent.norm().item() == pytest.approx(scale * update.norm().item(), rel=0.05 if fault == "noise" else 1e-12)
    assert torch.equal(into.blocks["1.weight"], received.blocks["1.weight"])  # what did not move does not
    assert torch.equal(into.blocks["1.running_var"], own.blocks["1.running_var"])  # as it was trained
    filters = (into.blocks["0.weight"] - received.blocks["0.weight"]).flatten()
    if fault == "sign-flip":
        torch.testing.assert_close(sent, -scale * update, rtol=0, atol=1e-12)
    if fault == "constant":
        torch.testing.assert_close(filters, filters[0].expand_as(filters), rtol=0, atol=1e-12)
        assert (filters[0] > 0) == (scale > 0)
    if fault == "noise" and scale:
        assert abs((filters / filters.norm()) @ (update / update.norm())[: len(filters)]) < 0.15


def test_noise_is_that_of_its_seed_and_other_for_each_client_and_round():
    received, own, into = matrices()
    drawn = []
    for number, client in ((0, 0), (0, 1), (1, 0), (0, 0)):
        falsify(own, received, "noise", 1.0, generator(0, "fault", number, client), into=into)
        drawn.append(into.row(0))
    assert torch.equal(drawn[0], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


# ---------------------------------------------------------------- in the engine


@pytest.mark.parametrize("fault", FAULTS)
def test_only_the_faulty_clients_model_is_another_and_as_many_bytes_cross(fault):
    honest, attacked, one = honest_and_faulty(faulty(fault))
    start = AveragingTrainer(quick(), tiny_data()).shared.state_dict(0)
    for client, (own, sent) in enumerate(zip(states(honest), states(attacked), strict=True)):
        assert same(own, sent) == (client != one)
        if client == one and fault == "sign-flip":
            for name in honest.shared.parameter_blocks:
                torch.testing.assert_close(sent[name], 2 * start[name] - own[name], rtol=0, atol=1e-12)
    assert honest.ledger.table().equals(attacked.ledger.table())
    assert honest.metrics[0]["loss"] == attacked.metrics[0]["loss"]
    assert not same(honest.shared.state_dict(0), attacked.shared.state_dict(0))


def test_each_faulty_client_sends_noise_of_its_own_in_each_round():
    trainer, noise = AveragingTrainer(faulty("noise", faulty_share=0.4), tiny_data()), []
    name = max(trainer.shared.parameter_blocks, key=lambda name: trainer.shared.parameter_blocks[name].numel())
    for _ in range(2):
        start = trainer.shared.blocks[name].clone()
        a_round(trainer)
        noise += [(trainer.trained.blocks[name][[client]] - start).flatten() for client in sorted(trainer.faulty)]
    assert (torch.corrcoef(torch.stack(noise)) - torch.eye(4)).abs().max() < 0.05


@pytest.mark.parametrize(
    ("kind", "values"),
    [(HeteroFLSettings, {"shares": (1.0, 0.5)}), (SplitMixSettings, {"shares": (1.0,), "bases": 2})],
)
def test_clients_with_a_part_of_the_model_falsify_that_part(kind, values):
    """All clients are faulty: with one rule and the same weights everything that was trained moves the other way."""
    fields = test_heterofl.common(aggregation="uniform", norm="group", rounds=1) | values
    attack = {"faulty_share": 1.0, "fault": "sign-flip", "fault_scale": 2.0}
    start = kind(**fields).trainer(tiny_data(), None).shared.state_dict(0)
    honest = test_heterofl.trained(kind(**fields))
    flipped = test_heterofl.trained(kind(**fields | attack))
    moved = 0
    for name, value in flipped.shared.state_dict(0).items():
        update = honest.shared.state_dict(0)[name] - start[name]
        torch.testing.assert_close(value - start[name], -2 * update, rtol=0, atol=1e-12)
        moved += int(update.ne(0).any())
    assert moved > 5
    assert honest.ledger.table().equals(flipped.ledger.table())


def test_what_crosses_is_the_falsified_model(monkeypatch):
    trainer, sent = AveragingTrainer(faulty("constant"), tiny_data()), {}
    send = trainer.ledger.send

    def recording(tensor, purpose, direction, clients):
        if direction == "up":
            sent.setdefault(int(clients), []).append(tensor[0].clone())
        return send(tensor, purpose, direction, clients)

    monkeypatch.setattr(trainer.ledger, "send", recording)
    a_round(trainer)
    for client, tensors in sent.items():
        assert same(dict(enumerate(tensors)), dict(enumerate(trainer.trained.state_dict(client).values())))


def test_a_faulty_client_keeps_what_it_has_learned():
    honest, attacked, one = honest_and_faulty(faulty(client_update=FedEMA(), keep_velocity=True, fault_scale=5.0))
    for mine, others in ((attacked.client_models, honest.client_models), (attacked.velocities, honest.velocities)):
        assert all(same(mine.state_dict(client), others.state_dict(client)) for client in range(5))
    assert attacked.memory[one] == honest.memory[one]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_round_that_is_a_running_sum_has_the_same_faults(fault, monkeypatch):
    whole = trained(faulty(fault, rounds=1))
    monkeypatch.setattr(averaging, "ALL_MODELS", 2)
    summed = AveragingTrainer(faulty(fault, rounds=1), tiny_data())
    assert summed.sums(5)
    a_round(summed)
    assert_same_model(whole, summed, tolerance=1e-9)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum", "multi-krum"])
def test_a_robust_rule_stays_near_the_honest_clients_where_fedavg_does_not(rule):
    """A flip of a hundred times the length, from one of five clients."""
    f = {} if rule == "median" else {"assumed_faulty": 1}
    attack = faulty("sign-flip", fault_scale=100.0, rounds=1)
    fedavg, robust = trained(attack), trained(attack.changed(aggregation=rule, **f))
    (one,) = attack.faulty
    others = [place for place in range(5) if place != one]

    def outside(trainer: AveragingTrainer) -> float:
        """How far the global model's parameters are from the range of honest ones, at most."""
        gaps = []
        for name, block in trainer.trained.parameter_blocks.items():
            low, high = block[others].amin(0), block[others].amax(0)
            new = trainer.shared.blocks[name][0]
            gaps.append(torch.maximum(low - new, new - high).max().item())
        return max(gaps)

    assert outside(robust) <= 1e-12
    assert outside(fedavg) > 0.1
    assert robust.settings.method == rule


@pytest.mark.parametrize("rule", ["median", "krum"])
def test_a_robust_rule_needs_all_models_of_a_large_round(rule, monkeypatch):
    settings = quick(aggregation=rule, assumed_faulty=int(rule == "krum"), rounds=1)
    whole = trained(settings)
    monkeypatch.setattr(averaging, "ALL_MODELS", 2)
    assert_same_model(whole, trained(settings))


def test_layers_that_are_withheld_are_neither_sent_nor_aggregated_by_a_median():
    """EUC's second round withholds layers of the third."""
    trainer = trained(quick(client_update=averaging.EUC(), aggregation="median"), rounds=2)
    before = trainer.shared.state_dict(0)
    kept = trainer.settings.client_update.skipped(2, trainer.moved)
    a_round(trainer)
    after = trainer.shared.state_dict(0)
    assert kept.any()
    for layer, name in enumerate(trainer.layers.names):
        if kept[layer]:
            assert torch.equal(before[name], after[name])


def test_layer_wise_training_has_faults_and_robust_rules_too():
    values = {"clients": 5, "faulty_share": 0.2, "fault": "noise", "rounds": 4, "representation_alignment": 0.5}
    attacked, robust, honest = (
        test_layerwise.trained(test_layerwise.tiny(**{"batch": 9} | more))
        for more in (values, values | {"aggregation": "krum", "assumed_faulty": 1}, {"clients": 5, "rounds": 4})
    )
    assert honest.ledger.table().equals(attacked.ledger.table())
    models = [trainer.global_model().state_dict() for trainer in (attacked, robust, honest)]
    assert not same(models[0], models[1])
    assert not same(models[0], models[2])


# ---------------------------------------------------------------- clients that drop out


def test_a_client_that_drops_out_neither_receives_nor_sends():
    settings = quick(client_dropout=0.5, rounds=6)
    trainer = AveragingTrainer(settings, tiny_data())
    while trainer.finished < 6:
        trainer.advance()
    table = trainer.ledger.table()
    for number in range(6):
        here = settings.taking_part(number).tolist()
        for column in ("parameters_up", "parameters_down"):
            rows = table[(table.epoch == number + 1) & (table[column] > 0)]
            assert rows.client.tolist() == here
    assert settings.fewest == min(len(settings.taking_part(number)) for number in range(6)) < 5


def test_dropping_out_is_as_likely_as_it_says_and_leaves_one():
    everybody = sample_clients(50, 50, seed=1, epoch=0)
    counts = [len(without_dropouts(everybody, 0.3, 1, epoch)) for epoch in range(100)]
    assert sum(counts) / 5000 == pytest.approx(0.7, abs=0.02)
    assert torch.equal(without_dropouts(everybody, 0.0, 1, 0), everybody)
    assert all(len(without_dropouts(torch.tensor([4, 7]), 0.99, 1, epoch)) == 1 for epoch in range(50))


def test_who_drops_out_is_drawn_anew_in_each_epoch_and_with_each_seed():
    everybody = torch.arange(50)
    drawn = [without_dropouts(everybody, 0.3, seed, epoch) for seed in range(3) for epoch in range(10)]
    assert len({tuple(staying.tolist()) for staying in drawn}) == 30
    last = {int(without_dropouts(torch.tensor([4, 7]), 0.99, 1, epoch)) for epoch in range(50)}
    assert last == {4, 7}  # where all would drop out, anybody may stay


# ---------------------------------------------------------------- settings


def test_a_run_without_faults_keeps_its_key():
    assert not NEW & quick().identity().keys()
    assert NEW & test_layerwise.tiny().identity().keys() == {"client_dropout"}  # which it had before
    assert {"faulty_share", "fault"} <= faulty().identity().keys()
    keys = {settings.key for settings in (quick(), quick(client_dropout=0.1), faulty(), faulty(fault_scale=2.0))}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aggregation": "mode"}, "aggregation='mode' .*fedavg.*krum.*median"),
        ({"aggregation": "krum"}, "assumed_faulty=0 .*1 to 1, which krum can take of 5 clients"),
        ({"aggregation": "multi-krum", "assumed_faulty": 2}, "assumed_faulty=2 .*1 to 1"),
        ({"aggregation": "trimmed-mean", "assumed_faulty": 3}, "assumed_faulty=3 .*1 to 2"),
        ({"aggregation": "krum", "assumed_faulty": 1, "clients_per_round": 4}, "aggregation='krum' .*4 clients"),
        ({"aggregation": "krum", "assumed_faulty": 1, "client_dropout": 0.5}, "aggregation='krum' .*it needs 5"),
        ({"aggregation": "median", "assumed_faulty": 1}, "assumed_faulty=1 .*0 with median"),
        ({"assumed_faulty": 1}, "assumed_faulty=1 .*0 with fedavg"),
        ({"assumed_faulty": -1}, "assumed_faulty=-1"),
        ({"faulty_share": 0.09, "fault": "noise"}, "faulty_share=0.09 .*one of 5 clients: above 0.1"),
        ({"faulty_share": 1.2, "fault": "noise"}, "faulty_share=1.2"),
        ({"faulty_share": 0.2}, "fault='none' .*noise, sign-flip, constant with a faulty_share"),
        ({"fault": "noise"}, "fault='noise' .*none without"),
        ({"faulty_share": 0.2, "fault": "lie"}, "fault='lie' .*noise"),
        ({"fault_scale": 2.0}, "fault_scale=2.0 .*1.0"),
        ({"faulty_share": 0.2, "fault": "noise", "fault_scale": 1e9}, "fault_scale=1000000000.0 .*0 to 1000"),
        ({"client_dropout": 1.0}, "client_dropout=1.0"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        quick(**values)


def test_secure_aggregation_sees_no_single_model_and_wants_everybody():
    with pytest.raises(SettingError, match=r"client_dropout=0\.5 "):
        SecureAutoencoderSettings(client_dropout=0.5)
    for rule in COORDINATE_RULES:
        with pytest.raises(SettingError, match=f"aggregation='{rule}' "):
            SecureAutoencoderSettings(aggregation=rule, assumed_faulty=int(rule == "trimmed-mean"))
