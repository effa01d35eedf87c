"""Untrained models under the evaluation of trained ones."""

import math

import pytest
import torch

from fssl_core.data.datasets import ImageSet
from fssl_core.errors import SettingError
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.metrics import chance
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.renewed_statistics import RenewedStatistics
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings
from fssl_core.evaluation.untrained import UntrainedSettings, untrained
from fssl_core.experiments.store import run
from fssl_core.federation.client_updates import FedEMA
from fssl_core.objectives import SimCLR, Supervised
from fssl_core.objectives.moon import Moon
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.featarc import FeatArcSettings
from fssl_core.training.fedpac import FedPacSettings
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.secure_averaging import SecureAutoencoderSettings
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_learning import SplitLearningSettings
from fssl_core.training.split_mix import SplitMixSettings
from tests.evaluation.plain_protocols import classifier_accuracy, probe_accuracy, validation_accuracy

DATA = {"dataset": "digits", "train_images": 60, "seed": 3}
MODEL = {"architecture": "resnet10", "width": 4, "validation_share": 0.2, "knn_k": 5, "probe_epochs": 2}
SMALL = DATA | MODEL | {"clients": 3, "partition": "iid"}
ROUNDS = {"rounds": 2, "local_epochs": 1, "batch": 10, "learning_rate": 0.01}
SIMCLR = SimCLR(projector=(8,))
FIRST = {"norm": "twin", "cut": 2, **ROUNDS}

ENGINES = {
    "averaging": lambda: AveragingSettings(
        **SMALL, **ROUNDS, objective=SIMCLR, aggregation="l-dawa", client_update=FedEMA(), keep_every=1, probe_every=1
    ),
    "supervised": lambda: AveragingSettings(**SMALL, **ROUNDS, objective=Supervised(classes=10), selection="last"),
    "layer-wise": lambda: LayerwiseSettings(
        **SMALL | {"architecture": "resnet18"}, **ROUNDS, objective=SIMCLR, norm="group", client_dropout=0.5, stages=2
    ),
    "end-to-end": lambda: LayerwiseSettings(
        **SMALL, **ROUNDS, objective=SIMCLR, norm="batch", scheme="end-to-end", selection="knn"
    ),
    "MOON": lambda: MoonSettings(**SMALL, **ROUNDS, objective=Moon(classes=10, projector=(8,))),
    "FeatARC": lambda: FeatArcSettings(**SMALL, **ROUNDS, objective=SIMCLR, groups=3, group_from=1),
    "HeteroFL": lambda: HeteroFLSettings(
        **SMALL | {"width": 8}, **ROUNDS, objective=Supervised(classes=10), shares=(1.0, 0.5)
    ),
    "Split-Mix": lambda: SplitMixSettings(
        **SMALL | {"width": 8}, **ROUNDS, objective=Supervised(classes=10), shares=(1.0, 0.5), bases=2
    ),
    "FedPAC": lambda: FedPacSettings(**SMALL, **ROUNDS, objective=Supervised(classes=10)),
    "split": lambda: SplitSettings(
        **SMALL, cut_layer=3, client_batch=4, epochs=1, queue_size=20, projector_hidden=8, projector_dim=8, sync_every=2
    ),
    "split learning": lambda: SplitLearningSettings(**SMALL, **ROUNDS, gradients="server", variant="SFL-V2"),
    "autoencoder": lambda: AutoencoderSettings(**SMALL, **FIRST),
    "secure": lambda: SecureAutoencoderSettings(**SMALL, **FIRST),
    "modular": lambda: ModularSettings(
        phase1=AutoencoderSettings(**SMALL, **FIRST),
        seed=3,
        epochs=2,
        warmup_epochs=1,
        batch=20,
        projector=(16, 8),
        knn_k=5,
        probe_epochs=2,
    ),
}


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    return tmp_path


def states(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def numbers(model):
    """All values in order; their names tell where a network is cut."""
    return list(model.state_dict().values())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_model_and_its_images_are_those_of_the_training(engine):
    settings = ENGINES[engine]()
    baseline = untrained(settings)
    assert baseline.needs == ()
    assert baseline.of != settings  # something was only about training
    data, own = settings.load_data(), baseline.load_data()
    for part, mine in ((data.train, own.train), (data.test, own.test)):
        assert torch.equal(part.images, mine.images)
        assert torch.equal(part.labels, mine.labels)
    first, model = numbers(settings.build_model(data)), numbers(baseline.model(own))
    assert all(torch.equal(one, other) for one, other in zip(first, model, strict=True))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "modular"])
def test_it_is_what_the_trainer_says_before_its_first_step(engine):
    settings = ENGINES[engine]()
    trainer = settings.trainer(settings.load_data(), None)
    trainer.best = {"knn_accuracy": settings.knn_accuracy(settings.compared(trainer.global_model()), trainer.data)}
    trainer.best |= {"epoch": 0, "model": states(trainer.global_model())}
    trainer.metrics = [{"epoch": 0}]
    trainer.ledger.close_epoch()
    if hasattr(trainer, "server") and hasattr(trainer.server, "steps"):
        trainer.server.steps = 0
    before = trainer.summary()
    summary = run(untrained(settings), progress=False).summary
    names = {name for name in before if name.endswith("_accuracy")}
    assert {name for name in summary if name.endswith("_accuracy")} == names
    assert {name: summary[name] for name in names} == {name: before[name] for name in names}
    if engine != "layer-wise":  # which begins with a part of the encoder
        assert summary["knn_accuracy"] == trainer.validate()


def test_it_is_the_evaluation_of_a_model_built_by_hand():
    split, supervised, modular = (ENGINES[name]() for name in ("split", "supervised", "modular"))
    how = {"share": 0.2, "seed": 3, "k": 5, "temperature": 0.1}
    data = split.load_data()
    model = split.build_model(data).eval()
    summary = run(untrained(split), progress=False).summary
    assert summary["knn_accuracy"] == validation_accuracy(model, data, **how)
    assert summary["linear_probe_accuracy"] == probe_accuracy(model[:-1], data, epochs=2, seed=3)
    assert summary["chance"] == chance(data.test.labels) > 0.1
    assert summary["official_data"] is data.official

    data = supervised.load_data()
    model = supervised.build_model(data).eval()
    assert run(untrained(supervised), progress=False).summary["test_accuracy"] == classifier_accuracy(model, data)

    data = modular.load_data()
    model = modular.build_model(data).eval()
    summary = run(untrained(modular), progress=False).summary
    assert summary["knn_accuracy"] == validation_accuracy(model, data, **how)
    assert summary["linear_probe_accuracy"] == probe_accuracy(model, data, epochs=2, seed=3)
    assert summary["features_probe_accuracy"] == probe_accuracy(model.encoder, data, epochs=2, seed=3)


def test_methods_share_it_and_seeds_networks_and_evaluations_do_not():
    settings = ENGINES["averaging"]()
    same = [{"aggregation": "fedavg"}, {"rounds": 9}, {"learning_rate": 0.5}, {"clients": 2}, {"keep_every": 0}]
    others = [{"seed": 4}, {"width": 8}, {"norm": "group"}, {"train_images": 70}, {"probe_epochs": 3}, {"knn_k": 6}]
    assert {untrained(settings.changed(**change)).key for change in same} == {untrained(settings).key}
    assert len({untrained(settings.changed(**change)).key for change in [{}, *others]}) == 1 + len(others)
    split = ENGINES["split"]()
    assert untrained(split.changed(method="MocoSFL", freeze_client=True, cut_layer=5)) == untrained(split)
    assert untrained(split.changed(projector_dim=16)) != untrained(split)
    modular = ENGINES["modular"]()
    assert untrained(modular.changed(phase1=modular.phase1.changed(rounds=1))) == untrained(modular)
    assert untrained(modular.changed(phase1=modular.phase1.changed(cut=3))) != untrained(modular)


def test_where_each_client_has_its_own_statistics_the_untrained_model_is_evaluated_so_too():
    averaged = ENGINES["modular"]()
    averaged = averaged.changed(phase1=averaged.phase1.changed(norm="batch"))
    own = averaged.changed(statistics="own")
    data = own.load_data()
    summary = run(untrained(own), progress=False).summary
    expected = own.accuracies(own.build_model(data).eval(), data)
    assert {name: summary[name] for name in expected} == expected
    assert expected != averaged.accuracies(averaged.build_model(data).eval(), data)
    for settings in (averaged, own):  # without an accuracy of its own it is one model
        assert untrained(ProbeSettings(pretraining=settings)).pretraining.of.statistics == "averaged"


def test_settings_that_are_valid_in_one_scheme_only_stay_as_they_are():
    settings = LayerwiseSettings(**SMALL, **ROUNDS, objective=SIMCLR, norm="twin", scheme="end-to-end")
    assert untrained(settings).of == settings


def test_evaluations_stand_on_it_without_any_training(monkeypatch):
    for engine in (AveragingSettings, SplitSettings):
        monkeypatch.delattr(engine, "trainer")
    settings = ENGINES["averaging"]()
    data = settings.load_data()
    probe = ProbeSettings(pretraining=settings, epochs=2, seed=3)
    baseline = untrained(probe)
    summary = run(baseline, progress=False).summary
    encoder = settings.build_model(data).encoder.eval()
    assert summary["linear_probe_accuracy"] == probe_accuracy(encoder, data, epochs=2, seed=3)
    assert summary["chance"] == chance(data.test.labels)
    assert isinstance(baseline.pretraining, UntrainedSettings)
    tuned = FineTuneSettings(pretraining=settings, epochs=1, warmup_epochs=0, batch=30)
    few = SemiSupervisedSettings(pretraining=ENGINES["split"](), label_fraction=0.2, epochs=1)
    for evaluation in (tuned, few):
        finished = run(untrained(evaluation), progress=False).summary
        assert 0 <= finished[f"{evaluation.measure}_accuracy"] <= 1
        assert finished["chance"] > 0.1
    renewed = untrained(probe.changed(pretraining=RenewedStatistics(pretraining=settings)))
    assert renewed.pretraining == RenewedStatistics(pretraining=baseline.pretraining)
    assert untrained(tuned.changed(scratch=True)) is None


def test_what_has_no_accuracy_has_none():
    assert untrained(InversionSettings(targets=(ENGINES["split"](),))) is None
    with pytest.raises(SettingError, match=r"of='ProbeSettings'.*settings of a training"):
        UntrainedSettings(of=ProbeSettings(pretraining=ENGINES["averaging"]()))


def test_chance_is_the_share_of_the_commonest_class():
    assert chance(torch.tensor([0, 1, 2, 3])) == 0.25
    assert chance(torch.tensor([0, 1, 1, 1])) == 0.75


def test_images_without_labels_have_no_accuracy(monkeypatch):
    load = AveragingSettings.load_data

    def unlabelled(settings, device="cpu"):
        data = load(settings, device)
        parts = (ImageSet(part.images, torch.full_like(part.labels, -1)) for part in (data.train, data.test))
        return type(data)(**vars(data) | dict(zip(("train", "test"), parts, strict=True)) | {"classes": ()})

    monkeypatch.setattr(AveragingSettings, "load_data", unlabelled)
    summary = run(untrained(ENGINES["averaging"]()), progress=False).summary
    assert math.isnan(summary["knn_accuracy"])
    assert math.isnan(summary["chance"])
    assert "linear_probe_accuracy" not in summary
