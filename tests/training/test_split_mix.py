import copy
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.split_mix import SplitMixSettings, SplitMixTrainer
from tests.training.test_averaging import a_round, tiny_data, trained
from tests.training.test_heterofl import common


def tiny(**values) -> SplitMixSettings:
    """Four clients, of which two can afford one of two base networks."""
    return SplitMixSettings(**common(**{"shares": (0.5, 1.0), "bases": 2, "aggregation": "fedavg"} | values))


@pytest.mark.parametrize("values", [{}, {"clients_per_round": 2, "shares": (0.25, 0.5), "bases": 4, "width": 16}])
def test_rounds_are_those_of_the_algorithm(values):
    """Each base with modules of its own, then the average over those that trained it."""
    trainer = SplitMixTrainer(tiny(**values), tiny_data())
    s, data, whole = trainer.settings, trainer.data, trainer.global_model()
    bases = [(copy.deepcopy(whole.encoder[b]), copy.deepcopy(whole.projector[b])) for b in range(s.bases)]
    untouched = 0
    for number in range(3):
        sent = [[] for _ in bases]
        for client in s.taking_part(number).tolist():
            for base in s.bases_of(client, number):
                model = torch.nn.Sequential(*copy.deepcopy(bases[base])).requires_grad_().train()
                optimizer = torch.optim.SGD(model.parameters(), lr=s.rate(number), momentum=0.9, weight_decay=5e-4)
                for rows, draws in trainer.batches(client, number):
                    view = data.normalise(trainer.augment(data.train.images[rows], draws[:, 0]), torch.float64)
                    optimizer.zero_grad()
                    F.cross_entropy(model(view), data.train.labels[rows]).backward()
                    optimizer.step()
                sent[base].append((len(trainer.parts[client]), model.state_dict()))
        for base, received in enumerate(sent):
            untouched += not received
            images = sum(size for size, _ in received)
            if received:
                mean = {k: sum(size / images * state[k] for size, state in received) for k in received[0][1]}
                torch.nn.Sequential(*bases[base]).load_state_dict(mean)
        a_round(trainer)
        ours = trainer.global_model()
        for base, (encoder, classifier) in enumerate(bases):
            for module, other in ((ours.encoder[base], encoder), (ours.projector[base], classifier)):
                for name, value in module.state_dict().items():
                    torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=1e-9)
    assert (untouched > 0) == bool(values)


def test_an_ensemble_has_the_mean_logits_of_its_bases_and_their_features_beside_each_other():
    trainer = trained(tiny(rounds=1))
    model, data = trainer.global_model().eval(), trainer.data
    images = data.normalise(data.test.images, torch.float64)
    with torch.no_grad():
        features = [encoder(images) for encoder in model.encoder]
        logits = [classifier(own) for classifier, own in zip(model.projector, features, strict=True)]
        torch.testing.assert_close(model(images), sum(logits) / 2)
        torch.testing.assert_close(model.encoder(images), torch.cat(features, 1))
    right = (sum(logits).argmax(1) == data.test.labels).double().mean().item()
    assert trainer.summary()["test_accuracy"] == pytest.approx(right)
    assert not torch.equal(*(encoder[0].stem[0].weight for encoder in model.encoder))


def test_clients_get_what_they_can_afford_and_every_base_is_trained_equally_often():
    settings = tiny(clients=12, clients_per_round=6, shares=(0.25, 0.5, 1.0), bases=4, width=16)
    first = Counter()
    for number in range(8):
        for client in settings.taking_part(number).tolist():
            own = settings.bases_of(client, number)
            assert len(set(own)) == len(own) == (1, 2, 4)[client // 4]
            if len(own) == 1:
                first[own[0]] += 1
    assert set(first) == {0, 1, 2, 3}
    single = tiny(clients=4, shares=(0.25,), bases=4, width=16)
    for number in range(4):
        assert sorted(base for client in range(4) for base in single.bases_of(client, number)) == [0, 1, 2, 3]


def test_bases_are_drawn_anew_in_every_round():
    """The queue is shuffled again when all have been trained, and so is what else a client draws."""
    one = tiny(clients=4, shares=(0.25,), bases=4, width=16)
    assert len({tuple(one.bases_of(client, number)[0] for client in range(4)) for number in range(8)}) > 2
    two = tiny(clients=1, partition="iid", shares=(0.5,), bases=4, width=16)
    assert len({tuple(two.bases_of(0, number)) for number in range(40)}) == 6  # all pairs of four


def test_a_client_sends_its_bases():
    table = trained(tiny(rounds=1, precision="float32")).ledger.table()
    assert (table.parameters_up == table.parameters_down).all()
    small, _, _, large = table.parameters_up
    assert large == 2 * small


@pytest.mark.parametrize("values", [{}, {"clients": 1, "partition": "iid"}])
def test_with_one_base_it_is_fedavg_to_rounding(values):
    """Bases are summed in another way than whole models, so on some processors their last bits differ."""
    values |= {"rounds": 3, "aggregation": "fedavg"}
    fedavg = trained(AveragingSettings(**common(**values)))
    ours = trained(tiny(**values | {"shares": (1.0,), "bases": 1}))
    for one, other in zip(fedavg.global_model().parameters(), ours.global_model().parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert [*map(pytest.approx, ours.metrics)] == fedavg.metrics
    assert ours.ledger.table().equals(fedavg.ledger.table())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bases": 3}, "bases=3 .*divides width=64"),
        ({"bases": 32}, "bases=32 .*multiples of 4 channels"),
        ({"bases": 4}, r"shares=\(0.125, .*multiples of 1/4"),
        ({"bases": 0}, "bases=0 "),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        SplitMixSettings(**values)
