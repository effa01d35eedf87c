import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.errors import SettingError
from fssl_core.federation.client_updates import FedEMA
from fssl_core.objectives import SimCLR
from fssl_core.objectives.moon import Moon
from fssl_core.training.moon import MoonSettings, MoonTrainer
from tests.training.test_averaging import a_round, assert_same_model, plain, tiny_data, trained
from tests.training.test_averaging import tiny as tiny_averaging


def tiny(**values) -> MoonSettings:
    """A federation that trains in milliseconds: 48 images of 8 px, one step a client and round."""
    defaults = dataclasses.asdict(tiny_averaging()) | {
        "clients": 3,
        "rounds": 3,
        "local_epochs": 1,
        "batch": 16,
        "schedule": "constant",
        "selection": "last",
        "client_update": tiny_averaging().client_update,
    }
    objective = Moon(**{"projector": (16, 8), "classes": 4} | values.pop("objective", {}))
    return MoonSettings(**defaults | {"objective": objective} | values)


# ---------------------------------------------------------------- the paper's algorithm


def plain_round(trainer: MoonTrainer, shared: nn.Module, last: dict[int, nn.Module], number: int) -> nn.Module:
    """Algorithm 1 with modules: every client in turn, then the average."""
    s, data, states, sizes = trainer.settings, trainer.data, [], []
    for client in s.taking_part(number).tolist():
        model = copy.deepcopy(shared).requires_grad_().train()
        frozen = [copy.deepcopy(other).eval() for other in (shared, last.get(client, shared))]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        for rows, draws in trainer.batches(client, number):
            view = data.normalise(trainer.augment(data.train.images[rows], draws[:, 0]), torch.float64)
            z = model.projector(model.encoder(view))
            near, far = (
                F.cosine_similarity(z, other.projector(other.encoder(view)).detach()) / s.objective.temperature
                for other in frozen
            )
            contrast = -(near.exp() / (near.exp() + far.exp())).log().mean()
            loss = F.cross_entropy(model.predictor(z), data.train.labels[rows])
            optimizer.zero_grad()
            (loss + s.objective.contrast_weight * contrast).backward()
            optimizer.step()
        last[client] = model.requires_grad_(False)
        states.append(model.state_dict())
        sizes.append(len(trainer.parts[client]))
    average = copy.deepcopy(shared)
    shares = [size / sum(sizes) for size in sizes]
    average.load_state_dict({k: sum(w * s[k] for w, s in zip(shares, states, strict=True)) for k in states[0]})
    return average


@pytest.mark.parametrize("values", [{}, {"clients": 4, "clients_per_round": 2, "norm": "group"}])
def test_three_rounds_are_those_of_the_algorithm(values):
    """Clients that have a last model and clients that have none, in one round."""
    trainer = MoonTrainer(tiny(batch=8, **values), tiny_data())
    shared, last = trainer.global_model(), {}
    for number in range(3):
        shared = plain_round(trainer, shared, last, number)
        a_round(trainer)
        state = shared.state_dict()
        for name, value in trainer.global_model().state_dict().items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    if "clients_per_round" in values:
        rounds = [trainer.memory[client]["rounds"] for client in range(4)]
        assert len(set(rounds)) > 1


def test_without_weight_it_is_fedavg_of_the_same_network_to_the_bit():
    settings = tiny(objective={"contrast_weight": 0.0}, precision="float32")
    fedavg, moon = trained(plain(settings)), trained(settings)
    assert_same_model(fedavg, moon)
    assert moon.metrics == fedavg.metrics
    assert moon.ledger.table().equals(fedavg.ledger.table())
    assert moon.client_models is None


def test_a_first_round_is_supervised_training_and_its_contrast_is_log_two():
    plain, moon = (trained(tiny(objective={"contrast_weight": mu}), rounds=1) for mu in (0.0, 5.0))
    assert_same_model(plain, moon, 1e-12)
    assert moon.metrics[0]["contrast"] == pytest.approx(math.log(2), abs=1e-12)
    a_round(moon)
    assert abs(moon.metrics[1]["contrast"] - math.log(2)) > 1e-6


def test_models_to_contrast_with_are_mixed_into_none(monkeypatch):
    monkeypatch.setattr(MoonTrainer, "_keep_client_model", lambda *_: pytest.fail("nothing is kept"))
    trained(tiny(rounds=2))
    with pytest.raises(pytest.fail.Exception):
        trained(tiny(rounds=2, client_update=FedEMA()))


def test_the_exchange_is_fedavgs():
    """Last models stay with the clients."""
    plain, moon = (trained(tiny(objective={"contrast_weight": mu}), rounds=2) for mu in (0.0, 5.0))
    assert moon.ledger.table().equals(plain.ledger.table())


def test_last_models_are_the_clients_own_and_local_training_does_not_touch_them():
    trainer = trained(tiny(clients=4, clients_per_round=2), rounds=2)
    before = [trainer.client_models.state_dict(client) for client in range(4)]
    shared = trainer.shared.state_dict(0)
    trainer.advance()
    (client, waiting), others = trainer.settings.taking_part(2).tolist(), range(4)
    assert all(torch.equal(value, shared[name]) for name, value in trainer.shared.state_dict(0).items())
    for other in others:
        same = [
            torch.equal(value, before[other][name]) for name, value in trainer.client_models.state_dict(other).items()
        ]
        assert all(same) is (other != client)
    assert waiting != client


# ---------------------------------------------------------------- with other methods, and summed up


def test_names():
    assert tiny().method == "MOON"
    assert tiny(objective={"contrast_weight": 0.0}).method == "FedAvg"
    assert tiny(proximal=0.01).method == "MOON FedProx"
    assert tiny(client_update=FedEMA()).method == "MOON FedEMA"


def test_a_summary_has_the_accuracy_of_the_classifier():
    trainer = trained(tiny(probe_epochs=0))
    model, data = trainer.global_model().eval(), trainer.data
    with torch.no_grad():
        right = model(data.normalise(data.test.images, torch.float64)).argmax(1) == data.test.labels
    summary = trainer.summary()
    assert summary["test_accuracy"] == pytest.approx(right.double().mean().item())
    assert (summary["method"], summary["best_epoch"]) == ("MOON", 3)


# ---------------------------------------------------------------- wrong settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": SimCLR()}, r"objective='simclr' .*Moon\(\)"),
        ({"clients_per_round": 11}, "clients_per_round=11"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        MoonSettings(**values)


def test_a_classifier_must_suit_the_data():
    with pytest.raises(SettingError, match=r"objective.classes=10 .*4, the number of classes of tiny"):
        MoonTrainer(tiny(objective={"classes": 10}), tiny_data())
