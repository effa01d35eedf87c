"""The run store, with a toy engine: a random walk that saves a checkpoint at every step."""

import errno
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
import torch

import fssl_core
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.renewed_statistics import RenewedStatistics
from fssl_core.experiments import averaging_settings, local, provenance, store, transfer
from fssl_core.experiments.store import Run, run, run_all, runs_table
from fssl_core.random import generator
from fssl_core.settings import Settings, added
from fssl_core.training.averaging import AveragingSettings
from tests.processes import PATIENCE, Piped, python, wait_until


@dataclass(frozen=True, kw_only=True)
class Noise(Settings):
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Walk(Settings):
    version: ClassVar[int] = 1
    method: str = "plain"
    seed: int = 0
    steps: int = 4
    marks: tuple[int, ...] = (1, 2)
    noise: Noise = Noise()

    def execute(self, run, progress):
        state = run.checkpoint.load() or {"step": 0, "x": torch.zeros(3), "rows": []}
        progress(state["step"], self.steps)
        while state["step"] < self.steps:
            step = state["step"] + 1
            if os.environ.get("WALK_DIES_AT") == str(step):
                raise KeyboardInterrupt if os.environ.get("WALK_DIES_OF") == "ctrl-c" else RuntimeError("died")
            noise = torch.randn(3, generator=generator(self.seed, "walk", step))
            x = 0.9 * state["x"] + self.noise.scale * noise
            state = {"step": step, "x": x, "rows": [*state["rows"], {"step": step, "x": x[0].item()}]}
            run.checkpoint.save(state)
            with open(run.folder.parent / "steps.txt", "a") as log:
                log.write(f"{os.getpid()} {step}\n")
            time.sleep(float(os.environ.get("WALK_SLEEPS", "0")))
            while os.environ.get("WALK_STOPS_AT") == str(step) and not (run.folder.parent / "go").exists():
                time.sleep(0.02)
            progress(step, self.steps, x=x[0].item())
        run.write_table("metrics", pd.DataFrame(state["rows"]))
        run.save_tensors("model", {"x": state["x"]})
        return {"norm": state["x"].norm(), "label": "done", "nothing": None}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def computed_steps(root):
    return (root / "steps.txt").read_text().splitlines() if (root / "steps.txt").exists() else []


def test_a_finished_run_is_a_folder_of_results(root):
    done = run(Walk(seed=3), progress=False)
    assert done.folder == root / Walk(seed=3).key
    names = {path.name for path in done.folder.iterdir()} - {"lock"}
    results = {"metrics.csv", "model.tensors"}
    assert names == results | {"settings.json", "provenance.json", "manifest.json", "summary.json"}
    stored = json.loads((done.folder / "settings.json").read_text())
    settings = json.loads(json.dumps(Walk(seed=3).as_dict()))
    assert stored == {"kind": "Walk", "version": 1, "settings": settings, "data": {}}
    x = done.tensors("model")["x"]
    assert done.summary == {"norm": x.norm().item(), "label": "done", "nothing": None}
    assert done.table("metrics")["step"].tolist() == [1, 2, 3, 4]
    assert done.table("metrics")["x"].iloc[-1] == x[0].item()  # to the bit


def test_a_finished_run_is_not_computed_again(root):
    run(Walk(), progress=False)
    before = computed_steps(root)
    assert run(Walk(), progress=False).summary["label"] == "done"
    assert computed_steps(root) == before


def test_provenance(root):
    made = run(Walk(), progress=False).provenance
    assert made["torch"] == torch.__version__.partition("+")[0]
    assert made["fssl_core"] == fssl_core.__version__
    assert made["python"] == ".".join(map(str, sys.version_info[:3]))
    assert made["threads"] == torch.get_num_threads()
    assert made["sessions"] == 1
    assert 10 * 2**20 < made["peak_memory_bytes"] < 2**40
    assert set(made) >= {"torchvision", "numpy", "device", "commit", "modified", "date", "peak_gpu_memory_bytes"}


@pytest.mark.parametrize("dies_at", [1, 3, 4])
def test_interrupted_and_resumed_equals_uninterrupted(root, monkeypatch, dies_at):
    expected = run(Walk(), progress=False)
    tensors, table, summary = expected.tensors("model"), expected.table("metrics"), expected.summary
    monkeypatch.setenv("FSSL_RUNS", str(root / "second"))
    monkeypatch.setenv("WALK_DIES_AT", str(dies_at))
    with pytest.raises(RuntimeError, match="died"):
        run(Walk(), progress=False)
    assert Run(Walk()).summary is None
    monkeypatch.delenv("WALK_DIES_AT")
    resumed = run(Walk(), progress=False)
    assert torch.equal(resumed.tensors("model")["x"], tensors["x"])
    pd.testing.assert_frame_equal(resumed.table("metrics"), table, check_exact=True)
    assert resumed.summary == summary
    assert len(computed_steps(root / "second")) == 4  # no step twice
    assert resumed.provenance["sessions"] == (1 if dies_at == 1 else 2)


def test_every_session_of_a_run_leaves_its_code_and_machine(root, monkeypatch):
    monkeypatch.setenv("WALK_DIES_AT", "3")
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": "first", "modified": True})
    monkeypatch.setattr(provenance, "cpu_name", lambda: "a slow machine")
    with pytest.raises(RuntimeError):
        run(Walk(), progress=False)
    monkeypatch.delenv("WALK_DIES_AT")
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": "second", "modified": False})
    monkeypatch.setattr(provenance, "cpu_name", lambda: "a fast machine")
    made = run(Walk(), progress=False).provenance
    assert [entry["commit"] for entry in made["history"]] == ["first", "second"]
    assert [entry["modified"] for entry in made["history"]] == [True, False]
    assert [entry["device"] for entry in made["history"]] == ["a slow machine", "a fast machine"]
    assert made["seconds"] == pytest.approx(sum(entry["seconds"] for entry in made["history"]))
    assert (made["commit"], made["sessions"]) == ("second", 2)


def test_seconds_are_summed_over_sessions(root, monkeypatch):
    monkeypatch.setenv("WALK_DIES_AT", "2")
    with pytest.raises(RuntimeError):
        run(Walk(), progress=False)
    monkeypatch.delenv("WALK_DIES_AT")
    handle = Run(Walk())
    earlier = {**handle.provenance, "seconds": 1000.0}
    (handle.folder / "provenance.json").write_text(json.dumps(earlier))
    assert 1000 < run(Walk(), progress=False).provenance["seconds"] < 1100


@pytest.mark.parametrize(
    ("dies_at", "advice"), [("1", "from its beginning"), ("3", "resumes from its last checkpoint")]
)
def test_ctrl_c_says_what_to_do(root, monkeypatch, capsys, dies_at, advice):
    monkeypatch.setenv("WALK_DIES_AT", dies_at)
    monkeypatch.setenv("WALK_DIES_OF", "ctrl-c")
    with pytest.raises(KeyboardInterrupt) as raised:
        run_all([Walk(), Walk(seed=1)])
    assert raised.type is KeyboardInterrupt  # of which Python makes the exit status that shells know
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == [
        "fssl: 2 runs: 2 are left",
        f"fssl: interrupted; run again to continue (seed 0 {advice})",
    ]


def test_a_result_of_another_version_is_computed_again(root, monkeypatch, capsys):
    run(Walk(), progress=False)
    (Run(Walk()).folder / "old.csv").write_text("a\n1\n")
    monkeypatch.setattr(Walk, "version", 2)
    assert not Run(Walk()).finished
    assert run(Walk(), progress=False).finished
    assert "was computed by version 1 of the code; starting again" in capsys.readouterr().err
    assert not (Run(Walk()).folder / "old.csv").exists()
    assert len(computed_steps(root)) == 8


@dataclass(frozen=True, kw_only=True)
class LongerNoise(Noise):
    kind: str = added("uniform", before="normal")


def test_a_field_that_was_added_keeps_the_runs_of_before():
    LongerNoise.__name__ = "Noise"  # the same class, later
    before, same, other = Noise(scale=2.0), LongerNoise(scale=2.0, kind="normal"), LongerNoise(scale=2.0)
    assert before.key == same.key != other.key
    walks = [Walk(noise=noise, marks=(1, 2)) for noise in (before, same, other)]
    assert walks[0].key == walks[1].key != walks[2].key
    assert same.as_dict() == {"scale": 2.0, "kind": "normal"}
    run(walks[0], progress=False)
    assert Run(walks[1]).finished
    assert not Run(walks[2]).finished
    row = run_all([walks[1], walks[2]], progress=False)["noise.kind"].tolist()
    assert row == ["normal", "uniform"]
    assert json.loads((Run(walks[2]).folder / "settings.json").read_text())["settings"]["noise"]["kind"] == "uniform"


def test_a_run_whose_parts_have_another_version_is_computed_again(root, monkeypatch):
    with_parts = property(lambda walk: {"engine": 2} if walk.method == "changed" else {})
    monkeypatch.delenv("WALK_DIES_AT", raising=False)
    walks = [Walk(method=method, steps=1) for method in ("plain", "changed")]
    for walk in walks:
        run(walk, progress=False)
    monkeypatch.setattr(Walk, "versions", with_parts, raising=False)
    assert [Run(walk).finished for walk in walks] == [True, False]
    run(walks[1], progress=False)
    assert Run(walks[1]).finished


def test_a_run_that_builds_on_another_version_is_computed_again(root, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Twice(Settings):
        walks: tuple[Settings, ...]

        def execute(self, run, progress):
            return {"doubled": sum(2 * run.result_of(walk).summary["norm"] for walk in self.walks)}

    settings = Twice(walks=(Walk(seed=3), Walk(seed=4)))
    first = run(settings, progress=False)
    assert first.finished
    assert run(Walk(seed=3), progress=False).finished  # computed for the other
    monkeypatch.setattr(Walk, "version", 2)
    assert not first.finished
    assert json.loads((first.folder / "settings.json").read_text())["version"] == "1 on Walk 1"


def test_a_checkpoint_of_another_version_is_not_resumed(root, monkeypatch):
    monkeypatch.setenv("WALK_DIES_AT", "3")
    with pytest.raises(RuntimeError):
        run(Walk(), progress=False)
    monkeypatch.delenv("WALK_DIES_AT")
    monkeypatch.setattr(Walk, "version", 2)
    assert run(Walk(), progress=False).provenance["sessions"] == 1
    assert len(computed_steps(root)) == 2 + 4


def test_other_settings_in_the_folder_are_an_error(root):
    handle = run(Walk(), progress=False)
    stored = json.loads((handle.folder / "settings.json").read_text())
    stored["settings"]["seed"] = 7
    (handle.folder / "settings.json").write_text(json.dumps(stored))
    with pytest.raises(FsslError, match=r"should hold the settings .*'seed': 0.* but .* says .*'seed': 7"):
        run(Walk(), progress=False)


@pytest.mark.parametrize("name", ["settings.json", "summary.json"])
@pytest.mark.parametrize("content", ['{"kind": "Wa', "3"])
def test_a_damaged_file_is_an_error(root, name, content):
    handle = run(Walk(), progress=False)
    (handle.folder / name).write_text(content)
    with pytest.raises(FsslError, match=rf"{name} is damaged .*Delete the folder"):
        run(Walk(), progress=False)


@pytest.mark.parametrize("name", ["data", "code"])
@pytest.mark.parametrize("value", [None, [], "x"])
def test_settings_of_another_form_are_damaged(root, name, value):
    handle = run(Walk(), progress=False)
    stored = json.loads((handle.folder / "settings.json").read_text())
    (handle.folder / "settings.json").write_text(json.dumps(stored | {name: value}))
    with pytest.raises(FsslError, match=r"settings\.json is damaged\. Delete the folder"):
        run(Walk(), progress=False)


def test_a_summary_without_settings_is_an_error(root):
    handle = run(Walk(), progress=False)
    (handle.folder / "settings.json").unlink()
    with pytest.raises(FsslError, match=r"its settings\.json says None"):
        run(Walk(), progress=False)


def test_a_full_disk_is_explained_and_the_run_resumes(root, monkeypatch):
    write = Run.write_table

    def full(self, name, table):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Run, "write_table", full)
    with pytest.raises(FsslError, match=r"No space left for .*free some space"):
        run(Walk(), progress=False)
    monkeypatch.setattr(Run, "write_table", write)
    assert run(Walk(), progress=False).finished
    assert len(computed_steps(root)) == 4


def test_missing_tables_and_tensors_say_what_is_there(root):
    handle = run(Walk(), progress=False)
    with pytest.raises(FsslError, match=r"has no steps\.csv; it has: metrics\."):
        handle.table("steps")
    with pytest.raises(FsslError, match=r"has no best\.tensors; it has: model\."):
        handle.tensors("best")


def test_tables_keep_words_and_missing_numbers(root):
    handle = Run(Walk())
    table = pd.DataFrame({"word": ["None", "NA", "x"], "number": [0.1 + 0.2, float("nan"), 1e-300]})
    handle.write_table("odd", table)
    pd.testing.assert_frame_equal(handle.table("odd"), table, check_exact=True)


@pytest.mark.parametrize(
    ("summary", "error", "message"),
    [
        ({"curve": [1, 2]}, TypeError, r"summary\['curve'\] is a list"),
        ({"seed": 1}, ValueError, r"summary\['seed'\] has the name of a setting"),
        ({"noise.scale": 1}, ValueError, "has the name of a setting"),
    ],
)
def test_a_summary_that_cannot_be_a_row_is_refused(root, monkeypatch, summary, error, message):
    monkeypatch.setattr(Walk, "execute", lambda self, run, progress: summary)
    with pytest.raises(error, match=message):
        run(Walk(), progress=False)
    assert not Run(Walk()).finished


def test_run_all_gives_one_row_for_each_setting(root):
    asked = [Walk(seed=1), Walk(seed=0), Walk(seed=1, method="other"), Walk(seed=1)]
    frame = run_all(asked, progress=False)
    assert frame["seed"].tolist() == [1, 0, 1, 1]
    assert frame["method"].tolist() == ["plain", "plain", "other", "plain"]
    assert frame["key"].tolist() == [item.key for item in asked]
    assert frame["noise.scale"].tolist() == [1.0] * 4
    assert frame["norm"].tolist() == [run(item, progress=False).summary["norm"] for item in asked]
    assert list(frame)[:3] == ["method", "seed", "steps"]
    assert len(computed_steps(root)) == 3 * 4  # the equal ones are computed once


def test_runs_table_puts_the_tables_of_all_runs_under_each_other(root):
    frame = run_all([Walk(seed=0), Walk(seed=1), Walk(seed=0)], progress=False)
    table = runs_table(frame, "metrics")
    assert list(table)[:3] == ["seed", "step", "x"]  # what varies, then the table's own columns
    assert table["seed"].tolist() == [0] * 4 + [1] * 4
    pd.testing.assert_series_equal(
        table.loc[table["seed"] == 1, "x"].reset_index(drop=True), run(Walk(seed=1)).table("metrics")["x"]
    )
    one = runs_table(frame[frame["seed"] == 1], "metrics")
    assert one["seed"].tolist() == [1] * 4  # still a column when nothing varies


def test_a_frame_without_rows_has_no_tables_and_says_so(root):
    frame = run_all([Walk()], progress=False)
    for empty in (frame[frame.method == "misspelt"], run_all([])):
        with pytest.raises(SettingError, match=r"frame=.* what run_all returned, with at least one row"):
            runs_table(empty, "metrics")


def test_runs_table_keeps_the_tables_own_column(root, monkeypatch):
    def execute(self, run, progress):
        run.write_table("own", pd.DataFrame({"seed": [42]}))
        return {}

    monkeypatch.setattr(Walk, "execute", execute)
    frame = run_all([Walk(), Walk(seed=1)], progress=False)
    assert runs_table(frame, "own")["seed"].tolist() == [42, 42]


def child(code: str, root: Path, environment: dict[str, str]) -> Piped:
    """Another process with this file's toy engine."""
    preamble = f"import runpy, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    preamble += f"toy = runpy.run_path({__file__!r}); Walk, run = toy['Walk'], toy['run']; "
    return python(preamble + code, {**os.environ, **environment}, root.parent)


def test_two_processes_do_not_compute_the_same_run_twice(root, warm_environment, monkeypatch, capsys):
    """The other one goes on when this one has said that it waits."""
    other = child("run(Walk(steps=5), progress=False)", root, warm_environment | os.environ | {"WALK_STOPS_AT": "1"})
    wait_until(lambda: computed_steps(root))
    say = local.say
    monkeypatch.setattr(local, "say", lambda text: (say(text), (root / "go").touch()))
    done = run(Walk(steps=5), progress=False)
    assert other.wait(timeout=PATIENCE) == 0, other.stderr.read()
    other.close()
    assert done.finished
    assert f"Another process is computing Walk {done.settings.key}; waiting for it." in capsys.readouterr().err
    assert [line.split()[1] for line in computed_steps(root)] == ["1", "2", "3", "4", "5"]
    assert {line.split()[0] for line in computed_steps(root)} == {str(other.pid)}


def test_a_killed_process_frees_the_run_and_it_resumes(root, warm_environment, monkeypatch):
    other = child("run(Walk(steps=5), progress=False)", root, warm_environment | os.environ | {"WALK_STOPS_AT": "2"})
    wait_until(lambda: len(computed_steps(root)) >= 2)
    other.send_signal(signal.SIGKILL)
    other.wait(timeout=PATIENCE)
    other.close()
    resumed = run(Walk(steps=5), progress=False)
    assert resumed.provenance["sessions"] == 2
    monkeypatch.setenv("FSSL_RUNS", str(root / "uninterrupted"))
    assert resumed.summary == run(Walk(steps=5), progress=False).summary


def test_missing_images_are_told_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    here = averaging_settings("smoke", objective="byol", train_images=100)
    others = [here.changed(dataset=name, train_images=None) for name in ("cifar10", "tiny-imagenet-200")]
    with pytest.raises(DataError, match=r"'cifar10' is not at .* --download .*'tiny-imagenet-200' is not at .*unpack"):
        run_all([here, *others], progress=False)
    assert not list((tmp_path / "runs").glob("*/summary.json"))


def test_a_run_that_another_process_finishes_at_that_moment_is_finished(root, monkeypatch):
    run(Walk(), progress=False)
    folder = Run(Walk()).folder
    late = {name: (folder / name).read_bytes() for name in ("manifest.json", "summary.json")}
    for name in late:
        (folder / name).unlink()
    read = store.read_json

    def read_as_it_is_finished(folder, name, **how):
        if name == "summary.json":
            for late_name, content in late.items():
                (folder / late_name).write_bytes(content)
        return read(folder, name, **how)

    monkeypatch.setattr(store, "read_json", read_as_it_is_finished)
    assert Run(Walk()).finished


def test_without_locks_of_the_file_system_nothing_is_computed(root, monkeypatch):
    """A file that stands for a lock would stay behind a process that was killed."""
    fcntl = pytest.importorskip("fcntl")

    def missing(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    with pytest.raises(FsslError, match=r"The file system has no locks \(flock\).*mount it with them"):
        run(Walk(), progress=False)
    assert not (root / "steps.txt").exists()


def test_a_full_disk_is_explained_where_results_are_kept_aside(root, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    run(Walk(), progress=False)
    monkeypatch.setattr(Run, "_is_of_other_data", lambda self, stored: True)
    monkeypatch.setattr(Walk, "version", 2)
    monkeypatch.setattr(store.shutil, "copy2", full)
    with pytest.raises(FsslError, match="No space left for"):
        run(Walk(), progress=False)
    assert (Run(Walk()).folder / "summary.json").exists()


def test_a_damaged_name_of_the_store_is_named(root):
    assert transfer.store_id() == transfer.store_id()
    (root / "store.json").write_text("")
    with pytest.raises(FsslError, match=r"store\.json is damaged"):
        transfer.store_id()


def test_a_run_that_returns_no_summary_says_what_it_is():
    @dataclass(frozen=True, kw_only=True)
    class Bare(Settings):
        version: ClassVar[int] = 1

        def execute(self, run, progress):
            return 0.5

    with pytest.raises(TypeError, match=r"Bare.execute returned a float: expected a dict of a name and a number"):
        run(Bare(), progress=False)


def test_a_version_is_seen_through_settings_that_have_none(monkeypatch):
    pretraining = AveragingSettings(dataset="digits", clients=2)
    probe = ProbeSettings(pretraining=RenewedStatistics(pretraining=pretraining))
    before = store._version(probe)
    monkeypatch.setattr(AveragingSettings, "version", AveragingSettings.version + 1)
    assert store._version(probe) != before


def test_provenance_is_of_the_gpu_that_computes(monkeypatch):
    """Which need not be PyTorch's current one: nothing makes it that."""
    reset = []
    monkeypatch.setattr(provenance, "default_device", lambda: torch.device("cuda", 1))
    monkeypatch.setattr(provenance, "tf32", lambda device: [])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 5 if str(device) == "cuda:1" else 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"name of {device}")
    made = provenance.Session().record()
    assert (made["device"], made["peak_gpu_memory_bytes"]) == ("name of cuda:1", 5)
    assert reset == [torch.device("cuda", 1)]


def test_a_wrong_number_of_workers_is_refused_where_nothing_is_to_be_computed():
    with pytest.raises(SettingError, match="workers=0"):
        run_all([], workers=0)
