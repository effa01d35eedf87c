"""Runs in worker processes: the same results as without, whatever happens to one of them."""

import os
import signal
import subprocess
import sys
import threading
import types
from functools import partial
from pathlib import Path

import pytest
import torch

from fssl_core.errors import FsslError, RunsFailedError, SettingError
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.experiments import averaging_settings, local, own_code
from fssl_core.experiments.schedule import Schedule
from fssl_core.experiments.store import Run, run, run_all
from fssl_core.federation.aggregation import RULES
from fssl_core.models import ARCHITECTURES, build_backbone
from tests.experiments import toy_runs
from tests.experiments.toy_runs import Sum, Walk, contents, log
from tests.processes import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))
    monkeypatch.setattr(local, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(local, "TRIAL_SECONDS", 0.0)
    return tmp_path / "runs"


@pytest.fixture
def only_workers(monkeypatch):
    """This process computes nothing where there are workers; other tests may have left threads."""
    take = Schedule.take

    def not_here(schedule):
        helped = any(isinstance(thread, local.Helpers) for thread in threading.enumerate())
        return None if helped and threading.current_thread() is threading.main_thread() else take(schedule)

    monkeypatch.setattr(Schedule, "take", not_here)


def sweep():
    walks = [Walk(seed=seed) for seed in range(4)]
    return [*walks, Sum(walks=(walks[0], Walk(seed=9))), Sum(walks=(Walk(seed=9),))]


def test_results_do_not_depend_on_the_number_of_workers(root, monkeypatch, capsys, request):
    frames, left = [], []
    torch.set_num_threads(2)  # of this process: a run has one, wherever it is computed
    for workers in (1, 2, 3):  # none but this process, one beside it, and two without it
        if workers == 3:
            request.getfixturevalue("only_workers")
        monkeypatch.setenv("FSSL_RUNS", str(root / str(workers)))
        frames.append(run_all(sweep(), workers=workers))
        left.append(contents(root / str(workers)))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert left[0].keys() == left[1].keys() == left[2].keys()
    assert len(left[0]) == 5 * 4 + 2 * 2  # walk 9 as well
    assert left[0] == left[1] == left[2]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])
    assert frames[0]["threads"].dropna().tolist() == [1] * 4
    steps = log(root.parent)
    assert len(steps) == 3 * 5 * 4  # nothing twice
    assert len(set(steps["process"]) - {os.getpid()}) >= 2
    assert "a walk was begun" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of threads")
def test_the_process_that_workers_are_forked_from_has_one_thread():
    server = local._Server(["fssl_core.training.averaging", "fssl_core.evaluation.fine_tuning"])
    tasks = Path(f"/proc/{server.process.pid}/task")
    with server.socket, server.worker():
        wait_until((tasks / tasks.parent.name / "children").read_text)  # it has imported all that it will
        assert len([*tasks.iterdir()]) == 1
    server.process.wait(PATIENCE)


def test_where_a_fork_is_not_safe_workers_are_started(root, only_workers, monkeypatch):
    """macOS's libraries do not survive one."""
    monkeypatch.setattr(local, "survives_fork", lambda: False)
    monkeypatch.setattr(local, "_Server", None)
    runs = [Walk(seed=0), Walk(seed=1, dies="step 2"), Walk(seed=2)]
    with pytest.raises(FsslError, match=r"The process that computed .*seed 1 was killed\."):
        run_all(runs, workers=2, progress=False)
    assert [Run(one).finished for one in runs] == [True, False, True]
    assert os.getpid() not in set(log(root.parent)["process"])


def test_every_worker_has_a_gpu_of_its_own(root, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv("FSSL_DEVICE")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    monkeypatch.delenv("FSSL_WORKERS")
    runs = [Walk(seed=seed, steps=1, stops="step 1") for seed in range(3)]
    threading.Thread(
        target=lambda: (wait_until(lambda: len(log(root.parent)) == 3), (root.parent / "go").touch())
    ).start()
    run_all(runs, progress=False)
    steps = log(root.parent)
    assert set(steps["gpus"]) == {"4,5,7", "5", "7"}  # this process takes the first of those that it sees
    assert steps["process"].nunique() == 3


def test_an_error_leaves_the_others_and_comes_in_the_end(root, only_workers, capsys):
    bad = Walk(seed=5, wrong=True)
    runs = [Walk(seed=0), bad, Sum(walks=(bad,)), Walk(seed=1), Walk(seed=2)]
    with pytest.raises(SettingError, match=r"^wrong=True cannot be used: expected False\.$") as raised:
        run_all(runs, workers=2)
    assert (raised.value.name, raised.value.value) == ("wrong", True)
    assert [Run(one).finished for one in runs] == [True, False, False, True, True]
    assert "failed: wrong=True cannot be used" in capsys.readouterr().err
    with pytest.raises(
        RunsFailedError, match=r"2 runs failed\. 1 more build on these\. .*change the setting"
    ) as raised:
        run_all([*runs, Walk(seed=6, wrong=True)], workers=2, progress=False)
    assert str(raised.value).count("wrong=True cannot be used") == 2
    assert "seed 5" in str(raised.value)


def test_an_error_of_a_gpu_fails_one_run(root, only_workers):
    runs = [Walk(seed=0, faults=True), *(Walk(seed=seed) for seed in range(1, 5))]
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        run_all(runs, workers=2, progress=False)
    assert [Run(one).finished for one in runs] == [False, True, True, True, True]


def test_after_an_error_of_a_gpu_this_process_goes_no_further(root, monkeypatch):
    monkeypatch.setattr(toy_runs, "faulty", set())
    runs = [Walk(seed=0), Walk(seed=1, faults=True), Walk(seed=2)]
    with pytest.raises(FsslError, match=r"seed 1.* failed: .*illegal memory access.*Run again in another one"):
        run_all(runs, workers=1, progress=False)
    assert [Run(one).finished for one in runs] == [True, False, False]
    assert toy_runs.faulty == {os.getpid()}


def test_a_damaged_run_leaves_the_others(root):
    runs = [Walk(seed=seed) for seed in range(3)]
    run_all(runs[:2], progress=False)
    (Run(runs[0]).folder / "provenance.json").write_text('{"cut')
    with pytest.raises(FsslError, match="is damaged"):
        run_all([*runs, Sum(walks=(runs[1],))], progress=False)
    assert Run(runs[2]).finished
    assert Run(Sum(walks=(runs[1],))).finished


def test_a_killed_worker_is_an_error_and_its_run_goes_on_at_the_next_call(root, only_workers, monkeypatch):
    runs = [Walk(seed=0), Walk(seed=1, dies="step 2"), Walk(seed=2)]
    with pytest.raises(FsslError, match=r"The process that computed .*seed 1 was killed\. .*Run again"):
        run_all(runs, workers=2)
    assert [Run(one).finished for one in runs] == [True, False, True]
    run_all(runs, progress=False)
    assert log(root.parent).query("seed == 1")["step"].tolist() == [1, 2, 3, 4]  # no step twice
    monkeypatch.setenv("FSSL_RUNS", str(root.parent / "undisturbed"))
    run(runs[1], progress=False)
    assert contents(root.parent / "undisturbed").items() <= contents(root).items()


CHILD = """
from fssl_core.experiments import local
from fssl_core.experiments.store import run_all
from tests.experiments.toy_runs import Walk
local.WORTH_SECONDS = local.TRIAL_SECONDS = 0
run_all([Walk(seed=seed, stops="step 2" if {stops} else "") for seed in {seeds}], workers={workers})
"""


def child(root, *, seeds, workers, stops):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = CHILD.format(seeds=seeds, workers=workers, stops=stops)
    # A script without a guard for its main part, as users write them.
    script = root.parent / f"script-{workers}-{len(seeds)}.py"
    script.write_text(code)
    return subprocess.Popen([sys.executable, str(script)], env=variables, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_all_processes_and_keeps_checkpoints(root, number):
    other = child(root, seeds=[0, 1], workers=2, stops=True)
    wait_until(lambda: len(log(root.parent)) == 4)
    processes = set(log(root.parent)["process"])
    assert len(processes) == 2
    other.send_signal(number)
    _, errors = other.communicate(timeout=PATIENCE)
    if number == signal.SIGINT:
        words = "fssl: interrupted; run again to continue ("
        assert words in errors
        assert "seed 0 resumes from its last checkpoint" in errors
        assert "seed 1 resumes from its last checkpoint" in errors
    wait_until(lambda: not any(os.path.exists(f"/proc/{process}") for process in processes))
    (root.parent / "go").touch()
    run_all([Walk(seed=seed, stops="step 2") for seed in (0, 1)], progress=False)
    assert sorted(log(root.parent)["step"]) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_two_processes_share_the_runs_of_a_notebook(root, monkeypatch):
    """The second one waited for the first one's first run, with nothing to do."""
    other = child(root, seeds=[0], workers=1, stops=True)
    wait_until(lambda: len(log(root.parent)) == 2)
    said = []
    monkeypatch.setattr(local, "say", lambda text: (said.append(text), (root.parent / "go").touch()))
    runs = [Walk(seed=0, stops="step 2"), Sum(walks=(Walk(seed=0, stops="step 2"),)), Walk(seed=1), Walk(seed=2)]
    frame = run_all(runs, progress=False)
    assert other.wait(timeout=PATIENCE) == 0, other.stderr.read()
    other.stderr.close()
    steps = log(root.parent)
    assert set(steps.query("seed == 0")["process"]) == {other.pid}
    assert set(steps.query("seed > 0")["process"]) == {os.getpid()}
    assert said == [f"Another process is computing {Run(runs[0])}; waiting for it."]
    assert frame["key"].tolist() == [one.key for one in runs]


def test_short_runs_need_no_workers(root, monkeypatch):
    monkeypatch.setattr(local, "WORTH_SECONDS", 1000.0)
    monkeypatch.setattr(local, "TRIAL_SECONDS", 1000.0)
    monkeypatch.setattr(local, "_Server", None)
    run_all([Walk(seed=seed) for seed in range(20)], workers=2, progress=False)
    assert set(log(root.parent)["process"]) == {os.getpid()}


@pytest.mark.parametrize("module", ["__main__", "gone"])
def test_classes_that_no_other_process_knows_are_computed_here(root, monkeypatch, module, capsys):
    """A script's own class, and one of a module that only this process can import."""
    monkeypatch.setitem(sys.modules, "gone", types.SimpleNamespace(Walk=Walk))
    monkeypatch.setattr(Walk, "__module__", module)
    runs = [Walk(seed=seed, stops="step 1") for seed in range(2)]
    leave = local.Helpers._leave_all
    monkeypatch.setattr(local.Helpers, "_leave_all", lambda *args: (leave(*args), (root.parent / "go").touch()))
    run_all(runs, workers=2, progress=False)
    assert set(log(root.parent)["process"]) == {os.getpid()}
    said = capsys.readouterr().err
    assert "known to this process alone, so runs are computed one after the other." in said
    assert ("fssl: Walk:" if module == "__main__" else "fssl: No module named 'gone':") in said


def test_what_a_program_registers_no_other_process_knows(monkeypatch):
    def own_rule(this):
        return this.cosines

    def own_architecture(name, **values):
        return build_backbone("resnet10", **values)

    monkeypatch.setitem(RULES, "squared", own_rule)
    monkeypatch.setitem(ARCHITECTURES, "plain", partial(own_architecture, "plain"))
    training = averaging_settings("smoke", objective="simclr")
    probes = [
        ProbeSettings(pretraining=training.changed(**values))
        for values in ({}, {"aggregation": "squared"}, {"architecture": "plain"})
    ]
    schedule = types.SimpleNamespace(left={probe.key: types.SimpleNamespace(settings=probe) for probe in probes})
    assert local._unknown_elsewhere(schedule) == "plain, squared"
    monkeypatch.undo()
    for registries in own_code.REGISTRIES.values():
        for name in {name for registry in registries for name in registry}:
            assert [
                *own_code.registered_here(types.SimpleNamespace(architecture=name, aggregation=name, fault=name))
            ] == []
