"""Refreshing what notebooks store, so that a diff shows what changed and nothing else.

Stored are the outputs, and in Markdown what is generated: a text named ``recorded`` stands between
``<!-- recorded -->`` and ``<!-- /recorded -->``, and all else is its author's.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from fssl_core import __version__
from fssl_core.experiments.notebooks import Notebook, Task, find_notebooks, run_tasks, unreadable
from fssl_core.experiments.parameters import stored_with
from fssl_core.files import atomic_write
from fssl_core.jupyter import METADATA
from fssl_core.notices import TRANSIENT, say
from fssl_core.papers.records import seeds_in_words
from fssl_core.paths import PROFILES, figures_root, project_root
from fssl_core.settings import check_range

INSTALLATION = f"""import importlib.util

if importlib.util.find_spec("fssl_core") is None:
    raise SystemExit(
        "This notebook belongs to fssl-core {__version__}, which is not installed. Put into a cell above this one: "
        "%pip install 'fssl-core[notebooks] @ git+https://ADDRESS@COMMIT', with address and commit of the notebook."
    )"""
_HIDDEN = {  # from readers, in JupyterLab, on slides and in the book
    "jupyter": {"source_hidden": True},
    "slideshow": {"slide_type": "skip"},
    "tags": ["installation", "remove-cell"],
}

_SMOKE = ("profile", "devices", "seconds", "seeds")
_KEPT_CELL_METADATA = ("tags", "jupyter", "slideshow", "exercise")
_WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(ids: Sequence[str] = (), *, jobs: int = 1) -> list[str]:
    """Execute notebooks as they stand (their default profile is ``smoke``) and store the outputs in place.

    One that may be opened where the package is not installed gets a first cell that says so, see ``INSTALLATION``.

    Args:
        ids: which notebooks, as for :func:`~fssl_core.experiments.notebooks.find_notebooks`.
        jobs: how many at a time.

    Returns:
        the IDs of those that failed or gave a warning; they are left as they were.

    Raises:
        SettingError: an unknown ID, or no such number of jobs.
    """
    check_range("jobs", jobs, 1)
    root = project_root()
    folder = root / "build" / "refresh"
    notebooks = find_notebooks(ids)
    tasks = [Task(notebook, {}, folder / notebook.path.relative_to(root / "notebooks")) for notebook in notebooks]
    before: dict[Path, bytes] = {}  # of those that were changed to be executed
    try:
        for notebook in notebooks:
            stored, content = read_notebook(notebook.path), notebook.path.read_bytes()
            changed = declare_parameters(stored)
            if "/" in notebook.id:  # the others are about a clone
                changed |= add_installation(stored.cells)
            if changed:
                before[notebook.path] = content
                write_notebook(notebook.path, stored)
        return _store_outputs(tasks, jobs, root, before)
    finally:  # an interruption leaves them as they were, too
        for path, content in before.items():
            with atomic_write(path) as file:
                file.write(content)


def _store_outputs(tasks: Sequence[Task], jobs: int, root: Path, before: dict[Path, bytes]) -> list[str]:
    """Execute and store what succeeds, which then is not put back to what it was ``before``."""
    failed = []
    for outcome in run_tasks(tasks, jobs):
        notebook = outcome.task.notebook
        executed = None if outcome.error else read_notebook(outcome.task.target)
        warned = warnings_in(executed) if executed else []  # dropped with stderr below, nobody would see it any more
        if warned:
            say(f"{notebook.id} gives a warning, to be mended first: {warned[0]}")
        if executed is None or warned:
            failed.append(notebook.id)
            continue
        stored = normalised(read_notebook(notebook.path), executed, root)
        keep_smoke(stored, notebook)
        fill_recorded(stored, notebook)
        write_notebook(notebook.path, stored)
        before.pop(notebook.path, None)
    return failed


def declare_parameters(stored: NotebookNode) -> bool:
    """Let the metadata name the parameters of today, which a run of it may be given; whether that changed anything."""
    known = stored.metadata.get("fssl", {})
    try:
        declared = stored_with(stored.cells)["parameters"]
    except (SyntaxError, ValueError):  # its execution says what is wrong
        return False
    if not known or known["parameters"] == declared:
        return False
    known["parameters"] = declared
    return True


def add_installation(cells: list[NotebookNode]) -> bool:
    """Let the first cell below the title be :data:`INSTALLATION`, as of this version; whether that changed anything."""
    before = [dict(cell) for cell in cells]
    kept = [cell for cell in cells if "installation" not in cell.metadata.get("tags", ())]
    found = next((cell for cell in cells if cell not in kept), None)
    cell = found or new_code_cell(metadata=_HIDDEN, id="installation")
    cell.source = INSTALLATION
    cells[:] = [*kept[:1], cell, *kept[1:]]
    return [dict(cell) for cell in cells] != before


def warnings_in(executed: NotebookNode) -> list[str]:
    """The lines of stderr that name a Python warning."""
    outputs = (output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs)
    lines = (line for output in outputs if output.get("name") == "stderr" for line in output.text.splitlines())
    return [line.strip() for line in lines if re.search(r"\b[A-Z]\w*Warning: ", line)]


def normalised(source: NotebookNode, executed: NotebookNode, root: Path) -> NotebookNode:
    """The source notebook with the outputs of its execution, without anything that differs between two executions.

    Dropped: timings, stderr (warnings), progress and notices, widgets, papermill's and the editor's metadata, addresses
    of objects. ``root`` and the home folder become ``.`` and ``~``, executions are counted 1, 2, ..., cells without an
    id get one from their source. Images stay as they are. The metadata say which parameters and which code these are,
    see :func:`~fssl_core.experiments.parameters.stored_with`.

    Args:
        source: the notebook as it is kept.
        executed: the same notebook, executed without added cells.
        root: the project's folder.
    """
    cells, ids, count = [], set(), 0
    for cell, done in zip(source.cells, executed.cells, strict=True):
        kept = {key: value for key, value in cell.metadata.items() if key in _KEPT_CELL_METADATA}
        new = {"id": _cell_id(cell, ids), "cell_type": cell.cell_type, "metadata": kept, "source": cell.source}
        if cell.cell_type == "code":
            ran = done.execution_count is not None
            count += ran
            new["execution_count"] = count if ran else None
            new["outputs"] = _outputs(done.outputs, new["execution_count"], root)
        elif cell.get("attachments"):
            new["attachments"] = cell.attachments
        cells.append(new)
    metadata = METADATA | {"fssl": stored_with(cells)}
    return nbformat.from_dict({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def read_notebook(path: Path) -> NotebookNode:
    """A notebook as it is kept, valid or not.

    Raises:
        FsslError: it is no notebook.
    """
    try:  # v4.reads does not validate: a cell without an id is what we are here to mend.
        return nbformat.v4.reads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise unreadable(path, error) from error


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook as ``fssl refresh`` stores it, whole or not at all."""
    with atomic_write(path, "w") as file:
        file.write(nbformat.v4.writes(notebook) + "\n")


def fill(cells: Sequence[NotebookNode], texts: Mapping[str, str]) -> dict[str, int]:
    """Write each text between the two marks with its name, wherever Markdown cells have them; by name, in how many."""
    places = dict.fromkeys(texts, 0)
    for cell in (cell for cell in cells if cell.cell_type == "markdown"):
        for name, text in texts.items():
            marked = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
            cell.source, count = marked.subn(lambda at, text=text: f"{at[1]}\n\n{text}\n\n{at[2]}", cell.source)
            places[name] += count
    return places


def keep_smoke(stored: NotebookNode, notebook: Notebook) -> None:
    """Keep in the metadata how the figure was made just now: of ``smoke`` there are no records in ``figures/``."""
    path = notebook.result_path("smoke")
    if path.exists():
        made = json.loads(path.read_text(encoding="utf-8"))
        stored.metadata["fssl"]["smoke"] = {name: made[name] for name in _SMOKE if name in made}


def fill_recorded(stored: NotebookNode, notebook: Notebook) -> None:
    """Write the table of the recorded runs, ``recorded``, into the title cell."""
    found = [stored.metadata.get("fssl", {}).get("smoke"), *map(notebook.record, PROFILES[1:])]
    rows = [record for record in found if record is not None]
    lines = ["| profile | device | seconds | seeds |", "|---|---|---|---|", *map(_recorded_row, rows)]
    fill(stored.cells[:1], {"recorded": "\n".join(lines) if rows else "Not recorded yet."})


def _recorded_row(record: dict[str, Any]) -> str:
    seeds = seeds_in_words(record.get("seeds", []))
    seconds = f"{record['seconds']:.0f}" if "seconds" in record else ""
    return f"| {record['profile']} | {', '.join(record.get('devices', ()))} | {seconds} | {seeds} |"


def _cell_id(cell: NotebookNode, taken: set[str]) -> str:
    name, copies = cell.get("id"), 0
    while not name or name in taken:
        name = hashlib.sha256(f"{copies}{cell.source}".encode()).hexdigest()[:8]
        copies += 1
    taken.add(name)
    return name


def _outputs(outputs: Sequence[NotebookNode], count: int | None, root: Path) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for output in outputs:
        new = dict(output)
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            new["text"] = _plain(re.sub(r"[^\n]*\r(?!\n)", "", output.text), root)  # what a terminal would still show
            if kept and kept[-1]["output_type"] == "stream":  # when it was flushed is chance
                kept[-1]["text"] += new["text"]
                continue
        elif "data" in output:
            if output.metadata == TRANSIENT or (_WIDGET in output.data and "image/png" not in output.data):
                continue
            new["data"] = {
                kind: _plain(value, root) if isinstance(value, str) and not kind.startswith("image/") else value
                for kind, value in output.data.items()
                if kind != _WIDGET  # its picture stays
            }
            if output.output_type == "execute_result":
                new["execution_count"] = count
        kept.append(new)
    return kept


def _plain(text: str, root: Path) -> str:
    for path, short in ((figures_root(), "build/figures"), (root, "."), (Path.home(), "~")):
        if path != Path(path.anchor):
            text = re.sub(rf"(?<![\w./]){re.escape(str(path))}(?![\w-])", short, text)
    return re.sub(r"(?<= at )0x[0-9a-f]+", "0x0", text)
