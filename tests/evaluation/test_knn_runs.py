"""kNN as an evaluation of any pre-training: on features, with the labelled images as the bank."""

import pytest

from fssl_core.data import load_dataset
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.knn_runs import KnnSettings
from fssl_core.evaluation.transfer import balanced_subset
from fssl_core.evaluation.untrained import UntrainedSettings
from fssl_core.experiments.store import run_all
from fssl_core.training.split import SplitSettings

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


def test_it_compares_features_and_not_projections(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
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
