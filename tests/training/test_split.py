import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.costs.traffic import engine_traffic
from fssl_core.data.datasets import Dataset, ImageSet, load_dataset
from fssl_core.devices import repeatable_kernels
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.identifiability import client_identifiability
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone
from fssl_core.random import generator
from fssl_core.training.split import MEASURED, SplitSettings, SplitTrainer
from tests.training.plain_split import PlainSplit


def tiny_data(train=48, test=16, channels=1, size=8) -> Dataset:
    def images(count, seed):
        random = torch.Generator().manual_seed(seed)
        pixels = torch.randint(0, 256, (count, channels, size, size), generator=random, dtype=torch.uint8)
        return ImageSet(pixels, torch.arange(count) % 4)

    return Dataset("tiny", images(train, 1), images(test, 2), ("a", "b", "c", "d"), official=False)


def tiny(**values) -> SplitSettings:
    """A federation that trains in milliseconds."""
    defaults = {
        "seed": 0,
        "dataset": "tiny",
        "partition": "iid",
        "clients": 4,
        "augmentation": "digits",
        "architecture": "resnet10",
        "width": 8,
        "cut_layer": 3,
        "projector_hidden": 32,
        "projector_dim": 8,
        "queue_size": 20,
        "client_batch": 3,
        "sync_every": 2,
        "epochs": 2,
        "learning_rate": 0.05,
        "validation_share": 1.0,
        "knn_k": 5,
        "probe_epochs": 2,
        "precision": "float64",
    }
    return SplitSettings(**defaults | values)


def trained(settings: SplitSettings, epochs: int | None = None) -> SplitTrainer:
    trainer = SplitTrainer(settings, tiny_data())
    for _ in range(settings.epochs if epochs is None else epochs):
        trainer.advance()
    return trainer


def assert_same_state(first: SplitTrainer, second: SplitTrainer, tolerance: float = 0.0) -> None:
    for name, value in (
        ("online", first.clients.online),
        ("momentum", first.clients.momentum),
        ("server", first.server.online),
    ):
        other = {"online": second.clients.online, "momentum": second.clients.momentum, "server": second.server.online}[
            name
        ]
        difference = max((block - other.blocks[key]).abs().max().item() for key, block in value.blocks.items())
        assert difference <= tolerance, f"{name} differs by {difference}"


# ---------------------------------------------------------------- the engine equals the plain loop


@pytest.mark.parametrize("method", ["MocoSFL", "MonAcoSFL"])
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(("architecture", "cut_layer"), [("resnet10", 3), ("resnet18", 13)])
@pytest.mark.parametrize("sampled", [None, 2])
def test_engine_equals_the_plain_loop(method, norm, architecture, cut_layer, sampled):
    settings = tiny(
        method=method, norm=norm, architecture=architecture, cut_layer=cut_layer, clients_per_epoch=sampled, width=4
    )
    for backend in ("stacked", "loop"):
        engine = SplitTrainer(settings.changed(backend=backend), tiny_data())
        plain = PlainSplit(engine.clients.online.row_module(0), engine.server.online.module(), 4, settings)
        compare_steps(engine, plain)


def compare_steps(engine: SplitTrainer, plain: PlainSplit) -> None:
    """Two epochs of four steps, step by step, then all weights."""
    for _ in range(2):
        order, draws = engine.start_epoch()
        for optimizer in plain.optimizers:
            optimizer.param_groups[0]["lr"] = engine.clients.optimizer.param_groups[0]["lr"]
        plain.server_optimizer.param_groups[0]["lr"] = engine.server.optimizer.param_groups[0]["lr"]
        sampled = engine.clients.sampled.tolist()
        assert engine.steps_per_epoch == 4
        for step in range(4):
            images = engine.data.train.images[order[:, step]]
            views = views_of_each_client(engine, images, draws[:, step])
            loss, _ = engine.step(images, draws[:, step])
            assert loss.item() == pytest.approx(plain.step(*views, sampled), abs=1e-10)
            if step % 2:
                engine.synchronise()
                plain.synchronise(sampled)
        engine.clients.end_epoch()
        engine.finished += 1
    matrices = {"online": engine.clients.online, "momentum": engine.clients.momentum}
    for name, models in {"online": plain.online, "momentum": plain.momentum}.items():
        for client, model in enumerate(models):
            ours = matrices[name].state_dict(client)
            for key, value in model.state_dict().items():
                torch.testing.assert_close(
                    ours[key], value, rtol=0, atol=1e-10, msg=lambda m, n=name, k=key: f"{n} {k}: {m}"
                )
    for key, value in plain.server.state_dict().items():
        torch.testing.assert_close(engine.server.model.state_dict()[key], value, rtol=0, atol=1e-10)


def views_of_each_client(engine, images, draws):
    """The two views, client by client."""
    first, second = engine.clients.views(images, draws)
    batch = images.shape[1]
    return first[:, :batch], second[:, -batch:]


def test_asymmetric_loss_equals_the_plain_loop():
    settings = tiny(symmetric=False, backend="stacked")
    engine = SplitTrainer(settings, tiny_data())
    compare_steps(engine, PlainSplit(engine.clients.online.row_module(0), engine.server.online.module(), 4, settings))


@pytest.mark.parametrize("values", [{}, {"backend": "loop", "norm": "batch"}, {"clients_per_epoch": 2}])
@pytest.mark.parametrize("swap_at", ["server", "server-sum"])
def test_views_swapped_at_the_server_equal_the_plain_loop(swap_at, values):
    settings = tiny(swap_at=swap_at, method="MocoSFL", queue_size=21, **values)
    engine = SplitTrainer(settings, tiny_data())
    compare_steps(engine, PlainSplit(engine.clients.online.row_module(0), engine.server.online.module(), 4, settings))


def test_a_sum_of_the_directions_is_a_doubled_rate_and_a_halved_weight_decay():
    summed = trained(tiny(swap_at="server-sum", learning_rate=0.02, weight_decay=4e-4))
    mean = trained(tiny(swap_at="server", learning_rate=0.04, weight_decay=2e-4))
    torch.testing.assert_close(summed.server.online.weights, mean.server.online.weights, rtol=0, atol=1e-10)
    torch.testing.assert_close(summed.clients.online.weights, mean.clients.online.weights, rtol=0, atol=1e-10)
    assert summed.metrics[-1]["loss"] == pytest.approx(2 * mean.metrics[-1]["loss"])
    assert tiny(swap_at="client").key == tiny().key != tiny(swap_at="server").key


def test_one_client_with_the_whole_backbone_is_ordinary_moco():
    """No client, no server, no synchronisation: MoCo as in its paper, on one model."""
    settings = tiny(clients=1, cut_layer=9, client_batch=6)
    engine = SplitTrainer(settings, tiny_data())
    model = torch.nn.Sequential(engine.clients.online.row_module(0), *engine.server.online.module())
    target = [p.detach().clone() for p in model.parameters()]
    model, shadow = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    queue = torch.zeros(0, 8, dtype=torch.float64)
    order, draws = engine.start_epoch()
    for step in range(engine.steps_per_epoch):
        images = engine.data.train.images[order[:, step]]
        (first,), (second,) = views_of_each_client(engine, images, draws[:, step])
        target = [0.99 * old + 0.01 * new.detach() for old, new in zip(target, model.parameters(), strict=True)]
        torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(target), shadow.parameters())
        losses, keys = [], []
        for query_view, key_view in ((first, second), (second, first)):
            query = F.normalize(model(query_view), dim=1)
            key = F.normalize(shadow(key_view), dim=1).detach()
            logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / settings.temperature
            losses.append(F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long)))
            keys.append(key)
        optimizer.zero_grad()
        loss = sum(losses) / 2
        loss.backward()
        optimizer.step()
        queue = torch.cat([queue, *keys])[-settings.queue_size :]
        ours, _ = engine.step(images, draws[:, step])
        assert ours.item() == pytest.approx(loss.item(), abs=1e-10)
    for ours, theirs in zip(engine.global_model().parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("sync_every", "equal"), [(1, True), (2, False)])
def test_synchronising_every_step_is_one_dense_model(sync_every, equal):
    """SGD, EMA and the average are linear: equal clients stay one client that trains on the whole batch."""
    settings = tiny(weight_decay=0.0, client_learning_rate=0.4, backend="stacked", queue_size=1000)
    clients = SplitTrainer(settings, tiny_data())
    dense = SplitTrainer(settings.changed(clients=1, client_batch=12, client_learning_rate=0.1), tiny_data())
    order, draws = clients.start_epoch()
    dense.start_epoch()
    for step in range(4):
        images = clients.data.train.images[order[:, step]]
        clients.step(images, draws[:, step])
        if (step + 1) % sync_every == 0:
            clients.synchronise()
        # The dense model's batch in the same order of views and images: all first views, then all second views.
        dense.step(images.flatten(0, 1)[None], draws[:, step].flatten(0, 1)[None])
    difference = max(
        (value - dense.clients.online.state_dict()[name]).abs().max().item()
        for name, value in clients.clients.online.state_dict().items()
    )
    assert (difference < 1e-12) is equal, difference


# ---------------------------------------------------------------- momentum models


@pytest.mark.parametrize("method", ["MocoSFL", "MonAcoSFL"])
def test_mean_of_momentum_models_is_the_moving_average_of_the_mean(method):
    """MonAcoSFL, Section 4.2. It holds for the mean in both methods when everyone takes part."""
    trainer = SplitTrainer(tiny(method=method), tiny_data())
    order, draws = trainer.start_epoch()
    expected = trainer.clients.online.state_dict()
    for step in range(trainer.steps_per_epoch):
        online = trainer.clients.online.state_dict()
        expected = {name: 0.99 * value + 0.01 * online[name] for name, value in expected.items()}
        trainer.step(trainer.data.train.images[order[:, step]], draws[:, step])
        if step % 2:
            trainer.synchronise()
        for name, value in trainer.clients.momentum.state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["MocoSFL", "MonAcoSFL"])
def test_unsampled_clients_get_online_models_always_and_momentum_models_in_monacosfl(method):
    trainer = trained(tiny(method=method, clients_per_epoch=2), epochs=1)
    absent = [client for client in range(4) if client not in trainer.clients.sampled.tolist()]
    fresh = SplitTrainer(trainer.settings, tiny_data())
    for client in absent:
        online, momentum = trainer.clients.online.state_dict(client), trainer.clients.momentum.state_dict(client)
        present = int(trainer.clients.sampled[0])
        assert all(
            torch.equal(value, trainer.clients.online.state_dict(present)[name]) for name, value in online.items()
        )
        follows = all(
            torch.equal(value, trainer.clients.momentum.state_dict(present)[n]) for n, value in momentum.items()
        )
        stays = all(torch.equal(value, fresh.clients.momentum.state_dict(client)[n]) for n, value in momentum.items())
        assert (follows, stays) == ((True, False) if method == "MonAcoSFL" else (False, True))


def test_methods_agree_until_the_first_synchronisation_and_misalignment_then_differs():
    logs = {
        method: trained(tiny(method=method, log_steps=True, client_learning_rate=0.5, sync_every=4)).step_log
        for method in ("MocoSFL", "MonAcoSFL")
    }
    ours, theirs = logs["MonAcoSFL"], logs["MocoSFL"]
    assert [row["step"] for row in ours] == list(range(1, 9))
    assert [row["synced"] for row in ours] == [0, 0, 0, 1] * 2
    assert [ours[i]["misalignment"] == theirs[i]["misalignment"] for i in range(4)] == [True, True, True, False]
    assert ours[3]["misalignment_before_sync"] == theirs[3]["misalignment_before_sync"]
    for row in ours:  # |mean(a - b)| <= mean |a - b|
        assert row["misalignment"] <= row["misalignment_before_sync"] * (1 + 1e-12)
    assert all(0 <= row["identifiability"] <= 1 for row in ours if row["synced"])


def test_misalignment_counts_all_clients():
    trainer = trained(tiny(method="MocoSFL", clients_per_epoch=2), epochs=2)
    total, numbers = 0.0, 0
    for client in range(4):
        online, momentum = trainer.clients.online.state_dict(client), trainer.clients.momentum.state_dict(client)
        for name in trainer.clients.online.parameter_names:
            total += (online[name] - momentum[name]).abs().sum().item()
            numbers += online[name].numel()
    assert trainer.metrics[-1]["misalignment"] == pytest.approx(total / numbers)


def test_identifiability_is_that_of_own_momentum_models_and_of_their_average():
    """Own models that differ give every key away; the average of them does not."""
    trainer = SplitTrainer(tiny(method="MocoSFL"), tiny_data())  # whose synchronisation leaves them as they are
    momentum = trainer.clients.momentum
    with torch.no_grad():
        momentum.weights += torch.randn(momentum.weights.shape, generator=generator(0, "noise"), dtype=torch.float64)
    trainer.advance()
    images, server = trainer.clients.some_images(), copy.deepcopy(trainer.server.momentum_model).eval()
    average = ClientMatrix(momentum.row_module(0), 1)
    average.load_state_dict(momentum.state_dict())
    expected = []
    for models in (momentum.row_modules(), [average.row_module(0)] * 4):
        keys = [server(model.eval()(batch)) for model, batch in zip(models, images, strict=True)]
        expected.append(client_identifiability(F.normalize(torch.stack(keys), dim=2)))
    assert [trainer.metrics[0][name] for name in ("identifiability", "identifiability_common")] == expected
    assert expected[0] > expected[1]


def test_a_single_client_trains_and_cannot_be_told_from_others():
    trainer = trained(tiny(clients=1, client_batch=12, log_steps=True), epochs=1)
    assert math.isnan(trainer.metrics[-1]["identifiability"])
    assert math.isfinite(trainer.metrics[-1]["loss"])


def test_clients_of_one_image_train_and_cannot_be_told_apart():
    trainer = trained(tiny(clients=48, client_batch=1), epochs=1)
    assert math.isnan(trainer.metrics[-1]["identifiability"])
    assert math.isfinite(trainer.metrics[-1]["loss"])


def test_the_global_model_is_a_copy():
    trainer = trained(tiny(), epochs=1)
    before = trainer.server.online.weights.clone()
    trainer.summary()
    with torch.no_grad():
        for parameter in trainer.global_model().parameters():
            parameter.zero_()
    assert torch.equal(trainer.server.online.weights, before)


# ---------------------------------------------------------------- SFL-V1 and SFL-V2


@pytest.mark.parametrize(("variant", "updates"), [("SFL-V1", 1), ("SFL-V2", 4)])
def test_the_server_updates_once_a_step_or_once_for_each_client(variant, updates):
    trainer = SplitTrainer(tiny(variant=variant), tiny_data())
    order, draws = trainer.start_epoch()
    weights = [trainer.server.online.weights.clone()]
    count, optimizer_step = 0, trainer.server.optimizer.step

    def counted_step():
        nonlocal count
        count += 1
        optimizer_step()

    trainer.server.optimizer.step = counted_step
    for step in range(2):
        trainer.step(trainer.data.train.images[order[:, step]], draws[:, step])
        assert count == trainer.server.steps == updates * (step + 1)
    assert not torch.equal(weights[0], trainer.server.online.weights)
    trainer = trained(tiny(variant=variant))
    assert trainer.summary()["server_updates_per_step"] == updates


def test_sfl_v2_equals_a_loop_over_clients_in_their_turns():
    settings = tiny(variant="SFL-V2")
    trainer, oracle = (SplitTrainer(settings, tiny_data()) for _ in range(2))
    order, draws = trainer.start_epoch()
    oracle.start_epoch()
    images = trainer.data.train.images[order[:, 0]]
    activations, momentum_activations = trainer.clients.forward(images, draws[:, 0])
    gradient, loss, _ = trainer.server.step(activations, momentum_activations)
    turns = torch.randperm(4, generator=generator(0, "turns", 0, 0)).tolist()
    assert turns != sorted(turns)
    one_batch = oracle.server.settings.changed(variant="SFL-V1")
    oracle.server.settings = one_batch
    losses = []
    for client in turns:
        ours, value, _ = oracle.server.step(activations[[client]], momentum_activations[[client]])
        torch.testing.assert_close(gradient[[client]], ours, rtol=0, atol=0)
        losses.append(value.item())
    assert loss.item() == pytest.approx(sum(losses) / 4, abs=1e-12)
    assert torch.equal(trainer.server.online.weights, oracle.server.online.weights)


def test_clients_take_turns_in_another_order_in_every_step():
    trainer = SplitTrainer(tiny(variant="SFL-V2"), tiny_data())
    order, draws = trainer.start_epoch()
    sent, updates = trainer.clients.forward(trainer.data.train.images[order[:, 0]], draws[:, 0]), []
    update = trainer.server._update
    trainer.server._update = lambda *batch: updates.append(batch[0]) or update(*batch)
    for epoch in range(2):
        trainer.server.start_epoch(epoch)
        for _ in range(4):
            trainer.server.step(*sent)
    turns = [next(client for client in range(4) if torch.equal(one[0], sent[0][client])) for one in updates]
    assert len({tuple(turns[start : start + 4]) for start in range(0, 32, 4)}) > 4  # of 24 orders


# ---------------------------------------------------------------- schedule, frozen and pre-trained clients


def test_a_run_that_stops_early_is_the_beginning_of_the_longer_one():
    short, long = trained(tiny(schedule_epochs=4)), trained(tiny(epochs=4), epochs=2)
    assert_same_state(short, long)
    assert_differs(short, trained(tiny()))


def assert_differs(first: SplitTrainer, second: SplitTrainer) -> None:
    with pytest.raises(AssertionError, match="differs by"):
        assert_same_state(first, second)


@pytest.mark.parametrize(("symmetric", "swap_at"), [(True, "client"), (False, "client"), (True, "server")])
def test_frozen_clients_stay_as_they_are_and_send_no_more_than_needed(symmetric, swap_at):
    settings = tiny(freeze_client=True, symmetric=symmetric, swap_at=swap_at, precision="float32", clients_per_epoch=2)
    client = SplitTrainer(settings.changed(seed=7), tiny_data()).clients.online.state_dict(0)
    trainer = SplitTrainer(settings, tiny_data(), client)
    trainer.advance()
    for matrix in (trainer.clients.online, trainer.clients.momentum):
        assert all(torch.equal(value, client[name].expand_as(value)) for name, value in matrix.blocks.items())
    trained_settings = settings.changed(freeze_client=False)
    other = SplitTrainer(trained_settings, tiny_data(), client)
    other.advance()
    ours, theirs = (t.ledger.table().drop(columns=["epoch", "client"]).sum() for t in (trainer, other))
    assert ours.activations_up == theirs.activations_up > 0
    sent = {name for name, count in ours.items() if count}
    symmetric = settings.both_views
    assert sent == ({"activations_up"} if symmetric else {"activations_up", "momentum_activations_up"})
    backbone = build_backbone("resnet10", width=8, image_size=8, channels=1)
    expected = engine_traffic(
        backbone, 3, images=12, syncs=2, momentum_sync=True, symmetric=symmetric, freeze_client=True
    )
    counted = trainer.ledger.table().set_index("client").loc[int(trainer.clients.sampled[0])]
    assert {f"{record.purpose}_{record.direction}": record.bytes for record in expected} == {
        name: counted[name] for name in sent
    }


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_frozen_clients_keep_their_running_statistics_and_are_the_same_function(backend):
    settings = tiny(freeze_client=True, norm="batch", partition="classes:1", precision="float32", backend=backend)
    client = SplitTrainer(settings.changed(seed=7), tiny_data()).clients.online.state_dict()
    trainer = SplitTrainer(settings, tiny_data(), client)
    trainer.advance()
    for matrix in (trainer.clients.online, trainer.clients.momentum):
        assert all(torch.equal(value, client[name].expand_as(value)) for name, value in matrix.blocks.items())
    first, same = (
        trainer.clients.online_forward(torch.ones(settings.clients, 2, 1, 8, 8) * shade)
        for shade in (torch.linspace(0, 1, settings.clients).view(-1, 1, 1, 1, 1), 0.0)
    )
    torch.testing.assert_close(first[0], same[0])  # whatever else is in a batch


def test_frozen_clients_train_the_server_as_ordinary_training_would():
    """With one client and the whole backbone trained on the server, freezing an identity changes nothing there."""
    settings = tiny(freeze_client=True, clients=4)
    trainer = SplitTrainer(settings, tiny_data())
    slow = SplitTrainer(settings.changed(freeze_client=False, client_learning_rate=0.0), tiny_data())
    for engine in (trainer, slow):
        engine.advance()
    torch.testing.assert_close(trainer.server.online.weights, slow.server.online.weights, rtol=0, atol=1e-12)
    assert trainer.metrics[-1]["misalignment"] == 0


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("method", ["MocoSFL", "MonAcoSFL"])
@pytest.mark.parametrize(("symmetric", "swap_at"), [(True, "client"), (False, "client"), (True, "server-sum")])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_ledger_equals_the_closed_form_to_the_byte(method, symmetric, swap_at, precision):
    settings = tiny(
        method=method,
        symmetric=symmetric,
        swap_at=swap_at,
        precision=precision,
        clients_per_epoch=3,
        sync_every=3,
        architecture="mobilenetv2",
    )
    trainer = SplitTrainer(settings, tiny_data())
    backbone = build_backbone("mobilenetv2", width=8, image_size=8, channels=1)
    for epoch in (1, 2):
        trainer.advance()
        table = trainer.ledger.table().set_index(["epoch", "client"]).loc[epoch]
        for client in range(4):
            expected = engine_traffic(
                backbone,
                settings.cut_layer,
                images=trainer.steps_per_epoch * settings.client_batch,
                syncs=2,  # after step 3 and at the end of an epoch of 4 steps
                momentum_sync=method == "MonAcoSFL",
                symmetric=settings.both_views,
                sampled=client in trainer.clients.sampled.tolist(),
            )
            counted = {column: value for column, value in table.loc[client].items() if value}
            longer = 2 if precision == "float64" else 1  # than a float32
            assert counted == {f"{record.purpose}_{record.direction}": longer * record.bytes for record in expected}


# ---------------------------------------------------------------- determinism


def test_same_settings_give_the_same_bits_and_no_global_randomness():
    before = torch.random.get_rng_state()
    first, second = (trained(tiny(precision="float32")) for _ in range(2))
    assert_same_state(first, second)
    assert first.metrics == second.metrics
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_epoch_of_every_client_has_an_order_and_views_of_its_own():
    clients = SplitTrainer(tiny(), tiny_data()).clients
    epochs = [clients.start_epoch(epoch) for epoch in range(3)]
    orders = {tuple(row.argsort().tolist()) for order, _ in epochs for row in order.flatten(1)}
    assert len(orders) == 12
    draws = torch.cat([draws.flatten(0, 3) for _, draws in epochs])  # [3 * 4 * 12 * 2, numbers]
    assert len(draws.unique(dim=0)) == len(draws) == 288


def test_order_of_clients_does_not_matter(monkeypatch):
    from fssl_core.training import split_clients

    settings = tiny(backend="stacked", queue_size=1000)
    forward = trained(settings)
    draw = split_clients.sample_clients
    monkeypatch.setattr(split_clients, "sample_clients", lambda *args: draw(*args).flip(0))
    trainer = SplitTrainer(settings, tiny_data())
    trainer.advance()
    trainer.advance()
    assert trainer.clients.sampled.tolist() == [3, 2, 1, 0]
    assert [row["loss"] for row in trainer.metrics] == pytest.approx(
        [row["loss"] for row in forward.metrics], abs=1e-10
    )
    for name, value in forward.global_model().state_dict().items():
        torch.testing.assert_close(trainer.global_model().state_dict()[name], value, rtol=0, atol=1e-10)


def test_epochs_that_are_not_evaluated_have_no_figures_and_train_alike(monkeypatch):
    settings = tiny(epochs=5, clients_per_epoch=2)
    whole = trained(settings)
    looks, count = [], SplitTrainer._identifiability
    monkeypatch.setattr(SplitTrainer, "_identifiability", lambda engine: looks.append(engine.finished) or count(engine))
    some = trained(settings.changed(validate_every=2))
    assert looks == [1, 3, 4]
    assert_same_state(whole, some)
    for one, other in zip(whole.metrics, some.metrics, strict=True):
        assert one.keys() == other.keys()
        seen = one["epoch"] in (2, 4, 5)
        missing = {name for name, value in other.items() if math.isnan(value)}
        assert missing == (set() if seen else {*MEASURED, "knn_accuracy"})
        assert all(other[name] == one[name] for name in other.keys() - missing)
    evaluated = [row["knn_accuracy"] for row in some.metrics if not math.isnan(row["knn_accuracy"])]
    assert some.best["knn_accuracy"] == max(evaluated)
    assert settings.key == settings.changed(validate_every=1).key != settings.changed(validate_every=2).key


def test_the_model_to_keep_is_the_best_or_the_last():
    settings = tiny(epochs=5, learning_rate=0.3)
    best, last = trained(settings), trained(settings.changed(selection="last"))
    assert_same_state(best, last)
    accuracies = [row["knn_accuracy"] for row in last.metrics]
    assert (best.best["knn_accuracy"], last.best["knn_accuracy"]) == (max(accuracies), accuracies[-1])
    assert last.best["epoch"] == 5
    assert settings.key == settings.changed(selection="knn").key != settings.changed(selection="last").key
    with pytest.raises(SettingError, match="selection='first' cannot be used: expected one of knn, last"):
        tiny(selection="first")


# ---------------------------------------------------------------- the whole run


def test_summary_and_tables():
    trainer = trained(tiny(log_steps=True))
    summary = trainer.summary()
    assert summary["steps"] == 8
    assert summary["images_between_syncs"] == 6
    assert trained(tiny(sync_every=50), epochs=1).summary()["images_between_syncs"] == 12  # at an epoch's end
    assert 0 <= summary["linear_probe_accuracy"] <= 1
    assert summary["knn_accuracy"] == max(row["knn_accuracy"] for row in trainer.metrics)
    tables = trainer.tables()
    sent = tables["traffic"].drop(columns=["epoch", "client"]).to_numpy().sum()
    assert summary["bytes_per_client_epoch"] == pytest.approx(sent / 8, rel=1e-12)  # two epochs of four clients
    assert {name: len(table) for name, table in tables.items()} == {
        "metrics": 2,
        "traffic": 8,
        "steps": 8,
        "divergence": 4 * len(trainer.clients.online.parameter_blocks),
    }
    total = tables["divergence"].groupby("step").divergence.sum()
    steps = tables["steps"].set_index("step")
    assert total.tolist() == pytest.approx(steps.divergence.dropna().tolist())


def test_training_on_real_images_improves_the_representation():
    settings = tiny(
        dataset="digits",
        clients=2,
        client_batch=16,
        epochs=3,
        queue_size=64,
        cut_layer=5,
        width=8,
        projector_dim=16,
        learning_rate=0.005,
        precision="float32",
    )
    trainer = SplitTrainer(settings, load_dataset("digits", image_size=16).with_fewer_images(700))
    untrained = trainer.validate()
    for _ in range(settings.epochs):
        trainer.advance()
    assert trainer.metrics[-1]["loss"] < trainer.metrics[0]["loss"]
    assert trainer.metrics[-1]["knn_accuracy"] > untrained + 0.2


def test_bfloat16_keeps_float32_weights_and_sends_what_the_method_sends():
    trainer = trained(tiny(precision="bfloat16"), epochs=1)
    assert {block.dtype for block in trainer.clients.online.blocks.values()} == {torch.float32}
    single = trained(tiny(precision="float32"), epochs=1)
    assert trainer.ledger.table().equals(single.ledger.table())


@pytest.mark.gpu
@pytest.mark.parametrize("sampled", [None, 2])
def test_cuda_in_bfloat16_repeats_itself(sampled):
    settings = tiny(precision="bfloat16", clients_per_epoch=sampled)
    data = tiny_data()
    data = dataclasses.replace(data, train=data.train.to("cuda"), test=data.test.to("cuda"))
    runs = [SplitTrainer(settings, data) for _ in range(2)]
    with repeatable_kernels():
        for run in runs:
            run.advance()
    assert_same_state(*runs)
    assert {block.dtype for block in runs[0].clients.online.blocks.values()} == {torch.float32}


@pytest.mark.gpu
def test_cuda_equals_cpu():
    cpu = trained(tiny(), epochs=1)
    data = tiny_data()
    data = dataclasses.replace(data, train=data.train.to("cuda"), test=data.test.to("cuda"))
    gpu = SplitTrainer(tiny(), data)
    gpu.advance()
    # Views are float32 whatever the precision, and a GPU rounds their products otherwise.
    assert gpu.metrics[0]["loss"] == pytest.approx(cpu.metrics[0]["loss"], abs=1e-5)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "FedAvg"}, "method='FedAvg' .*MocoSFL, MonAcoSFL"),
        ({"cut_layer": 2}, "cut_layer=2 .*1, 3, 5, 7, 9"),
        ({"cut_layer": 11}, "cut_layer=11 .*1, 3, 5, 7, 9"),
        ({"clients": 49}, "clients=49"),
        ({"client_batch": 13}, "client_batch=13 .*at most 12"),
        ({"clients_per_epoch": 5}, "clients_per_epoch=5 .*1 to 4"),
        ({"ema_decay": 1.5}, "ema_decay=1.5"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"precision": "float16"}, "precision='float16'"),
        ({"backend": "vmap"}, "backend='vmap'"),
        ({"variant": "SFL-V3"}, "variant='SFL-V3' .*SFL-V1, SFL-V2"),
        ({"schedule_epochs": 1}, "schedule_epochs=1 .*at least 2"),
        ({"pretrained_client": tiny(cut_layer=5)}, "pretrained_client='SplitSettings' .*leaves a client part"),
        ({"dataset_name": "x"}, "dataset_name"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        SplitTrainer(tiny().changed(**values), tiny_data())


def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_the_epoch_before():
    trainer = SplitTrainer(tiny(precision="float32"), tiny_data())
    trainer.advance()
    state = {name: value.clone() for name, value in trainer.state_dict()["clients"]["online"].items()}
    with torch.no_grad():
        trainer.server.online.weights[0] = float("nan")
    with pytest.raises(NonFiniteLossError, match="loss is nan at step 1 of epoch 2; what was stored before it is kept"):
        trainer.advance()
    assert trainer.finished == 1
    assert state
