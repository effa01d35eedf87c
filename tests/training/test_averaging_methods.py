"""The methods of the engine: rules, what clients keep, FedProx, and what is recorded on the way."""

import copy
import dataclasses
import tempfile

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.federation.aggregation import RULES
from fssl_core.federation.client_updates import EUC, FedEMA, FedU
from fssl_core.federation.clients import divergence
from fssl_core.objectives import SimCLR, SimSiam, Supervised
from fssl_core.training import averaging
from fssl_core.training.averaging import METHODS, AveragingSettings, AveragingTrainer
from fssl_core.training.checkpoint import Checkpoint
from tests.evaluation.plain_protocols import probe_accuracy
from tests.training.test_averaging import a_round, assert_same_model, tiny, tiny_data, trained

STATE = dict[str, torch.Tensor]
WITH_STATE = ["FedU", "FedEMA", "EUC", "L-DAWA_FedU"]


def quick(method: str = "FedAvg", **values) -> AveragingSettings:
    """One step a client and round."""
    defaults = {
        "objective": SimSiam(projector=(16, 8), predictor=(4, 8)),
        "clients": 3,
        "rounds": 4,
        "local_epochs": 1,
        "batch": 16,
        "schedule": "constant",
        "probe_epochs": 0,
    }
    return tiny(**defaults | METHODS[method] | values)


@pytest.fixture(scope="module")
def fedavg() -> AveragingTrainer:
    """To look at."""
    return trained(quick())


def states(trainer: AveragingTrainer) -> list[STATE]:
    return [trainer.trained.state_dict(place) for place in range(trainer.trained.clients)]


def same(one: STATE, other: STATE) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def twin(trainer: AveragingTrainer) -> AveragingTrainer:
    """Another one that goes on from what this one would store."""
    other = AveragingTrainer(trainer.settings, trainer.data)
    with tempfile.TemporaryDirectory() as folder:
        Checkpoint(folder).save(trainer.state_dict())
        other.load_state_dict(Checkpoint(folder).load())
    return other


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Not PyTorch's, which takes vectors below 1e-8 for zero: biases in front of batch norm are as small."""
    return ((one / one.norm()) @ (other / other.norm())).item()


def starts(trainer: AveragingTrainer, monkeypatch) -> list[tuple[int, int, STATE]]:
    """Filled as the trainer goes on: round (from 0), client, and the model that the client starts from."""
    rows, start = [], trainer._start

    def recording(client: int) -> None:
        start(client)
        rows.append((trainer.finished, client, trainer.worker.state_dict(0)))

    monkeypatch.setattr(trainer, "_start", recording)
    return rows


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_name_that_it_was_made_by(name):
    assert quick(name).method == name


def test_what_no_paper_has_named_is_called_by_its_rules():
    assert quick(aggregation="uniform").method == "uniform"
    assert quick("L-DAWA", proximal=0.1).method == "l-dawa proximal"
    assert quick("L-DAWA", client_update=FedEMA()).method == "l-dawa fedema"
    assert quick("FedU", client_update=FedU(threshold=9.0)).method == "FedU"
    assert quick("FedProx", proximal=0.0).method == "FedAvg"
    assert trained(quick("L-DAWA_FedU", rounds=1)).summary()["method"] == "L-DAWA_FedU"


# ---------------------------------------------------------------- ordinary training


@pytest.mark.parametrize("proximal", [0.0, 0.7])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_one_client_is_ordinary_supervised_training_with_the_proximal_term_in_its_loss(proximal, schedule):
    """FedProx, Eq. 2: autograd of ``loss + mu / 2 |w - w_g|^2``."""
    values = {"norm": "batch", "clients": 1, "rounds": 2, "batch": 12}
    settings = quick(objective=Supervised(classes=4), proximal=proximal, schedule=schedule, **values)
    trainer = AveragingTrainer(settings, tiny_data())
    model, data = copy.deepcopy(trainer.global_model()).requires_grad_().train(), trainer.data
    for number, rate in enumerate((0.05, 0.05 if schedule == "constant" else 0.025)):
        start = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
        losses = []
        for rows, draws in trainer.batches(0, number):
            view = data.normalise(trainer.augment(data.train.images[rows], draws[:, 0]), torch.float64)
            loss = F.cross_entropy(model(view), data.train.labels[rows])
            pull = sum(((p - s) ** 2).sum() for p, s in zip(model.parameters(), start, strict=True))
            optimizer.zero_grad()
            (loss + proximal / 2 * pull).backward()
            optimizer.step()
            losses.append(loss.item())
        trainer.advance()
        assert trainer.metrics[-1]["loss"] == pytest.approx(sum(losses) / 4, abs=1e-10)
    for name, value in trainer.global_model().state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=1e-10)


def test_fedproxs_clients_stay_nearer_to_the_global_model():
    divergences = [trained(quick(proximal=mu, batch=4, rounds=1)).metrics[0]["divergence"] for mu in (0, 1, 10)]
    assert divergences[0] > divergences[1] > divergences[2] > 0


def test_a_classifier_must_suit_the_data():
    with pytest.raises(SettingError, match=r"objective.classes=10 .*4, the number of classes of tiny"):
        AveragingTrainer(quick(objective=Supervised()), tiny_data())


# ---------------------------------------------------------------- the rules in the engine


def test_the_losses_that_count_are_those_of_the_last_local_epoch(monkeypatch):
    trainer = AveragingTrainer(quick("Loss", local_epochs=2, batch=8, rounds=1), tiny_data())
    losses = iter([9, 9, 1, 2, 8, 0, 0, 0, 0, 0, 3, 0])  # two passes of two steps for each of three clients
    step = trainer.step
    monkeypatch.setattr(
        trainer, "step", lambda *batch: (torch.tensor(float(next(losses)), dtype=torch.float64), step(*batch)[1])
    )
    seen, aggregate = [], trainer.aggregate
    monkeypatch.setattr(trainer, "aggregate", lambda sampled, values: seen.append(values) or aggregate(sampled, values))
    a_round(trainer)
    assert seen[0].tolist() == [1.5, 0.0, 1.5]
    assert trainer.metrics[0]["loss"] == pytest.approx((21 + 8 + 3) / 12)
    received, shares = states(trainer), torch.tensor([-1.5, 0, -1.5], dtype=torch.float64).softmax(0)
    for name, value in trainer.shared.state_dict(0).items():
        expected = sum(share * state[name] for share, state in zip(shares, received, strict=True))
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)  # models that run away have large weights


def test_l_dawa_in_the_engine_is_eq_4_and_its_cosines_are_logged():
    trainer = AveragingTrainer(quick("L-DAWA"), tiny_data())
    a_round(trainer)
    before = trainer.shared.state_dict(0)
    a_round(trainer)
    table = trainer.tables()["layers"].query("round == 2").set_index("layer")
    wholes = []
    for state in states(trainer):
        names = [name for name, value in state.items() if value.dim()]
        wholes.append(cosine(*(torch.cat([model[name].flatten() for name in names]) for model in (before, state))))
    assert trainer.metrics[1]["cosine"] == pytest.approx(sum(wholes) / 3)
    parameters = [p.flatten() for p in trainer.global_model().parameters()]
    assert trainer.metrics[1]["model_norm"] == pytest.approx(torch.cat(parameters).norm().item())
    for name, value in trainer.global_model().state_dict().items():
        old, cosines = before[name].flatten(), [1.0] * 3
        if old.numel() > 1 and old.any():
            cosines = [cosine(old, state[name].flatten()) for state in states(trainer)]
        expected = sum(delta * state[name] for delta, state in zip(cosines, states(trainer), strict=True)) / 3
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
        assert table.cosine[name] == pytest.approx(sum(cosines) / 3, abs=1e-12)
        assert table.norm[name] == pytest.approx((value.norm().item() if value.dim() else 0.0), rel=1e-12)


def test_the_first_rounds_may_use_fedavg():
    fedavg, l_dawa, mixed, always = (
        AveragingTrainer(quick(method, fedavg_rounds=rounds, rounds=2), tiny_data())
        for method, rounds in (("FedAvg", 0), ("L-DAWA", 0), ("L-DAWA", 1), ("L-DAWA", 2))
    )
    for trainer in (fedavg, l_dawa, mixed, always):
        a_round(trainer)
    assert_same_model(fedavg, mixed)
    assert not same(fedavg.shared.state_dict(0), l_dawa.shared.state_dict(0))
    for trainer in (fedavg, mixed, always):
        a_round(trainer)
    assert_same_model(fedavg, always)
    assert not same(fedavg.shared.state_dict(0), mixed.shared.state_dict(0))


def test_equal_clients_make_fedavg_uniform_and_one_client_makes_nearly_all_methods_the_same():
    assert_same_model(*(trained(quick(aggregation=rule, clients=4, rounds=2)) for rule in ("fedavg", "uniform")))
    alone = {"clients": 1, "batch": 48, "rounds": 2}
    fedavg = trained(quick(**alone))
    for method in ("Loss", "FedU", "FedEMA"):  # a client's own model is the global one
        assert_same_model(fedavg, trained(quick(method, **alone)))
    assert not same(fedavg.shared.state_dict(0), trained(quick("L-DAWA", **alone)).shared.state_dict(0))


def test_a_new_rule_can_be_used_at_once(monkeypatch):
    monkeypatch.setitem(RULES, "first", lambda r: torch.eye(r.clients, dtype=torch.float64)[:, :1])
    trainer = trained(quick(aggregation="first", rounds=1))
    assert trainer.settings.method == "first"
    assert same(trainer.shared.state_dict(0), trainer.trained.state_dict(0))
    with pytest.raises(SettingError, match=r"aggregation='second' .*first"):
        quick(aggregation="second")


# ---------------------------------------------------------------- what clients keep


def test_fedus_clients_keep_their_predictor(monkeypatch, fedavg):
    trainer = AveragingTrainer(quick(client_update=FedU(threshold=0.0)), tiny_data())
    begun = starts(trainer, monkeypatch)
    a_round(trainer)
    sent, shared = states(trainer), trainer.shared.state_dict(0)
    a_round(trainer)
    assert {client for finished, client, _ in begun if finished == 1} == {0, 1, 2}
    for finished, client, model in begun:
        for name, value in model.items():
            if finished == 1:
                assert torch.equal(value, (sent[client] if name.startswith("predictor.") else shared)[name]), name
    assert not same(sent[0], shared)
    assert_same_model(fedavg, trained(quick(client_update=FedU(threshold=1e9))))


def test_fedemas_clients_start_their_second_round_from_a_mixture(monkeypatch, fedavg):
    trainer = AveragingTrainer(quick(client_update=FedEMA(tau=0.3)), tiny_data())
    begun = starts(trainer, monkeypatch)
    a_round(trainer)
    sent, shared = states(trainer), trainer.shared.state_dict(0)
    a_round(trainer)
    for _, client, model in begun[3:]:
        for name, value in model.items():
            torch.testing.assert_close(value, 0.7 * shared[name] + 0.3 * sent[client][name], rtol=1e-6, atol=1e-8)
    assert_same_model(fedavg, trained(quick(client_update=FedEMA(tau=0.0))))


@pytest.mark.parametrize("divergence", ["drift", "distance"])
def test_fedemas_later_shares_follow_the_drift_of_local_training_or_the_distance_to_the_global_model(
    monkeypatch, divergence
):
    settings = quick(client_update=FedEMA(tau=0.3, divergence=divergence), objective=SimCLR(projector=(8,)))
    trainer = AveragingTrainer(settings, tiny_data())
    begun, first = starts(trainer, monkeypatch), {}

    def far(one: STATE, other: STATE, shortcuts: bool) -> float:
        names = [n for n, value in one.items() if n.startswith("encoder.") and value.dim() == 4]
        names = [n for n in names if shortcuts or "shortcut" not in n]
        return sum((one[n] - other[n]).norm().item() for n in names) / len(names)

    for finished in range(3):
        sent, shared = (states(trainer) if finished else None), trainer.shared.state_dict(0)
        a_round(trainer)
        for _, client, model in begun[3 * finished :] if finished else ():
            if divergence == "drift":
                amount = far(sent[client], begun[3 * (finished - 1) + client][2], False)
            else:
                amount = far(sent[client], shared, True)
            share = min(1.0, 0.3 * amount / first.setdefault(client, amount))
            assert share > 0.05
            for name, value in model.items():
                expected = (1 - share) * shared[name] + share * sent[client][name]
                torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-8, msg=name)


def test_momentum_is_not_touched_by_what_a_client_keeps():
    """A client's own model passes through the buffer of its velocity."""
    values = {"keep_velocity": True, "rounds": 2, "batch": 8}
    assert_same_model(trained(quick(**values)), trained(quick(client_update=FedU(threshold=1e9), **values)))


def slow_movements(trainer: AveragingTrainer, previous: STATE) -> dict[str, float]:
    """Mean squared difference of the clients' tensors to the global ones; of single numbers, none."""
    received = states(trainer)
    return {
        name: sum((state[name] - value).square().mean().item() for state in received) / 3 if value.dim() else 0.0
        for name, value in ((name, previous[name]) for name in trainer.layers.names)
    }


def test_euc_leaves_the_half_that_moved_least_with_the_clients(monkeypatch):
    trainer = AveragingTrainer(quick("EUC", precision="float32"), tiny_data())
    begun, models, sent = starts(trainer, monkeypatch), [trainer.shared.state_dict(0)], []
    for _ in range(4):
        a_round(trainer)
        models.append(trainer.shared.state_dict(0))
        sent.append(states(trainer))
        if len(sent) == 2:
            movements = slow_movements(trainer, models[1])
        if len(sent) == 3:
            skipped = trainer.skipped
    ranked = sorted(movements, key=movements.get)  # stable: ties in the order of the layers
    stayed = set(ranked[: round(len(ranked) / 2)])
    assert {name for name, skip in zip(trainer.layers.names, skipped.tolist(), strict=True) if skip} == stayed
    for name in ranked:  # the third round leaves these as they are; every other round moves whatever moves at all
        unchanged = [torch.equal(models[i][name], models[i + 1][name]) for i in range(4)]
        assert unchanged == [False, False, name in stayed, False]
    for finished, client, model in begun:
        for name, value in model.items():
            source = sent[2][client] if finished == 3 and name in stayed else models[finished]
            assert torch.equal(value, source[name]), (finished, name)
    assert trainer.skipped is None  # an even number of rounds ends with everything exchanged

    size = {name: 4 * value.numel() for name, value in models[0].items()}
    everything, exchanged = sum(size.values()), sum(size[name] for name in set(ranked) - stayed)
    assert 0 < exchanged < everything
    traffic = trainer.ledger.table()
    up, down = ([everything, everything, exchanged, everything], [everything] * 3 + [exchanged])
    for client in range(3):
        own = traffic[traffic.client == client]
        assert (own.parameters_up.tolist(), own.parameters_down.tolist()) == (up, down)


def test_a_client_that_missed_a_round_receives_every_layer(monkeypatch):
    """It has no layer that was left with the clients of that round; the server's has been exchanged since."""
    trainer = AveragingTrainer(quick("EUC", clients=6, clients_per_round=3, batch=8, rounds=8), tiny_data())
    begun = starts(trainer, monkeypatch)
    shared, took_part, skipped = [], [], []
    for _ in range(8):
        shared.append(trainer.shared.state_dict(0))
        skipped.append(trainer.skipped)
        a_round(trainer)
        took_part.append({client for finished, client, _ in begun if finished == trainer.finished - 1})
    traffic = trainer.ledger.table().set_index(["epoch", "client"]).parameters_down
    everything = traffic[1].max()
    cases = set()
    for finished, client, model in begun:
        partly = skipped[finished] is not None and client in took_part[finished - 1]
        returning = not partly and any(client in part for part in took_part[:finished])
        cases.add((partly, skipped[finished] is not None and returning))
        assert same(model, shared[finished]) is not partly
        assert bool(traffic[finished + 1, client] < everything) is partly
    assert cases == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("method", WITH_STATE)
def test_the_order_of_clients_within_a_round_does_not_matter(method):
    forward = trained(quick(method), rounds=3)
    backward = twin(forward)
    for trainer, places in ((forward, (0, 1, 2)), (backward, (2, 0, 1))):
        for place in places:
            trainer.train_client(place, place)
        trainer.aggregate(torch.arange(3), torch.zeros(3))
    assert_same_model(forward, backward)
    assert all(
        torch.equal(block, backward.client_models.blocks[name]) for name, block in forward.client_models.blocks.items()
    )
    assert forward.memory == backward.memory


# ---------------------------------------------------------------- interruption


@pytest.mark.parametrize("method", METHODS)
def test_every_method_resumes_within_a_round_to_the_same_bits(method):
    """In the last round, whose clients start with the layers that EUC has not exchanged."""
    values = {"clients_per_round": 2, "precision": "float32", "keep_every": 2, "fedavg_rounds": 1}
    whole = trained(quick(method, **values), rounds=3)
    whole.advance()
    resumed = twin(whole)
    for trainer in (whole, resumed):
        trainer.train(lambda *_, **__: None)
    assert_same_model(whole, resumed)
    assert whole.metrics == resumed.metrics
    assert whole.memory == resumed.memory
    for name, table in whole.tables().items():
        assert table.equals(resumed.tables()[name]), name
    assert same(whole.tensors()["models"], resumed.tensors()["models"])
    for name in ("client_models", "moved"):
        one, other = getattr(whole, name), getattr(resumed, name)
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)
        elif one is not None:
            assert same(one.blocks, other.blocks)


# ---------------------------------------------------------------- many clients


@pytest.mark.parametrize("rule", ["fedavg", "uniform"])
@pytest.mark.parametrize("method", ["FedAvg", "FedU"])
def test_a_running_sum_is_the_average_of_all_models(rule, method, monkeypatch):
    settings = quick(method, aggregation=rule, clients=7, batch=6, rounds=2, learning_rate=0.01)
    whole = trained(settings)
    monkeypatch.setattr(averaging, "ALL_MODELS", 3)
    summed = trained(settings)
    assert summed.trained.clients == 3  # of clients 0, 3 and 6
    assert_same_model(whole, summed, tolerance=1e-10)  # in float64
    for one, other in zip(whole.metrics, summed.metrics, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-10)
        assert other["divergence"] != one["divergence"]
    assert summed.metrics[-1]["divergence"] == divergence(summed.trained).sum().item()


def test_a_running_sum_weighs_clients_by_their_own_images_where_some_do_not_take_part(monkeypatch):
    settings = quick(clients=5, clients_per_round=3, partition="dirichlet:1:4", batch=4, rounds=1)
    whole = trained(settings)
    sizes = [len(part) for part in whole.parts]
    assert [sizes[client] for client in settings.taking_part(0)] != sizes[:3]
    monkeypatch.setattr(averaging, "ALL_MODELS", 2)
    summed = AveragingTrainer(settings, tiny_data())
    assert summed.sums(3)
    a_round(summed)
    assert_same_model(whole, summed, tolerance=1e-10)


def test_a_running_sum_is_resumed_within_a_round_to_the_bit(monkeypatch):
    monkeypatch.setattr(averaging, "ALL_MODELS", 2)
    settings = quick(clients=5, clients_per_round=4, rounds=3, train_images=None)
    whole = trained(settings)
    for stop in range(4, 8):
        stopped = AveragingTrainer(settings, tiny_data())
        for _ in range(stop):
            stopped.advance()
        resumed = twin(stopped)
        assert (resumed.summed is None) == (stop == 4)
        assert resumed.progress == (stop, 12)
        resumed.train(lambda *_, **__: None)
        assert_same_model(whole, resumed)
        assert whole.metrics == resumed.metrics


def test_a_state_has_the_same_copies_of_what_clients_have_sent_as_the_one_before():
    trainer, copies = AveragingTrainer(quick(clients=3), tiny_data()), []
    for received in (1, 2, 0, 1):  # of three clients, and of the next round the first
        trainer.advance()
        copies.append(trainer.state_dict()["trained"])
        assert len(copies[-1]) == received
        assert all(torch.equal(copy, trainer.trained.row(place)) for place, copy in enumerate(copies[-1]))
    assert copies[1][0] is copies[0][0]
    for again in (trainer, twin(trainer)):
        assert again.state_dict()["trained"][0] is again.state_dict()["trained"][0]


def test_rules_that_look_at_models_or_losses_keep_all(monkeypatch):
    monkeypatch.setattr(averaging, "ALL_MODELS", 2)
    for method in ("L-DAWA", "Loss", "EUC"):
        trainer = AveragingTrainer(quick(method, clients=3), tiny_data())
        trainer.advance()
        assert trainer.summed is None
        assert trainer.trained.clients == 3
    first = AveragingTrainer(quick("L-DAWA", clients=3, fedavg_rounds=1), tiny_data())
    first.advance()
    assert first.summed is not None
    for _ in range(3):
        first.advance()
    assert first.summed is None
    assert first.trained.clients == 3


# ---------------------------------------------------------------- on the way


@pytest.mark.parametrize(("selection", "epoch"), [("knn", 2), ("last", 4)])
def test_the_model_that_is_kept(selection, epoch, monkeypatch):
    accuracies = iter([0.5, 0.9, 0.1, 0.9])
    trainer = AveragingTrainer(quick(selection=selection), tiny_data())
    monkeypatch.setattr(trainer, "validate", lambda: next(accuracies))
    models = []
    for _ in range(4):
        a_round(trainer)
        models.append(trainer.global_model().state_dict())
    summary = trainer.summary()
    assert (summary["best_epoch"], summary["knn_accuracy"]) == (epoch, 0.9)
    assert same(trainer.tensors()["best"], models[epoch - 1])


def test_the_accuracy_of_a_run_is_that_of_the_model_that_is_kept(monkeypatch):
    accuracies = iter([0.9, 0.1])
    trainer = AveragingTrainer(quick(selection="knn", probe_epochs=3, rounds=2), tiny_data())
    monkeypatch.setattr(trainer, "validate", lambda: next(accuracies))
    a_round(trainer)
    kept = trainer.global_model().eval().encoder
    a_round(trainer)
    seen = []
    monkeypatch.setattr(AveragingSettings, "probe", lambda self, part, data: seen.append(part.state_dict()) or 0.5)
    assert trainer.summary()["linear_probe_accuracy"] == 0.5
    assert same(seen[0], kept.state_dict())
    assert not same(seen[0], trainer.global_model().encoder.state_dict())


def test_probes_on_the_way_are_those_of_their_models_and_do_not_disturb(fedavg):
    trainer = trained(quick(probe_every=2, probe_epochs=3), rounds=3)
    a_round(trainer)
    accuracies = [row.get("linear_probe_accuracy") for row in trainer.metrics]
    last = probe_accuracy(trainer.global_model().eval().encoder, trainer.data, epochs=3, seed=0)
    assert [accuracies[0], accuracies[2], accuracies[3]] == [None, None, last]
    assert 0 < accuracies[1] < 1
    assert_same_model(trainer, fedavg)


def test_models_are_kept_on_the_way_the_first_untrained(fedavg):
    trainer = AveragingTrainer(quick(keep_every=3), tiny_data())
    models = [trainer.global_model().state_dict()]
    for _ in range(4):
        a_round(trainer)
        models.append(trainer.global_model().state_dict())
    kept = trainer.tensors()["models"]
    assert kept.keys() == models[0].keys()
    for name, values in kept.items():
        assert torch.equal(values, torch.stack([models[0][name], models[3][name]]))
    assert "models" not in fedavg.tensors()


@pytest.mark.gpu
def test_models_kept_before_and_after_an_interruption_go_together_on_a_gpu():
    data = tiny_data()
    data = dataclasses.replace(data, train=data.train.to("cuda"), test=data.test.to("cuda"))
    settings = quick(keep_every=1, rounds=2, objective=SimCLR(projector=(8,)), precision="float32")
    first, second = (AveragingTrainer(settings, data) for _ in range(2))
    a_round(first)
    state = first.state_dict()
    state["models"] = [{name: value.cpu() for name, value in model.items()} for model in state["models"]]
    second.load_state_dict(state)
    a_round(second)
    assert all(len(value) == 3 for value in second.tensors()["models"].values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"client_update": "fedu"}, r"client_update='fedu' .*FedU\(\)"),
        ({"client_update": EUC}, r"client_update=.*EUC\(\)"),
        ({"schedule": "linear"}, "schedule='linear' .*cosine, constant"),
        ({"selection": "best"}, "selection='best' .*knn, last"),
        ({"layers": "block"}, "layers='block' .*tensor, module"),
        ({"proximal": -1.0}, "proximal=-1.0"),
        ({"fedavg_rounds": -1}, "fedavg_rounds=-1"),
        ({"keep_every": -1}, "keep_every=-1"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        quick(**values)
