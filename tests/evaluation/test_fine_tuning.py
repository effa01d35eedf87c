import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.data import load_dataset
from fssl_core.data.randaugment import RandAugment
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.fine_tuning import FineTuneSettings, FineTuning
from fssl_core.evaluation.metrics import classification_metrics, mean_over_batches
from fssl_core.experiments.store import run, run_all
from fssl_core.models import GlobalPool, TwinNorm, build_backbone
from fssl_core.models.heads import MLP
from fssl_core.objectives import MoCoV3, SimCLR
from fssl_core.random import generator
from fssl_core.settings import Settings
from fssl_core.training.averaging import AveragingSettings
from tests.saving import save_each


@dataclass(frozen=True, kw_only=True)
class Fixed(Settings):
    """A pre-training that finds the same small network every time, and gives it frozen, as trainers do."""

    seed: int = 0

    def load_data(self, device="cpu"):
        return load_dataset("digits", device=device, image_size=8).with_fewer_images(200)

    def execute(self, run, progress):
        (run.folder.parent / "pretrained.txt").write_text("yes")
        return {"loss": 0.0}

    def build_backbone(self, data, init):
        return build_backbone("resnet10", width=4, norm="batch", image_size=8, channels=1, generator=init)

    def trained_backbone(self, run, data):
        assert run.finished
        backbone = self.build_backbone(data, generator(self.seed, "pretrained"))
        return nn.Sequential(backbone, GlobalPool()).eval().requires_grad_(False)


QUICK = {"pretraining": Fixed(), "epochs": 3, "warmup_epochs": 1, "batch": 64, "base_learning_rate": 4e-2}


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    return tmp_path


def test_rate_rises_by_step_falls_as_a_cosine_and_scales_with_the_batch():
    rate = FineTuneSettings(pretraining=Fixed()).learning_rate  # the paper's: 40 epochs, 10 of them warm-up
    assert rate(0) == 0
    assert rate(2.5) == pytest.approx(0.25e-3)
    assert rate(10) == pytest.approx(1e-3)
    assert rate(25) == pytest.approx(0.5e-3)  # half of the 30 epochs
    assert rate(20) == pytest.approx(1e-3 * math.cos(math.pi / 6) ** 2)
    assert rate(39.99) < 1e-9
    assert FineTuneSettings(pretraining=Fixed(), batch=128).learning_rate(10) == pytest.approx(0.5e-3)
    assert FineTuneSettings(pretraining=Fixed(), warmup_epochs=0).learning_rate(0) == 1e-3
    assert FineTuneSettings(pretraining=Fixed(), warmup_epochs=40).learning_rate(39) == pytest.approx(0.975e-3)


def test_training_equals_adamw_by_hand():
    settings = FineTuneSettings(
        **QUICK, augmentation=RandAugment(operations=0), weight_decay=0.1, precision="float64", seed=3
    )
    done = run(settings, progress=False)

    data = Fixed().load_data()
    train, test = (data.normalise(part.images, torch.float64) for part in (data.train, data.test))
    head = MLP(32, (10,), generator=generator(3, "fine-tune head"))
    backbone = Fixed().build_backbone(data, generator(0, "pretrained"))
    model = nn.Sequential(backbone, GlobalPool(), head).double()
    first, second, steps = {}, {}, 0
    for epoch in range(3):
        model.train()
        order, losses = torch.randperm(200, generator=generator(3, "fine-tune", epoch)), []
        for step, first_row in enumerate(range(0, 200, 64)):  # 64, 64, 64 and 8 images
            rows = order[first_row : first_row + 64]
            loss = F.cross_entropy(model(train[rows]), data.train.labels[rows])
            model.zero_grad()
            loss.backward()
            time, steps = epoch + step / 4, steps + 1
            rate = 1e-2 * (time if time < 1 else 0.5 + 0.5 * math.cos(math.pi * (time - 1) / 2))
            with torch.no_grad():
                for p in model.parameters():
                    first[p] = 0.9 * first.get(p, 0) + 0.1 * p.grad
                    second[p] = 0.999 * second.get(p, 0) + 0.001 * p.grad**2
                    p -= rate * 0.1 * p
                    p -= rate * (first[p] / (1 - 0.9**steps)) / ((second[p] / (1 - 0.999**steps)).sqrt() + 1e-8)
            losses.append(loss.item())
        row = done.table("metrics").loc[epoch]
        with torch.no_grad():
            predictions = model.eval()(test).argmax(1)
        assert row["loss"] == pytest.approx(sum(losses) / 4, rel=1e-9)
        assert row["accuracy"] == (predictions == data.test.labels).double().mean().item()
    whole = classification_metrics(predictions, data.test.labels, 10)
    by_batch = mean_over_batches(predictions, data.test.labels, 10, 64)
    assert done.summary == {
        "fine_tune_accuracy": whole.accuracy,
        "fine_tune_precision": whole.precision,
        "fine_tune_recall": whole.recall,
        "fine_tune_f1": whole.f1,
        "fine_tune_mean_per_class_accuracy": whole.mean_per_class_accuracy,
        "fine_tune_batch_precision": by_batch.precision,
        "fine_tune_batch_recall": by_batch.recall,
        "fine_tune_batch_f1": by_batch.f1,
        "fine_tune_batch_mean_per_class_accuracy": by_batch.mean_per_class_accuracy,
        "best_fine_tune_accuracy": done.table("metrics")["accuracy"].max(),
        "labelled_images": 200,
        "chance": data.test.labels.bincount().max().item() / len(data.test.labels),
        "official_data": False,
    }
    assert 0.2 < whole.accuracy < 1


def test_every_image_is_augmented_anew_in_every_epoch(monkeypatch):
    drawn, draw = [], RandAugment.draw
    monkeypatch.setattr(RandAugment, "draw", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    run(FineTuneSettings(**QUICK), progress=False)
    rows = torch.cat(drawn)
    assert len(rows.unique(dim=0)) == len(rows) == 3 * 200


def test_an_interrupted_run_goes_on_to_the_same_bits(runs, monkeypatch):
    save_each(monkeypatch)
    settings = FineTuneSettings(**QUICK)
    table = (run(settings, progress=False).folder / "metrics.csv").read_bytes()
    summary = run(settings, progress=False).summary
    assert not list(run(settings, progress=False).folder.glob("checkpoint*"))

    whole_epoch, calls = FineTuning.train_epoch, []

    def interrupted(tuning):
        calls.append(len(tuning.rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        whole_epoch(tuning)

    monkeypatch.setattr(FineTuning, "train_epoch", interrupted)
    (runs / settings.key / "summary.json").unlink()
    (runs / settings.key / "metrics.csv").unlink()
    with pytest.raises(KeyboardInterrupt):
        run(settings, progress=False)
    again = run(settings, progress=False)
    assert calls == [0, 1, 2, 2]
    assert (again.folder / "metrics.csv").read_bytes() == table
    assert again.summary == summary


def test_augmentation_and_seed_change_the_result_and_the_last_single_image_is_left_out():
    labelled = {"label_fraction": 0.65, "batch": 43, "epochs": 2}  # 130 images: 43, 43, 43 and a single one
    settings = FineTuneSettings(**(QUICK | labelled))
    frame = run_all(
        [settings, settings.changed(augmentation=RandAugment(operations=0)), settings.changed(seed=1)], progress=False
    )
    assert frame["fine_tune_accuracy"].nunique() + frame["fine_tune_f1"].nunique() > 3
    assert frame["labelled_images"].tolist() == [130] * 3
    assert frame["augmentation.operations"].tolist() == [2, 0, 2]


def test_from_scratch_nothing_is_pretrained_and_the_same_network_is_trained(runs):
    scratch = FineTuneSettings(**QUICK, scratch=True, seed=5)
    run(scratch, progress=False)
    assert not (runs / "pretrained.txt").exists()
    source = Fixed().load_data()
    expected = Fixed().build_backbone(source, generator(5, "initialise")).state_dict()
    start = scratch.starting_model(None, source)
    assert all(torch.equal(value, expected[name.removeprefix("0.")]) for name, value in start.state_dict().items())
    run(scratch.changed(scratch=False), progress=False)
    assert (runs / "pretrained.txt").exists()


def test_a_federated_transformer_is_fine_tuned_on_another_data_set():
    pretraining = AveragingSettings(
        dataset="digits", image_size=8, train_images=100, architecture="vit4", width=4, norm="layer", clients=5,
        batch=20, rounds=1, local_epochs=1, probe_epochs=0, objective=MoCoV3(projector=(8, 8, 4), predictor=(8, 4)),
    )  # fmt: skip
    settings = FineTuneSettings(
        pretraining=pretraining, dataset="scattered-digits", train_images=200, epochs=2, warmup_epochs=1, batch=50
    )
    done = run(settings, progress=False)
    assert done.summary["labelled_images"] == 200
    assert done.table("metrics")["epoch"].tolist() == [1, 2]
    assert 0 < done.summary["fine_tune_accuracy"] < 1
    source = pretraining.load_data()
    start = settings.starting_model(done, source)
    tuning = FineTuning(settings, start, source, settings.evaluation_data(source), torch.arange(200))
    before = {name: value.clone() for name, value in start.state_dict().items()}
    tuning.train_epoch()
    moved = {name for name, value in start.state_dict().items() if not torch.equal(value, before[name])}
    assert set(before) - moved == {"0.embed.positions"}  # everything is trained


def test_images_of_another_set_are_normalised_as_those_of_the_pretraining():
    still = QUICK | {"epochs": 1, "warmup_epochs": 0, "batch": 200, "base_learning_rate": 0.0}
    augmentation = RandAugment(operations=0)
    settings = FineTuneSettings(**still, dataset="scattered-digits", train_images=200, augmentation=augmentation)
    source = Fixed().load_data()
    data = settings.evaluation_data(source)
    backbone = nn.Sequential(Fixed().build_backbone(source, generator(0, "pretrained")), GlobalPool())
    tuning = FineTuning(settings, backbone, source, data, torch.arange(200))
    tuning.train_epoch()
    model, labels = tuning.model.train(), data.train.labels
    losses = [F.cross_entropy(model(of.normalise(data.train.images)), labels).item() for of in (source, data)]
    assert tuning.rows[0]["loss"] == pytest.approx(losses[0], rel=1e-5)
    assert tuning.rows[0]["loss"] != pytest.approx(losses[1], rel=1e-3)


def test_a_loss_that_is_not_finite_is_named():
    with pytest.raises(NonFiniteLossError, match=r"in epoch \d of fine-tuning; .* Lower base_learning_rate=1e\+30"):
        run(FineTuneSettings(**(QUICK | {"base_learning_rate": 1e30})), progress=False)


def test_what_cannot_be_fine_tuned_is_refused_before_anything_is_pretrained(runs):
    for setting, message in [
        ({"pretraining": Settings()}, "pretraining='Settings' cannot be used: expected settings with load_data and"),
        ({"epochs": 0}, "epochs=0 cannot be used: expected at least 1"),
        ({"warmup_epochs": 4}, "warmup_epochs=4 cannot be used: expected a number from 0 to 3"),
        ({"batch": 1}, "batch=1 cannot be used: expected at least 2"),
        ({"precision": "half"}, "precision='half' cannot be used: expected one of float32, bfloat16, float64"),
        ({"augmentation": "rand"}, r"augmentation='rand' cannot be used: expected RandAugment\(\)"),
        ({"train_images": 100}, "train_images=100 cannot be used: expected None unless dataset names another"),
    ]:
        with pytest.raises(SettingError, match=message):
            FineTuneSettings(**(QUICK | setting))
    with pytest.raises(SettingError, match=r"label_fraction=0\.01 .* smallest class's 20 images"):
        run(FineTuneSettings(**QUICK, label_fraction=0.01), progress=False)
    assert not (runs / "pretrained.txt").exists()


def test_images_of_a_batch_are_no_pairs_for_twin_norm():
    pretraining = AveragingSettings(
        dataset="digits", image_size=8, architecture="resnet10", width=8, norm="twin", augmentation="digits", clients=2,
        objective=SimCLR(projector=(8,)),
    )  # fmt: skip
    data = pretraining.load_data()
    settings = FineTuneSettings(pretraining=pretraining, epochs=1, warmup_epochs=0, batch=64, precision="float32")
    backbone = pretraining.backbone(pretraining.build_model(data))
    FineTuning(settings, backbone, data, data, torch.arange(45)).train_epoch()  # an odd number
    twins = [layer for layer in backbone.modules() if isinstance(layer, TwinNorm)]
    assert twins
    assert not any(layer.training for layer in twins)
