import copy
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.objectives import BYOL, MoCoV2, SimSiam, Supervised
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.settings import RoundSettings
from fssl_core.training.split_mix import SplitMixSettings
from fssl_core.training.trainer import RoundTrainer
from tests.training.test_split import tiny_data

HEADS = {"byol": {"projector": (16, 8), "predictor": (16, 8)}, "moco-v2": {"projector": (16, 8)}}


def objective(name="moco-v2", **values):
    return {"byol": BYOL, "moco-v2": MoCoV2}[name](
        **HEADS[name] | ({"queue_size": 20} if name == "moco-v2" else {}) | values
    )


def tiny(name="moco-v2", **values) -> AveragingSettings:
    """A federation that trains in milliseconds: 48 images of 8 px."""
    defaults = {
        "objective": objective(name),
        "seed": 0,
        "dataset": "tiny",
        "partition": "iid",
        "clients": 4,
        "augmentation": "digits",
        "architecture": "resnet10",
        "width": 8,
        "rounds": 2,
        "local_epochs": 2,
        "batch": 6,
        "learning_rate": 0.05,
        "validation_share": 1.0,
        "knn_k": 5,
        "probe_epochs": 2,
        "precision": "float64",
    }
    return AveragingSettings(**defaults | values)


def trained(settings: RoundSettings, rounds: int | None = None) -> Any:
    """The trainer of these settings after so many rounds, or all of them."""
    trainer = settings.trainer(tiny_data(), None)
    for _ in range(settings.rounds if rounds is None else rounds):
        a_round(trainer)
    return trainer


def plain(settings: AveragingSettings) -> AveragingSettings:
    """Of a method that builds on federated averaging, what is federated averaging's."""
    return AveragingSettings(**{field.name: getattr(settings, field.name) for field in fields(AveragingSettings)})


def a_round(trainer: RoundTrainer) -> None:
    finished = trainer.finished
    while trainer.finished == finished:
        trainer.advance()


def assert_same_model(first: AveragingTrainer, second: AveragingTrainer, tolerance: float = 0.0) -> None:
    other = second.global_model().state_dict()
    for name, value in first.global_model().state_dict().items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


# ---------------------------------------------------------------- one client is ordinary training


class Plain:
    """The method on one model as its paper writes it: modules, an optimiser, a list of keys."""

    def __init__(self, settings: AveragingSettings, model: nn.Module) -> None:
        self.o, self.model = settings.objective, copy.deepcopy(model).requires_grad_().train()
        self.target = copy.deepcopy(nn.Sequential(self.model.encoder, self.model.projector)).requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        self.keys: list[torch.Tensor] = []

    def follow(self) -> None:
        for old, new in zip(
            self.target.parameters(),
            [*self.model.encoder.parameters(), *self.model.projector.parameters()],
            strict=True,
        ):
            old.mul_(self.o.ema_decay).add_((1 - self.o.ema_decay) * new.detach())

    def step(self, first: torch.Tensor, second: torch.Tensor) -> float:
        loss = (self.byol if self.o.name == "byol" else self.moco)(first, second)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.o.name == "byol":
            self.follow()
        return loss.item()

    def byol(self, first, second):
        loss = 0.0
        predictions = [self.model(first), self.model(second)]
        targets = [self.target(first), self.target(second)]
        for prediction, target in zip(predictions, reversed(targets), strict=True):
            difference = F.normalize(prediction, dim=1) - F.normalize(target, dim=1)
            loss = loss + difference.square().sum(1).mean()
        return loss

    def moco(self, first, second):
        self.follow()
        losses, made = [], []
        for query_view, key_view in ((first, second), (second, first)) if self.o.symmetric else ((first, second),):
            query = F.normalize(self.model(query_view), dim=1)
            made.append(F.normalize(self.target(key_view), dim=1))
            everything = torch.cat([made[-1], *self.keys])[:, None] if self.keys else made[-1][:, None]
            logits = (query[None] * everything).sum(2).T / self.o.temperature  # [B, own keys first]
            own = logits[:, : len(query)].diagonal()
            rest = logits[:, len(query) :]
            losses.append((torch.logsumexp(torch.cat([own[:, None], rest], 1), 1) - own).mean())
        for key in made:
            self.keys.append(key)
        held = torch.cat(self.keys)[-self.o.queue_size :]
        self.keys = [held]
        return sum(losses) / len(losses)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    "method", [objective("byol"), objective(), objective(symmetric=True)], ids=["byol", "moco", "symmetric"]
)
def test_one_client_is_ordinary_training(method, norm):
    settings = tiny(clients=1, batch=12, objective=method, norm=norm, rounds=1, local_epochs=2)
    trainer = AveragingTrainer(settings, tiny_data())
    plain = Plain(settings, trainer.global_model())
    losses = []
    for number in range(2):
        for rows, draws in trainer.batches(0, number):
            images = trainer.data.train.images[rows]
            views = trainer.data.normalise(trainer.augment.two_views(images[None], draws[None])[0], torch.float64)
            losses.append(plain.step(*views))
    trainer.advance()
    assert len(losses) == 8
    assert trainer.metrics[0]["loss"] == pytest.approx(sum(losses) / 8, abs=1e-10)
    state = plain.model.state_dict()
    for name, value in trainer.global_model().state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=1e-10)
    target = plain.target.state_dict()
    for name, value in trainer.targets.state_dict(0).items():
        torch.testing.assert_close(value, target[name], rtol=0, atol=1e-10)


# ---------------------------------------------------------------- the average


def test_one_step_on_all_images_of_equal_clients_is_a_step_on_their_union():
    """Without momentum, batch norm and queue, the average of the clients' steps is the step of the mean gradient."""
    method = objective("byol", head_norm=False)
    values = {"objective": method, "norm": "group", "momentum": 0.0, "rounds": 1, "local_epochs": 1, "batch": 100}
    federated = AveragingTrainer(tiny(**values), tiny_data())
    before = federated.global_model()
    union = AveragingTrainer(tiny(**values, clients=1), tiny_data())
    pairs = [federated.batches(client, 0)[0] for client in range(4)]
    rows = torch.cat([rows for rows, _ in pairs])
    # The same views: float32 images that are made together with others need not be the same to the bit.
    views = torch.cat([federated.views(*pair) for pair in pairs], dim=1)
    union.optimizer.param_groups[0]["lr"] = 0.05
    union.worker.take(union.shared, [0])
    union.step(rows, views)
    a_round(federated)
    for name, value in federated.shared.state_dict(0).items():
        torch.testing.assert_close(value, union.worker.state_dict(0)[name], rtol=0, atol=1e-12)
    assert not torch.equal(before.encoder[0].stem[0].weight, federated.global_model().encoder[0].stem[0].weight)


def test_clients_count_by_their_images():
    trainer = AveragingTrainer(tiny(partition="dirichlet:0.3"), tiny_data())
    sizes = [len(part) for part in trainer.parts]
    assert len(set(sizes)) > 1
    sampled = torch.arange(4)
    for client in range(4):
        for block in trainer.trained.blocks.values():
            block[client] = client
    trainer.aggregate(sampled, torch.zeros(4))
    expected = sum(client * size for client, size in enumerate(sizes)) / sum(sizes)
    for block in trainer.shared.blocks.values():
        torch.testing.assert_close(block, torch.full_like(block, expected))


def test_all_clients_start_from_the_global_model_and_their_order_does_not_matter():
    settings = tiny("byol", rounds=1)
    forward, backward = (AveragingTrainer(settings, tiny_data()) for _ in range(2))
    sampled = torch.arange(4)
    for place in range(4):
        forward.train_client(place, place)
    for place in reversed(range(4)):
        backward.train_client(place, place)
    forward.aggregate(sampled, torch.zeros(4))
    backward.aggregate(sampled, torch.zeros(4))
    assert_same_model(forward, backward)


def test_ledger_equals_the_closed_form_to_the_byte():
    trainer = trained(tiny(clients_per_round=3, precision="float32"))
    elements = sum(value.numel() for value in trainer.global_model().state_dict().values())
    table = trainer.ledger.table()
    taking_part = table[table.parameters_up > 0]
    assert table.groupby("epoch").parameters_up.apply(lambda column: (column > 0).sum()).tolist() == [3, 3]
    assert (taking_part.parameters_up == 4 * elements).all()
    assert (table.parameters_down == table.parameters_up).all()
    assert table.drop(columns=["epoch", "client", "parameters_up", "parameters_down"]).to_numpy().sum() == 0


def test_divergence_is_zero_for_one_client_and_above_for_more():
    assert trained(tiny(clients=1, rounds=1)).metrics[0]["divergence"] == 0
    assert trained(tiny(rounds=1)).metrics[0]["divergence"] > 0


# ---------------------------------------------------------------- what stays with a client


def test_a_client_that_does_not_take_part_keeps_its_target_and_queue():
    trainer = trained(tiny(clients_per_round=2), rounds=1)
    traffic = trainer.ledger.table().set_index("client").parameters_up
    start = AveragingTrainer(trainer.settings, tiny_data())
    for client in range(4):
        present = traffic[client] > 0
        assert (trainer.memory[client]["objective"]["queue"]["pushed"] > 0) is bool(present)
        same = all(
            torch.equal(value, start.targets.state_dict(client)[name])
            for name, value in trainer.targets.state_dict(client).items()
        )
        assert same is not bool(present)


def test_a_copied_target_starts_each_round_as_the_global_model():
    trainer = AveragingTrainer(
        tiny("byol", target_at_start="copied", objective=objective("byol", ema_decay=1.0)), tiny_data()
    )
    a_round(trainer)
    middle = trainer.global_model()
    a_round(trainer)
    expected = nn.Sequential(middle.encoder, middle.projector)
    parameters = dict(expected.named_parameters())
    for name, block in trainer.target.parameter_blocks.items():
        assert torch.equal(block[0], parameters[name])  # with a decay of 1 it does not move during the round
    assert trainer.targets is None


@pytest.mark.parametrize("count", [1, 3, 4])
def test_an_own_objective_gets_as_many_views_as_it_asks_for(count):
    @dataclass(frozen=True, kw_only=True)
    class Mine(SimSiam):
        name: str = "mine"
        views: ClassVar[int] = count

    trainer = AveragingTrainer(tiny(objective=Mine(projector=(8,), predictor=()), augmentation="byol"), tiny_data())
    rows, draws = trainer.batches(0, 0)[0]
    views = trainer.views(rows, draws)
    assert len(views) == count
    assert len({view.sum().item() for view in views}) == count  # each of its own draw


def test_an_own_optimiser_keeps_no_velocity():
    class Adam(AveragingSettings):
        def local_optimizer(self, worker, velocity):
            return torch.optim.Adam([worker.weights])

    values = {field.name: getattr(tiny(), field.name) for field in fields(tiny())}
    assert not Adam(**values).keep_velocity
    with pytest.raises(SettingError, match=r"keep_velocity=True .*False"):
        Adam(**values | {"keep_velocity": True})


def test_a_kept_velocity_changes_the_second_round_only():
    fresh, kept = (trained(tiny(keep_velocity=keep)) for keep in (False, True))
    assert fresh.metrics[0] == kept.metrics[0]
    assert fresh.metrics[1]["loss"] != kept.metrics[1]["loss"]


# ---------------------------------------------------------------- hard and easy negatives


def test_aged_keys_wait_and_random_ones_stay():
    settings = tiny(clients=1, batch=12, rounds=1, local_epochs=1)
    queues = {}
    for kind in ("fresh", "aged", "random"):
        method = objective(negatives=kind, age=3, queue_size=48)
        trainer = AveragingTrainer(settings.changed(objective=method), tiny_data())
        before = trainer.memory[0]["objective"]["queue"]["memory"].clone()
        trainer.advance()  # four steps of twelve keys
        queues[kind] = trainer.memory[0]["objective"]["queue"]
        if kind == "random":
            assert torch.equal(before, queues[kind]["memory"])
            torch.testing.assert_close(before.norm(dim=1), torch.ones(48, dtype=torch.float64), rtol=0, atol=1e-6)
    assert (queues["fresh"]["pushed"], queues["aged"]["pushed"], queues["random"]["pushed"]) == (48, 12, 48)
    torch.testing.assert_close(queues["aged"]["memory"][:12], queues["fresh"]["memory"][:12])


# ---------------------------------------------------------------- determinism


def test_same_settings_give_the_same_bits_and_no_global_randomness():
    before = torch.random.get_rng_state()
    first, second = (trained(tiny(precision="float32")) for _ in range(2))
    assert_same_model(first, second)
    assert first.metrics == second.metrics
    assert torch.equal(before, torch.random.get_rng_state())


# ---------------------------------------------------------------- the whole run


@pytest.mark.parametrize("name", ["byol", "moco-v2"])
def test_summary_and_tables(name):
    trainer = trained(tiny(name, learning_rate=0.01))
    summary = trainer.summary()
    assert summary["knn_accuracy"] == max(row["knn_accuracy"] for row in trainer.metrics)
    assert 0 <= summary["linear_probe_accuracy"] <= 1
    assert all(math.isfinite(summary[figure]) for figure in ("loss", "divergence", "bytes_per_client_epoch"))
    assert ("negative_similarity" in summary) is (name == "moco-v2")
    assert {name: len(table) for name, table in trainer.tables().items()} == {
        "metrics": 2,
        "traffic": 8,
        "layers": 2 * len(trainer.shared.blocks),
    }


def test_a_client_with_fewer_images_than_a_batch_takes_all_of_them():
    trainer = AveragingTrainer(tiny(batch=100), tiny_data())
    (rows, draws), *others = trainer.batches(0, 0)
    assert (len(rows), draws.shape[:2], others) == (12, (12, 2), [])


@pytest.mark.parametrize("batch", [5, 7, 11, 12, 100])  # a client has 12 images; 11 leaves a single one
@pytest.mark.parametrize("client", [0, 3])
def test_a_kept_incomplete_batch_is_that_of_a_loader_without_drop_last(batch, client):
    trainer = AveragingTrainer(tiny(batch=batch, incomplete_batch="kept"), tiny_data())
    loader = list(DataLoader(range(12), batch_size=batch, shuffle=True))
    expected = [len(rows) for rows in loader if len(rows) > 1]
    steps = trainer.batches(client, 0)
    assert [len(rows) for rows, _ in steps] == [draws.shape[0] for _, draws in steps] == expected
    seen = torch.cat([rows for rows, _ in steps]).tolist()
    assert len(set(seen)) == sum(expected)
    assert set(seen) <= set(trainer.parts[client].tolist())


def test_every_pass_of_every_client_has_an_order_and_views_of_its_own():
    trainer = AveragingTrainer(tiny(), tiny_data())
    passes = [trainer.batches(client, number) for client in range(4) for number in range(3)]
    orders = {tuple(torch.cat([rows for rows, _ in batches]).argsort().tolist()) for batches in passes}
    assert len(orders) == 12
    draws = torch.cat([draws.flatten(0, 1) for batches in passes for _, draws in batches])  # [12 * 12 * 2, numbers]
    assert len(draws.unique(dim=0)) == len(draws) == 288


def test_a_run_with_incomplete_batches_goes_through_and_is_another_run():
    kept, left_out = (tiny(batch=5, incomplete_batch=how) for how in ("kept", "left out"))
    first, second = trained(kept), trained(left_out)
    assert math.isfinite(first.metrics[-1]["loss"])
    assert first.metrics[0]["loss"] != second.metrics[0]["loss"]
    assert kept.key != left_out.key == tiny(batch=5).key


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"incomplete_batch": "dropped"}, "incomplete_batch='dropped' .*left out, kept"),
        ({"objective": "byol"}, "objective='byol' .*BYOL\\(\\)"),
        ({"target_at_start": "moved"}, "target_at_start='moved' .*kept, copied"),
        ({"local_epochs": 0}, "local_epochs=0"),
        ({"clients_per_round": 5}, "clients_per_round=5 .*1 to 4"),
        ({"architecture": "vgg"}, "architecture='vgg'"),
        ({"partition": "classe:2"}, "partition='classe:2' .*did you mean classes"),
        ({"aggregation": "l-dawa-statistics", "layers": "module"}, "layers='module' .*one of tensor"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        tiny(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"negatives": "hard"}, "negatives='hard' .*fresh, aged, random"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"projector": (0,)}, "projector=0"),
        ({"name": "byol"}, "name='byol' .*moco-v2"),
    ],
)
def test_a_wrong_setting_of_an_objective_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        MoCoV2(**values)


def test_a_loss_that_is_not_finite_names_client_and_round():
    trainer = AveragingTrainer(tiny(), tiny_data())
    a_round(trainer)
    with torch.no_grad():
        trainer.shared.weights[0] = float("nan")
    with pytest.raises(NonFiniteLossError, match=r"step 1 of client 0 in round 2; .*Lower learning_rate=0.05"):
        trainer.advance()
    assert trainer.finished == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (AveragingSettings, {"objective": Supervised(), "width": 8}),
        (AveragingSettings, {"objective": MoCoV2(projector=(16,)), "width": 8}),
        (SplitMixSettings, {"width": 16, "bases": 2, "shares": (0.5, 1.0)}),
    ],
    ids=["supervised", "MoCo", "Split-Mix"],
)
def test_a_client_with_one_image_is_refused_where_batch_norm_sees_one_value(kind, values):
    settings = kind(
        dataset="digits", clients=60, partition="dirichlet:0.1", augmentation="digits", architecture="resnet10",
        norm="batch", **values,
    )  # fmt: skip
    with pytest.raises(SettingError, match="every client 2 images"):
        settings.trainer(settings.load_data(), None)
    settings.changed(norm="group").trainer(settings.load_data(), None)
