"""The hand-out: a copy of the kit that students open with ``make lab``, with or without the answers."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from nbformat import NotebookNode

from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.experiments.refresh import read_notebook, write_notebook
from fssl_core.paths import project_root, shown_path

# Notebooks lead to other notebooks and to pictures, predictions read records, and all of them import the package.
PARTS = ("notebooks", "figures", "fssl_core", "docs", "examples", "Makefile", "pyproject.toml", "requirements.lock")
PARTS += ("environment.yml", "README.md", "LICENSE", "CITATION.cff")
FOR_STUDENTS = "docs/for_students.md"  # the first page of a hand-out without the answers
NOT_COPIED = ("__pycache__", ".*", "*.egg-info")
SOLUTIONS = "solutions"  # the folder in notebooks/course
SOLUTION = re.compile(r"<details>\s*<summary>Solution</summary>.*?</details>\s*", re.DOTALL)  # in a paper's notebook


def export(folder: Path, *, solutions: bool = True) -> Path:
    """Copy the kit into a new folder.

    Args:
        folder: where to; it must not be there yet.
        solutions: with the answers of the exercises: the course's, and those below the hints in the papers' notebooks;
            with the notes for the lecturer, and with the outputs of the course, which tell what is to be predicted.

    Returns:
        the folder of the course in the copy.

    Raises:
        FsslError: the folder is there, or in the project; a part is missing; or a notebook was changed since it was
            stored, so that the hand-out would have somebody's answers.
    """
    root, folder = project_root(), Path(folder).absolute()
    if folder.exists():
        raise FsslError(f"{folder} is there already: name a folder that is not.")
    if any(folder.is_relative_to(root / part) for part in PARTS):
        raise FsslError(f"{folder} is inside what would be copied: name a folder outside of the project.")
    missing = [part for part in PARTS if not (root / part).exists()]
    if missing:
        raise FsslError(f"{root} has no {', '.join(missing)}: call this from inside a clone of the project.")
    for notebook in find_notebooks():
        if notebook.as_stored()["code"] != notebook.as_it_stands()["code"]:
            place = shown_path(notebook.path)
            raise FsslError(
                f"{place} was changed since it was stored, perhaps by answers: `git restore {place}` brings it back, "
                f"`fssl refresh {notebook.id}` keeps the change."
            )

    ignored = shutil.ignore_patterns(*NOT_COPIED, *([] if solutions else [SOLUTIONS]))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as temporary:
        copy = Path(temporary, folder.name)
        copy.mkdir()
        try:
            for part in PARTS:
                if (root / part).is_dir():
                    shutil.copytree(root / part, copy / part, ignore=ignored)
                else:
                    shutil.copy2(root / part, copy / part)
        except shutil.Error as error:  # tells of every file that could not be copied; the first one's reason is enough
            reason = error.args[0][0][2]
            raise FsslError(f"{folder} could not be written: {reason}. Free some space, or name another.") from error
        if not solutions:
            shutil.copyfile(copy / FOR_STUDENTS, copy / "README.md")
            for path in (copy / "notebooks").rglob("*.ipynb"):
                _leave_out_solutions(path)
        os.rename(copy, folder)  # whole or not at all
    return folder / "notebooks" / "course"


def without_notes(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The cells of a notebook that are not for the lecturer alone."""
    return [cell for cell in cells if cell.metadata.get("slideshow", {}).get("slide_type") != "notes"]


def _leave_out_solutions(path: Path) -> None:
    """And what the lecturer says, and in the course the outputs: they answer the predictions above them."""
    notebook = read_notebook(path)
    notebook.cells = without_notes(notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = SOLUTION.sub("", cell.source)
        elif path.parent.name == "course":
            cell.outputs, cell.execution_count = [], None
    write_notebook(path, notebook)
