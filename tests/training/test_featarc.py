import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import FedU
from fssl_core.objectives import BYOL, MoCoV2, SimCLR
from fssl_core.objectives.simclr import nt_xent
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.featarc import FeatArcSettings, FeatArcTrainer, feature_distance
from tests.training.test_averaging import a_round, assert_same_model, plain, tiny_data, trained
from tests.training.test_averaging import tiny as tiny_averaging


def tiny(**values) -> FeatArcSettings:
    """A federation that trains in milliseconds: 48 images of 8 px, one step a client and round."""
    defaults = {field.name: getattr(tiny_averaging(), field.name) for field in dataclasses.fields(AveragingSettings)}
    defaults |= {
        "objective": SimCLR(projector=(8,), temperature=0.5),
        "rounds": 4,
        "local_epochs": 1,
        "batch": 12,
        "schedule": "constant",
        "selection": "last",
        "group_from": 1,
    }
    return FeatArcSettings(**defaults | values)


def groups(trainer: FeatArcTrainer) -> list[int | None]:
    return [trainer.group_of(client) for client in range(trainer.settings.clients)]


def grouped(trainer: FeatArcTrainer) -> bool:
    return groups(trainer) != [None] * trainer.settings.clients


def unit_features(model, images: torch.Tensor) -> torch.Tensor:
    return F.normalize(model.encoder(images), dim=1)


# ---------------------------------------------------------------- alignment


def test_the_distance_is_that_of_unit_vectors_image_by_image():
    one, other = (torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)).double() for seed in (0, 1))
    terms = [2 - 2 * (a @ b / a.norm() / b.norm()).item() for a, b in zip(one, other, strict=True)]
    assert feature_distance(one, other).item() == pytest.approx(sum(terms) / 6, abs=1e-12)
    assert feature_distance(one, 3 * one).item() == pytest.approx(0, abs=1e-12)
    assert feature_distance(one, -one).item() == pytest.approx(4, abs=1e-12)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_round_of_two_steps_is_the_algorithm_with_modules(norm):
    """One client, so that the global model of the next round is what the client has sent."""
    settings = tiny(clients=1, groups=1, batch=24, alignment=3.0, norm=norm, rounds=2)
    trainer = FeatArcTrainer(settings, tiny_data())
    model, data = trainer.global_model().requires_grad_().train(), trainer.data
    for number in range(2):
        reference = copy.deepcopy(model).requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        distances = []
        for rows, draws in trainer.batches(0, number):
            views = data.normalise(
                trainer.augment.two_views(data.train.images[rows][None], draws[None])[0], settings.dtype
            )
            features = [model.encoder(view) for view in views]
            ssl, _ = nt_xent(*map(model.projector, features), 0.5)
            gaps = [
                (F.normalize(own, dim=1) - unit_features(reference, view)).square().sum(1).mean()
                for own, view in zip(features, views, strict=True)
            ]
            optimizer.zero_grad()
            (ssl + 3 * sum(gaps) / 2).backward()
            optimizer.step()
            distances.append(sum(gap.item() for gap in gaps) / 2)
        trainer.advance()
        assert distances[0] == pytest.approx(0, abs=1e-12)
        assert trainer.metrics[-1]["feature_distance"] == pytest.approx(sum(distances) / 2, abs=1e-10)
        state = model.state_dict()
        for name, value in trainer.global_model().state_dict().items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


OTHERS = [BYOL(projector=(16, 8), predictor=(16, 8)), MoCoV2(projector=(16, 8), temperature=1.0)]


@pytest.mark.parametrize("objective", OTHERS, ids=lambda objective: objective.name)
def test_the_weight_holds_features_back_whatever_views_the_objective_gives_its_encoder(objective):
    values = {"objective": objective, "clients": 1, "groups": 1, "batch": 24, "local_epochs": 4, "rounds": 1}
    free, held = (
        trained(tiny(alignment=weight, learning_rate=0.003, **values)).metrics[0]["feature_distance"]
        for weight in (1e-9, 5.0)
    )
    assert 0 < held < 0.8 * free


def test_without_alignment_and_groups_it_is_fedavg_to_the_bit():
    settings = tiny(alignment=0.0, groups=1, precision="float32", rounds=2)
    fedavg, ours = trained(plain(settings)), trained(settings)
    assert_same_model(fedavg, ours)
    assert ours.metrics == [row | {"groups_used": 1} for row in fedavg.metrics]
    assert ours.ledger.table().equals(fedavg.ledger.table())


# ---------------------------------------------------------------- groups


def test_a_summary_is_the_mean_unit_feature_of_a_clients_images_by_the_global_model():
    trainer = trained(tiny(rounds=2), 1)
    model, data = trainer.global_model().eval(), trainer.data
    trainer.advance()
    with torch.no_grad():
        rows = [
            unit_features(model, data.normalise(data.train.images[i][None], torch.float64)) for i in trainer.parts[0]
        ]
    expected = (sum(rows) / len(rows))[0].float()
    torch.testing.assert_close(trainer.memory[0]["summary"], expected, rtol=0, atol=1e-6)
    assert trainer.memory[0]["summary"].norm() < 1


def test_groups_are_averaged_by_themselves_and_all_clients_to_the_global_model(monkeypatch):
    trainer = FeatArcTrainer(tiny(partition="dirichlet:0.5", batch=4, alignment=0.0), tiny_data())
    summaries = [[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [0.0, 0.9]]
    monkeypatch.setattr(trainer, "summarise", lambda client: torch.tensor(summaries[client]))
    a_round(trainer)
    assert groups(trainer)[0] == groups(trainer)[1] == groups(trainer)[3] != groups(trainer)[2]
    sizes = [len(part) for part in trainer.parts]
    assert len(set(sizes)) > 1
    states = [trainer.trained.state_dict(place) for place in range(4)]
    for members, model in (
        ((0, 1, 3), trainer.group_models.state_dict(groups(trainer)[0])),
        ((2,), trainer.group_models.state_dict(groups(trainer)[2])),
        ((0, 1, 2, 3), trainer.shared.state_dict(0)),
    ):
        total = sum(sizes[client] for client in members)
        for name, value in model.items():
            expected = sum(sizes[client] / total * states[client][name] for client in members)
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    trainer._start(2)
    assert all(torch.equal(v, states[2][name]) for name, v in trainer.worker.state_dict(0).items())
    summaries[0] = [1.0, 0.0]  # and its next model goes to the group of client 2
    a_round(trainer)
    assert groups(trainer)[0] == groups(trainer)[2] != groups(trainer)[1]
    assert [row["groups_used"] for row in trainer.metrics] == [2, 2]


def test_groups_begin_in_their_round_and_nobody_sends_a_summary_before():
    trainer = trained(tiny(group_from=3, alignment=0.0, precision="float32"))
    plain = trained(tiny(groups=1, alignment=0.0, precision="float32"))
    traffic = trainer.ledger.table().query("client == 0")
    model = sum(4 * value.numel() for value in trainer.global_model().state_dict().values())
    assert traffic.parameters_up.tolist() == [model] * 4
    assert traffic.parameters_down.tolist() == [model, model, model, 2 * model]  # its group's and the global one
    assert traffic.features_up.tolist() == [0, 0, 4 * 64, 4 * 64]
    assert [row["groups_used"] for row in trainer.metrics] == [1, 1, 2, 2]
    # Up to the round after whose end there are groups, all is as without them.
    for ours, theirs in zip(trainer.metrics[:3], plain.metrics[:3], strict=True):
        assert ours["loss"] == theirs["loss"]
    assert trainer.metrics[3]["loss"] != plain.metrics[3]["loss"]


def test_absent_clients_and_groups_of_which_nobody_takes_part(monkeypatch):
    """Six clients, two a round: no groups before three are known; one alone in its group leaves it as it is."""
    trainer = FeatArcTrainer(
        tiny(clients=6, clients_per_round=2, groups=3, batch=8, rounds=8, alignment=0.0), tiny_data()
    )
    monkeypatch.setattr(trainer, "summarise", lambda client: F.one_hot(torch.tensor(client % 3), 3).float())
    seen: set[int] = set()
    for finished in range(8):
        before = [trainer.group_models.state_dict(group) for group in range(3)] if grouped(trainer) else []
        shared = trainer.shared.state_dict(0)
        sampled = trainer.settings.taking_part(finished).tolist()
        for client in set(range(6)) - seen:
            assert trainer.group_of(client) is None
        trainer._start(sampled[0])
        mine = trainer.group_of(sampled[0])
        expected = shared if mine is None else before[mine]
        assert all(torch.equal(value, expected[name]) for name, value in trainer.worker.state_dict(0).items())
        trainer.ledger._open.zero_()
        a_round(trainer)
        seen |= set(sampled)
        if len(seen) < 3:
            assert not grouped(trainer)
        for group in range(3 if before else 0):
            same = all(torch.equal(v, before[group][k]) for k, v in trainer.group_models.state_dict(group).items())
            assert same is (group not in {trainer.group_of(client) for client in sampled})
    assert grouped(trainer)
    assert len(seen) > 3


# ---------------------------------------------------------------- names and wrong settings


def test_names():
    assert tiny().method == "FeatARC"
    assert tiny(alignment=0.0, groups=1).method == "FedAvg"
    assert tiny(groups=1, client_update=FedU()).method == "FeatARC FedU"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alignment": -1.0}, "alignment=-1.0"),
        ({"groups": 5}, "groups=5 .*from 1 to 4"),
        ({"group_from": 5}, "group_from=5 .*from 1 to 4"),
        ({"aggregation": "l-dawa"}, "aggregation='l-dawa' .*fedavg"),
        ({"client_update": FedU()}, "client_update='fedu' .*groups is 1"),
        ({"objective": BYOL(), "target_at_start": "copied"}, "target_at_start='copied' .*kept"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        tiny(**values)
