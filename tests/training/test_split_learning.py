import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.training.split_learning import SplitLearningSettings, SplitLearningTrainer
from tests.training.test_averaging import trained
from tests.training.test_split import tiny_data


def tiny(**values) -> SplitLearningSettings:
    """A federation that trains in milliseconds: 48 images of 8 px."""
    defaults = {
        "seed": 0,
        "dataset": "tiny",
        "partition": "iid",
        "clients": 3,
        "augmentation": "digits",
        "architecture": "resnet10",
        "width": 8,
        "cut_layer": 3,
        "rounds": 2,
        "local_epochs": 1,
        "batch": 8,
        "learning_rate": 0.05,
        "weight_decay": 5e-4,
        "validation_share": 1.0,
        "knn_k": 5,
        "probe_epochs": 0,
        "precision": "float64",
    }
    return SplitLearningSettings(**defaults | values)


def assert_same_state(one: nn.Module, other: nn.Module, tolerance: float = 0.0) -> None:
    state = other.state_dict()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def seen(trainer: SplitLearningTrainer, rows: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a client sees of a batch, and the labels."""
    train = trainer.data.train
    return trainer.data.normalise(trainer.augment(train.images[rows], draws[:, 0]), torch.float64), train.labels[rows]


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


# ---------------------------------------------------------------- the split changes nothing


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_one_client_with_the_servers_gradients_is_ordinary_training(norm):
    trainer = SplitLearningTrainer(tiny(clients=1, gradients="server", norm=norm, local_epochs=2), tiny_data())
    model = trainer.global_model().requires_grad_().train()
    optimizer, losses = sgd(model), []
    for number in range(2):
        for rows, draws in trainer.batches(0, number):
            view, labels = seen(trainer, rows, draws)
            loss = F.cross_entropy(model(view), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    trainer.advance()
    assert len(losses) == 12
    assert trainer.metrics[0]["loss"] == pytest.approx(sum(losses) / 12, abs=1e-10)
    assert_same_state(trainer.global_model(), model, 1e-10)


def test_one_step_of_equal_clients_is_a_step_on_their_union():
    """Without momentum and batch norm; each client's gradient is that of its own mean, and so is their average."""
    values = {"gradients": "server", "norm": "group", "momentum": 0.0, "batch": 100, "rounds": 1}
    trainer = SplitLearningTrainer(tiny(**values), tiny_data())
    model = trainer.global_model().requires_grad_()
    batches = [seen(trainer, *trainer.batches(client, 0)[0]) for client in range(3)]
    views, labels = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    F.cross_entropy(model(views), labels).backward()
    torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=5e-4).step()
    trainer.advance()
    assert_same_state(trainer.global_model(), model, 1e-12)


# ---------------------------------------------------------------- the algorithm with modules


class Plain:
    """Rounds as the papers write them: a module and an optimiser for every client, another pair for the server."""

    def __init__(self, trainer: SplitLearningTrainer) -> None:
        self.trainer, self.s = trainer, trainer.settings
        self.shared = copy.deepcopy(trainer.shared.row_module(0)).requires_grad_()
        self.server = copy.deepcopy(trainer.server_model).requires_grad_().train()
        self.optimizer = sgd(self.server)

    def train_server(self, activations, labels) -> list[torch.Tensor]:
        received = [a.detach().requires_grad_() for a in activations]
        losses = [F.cross_entropy(logits, y) for logits, y in zip(self.logits(received), labels, strict=True)]
        self.optimizer.zero_grad()
        # The mean over clients, each of as many images as it has: of unlike batches, the larger count for more.
        sizes = [len(y) for y in labels]
        total = sum(loss * size / sum(sizes) for loss, size in zip(losses, sizes, strict=True))
        total.backward()
        self.optimizer.step()
        return [a.grad * sum(sizes) / size for a, size in zip(received, sizes, strict=True)]

    def logits(self, received):
        return self.server(torch.cat(received)).split([len(a) for a in received])

    def round(self, number: int, turns=None) -> None:
        s, trainer = self.s, self.trainer
        clients = range(s.clients)
        models = [copy.deepcopy(self.shared) for _ in clients]
        optimizers = [sgd(model) for model in models]
        batches = [trainer.batches(client, number) for client in clients]
        for step in range(max(map(len, batches))):
            here = [client for client in clients if step < len(batches[client])]
            data = [seen(trainer, *batches[client][step]) for client in here]
            activations = [models[client].layers(view) for client, (view, _) in zip(here, data, strict=True)]
            labels = [y for _, y in data]
            if s.variant == "SFL-V1":
                gradients = self.train_server(activations, labels)
            else:
                gradients = [None] * len(here)
                for turn in next(turns):
                    gradients[turn] = self.train_server([activations[turn]], [labels[turn]])[0]
            for client, a, y, gradient in zip(here, activations, labels, gradients, strict=True):
                optimizers[client].zero_grad()
                if s.gradients == "server":
                    a.backward(gradient)
                else:
                    F.cross_entropy(models[client].head(a), y).backward()
                optimizers[client].step()
        sizes = [len(part) for part in trainer.parts]
        states = [model.state_dict() for model in models]
        mean = {k: sum(n / sum(sizes) * s[k] for n, s in zip(sizes, states, strict=True)) for k in states[0]}
        self.shared.load_state_dict(mean)


CASES = {
    "local": {},
    "local, batch norm": {"norm": "batch"},
    "server": {"gradients": "server"},
    "unlike": {"partition": "dirichlet:0.3", "batch": 5},
    "unlike, server": {"partition": "dirichlet:0.3", "batch": 5, "gradients": "server"},
    "hidden": {"auxiliary": (6,)},
}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_two_rounds_are_those_of_the_algorithm(values):
    trainer = SplitLearningTrainer(tiny(**values), tiny_data())
    plain = Plain(trainer)
    for number in range(2):
        plain.round(number)
        trainer.advance()
    assert_same_state(trainer.shared.row_module(0), plain.shared, 1e-9)
    assert_same_state(trainer.server_model, plain.server, 1e-9)
    if "partition" in values:
        assert len({len(trainer.batches(client, 0)) for client in range(3)}) > 1  # some stop before others


def test_sfl_v2_updates_the_server_once_for_each_client_in_some_order(monkeypatch):
    settings = tiny(variant="SFL-V2", gradients="server", rounds=1)
    trainer, orders, permutation = SplitLearningTrainer(settings, tiny_data()), [], torch.randperm

    def recording(count, **options):
        order = permutation(count, **options)
        if count == 3:  # clients, of which each has 16 images
            orders.append(order.tolist())
        return order

    plain = Plain(trainer)
    monkeypatch.setattr(torch, "randperm", recording)
    trainer.advance()
    monkeypatch.undo()
    assert len(orders) == 2
    plain.round(0, iter(orders))
    assert_same_state(trainer.shared.row_module(0), plain.shared, 1e-9)
    assert_same_state(trainer.server_model, plain.server, 1e-9)
    assert trainer.metrics[0]["server_updates"] == 6


def test_clients_take_turns_in_another_order_in_every_step():
    trainer, seen = SplitLearningTrainer(tiny(variant="SFL-V2", gradients="server"), tiny_data()), []
    images = torch.randn(3, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layers = trainer.shared.row_module(0).layers
    sent = [(layers(batch).detach(), torch.arange(4)) for batch in images]
    trainer.server_model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for trainer.finished in range(2):
        trainer.updates = 0
        for _ in range(6):
            trainer.train_server(sent)
    turns = [next(client for client in range(3) if torch.equal(batch, sent[client][0])) for batch in seen]
    assert len({tuple(turns[start : start + 3]) for start in range(0, 36, 3)}) > 2  # of six orders


def test_with_local_losses_nothing_of_the_server_reaches_the_clients():
    one, other = (SplitLearningTrainer(tiny(), tiny_data()) for _ in range(2))
    with torch.no_grad():
        other.server.weights.mul_(-0.5)
    for trainer in (one, other):
        trainer.advance()
    assert_same_state(one.shared.row_module(0), other.shared.row_module(0))
    assert one.metrics[0]["local_loss"] == other.metrics[0]["local_loss"]
    assert one.metrics[0]["loss"] != other.metrics[0]["loss"]


# ---------------------------------------------------------------- traffic


@pytest.mark.parametrize("gradients", ["local", "server"])
def test_ledger_equals_the_closed_form_to_the_byte(gradients):
    settings = tiny(clients=4, clients_per_round=3, gradients=gradients, local_epochs=2, batch=5, precision="float32")
    trainer = trained(settings)
    part = sum(value.numel() for value in trainer.global_model()[0].state_dict().values())
    head = 8 * 4 + 4 if gradients == "local" else 0  # 8 channels, 4 classes
    images = 2 * 10  # of 12, two batches of 5 in each of two passes
    maps = images * 8 * 8 * 8  # channels, height, width
    table = trainer.ledger.table()
    here = table[table.parameters_up > 0]
    assert len(here) == 2 * 3
    assert (here.parameters_up == 4 * (part + head)).all()
    assert (here.parameters_down == here.parameters_up).all()
    assert (here.activations_up == 4 * maps + 8 * images).all()  # and the labels
    assert (here.gradients_down == (4 * maps if gradients == "server" else 0)).all()
    assert table.drop(columns=["epoch", "client"]).to_numpy().sum() == here.filter(regex="_(up|down)$").to_numpy().sum()


# ---------------------------------------------------------------- summed up, wrong


def test_a_summary_has_the_accuracy_of_the_last_classifier():
    trainer = trained(tiny(probe_epochs=2))
    model, data = trainer.global_model().eval(), trainer.data
    with torch.no_grad():
        right = model(data.normalise(data.test.images, torch.float64)).argmax(1) == data.test.labels
    summary = trainer.summary()
    assert summary["test_accuracy"] == pytest.approx(right.double().mean().item())
    assert (summary["method"], summary["best_epoch"]) == ("FSL", 2)
    assert 0 <= summary["linear_probe_accuracy"] <= 1
    assert tiny(gradients="server").method == "SFL-V1"


def test_a_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(NonFiniteLossError, match=r"round 1.* learning_rate=1e\+200"):
        trained(tiny(learning_rate=1e200))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gradients": "none"}, "gradients='none' .*local, server"),
        ({"variant": "SFL-V3"}, "variant='SFL-V3'"),
        ({"auxiliary": (8,), "gradients": "server"}, "gradients='server' .*local"),
        ({"auxiliary": (0,)}, "auxiliary=0"),
        ({"clients_per_round": 4}, "clients_per_round=4"),
        ({"schedule": "linear"}, "schedule='linear'"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        tiny(**values)


def test_a_cut_that_the_backbone_does_not_have_is_named():
    with pytest.raises(SettingError, match="cut_layer=4"):
        SplitLearningTrainer(tiny(cut_layer=4), tiny_data())
