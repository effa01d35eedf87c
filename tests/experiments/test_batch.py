"""What a batch of notebooks tells, with made-up records; and two real ones that run at the same time."""

import dataclasses
import io
import json
import os
import re
import time
from contextlib import redirect_stderr
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fssl_core.experiments import batch as module
from fssl_core.experiments import display, speed
from fssl_core.experiments.batch import AROUND_SECONDS, TRUST_SECONDS, Batch
from fssl_core.experiments.notebooks import Notebook, Outcome, Task, execute
from fssl_core.experiments.refresh import normalised

TOY = """
import os, pathlib, time
from dataclasses import dataclass
from fssl_core.settings import Settings

@dataclass(frozen=True, kw_only=True)
class Toy(Settings):
    seed: int = 0
    method: str = "plain"

    def execute(self, run, progress):
        progress(1, 2)
        if self.method == "interrupted":
            os.kill(os.getpid(), 2)
        deadline = time.monotonic() + 120
        while not pathlib.Path("shown").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
            progress(1, 2)
        return {}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FSSL_FIGURES", str(tmp_path / "figures"))
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "relative_speed", {"here": 1.0, "slow": 2.0}.get)
    return tmp_path


def task(project, name, profile="laptop", runs=None, stored=(), **record):
    """One whose notebook has a record, unless that is empty."""
    if record:
        path = project / "figures" / "paper" / f"{name}.{profile}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"devices": ["here"], **record} | ({"runs": runs} if runs else {})))
    for key in stored:
        (project / "runs" / key).mkdir(parents=True)
        (project / "runs" / key / "summary.json").write_text("{}")
    notebook = Notebook(f"paper/{name}", project / "notebooks" / f"{name}.ipynb")
    return Task(notebook, {"profile": profile}, project / "build" / f"{name}.ipynb")


def plan(tasks, capsys, jobs=1):
    Batch(tasks, jobs, Path("unused"))
    return capsys.readouterr().err.splitlines()[-1]


def test_the_plan_counts_runs_that_are_stored_or_shared_once(project, capsys):
    tasks = [
        task(project, "a", seconds=1000, runs=["1", "2", "3", "4"], stored=["1"]),  # 3 of 4 are left
        task(project, "b", seconds=200, runs=["4", "5"]),  # 4 is computed by then
    ]
    minutes = round((750 + 100 + 2 * AROUND_SECONDS) / 60)
    assert plan(tasks, capsys) == (
        f"fssl: 2 notebooks at laptop; about {minutes} min; this machine is 1.0 times as fast as the records' here; "
        "1 of 5 runs are stored"
    )


def test_recorded_runs_that_will_be_taken_are_not_counted_as_work(project, capsys, monkeypatch):
    monkeypatch.setattr(module, "recorded_keys", lambda: {Path("runs.zip"): {"1", "2", "9"}})
    tasks = [task(project, "a", seconds=1000, runs=["1", "2", "3", "4"], stored=["1"])]
    assert "about 13 min" in plan(tasks, capsys)  # 3 of 4 are left
    monkeypatch.setenv("FSSL_RECORDED", "1")
    assert plan(tasks, capsys).endswith(
        "about 8 min; this machine is 1.0 times as fast as the records' here; 1 of 4 runs are stored; 1 are recorded"
    )


def test_the_plan_says_what_it_does_not_know(project, capsys):
    tasks = [task(project, "a", seconds=1990, devices=["slow"]), task(project, "b", seconds=50, devices=["unheard of"])]
    assert plan(tasks, capsys, jobs=2) == (  # the longer one alone takes that long
        "fssl: 2 notebooks at laptop, 2 at a time; about 17 min; "
        "this machine is 2.0 times as fast as the records' slow; "
        "as recorded on unheard of; stored runs unknown for 2 notebooks"
    )
    assert plan([task(project, "a", profile="gpu")], capsys) == (
        "fssl: 1 notebook at gpu; no records say how long they take"
    )


def test_other_settings_have_other_runs(project, capsys):
    changed = task(project, "a", seconds=100, runs=["1"], stored=["1"])
    changed.parameters["seeds"] = [7]
    assert "stored runs unknown for 1 notebook" in plan([changed], capsys)
    assert "about 2 min" in plan([changed], capsys)


def test_the_time_left_follows_the_records_and_what_it_took_here(project):
    """Not the mean of those done: a short one is done first."""
    tasks = [task(project, "short", seconds=0), task(project, "long", seconds=3000), task(project, "new")]
    batch = Batch(tasks, 1, Path("unused"))
    assert batch.left() == 3000 + 3 * AROUND_SECONDS
    batch.tell(Outcome(tasks[0], "", 15.0, 0.0))
    factor = (TRUST_SECONDS + 15) / (TRUST_SECONDS + AROUND_SECONDS)
    assert batch.left() == pytest.approx((3000 + AROUND_SECONDS) * factor + AROUND_SECONDS)
    batch.tell(Outcome(tasks[1], "", 1500.0, 0.0))
    assert batch.left() == AROUND_SECONDS


def test_without_records_those_done_tell(project, capsys):
    tasks = [task(project, name) for name in "abc"]
    batch = Batch(tasks, 2, Path("unused"))
    assert batch.left() is None
    batch.tell(Outcome(tasks[1], "", 30.0, 0.0))
    assert batch.left() == 30.0
    batch.tell(Outcome(tasks[0], "ValueError: no\nlook there", 50.0, 0.0))
    assert batch.left() == 40.0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "[1/3] paper/b done in 30 s, about 30 s left",
        "[2/3] paper/a failed after 50 s, about 40 s left",
        "  ValueError: no",
        "  look there",
    ]


def test_a_notebook_that_runs_tells_how_much_is_left(project, tmp_path):
    tasks = [task(project, "a", seconds=5)]
    batch = Batch(tasks, 1, tmp_path)
    batch.update(tasks)
    state = display.State(18, 3, (display.Running("x", "epoch", 12, 40),), left=240.0)
    display.write_json(batch.files["paper/a"], dataclasses.asdict(state))
    assert batch.left() == 240
    assert batch.environment(tasks[0]) == {"FSSL_PROGRESS": str(batch.files["paper/a"])}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_a_bar_for_each_notebook_that_runs(project, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    tasks = [task(project, name, seconds=50) for name in ("a", "b", "c")]
    with redirect_stderr(Terminal()) as terminal:
        batch = Batch(tasks, 2, tmp_path)
        state = display.State(18, 3, (display.Running("x", "epoch", 12, 40),), left=240.0)
        display.write_json(batch.files["paper/b"], dataclasses.asdict(state))
        batch.update(tasks[:2])
        batch.tell(Outcome(tasks[0], "", 12.0, time.time()))
        batch.update(tasks[1:])
        batch.close()
    shown = terminal.getvalue()
    assert re.search(r"\| 0 of 3 notebooks · about \d min left", shown)
    assert "| paper/a · running for 0 s" in shown
    assert "| paper/b · 3 of 18 runs · epoch 12 of 40 · about 4 min left" in shown
    assert "[1/3] paper/a done in 12 s, about " in shown
    assert "| paper/c · running for 0 s" in shown


def test_the_speed_of_this_machine_beside_that_of_a_record(monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", 0.05)
    monkeypatch.setattr(speed, "default_device", lambda: speed.torch.device("cpu"))
    threads = speed.torch.get_num_threads()
    monkeypatch.setattr(speed, "REFERENCE", {"x": 1e-3})
    assert speed.relative_speed("x") > 1000
    assert speed.torch.get_num_threads() == threads
    assert speed.relative_speed("another") is None
    monkeypatch.setattr(speed, "default_device", lambda: speed.torch.device("cuda"))
    assert speed.relative_speed("x") is None


def write_notebook(path, *cells):
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "x"}, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)


def test_a_batch_tells_how_far_its_notebooks_are_before_they_are_done(project, monkeypatch):
    """It was mute until the first one was done. The notebooks wait until the progress of both was told."""
    (project / "toy.py").write_text(TOY)
    first = "from toy import Toy\nfrom fssl_core.experiments import run_all"
    sweep = "frame = run_all([Toy(method=m, seed=s + {}) for m in ('plain', 'other') for s in range(6)])"
    write_notebook(project / "notebooks" / "one.ipynb", first, sweep.format(0))
    write_notebook(
        project / "notebooks" / "two.ipynb", first, sweep.format(10), "run_all([Toy(method='interrupted')])", "1 / 0"
    )
    told, seen = [], set()

    def say(line):
        told.append(line)
        seen.update(name for name in ("one", "two") if f"{name}: 0 of 12 runs · step 1 of 2" in line)
        if len(seen) == 2:
            (project / "shown").touch()

    monkeypatch.setattr(module, "say", say)
    monkeypatch.setattr(module, "tell", told.append)
    monkeypatch.setattr(display, "LOG_SECONDS", 0.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project), *filter(None, [os.environ.get("PYTHONPATH")])]))
    table = execute(jobs=2).set_index("artifact")
    assert told[0] == "2 notebooks at smoke, 2 at a time; no records say how long they take"
    assert seen == {"one", "two"}
    assert table["status"].to_dict() == {"one": "ok", "two": "failed"}
    error = next(line for line in told if "interrupted" in line)
    assert "interrupted; run again to continue (method" in error
    assert "ZeroDivisionError" not in error

    for name in ("one", "two"):
        source, executed = (
            nbformat.read(project / at / f"{name}.ipynb", as_version=4) for at in ("notebooks", "build/smoke")
        )
        cells = [cell for cell in executed.cells if "run_all([" in cell.source]
        (output,) = cells[0].outputs  # there were 48 lines on stderr
        assert list(output.data) == ["text/plain"]
        assert re.fullmatch(r"12 runs computed in \d+ (s|min)", output.data["text/plain"])
        if name == "one":
            assert [cell.outputs for cell in normalised(source, executed, project).cells] == [[], []]
