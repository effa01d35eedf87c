"""What clients exchange beside the model: FedCA's dictionaries, Orchestra's centroids, public representations."""

import pytest
import torch
import torch.nn.functional as F

from fssl_core.costs.layerwise import dictionary_bytes
from fssl_core.errors import SettingError
from fssl_core.experiments import lwfedssl_settings
from fssl_core.experiments.store import run
from fssl_core.objectives import FedCA, Orchestra, SimCLR
from fssl_core.objectives.orchestra import balanced_k_means
from fssl_core.random import generator
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.layerwise import LayerwiseTrainer
from tests.training import test_averaging, test_layerwise
from tests.training.test_split import tiny_data

FEDCA = FedCA(projector=(16, 8))
BEGUN = Orchestra(projector=(16, 8), local_clusters=3, global_clusters=5, memory_size=10)
ORCHESTRA = BEGUN.changed(start="random", views=2, output_norm="none")
OBJECTIVES = pytest.mark.parametrize("objective", [FEDCA, ORCHESTRA, BEGUN], ids=["fedca", "orchestra", "begun"])
ENGINES = pytest.mark.parametrize("engine", [AveragingTrainer, LayerwiseTrainer])


def tiny(engine, objective, **values):
    """Four clients of twelve images: two batches of five in an epoch; four stages of a round each layer by layer."""
    make, rounds = (test_averaging.tiny, 3) if engine is AveragingTrainer else (test_layerwise.tiny, 4)
    return make(**{"objective": objective, "batch": 5, "rounds": rounds, "local_epochs": 1, "probe_epochs": 0} | values)


def begun(engine, settings, clients=0) -> AveragingTrainer:
    """A trainer in which so many clients have trained."""
    trainer = engine(settings, tiny_data())
    for _ in range(clients):
        trainer.advance()
    return trainer


def assert_same(first, second):
    other = second.global_model().state_dict()
    assert all(torch.equal(value, other[name]) for name, value in first.global_model().state_dict().items())
    assert first.metrics == second.metrics
    assert first.pooled.keys() == second.pooled.keys()
    assert all(torch.equal(value, second.pooled[name]) for name, value in first.pooled.items())
    assert first.ledger.table().equals(second.ledger.table())


# ---------------------------------------------------------------- what crosses


def test_ledger_of_fedca_equals_the_closed_form_to_the_byte():
    plain = lwfedssl_settings("smoke", method="FedSimCLR", ssl_method="SimCLR", rounds=2, probe_epochs=0)
    heads = {name: getattr(plain.objective, name) for name in ("projector", "output_norm", "temperature")}
    tables = {}
    for objective in (plain.objective, FedCA(**heads)):
        settings = plain.changed(objective=objective)
        trainer = settings.trainer(settings.load_data(), None)
        trainer.train(lambda *_, **__: None)
        tables[objective.name] = trainer.ledger.table()
    assert len(trainer.data.train) / settings.clients == 40  # two whole batches of 16
    dictionary = dictionary_bytes(settings.rounds, settings.clients, 40, settings.batch, heads["projector"][-1])
    assert dictionary == 4 * heads["projector"][-1] * 32 * (2 + 4 * 1)
    fedca, simclr = tables["fedca"], tables["simclr"]
    by_client = fedca.groupby("client")[["features_up", "features_down"]].sum().sum(axis=1)
    assert by_client.tolist() == [dictionary] * settings.clients
    assert (fedca[fedca["epoch"] == 1].features_down == 0).all()
    assert fedca.drop(columns=["features_up", "features_down"]).equals(
        simclr.drop(columns=["features_up", "features_down"])
    )
    assert simclr[["features_up", "features_down"]].to_numpy().sum() == 0


def test_ledger_of_orchestra_counts_local_centroids_up_and_global_ones_down():
    settings = tiny(AveragingTrainer, ORCHESTRA, clients_per_round=2, precision="float32")
    trainer = begun(AveragingTrainer, settings, 6)
    table = trainer.ledger.table()
    taking_part = table["parameters_up"] > 0
    assert taking_part.sum() == 6
    assert (table.features_up == 4 * 3 * 8 * taking_part).all()
    assert (table.features_down == 4 * 5 * 8 * taking_part).all()


def test_other_objectives_exchange_nothing_more_and_store_nothing_new():
    trainer = begun(AveragingTrainer, tiny(AveragingTrainer, SimCLR(projector=(8,))), 5)
    assert trainer.ledger.table()[["features_up", "features_down"]].to_numpy().sum() == 0
    assert not {"contributions", "pooled"} & set(trainer.state_dict())
    assert {"shares", "pool"}.isdisjoint(trainer.settings.objective.as_dict())


# ---------------------------------------------------------------- what it is made of


@ENGINES
def test_a_dictionary_holds_the_images_of_the_last_epoch_as_the_trained_model_sees_them(engine):
    trainer = begun(engine, tiny(engine, FEDCA, local_epochs=2), 4 + 2)  # two clients of the second round
    assert list(trainer.contributions) == [0, 1]
    last = 2 * 2 - 1
    model = trainer.trained.row_module(1).eval()
    entries = []
    for batch in trainer.batches(1, last):
        views = trainer.features(trainer.views(*batch))
        entries.append(sum(F.normalize(model(view), dim=1) for view in views))
    sent = trainer.contributions[1]["projections"]
    assert sent.shape == (10, 8)
    torch.testing.assert_close(sent, F.normalize(torch.cat(entries), dim=1))
    assert not sent.requires_grad


@ENGINES
def test_clients_receive_what_those_of_the_last_round_sent(engine):
    settings = tiny(engine, FEDCA, clients_per_round=2, seed=1)
    trainer = begun(engine, settings, 1)
    assert len(trainer.learner.dictionary) == 0
    trainer.advance()
    first, second = (settings.taking_part(finished).tolist() for finished in (0, 1))
    assert first != second
    assert [int(client) for client in trainer.pooled] == first
    trainer.advance()
    others = [trainer.pooled[str(client)] for client in first if client != second[0]]
    assert torch.equal(trainer.learner.dictionary, torch.cat(others))


def test_the_server_clusters_what_clients_sent_and_clients_train_with_the_result():
    trainer = begun(AveragingTrainer, tiny(AveragingTrainer, ORCHESTRA, clients=2), 1)
    start = trainer.pooled["centroids"]
    assert torch.equal(trainer.learner.centroids, start.double())
    sent = {client: trainer.contributions.get(client) for client in range(2)}
    rows = [trainer.rows[0], trainer.train_client(1, 1)]
    sent[1], trainer.rows = trainer.contributions[1], rows
    trainer.close_round(torch.arange(2))
    local = torch.cat([sent[client]["centroids"] for client in range(2)])
    assert torch.equal(trainer.pooled["centroids"], balanced_k_means(local, start.double()))
    trainer.advance()
    assert torch.equal(trainer.learner.centroids, trainer.pooled["centroids"])


def test_orchestra_begins_with_clusters_of_what_the_untrained_model_makes_of_images():
    """As in its code: a first round in which clients fill their memories, cluster, and do not train."""
    settings = tiny(AveragingTrainer, BEGUN, clients=2, partition="iid", batch=6)
    trainer = begun(AveragingTrainer, settings)
    model, random = trainer.global_model().train(), trainer.pooled["centroids"].double()
    trainer.begin_objective(torch.arange(2))
    assert all(
        torch.equal(v, trainer.shared.state_dict(0)[n])
        for n, v in begun(AveragingTrainer, settings).shared.state_dict(0).items()
    )
    local = []
    for client in range(2):
        seen = []
        for batch in trainer.batches(client, 0):
            seen.append(F.normalize(model.embed(trainer.views(*batch)[0]), dim=1))
        points = torch.cat(seen)[:10].detach()  # a memory of ten
        start = torch.randperm(10, generator=generator(0, "contribution", 0, client))[:3]
        local.append(balanced_k_means(points, points[start]))
    torch.testing.assert_close(trainer.pooled["centroids"], balanced_k_means(torch.cat(local), random))
    whole = begun(AveragingTrainer, settings, 2)
    other = begun(AveragingTrainer, settings.changed(objective=BEGUN.changed(start="random")), 2)
    ours, theirs = (t.ledger.table().set_index("client") for t in (whole, other))
    centroids = 8 * 3 * 8  # of float64
    assert (ours.features_up == theirs.features_up + centroids).all()
    assert (ours.features_down == 8 * BEGUN.global_clusters * 8).all()  # once: nothing is sent before there are any
    assert (ours.parameters_up == theirs.parameters_up).all()
    assert (ours.parameters_down == 2 * theirs.parameters_down).all()


# ---------------------------------------------------------------- determinism


@OBJECTIVES
def test_same_settings_give_the_same_bits_and_no_global_randomness(objective):
    before = torch.random.get_rng_state()
    settings = tiny(AveragingTrainer, objective, precision="float32", rounds=2, clients=2)
    first, second = (begun(AveragingTrainer, settings, 4) for _ in range(2))
    assert_same(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


@OBJECTIVES
def test_the_order_of_clients_does_not_matter(objective):
    trainers = [begun(AveragingTrainer, tiny(AveragingTrainer, objective, clients=3)) for _ in range(2)]
    for trainer, order in zip(trainers, ([0, 1, 2], [2, 0, 1]), strict=True):
        rows = {client: trainer.train_client(client, client) for client in order}
        trainer.rows = [rows[client] for client in range(3)]
        trainer.close_round(torch.arange(3))
        assert not trainer.contributions
    assert_same(*trainers)


# ---------------------------------------------------------------- public images


DIGITS = {"dataset": "scattered-digits", "image_size": 8, "probe_epochs": 0, "precision": "float32", "rounds": 1}


def public(**values) -> AveragingSettings:
    """Training on twenty public images in one place."""
    chosen = {"train_images": 20, "clients": 1, "selection": "last", "objective": SimCLR(projector=(8,))}
    return test_averaging.tiny(**DIGITS | chosen | values)


def aligned(**values):
    objective = FedCA(projector=(16, 8), alignment_model=public(), alignment_weight=0.5)
    return test_averaging.tiny(
        **DIGITS | {"train_images": 40, "clients": 2, "rounds": 2, "objective": objective} | values
    )


def test_alignment_pulls_towards_a_model_of_public_images_which_clients_receive_once():
    pulled, free = (
        run(
            aligned(objective=FedCA(projector=(16, 8), alignment_model=public(), alignment_weight=weight)),
            progress=False,
        )
        for weight in (0.5, 0.0)
    )
    traffic = pulled.table("traffic")
    down = [traffic[traffic["epoch"] == epoch].features_down.tolist() for epoch in (1, 2)]
    assert down == [[4 * 64 * 20] * 2, [4 * 8 * 2 * 18] * 2]  # of public images, and of three batches of each client
    last = [handle.table("metrics")["alignment"].iloc[-1] for handle in (pulled, free)]
    assert last[0] < last[1]


def test_public_images_pass_the_frozen_layers(monkeypatch):
    images, representations = torch.ones(6, 1, 8, 8, dtype=torch.float64), torch.zeros(6, 12, dtype=torch.float64)
    monkeypatch.setattr(FedCA, "public", lambda *_: (images, representations))
    trainer = begun(LayerwiseTrainer, tiny(LayerwiseTrainer, FEDCA), 4 + 1)
    assert trainer.stage.number == 2
    assert torch.equal(trainer.learner.public[0], trainer.frozen(images))
    assert trainer.metrics[0]["alignment"] > 0


@pytest.mark.parametrize(
    ("objective", "stored", "message"),
    [
        (public(width=4), object(), "alignment_model.width=4 .*8"),
        (public(image_size=16), object(), "alignment_model.dataset='scattered-digits' .*16x16 and 1x8x8.*image_size"),
        (public(), None, "alignment_model=.*store.run"),
    ],
)
def test_an_alignment_model_that_cannot_be_used_is_named(objective, stored, message):
    settings = aligned(objective=FedCA(projector=(16, 8), alignment_model=objective))
    with pytest.raises(SettingError, match=message):
        settings.trainer(settings.load_data(), stored)
