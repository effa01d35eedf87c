"""Finding and executing notebooks, on a made-up project with tiny ones."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import nbformat
import pandas as pd
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fssl_core import resources
from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments import notebooks as module
from fssl_core.experiments.notebooks import Notebook, Outcome, execute, find_notebooks
from fssl_core.paths import figures_root
from tests.processes import PATIENCE, wait_until

PARAMETERS = """
profile: str = "smoke"  # smoke, laptop, workstation, gpu or paper
seeds: list[int] = [0, 1]  # one run each
rate: float = 0.1  # learning rate
epochs: int = 3
plot: bool = True
limit: int = None  # all images
name = "x"
"""
RECORD = """
import json, os, sys
from pathlib import Path
folder = Path("build/figures/paper1")
folder.mkdir(parents=True, exist_ok=True)
workers = os.environ["FSSL_WORKERS"], os.environ["OMP_NUM_THREADS"]
found = {"python": sys.executable, "folder": os.getcwd(), "seeds": seeds, "rate": rate, "workers": workers}
claims = {"reproduced": 2, "contradicted": 1, "inconclusive": 0, "not run": 0}
(folder / f"fig2.{profile}.json").write_text(json.dumps({"profile": profile, "claims": claims, "found": found}))
(folder / f"fig2.{profile}.png").write_bytes(b"drawn")
"""


def write_notebook(path, *cells, parameters=PARAMETERS, title="# A title", metadata=True):
    notebook = new_notebook(cells=[new_markdown_cell(title)])
    if parameters:
        notebook.cells.append(new_code_cell(parameters.strip(), metadata={"tags": ["parameters"]}))
    notebook.cells += [new_code_cell(source.strip()) for source in cells]
    if metadata:
        notebook.metadata = {
            "kernelspec": {"name": "elsewhere", "display_name": "x"},
            "language_info": {"name": "python"},
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


@pytest.fixture
def project(tmp_path, monkeypatch):
    for variable in ("FSSL_RUNS", "FSSL_FIGURES"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "notebooks"
    write_notebook(folder / "index.ipynb", parameters=None, title="# Read this first\n\nand then")
    write_notebook(folder / "paper1" / "fig10_later.ipynb", "raise ValueError('no such luck')", "print('never')")
    write_notebook(folder / "paper1" / "fig2_first_words.ipynb", RECORD)
    write_notebook(folder / "paper1" / "table1b_numbers.ipynb")
    write_notebook(folder / "beyond" / "beyond_tradeoff.ipynb")
    write_notebook(folder / ".ipynb_checkpoints" / "index-checkpoint.ipynb")
    write_notebook(folder / "paper1" / ".ipynb_checkpoints" / "fig2_first_words-checkpoint.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_floats_that_an_editor_saved_as_whole_numbers_are_known_as_floats(project):
    """JupyterLab writes the metadata with JavaScript, which knows no 2.0."""
    path = project / "notebooks" / "paper1" / "fig3.ipynb"
    write_notebook(path, parameters='profile: str = "smoke"\nrate: float = 2.0\nepochs: int = 3')
    content = json.loads(path.read_text())
    stored = Notebook("paper1/fig3", path).as_it_stands()
    content["metadata"]["fssl"] = stored | {"parameters": stored["parameters"] | {"rate": 2}}
    path.write_text(json.dumps(content))
    parameters = Notebook("paper1/fig3", path).as_stored()["parameters"]
    assert {name: type(value) for name, value in parameters.items()} == {"profile": str, "rate": float, "epochs": int}


@pytest.fixture
def no_execution(monkeypatch):
    """Nothing may start when the input is bad."""

    def started(tasks, jobs):
        raise AssertionError("executed although the input is bad")

    monkeypatch.setattr(module, "run_tasks", started)


def test_notebooks_are_found_in_reading_order(project, monkeypatch):
    monkeypatch.chdir(project / "notebooks" / "paper1")
    ids = [notebook.id for notebook in find_notebooks()]
    assert ids == ["index", "beyond/beyond_tradeoff", "paper1/fig2", "paper1/fig10", "paper1/table1b"]
    assert [notebook.title for notebook in find_notebooks(["index", "paper1/fig2"])] == ["Read this first", "A title"]


def test_the_key_of_a_paper_stands_for_its_notebooks(project):
    assert [notebook.id for notebook in find_notebooks(["paper1"])] == ["paper1/fig2", "paper1/fig10", "paper1/table1b"]


def test_unknown_id(project, no_execution):
    with pytest.raises(SettingError, match=r"ID='paper1/fig3' .*\(did you mean paper1/fig2.*`fssl list` shows them"):
        execute(["paper1/fig2", "paper1/fig3"])


def test_two_notebooks_with_one_id(project):
    write_notebook(project / "notebooks" / "paper1" / "fig2_other_words.ipynb")
    with pytest.raises(FsslError, match=r"have one ID, paper1/fig2: rename one"):
        find_notebooks()


def test_a_readers_copy_is_no_notebook_of_the_project(project):
    path = project / "notebooks" / "paper1" / "fig2_first_words.ipynb"
    path.with_name("fig2_first_words-Copy1.ipynb").write_bytes(path.read_bytes())
    assert len(find_notebooks(["paper1/fig2"])) == 1


def test_outside_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fssl_core.paths.__file__", str(tmp_path / "site-packages" / "fssl_core" / "paths.py"))
    with pytest.raises(FsslError, match=r"no notebooks in .*call this from inside a clone"):
        find_notebooks()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": 1}, r"seed=1 .* a parameter of paper1/fig2: profile, seeds, rate"),
        ({"seeds": 1}, r"seeds=1 .* a value of type list for paper1/fig2, such as \[1\]"),
        ({"rate": "fast"}, r"rate='fast' .* type float"),
        ({"epochs": 2.5}, r"epochs=2.5 .* type int"),
        ({"epochs": True}, r"epochs=True .* type int"),
        ({"plot": 1}, r"plot=1 .* type bool"),
        ({"name": 3}, r"name=3 .* type str"),
        ({"name": None}, r"name=None .* type str"),
        ({"profile": "laptop"}, r"profile='laptop' .* the option --profile"),
    ],
)
def test_bad_parameters(project, no_execution, values, message):
    with pytest.raises(SettingError, match=message):
        execute(["index", "paper1/fig2"], parameters=values)


def test_a_parameter_that_one_of_the_notebooks_lacks(project, no_execution):
    write_notebook(project / "notebooks" / "paper1" / "fig3_less.ipynb", parameters='profile: str = "smoke"')
    with pytest.raises(SettingError, match=r"epochs=2 .* a parameter of paper1/fig3: profile\."):
        execute(["paper1/fig2", "paper1/fig3"], parameters={"epochs": 2})


def test_parameters_for_a_notebook_without_any(project, no_execution):
    with pytest.raises(SettingError, match=r"epochs=2 .* no parameters: index have none"):
        execute(["index"], parameters={"epochs": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profile": "quick"}, r"profile='quick' .* smoke, .* gpu, paper"),
        ({"jobs": 0}, r"jobs=0 .* at least 1"),
    ],
)
def test_bad_profile_and_jobs(project, no_execution, arguments, message):
    with pytest.raises(SettingError, match=message):
        execute(["paper1/fig2"], **arguments)


def test_a_parameters_cell_that_cannot_be_read(project, no_execution):
    write_notebook(project / "notebooks" / "paper1" / "fig3_odd.ipynb", parameters="profile: str = 'smoke' +")
    with pytest.raises(FsslError, match=r"fig3_odd\.ipynb: its parameters cell cannot be read"):
        execute(["paper1/fig3"])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": [', "<<<<<<< HEAD", "\xff"])
def test_a_file_that_is_no_notebook(project, no_execution, text):
    path = project / "notebooks" / "paper1" / "fig3_odd.ipynb"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FsslError, match=r"^[^\n]*fig3_odd\.ipynb is no notebook that can be read [^\n]*git restore"):
        execute(["paper1/fig3"])


@pytest.mark.parametrize("given", [{}, {"epochs": 9}])
def test_the_batch_starts_from_the_stored_defaults_whatever_an_editor_saved(project, monkeypatch, capsys, given):
    """JupyterLab saves a changed parameters cell by itself; the batch once took it and said "ok"."""
    path = project / "notebooks" / "paper1" / "fig2_first_words.ipynb"
    content = nbformat.read(path, as_version=4)
    content.metadata.fssl = Notebook("paper1/fig2", path).as_stored()
    content.cells[1].source = (
        content.cells[1]
        .source.replace("[0, 1]", "[7]")
        .replace("epochs: int = 3", "epochs: int = 9")
        .replace('"smoke"', '"laptop"')
    )
    nbformat.write(content, path)
    ran = []
    monkeypatch.setattr(module, "run_tasks", lambda tasks, jobs: ran.extend(tasks) or [])
    with pytest.raises(KeyError):  # nothing was run, so there is no row
        execute(["paper1/fig2"], parameters=given)
    assert ran[0].parameters == {"profile": "smoke", "seeds": [0, 1], "epochs": given.get("epochs", 3)}
    shown = capsys.readouterr().err
    assert "paper1/fig2: its parameters cell says " in shown
    assert "seeds = [7]" in shown
    assert ("epochs = 9" in shown) == (not given)
    assert "profile = 'laptop'" in shown  # the batch has its own, and says so
    assert "code was changed" not in shown

    content.cells[2].source += "\n# a thought"
    nbformat.write(content, path)
    with pytest.raises(KeyError):
        execute(["paper1/fig2"])
    assert "paper1/fig2: its code was changed since it was stored" in capsys.readouterr().err


def test_good_values_reach_papermill(project, monkeypatch):
    def pretend(tasks, jobs):
        assert jobs == 2  # there are no more notebooks: one gets half of the machine, and not a third
        assert [task.parameters for task in tasks] == [{}, {"profile": "gpu", "rate": 1, "limit": None, "seeds": [7]}]
        assert tasks[1].target == project / "build" / "gpu" / "paper1" / "fig2_first_words.ipynb"
        return [module.Outcome(task, "", 1.0, time.time()) for task in reversed(tasks)]

    monkeypatch.setattr(module, "run_tasks", pretend)
    values = {"rate": 1, "limit": None, "seeds": [7]}
    table = execute(["index", "paper1/fig2"], profile="gpu", parameters=values, jobs=3)
    assert table["artifact"].tolist() == ["index", "paper1/fig2"]


def test_execution(project, monkeypatch, capfd):
    """One notebook works and one fails: two kernels, of this Python, whatever the user has installed."""
    foreign = project / "jupyter" / "kernels" / "python3"
    foreign.mkdir(parents=True)
    (foreign / "kernel.json").write_text('{"argv": ["/nonexistent"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(project / "jupyter"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(resources, "cores", lambda: 8)
    monkeypatch.delenv("FSSL_WORKERS")
    stale = figures_root() / "paper1" / "fig10.laptop.json"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"claims": {"reproduced": 9, "contradicted": 9, "not run": 9}}')
    monkeypatch.chdir(project / "notebooks")

    values = {"seeds": [5], "rate": 1e-5}
    table = execute(["paper1/fig10", "paper1/fig2"], profile="laptop", parameters=values, jobs=2).set_index("artifact")

    assert table.index.tolist() == ["paper1/fig2", "paper1/fig10"]
    good, bad = table.loc["paper1/fig2"], table.loc["paper1/fig10"]
    assert (good["status"], bad["status"]) == ("ok", "failed")
    assert 0 < good["seconds"] < 60
    assert [good[f"claims {name}"] for name in ("reproduced", "contradicted", "not run")] == [2, 1, 0]
    assert good["figure"] == os.path.join("build", "figures", "paper1", "fig2.laptop.png")
    assert pd.isna(bad["claims reproduced"])
    assert pd.isna(bad["figure"])

    record = json.loads((figures_root() / "paper1" / "fig2.laptop.json").read_text())
    found = {"python": sys.executable, "folder": str(project), "seeds": [5], "rate": 1e-5}
    assert record["found"] == {**found, "workers": ["4", "1"]}  # two notebooks share eight cores
    partial = (project / bad["notebook"]).read_text()
    assert "no such luck" in partial
    shown = capfd.readouterr().err
    assert "paper1/fig2 done in" in shown
    assert "paper1/fig10 failed after" in shown
    assert "ValueError: no such luck" in shown
    assert f"The notebook up to there: {os.path.join('build', 'laptop', 'paper1', 'fig10_later.ipynb')}" in shown
    assert "\x1b[" not in shown
    assert "[2/2]" in shown


def test_ctrl_c_stops_the_notebooks(project):
    """The command is interrupted, and alone: its notebook must not go on computing."""
    write_notebook(
        project / "notebooks" / "paper1" / "fig4_slow.ipynb",
        "import os, time\nopen('kernel', 'w').write(str(os.getpid()))\ntime.sleep(900)",
    )
    # What a shell starts in the background, and all that this starts, ignores the signal unless told otherwise.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from fssl_core.experiments.notebooks import execute; execute(['paper1/fig4'])"
    pid = project / "kernel"
    with subprocess.Popen([sys.executable, "-c", code], cwd=project, stderr=subprocess.PIPE, text=True) as command:
        try:
            wait_until(lambda: (pid.exists() and pid.read_text()) or command.poll() is not None)
            command.send_signal(signal.SIGINT)
            _, stderr = command.communicate(timeout=PATIENCE)
        finally:
            command.kill()
    assert "KeyboardInterrupt" in stderr
    assert command.returncode != 0
    wait_until(lambda: not running(int(pid.read_text())))


def running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # where nobody collects it, as in a container
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("chosen", "expected"), [(None, "0"), ("1", "1")])
def test_notebooks_in_a_batch_take_recorded_runs_only_where_that_is_asked_for(project, monkeypatch, chosen, expected):
    seen = []
    monkeypatch.setattr(
        module,
        "_execute_one",
        lambda task, environment, processes, stopped: seen.append(environment) or Outcome(task, "", 1.0, 0.0),
    )
    monkeypatch.delenv("FSSL_RECORDED", raising=False)
    if chosen:
        monkeypatch.setenv("FSSL_RECORDED", chosen)
    execute(["paper1/fig2"])
    assert [environment["FSSL_RECORDED"] for environment in seen] == [expected]


def test_each_job_has_a_gpu_of_its_own_and_there_are_as_many_as_gpus(project, monkeypatch):
    """All had the first one."""
    monkeypatch.setattr(resources, "gpus", lambda: ["0", "1"])
    monkeypatch.setattr(module, "gpus", lambda: ["0", "1"])
    seen, both = [], threading.Barrier(2)

    def pretend(task, environment, processes, stopped):
        if len(seen) < 2:
            both.wait(timeout=60)  # two at a time
        seen.append(environment["CUDA_VISIBLE_DEVICES"])
        return Outcome(task, "", 1.0, time.time())

    monkeypatch.setattr(module, "_execute_one", pretend)
    execute(["paper1/fig2", "paper1/fig10"])
    assert sorted(seen) == ["0", "1"]


@pytest.mark.parametrize("executed", ['{"cells": [{"outp', "[]", '{"cells": [{"outputs": [{}]}]}'])
def test_of_a_notebook_that_is_half_written_papermills_words_are_the_failure(tmp_path, executed):
    path = tmp_path / "fig1.ipynb"
    path.write_text(executed)
    assert module._failure(path, "OSError: No space left on device").startswith("OSError: No space left on device")


def test_a_notebook_that_is_just_starting_when_the_batch_is_stopped_does_not_run(project, monkeypatch, tmp_path):
    """Ctrl-C ended those that ran; one whose process came later ran on, for hours."""
    stopped = threading.Event()

    def start_and_stop(command, environment, stdout, stderr):
        stopped.set()  # while it starts
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=stdout, stderr=stderr)

    monkeypatch.setattr(module, "start", start_and_stop)
    (notebook,) = find_notebooks(["paper1/fig2"])
    task = module.Task(notebook, {}, tmp_path / "out.ipynb")
    assert module._execute_one(task, {}, set(), stopped).seconds < 30
