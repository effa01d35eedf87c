"""Stored outputs: what two executions have in common, and nothing else."""

import json
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.notebooks import Notebook
from fssl_core.experiments.refresh import fill, fill_recorded, normalised, refresh, warnings_in

ROOT = Path("/somewhere/project")


def outputs_of(*outputs, count=7):
    """Normalise a notebook of one code cell with these outputs."""
    source = new_notebook(cells=[new_code_cell("work()")])
    executed = new_notebook(cells=[new_code_cell("work()", execution_count=count, outputs=list(outputs))])
    return normalised(source, executed, ROOT).cells[0].outputs


def stream(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def data(**kinds):
    return new_output("display_data", data={kind.replace("_", "/"): value for kind, value in kinds.items()})


def test_stderr_goes_and_flushes_do_not_show():
    assert outputs_of(stream("a\n"), stream("warning!", "stderr"), stream("b\n")) == [stream("a\nb\n")]


def test_warnings_are_found_before_they_are_dropped():
    text = "50 %|###  |\n./a.py:3: FutureWarning: use b\n  a()\nfssl: a notice\n"
    cell = new_code_cell("work()", outputs=[stream("UserWarning: on stdout"), stream(text, "stderr")])
    assert warnings_in(new_notebook(cells=[cell])) == ["./a.py:3: FutureWarning: use b"]
    assert warnings_in(new_notebook(cells=[new_code_cell("work()", outputs=[stream("fine", "stderr")])])) == []


def test_only_the_last_state_of_a_progress_bar_on_stdout_stays():
    assert outputs_of(stream(" 10 %\r 50 %\rdone\nnext\r\n"))[0].text == "done\nnext\r\n"


def test_paths_and_addresses():
    text = f"{ROOT}/runs/x and {ROOT} and {ROOT}-other and {Path.home()}/data and /mnt{ROOT} <A at 0x7f12ab>"
    assert outputs_of(stream(text))[0].text == f"./runs/x and . and {ROOT}-other and ~/data and /mnt{ROOT} <A at 0x0>"
    assert outputs_of(data(text_html=f"<a href='{ROOT}/f'>"))[0].data["text/html"] == "<a href='./f'>"


def test_figures_elsewhere_are_stored_as_in_the_project(monkeypatch):
    monkeypatch.setenv("FSSL_FIGURES", "/scratch/figures")
    (output,) = outputs_of(stream("Saved: /scratch/figures/ldawa/fig5.smoke.png"))
    assert output.text == "Saved: build/figures/ldawa/fig5.smoke.png"


def test_images_stay_and_widgets_go():
    widget = new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
    picture = data(image_png="iVBORw0KGgo=", text_plain="<Figure>")
    assert outputs_of(widget, picture) == [picture]


def test_the_picture_of_a_widget_stays_without_the_widget():
    kinds = {"image/png": "aW1n", "text/plain": "shown: cut 5"}
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}
    (kept,) = outputs_of(new_output("display_data", data=widget | kinds))
    assert kept["data"] == kinds


def test_results_are_numbered_like_their_cell():
    result = new_output("execute_result", data={"text/plain": "3"}, execution_count=7)
    assert outputs_of(result)[0].execution_count == 1


def test_cells():
    timings = {"execution": {"iopub.execute_input": "2026"}, "papermill": {"duration": 1.2}, "tags": ["parameters"]}
    source = new_notebook(
        cells=[
            new_markdown_cell("# Title"),
            new_code_cell("a = 1", metadata=timings, execution_count=40, outputs=[stream("old")]),
            new_code_cell("", execution_count=41),
            new_code_cell("a"),
        ],
        metadata={"kernelspec": {"name": "mine", "display_name": "Mine"}, "widgets": {}, "papermill": {"version": "2"}},
    )
    executed = NotebookNode(json.loads(json.dumps(source), object_hook=NotebookNode))
    for cell, count in zip(executed.cells, [None, 3, None, 5], strict=True):
        cell.execution_count = count
        cell.outputs = []
    new = normalised(source, executed, ROOT)
    nbformat.validate(new)
    assert [cell.get("execution_count") for cell in new.cells] == [None, 1, None, 2]
    assert [cell.metadata for cell in new.cells] == [{}, {"tags": ["parameters"]}, {}, {}]
    assert [cell.id for cell in new.cells] == [cell.id for cell in source.cells]
    assert new.cells[1].outputs == []
    assert new.metadata.pop("fssl").parameters == {"a": 1}
    assert new.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_cells_without_an_id_get_a_stable_one():
    source = new_notebook(cells=[new_code_cell("a"), new_code_cell("a"), new_code_cell("b")])
    source.cells[1].id = source.cells[2].id = source.cells[0].id
    first = [cell.id for cell in normalised(source, source, ROOT).cells]
    assert first[0] == source.cells[0].id
    assert len(set(first)) == 3
    source.cells.insert(1, new_markdown_cell("new"))
    second = [cell.id for cell in normalised(source, source, ROOT).cells]
    assert [second[0], *second[2:]] == first  # a new cell does not rename the others


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks" / "paper1").mkdir(parents=True)
    for folder in ("figures", "build/figures"):
        (tmp_path / folder / "paper1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(project, profile, **fields):
    path = project / "figures" / "paper1" / f"fig1.{profile}.json"
    path.write_text(json.dumps({"profile": profile, **fields}))


TITLE = "# Fig. 1\n\n<!-- recorded -->\nold\n<!-- /recorded -->\n\nafter"


def test_the_recorded_block(project):
    record(project, "laptop", devices=["cpu"], seconds=412.6, seeds=[0, 1, 2])
    smoke = {"profile": "smoke", "devices": ["cpu"], "seconds": 3.2, "seeds": []}
    stored = new_notebook(cells=[new_markdown_cell(TITLE)], metadata={"fssl": {"smoke": smoke}})
    notebook = Notebook("paper1/fig1", project / "unused")
    for _ in range(2):  # filling it twice changes nothing
        fill_recorded(stored, notebook)
        assert stored.cells[0].source == (
            "# Fig. 1\n\n<!-- recorded -->\n\n| profile | device | seconds | seeds |\n|---|---|---|---|\n"
            "| smoke | cpu | 3 |  |\n| laptop | cpu | 413 | 0, 1, 2 |\n\n<!-- /recorded -->\n\nafter"
        )


def test_the_recorded_block_when_nothing_is_recorded(project):
    stored = new_notebook(cells=[new_markdown_cell(TITLE)])
    fill_recorded(stored, Notebook("paper1/fig1", project / "unused"))
    assert "<!-- recorded -->\n\nNot recorded yet.\n\n<!-- /recorded -->" in stored.cells[0].source


def test_generated_texts_stand_where_their_marks_are_and_nowhere_else():
    marks = "<!-- a -->old<!-- /a -->"
    cells = [new_markdown_cell(f"x {marks} y {marks}"), new_code_cell(f"# {marks}"), new_markdown_cell("<!-- a -->")]
    for _ in range(2):
        fill(cells, {"a": r"\1 \g<0>", "b": "nowhere"})
        text = "<!-- a -->\n\n\\1 \\g<0>\n\n<!-- /a -->"
        assert [cell.source for cell in cells] == [f"x {text} y {text}", f"# {marks}", "<!-- a -->"]


def test_refresh(project, capsys):
    """One notebook is refreshed, one fails and stays as it was; a second refresh changes nothing."""
    good, bad = (project / "notebooks" / "paper1" / name for name in ("fig1_good.ipynb", "fig2_bad.ipynb"))
    lines = [
        "import os, sys, json",
        "print(os.getcwd(), object())",
        "print('warning', file=sys.stderr)",
        "record = {'profile': profile, 'devices': ['cpu'], 'seconds': 1, 'seeds': [4]}",
        "_ = open('build/figures/paper1/fig1.smoke.json', 'w').write(json.dumps(record))",
        "6 * 7",
    ]
    parameters = new_code_cell('profile: str = "smoke"', metadata={"tags": ["parameters"]}, execution_count=9)
    # Without a kernel in its metadata, as an editor may leave it.
    nbformat.write(new_notebook(cells=[new_markdown_cell(TITLE), parameters, new_code_cell("\n".join(lines))]), good)
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0")]), bad)
    before = bad.read_text()

    assert refresh(jobs=2) == ["paper1/fig2"]
    assert bad.read_text() == before
    assert "ZeroDivisionError" in capsys.readouterr().err
    stored = nbformat.read(good, as_version=4)
    assert [cell.get("execution_count") for cell in stored.cells] == [None, 1, 2, 3]
    assert "installation" in stored.cells[1].metadata.tags
    assert stored.cells[3].outputs == [
        stream(". <object object at 0x0>\n"),
        new_output("execute_result", data={"text/plain": "42"}, execution_count=3),
    ]
    assert "| smoke | cpu | 1 | 4 |" in stored.cells[0].source
    assert stored.metadata.kernelspec.name == "python3"
    assert stored.metadata.fssl.parameters == {"profile": "smoke"}
    notebook = Notebook("paper1/fig1", good)
    assert notebook.as_it_stands() == notebook.as_stored()
    assert notebook.record("smoke") == {"profile": "smoke", "devices": ["cpu"], "seconds": 1, "seeds": [4]}
    assert notebook.record("laptop") is None

    text = good.read_text()
    assert refresh(["paper1/fig1"]) == []
    assert good.read_text() == text

    stored.cells[2].source += "\nextra: int = 1"  # known when it is executed
    stored.cells[3].source += "\nfrom fssl_core.experiments.notebooks import stored_notebook"
    stored.cells[3].source += "\nparameters = stored_notebook('paper1/fig1').as_stored()['parameters']"
    stored.cells[3].source += "\nassert parameters == {'profile': 'smoke', 'extra': extra}"
    nbformat.write(stored, good)
    assert refresh(["paper1/fig1"]) == []
    assert nbformat.read(good, as_version=4).metadata.fssl.parameters == {"profile": "smoke", "extra": 1}


def test_an_interruption_leaves_notebooks_as_they_were(project, monkeypatch):
    path = project / "notebooks" / "paper1" / "fig1_good.ipynb"
    parameters = new_code_cell('profile: str = "smoke"', metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[new_markdown_cell(TITLE), parameters, new_code_cell("1")]), path)
    before = path.read_bytes()

    def interrupted(tasks, jobs):
        assert path.read_bytes() != before  # it got the cell of the installation
        raise KeyboardInterrupt

    monkeypatch.setattr("fssl_core.experiments.refresh.run_tasks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        refresh()
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ['{"cells": [<<<<<<< HEAD', "{}"])
def test_a_notebook_that_cannot_be_read_is_named(project, text):
    path = project / "notebooks" / "paper1" / "fig1_odd.ipynb"
    path.write_text(text)
    with pytest.raises(FsslError, match=r"fig1_odd\.ipynb is no notebook that can be read"):
        refresh()
    assert path.read_text() == text


@pytest.mark.parametrize("jobs", [0, -1])
def test_a_number_of_jobs_that_is_none(project, jobs):
    with pytest.raises(SettingError, match=f"jobs={jobs} cannot be used"):
        refresh(jobs=jobs)
