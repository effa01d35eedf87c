"""The plan of notebooks: which runs, what is stored, what is missing, and what they cost."""

import json
import re
import time
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fssl_core.cli import main
from fssl_core.data.outlines import outlines_of, outlines_only
from fssl_core.experiments import (
    archive,
    averaging_settings,
    ldawa_probe,
    lwfedssl_settings,
    mfcl_rival_settings,
    mfcl_settings,
    split_settings,
)
from fssl_core.experiments import run as compute
from fssl_core.experiments.dry_run import asked_by, with_needed
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.planning import evaluations  # noqa: F401  (it registers what it counts)
from fssl_core.planning.machines import this_machine
from fssl_core.planning.modules import passes
from fssl_core.planning.plan import plan
from fssl_core.planning.work import work_of

QUIET = this_machine(speed=680.0)
CELL = 'profile: str = "smoke"\n'
IMPORTS = "from fssl_core.experiments import averaging_settings, run, run_all, ldawa_probe\n"


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))


# ---------------------------------------------------------------- which runs


@pytest.mark.parametrize("id", ["monacosfl/fig6", "monacosfl/fig9", "mfcl/table1", "mocosfl/table1", "lwfedssl/table7"])
def test_the_plan_has_the_runs_that_a_record_was_made_by(nothing_here, id):
    (notebook,) = find_notebooks([id])
    found = plan([id], profile="laptop", machine=QUIET)
    assert found.runs.keys() >= set(notebook.record("laptop")["runs"])
    assert not found.unknown


def test_only_what_runs_need_is_executed():
    cells = [CELL, IMPORTS + "sweep = [averaging_settings(profile, objective='byol', seed=seed) for seed in (0, 1)]"]
    cells += ["1 / 0", "unused = undefined_name", "frame = run_all(sweep)", "frame.knn_accuracy.plot()"]
    asked = asked_by(cells, {"profile": "smoke"})
    assert [settings.seed for settings in asked.settings] == [0, 1]
    assert not asked.unknown


def test_names_of_a_comprehension_are_its_own():
    """From Python 3.12 on its symbols stand among those of the module."""
    cells = [CELL, IMPORTS + "names = [name for name in ('byol',)]\nfor name in ('x',): 1 / 0"]
    cells += ["frame = run_all([averaging_settings(profile, objective=name) for name in names])"]
    asked = asked_by(cells, {"profile": "smoke"})
    assert len(asked.settings) == 1
    assert not asked.unknown


def test_runs_that_depend_on_results_are_named():
    cells = [CELL, IMPORTS + "one = averaging_settings(profile, objective='byol')", "frame = run_all([one])"]
    cells += ["best = frame.knn_accuracy.idxmax()", "again = run(one.changed(seed=int(best)))"]
    asked = asked_by(cells, {"profile": "smoke"})
    assert len(asked.settings) == 1
    assert asked.unknown == ("again = run(one.changed(seed=int(best)))",)


def test_a_setting_that_no_run_can_have_is_told_once():
    found = plan(["monacosfl/fig6"], parameters={"cut_layers": [4]})
    (lines,) = found.unknown.values()
    assert len(lines) == 1
    assert "cut_layer=4 cannot be used: expected one of 1, 3, 5" in lines[0]


def test_values_of_ones_own_are_handed_over_as_they_are_and_may_be_the_reason():
    cells = [CELL, IMPORTS + "frame = run_all([averaging_settings(profile, objective='byol')])"]
    cells += ["more = run(averaging_settings(profile, objective=kind, probe_epochs=int(limit == float('inf'))))"]
    asked = asked_by(cells, {"profile": "smoke", "limit": float("inf"), "kind": "simclr"})
    assert [settings.probe_epochs for settings in asked.settings][1:] == [1]
    asked = asked_by(cells, {"profile": "smoke", "limit": float("inf"), "kind": "simclear"})
    (line,) = asked.unknown
    assert "objective='simclear'" in line


def test_settings_that_later_statements_change_are_followed():
    cells = [
        CELL,
        IMPORTS
        + "sweep = []\nfor seed in (3, 4):\n    sweep.append(averaging_settings(profile, objective='byol', seed=seed))",
    ]
    cells += [
        "sweep += [sweep[0].changed(seed=5)]",
        "def all_of(runs):\n    return [ldawa_probe(profile, r) for r in runs]",
    ]
    cells += ["a, b = run_all(sweep), run_all(all_of(sweep))"]
    asked = asked_by(cells, {"profile": "smoke"})
    assert [settings.seed for settings in asked.settings] == [3, 4, 5, 3, 4, 5]


def test_hours_of_what_does_not_fit_are_not_given_and_that_is_told():
    small = replace(QUIET, memory=1.0)
    found = plan(["monacosfl/fig6"], machine=small)
    assert not any("here" in run.hours for run in found.runs.values())
    assert all({"H200", "A100"} <= run.hours.keys() for run in found.runs.values())
    assert any(re.match(r"hours of \d+ runs on here, where \d+ GiB", line) for line in found.unknown["monacosfl/fig6"])


def test_nested_runs_count_once():
    first = mfcl_settings("smoke")
    other = first.changed(temperature=0.2)
    runs = with_needed([first, other])
    assert list(runs) == [first.phase1.key, first.key, other.key]


def test_nothing_is_computed_or_read(nothing_here, tmp_path):
    found = plan(["mfcl/table2"], profile="paper", machine=QUIET)
    assert len(found.runs) > 200
    assert sorted(found.missing) == ["cifar10", "cifar100", "tiny-imagenet-200"]
    assert not (tmp_path / "runs").exists()
    assert all(run.work is not None for run in found.runs.values())


def test_what_is_stored_is_told_and_costs_nothing(nothing_here, capsys):
    cost = averaging_settings("smoke", objective="byol", train_images=100, rounds=1)
    compute(cost, progress=False)
    before = plan(["ldawa/fig5"], machine=QUIET)
    for run in before.runs.values():
        compute(run.settings, progress=False)
    after = plan(["ldawa/fig5"], machine=QUIET)
    assert [run.stored for run in before.runs.values()] == [False] * len(before.runs)
    assert [run.stored for run in after.runs.values()] == [True] * len(after.runs)
    assert after.table()["h here"].iloc[-1] == 0 < before.table()["h here"].iloc[-1]


def test_what_comes_with_the_project_is_told_until_it_is_stored(nothing_here, tmp_path, monkeypatch):
    for run in plan(["ldawa/fig5"], machine=QUIET).runs.values():
        compute(run.settings, progress=False)
    records = tmp_path / "figures"
    monkeypatch.setattr(archive, "records_root", lambda: records)
    (records / "ldawa").mkdir(parents=True)
    two = list(plan(["ldawa/fig5"], machine=QUIET).runs.values())[:2]
    archive.export_runs([run.settings for run in two], records / "ldawa" / "runs.smoke.zip")
    assert plan(["ldawa/fig5"], machine=QUIET).table()["recorded"].tolist() == [0, 0]
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "elsewhere"))
    found = plan(["ldawa/fig5"], machine=QUIET)
    assert [key for key, run in found.runs.items() if run.recorded] == [run.settings.key for run in two]
    assert found.table()["recorded"].tolist() == [2, 2]
    assert found.table()["stored"].tolist() == [0, 0]


def test_the_command(nothing_here, capsys):
    assert main(["plan", "mocosfl/table1", "--profile", "gpu"]) == 0
    text = capsys.readouterr().out
    assert "fssl data cifar10 --download" in text
    assert "all, each run once" in text
    assert main(["plan", "mocosfl/table1", "--profile", "gpu", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {run["kind"] for run in listed["runs"]} == {"SplitSettings", "AveragingSettings", "UntrainedSettings"}
    assert all((run["work"]["training"] > 1e15) == (run["kind"] != "UntrainedSettings") for run in listed["runs"])
    assert not any(run["stored"] for run in listed["runs"])


# ---------------------------------------------------------------- what they cost


def tiny(**values):
    return {"train_images": 100, "width": 8, "probe_epochs": 2} | values


RUNS = {
    "split, both views": split_settings("smoke", clients=5, cut_layer=3, **tiny(epochs=2)),
    "split, swapped at the server": split_settings("smoke", clients=5, cut_layer=3, **tiny(epochs=2, swap_at="server")),
    "simclr": averaging_settings("smoke", objective="simclr", **tiny()),
    "byol": averaging_settings("smoke", objective="byol", **tiny()),
    "moco": averaging_settings("smoke", objective="moco-v2", **tiny()),
    "barlow": averaging_settings("smoke", objective="barlow-twins", **tiny()),
    "moon": mfcl_rival_settings("smoke", method="MOON"),
    "FSL": mfcl_rival_settings("smoke", method="FSL"),
    "FeatARC": mfcl_rival_settings("smoke", method="FeatARC"),
    "HeteroFL": mfcl_rival_settings("smoke", method="HeteroFL"),
    "Split-Mix": mfcl_rival_settings("smoke", method="Split-Mix"),
    "FedPAC": mfcl_rival_settings("smoke", method="FedPAC"),
    "FedPAC without alignment": mfcl_rival_settings("smoke", method="FedPAC", alignment=0.0),
    "layer-wise": lwfedssl_settings("smoke", method="LW-FedSSL", ssl_method="SimCLR"),
    "progressive": lwfedssl_settings("smoke", method="Prog-FedSSL", ssl_method="BYOL"),
    "phase 1": mfcl_settings("smoke").phase1,
    "phase 2": mfcl_settings("smoke"),
    "probe": ldawa_probe("smoke", averaging_settings("smoke", objective="simclr", **tiny())),
}


@pytest.mark.parametrize("name", RUNS)
def test_counted_work_is_that_of_a_run(nothing_here, name):
    """Against PyTorch's counter on the run itself."""
    settings = RUNS[name]
    for needed in settings.needs:
        compute(needed, progress=False)
    with FlopCounterMode(display=False) as counter:
        compute(settings, progress=False)
    with outlines_only():
        work = work_of(settings)
    assert work.training + work.evaluation == pytest.approx(counter.get_total_flops(), rel=0.1)


def test_passes_are_those_of_the_counter_of_torch():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5))
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, 3, 8, 8)).sum().backward()
    counted = passes(module, (3, 8, 8))
    assert counted.trained == counter.get_total_flops()
    assert counted.shape == (5,)


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8), torch.nn.LayerNorm([6, 6])])
def test_what_a_normalisation_keeps_is_what_autograd_keeps(norm):
    """It is not run on tensors without values: its outputs are made in their shapes."""
    own = {value.untyped_storage().data_ptr() for value in (*norm.parameters(), *norm.buffers())}
    kept, images = {}, torch.randn(4, 8, 6, 6)

    def pack(value):
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        output = norm(images.requires_grad_())
    held = sum(size for pointer, size in kept.items() if pointer not in own)
    counted = passes(norm, (8, 6, 6))
    assert counted.shape == output.shape[1:]
    assert counted.saved_bytes == held / len(images)
    assert counted.forward == 0


def test_outlines_have_the_published_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_DATA", str(tmp_path))
    with outlines_only():
        data = split_settings("gpu", clients=5, dataset="cifar100").load_data()
    assert (len(data.train), len(data.test), len(data.classes), data.image_size) == (50_000, 10_000, 100, 32)
    assert data.train.images.is_meta
    assert outlines_of("medmnist/pathmnist_64:val")[0].train == 10_004
    assert outlines_of("my-photos") == []


def test_planning_everything_takes_seconds(nothing_here):
    """All notebooks at the largest profile: 30 s of a quiet core, which two processes on one core may double."""
    began = time.process_time()
    found = plan(profile="paper", machine=QUIET)
    assert time.process_time() - began < 110
    assert len(found.runs) > 2000
    assert {id: [line.partition(" of ")[0] for line in lines] for id, lines in found.unknown.items()} == {
        "mfcl/table2": ["hours", "hours"]  # of nine runs that fit on no GPU
    }


def test_gpu_notebooks_stay_within_their_time(nothing_here):
    """An hour of an H200 that computes one run after the other."""
    table = plan(profile="gpu", machine=QUIET).table().set_index("notebook")["h H200"]
    longest = table.drop("all, each run once").sort_values()
    assert longest.iloc[-1] <= 1, longest.tail()
