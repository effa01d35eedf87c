from dataclasses import dataclass

import pytest
import torch

from fssl_core.data.datasets import load_dataset
from fssl_core.errors import SettingError
from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.renewed_statistics import RenewedStatistics
from fssl_core.experiments.store import run, run_all
from fssl_core.models import TwinNorm, build_backbone
from fssl_core.random import generator
from fssl_core.settings import Settings


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    return tmp_path


@dataclass(frozen=True, kw_only=True)
class Fixed(Settings):
    """A pre-training that leaves an untrained model, whose first statistics are wrong by a factor."""

    factor: float = 1.0

    def load_data(self, device="cpu"):
        return load_dataset("digits", device=device, image_size=8).with_fewer_images(300)

    def execute(self, run, progress):
        with open(run.folder.parent / "pretrained.txt", "a") as log:
            log.write(f"{self.factor:g}\n")
        return {"loss": 0.0}

    def trained_backbone(self, run, data):
        assert run.finished
        draw = generator(0, "initialise")
        model = build_backbone("resnet10", width=4, norm="batch", image_size=8, channels=1, generator=draw)
        model[0][1].running_var.mul_(self.factor)
        return model.eval().requires_grad_(False)


def test_what_the_server_made_of_the_statistics_makes_no_difference_any_more():
    data = Fixed().load_data()
    images = data.normalise(data.test.images[:20])
    plain, renewed = [], []
    for factor in (1.0, 9.0):
        for pretraining, features in ((Fixed(factor=factor), plain), (None, renewed)):
            pretraining = pretraining or RenewedStatistics(pretraining=Fixed(factor=factor))
            features.append(pretraining.trained_backbone(run(pretraining, progress=False), data)(images))
    assert not torch.allclose(*plain, rtol=0.1)
    assert torch.equal(*renewed)


def test_a_probe_takes_such_a_model_and_shares_its_pretraining(runs):
    probe = ProbeSettings(pretraining=Fixed(), epochs=2)
    again = probe.changed(pretraining=RenewedStatistics(pretraining=Fixed()))
    frame = run_all([probe, again], progress=False)
    assert frame["linear_probe_accuracy"].between(0, 1).all()
    assert (runs / "pretrained.txt").read_text() == "1\n"


def test_what_leaves_no_backbone_is_refused():
    with pytest.raises(SettingError, match=r"pretraining='Settings' .*trained_backbone"):
        RenewedStatistics(pretraining=Settings())


def test_twin_norm_takes_no_images_for_pairs():
    """Of a model with both norms only batch norm looks at the batch, whose number may be odd."""
    layers = [torch.nn.Conv2d(1, 8, 3), TwinNorm(8), torch.nn.BatchNorm2d(8)]
    model, data = torch.nn.Sequential(*layers), Fixed().load_data()
    renewed = with_statistics_of(model, data.train, data.normalise, batch=43)
    expected = model[:2].eval()(data.normalise(data.train.images)).mean((0, 2, 3))
    torch.testing.assert_close(renewed[2].running_mean, expected)
