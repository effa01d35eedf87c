"""Engines, objectives, rules, evaluations and attacks on a device that refuses what a GPU refuses."""

import dataclasses

import pandas as pd
import pytest
import torch

from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.landscape_runs import LandscapeSettings
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.renewed_statistics import RenewedStatistics
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings
from fssl_core.experiments.store import run
from fssl_core.federation.aggregation import COORDINATE_RULES, MORE_THAN_TWICE, ROBUST_RULES, RULES
from fssl_core.objectives import SimCLR
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.checkpoint import Checkpoint
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.resistance import ResistanceSettings
from fssl_core.training.split import SplitSettings
from tests.pretended_device import PretendedDevice
from tests.training.every_engine import ENGINES, averaging, patterns, train, trainer


def moved(place: PretendedDevice):
    data = patterns()
    return dataclasses.replace(data, train=data.train.to(place.device), test=data.test.to(place.device))


def losses(ours) -> list[float]:
    return [row["loss"] for row in ours.metrics]


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_trains_evaluates_stops_and_goes_on(name, tmp_path):
    plain = trainer(name, precision="float32")
    train(plain)
    with PretendedDevice() as place:
        first = trainer(name, place.device, precision="float32")
        first.advance()
        Checkpoint(tmp_path).save(first.state_dict())
        ours = trainer(name, place.device, precision="float32")
        ours.load_state_dict(Checkpoint(tmp_path).load())
        train(ours)
        summary, tables = ours.summary(), ours.tables()
    # A GPU runs all clients in one call, which rounds elsewhere; what is trained on that differs a little more.
    assert losses(ours) == pytest.approx(losses(plain), rel=0.05, abs=0.02)
    assert losses(ours)[0] == pytest.approx(losses(plain)[0], rel=1e-3, abs=1e-4)
    assert set(summary) == set(plain.summary())
    assert tables["traffic"].equals(plain.tables()["traffic"])


@pytest.mark.parametrize(("norm", "together"), [("group", True), ("batch", False)])
def test_views_go_through_the_encoder_in_one_call_unless_batch_norm_mixes_them(norm, together):
    plain, calls = trainer("BYOL", precision="float64", norm=norm), []
    views = plain.views(*plain.batches(0, 0)[0]).double()
    expected = plain.learner.loss(views)[0].item()
    with PretendedDevice() as place:
        ours = trainer("BYOL", place.device, precision="float64", norm=norm)
        ours.learner.online.encoder.register_forward_hook(lambda *call: calls.append(len(call[2])))
        found = ours.learner.loss(views.to(place.device))[0].item()
    assert found == pytest.approx(expected, abs=1e-10)
    assert calls == ([2 * views.shape[1]] if together else [views.shape[1]] * 2)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_views_of_several_steps_are_made_in_one_call(steps):
    plain = trainer("SimCLR", precision="float32", batch=5, incomplete_batch="kept")
    batches = plain.batches(0, 0)
    assert len(batches) > 2
    assert len(batches[-1][0]) < 5
    with PretendedDevice() as place:
        ours = trainer("SimCLR", place.device, precision="float32", batch=5, incomplete_batch="kept")
        image = ours.data.train.images[0].numel() * 4
        ours.bytes_of_views = steps * 2 * 5 * image
        calls, views = [], ours.views
        ours.views = lambda *batch: calls.append(len(batch[0])) or views(*batch)
        made = list(ours.prepared(ours.batches(0, 0)))
        assert sum(calls) == sum(len(rows) for rows, _ in batches)
        assert len(calls) == -(-len(batches) // steps)
        for (rows, found), (numbers, expected) in zip(made, plain.prepared(batches), strict=True):
            assert torch.equal(rows.cpu(), numbers)
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 10])
@pytest.mark.parametrize("symmetric", [True, False])
def test_so_are_those_of_split_clients(steps, symmetric):
    values = {"precision": "float32", "client_batch": 4, "symmetric": symmetric}
    plain = trainer("split, MonAcoSFL", **values)
    order, draws = plain.start_epoch()
    assert plain.steps_per_epoch > 2
    assert list(plain.clients.prepared(order, draws)) == [None] * plain.steps_per_epoch
    with PretendedDevice() as place:
        ours = trainer("split, MonAcoSFL", place.device, **values)
        calls, two_views = [], ours.clients.two_views
        ours.clients.two_views = lambda *batch: calls.append(batch[0].shape[1]) or two_views(*batch)
        ours.clients.bytes_of_views = steps * 2 * 4 * 2 * ours.data.train.images[0].numel() * 4
        made = list(ours.clients.prepared(*ours.start_epoch()))
        assert max(calls) <= steps * 4
        assert sum(calls) == 4 * plain.steps_per_epoch
        for step, views in enumerate(made):
            of_step = plain.data.train.images[order[:, step]], draws[:, step]
            for found, expected in zip(
                ours.clients.views(None, None, views), plain.clients.views(*of_step), strict=True
            ):
                torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [*RULES, *ROBUST_RULES, *COORDINATE_RULES])
def test_a_rule_aggregates(rule):
    robust = {"assumed_faulty": 1, "clients": 5, "batch": 4} if rule in MORE_THAN_TWICE else {}
    with PretendedDevice() as place:
        ours = averaging(SimCLR(projector=(8,)), aggregation=rule, precision="float32", rounds=1, **robust).trainer(
            moved(place), None
        )
        train(ours)
        assert {block.device for block in ours.shared.blocks.values()} == {place.device}
    assert all(map(torch.isfinite, map(torch.tensor, losses(ours))))


def test_a_rule_of_ones_own_finds_all_of_a_round_on_one_device(monkeypatch):
    monkeypatch.setitem(RULES, "mine", lambda r: r.cosines * (r.images / r.images.sum() + r.losses.softmax(0))[:, None])
    with PretendedDevice() as place:
        ours = averaging(SimCLR(projector=(8,)), aggregation="mine", precision="float32", rounds=1)
        train(ours := ours.trainer(moved(place), None))
    assert all(map(torch.isfinite, map(torch.tensor, losses(ours))))


# ---------------------------------------------------------------- runs from settings to files

DIGITS = {
    "dataset": "scattered-digits",
    "train_images": 100,
    "partition": "iid",
    "clients": 2,
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 8,
    "knn_k": 5,
    "seed": 0,
}
SPLIT = SplitSettings(**DIGITS, epochs=1, client_batch=20, cut_layer=3, projector_hidden=16, projector_dim=8)
AVERAGING = AveragingSettings(
    **DIGITS, objective=SimCLR(projector=(8,)), rounds=2, local_epochs=1, batch=25, keep_every=1, probe_epochs=1
)
PHASE1 = AutoencoderSettings(**DIGITS, channels_per_group=4, rounds=1, batch=25)
MODULAR = ModularSettings(
    phase1=PHASE1, pairs=1, epochs=1, warmup_epochs=0, batch=50, projector=(16, 8), probe_epochs=1
)
RUNS = {
    "split": SPLIT.changed(probe_epochs=1),
    "modular": MODULAR,
    "linear probe": ProbeSettings(pretraining=AVERAGING, epochs=2),
    "linear probe, unpooled, L-DAWA's": ProbeSettings(
        pretraining=AVERAGING, epochs=2, protocol="sgd-steps", features="unpooled"
    ),
    "renewed statistics": ProbeSettings(pretraining=RenewedStatistics(pretraining=AVERAGING), epochs=1),
    "few labels": SemiSupervisedSettings(pretraining=SPLIT, label_fraction=0.5, epochs=2),
    "fine-tuning": FineTuneSettings(pretraining=AVERAGING, epochs=2, warmup_epochs=1, batch=50),
    "from scratch": FineTuneSettings(pretraining=AVERAGING, epochs=1, warmup_epochs=0, batch=50, scratch=True),
    "landscape": LandscapeSettings(pretraining=AVERAGING, points=2, images=50, circle_points=3),
    "inversion": InversionSettings(
        targets=(SPLIT, SPLIT.changed(seed=1)), decoder="res_normN1C8", epochs=2, attacker_images=20, test_images=8
    ),
    "inversion, in a loop": InversionSettings(
        targets=(SPLIT,), decoder="res_normN1C8", epochs=1, attacker_images=20, test_images=8, backend="loop"
    ),
    "reconstruction": ReconstructionSettings(target=SPLIT, iterations=2, images=2),
    "reconstruction, phase 1": ReconstructionSettings(target=PHASE1, iterations=2, images=2),
    "reconstruction, fitted surrogate": ReconstructionSettings(
        target=MODULAR, iterations=2, images=2, collusion=False, surrogate="fitted"
    ),
    "reconstruction, unmixed": ReconstructionSettings(
        target=MODULAR.changed(datamix=2), iterations=2, images=2, unmix=True
    ),
    "resistance": ResistanceSettings(
        dataset="scattered-digits",
        train_images=100,
        attacker_images=16,
        source="digits",
        source_images=100,
        architecture="resnet10",
        width=8,
        cut_layer=3,
        decoder="res_normN1C8",
        epochs=1,
        batch=16,
    ),
}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """A machine with such a device, and a folder for its runs, which later ones build on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSSL_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("FSSL_DEVICE", str(PretendedDevice.device))
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        yield


@pytest.mark.parametrize("name", RUNS)
def test_a_run_from_its_settings_to_its_files(name, gpu):
    with PretendedDevice():
        done = run(RUNS[name], progress=False)
    assert done.provenance["tf32"] == ["convolutions"]
    numbers = pd.Series({key: value for key, value in done.summary.items() if isinstance(value, int | float)})
    assert len(numbers)
    assert numbers.drop([key for key in numbers.index if "knn" in key]).notna().all()
