import functools
import shutil

import pytest

from fssl_core.data.outlines import outlines_only
from fssl_core.errors import DataError, NonFiniteLossError, SettingError
from fssl_core.experiments import (
    averaging_settings,
    ldawa_settings,
    lwfedssl_settings,
    mfcl_rival_settings,
    mfcl_settings,
    run,
    run_all,
    split_settings,
)
from fssl_core.experiments.store import Run
from fssl_core.objectives import OBJECTIVES
from fssl_core.paths import PROFILES
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.split import SplitTrainer
from tests.saving import save_each


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))


def small(**values):
    return split_settings("smoke", clients=5, **{"train_images": 200, "epochs": 3, "cut_layer": 3, "seed": 5} | values)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("clients", [5, 20, 200, 1000])
def test_every_profile_suits_the_papers_federations(profile, clients):
    settings = split_settings(profile, clients=clients)
    assert settings.client_batch * settings.sampled == 100
    full, shared = (split_settings(profile, clients=n).epochs for n in (100, clients))
    assert shared == full * clients // settings.sampled  # every client sees its images as often


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("taking_part", [10, 1000, None])
def test_epochs_and_rate_are_those_of_the_clients_that_take_part(profile, taking_part):
    settings = split_settings(profile, clients=1000, clients_per_epoch=taking_part)
    assert settings.epochs == split_settings(profile, clients=100).epochs * 1000 // (taking_part or 1000)
    if profile in ("smoke", "laptop"):
        assert settings.client_learning_rate == pytest.approx(settings.learning_rate * (taking_part or 1000))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_federation_is_evaluated_when_all_images_were_seen_or_as_it_was_recorded(profile):
    assert split_settings(profile, clients=100).validate_every == 1
    assert split_settings(profile, clients=1000, validate_every=3).validate_every == 3
    assert split_settings(profile, clients=1000).validate_every == (1 if profile in ("smoke", "laptop") else 10)


def test_the_paper_profile_is_the_papers_setting():
    settings = split_settings("paper", clients=5)
    assert (settings.architecture, settings.width, settings.queue_size, settings.epochs) == ("resnet18", 64, 6000, 200)
    assert (settings.client_batch, settings.clients_per_epoch, settings.sync_every) == (20, 5, 50)
    assert split_settings("paper", clients=200).sync_every == 25  # images between syncs, Section 5.1


@pytest.mark.parametrize("profile", ["gpu", "paper"])
def test_either_paper_keeps_its_own_settings(profile):
    """MocoSFL, Section 5.1: 50 steps between synchronisations for any number of clients, 20 classes of CIFAR-100."""
    for clients in (5, 20, 50, 100, 200, 1000):
        own = split_settings(profile, method="MocoSFL", clients=clients)
        assert (own.sync_every, own.swap_at, own.partition, own.seed) == (50, "server", "classes:2", 1234)
        other = split_settings(profile, method="MocoSFL", paper="monacosfl", clients=clients)
        assert (other.sync_every, other.swap_at) == (50_000 // clients // own.client_batch // 10, "client")
        assert other == split_settings(profile, clients=clients).changed(method="MocoSFL")  # one line of code
    for paper in ("mocosfl", "monacosfl"):
        of = functools.partial(split_settings, profile, method="MocoSFL", paper=paper, clients=20)
        assert [of(dataset=name).partition for name in ("cifar100", "imagenet12")] == ["classes:20", "classes:2"]
        assert of(dataset="imagenet12").image_size == 224
        assert of(dataset="cifar100", partition="iid").partition == "iid"
        assert of(architecture="resnet50").projector_hidden == 4096
    assert split_settings(profile, clients=20, architecture="mobilenetv2").swap_at == "server-sum"
    with pytest.raises(SettingError, match=r"paper='moco' .*mocosfl, monacosfl"):
        split_settings(profile, clients=20, paper="moco")


def test_small_runs_keep_the_names_that_they_were_recorded_under():
    """Whatever readings are added: the records cannot be computed again at once."""
    split = split_settings("laptop", clients=10)
    keys = {
        "c499ad80ff397d5d": split_settings("laptop", clients=10, architecture="resnet10"),
        "ce710aab14074f4a": averaging_settings("laptop", objective="moco-v2"),
        "3a7c1712201baa9b": ldawa_settings("laptop", method="FedU"),
        "cc7fc134c2eddc90": ldawa_settings("laptop", method="L-DAWA"),
        "ad744b5ab40d2744": lwfedssl_settings("laptop", method="FedEMA", ssl_method="BYOL"),
        "3d8d4f3a23a9041f": mfcl_settings("laptop", method="MFCL(TN)", xi=0.01),
        "77059d249287604d": mfcl_rival_settings("laptop", method="Orchestra"),
        "5c058045075f8522": InversionSettings(targets=(split.changed(cut_layer=5),)),
    }
    assert {key: settings.key for key, settings in keys.items()} == {key: key for key in keys}


def test_a_workstation_trains_a_narrow_network_of_the_papers_on_few_real_images():
    of_mfcl = mfcl_settings("workstation")
    runs = [
        split_settings("workstation", clients=10),
        ldawa_settings("workstation", method="FedAvg"),
        mfcl_rival_settings("workstation", method="FedEMA"),
        of_mfcl.phase1,
        lwfedssl_settings("workstation", method="FedMoCoV3", ssl_method="MoCoV3"),
    ]
    assert {(run.dataset, run.train_images) for run in runs} == {("cifar10", 10_000)}
    assert [run.architecture for run in runs] == [*["resnet18"] * 4, "vit6"]
    assert [run.width for run in runs] == [*[16] * 4, 32]
    bfloat16 = [run.precision for run in [*runs, of_mfcl] if run is not of_mfcl.phase1]
    assert {*bfloat16} == {"bfloat16"}  # of the machine nothing: a run is the same run everywhere


@pytest.mark.parametrize("paper", ["mocosfl", "monacosfl"])
def test_a_workstation_has_the_papers_steps_between_synchronisations(paper):
    for method, clients in (("MocoSFL", 10), ("MonAcoSFL", 100)):
        settings = split_settings("workstation", paper=paper, method=method, clients=clients)
        assert (settings.sync_every, settings.seed) == (50, 0)
        assert settings.swap_at == split_settings("gpu", paper=paper, method=method, clients=clients).swap_at


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_the_small_profiles_know_no_paper(profile):
    runs = [split_settings(profile, clients=5, method="MocoSFL", paper=p) for p in (None, "mocosfl", "monacosfl")]
    assert len({run.key for run in runs}) == 1
    assert runs[0].swap_at == "client"


def test_values_replace_those_of_the_profile():
    settings = split_settings("laptop", clients=10, learning_rate=0.01, cut_layer=5)
    assert (settings.learning_rate, settings.client_learning_rate, settings.cut_layer) == (0.01, 0.1, 5)


@pytest.mark.parametrize(("syncs", "every"), [(1, 40), (3, 13), (10, 4), (100, 1)])
def test_syncs_per_epoch_are_counted_on_the_data(syncs, every):
    assert split_settings("laptop", clients=5, syncs_per_epoch=syncs).sync_every == every  # 40 steps an epoch
    assert split_settings("smoke", clients=5, syncs_per_epoch=syncs).sync_every == max(1, 4 // syncs)


@pytest.mark.parametrize(("clients", "syncs", "every"), [(5, 1, 100), (5, 10, 10), (100, 10, 10), (1000, 1, 10)])
def test_a_workstation_counts_its_own_epochs(clients, syncs, every):
    """It has a fifth of the papers' images: one in an epoch of theirs would be rarer than the engine averages."""
    with outlines_only():
        settings = split_settings("workstation", clients=clients, syncs_per_epoch=syncs, dataset="cifar10")
    assert settings.sync_every == every


def test_syncs_per_epoch_need_the_data(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_DATA", str(tmp_path))
    with pytest.raises(DataError, match="'imagenet12' is not at"):
        split_settings("paper", clients=100, dataset="imagenet12", syncs_per_epoch=10)
    with pytest.raises(SettingError, match="syncs_per_epoch=0"):
        split_settings("laptop", clients=5, syncs_per_epoch=0)
    with pytest.raises(SettingError, match=r"syncs_per_epoch=10 .*None where sync_every is given"):
        split_settings("laptop", clients=5, syncs_per_epoch=10, sync_every=4)


@pytest.mark.parametrize(
    ("values", "message"), [({"profile": "tiny"}, "profile='tiny'"), ({"cut": 3}, "cut=3 .*cut_layer")]
)
def test_unknown_names(values, message):
    with pytest.raises(SettingError, match=message):
        split_settings(**{"profile": "smoke", "clients": 5} | values)


def test_an_interrupted_run_resumes_to_the_same_results(monkeypatch):
    whole = run_all([small()], progress=False)
    steps = run(small(), progress=False).table("metrics")
    settings = small(log_steps=True)  # another key, the same training
    epochs, train = [], SplitTrainer.advance

    def interrupted(trainer):
        if len(epochs) == 2:
            epochs.append("stop")
            raise KeyboardInterrupt
        epochs.append(trainer.finished)
        train(trainer)

    monkeypatch.setattr(SplitTrainer, "advance", interrupted)
    save_each(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(settings, progress=False)
    assert Run(settings).summary is None
    resumed = run(settings, progress=False)
    assert epochs == [0, 1, "stop", 2]
    assert resumed.table("metrics").equals(steps)
    for name, value in resumed.summary.items():
        assert whole[name].iloc[0] == value, name


def test_a_diverging_run_says_so_and_keeps_its_checkpoint(monkeypatch):
    settings = small()
    train = SplitTrainer.advance

    def diverging(trainer):
        if trainer.finished == 1:
            trainer.server.online.weights.data[0] = float("inf")
        train(trainer)

    monkeypatch.setattr(SplitTrainer, "advance", diverging)
    with pytest.raises(NonFiniteLossError, match="step 1 of epoch 2; what was stored before it is kept"):
        run(settings, progress=False)
    assert Run(settings).checkpoint.load()["finished"] == 1


def test_the_best_model_is_kept():
    stored = run(small(), progress=False)
    trainer = SplitTrainer(small(), small().load_data())
    model = trainer.global_model()
    model.load_state_dict(stored.tensors("best"))
    assert stored.summary["best_epoch"] == stored.table("metrics").knn_accuracy.idxmax() + 1


# ---------------------------------------------------------------- federated averaging


@pytest.mark.parametrize("objective", ["moco-v2", "byol"])
def test_averaging_profiles_differ_in_size_only(objective):
    settings = {profile: averaging_settings(profile, objective=objective, clients=4) for profile in PROFILES}
    assert {s.objective.name for s in settings.values()} == {objective}
    assert settings["paper"] == AveragingSettings(objective=OBJECTIVES[objective](), clients=4)
    assert {s.dataset for p, s in settings.items() if p in ("smoke", "laptop")} == {"scattered-digits"}
    laptop, split = settings["laptop"], split_settings("laptop", clients=4)
    assert laptop.rounds * laptop.local_epochs == split.epochs
    narrow, wide = settings["workstation"], settings["paper"]  # the head is as much narrower as the network
    assert [size * wide.width // narrow.width for size in narrow.objective.projector] == [*wide.objective.projector]
    assert [size * wide.width // narrow.width for size in narrow.objective.predictor] == [*wide.objective.predictor]


def test_an_objective_can_be_changed_and_a_wrong_one_names_itself():
    settings = averaging_settings("smoke", objective={"name": "moco-v2", "negatives": "random"}, batch=10)
    assert (settings.objective.negatives, settings.objective.queue_size, settings.batch) == ("random", 1000, 10)
    with pytest.raises(SettingError, match=r"objective='no-such' .*moco-v2, byol"):
        averaging_settings("smoke", objective="no-such")
    with pytest.raises(SettingError, match=r"negative='x' .*negatives"):
        averaging_settings("smoke", objective={"name": "moco-v2", "negative": "x"})


def test_an_averaging_run_resumes_where_it_was_interrupted(monkeypatch):
    settings = averaging_settings("smoke", objective="byol", clients=5, rounds=3, probe_epochs=1, train_images=100)
    whole = run(settings.changed(seed=0), progress=False).summary
    trained, advance = [], AveragingTrainer.advance
    save_each(monkeypatch)

    def interrupted(trainer):
        trained.append(trainer.progress[0])
        if trained == list(range(8)):
            raise KeyboardInterrupt
        advance(trainer)

    monkeypatch.setattr(AveragingTrainer, "advance", interrupted)
    shutil.rmtree(Run(settings).folder)
    with pytest.raises(KeyboardInterrupt):
        run(settings, progress=False)
    assert run(settings, progress=False).summary == whole
    assert trained == [*range(8), *range(7, 15)]  # client by client, within a round too
