from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.data import load_dataset
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings, labelled_subset
from fssl_core.experiments.store import run, run_all
from fssl_core.random import generator
from fssl_core.settings import Settings
from tests.evaluation.test_linear_probe import blobs

# ------------------------------------------------------------------------------------------------- training a head


def semi_supervised(*data, classes, **settings):
    return SemiSupervisedSettings(pretraining=Half(), **settings).train_head(*data, classes)


def plain_training(start, x, y, *, epochs, batch, learning_rate, decay_epochs, seed):
    """The same training by hand in float64: batch norm as a formula, plain Adam, the rate from the epoch's number."""
    weight1, gain, shift, weight2, bias2 = values = [p.detach().double().requires_grad_() for p in start]
    running_mean, running_variance = torch.zeros(len(gain)).double(), torch.ones(len(gain)).double()
    optimizer = torch.optim.Adam(values, foreach=False, fused=False)

    def logits(x, mean, variance):
        hidden = (x @ weight1.T - mean) / (variance + 1e-5).sqrt() * gain + shift
        return hidden.clamp(min=0) @ weight2.T + bias2

    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = learning_rate * 0.1 ** sum(epoch >= decay for decay in decay_epochs)
        order = torch.randperm(len(x), generator=generator(seed, "head", epoch))
        for first in range(0, len(x) - 1, batch):  # a last step of one image is left out
            rows = order[first : first + batch]
            before_norm = x[rows] @ weight1.T
            variance, mean = torch.var_mean(before_norm, 0, correction=0)
            optimizer.zero_grad()
            F.cross_entropy(logits(x[rows], mean, variance), y[rows]).backward()
            optimizer.step()
            running_mean = 0.9 * running_mean + 0.1 * mean.detach()
            running_variance = 0.9 * running_variance + 0.1 * before_norm.detach().var(0)  # the unbiased one
    return values, lambda x: logits(x, running_mean, running_variance)


@pytest.mark.parametrize("labels", [100, 97])  # the last step of an epoch has 4 images, or a single one
def test_training_equals_a_loop_by_hand(labels):
    (x, y), test = blobs(labels, seed=1), blobs(200, seed=2)
    settings = {"epochs": 12, "batch": 32, "learning_rate": 0.01, "decay_epochs": (6, 9), "seed": 3}
    shape = {"classes": 5, "hidden": 16}
    start = semi_supervised(x, y, *test, **shape, **(settings | {"epochs": 1, "learning_rate": 0.0}))  # never moves
    values, logits = plain_training(start.head.parameters(), x.double(), y, **settings)
    result = semi_supervised(x, y, *test, **shape, **settings)
    for parameter, expected in zip(result.head.parameters(), values, strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(result.head(test[0]).double(), logits(test[0].double()), rtol=0, atol=1e-3)
    assert result.accuracy == (logits(test[0].double()).argmax(1) == test[1]).double().mean().item()
    assert 0.8 < result.accuracy < 1
    assert (result.head[0].weight - start.head[0].weight).abs().max() > 0.05


def test_initial_weights_are_those_of_linear_layers():
    x, y = torch.randn(20, 400, generator=torch.Generator().manual_seed(0)), torch.zeros(20, dtype=torch.int64)
    head = semi_supervised(x, y, x, y, classes=50, hidden=300, epochs=1, learning_rate=0.0).head
    assert [type(layer) for layer in head] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert (head[0].weight.shape, head[3].weight.shape) == ((300, 400), (50, 300))
    for layer in (head[0], head[3]):
        bound = layer.in_features**-0.5  # nn.Linear: uniform within 1 / sqrt(inputs)
        for values in layer.parameters():
            assert values.abs().max() <= bound
            assert values.std() == pytest.approx(bound / 3**0.5, rel=0.2)


def test_equal_arguments_give_equal_bits_another_seed_does_not_and_global_random_state_stays():
    state = torch.get_rng_state()
    train, test = blobs(50, seed=1), blobs(50, seed=2)
    first, again, other = (semi_supervised(*train, *test, classes=5, epochs=3, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.head[0].weight, again.head[0].weight)
    assert first.accuracy_per_epoch == again.accuracy_per_epoch
    assert not torch.equal(first.head[0].weight, other.head[0].weight)
    assert torch.equal(state, torch.get_rng_state())


def test_last_epoch_is_reported_and_the_best_given_beside_it():
    result = semi_supervised(*blobs(30, seed=1, spread=3.0), *blobs(60, seed=2, spread=3.0), classes=5, epochs=40)
    assert len(result.accuracy_per_epoch) == 40
    assert result.accuracy == result.accuracy_per_epoch[-1]
    assert result.best_accuracy == max(result.accuracy_per_epoch) > result.accuracy


def test_a_class_without_labels_is_allowed_and_what_cannot_be_trained_is_refused():
    (x, y), test = blobs(60, seed=1), blobs(30, seed=2)
    assert semi_supervised(x[y > 0], y[y > 0], *test, classes=5, epochs=1).accuracy > 0
    with pytest.raises(DataError, match="Labels of the labelled images span 0 to 4: expected 0 to 3"):
        semi_supervised(x, y, *test, classes=4)
    with pytest.raises(DataError, match="features of the test set are not all finite"):
        semi_supervised(x, y, test[0] / 0, test[1], classes=5)
    with pytest.raises(DataError, match="at least 2 labelled images, got 1"):
        semi_supervised(x[:1], y[:1], *test, classes=5)


# ------------------------------------------------------------------------------------------------ who has a label


def test_labelled_images_are_a_random_share_and_a_smaller_share_is_part_of_a_larger_one():
    few, many = (labelled_subset(5000, share, seed=4) for share in (0.01, 0.1))
    assert (len(few), len(many)) == (50, 500)
    assert torch.equal(few, many[:50])
    assert len(set(many.tolist())) == 500
    assert 2000 < many.double().mean() < 3000  # from everywhere
    assert not torch.equal(few, labelled_subset(5000, 0.01, seed=5))
    assert len(labelled_subset(50_000, 0.01, 0)) == 500  # the paper's
    assert labelled_subset(7, 1.0, 0).sort().values.tolist() == list(range(7))


def test_too_few_labels_are_refused():
    with pytest.raises(SettingError, match=r"label_fraction=0\.001 cannot be used: expected a share from 0\.02 to 1"):
        labelled_subset(100, 0.001, 0)
    assert len(labelled_subset(100, 0.02, 0)) == 2


# ---------------------------------------------------------------------------------------------------------- a run


class Upper(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, x):
        return x[:, :, : self.rows]


@dataclass(frozen=True, kw_only=True)
class Half(Settings):
    """A pre-training that learns to see the upper half of an image."""

    seed: int = 0

    def load_data(self, device="cpu"):
        return load_dataset("digits", device=device).with_fewer_images(400)

    def execute(self, run, progress):
        with open(run.folder.parent / "pretrained.txt", "a") as log:
            log.write(f"{self.seed}\n")
        run.save_tensors("best", {"rows": torch.tensor(4)})
        return {"loss": 0.0}

    def trained_backbone(self, run, data):
        return Upper(int(run.tensors("best")["rows"]))


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    return tmp_path


def test_a_run_trains_the_head_on_features_of_the_pretrained_backbone_of_the_labelled_images():
    settings = SemiSupervisedSettings(pretraining=Half(), label_fraction=0.1, seed=2, epochs=9, learning_rate=0.05)
    done = run(settings, progress=False)

    data = Half().load_data()
    chosen = torch.randperm(400, generator=generator(2, "labelled images"))[:40]
    pixels = [data.normalise(images)[:, :, :4].flatten(1) for images in (data.train.images, data.test.images)]
    labelled, test = (pixels[0][chosen], data.train.labels[chosen]), (pixels[1], data.test.labels)
    expected = semi_supervised(*labelled, *test, classes=10, epochs=9, learning_rate=0.05, seed=2)
    assert done.summary["semi_supervised_accuracy"] == pytest.approx(expected.accuracy, abs=1e-3)
    assert 0.3 < expected.accuracy < 1
    assert done.summary["labelled_images"] == 40
    assert done.summary["official_data"] is False
    metrics = done.table("metrics")
    assert metrics["epoch"].tolist() == list(range(1, 10))
    assert metrics["accuracy"].iloc[-1] == done.summary["semi_supervised_accuracy"]
    assert metrics["accuracy"].max() == done.summary["best_semi_supervised_accuracy"]


def test_runs_that_differ_in_the_head_share_their_pretraining(runs):
    sweep = [
        SemiSupervisedSettings(pretraining=Half(seed=seed), label_fraction=share, epochs=1)
        for seed in (0, 1)
        for share in (0.05, 0.5)
    ]
    frame = run_all(sweep, progress=False)
    assert frame["pretraining.seed"].tolist() == [0, 0, 1, 1]
    assert frame["labelled_images"].tolist() == [20, 200, 20, 200]
    assert (runs / "pretrained.txt").read_text() == "0\n1\n"


def test_wrong_settings_are_refused_before_anything_is_pretrained(runs):
    for setting, message in [
        ({"pretraining": Settings()}, "pretraining='Settings' cannot be used: expected settings with load_data and"),
        ({"label_fraction": 0}, "label_fraction=0.0 cannot be used"),
        ({"label_fraction": 1.5}, "label_fraction=1.5 cannot be used"),
        ({"hidden": 0}, "hidden=0 cannot be used: expected at least 1"),
        ({"epochs": 0}, "epochs=0 cannot be used: expected at least 1"),
        ({"batch": 1}, "batch=1 cannot be used: expected at least 2"),
        ({"learning_rate": -1}, "learning_rate=-1.0 cannot be used: expected at least 0"),
        ({"decay_epochs": [60, 0]}, "decay_epochs=0 cannot be used"),
    ]:
        with pytest.raises(SettingError, match=message):
            SemiSupervisedSettings(**({"pretraining": Half()} | setting))
    with pytest.raises(SettingError, match="leaves at least 2 of 400 images a label"):
        run(SemiSupervisedSettings(pretraining=Half(), label_fraction=0.003), progress=False)
    assert not (runs / "pretrained.txt").exists()


@pytest.mark.gpu
def test_cuda_trains_the_same_head():
    tensors = (*blobs(100, seed=1), *blobs(100, seed=2))
    on_cpu = semi_supervised(*tensors, classes=5, epochs=5)
    on_cuda = semi_supervised(*(tensor.cuda() for tensor in tensors), classes=5, epochs=5)
    torch.testing.assert_close(on_cuda.head[0].weight.cpu(), on_cpu.head[0].weight, rtol=0, atol=1e-3)
