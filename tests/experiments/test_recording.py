"""Reference records: written by this command alone, from notebooks as they are stored."""

import os

import pytest
from nbformat import read, write
from nbformat.v4 import new_code_cell, new_notebook

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments import notebooks, recording
from fssl_core.experiments.parameters import stored_with
from fssl_core.papers.records import recorded_profiles
from fssl_core.paths import figures_root

PARAMETERS = 'profile: str = "smoke"\nseeds: list = []'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "notebooks" / "paper1"
    folder.mkdir(parents=True)
    for name in ("fig1_good", "fig2_bad"):
        cells = [new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}), new_code_cell("work()")]
        write(new_notebook(cells=cells, metadata={"fssl": stored_with(cells)}), folder / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def executed(monkeypatch):
    """Notebooks that are executed: all draw their figure, and fig2 fails after that."""
    tasks = []

    def run_tasks(given, jobs):
        for task in given:
            tasks.append(task)
            for suffix in recording.SUFFIXES:
                path = task.notebook.result_path(task.parameters["profile"]).with_suffix(suffix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text('{"claims": {}}' if suffix == ".json" else f"new {task.notebook.id}")
            error = "no luck" if task.notebook.id == "paper1/fig2" else ""
            yield notebooks.Outcome(task, error, 1.0, 0.0)

    monkeypatch.setattr(notebooks, "run_tasks", run_tasks)
    return tasks


def test_a_notebook_that_succeeds_becomes_a_record_and_one_that_fails_does_not(project, executed):
    old = project / "figures" / "paper1" / "fig2.laptop.csv"
    old.parent.mkdir(parents=True)
    old.write_text("the old record")
    table = recording.record(["paper1"], profile="laptop")
    assert table["status"].tolist() == ["ok", "failed"]
    assert [task.parameters for task in executed] == [{"profile": "laptop"}] * 2
    assert sorted(path.name for path in old.parent.iterdir()) == [
        "fig1.laptop.csv",
        "fig1.laptop.json",
        "fig1.laptop.png",
        "fig2.laptop.csv",
    ]
    assert old.read_text() == "the old record"
    assert (project / "figures" / "paper1" / "fig1.laptop.csv").read_text() == "new paper1/fig1"
    assert figures_root() == project / "build" / "figures"  # as before
    assert "FSSL_FIGURES" not in os.environ


@pytest.mark.parametrize(("old", "new"), [("[]", "[1]"), ("work()", "work(1)")])
def test_a_notebook_that_was_changed_cannot_become_a_record(project, executed, old, new):
    path = project / "notebooks" / "paper1" / "fig1_good.ipynb"
    notebook = read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace(old, new)
    write(notebook, path)
    with pytest.raises(FsslError, match=r"paper1/fig1 was changed since it was stored.*`fssl refresh paper1/fig1`"):
        recording.record(["paper1"], profile="laptop")
    assert executed == []


@pytest.mark.parametrize("profile", ["smoke", "fast"])
def test_only_profiles_that_are_kept_can_be_recorded(project, executed, profile):
    with pytest.raises(SettingError, match=rf"profile='{profile}' cannot be used: expected one of laptop, .*, paper"):
        recording.record(["paper1"], profile=profile)
    assert executed == []


def test_a_notebook_without_parameters_has_nothing_to_record(project):
    write(new_notebook(cells=[new_code_cell("1")]), project / "notebooks" / "index.ipynb")
    with pytest.raises(FsslError, match="Nothing to record: index has no parameters"):
        recording.record(["index"], profile="laptop")


def test_what_an_earlier_call_drew_does_not_become_a_record(project, monkeypatch):
    """A notebook that ends well without saving anything leaves the files of the last time where they are."""
    for suffix in recording.SUFFIXES:
        path = project / "build" / "record" / "paper1" / f"fig1.laptop{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (1, 1))
    monkeypatch.setattr(notebooks, "run_tasks", lambda tasks, *_: [notebooks.Outcome(tasks[0], "", 1.0, started=1e9)])
    assert recording.record(["paper1/fig1"], profile="laptop")["status"].tolist() == ["ok"]
    assert not (project / "figures").exists()


def test_a_record_that_was_cut_off_is_none(project, executed, monkeypatch):
    recording.record(["paper1/fig1"], profile="laptop")
    assert recorded_profiles("paper1/fig1") == ["laptop"]
    write = recording.atomic_write

    def full(path, *how):
        if path.suffix == ".csv":
            raise OSError("No space left on device")
        return write(path, *how)

    monkeypatch.setattr(recording, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        recording.record(["paper1/fig1"], profile="laptop")
    assert recorded_profiles("paper1/fig1") == []


def test_a_damaged_record_is_named(project):
    path = project / "figures" / "paper1" / "fig1.laptop.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(FsslError, match=r"fig1\.laptop\.json is no record any more"):
        notebooks.find_notebooks(["paper1/fig1"])[0].record("laptop")
