"""``fssl course export``: a copy that opens, without the answers where that is asked for."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fssl_core import cli
from fssl_core.course.handout import FOR_STUDENTS, PARTS, export
from fssl_core.errors import FsslError
from fssl_core.experiments.parameters import stored_with

ROOT = Path(__file__).parents[2]
HINT, SOLUTION = (f"<details><summary>{part}</summary>" for part in ("Hint", "Solution"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small clone with one module."""
    root = tmp_path / "clone"
    for part in PARTS:
        folder = root / (part if "." not in part and part not in ("Makefile", "LICENSE") else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("content.txt" if folder != root else part)).write_text(part)
    for name in ("solutions/03_averaging.py", ".ipynb_checkpoints/03_averaging-checkpoint.ipynb", "__pycache__/x.pyc"):
        path = root / "notebooks" / "course" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    cells = [
        new_markdown_cell("# 3. Averaging"),
        new_code_cell("fedavg = ...", metadata={"exercise": "averaging/fedavg"}),
    ]
    notebook = new_notebook(cells=cells, metadata={"fssl": stored_with(cells)})
    nbformat.write(notebook, root / "notebooks" / "course" / "03_averaging.ipynb")
    (root / "runs").mkdir()
    (root / FOR_STUDENTS).write_text("for students")
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("solutions", [True, False])
def test_a_hand_out_has_what_the_notebooks_need_and_nothing_of_the_lecturers(project, solutions, capsys):
    target = project.parent / "new" / "hand-out"
    assert cli.main(["course", "export", str(target), *([] if solutions else ["--without-solutions"])]) == 0
    assert str(target / "notebooks" / "course") in capsys.readouterr().out
    assert {path.name for path in target.iterdir()} == set(PARTS)
    files = {
        path.relative_to(target / "notebooks" / "course").as_posix()
        for path in (target / "notebooks" / "course").rglob("*.*")
    }
    assert ("solutions/03_averaging.py" in files) == solutions
    assert not [name for name in files if "checkpoint" in name or "pycache" in name]
    assert [path.name for path in target.parent.iterdir()] == ["hand-out"]


@pytest.fixture(scope="module")
def hand_out(tmp_path_factory):
    """What students get of this project."""
    folder = tmp_path_factory.mktemp("lecture") / "hand-out"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        export(folder, solutions=False)
    return folder


@pytest.fixture(scope="module")
def handed_out(hand_out):
    """Texts of the notebooks by path: of this project, and of what students get of it."""

    def texts(root):
        paths = [path for path in (root / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts]
        cells = {path: nbformat.read(path, as_version=4).cells for path in paths}
        return {path.relative_to(root): "\n".join(cell.source for cell in found) for path, found in cells.items()}

    return texts(ROOT), texts(hand_out)


def test_a_hand_out_has_no_solution_of_a_papers_notebook_and_all_of_its_hints_and_predictions(handed_out):
    stored, student = handed_out
    assert stored.keys() == student.keys()
    asked = {path for path, text in stored.items() if SOLUTION in text and "predict(" in text}
    assert len(asked) > 10
    for path, text in stored.items():
        for solution in text.split(SOLUTION)[1:]:
            lines = solution.partition("</details>")[0].strip().splitlines()
            assert lines, path
            assert [line for line in lines if len(line) > 20 and line in student[path]] == [], path
        assert "<summary>Solution" not in student[path]
        for kept in (HINT, "predict(", "\n### ", "</details>"):
            removed = text.count(SOLUTION) if kept == "</details>" else 0
            assert student[path].count(kept) == text.count(kept) - removed, (path, kept)


def test_what_students_read_first_is_written_for_them(hand_out):
    text = (hand_out / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# A course in")
    assert "make test" not in text  # there are no tests in it
    links = re.findall(r"`((?:notebooks|docs)/[^`]+)`", text)
    assert links
    assert not [link for link in links if not (hand_out / link).exists()]
    listed = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert {*listed} <= {*re.findall(r"^(\w+):", (hand_out / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}


def test_a_hand_out_has_no_notes_of_the_lecturer_and_nothing_that_answers_a_prediction(hand_out):
    notes = 0
    for path in sorted((ROOT / "notebooks" / "course").glob("*.ipynb")):
        mine, theirs = (nbformat.read(root / path.relative_to(ROOT), as_version=4).cells for root in (ROOT, hand_out))
        said = [cell.source for cell in mine if cell.metadata.get("slideshow", {}).get("slide_type") == "notes"]
        notes += len(said)
        assert not {*said} & {cell.source for cell in theirs}
        assert len(theirs) == len(mine) - len(said)
        assert not any(cell.outputs for cell in theirs if cell.cell_type == "code")
    assert notes > 5


def test_a_hand_out_with_solutions_has_the_notebooks_as_they_are(project):
    path = Path("notebooks", "course", "03_averaging.ipynb")
    export(project.parent / "hand-out")
    assert (project.parent / "hand-out" / path).read_bytes() == (project / path).read_bytes()


def test_a_hand_out_never_has_somebodys_answers(project):
    path = project / "notebooks" / "course" / "03_averaging.ipynb"
    content = json.loads(path.read_text())
    content["cells"][1]["source"] = "fedavg = 3"
    path.write_text(json.dumps(content))
    with pytest.raises(FsslError, match=r"course/03_averaging\.ipynb was changed since it was stored"):
        export(project.parent / "hand-out")
    assert not (project.parent / "hand-out").exists()


def test_what_cannot_be_exported_is_refused(project):
    (project.parent / "full").mkdir()
    with pytest.raises(FsslError, match="is there already"):
        export(project.parent / "full")
    with pytest.raises(FsslError, match="inside what would be copied"):
        export(project / "notebooks" / "hand-out")
    (project / "LICENSE").unlink()
    with pytest.raises(FsslError, match=r"has no LICENSE"):
        export(project.parent / "hand-out")
