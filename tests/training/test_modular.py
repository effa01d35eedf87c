import copy
import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.costs.modular import phase1_bytes, phase2_bytes
from fssl_core.data.augment import AUGMENTATIONS
from fssl_core.data.datasets import Pixels
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.experiments import run
from fssl_core.models import joined, paired
from fssl_core.objectives import SimCLR
from fssl_core.objectives.reconstruction import Reconstruction
from fssl_core.privacy.datamix import datamix
from fssl_core.training import modular, representations
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.lars import LARS
from fssl_core.training.modular import AutoencoderSettings, ModularSettings, ModularTrainer
from tests.training.test_averaging import assert_same_model
from tests.training.test_split import tiny_data


def phase1(**values) -> AutoencoderSettings:
    """48 images of 8 px and 4 classes."""
    defaults = {
        "dataset": "tiny",
        "partition": "dirichlet:1:4",
        "clients": 4,
        "augmentation": "digits",
        "architecture": "resnet10",
        "width": 8,
        "channels_per_group": 4,
        "rounds": 2,
        "batch": 4,
        "validation_share": 1.0,
        "knn_k": 5,
        "precision": "float64",
    }
    return AutoencoderSettings(**defaults | values)


def phase2(first: AutoencoderSettings | None = None, **values) -> ModularSettings:
    defaults = {
        "phase1": first or phase1(),
        "pairs": 3,
        "epochs": 3,
        "warmup_epochs": 1,
        "batch": 20,
        "projector": (16, 16, 8),
        "validation_share": 1.0,
        "knn_k": 5,
        "probe_epochs": 2,
        "precision": "float64",
    }
    return ModularSettings(**defaults | values)


def pixels(train: int = 48) -> Pixels:
    return Pixels.of(tiny_data(train))


def trainer(settings: ModularSettings | None = None, train: int = 48) -> ModularTrainer:
    """On an untrained client module."""
    settings, data = settings or phase2(), pixels(train)
    return ModularTrainer(settings, data, settings.phase1.build_model(data).client_module)


VIEWS = 1e-5  # views are float32; what is made together with others may be rounded otherwise on another CPU


# ---------------------------------------------------------------- phase 1


def test_images_are_pixels_in_every_use():
    settings = phase1(dataset="digits")
    data = settings.load_data()
    images = data.train.images[:5]
    assert torch.equal(data.normalise(images, torch.float64), images.double() / 255)
    assert torch.equal(dataclasses.replace(data).normalise(images), images / 255)
    assert torch.equal(phase2(settings).load_data().normalise(images), images / 255)
    with pytest.raises(SettingError, match=r"data='tiny' .*Pixels, which load_data gives"):
        settings.build_model(tiny_data())


def test_the_paper_augments_cifar_at_half_strength_and_without_blur():
    """Table 13, and for the strengths SimCLR's appendix A and B.9."""
    half = {
        name: AUGMENTATIONS["simclr"].as_dict()[name] / 2 for name in ("brightness", "contrast", "saturation", "hue")
    }
    expected = AUGMENTATIONS["simclr"].changed(**half, blur=0.0)
    assert AUGMENTATIONS[AutoencoderSettings().augmentation] == expected
    assert AUGMENTATIONS["simclr"].blur > 0


@pytest.mark.parametrize("norm", ["batch", "group", "twin"])
def test_one_client_is_ordinary_training_of_an_autoencoder(norm):
    settings = phase1(clients=1, partition="iid", batch=12, norm=norm, momentum=0.8, weight_decay=0.01)
    ours = settings.trainer(pixels(), None)
    plain = copy.deepcopy(ours.global_model()).requires_grad_()
    losses = []
    for number in range(2):
        optimizer = torch.optim.Adam(plain.parameters(), lr=0.05, betas=(0.8, 0.999), weight_decay=0.01)
        plain.train()
        for rows, draws in ours.batches(0, number):
            images = ours.data.train.images[rows]
            views = torch.cat([ours.augment(images, draws[:, view]) for view in (0, 1)]).double()
            loss = F.binary_cross_entropy(plain(views), views.clamp(0, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        ours.advance()
    assert len(losses) == 8
    assert [row["loss"] for row in ours.metrics] == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4], abs=VIEWS)
    # Not by its parameters: those that the next normalisation takes away are moved by Adam along rounding errors.
    torch.testing.assert_close(ours.global_model().train()(views), plain(views), rtol=0, atol=10 * VIEWS)


@pytest.mark.parametrize("norm", ["batch", "twin"])
def test_the_gserver_sees_parameters_only_twice_the_autoencoder_a_round(norm):
    settings = phase1(norm=norm, precision="float32")
    ours = settings.trainer(pixels(), None)
    ours.train(lambda *_, **__: None)
    model = ours.global_model()
    values = sum(parameter.numel() for parameter in model.parameters())
    if norm == "batch":  # two statistics a channel, and one counter a layer
        values += 2 * (8 + 8 + 8 + 1) + 4
    form = phase1_bytes(model)
    assert form.down == form.up == 4 * values
    table = ours.ledger.table()
    assert (table["parameters_up"] == 4 * values).all()
    assert (table["parameters_down"] == 4 * values).all()
    others = [name for name in table if name.endswith(("_up", "_down")) and not name.startswith("parameters")]
    assert others
    assert not table[others].to_numpy().any()


# ---------------------------------------------------------------- what is sent


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_the_rserver_sees_each_representation_once_and_nothing_else(missing, monkeypatch):
    first = phase1(precision="float32")
    ours, messages = trainer(phase2(first, missing=missing, precision="float32")), []
    send = ours.ledger.send

    def recorded(tensor, purpose, direction, clients):
        messages.append((int(clients[0]), tuple(tensor.shape[1:]), purpose, direction))
        return send(tensor, purpose, direction, clients)

    monkeypatch.setattr(ours.ledger, "send", recorded)
    ours.train(lambda *_, **__: None)
    parts = first.divide(pixels())
    received = ours.settings.received.tolist()
    assert len(received) == (4 if missing == 0 else 2)
    shapes = {client: (len(parts[client]), 2, 8, 8, 8) for client in received}
    assert sorted(messages) == sorted(
        (client, shapes[client], "representations", "up") for client in received for _ in range(3)
    )
    table = ours.ledger.table().drop(columns="epoch").groupby("client").sum()
    for client in range(4):
        expected = 8 * 8 * 8 * len(parts[client]) * 3 * 2 * 4 if client in received else 0
        assert table["representations_up"][client] == expected
        if client in received:
            assert phase2_bytes((8, 8, 8), len(parts[client]), 3) == expected
    assert not table.drop(columns="representations_up").to_numpy().any()
    seen = torch.cat([ours.representations.images[places] for places in ours.order(0)])
    assert set(seen.tolist()) <= set(torch.cat([parts[client] for client in received]).tolist())


@pytest.mark.parametrize("norm", ["batch", "group", "twin"])
def test_a_representation_is_that_of_the_trained_module_of_two_views_one_image_at_a_time(norm):
    first = phase1(norm=norm)
    data = pixels()
    module = first.trainer(data, None)
    module.train(lambda *_, **__: None)
    module = module.global_model().client_module
    ours = ModularTrainer(phase2(first), data, module).representations
    module.eval()
    place = 0
    for client, part in enumerate(first.divide(data)):
        for pair in (0, 2):
            draws = ours.draws(client, pair)
            for i, row in enumerate(part.tolist()):
                view = [ours.augment(data.train.images[row][None], draws[i, j][None]).double() for j in (0, 1)]
                with paired(module):
                    expected = module(torch.cat(view))
                got = ours.batch(torch.tensor([place + i]), pair)[:, 0]
                torch.testing.assert_close(got, expected, rtol=0, atol=VIEWS)
        place += len(part)
    assert place == len(ours.images) == 48


@pytest.mark.parametrize(
    ("precision", "datamix", "statistics"),
    [("float32", 1, "averaged"), ("float32", 2, "averaged"), ("float64", 1, "averaged"), ("float32", 2, "own")],
)
def test_held_or_computed_again_representations_are_the_same_bits(precision, datamix, statistics, monkeypatch):
    first = phase1(precision=precision, norm="batch" if statistics == "own" else "twin")
    sent = {"datamix": datamix, "statistics": statistics}
    settings = phase2(first, precision=precision, pairs_per_epoch=2, epochs=2, **sent)
    held = trainer(settings)
    monkeypatch.setattr(representations, "HELD_BYTES", 0)
    again = trainer(settings)
    assert held.representations.held
    assert not again.representations.held
    for ours in (held, again):
        ours.train(lambda *_, **__: None)
    assert_same_model(held, again)
    assert held.metrics == again.metrics
    assert torch.equal(torch.stack(held.ledger.epochs), torch.stack(again.ledger.epochs))


def test_with_statistics_of_their_own_clients_centre_their_own_images():
    """Each client's maps before scale, shift and ReLU have a mean of 0 and a variance of 1 in its own batches."""
    first, data = phase1(norm="batch", cut=1, batch=48), pixels()  # each client's images are one batch
    module = first.build_model(data).client_module
    norm = next(layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d))
    norm.bias.data.fill_(10.0)  # so that ReLU takes nothing away
    own, averaged = (
        ModularTrainer(phase2(first, statistics=name), data, module).representations for name in ("own", "averaged")
    )
    for places in own.positions.values():
        maps = own.batch(places, 0).flatten(0, 1)
        torch.testing.assert_close(maps.mean((0, 2, 3)), torch.full((8,), 10.0).double(), rtol=0, atol=1e-4)
        torch.testing.assert_close(maps.var((0, 2, 3)), torch.ones(8).double(), rtol=0.02, atol=0)
        before = averaged.batch(places, 0).flatten(0, 1)  # by means of 0 and variances of 1, as nothing was trained
        expected = (before - before.mean((0, 2, 3), keepdim=True)) / before.std((0, 2, 3), keepdim=True) + 10
        torch.testing.assert_close(maps, expected, rtol=0, atol=0.05)  # batch norm adds to the variance


def test_with_statistics_of_their_own_every_client_is_asked_about_the_test_set():
    settings = phase2(phase1(norm="batch"), statistics="own", epochs=1)
    ours, data = trainer(settings), pixels()
    ours.train(lambda *_, **__: None)
    model = ours.global_model().eval()
    sent, server = ours.representations, ours.server.eval()
    features = {client: torch.nn.Sequential(module, server) for client, module in sent.modules.items()}
    own = [
        features[client](data.normalise(data.train.images[sent.images[places]], torch.float64))
        for client, places in sent.positions.items()
    ]
    accuracies = [
        linear_probe(
            torch.cat(own),
            data.train.labels[sent.images],
            one(data.normalise(data.test.images, torch.float64)),
            data.test.labels,
            classes=4,
            epochs=2,
        ).accuracy
        for one in features.values()
    ]
    assert len(accuracies) == 4
    found = settings.accuracies(model, data)
    assert found["linear_probe_accuracy"] == pytest.approx(sum(accuracies) / 4)
    averaged = settings.changed(statistics="averaged").accuracies(model, data)
    assert set(averaged) == set(found)


def test_runs_from_before_statistics_could_be_chosen_keep_their_name():
    assert "statistics" not in phase2().identity()
    assert phase2(phase1(norm="batch"), statistics="own").key != phase2(phase1(norm="batch")).key


def test_alone_a_view_is_represented_as_a_test_image_is():
    first, data = phase1(), pixels()
    ours = trainer(phase2(first, twins=False)).representations
    with_twin = trainer(phase2(first)).representations
    module = first.build_model(data).client_module.eval()
    for client, places in ours.positions.items():
        part = first.divide(data)[client]
        for view in (0, 1):
            images = ours.augment(data.train.images[part], ours.draws(client, 1)[:, view]).double()
            torch.testing.assert_close(ours.batch(places, 1)[view], module(images), rtol=0, atol=VIEWS)
            assert not torch.allclose(with_twin.batch(places, 1)[view], module(images), atol=1e-3)


@pytest.mark.parametrize("together", [2, 3])
def test_with_datamix_clients_send_mixtures_of_the_images_of_a_batch(together):
    """Clients have 10 to 14 images, batches 4: some last batches are too small and join the one before."""
    first = phase1(batch=4)
    plain, mixed = (trainer(phase2(first, datamix=number)).representations for number in (1, together))
    assert {len(places) % 4 for places in plain.positions.values()} > {1}
    for client, places in plain.positions.items():
        start = int(places[0])
        secrets = mixed.coefficients(client, 2)
        assert sum(len(secret) for secret in secrets) == len(places)
        for secret in secrets:
            batch = torch.arange(start, start + len(secret))
            expected = datamix(plain.batch(batch, 2).flatten(0, 1), secret).unflatten(0, (2, -1))
            torch.testing.assert_close(mixed.batch(batch, 2), expected, rtol=0, atol=VIEWS)
            start += len(secret)
    with pytest.raises(SettingError, match=r"examples=4 .*at least together=9"):
        trainer(phase2(phase1(batch=4), datamix=9))


def test_each_pair_of_each_client_has_views_and_mixtures_of_its_own():
    ours = trainer(phase2(phase1(batch=4), datamix=2)).representations
    of_each = [(client, pair) for client in ours.positions for pair in range(3)]
    draws = torch.cat([ours.draws(*one).flatten(0, 1) for one in of_each])
    assert len(draws.unique(dim=0)) == len(draws) == 48 * 3 * 2
    coefficients = torch.cat([secret[secret > 0] for one in of_each for secret in ours.coefficients(*one)])
    assert len(coefficients.unique()) == len(coefficients)


def test_the_order_in_which_clients_send_changes_nothing():
    forwards, backwards = trainer(), trainer()
    receive = backwards.receive
    backwards.receive = lambda clients: receive(clients[::-1])
    for ours in (forwards, backwards):
        ours.advance()
    assert_same_model(forwards, backwards)
    assert torch.equal(forwards.ledger.epochs[0], backwards.ledger.epochs[0])


def test_more_missing_clients_are_the_same_ones_and_others():
    lost = [
        set(range(10)) - set(phase2(phase1(clients=10), missing=share).received.tolist())
        for share in (0, 0.1, 0.3, 0.5, 0.7, 1)
    ]
    assert [len(clients) for clients in lost] == [0, 1, 3, 5, 7, 9]  # somebody has to send
    assert all(fewer < more for fewer, more in itertools.pairwise(lost))


# ---------------------------------------------------------------- training at the rServer


def nt_xent_by_pairs(z: torch.Tensor, temperature: float) -> torch.Tensor:
    """Eq. 7 term by term, of ``[2K, D]``."""
    count, total = len(z), 0.0
    for i in range(count):
        j = (i + count // 2) % count
        similar = [F.cosine_similarity(z[i], z[k], dim=0) / temperature for k in range(count)]
        others = torch.stack([similar[k] for k in range(count) if k != i])
        total = total - (similar[j] - others.exp().sum().log())
    return total / count


def test_an_epoch_is_ordinary_contrastive_training_on_stored_representations():
    first = phase1(clients=2, partition="iid")
    ours = trainer(phase2(first, batch=6, momentum=0.8, weight_decay=0.01, temperature=0.5, epochs=2), train=18)
    (_, *rest), pool = copy.deepcopy(ours.model.encoder)
    plain = torch.nn.Sequential(*rest, pool, copy.deepcopy(ours.model.projector)).train()
    optimizer = LARS(plain.parameters(), 1.0, momentum=0.8, weight_decay=0.01)
    losses = []
    for number, rates in enumerate([(0.0, 1 / 3, 2 / 3), (1.0, 0.75, 0.25)]):  # warm-up; cosine over one epoch
        for places, rate in zip(ours.order(number), rates, strict=True):
            stored = ours.representations.batch(places, number)
            loss = nt_xent_by_pairs(plain(torch.cat([stored[0], stored[1]])), 0.5)
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        ours.advance()
    assert [row["loss"] for row in ours.metrics] == pytest.approx([sum(losses[:3]) / 3, sum(losses[3:]) / 3], abs=1e-10)
    for mine, other in zip(ours.server.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


def test_no_gradient_and_no_step_reaches_the_client_module():
    ours = trainer(phase2(phase1(norm="batch"), precision="float64"))
    before = copy.deepcopy(ours.model.encoder[0].client_module.state_dict())
    for _ in range(2):
        ours.advance()
    module = ours.model.encoder[0].client_module
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not ours.representations.batch(torch.arange(4), 0).requires_grad
    assert all(parameter.grad.any() for parameter in ours.server.parameters())


def test_a_pass_shows_each_image_once_and_passes_take_the_pairs_in_turn(monkeypatch):
    ours, shown = trainer(phase2(batch=12, pairs_per_epoch=2)), []
    batch = ours.representations.batch
    monkeypatch.setattr(
        ours.representations, "batch", lambda places, pair: (shown.append((pair, places)), batch(places, pair))[1]
    )
    for _ in range(2):
        ours.advance()
    assert [pair for pair, _ in shown] == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 4
    passes = [torch.cat([places for _, places in shown[start : start + 4]]) for start in range(0, 16, 4)]
    assert all(torch.equal(places.sort().values, torch.arange(48)) for places in passes)
    assert len({tuple(places.tolist()) for places in passes}) == 4


def test_the_rate_rises_linearly_and_falls_as_half_a_cosine():
    ours = trainer(phase2(epochs=30, warmup_epochs=10, learning_rate=2.0))
    assert [ours.rate(epochs) for epochs in (0, 2.5, 10)] == pytest.approx([0, 0.5, 2.0])
    assert ours.rate(20) == pytest.approx(1.0)
    assert ours.rate(15) == pytest.approx(1 + math.cos(math.pi / 4))
    assert ours.rate(30) == pytest.approx(0, abs=1e-12)
    assert trainer(phase2(warmup_epochs=0)).rate(0) == 1.0


def test_the_last_model_is_kept_and_knn_is_measured_when_it_is_due():
    ours = trainer(phase2(epochs=5, validate_every=2))
    ours.train(lambda *_, **__: None)
    assert [math.isnan(row["knn_accuracy"]) for row in ours.metrics] == [True, False, True, False, False]
    assert ours.best["epoch"] == 5
    assert all(torch.equal(value, ours.best["model"][name]) for name, value in ours.model.state_dict().items())


def test_a_loss_that_is_not_finite_says_so():
    ours = trainer()
    with torch.no_grad():
        ours.model.projector[0].weight[0] = math.nan
    with pytest.raises(NonFiniteLossError, match=r"step 1 of epoch 1; .*Lower learning_rate=1.0"):
        ours.advance()


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("norm", ["batch", "group", "twin"])
def test_both_phases_run_and_a_downstream_evaluation_stands_on_them(norm, tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    small = {"dataset": "digits", "train_images": 40, "precision": "bfloat16", "validation_share": 0.1}
    settings = phase2(phase1(norm=norm, rounds=1, **small), epochs=2, precision="bfloat16", validation_share=0.1)
    made = []
    begin = AveragingTrainer.__init__
    monkeypatch.setattr(AveragingTrainer, "__init__", lambda *a: (made.append(a), begin(*a))[1])
    finished = run(settings, progress=False)
    other = run(settings.changed(missing=0.5, epochs=1, probe_epochs=0), progress=False)
    assert len(made) == 1
    assert 0 <= finished.summary["linear_probe_accuracy"] <= 1
    assert 0 < other.summary["loss"] != finished.summary["loss"]
    assert finished.summary["bytes_per_sending_client"] == 8 * 8 * 8 * 40 * 3 * 2 * 4 / 4
    data = settings.load_data()
    backbone = settings.trained_backbone(finished, data)
    start = settings.phase1.trained_model(run(settings.phase1, progress=False), data)
    assert all(
        torch.equal(value, start.client_module.state_dict()[name])
        for name, value in backbone[0].client_module.state_dict().items()
    )
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    probe = run(ProbeSettings(pretraining=settings, epochs=2), progress=False)
    assert probe.summary["official_data"] is False
    embeddings = settings.trained_model(finished, data)(data.normalise(data.test.images[:6]))
    assert embeddings.shape == (6, 8)


def test_the_probe_of_a_summary_is_that_of_the_projection_layers_and_beside_it_that_of_the_features(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    first = phase1(dataset="digits", train_images=40, rounds=1, precision="float32", validation_share=0.1)
    settings = phase2(first, epochs=1, precision="float32", warmup_epochs=0, validation_share=0.1)
    summary = run(settings, progress=False).summary
    probe = run(ProbeSettings(pretraining=settings, epochs=2), progress=False).summary["linear_probe_accuracy"]
    assert summary["features_probe_accuracy"] == probe
    projected = settings.changed(probe_epochs=0)  # a run of its own, so that nothing is shared but phase 1

    class Projected(ModularSettings):
        def trained_backbone(self, run, data):
            return self.trained_model(run, data)

    behind = Projected(**{field.name: getattr(projected, field.name) for field in dataclasses.fields(projected)})
    assert (
        run(ProbeSettings(pretraining=behind, epochs=2), progress=False).summary["linear_probe_accuracy"]
        == summary["linear_probe_accuracy"]
    )


def test_the_model_for_deployment_is_both_modules():
    ours = trainer()
    backbone = ours.model.encoder[0]
    again = joined(backbone.client_module, modular.remaining_backbone("resnet10", 2, width=8, image_size=8))
    assert again.state_dict().keys() == backbone.state_dict().keys()
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    ours.model.eval()
    expected = ours.server.eval()(backbone.client_module(images))
    torch.testing.assert_close(ours.model(images), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: phase1(objective=SimCLR()), r"objective='simclr' .*Reconstruction\(\): a decoder"),
        (lambda: phase1(architecture="mobilenetv2"), "architecture='mobilenetv2' .*resnet18"),
        (lambda: phase1(keep_velocity=True), "keep_velocity=True .*False"),
        (lambda: phase1(cut=8), "cut=8 .*from 1 to 7"),
        (lambda: phase1(objective=Reconstruction(loss="l1")), "loss='l1'"),
        (lambda: phase2(phase1(), missing=1.5), "missing=1.5 .*from 0 to 1"),
        (lambda: phase2(phase1(), datamix=0), "datamix=0 .*at least 1"),
        (lambda: phase2(phase1(), pairs_per_epoch=4), "pairs_per_epoch=4 .*from 1 to 3"),
        (lambda: phase2(phase1(), norm="twin"), "norm='twin' .*one of batch, group"),
        (lambda: phase2(phase1(), batch=1), "batch=1 .*at least 2"),
        (lambda: phase2(phase1(), statistics="own"), "statistics='own' .*one of averaged"),
        (lambda: phase2(phase1(), warmup_epochs=4), "warmup_epochs=4 .*from 0 to 3"),
        (lambda: phase2(phase1(), projector=()), r"projector=\(\) .*one width"),
        (lambda: phase2(phase1(), precision="float32"), "precision='float32' .*float64 in both phases or in none"),
        (lambda: ModularSettings(phase1=SimCLR()), r"phase1='SimCLR' .*AutoencoderSettings\(\)"),
    ],
)
def test_a_wrong_setting_names_itself(make, message):
    with pytest.raises(SettingError, match=message):
        make()
