"""What students handed in: a row for each notebook, read from the results that ``check`` and ``predict`` left in it.

A notebook says what its owner wants it to say. Executed anew, it says what its code does.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from fssl_core.course.checking import MIME
from fssl_core.course.exercise import Exercise, exercises_of, place_of
from fssl_core.errors import FsslError
from fssl_core.files import open_file
from fssl_core.notices import printable, say, visible
from fssl_core.paths import project_root

COLUMNS = ("file", "module", "exercises", "answered", "passed", "predictions", "predicted", "close", "open", "problem")
CELL_SECONDS = 600  # that a cell may take when it is executed
NOTEBOOK_SECONDS = 1800  # after which each cell that is left gets a second: one may not let itself be interrupted
LARGEST = 64 << 20  # bytes of a notebook, pictures included
WARNING = (
    "--execute runs the code in these notebooks with your rights on this machine. Do that only with code that you "
    "trust, or with an account or a container that has nothing to lose."
)


def report(folder: Path, *, execute: bool = False) -> Iterator[dict[str, Any]]:
    """A row for each notebook with exercises below a folder, in the order of their paths; others are left out.

    Args:
        folder: with notebooks at any depth, for example a folder for each student.
        execute: run them anew, one after the other, and read what comes out; the files stay as they are.

    Yields:
        :data:`COLUMNS`: the notebook's path below the folder; its module of the course, or its ID if it is about a
        paper and has predictions alone; of how many exercises how many are
        ``answered`` and ``passed``; of how many ``predictions`` how many are made (``predicted``) and ``close``; the
        names of exercises that are not passed (``open``); and why a file could not be read or executed (``problem``).

    Raises:
        FsslError: there is no such folder, or no notebook with exercises in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FsslError(f"{folder} is no folder: name the one with the notebooks that were handed in.")
    if execute:
        say(WARNING)
    found = False
    for path in sorted(folder.rglob("*.ipynb")):
        file = path.relative_to(folder)
        if any(part.startswith(".") for part in file.parts):
            continue
        row = _row(path, execute)
        if row is not None:
            found = True
            name = printable(file.as_posix())
            name = f"'{name}" if name.startswith(("=", "+", "-", "@")) else name  # a spreadsheet would compute it
            yield dict.fromkeys(COLUMNS, "") | {"file": name} | row
    if not found:
        raise FsslError(f"There is no module of the course below {folder}, and no other notebook with exercises.")


def _row(path: Path, execute: bool) -> dict[str, Any] | None:
    try:
        with open_file(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        notebook = nbformat.reads(content.decode(), as_version=4)
    except Exception as error:  # whatever somebody may hand in
        return {"problem": f"cannot be read: {type(error).__name__}: {printable(error)}"}
    module = _module(notebook)
    if module is None:
        say(f"{visible(str(path))} has no exercise of the course and is left out.")
        return None
    problem = ""
    if execute:
        print(
            f"fssl: executing {visible(str(path))}; a cell may take {CELL_SECONDS // 60} minutes, Ctrl-C ends all",
            file=sys.stderr,
        )
        problem = _executed(notebook)
    results = _results(notebook)
    if not results:  # each check and prediction shows something, also of what is not answered
        problem = problem or "has no results: it was not run, or its outputs were cleared; --execute runs it"
    known = exercises_of(module)
    in_order = dict.fromkeys([*_marked(notebook), *known])
    own = {id: known[id] for id in in_order if id in known}
    checks = [id for id, one in own.items() if isinstance(one, Exercise)]
    guesses = [id for id in own if id not in checks]

    def count(ids: list[str], what: str) -> int:
        return sum(results.get(id, {}).get(what) is True for id in ids)

    missed = [id.rpartition("/")[2] for id in own if results.get(id, {}).get("passed") is not True]
    return {
        "module": module,
        "exercises": len(checks),
        "answered": count(checks, "answered"),
        "passed": count(checks, "passed"),
        "predictions": len(guesses),
        "predicted": count(guesses, "answered"),
        "close": count(guesses, "passed"),
        "open": " ".join(missed),
        "problem": problem,
    }


def _module(notebook: NotebookNode) -> str | None:
    """The module or paper's notebook of most of its exercises, None of a notebook without any.

    A student's own notebook has results alone, and no cells that say whose they are.
    """
    counts = Counter(map(place_of, _marked(notebook) or _results(notebook)))
    known = [module for module, _ in counts.most_common() if exercises_of(module)]
    return known[0] if known else None


def _marked(notebook: NotebookNode) -> list[str]:
    """The exercises that its cells are marked as."""
    ids = (cell.metadata.get("exercise") for cell in notebook.cells)
    return [id for id in ids if isinstance(id, str)]


def _results(notebook: NotebookNode) -> dict[str, dict[str, Any]]:
    """The last result of each exercise; what is none is passed over."""
    found = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {}).get(MIME)
            if isinstance(data, str):  # as some editors store it
                try:
                    data = json.loads(data)
                except (ValueError, RecursionError):
                    continue
            if isinstance(data, dict) and isinstance(data.get("exercise"), str):
                found[data["exercise"]] = data
    return found


class _Loop(asyncio.SelectorEventLoop):
    """Remembers that it was interrupted: nbclient's own handler ends the kernel, and its death is all that is told."""

    interrupted = False

    def add_signal_handler(self, number: int, _: Any) -> None:
        super().add_signal_handler(number, self._interrupt)

    def _interrupt(self) -> None:
        self.interrupted = True
        for task in asyncio.all_tasks(self):
            task.cancel()


def _executed(notebook: NotebookNode) -> str:
    """Execute it in place; a cell that fails does not stop the others. Returns what went wrong, or nothing."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    # This Python's own kernel, whatever kernels are installed for the user, or are named in the notebook.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    deadline = time.monotonic() + NOTEBOOK_SECONDS
    client = NotebookClient(
        notebook,
        km=manager,
        timeout_func=lambda cell: max(1.0, min(CELL_SECONDS, deadline - time.monotonic())),
        interrupt_on_timeout=True,
        error_on_timeout={"content": {"status": "error"}},  # or it would wait for an answer
        allow_errors=True,
        resources={"metadata": {"path": str(project_root())}},
    )
    loop = _Loop()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            # The kernel ends, too, which is ours and not the client's. What it logs of itself is no news of a notebook.
            runner.run(client.async_execute(cleanup_kc=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    except (Exception, asyncio.CancelledError) as error:  # the kernel died, or did not start
        if loop.interrupted:
            raise KeyboardInterrupt from error
        return f"could not be executed: {type(error).__name__}: {printable(error)}"
    if time.monotonic() > deadline:
        return f"took longer than {NOTEBOOK_SECONDS} s; cells after that had a second each"
    failed = [cell for cell in notebook.cells if any(o.output_type == "error" for o in cell.get("outputs", []))]
    return f"{len(failed)} cell{'s' * (len(failed) != 1)} failed" if failed else ""
