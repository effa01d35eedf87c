"""Every engine, stopped after every save: what a resumed run leaves is what an uninterrupted one leaves, to the bit.

A copy of the run's folder right after a save is what a kill at that moment leaves behind. Here saves come after each
call of ``advance``, so also within a round, and most tensors are large enough for files of their own.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch

from fssl_core.experiments.store import Run, run
from fssl_core.federation.client_updates import EUC, FedEMA, FedU
from fssl_core.objectives import (
    BYOL,
    BarlowTwins,
    FedCA,
    MoCoV2,
    MoCoV3,
    Orchestra,
    SimCLR,
    SimSiam,
    Supervised,
)
from fssl_core.objectives.moon import Moon
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.training import checkpoint
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.checkpoint import Checkpoint
from fssl_core.training.featarc import FeatArcSettings
from fssl_core.training.fedpac import FedPacSettings
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.resistance import ResistanceSettings
from fssl_core.training.saver import Pace
from fssl_core.training.secure_averaging import SecureAutoencoderSettings
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_learning import SplitLearningSettings
from fssl_core.training.split_mix import SplitMixSettings
from tests.processes import python
from tests.saving import EACH, NEVER, save_each

COMMON = {
    "seed": 0,
    "dataset": "digits",
    "train_images": 40,
    "partition": "iid",
    "clients": 2,
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 4,
    "knn_k": 5,
    "probe_epochs": 1,
}
SPLIT = COMMON | {
    "cut_layer": 3, "projector_hidden": 16, "projector_dim": 8, "queue_size": 20, "client_batch": 5, "sync_every": 2,
    "epochs": 2,
}  # fmt: skip
ROUNDS = COMMON | {"rounds": 2, "local_epochs": 1, "batch": 8, "learning_rate": 0.01}
SAMPLED = {"clients": 3, "clients_per_round": 2, "train_images": 60}
HEADS = {"projector": (16, 8)}
BOTH = HEADS | {"predictor": (16, 8)}
LAYERS = ROUNDS | {"architecture": "vit4", "rounds": 4, "image_size": None, "knn_k": 5}
PHASE1 = ROUNDS | {"channels_per_group": 2, "architecture": "resnet10", "width": 8}
RESISTANCE = {
    "seed": 0, "dataset": "digits", "train_images": 40, "attacker_images": 12, "source": "digits", "source_images": 40,
    "architecture": "resnet10", "width": 4, "cut_layer": 3, "epochs": 3, "batch": 20, "decoder": "res_normN1C8",
    "decoder_steps": 1, "image_size": 12,
}  # fmt: skip


def split(**values):
    return SplitSettings(**SPLIT | values)


def averaging(objective, **values):
    return AveragingSettings(objective=objective, **ROUNDS | values)


def layers(**values):
    return LayerwiseSettings(**LAYERS | {"objective": MoCoV3(**BOTH)} | values)


def phase1(**values):
    return AutoencoderSettings(**PHASE1 | values)


def phase2(**values):
    common = {"pairs": 2, "epochs": 3, "warmup_epochs": 1, "batch": 10, "projector": (16, 8), "knn_k": 5}
    return ModularSettings(**common | {"phase1": phase1(), "probe_epochs": 1} | values)


CONFIGURATIONS = {
    "MocoSFL, batch norm": lambda: split(method="MocoSFL", norm="batch"),
    "MonAcoSFL": lambda: split(),
    "one client": lambda: split(clients=1),
    "SFL-V2": lambda: split(variant="SFL-V2"),
    "SFL-V2, sampled": lambda: split(variant="SFL-V2", clients=3, clients_per_epoch=2, epochs=3, train_images=60),
    "sampled, steps logged": lambda: split(clients=3, clients_per_epoch=2, log_steps=True, train_images=60),
    "asymmetric, loop": lambda: split(symmetric=False, backend="loop"),
    "no momentum": lambda: split(momentum=0.0, client_learning_rate=0.1),
    "frozen resistant client": lambda: split(
        pretrained_client=ResistanceSettings(**RESISTANCE | {"epochs": 1}), freeze_client=True, image_size=12,
        swap_at="server",
    ),
    "FedAvg MoCo-v2": lambda: averaging(MoCoV2(queue_size=20, **HEADS)),
    "MoCo-v2, aged negatives": lambda: averaging(MoCoV2(queue_size=20, negatives="aged", age=2, **HEADS)),
    "FedU BYOL": lambda: averaging(BYOL(**BOTH), client_update=FedU(threshold=0.0)),
    "FedEMA BYOL": lambda: averaging(BYOL(**BOTH), client_update=FedEMA(), rounds=3),
    "EUC SimCLR": lambda: averaging(SimCLR(projector=(8,)), client_update=EUC(), rounds=4),
    "L-DAWA Barlow Twins": lambda: averaging(
        BarlowTwins(projector=(8,)), aggregation="l-dawa", fedavg_rounds=1, layers="module"
    ),
    "FedProx SimSiam, models kept": lambda: averaging(
        SimSiam(projector=(8, 8), predictor=(8, 8)), proximal=0.1, keep_every=1, probe_every=1
    ),
    "velocity kept, sampled": lambda: averaging(
        MoCoV3(**BOTH), keep_velocity=True, aggregation="loss", **SAMPLED
    ),
    "copied target, last": lambda: averaging(BYOL(**BOTH), target_at_start="copied", selection="last"),
    "supervised": lambda: averaging(Supervised()),
    "FedCA, sampled": lambda: averaging(FedCA(projector=(8,)), rounds=3, **SAMPLED),
    "FedCA, public images": lambda: averaging(
        FedCA(projector=(8,), alignment_model=averaging(SimCLR(projector=(8,)), rounds=1, probe_epochs=0))
    ),
    "Orchestra": lambda: averaging(
        Orchestra(projector=(16, 8), local_clusters=3, global_clusters=4, memory_size=10), rounds=3, **SAMPLED
    ),
    "faulty clients, Krum": lambda: averaging(
        SimCLR(projector=(8,)), clients=5, train_images=100, faulty_share=0.2, fault="noise", aggregation="krum",
        assumed_faulty=1, keep_velocity=True,
    ),
    "clients drop out": lambda: averaging(SimCLR(projector=(8,)), clients=3, train_images=60, client_dropout=0.5),
    "MOON": lambda: MoonSettings(**ROUNDS | {"objective": Moon(projector=(16, 8)), "rounds": 3}),
    "MOON FedEMA, sampled": lambda: MoonSettings(
        **ROUNDS | {"objective": Moon(projector=(16, 8)), "client_update": FedEMA(), "rounds": 3} | SAMPLED
    ),
    "FeatARC": lambda: FeatArcSettings(
        **ROUNDS | {"objective": SimCLR(projector=(8,)), "rounds": 3, "group_from": 1}
    ),
    "FeatARC, sampled": lambda: FeatArcSettings(
        **ROUNDS | {"objective": SimCLR(projector=(8,)), "rounds": 4, "group_from": 1} | SAMPLED
    ),
    "HeteroFL": lambda: HeteroFLSettings(**ROUNDS | {"width": 8, "shares": (1.0, 0.5)}),
    "HeteroFL, sampled": lambda: HeteroFLSettings(
        **ROUNDS | {"width": 8, "shares": (1.0, 0.5), "norm": "group"} | SAMPLED
    ),
    "Split-Mix": lambda: SplitMixSettings(**ROUNDS | {"width": 8, "shares": (1.0, 0.5), "bases": 2}),
    "Split-Mix, sampled": lambda: SplitMixSettings(
        **ROUNDS | {"width": 8, "shares": (1.0, 0.5), "bases": 2, "norm": "group"} | SAMPLED
    ),
    "FedPAC": lambda: FedPacSettings(**ROUNDS | {"rounds": 3}),
    "FedPAC, sampled": lambda: FedPacSettings(**ROUNDS | {"rounds": 3, "norm": "group"} | SAMPLED),
    "layer-wise": lambda: layers(),
    "progressive, sgd": lambda: layers(scheme="progressive", optimizer="sgd"),
    "end-to-end": lambda: layers(scheme="end-to-end", rounds=2),
    "worst case, clients missing": lambda: layers(worst_case=True, client_dropout=0.5, clients=3, train_images=60),
    "progressive, layers dropped": lambda: layers(scheme="progressive", most_layers=2, aggregation="loss"),
    "layer-wise, aligned": lambda: layers(representation_alignment=0.1, stages=2),
    "layer-wise FedCA": lambda: layers(objective=FedCA(projector=(8,))),
    "layer-wise Orchestra from random clusters, sampled": lambda: layers(
        objective=Orchestra(
            projector=(16, 8), local_clusters=3, global_clusters=4, memory_size=10, start="random", views=2
        ),
        **SAMPLED,
    ),
    "auto-encoders": lambda: phase1(),
    "auto-encoders, securely": lambda: SecureAutoencoderSettings(**PHASE1 | {"threshold": 2}),
    "MFCL": lambda: phase2(),
    "MFCL, mixed": lambda: phase2(datamix=2, norm="group", pairs_per_epoch=2, validate_every=2),
    "FSL": lambda: SplitLearningSettings(**ROUNDS | {"auxiliary": (8,), "cut_layer": 3}),
    "SplitFed V2": lambda: SplitLearningSettings(
        **ROUNDS | SAMPLED | {"gradients": "server", "variant": "SFL-V2", "cut_layer": 3, "schedule": "cosine"}
    ),
    "resistance": lambda: ResistanceSettings(**RESISTANCE),
    "inversion of two shapes": lambda: InversionSettings(
        targets=[split(epochs=1, image_size=12, cut_layer=cut) for cut in (3, 5)], attacker_images=10, epochs=2,
        test_images=4, decoder="res_normN1C8",
    ),
}  # fmt: skip


PACES = {"before going on": EACH, "while going on": Pace(shortest=0.0, longest=0.0)}
LARGE = 300  # bytes of tensors that get files of their own


@pytest.fixture
def often(monkeypatch):
    save_each(monkeypatch)
    monkeypatch.setattr(checkpoint, "LARGE", LARGE)


def results(handle: Run) -> tuple[dict, dict, dict]:
    """Summary, tables and tensors of a finished run."""
    names = sorted(path.name for path in handle.folder.iterdir())
    tables = {name: handle.table(name[:-4]) for name in names if name.endswith(".csv")}
    tensors = {name: handle.tensors(name[:-8]) for name in names if name.endswith(".tensors")}
    return handle.summary, tables, tensors


def assert_same(found, expected):
    assert json.dumps(found[0]) == json.dumps(expected[0])  # of a NaN, too
    assert found[1].keys() == expected[1].keys()
    for name, table in expected[1].items():
        pd.testing.assert_frame_equal(found[1][name], table, check_exact=True)
    assert found[2].keys() == expected[2].keys()
    for name, state in expected[2].items():
        assert found[2][name].keys() == state.keys()
        assert all(torch.equal(found[2][name][entry], value) for entry, value in state.items()), name


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_stopped_after_any_save_and_resumed_equals_uninterrupted(name, often, tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    settings = CONFIGURATIONS[name]()
    saves, save = [], Checkpoint.save

    def save_and_copy(checkpoint, state, *check):
        save(checkpoint, state, *check)
        if checkpoint.folder.name == settings.key:  # not of runs that this one builds on
            saves.append(shutil.copytree(checkpoint.folder, tmp_path / f"save {len(saves)}"))

    with monkeypatch.context() as recording:
        recording.setattr(Checkpoint, "save", save_and_copy)
        whole = run(settings, progress=False)
    expected = results(whole)
    assert len(saves) >= 2
    for number, killed in enumerate(saves):
        if number == 1:  # the run that the first one becomes was saved each time; of others it takes half the time
            monkeypatch.setattr(Pace, "asked_for", lambda: NEVER)
        shutil.rmtree(whole.folder)
        shutil.copytree(killed, whole.folder)
        assert not Run(settings).finished
        resumed = run(settings, progress=False)
        assert_same(results(resumed), expected)


CHILD = """
import sys, runpy
sys.path.insert(0, {root!r})
module = __import__("tests.training.test_every_save", fromlist=["x"])
module.Pace.asked_for = lambda: module.PACES[{pace!r}]
module.checkpoint.LARGE = module.LARGE
settings = module.CONFIGURATIONS[{name!r}]()
print("ready", flush=True)
module.run(settings, progress=False)
"""


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("name", ["SFL-V2, sampled", "Orchestra", "worst case, clients missing"])
def test_killed_at_random_moments_and_resumed_equals_uninterrupted(
    name, pace, tmp_path, monkeypatch, request, warm_environment
):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "whole"))
    settings = CONFIGURATIONS[name]()
    started = time.monotonic()
    expected = results(run(settings, progress=False))
    seconds = time.monotonic() - started
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "killed"))
    code = CHILD.format(root=str(request.config.rootpath), name=name, pace=pace)
    moments = random.Random(name)
    for _ in range(2):
        with python(code, warm_environment | os.environ, tmp_path) as child:
            child.stdout.readline()
            time.sleep(moments.uniform(0, seconds))
            child.send_signal(signal.SIGKILL)
    assert_same(results(run(settings, progress=False)), expected)


INTERRUPTED = """
import os, signal, sys
sys.path.insert(0, {root!r})
module = __import__("tests.training.test_every_save", fromlist=["x"])
settings = module.CONFIGURATIONS[{name!r}]()
from fssl_core.training.saver import Pace
from fssl_core.training.split import SplitTrainer
step = SplitTrainer.step

def interrupted(trainer, *batch):
    if trainer.finished == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return step(trainer, *batch)

SplitTrainer.step = interrupted
pace = Pace(share=100.0)
Pace.asked_for = lambda: pace  # here epochs are so short that not each would be held
module.run(settings, progress=False)
"""


def test_ctrl_c_in_an_epoch_that_nothing_was_saved_before_loses_that_epoch_only(tmp_path, monkeypatch, request):
    name = "SFL-V2, sampled"
    settings = CONFIGURATIONS[name]()
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "whole"))
    expected = results(run(settings, progress=False))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "interrupted"))
    code = INTERRUPTED.format(root=str(request.config.rootpath), name=name)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert Run(settings).checkpoint.load()["finished"] == 2
    assert_same(results(run(settings, progress=False)), expected)


def test_configurations_are_of_all_engines():
    used = {type(make()).__name__ for make in CONFIGURATIONS.values()}
    assert {"SplitSettings", "ResistanceSettings", "InversionSettings", "ModularSettings"} <= used
    assert len(CONFIGURATIONS) >= 35
