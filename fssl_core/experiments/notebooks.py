"""Finding the notebooks and executing them in batch: papermill, a process and a kernel for each, forked on Linux.

``notebooks/<paper>/fig6_accuracy_by_cut.ipynb`` has the ID ``<paper>/fig6``; a notebook that is no figure or table of
a paper, such as ``index.ipynb``, has its file name for an ID: ``index``, or ``course/03_averaging``.
"""

import difflib
import json
import os
import queue
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.display import REPORT_SECONDS
from fssl_core.experiments.parameters import as_annotated, checked_value, refuse_profile, refuse_unknown, stored_with
from fssl_core.experiments.warm import Process, start, warm_python
from fssl_core.notices import say
from fssl_core.papers.records import about_record
from fssl_core.paths import PROFILES, figures_root, project_root, shown_path
from fssl_core.resources import divided, gpus
from fssl_core.settings import check_choice, check_range

if TYPE_CHECKING:
    import pandas as pd

CLAIMS = {
    f"claims {word}": word for word in ("reproduced", "contradicted", "inconclusive", "not run")
}  # column: record
_NAME = re.compile(r"[a-z0-9_]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Notebook:
    """One notebook of the project.

    Attributes:
        id: for example ``monacosfl/fig6``.
        path: of the file.
    """

    id: str
    path: Path

    @property
    def is_artifact(self) -> bool:
        """Whether it is about a paper: unlike the index and the modules of the course it has a record."""
        return "/" in self.id and not self.id.startswith("course/")

    @property
    def title(self) -> str:
        """The first heading, or an empty text."""
        for cell in self._content()["cells"]:
            heading = re.search(r"^#\s+(.+)$", "".join(cell["source"]), re.MULTILINE)
            if cell["cell_type"] == "markdown" and heading:
                return heading[1].strip()
        return ""

    def record(self, profile: str) -> dict[str, Any] | None:
        """How its figure was made at a profile; ``None`` where it was not.

        The reference record; of ``smoke``, which has none, what `fssl refresh` kept in the notebook.
        """
        if profile == "smoke":
            return self._content()["metadata"].get("fssl", {}).get("smoke")
        return about_record(self.id, profile)

    def result_path(self, profile: str) -> Path:
        """Where it leaves the like of a record when it is run."""
        return figures_root() / f"{self.id}.{profile}.json"

    def as_stored(self) -> dict[str, Any]:
        """Parameters and digest of the code that it was stored with; of one that was never stored, as it stands.

        Raises:
            FsslError: the parameters cell cannot be read.
        """
        stored = self._content()["metadata"].get("fssl")
        if not stored:
            return self.as_it_stands()
        parameters = as_annotated(stored["parameters"], next(iter(self.code()), ""))
        return {name: stored[name] for name in stored if name != "smoke"} | {"parameters": parameters}

    def as_it_stands(self) -> dict[str, Any]:
        """The same of the file as it is now, which an editor may have saved in the meantime; errors as above."""
        cells = [{**cell, "source": "".join(cell["source"])} for cell in self._content()["cells"]]
        try:
            return stored_with(cells)
        except (SyntaxError, ValueError) as error:
            raise FsslError(
                f"{shown_path(self.path)}: its parameters cell cannot be read ({error}). Each line has to be "
                "`name: type = literal  # help`."
            ) from error

    def code(self) -> list[str]:
        """The sources of its code cells, that of its parameters first: without the one that asks for the package."""
        cells = [cell for cell in self._content()["cells"] if cell["cell_type"] == "code"]
        return ["".join(cell["source"]) for cell in cells if "installation" not in cell["metadata"].get("tags", ())]

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return {"cells": content["cells"], "metadata": content["metadata"]}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise unreadable(self.path, error) from error


def unreadable(path: Path, error: Exception) -> FsslError:
    """What is said of a file that is no notebook."""
    return FsslError(f"{shown_path(path)} is no notebook that can be read ({error!r}). `git restore` brings it back.")


@dataclass(frozen=True)
class Task:
    """A notebook to execute: the parameters to set in it, and where the executed notebook goes."""

    notebook: Notebook
    parameters: dict[str, Any]
    target: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a task: ``error`` is empty unless it failed."""

    task: Task
    error: str
    seconds: float
    started: float


def find_notebooks(ids: Sequence[str] = ()) -> list[Notebook]:
    """The notebooks of the project, in reading order.

    Args:
        ids: IDs to pick; the key of a paper stands for all of its notebooks. None at all: every notebook.

    Raises:
        FsslError: no notebooks here, or two of them with one ID.
        SettingError: an ID that is not there; the message lists those that are.
    """
    root = project_root() / "notebooks"
    by_id: dict[str, Notebook] = {}
    for path in [*root.glob("*.ipynb"), *root.glob("[!.]*/*.ipynb")]:
        if not _NAME.fullmatch(path.stem):
            continue  # a reader's copy, such as fig6_accuracy_by_cut-Copy1
        artifact = re.match(r"((?:fig|table)\d+[a-z]?|hardness|headline)_", path.name)
        folder = path.relative_to(root).parent
        notebook = Notebook((folder / (artifact[1] if artifact else path.stem)).as_posix(), path)
        if notebook.id in by_id:
            raise FsslError(f"{by_id[notebook.id].path} and {path} have one ID, {notebook.id}: rename one of them.")
        by_id[notebook.id] = notebook
    if not by_id:
        raise FsslError(f"There are no notebooks in {root}: call this from inside a clone of the project.")
    notebooks = sorted(by_id.values(), key=lambda notebook: _natural(notebook.id))
    for name in ids:
        if not any(_matches(notebook, name) for notebook in notebooks):
            raise SettingError("ID", name, f"the ID of a notebook or the key of a paper{_meant(name, by_id)}")
    return [notebook for notebook in notebooks if not ids or any(_matches(notebook, name) for name in ids)]


def stored_notebook(id: str) -> Notebook | None:
    """One of the project's notebooks; ``None`` if it has no such one."""
    try:
        (notebook,) = find_notebooks([id])
    except FsslError:
        return None
    return notebook


def parameters_for(notebook: Notebook, values: Mapping[str, Any]) -> dict[str, Any]:
    """What to set in a notebook for a run with the stored defaults and the given values.

    An editor may have saved other values in its parameters cell: the defaults are set over them, and a line says so.

    Raises:
        SettingError: a parameter that the notebook does not have, or a value of the wrong type.
    """
    stored, now = notebook.as_stored(), notebook.as_it_stands()
    defaults = stored["parameters"]
    for name, value in values.items():
        refuse_unknown(name, value, list(defaults), notebook.id)
    parameters = {name: checked_value(name, value, defaults[name], notebook.id) for name, value in values.items()}
    edited = {name: now["parameters"].get(name) for name in defaults if now["parameters"].get(name) != defaults[name]}
    left_out = {name: value for name, value in edited.items() if name not in parameters}
    ignored = {name: value for name, value in edited.items() if name == "profile" and value != parameters.get(name)}
    if ignored := ignored | left_out:
        text = ", ".join(f"{name} = {value!r}" for name, value in ignored.items())
        say(f"{notebook.id}: its parameters cell says {text}, which is not used: give values by --profile and --set.")
    if stored["code"] != now["code"]:
        say(f"{notebook.id}: its code was changed since it was stored, and is run as it stands.")
    return {name: defaults[name] for name in left_out} | parameters


def execute(
    ids: Sequence[str] = (),
    *,
    profile: str = "smoke",
    parameters: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    folder: Path | None = None,
    cluster: str | None = None,
) -> "pd.DataFrame":
    """Execute notebooks at a profile; one that fails does not stop the others.

    Everything that can be checked is checked before the first one starts. Lines on stderr tell what there is to do,
    how far the notebooks are, and of each that is done, with the error of one that failed. On a cluster the runs of all
    notebooks are computed first, so that no worker waits for the last ones of a notebook.

    Args:
        ids: which notebooks, as for :func:`find_notebooks`.
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        parameters: values for the notebooks' parameters; each notebook must have them. A notebook without any
            parameters (the index) is executed as it is.
        jobs: how many at a time; default: one for each GPU, or one after the other.
        folder: where the executed notebooks go; default ``build/<profile>`` of the project.
        cluster: address of a Dask scheduler, where the runs of the notebooks are computed; default
            ``$DASK_SCHEDULER_ADDRESS``.

    Returns:
        one row for each notebook: ``artifact``, ``status`` (``"ok"`` or ``"failed"``), ``seconds``, how many claims are
        what (``claims reproduced``, ``claims contradicted``, ``claims inconclusive``, ``claims not run``: missing where
        the notebook records none), ``figure`` (missing where it draws none) and ``notebook``, the executed one.
    """
    import pandas as pd

    parameters = dict(parameters or {})
    check_choice("profile", profile, PROFILES)
    cluster = cluster or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if jobs is None:
        jobs = 1 if cluster else max(1, len(gpus()))
    check_range("jobs", jobs, 1)
    refuse_profile(parameters)
    folder = folder or project_root() / "build" / profile
    notebooks = find_notebooks(ids)
    with_parameters = [notebook for notebook in notebooks if notebook.as_stored()["parameters"]]
    for name, value in parameters.items():
        if not with_parameters:
            raise SettingError(name, value, f"no parameters: {', '.join(book.id for book in notebooks)} have none")
    tasks = []
    for notebook in notebooks:
        values = {"profile": profile, **parameters} if notebook in with_parameters else {}
        target = folder / notebook.path.relative_to(project_root() / "notebooks")
        tasks.append(Task(notebook, parameters_for(notebook, values), target))
    jobs = min(jobs, len(tasks))  # or a single notebook would have a part of the machine
    with in_environment({"DASK_SCHEDULER_ADDRESS": cluster, **resources_wanted(profile)} if cluster else {}):
        if cluster:
            _compute_on(cluster, ids, profile, parameters)
        rows = {outcome.task.notebook.id: _row(outcome, profile) for outcome in run_tasks(tasks, jobs)}
    table = pd.DataFrame([rows[notebook.id] for notebook in notebooks])
    return table.astype(dict.fromkeys(CLAIMS, "Int64"))


def _compute_on(address: str, ids: Sequence[str], profile: str, parameters: Mapping[str, Any]) -> None:
    """Compute the runs of notebooks on a cluster, and say what could not be computed.

    Raises:
        FsslError: nobody answers there, or Dask is missing.
    """
    from fssl_core.experiments.asked import compute  # which knows this module
    from fssl_core.experiments.cluster import Cluster  # needs Dask, which is optional
    from fssl_core.experiments.schedule import one_line

    with Cluster(address):
        pass  # somebody answers: what goes wrong from here on is a run
    try:
        compute(ids, profile, parameters)
    except Exception as error:  # of a run: the others are finished, and notebooks that do not need it can be drawn
        say(f"{one_line(error).rstrip('.')}. The notebooks follow; those that need it try again.")


@contextmanager
def in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables inside the block, for what reads them here and for processes that it starts."""
    before = {name: os.environ.pop(name) for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)


def resources_wanted(profile: str) -> dict[str, str]:
    """``$FSSL_RESOURCES`` of runs at a profile, unless the user has said it: a GPU at those that are made for GPUs."""
    return {"FSSL_RESOURCES": os.environ.get("FSSL_RESOURCES", "GPU=1")} if profile in ("gpu", "paper") else {}


def run_tasks(tasks: Sequence[Task], jobs: int = 1) -> Iterator[Outcome]:
    """Execute tasks, each in a process of its own, and yield the outcomes as they come, told on stderr as well.

    Each of the jobs has its part of the machine: a GPU, or some cores.

    When the caller is interrupted, the processes are stopped; their runs resume at the next call.
    """
    from fssl_core.experiments.batch import Batch  # which measures this machine with torch

    if find_spec("papermill") is None:
        raise FsslError('Executing notebooks needs papermill: pip install -e ".[notebooks]"')
    processes: set[Process] = set()
    stopped = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Batch(tasks, jobs, Path(folder))) as batch,
        ExitStack() as started,
        ThreadPoolExecutor(jobs) as pool,
    ):
        # Whoever reproduces wants runs computed, not those recorded; a variable that is set says otherwise.
        variables = {"FSSL_RECORDED": "0"} | _environment(Path(folder), jobs)
        variables |= started.enter_context(warm_python(variables))
        parts: queue.SimpleQueue = queue.SimpleQueue()
        for part in divided(jobs):
            parts.put(part)

        def execute_one(task: Task) -> Outcome:
            part = parts.get()  # there is one for each thread of the pool
            try:
                return _execute_one(task, {**variables, **part, **batch.environment(task)}, processes, stopped)
            finally:
                parts.put(part)

        futures = {pool.submit(execute_one, task): task for task in tasks}
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=REPORT_SECONDS, return_when=FIRST_COMPLETED)
                batch.update(futures[future] for future in pending if future.running())
                for future in done:
                    batch.tell(outcome := future.result())
                    yield outcome
        except BaseException:
            stopped.set()  # before those are ended that there are: one that is starting sees it
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(processes):
                process.kill()  # its kernel sees that within a second and goes too
            raise


def _execute_one(
    task: Task, environment: Mapping[str, str], processes: set[Process], stopped: threading.Event
) -> Outcome:
    task.target.parent.mkdir(parents=True, exist_ok=True)
    task.target.unlink(missing_ok=True)  # or an old one would be taken for what is executed now
    command = ["-m", "papermill", str(task.notebook.path), str(task.target)]
    command += ["--kernel", "python3", "--language", "python", "--no-progress-bar", "--cwd", str(project_root())]
    command += ["--start-timeout", "300"]  # seconds until the kernel is there; 60 are too few on a busy machine
    if task.parameters:
        command += ["--parameters_yaml", yaml.safe_dump(task.parameters)]
    started, clock = time.time(), time.monotonic()
    with tempfile.TemporaryFile("w+") as stderr, open(os.devnull, "w") as stdout:
        process = start(command, environment, stdout=stdout, stderr=stderr)
        processes.add(process)
        if stopped.is_set():
            process.kill()
        status = process.wait()
        processes.discard(process)
        stderr.seek(0)
        error = "" if status == 0 else _failure(task.target, stderr.read())
    return Outcome(task, error, time.monotonic() - clock, started)


def _environment(folder: Path, jobs: int) -> dict[str, str]:
    """Variables that make papermill's kernel this Python, whatever kernels are installed for the user."""
    from ipykernel.kernelspec import write_kernel_spec

    write_kernel_spec(folder / "kernels" / "python3")
    paths = [str(folder), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    environment = {**os.environ, "JUPYTER_PATH": os.pathsep.join(paths)}
    if jobs > 1:  # or what they compute outside of runs would take all cores each
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def _failure(executed: Path, stderr: str) -> str:
    """The end of the failing cell's traceback, or of what papermill said, and where to look."""
    text, where = stderr, ""
    if executed.exists():
        where = f"\nThe notebook up to there: {shown_path(executed)}"
        with suppress(OSError, ValueError, LookupError, TypeError):  # it may be half written, as when the disk is full
            for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"]:
                for output in cell.get("outputs", []):
                    if output["output_type"] == "error":
                        text = "\n".join(output["traceback"]) or f"{output['ename']}: {output['evalue']}"
    lines = [line for line in _ANSI.sub("", text).splitlines() if line.strip()]
    return "\n".join(lines[-8:]) + where


def _row(outcome: Outcome, profile: str) -> dict[str, Any]:
    notebook, row = outcome.task.notebook, dict.fromkeys([*CLAIMS, "figure"])
    path = notebook.result_path(profile)
    written = path.exists() and path.stat().st_mtime > outcome.started - 1  # clocks of file systems are coarse
    if written and not outcome.error:
        counts = json.loads(path.read_text(encoding="utf-8")).get("claims", {})
        row |= {column: counts.get(verdict) for column, verdict in CLAIMS.items()}
        figure = path.with_suffix(".png")
        row["figure"] = shown_path(figure) if figure.exists() else None
    return {
        "artifact": notebook.id,
        "status": "failed" if outcome.error else "ok",
        "seconds": round(outcome.seconds, 1),
        **row,
        "notebook": shown_path(outcome.task.target),
    }


def _meant(name: str, known: Iterable[str]) -> str:
    """What somebody who wrote an unknown ID may have meant, and where to look."""
    papers = dict.fromkeys(id.partition("/")[0] for id in known)
    close = (
        [id for id in known if id.endswith(f"/{name}")]
        or difflib.get_close_matches(name, () if "/" in name else papers, n=1, cutoff=0.8)
        or difflib.get_close_matches(name, known, n=3)
        or difflib.get_close_matches(name, papers, n=1)
    )
    return (f" (did you mean {' or '.join(close)}?)" if close else "") + "; `fssl list` shows them"


def _matches(notebook: Notebook, name: str) -> bool:
    """By its ID, its paper, or its file, as a shell completes it."""
    file = name.endswith(".ipynb") and Path(name).absolute() == notebook.path.absolute()
    return file or notebook.id == name or notebook.id.startswith(f"{name}/")


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key: ``index`` before the papers, ``fig2`` before ``fig10``."""
    parts = re.findall(r"\d+|\D+", name)
    return [("/" in name, 0, ""), *((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)]
