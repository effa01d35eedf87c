import copy

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.federation.classifiers import combination_weights
from fssl_core.federation.client_updates import FedU
from fssl_core.objectives import SimCLR
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.fedpac import FedPacSettings, FedPacTrainer, centroid_distance
from tests.training.test_averaging import a_round, assert_same_model, tiny_data, trained
from tests.training.test_heterofl import common


def tiny(**values) -> FedPacSettings:
    return FedPacSettings(**common(**{"aggregation": "fedavg", "batch": 8} | values))


# ---------------------------------------------------------------- the paper's algorithm


class Plain:
    """Algorithm 1 with modules and dicts of classes; networks without batch norm, whose features have one mode."""

    def __init__(self, trainer: FedPacTrainer) -> None:
        self.trainer, self.s, self.data = trainer, trainer.settings, trainer.data
        model = trainer.global_model()
        self.extractor, self.average = model.encoder, model.projector
        self.personal, self.centroids = {}, {}

    def features(self, extractor, client):
        """By class, of the client's images."""
        part, labels = self.trainer.parts[client], self.data.train.labels
        with torch.no_grad():
            return {
                label: extractor(
                    self.data.normalise(self.data.train.images[part[labels[part] == label]], torch.float64)
                )
                for label in labels[part].unique().tolist()
            }

    def client(self, number, client):
        s, labels = self.s, self.data.train.labels
        f, g = copy.deepcopy(self.extractor), copy.deepcopy(self.personal.get(client, self.average))
        before = self.features(f, client)
        n = len(self.trainer.parts[client])
        variance, h = 0.0, torch.zeros(4, before[next(iter(before))].shape[1]).double()
        for label, own in before.items():
            p = len(own) / n
            h[label] = p * own.mean(0)
            variance += p * own.square().sum(1).mean().item() - h[label].square().sum().item()
        targets = {label: self.centroids.get(label, own.mean(0)) for label, own in before.items()}
        for epoch in range(1 + s.local_epochs):
            trains, rate = (g, s.classifier_rate) if epoch == 0 else (f, s.rate(number))
            if epoch < 2:
                optimizer = torch.optim.SGD(trains.requires_grad_().parameters(), rate, 0.9, weight_decay=5e-4)
            for rows, draws in self.trainer.batches(client, number * (1 + s.local_epochs) + epoch):
                view = self.data.normalise(
                    self.trainer.augment(self.data.train.images[rows], draws[:, 0]), torch.float64
                )
                features = f(view)
                loss = F.cross_entropy(g(features), labels[rows])
                if self.centroids and epoch:
                    wanted = torch.stack([targets[label] for label in labels[rows].tolist()])
                    loss = loss + s.alignment * (features - wanted).square().mean()
                gradients = torch.autograd.grad(loss, list(trains.parameters()))
                for parameter, gradient in zip(trains.parameters(), gradients, strict=True):
                    parameter.grad = gradient
                optimizer.step()
        return f, g, n, variance / n, h, self.features(f, client)

    def round(self, number):
        clients = self.s.taking_part(number).tolist()
        extractors, classifiers, sizes, variances, shares, after = zip(
            *(self.client(number, client) for client in clients), strict=True
        )
        weights = [size / sum(sizes) for size in sizes]
        self.extractor.load_state_dict(mean(extractors, weights))
        self.average.load_state_dict(mean(classifiers, weights))
        self.centroids |= {
            label: torch.cat([own[label] for own in after if label in own]).mean(0)
            for label in {label for own in after for label in own}
        }
        table = combination_weights(torch.tensor(variances), torch.stack(shares))
        for client, row in zip(clients, table.tolist(), strict=True):
            self.personal[client] = copy.deepcopy(self.average)
            self.personal[client].load_state_dict(mean(classifiers, row))


def mean(models, weights):
    states = [model.state_dict() for model in models]
    return {name: sum(w * state[name] for w, state in zip(weights, states, strict=True)) for name in states[0]}


@pytest.mark.parametrize("values", [{}, {"clients_per_round": 2, "alignment": 5.0, "local_epochs": 2}])
def test_rounds_are_those_of_the_algorithm(values):
    trainer = FedPacTrainer(tiny(norm="group", rounds=3, **values), tiny_data())
    plain = Plain(trainer)
    for number in range(3):
        plain.round(number)
        a_round(trainer)
        ours = trainer.global_model()
        for module, other in ((ours.encoder, plain.extractor), (ours.projector, plain.average)):
            for name, value in module.state_dict().items():
                torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=1e-8)
        for client, classifier in plain.personal.items():
            state = trainer.classifiers.state_dict(client)
            for name, value in classifier.state_dict().items():
                torch.testing.assert_close(state[name], value, rtol=0, atol=1e-6)
        for label, centroid in plain.centroids.items():
            torch.testing.assert_close(trainer.centroids[label], centroid, rtol=0, atol=1e-8)
    assert trainer.metrics[-1]["centroid_distance"] > 0


def test_own_accuracy_is_that_of_own_classifiers_on_own_classes():
    trainer = trained(tiny(rounds=2, clients_per_round=2))
    data, model = trainer.data, trainer.global_model().eval()
    images = data.normalise(data.test.images, torch.float64)
    accuracies = []
    for client, part in enumerate(trainer.parts):
        took_part = trainer.memory[client]["rounds"] > 0
        classifier = trainer.classifiers.row_module(client) if took_part else model.projector
        with torch.no_grad():
            right = classifier(model.encoder(images)).argmax(1) == data.test.labels
        held = data.train.labels[part].tolist()
        each = {label: right[data.test.labels == label].double().mean().item() for label in set(held)}
        accuracies.append(sum(each[label] for label in held) / len(held))
    assert trainer.metrics[-1]["client_accuracy"] == pytest.approx(sum(accuracies) / 4)


def test_the_distance_is_a_mean_over_numbers():
    one, other = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert centroid_distance(one, other).item() == 1.0


def test_measuring_moves_no_running_statistics():
    trainer = FedPacTrainer(tiny(), tiny_data())
    before = trainer.worker.state_dict(0)
    trainer.statistics(0, 0)
    for name, value in trainer.worker.state_dict(0).items():
        assert torch.equal(value, before[name])


def test_one_part_is_fixed_while_the_other_is_trained():
    trainer = FedPacTrainer(tiny(), tiny_data())
    trainer._start(0)
    for number, moves in ((0, "projector"), (1, "encoder")):
        before = {name: value.clone() for name, value in trainer.worker.parameter_blocks.items()}
        trainer.begin_pass(number)
        for batch in trainer.prepared(trainer.batches(0, number)):
            trainer.step(*batch)
        for name, value in trainer.worker.parameter_blocks.items():
            assert torch.equal(value, before[name]) is not name.startswith(moves), name


# ---------------------------------------------------------------- its limits


@pytest.mark.parametrize("values", [{}, {"clients": 1, "partition": "iid"}, {"clients_per_round": 2, "proximal": 0.1}])
def test_without_its_parts_it_is_fedavg_to_the_bit(values):
    values |= {"precision": "float32", "rounds": 3, "aggregation": "fedavg"}
    fedavg = trained(AveragingSettings(**common(**values)))
    ours = trained(tiny(**values, batch=6, alignment=0.0, classifier_epochs=0, classifiers="shared"))
    assert_same_model(fedavg, ours)
    assert [{k: v for k, v in row.items() if k != "client_accuracy"} for row in ours.metrics] == fedavg.metrics
    assert ours.ledger.table().equals(fedavg.ledger.table())


def test_a_single_client_keeps_its_own_classifier():
    trainer = trained(tiny(clients=1, partition="iid"))
    state = trainer.classifiers.state_dict(0)
    for name, value in trainer.global_model().projector.state_dict().items():
        assert torch.equal(state[name], value)


def test_what_crosses_is_counted():
    tables = {
        name: trained(tiny(rounds=2, precision="float32", **values)).ledger.table()
        for name, values in {
            "all": {},
            "no alignment": {"alignment": 0.0},
            "shared": {"classifiers": "shared"},
        }.items()
    }
    width, classes = 64, 4  # of the features of a ResNet-10 of width 8
    matrix = 4 * classes * width
    first, second = (tables["all"][tables["all"].epoch == epoch] for epoch in (1, 2))
    assert set(first.features_down) == {0}
    assert set(second.features_down) == {matrix}
    assert set(first.features_up) == {2 * matrix + 4 * classes + 4}
    assert set(tables["no alignment"].features_up) == {matrix + 4}
    assert set(tables["no alignment"].features_down) == {0}
    assert set(tables["shared"].features_up) == {matrix + 4 * classes}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": SimCLR()}, r"objective='simclr' .*Supervised\(\)"),
        ({"classifiers": "own"}, "classifiers='own' .*combined, shared"),
        ({"alignment": -1.0}, "alignment=-1.0 "),
        ({"aggregation": "l-dawa"}, "aggregation='l-dawa' .*fedavg, uniform"),
        ({"proximal": 0.1}, "proximal=0.1 .*classifier_epochs is 0"),
        ({"client_update": FedU()}, "client_update='fedu' .*replace"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        FedPacSettings(**values)
