import dataclasses
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch import nn

from fssl_core.data import load_dataset
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.downstream import balanced_subset
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.evaluation.probe_runs import KnnSettings, ProbeSettings
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings
from fssl_core.evaluation.untrained import UntrainedSettings
from fssl_core.experiments.store import run, run_all
from fssl_core.models import GlobalPool
from fssl_core.objectives import MoCoV2
from fssl_core.random import generator
from fssl_core.settings import Settings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.split import SplitSettings

FILTERS = torch.randn(6, 1, 3, 3, generator=generator(0, "filters"))


class Filters(nn.Module):
    """A feature map of six fixed filters, [B, 1, 8, 8] to [B, 6, 6, 6]."""

    def forward(self, x):
        return F.conv2d(x, FILTERS).relu()


@dataclass(frozen=True, kw_only=True)
class Fixed(Settings):
    """A pre-training that finds six filters."""

    seed: int = 0
    dataset: str = "digits"
    pooling: bool = True

    def load_data(self, device="cpu"):
        return load_dataset(self.dataset, device=device, image_size=8).with_fewer_images(400)

    def execute(self, run, progress):
        with open(run.folder.parent / "pretrained.txt", "a") as log:
            log.write(f"{self.seed}\n")
        return {"loss": 0.0}

    def trained_backbone(self, run, data):
        assert run.finished
        return nn.Sequential(Filters(), GlobalPool()) if self.pooling else nn.Sequential(Filters(), nn.Flatten())


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    return tmp_path


def maps(images, source):
    """What the filters see of images that are normalised as those of the pre-training."""
    return F.conv2d((images / 255 - source.mean.item()) / source.std.item(), FILTERS).relu()


def pooled(images, source):
    return maps(images, source).mean((2, 3))


def flat(images, source):
    return maps(images, source).flatten(1)


# ----------------------------------------------------------------------------------------------- who has a label


def test_labelled_images_are_the_same_share_of_every_class_and_smaller_shares_parts_of_larger_ones():
    labels = torch.arange(3).repeat_interleave(torch.tensor([100, 200, 400]))
    labels = labels[torch.randperm(700, generator=generator(0, "test"))]
    few, many = (balanced_subset(labels, share, seed=4) for share in (0.01, 0.1))
    assert labels[few].bincount().tolist() == [1, 2, 4]
    assert labels[many].bincount().tolist() == [10, 20, 40]
    assert set(few.tolist()) < set(many.tolist())
    assert len(set(many.tolist())) == 70
    assert 250 < many.double().mean() < 450  # from everywhere
    assert torch.equal(few, balanced_subset(labels, 0.01, seed=4))
    assert not torch.equal(few, balanced_subset(labels, 0.01, seed=5))
    assert balanced_subset(labels, 1.0, seed=4).tolist() == list(range(700))  # all, in their order


def test_a_share_that_leaves_a_class_without_a_label_is_refused():
    labels = torch.arange(3).repeat_interleave(torch.tensor([40, 200, 400]))
    with pytest.raises(SettingError, match=r"label_fraction=0\.01 .* from 0\.025 to 1, .* smallest class's 40 images"):
        balanced_subset(labels, 0.01, 0)
    assert labels[balanced_subset(labels, 0.025, 0)].bincount().tolist() == [1, 5, 10]


# ---------------------------------------------------------------------------------------------------------- a run


@pytest.mark.parametrize(("features", "compute"), [("pooled", pooled), ("unpooled", flat)])
def test_a_run_trains_the_probe_by_its_protocol_on_features_of_the_labelled_images(features, compute):
    settings = ProbeSettings(
        pretraining=Fixed(), protocol="sgd-steps", features=features, label_fraction=0.5, seed=2, epochs=150
    )
    done = run(settings, progress=False)

    data = Fixed().load_data()
    chosen = balanced_subset(data.train.labels, 0.5, seed=2)
    labelled = compute(data.train.images[chosen], data), data.train.labels[chosen]
    test = compute(data.test.images, data), data.test.labels
    expected = linear_probe(*labelled, *test, classes=10, protocol="sgd-steps", epochs=150, seed=2)
    assert done.summary == {
        "linear_probe_accuracy": pytest.approx(expected.accuracy, abs=1e-2),
        "best_linear_probe_accuracy": pytest.approx(expected.best_accuracy, abs=1e-2),
        "labelled_images": 200,
        "chance": data.test.labels.bincount().max().item() / len(data.test.labels),
        "official_data": False,
    }
    assert done.table("metrics")["epoch"].tolist() == list(range(1, 151))
    assert done.table("metrics")["accuracy"].tolist() == pytest.approx(expected.accuracy_per_epoch, abs=1e-2)
    assert 0.15 < expected.accuracy < 1


def test_a_probe_of_standardised_features_does_not_depend_on_their_scale():
    settings = ProbeSettings(pretraining=Fixed(), standardised=True, epochs=5)
    data = Fixed().load_data()
    parts = [(pooled(part.images, data), part.labels) for part in (data.train, data.test)]
    (train_x, train_y), (test_x, test_y) = parts
    as_is, larger = (settings.train_head(s * train_x, train_y, s * test_x, test_y, 10).accuracy for s in (1, 1024))
    assert as_is == larger == pytest.approx(run(settings, progress=False).summary["linear_probe_accuracy"], abs=1e-2)
    raw = settings.changed(standardised=False)
    assert raw.train_head(1024 * train_x, train_y, 1024 * test_x, test_y, 10).accuracy != as_is


def test_accuracy_is_near_scikit_learns_logistic_regression_on_the_flattened_maps():
    done = run(ProbeSettings(pretraining=Fixed(), protocol="sgd-steps", features="unpooled"), progress=False)
    data = Fixed().load_data()
    oracle = LogisticRegression(C=10.0, max_iter=2000).fit(flat(data.train.images, data), data.train.labels)
    expected = oracle.score(flat(data.test.images, data), data.test.labels)
    assert done.summary["linear_probe_accuracy"] == pytest.approx(expected, abs=0.02)
    assert expected > 0.8


@pytest.mark.parametrize(("source", "target"), [("digits", "scattered-digits"), ("scattered-digits", "digits")])
def test_transfer_sees_another_set_at_the_size_and_with_the_statistics_of_the_pretraining(source, target):
    pretraining = Fixed(dataset=source)
    settings = ProbeSettings(pretraining=pretraining, dataset=target, features="unpooled", train_images=200, epochs=5)
    done = run(settings, progress=False)

    own, other = pretraining.load_data(), load_dataset(target, image_size=8).with_fewer_images(200)
    assert not 0.8 < own.std / other.std < 1.25  # so that the choice shows

    def probe(statistics):
        train, test = ((flat(part.images, statistics), part.labels) for part in (other.train, other.test))
        return linear_probe(*train, *test, classes=10, epochs=5).accuracy_per_epoch

    accuracies = done.table("metrics")["accuracy"].tolist()
    assert accuracies == pytest.approx(probe(own), abs=3e-3)
    assert accuracies != pytest.approx(probe(other), abs=3e-3)
    assert done.summary["labelled_images"] == 200


def test_a_probe_is_of_official_data_where_both_sets_are(monkeypatch):
    load = Fixed.load_data
    monkeypatch.setattr(Fixed, "load_data", lambda *of: dataclasses.replace(load(*of), official=True))
    own = ProbeSettings(pretraining=Fixed(), epochs=1)
    other = own.changed(dataset="scattered-digits", train_images=100)
    assert [run(probe, progress=False).summary["official_data"] for probe in (own, other)] == [True, False]


def test_probes_share_their_pretraining_are_found_again_and_repeat_to_the_bit(runs):
    sweep = [
        ProbeSettings(pretraining=Fixed(seed=seed), protocol=protocol, epochs=2)
        for seed in (0, 1)
        for protocol in ("adam-cosine", "sgd-steps")
    ]
    frame = run_all([*sweep, SemiSupervisedSettings(pretraining=Fixed(), label_fraction=0.1, epochs=1)], progress=False)
    assert (runs / "pretrained.txt").read_text() == "0\n1\n"
    assert frame["protocol"].tolist()[:4] == ["adam-cosine", "sgd-steps"] * 2
    assert frame["pretraining.seed"].tolist() == [0, 0, 1, 1, 0]
    assert frame["linear_probe_accuracy"].tolist()[:2] == frame["linear_probe_accuracy"].tolist()[2:4]  # same filters

    tables = [(runs / item.key / "metrics.csv").read_bytes() for item in sweep]
    written = [(runs / item.key / "summary.json").stat().st_mtime_ns for item in sweep]
    run_all(sweep, progress=False)
    assert [(runs / item.key / "summary.json").stat().st_mtime_ns for item in sweep] == written
    for item in sweep:
        (runs / item.key / "summary.json").unlink()
    run_all(sweep, progress=False)
    assert [(runs / item.key / "metrics.csv").read_bytes() for item in sweep] == tables


TINY = {
    "dataset": "digits",
    "train_images": 200,
    "architecture": "resnet10",
    "width": 4,
    "clients": 5,
    "probe_epochs": 4,
}


@pytest.mark.parametrize(
    "pretraining",
    [
        AveragingSettings(**TINY, rounds=1, local_epochs=1, batch=20, objective=MoCoV2(projector=(8, 4))),
        SplitSettings(**TINY, epochs=1, cut_layer=3, queue_size=40, projector_hidden=8, projector_dim=4),
    ],
    ids=["averaging", "split"],
)
def test_with_the_defaults_it_is_the_probe_that_a_federation_reports(pretraining):
    probe = ProbeSettings(pretraining=pretraining, epochs=4, seed=pretraining.seed)
    pooled, flat = run_all([probe, probe.changed(features="unpooled")], progress=False).to_dict("records")
    assert pooled["linear_probe_accuracy"] == run(pretraining, progress=False).summary["linear_probe_accuracy"]
    assert flat["labelled_images"] == pooled["labelled_images"] == 200


def test_what_cannot_be_probed_is_refused_before_anything_is_pretrained(runs):
    for setting, message in [
        ({"pretraining": Settings()}, "pretraining='Settings' cannot be used: expected settings with load_data and"),
        ({"protocol": "adam"}, "protocol='adam' cannot be used: expected one of adam-cosine, sgd-steps"),
        ({"features": "all"}, "features='all' cannot be used: expected one of pooled, unpooled"),
        ({"label_fraction": 0}, r"label_fraction=0\.0 cannot be used"),
        ({"epochs": 0}, "epochs=0 cannot be used: expected at least 1"),
        ({"train_images": 100}, "train_images=100 cannot be used: expected None unless dataset names another"),
    ]:
        with pytest.raises(SettingError, match=message):
            ProbeSettings(**({"pretraining": Fixed()} | setting))
    for setting, message in [
        ({"label_fraction": 0.01}, r"label_fraction=0\.01 .* smallest class's 40 images"),
        ({"dataset": "digits", "train_images": 99}, "train_images=99 cannot be used: expected a multiple of 10"),
    ]:
        with pytest.raises(SettingError, match=message):
            run(ProbeSettings(pretraining=Fixed(), **setting), progress=False)
    with pytest.raises(DataError, match="The set 'nowhere' is not at"):
        run(ProbeSettings(pretraining=Fixed(), dataset="nowhere"), progress=False)
    assert not (runs / "pretrained.txt").exists()
    with pytest.raises(SettingError, match="'pooled', because the pre-trained backbone ends in Flatten"):
        run(ProbeSettings(pretraining=Fixed(pooling=False), features="unpooled"), progress=False)


def test_transfer_to_images_with_other_channels_is_refused(tmp_path, monkeypatch):
    from torchvision.utils import save_image

    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    for part in ("train", "test"):
        for name in ("left", "right"):
            folder = tmp_path / "data" / "colours" / part / name
            folder.mkdir(parents=True)
            save_image(torch.rand(3, 8, 8, generator=generator(0, name)), folder / "0.png")
    with pytest.raises(SettingError, match="dataset='colours' cannot be used: expected a data set with 1 channels"):
        run(ProbeSettings(pretraining=Fixed(), dataset="colours"), progress=False)


def test_a_pretraining_on_images_without_labels_is_evaluated_on_a_named_data_set_only(runs, tmp_path, monkeypatch):
    for number in range(2):
        path = tmp_path / "data" / "photos" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (90 * number, 0, 0)).save(path)
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    photos = AveragingSettings(dataset="photos", partition="iid", selection="last")
    for kind in (ProbeSettings, FineTuneSettings):
        with pytest.raises(SettingError, match=r"dataset=None .*labelled data set, because photos, of"):
            run(kind(pretraining=photos), progress=False)
    with pytest.raises(SettingError, match="dataset='photos' cannot be used: expected a labelled data set"):
        run(ProbeSettings(pretraining=Fixed(), dataset="photos"), progress=False)
    assert not (runs / "pretrained.txt").exists()  # found before any training


# ------------------------------------------------------------------------------------------------------- kNN

SPLIT = SplitSettings(
    dataset="digits",
    augmentation="digits",
    train_images=200,
    architecture="resnet10",
    width=4,
    cut_layer=1,
    clients=4,
    client_batch=5,
    projector_hidden=8,
    projector_dim=4,
    queue_size=10,
    seed=0,
)


def test_knn_compares_features_and_not_projections():
    pretraining = UntrainedSettings(of=SPLIT)
    settings = [KnnSettings(pretraining=pretraining, k=5, label_fraction=share) for share in (1.0, 0.25)]
    found = run_all(settings, progress=False)
    data = load_dataset("digits").with_fewer_images(200)
    backbone = pretraining.trained_backbone(None, data)
    bank, queries = (extract(backbone, part.images, data.normalise) for part in (data.train, data.test))
    for share, accuracy, images in zip((1.0, 0.25), found["knn_accuracy"], found["labelled_images"], strict=True):
        own = balanced_subset(data.train.labels, share, 0)
        assert images == len(own)
        expected = knn_accuracy(bank[own], data.train.labels[own], queries, data.test.labels, k=5)
        assert accuracy == pytest.approx(expected, abs=1e-12)


def test_no_neighbours_are_refused():
    with pytest.raises(SettingError, match="k=0 cannot be used"):
        KnnSettings(pretraining=SPLIT, k=0)
