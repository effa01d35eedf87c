"""Training on images without labels: nothing is measured that they cannot tell, and nothing else changes."""

import json
import math
from dataclasses import replace

import pytest
import torch

from fssl_core.data import ImageSet, load_dataset
from fssl_core.errors import SettingError
from fssl_core.experiments.store import run, run_all
from fssl_core.objectives import MoCoV2, SimCLR, Supervised
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.settings import FederationSettings
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_learning import SplitLearningSettings

SMALL = {
    "dataset": "digits",
    "train_images": 40,
    "architecture": "resnet10",
    "width": 4,
    "norm": "batch",
    "augmentation": "digits",
    "clients": 2,
    "rounds": 2,
    "local_epochs": 1,
    "batch": 10,
    "knn_k": 5,
    "probe_epochs": 3,
    "partition": "iid",
    "selection": "last",
}


def averaging(**values):
    return AveragingSettings(objective=SimCLR(projector=(8,))).changed(**(SMALL | values))


def layerwise(**values):
    return LayerwiseSettings(objective=MoCoV2(projector=(8,), queue_size=20)).changed(
        **(SMALL | {"image_size": None, "rounds": 4, "stages": 2} | values)
    )


def without_labels(data):
    """The same images, as a folder without classes would give them."""
    labels = torch.full_like(data.train.labels, -1)
    none = ImageSet(data.test.images[:0], data.test.labels[:0])
    return replace(data, name="photos", train=ImageSet(data.train.images, labels), test=none, classes=())


@pytest.fixture
def unlabelled(monkeypatch, tmp_path):
    """Every federation's images lose their labels."""
    load = FederationSettings.load_data
    monkeypatch.setattr(FederationSettings, "load_data", lambda s, device="cpu": without_labels(load(s, device)))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))


def trained(settings, data):
    shown = []
    trainer = settings.trainer(data, None)
    trainer.train(lambda done, total, **figures: shown.append(figures))
    return trainer, shown


@pytest.mark.parametrize("make", [averaging, layerwise])
def test_labels_change_nothing_but_the_evaluation(make):
    settings = make()
    data = settings.load_data()
    with_labels, _ = trained(settings, data)
    without, shown = trained(settings, without_labels(data))
    for name, value in with_labels.global_model().state_dict().items():
        assert torch.equal(value, without.global_model().state_dict()[name]), name
    for one, other in zip(with_labels.metrics, without.metrics, strict=True):
        assert math.isnan(other.pop("knn_accuracy"))
        assert 0 <= one.pop("knn_accuracy") <= 1
        assert one == other
    assert shown[-1].keys() == {"loss"}
    last, unlabelled = with_labels.summary(), without.summary()
    assert last.keys() - unlabelled.keys() == {"linear_probe_accuracy"}
    assert math.isnan(unlabelled["knn_accuracy"])
    assert unlabelled["best_epoch"] == settings.rounds
    assert {name: last[name] for name in unlabelled if name != "knn_accuracy"} == {
        name: value for name, value in unlabelled.items() if name != "knn_accuracy"
    }


def test_a_stored_run_has_missing_values_where_there_is_nothing_to_measure(unlabelled):
    settings = layerwise()
    frame = run_all([settings], progress=False)
    assert frame["knn_accuracy"].isna().all()
    assert frame["knn_accuracy"].dtype == float
    assert "linear_probe_accuracy" not in frame
    stored = run(settings)
    metrics = stored.table("metrics")
    assert metrics["knn_accuracy"].isna().all()
    assert metrics["loss"].notna().all()
    assert math.isnan(json.loads((stored.folder / "summary.json").read_text())["knn_accuracy"])
    backbone = settings.trained_backbone(stored, settings.load_data())
    assert backbone(torch.zeros(2, 1, 8, 8)).isfinite().all()


def test_an_interrupted_run_goes_on_to_the_same_result(unlabelled):
    settings = averaging()
    whole, _ = trained(settings, settings.load_data())
    first = settings.trainer(settings.load_data(), None)
    for _ in range(3):  # up to the first client of the second round
        first.advance()
    second = settings.trainer(settings.load_data(), None)
    second.load_state_dict(first.state_dict())
    second.train(lambda *_, **__: None)
    assert json.dumps(second.metrics) == json.dumps(whole.metrics)  # NaN is not equal to itself, its text is
    for name, value in whole.best["model"].items():
        assert torch.equal(value, second.best["model"][name])
    assert second.best["epoch"] == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"selection": "knn"}, "selection='knn' cannot be used: expected 'last', because photos has no labels"),
        ({"partition": "dirichlet:5"}, "partition='dirichlet:5' .*expected 'iid', because photos has no labels"),
        ({"partition": "one-class"}, "partition='one-class' .*expected 'iid'"),
        ({"probe_every": 1}, "probe_every=1 .*expected 0, because photos has no labels"),
    ],
)
def test_settings_that_need_labels_are_refused_before_training(values, message):
    settings = averaging(**values)
    with pytest.raises(SettingError, match=message):
        settings.trainer(without_labels(settings.load_data()), None)


def test_split_training_cannot_choose_its_best_epoch_without_labels():
    settings = SplitSettings(dataset="digits", clients=2, partition="iid", augmentation="digits", width=4)
    with pytest.raises(SettingError, match=r"selection='knn' .*'last', because photos has no labels"):
        settings.trainer(without_labels(load_dataset("digits")), None)


@pytest.mark.parametrize(
    "settings",
    [
        SplitLearningSettings(dataset="digits", clients=2, augmentation="digits", width=4),
        AveragingSettings(dataset="digits", clients=2, augmentation="digits", width=4, objective=Supervised()),
    ],
)
def test_training_with_labels_says_what_it_needs_them_for(settings):
    kind = type(settings).__name__
    with pytest.raises(SettingError, match=f"dataset='photos' .*a data set with labels, with which {kind} trains"):
        settings.trainer(without_labels(load_dataset("digits")), None)
