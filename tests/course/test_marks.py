"""``fssl course report``: what students handed in, whatever it is."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fssl_core import cli
from fssl_core.course.checking import MIME
from fssl_core.course.exercise import Exercise, exercises_of
from fssl_core.course.marks import COLUMNS, WARNING, report
from fssl_core.errors import FsslError
from tests.processes import PATIENCE, wait_until

CHECKS = [id for id, known in exercises_of("averaging").items() if isinstance(known, Exercise)]


def result(id, passed=True, answered=True, kind="check", **more):
    return {"exercise": id, "kind": kind, "answered": answered, "passed": passed, "hint": None, **more}


def cell(id, *results, source="fedavg = ..."):
    outputs = [new_output("display_data", data={MIME: one, "text/plain": "✔ all right"}) for one in results]
    return new_code_cell(source, metadata={"exercise": id}, outputs=outputs)


def hand_in(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# 3"), *cells]), path)


def rows(folder, capsys, *options):
    assert cli.main(["course", "report", str(folder), *options]) == 0
    out, err = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(out))), err


def test_a_row_for_each_notebook_with_what_was_passed_and_predicted(tmp_path, capsys):
    hand_in(
        tmp_path / "anna, b" / "03_averaging.ipynb",
        cell(
            "averaging/fedavg", result("averaging/fedavg", passed=False), result("averaging/fedavg")
        ),  # the last counts
        cell("averaging/divide", result("averaging/divide", passed=False)),
        cell("averaging/drift", result("averaging/drift", passed=False, answered=False)),
        cell("averaging/dirichlet_loss", result("averaging/dirichlet_loss", kind="prediction", passed=False, value=20)),
    )
    hand_in(tmp_path / "ben" / "x.ipynb", *(cell(id, result(id)) for id in exercises_of("averaging")))
    hand_in(tmp_path / "ben" / "notes.ipynb", new_code_cell("1"))
    hand_in(tmp_path / "ben" / ".ipynb_checkpoints" / "x.ipynb", cell("averaging/fedavg"))
    (anna, ben), _ = rows(tmp_path, capsys)
    assert list(anna) == list(COLUMNS)
    total = str(len(CHECKS))
    assert anna == {
        "file": "anna, b/03_averaging.ipynb",
        "module": "averaging",
        "exercises": total,
        "answered": "2",
        "passed": "1",
        "predictions": "1",
        "predicted": "1",
        "close": "0",
        "open": "divide drift dirichlet_loss unlikeness round_bytes",  # in the order of anna's notebook
        "problem": "",
    }
    assert (ben["file"], ben["passed"], ben["close"], ben["open"]) == ("ben/x.ipynb", total, "1", "")


def test_the_name_of_a_file_is_no_formula_to_a_spreadsheet(tmp_path, capsys):
    hand_in(tmp_path / '=HYPERLINK("x").ipynb', cell("averaging/fedavg", result("averaging/fedavg")))
    (row,), _ = rows(tmp_path, capsys)
    assert row["file"] == '\'=HYPERLINK("x").ipynb'


def test_a_notebook_without_outputs_is_no_notebook_without_answers(tmp_path, capsys):
    """Before handing in, some clear what they have run."""
    hand_in(tmp_path / "cleared.ipynb", cell("averaging/fedavg"), cell("averaging/divide"))
    hand_in(tmp_path / "open.ipynb", cell("averaging/fedavg", result("averaging/fedavg", False, False)))
    (cleared, unanswered), _ = rows(tmp_path, capsys)
    assert (cleared["answered"], unanswered["answered"]) == ("0", "0")
    assert "outputs were cleared; --execute runs it" in cleared["problem"]
    assert unanswered["problem"] == ""


def test_predictions_in_a_papers_notebook_have_a_row_too(tmp_path, capsys):
    id = "monacosfl/fig3/cheapest"
    hand_in(tmp_path / "fig3_traffic.ipynb", new_code_cell("1"), cell(id, result(id, kind="prediction", value=7)))
    ((row,), _) = rows(tmp_path, capsys)
    assert (row["module"], row["exercises"], row["open"]) == ("monacosfl/fig3", "0", "rarely")
    assert (row["predictions"], row["predicted"], row["close"]) == ("2", "1", "1")


def test_a_students_own_notebook_has_a_row_by_its_results_and_what_has_none_is_named(tmp_path, capsys):
    hand_in(
        tmp_path / "own.ipynb",
        new_code_cell("", outputs=cell("averaging/fedavg", result("averaging/fedavg")).outputs),
        new_code_cell("", outputs=cell("averaging/drift", result("averaging/drift", passed=False)).outputs),
    )
    hand_in(tmp_path / "diary.ipynb", new_code_cell("1"))
    ((own,), said) = rows(tmp_path, capsys)
    assert (own["module"], own["answered"], own["passed"]) == ("averaging", "2", "1")
    assert "diary.ipynb has no exercise of the course and is left out" in said


def test_prose_and_forged_or_damaged_results_do_not_count(tmp_path, capsys):
    hand_in(
        tmp_path / "a.ipynb",
        cell("averaging/fedavg"),
        cell("averaging/divide", [1, 2], "{", json.dumps(result("averaging/divide")), {"exercise": 3}),
        cell("averaging/drift", result("averaging/drift", passed="yes")),
        new_code_cell("", outputs=[new_output("stream", text="✔ averaging/fedavg: right")]),
        cell(7, result("contrastive/ema")),  # of another module
    )
    (tmp_path / "b.ipynb").write_text("not a notebook")
    (tmp_path / "c.ipynb").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "d.ipynb")
    (tmp_path / "e.ipynb").symlink_to("/dev/zero")
    hand_in(tmp_path / "f.ipynb", cell("averaging/fedavg", "[" * 200_000))
    hand_in(Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller")) / "g.ipynb", cell("averaging/fedavg"))
    (named, one, *unread, deep), _ = rows(tmp_path, capsys)
    assert (one["passed"], one["answered"]) == ("1", "2")
    assert [row["problem"].partition(":")[0] for row in unread] == ["cannot be read"] * 4
    assert deep["passed"] == "0"
    assert named["file"] == "M\N{REPLACEMENT CHARACTER}ller/g.ipynb"


def test_what_is_no_folder_of_modules_is_refused(tmp_path):
    with pytest.raises(FsslError, match="is no folder"):
        list(report(tmp_path / "none"))
    hand_in(tmp_path / "a.ipynb", new_code_cell("1"))
    with pytest.raises(FsslError, match="no module of the course below"):
        list(report(tmp_path))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # told of by the libraries that start kernels
def test_executed_anew_a_forged_result_is_gone_and_a_failing_cell_stops_nobody(warm_environment, tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    check = "from fssl_core.course import check\ncheck('averaging/{0}', {1})"
    hand_in(
        path,
        cell("averaging/drift", result("averaging/drift"), source=check.format("drift", "None")),
        cell("averaging/divide", source="1 / 0"),
        cell(
            "averaging/fedavg", source=check.format("fedavg", "lambda models, images: images / images.sum() @ models")
        ),
    )
    before = path.read_bytes()
    (row,), said = rows(tmp_path, capsys, "--execute")
    assert (row["passed"], row["answered"], row["problem"]) == ("1", "1", "1 cell failed")
    assert WARNING in said
    assert path.read_bytes() == before


def test_ctrl_c_ends_a_report_and_the_cell_that_is_running(tmp_path):
    """nbclient ended the kernel and gave the student the blame; the next notebook was executed."""
    started = tmp_path / "started"
    for name in ("one", "two"):
        endless = f"with open({str(started)!r}, 'a') as file:\n    file.write('.')\nwhile True: pass"
        hand_in(tmp_path / f"{name}.ipynb", cell("averaging/fedavg", source=endless))
    command = [sys.executable, "-m", "fssl_core.cli", "course", "report", str(tmp_path), "--execute"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(started.exists)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert started.read_text() == "."
    assert "Traceback" not in errors


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # as above
def test_a_notebook_ends_though_a_cell_does_not_let_itself_be_interrupted(warm_environment, tmp_path, monkeypatch):
    endless = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)"
    hand_in(tmp_path / "a.ipynb", cell("averaging/fedavg", source=endless), cell("averaging/divide", source="1"))
    monkeypatch.setattr("fssl_core.course.marks.NOTEBOOK_SECONDS", 1)
    monkeypatch.setattr("jupyter_client.manager.KernelManager.shutdown_wait_time", 0.5)  # it does not listen
    (row,) = report(tmp_path, execute=True)
    assert row["problem"] == "took longer than 1 s; cells after that had a second each"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # as above
def test_a_kernel_has_nothing_to_say_for_itself(warm_environment, tmp_path, capfd):
    hand_in(tmp_path / "a.ipynb", cell("averaging/fedavg", source="1"))
    assert len([*report(tmp_path, execute=True)]) == 1
    out, said = capfd.readouterr()  # of the kernel's process, too
    assert out == ""
    assert WARNING in said
    assert "TCP" not in said
