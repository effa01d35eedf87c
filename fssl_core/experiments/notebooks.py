"""Finding the notebooks and executing them in batch: papermill, one process for each notebook.

``notebooks/<paper>/fig6_accuracy_by_cut.ipynb`` has the ID ``<paper>/fig6``; a notebook that is no figure or table of
a paper, such as ``index.ipynb``, has its file name for an ID.
"""

import ast
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fssl_core.errors import FsslError, SettingError
from fssl_core.paths import PROFILES, figures_root, project_root
from fssl_core.settings import check_choice, check_range

_TYPES = {"int": int, "float": (int, float), "str": str, "bool": bool, "list": list, "dict": dict}
_CLAIMS = {"claims held": "holds", "claims failed": "fails", "claims not run": "not run"}  # column: in the record
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
    def title(self) -> str:
        """The first heading, or an empty text."""
        for cell in json.loads(self.path.read_text(encoding="utf-8"))["cells"]:
            heading = re.search(r"^#\s+(.+)$", "".join(cell["source"]), re.MULTILINE)
            if cell["cell_type"] == "markdown" and heading:
                return heading[1].strip()
        return ""

    def record(self, profile: str) -> dict[str, Any] | None:
        """How its figure was made at a profile; ``None`` where it was not."""
        try:
            return json.loads(self.record_path(profile).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def record_path(self, profile: str) -> Path:
        """Where the notebook leaves that record."""
        return figures_root() / f"{self.id}.{profile}.json"


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
    found: dict[str, Notebook] = {}
    for path in [*root.glob("*.ipynb"), *root.glob("[!.]*/*.ipynb")]:
        artifact = re.match(r"((?:fig|table)\d+[a-z]?|hardness|headline)_", path.name)
        folder = path.relative_to(root).parent
        notebook = Notebook((folder / (artifact[1] if artifact else path.stem)).as_posix(), path)
        if notebook.id in found:
            raise FsslError(f"{found[notebook.id].path} and {path} have one ID, {notebook.id}: rename one of them.")
        found[notebook.id] = notebook
    if not found:
        raise FsslError(f"There are no notebooks in {root}: call this from inside a clone of the project.")
    notebooks = sorted(found.values(), key=lambda notebook: _natural(notebook.id))
    for wanted in ids:
        if not any(_matches(notebook, wanted) for notebook in notebooks):
            close = difflib.get_close_matches(wanted, found, n=3)
            hint = f" (did you mean {' or '.join(close)}?)" if close else ""
            raise SettingError("ID", wanted, f"one of {', '.join(notebook.id for notebook in notebooks)}{hint}")
    return [notebook for notebook in notebooks if not ids or any(_matches(notebook, wanted) for wanted in ids)]


def known_parameters(notebook: Notebook) -> dict[str, Mapping[str, str]]:
    """The parameters that a notebook declares, as papermill reads them: name, inferred type, default and help.

    Raises:
        FsslError: the notebook does not say which language it is in.
    """
    papermill = _papermill()
    try:
        return papermill.inspect_notebook(notebook.path)
    except ValueError as error:
        raise FsslError(f"{notebook.path}: {error} `fssl refresh {notebook.id}` writes it.") from error


def check_parameters(notebook: Notebook, known: Mapping[str, Mapping[str, str]], values: Mapping[str, Any]) -> None:
    """Raise :class:`SettingError` for a parameter that the notebook does not have, or a value of the wrong type."""
    for name, value in values.items():
        if name not in known:
            raise SettingError(name, value, f"a parameter of {notebook.id}: {', '.join(known)}")
        kind, default = _declared(known[name])
        if kind not in _TYPES or (value is None and default is None):
            continue
        # A bool is an int to Python, but not to a reader.
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
            given = f"{kind} for {notebook.id}, such as the default {known[name]['default']}"
            raise SettingError(name, value, f"a value of type {given}")


def execute(
    ids: Sequence[str] = (),
    *,
    profile: str = "smoke",
    parameters: Mapping[str, Any] | None = None,
    jobs: int = 1,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Execute notebooks at a profile; one that fails does not stop the others.

    Everything that can be checked is checked before the first one starts. A line on stderr tells of each notebook
    that is done, with the error of one that failed.

    Args:
        ids: which notebooks, as for :func:`find_notebooks`.
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        parameters: values for the notebooks' parameters; each notebook must have them. A notebook without any
            parameters (the index) is executed as it is.
        jobs: how many at a time.
        folder: where the executed notebooks go; default ``build/<profile>`` of the project.

    Returns:
        one row for each notebook: ``artifact``, ``status`` (``"ok"`` or ``"failed"``), ``seconds``, ``claims held``,
        ``claims failed``, ``claims not run`` (missing where the notebook records none), ``figure`` (missing where it
        draws none) and ``notebook``, the executed one.

    Raises:
        SettingError: unknown ID, profile or parameter, or a value of the wrong type.
    """
    parameters = dict(parameters or {})
    check_choice("profile", profile, PROFILES)
    check_range("jobs", jobs, 1)
    if "profile" in parameters:
        raise SettingError("profile", parameters["profile"], "the option --profile, which names the figures as well")
    folder = folder or project_root() / "build" / profile
    notebooks = find_notebooks(ids)
    known = {notebook.id: known_parameters(notebook) for notebook in notebooks}
    for name, value in parameters.items():
        if not any(known.values()):
            raise SettingError(name, value, f"no parameters: {', '.join(known)} have none")
    tasks = []
    for notebook in notebooks:
        values = {"profile": profile, **parameters} if known[notebook.id] else {}
        check_parameters(notebook, known[notebook.id], values)
        target = folder / notebook.path.relative_to(project_root() / "notebooks")
        tasks.append(Task(notebook, values, target))
    rows = {outcome.task.notebook.id: _row(outcome, profile) for outcome in run_tasks(tasks, jobs)}
    table = pd.DataFrame([rows[notebook.id] for notebook in notebooks])
    return table.astype(dict.fromkeys(_CLAIMS, "Int64"))


def run_tasks(tasks: Sequence[Task], jobs: int = 1) -> Iterator[Outcome]:
    """Execute tasks, each in a process of its own, and yield the outcomes as they come, told on stderr as well.

    When the caller is interrupted, the processes are stopped; their runs resume at the next call.
    """
    _papermill()
    processes: set[subprocess.Popen] = set()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as kernels, ThreadPoolExecutor(jobs) as pool:
        environment = _environment(Path(kernels), jobs)
        futures = [pool.submit(_execute_one, task, environment, processes) for task in tasks]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                outcome = future.result()
                left = (time.monotonic() - began) / done * (len(tasks) - done)
                _tell(outcome, f"[{done}/{len(tasks)}]", f", about {_duration(left)} left" if done < len(tasks) else "")
                yield outcome
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(processes):
                process.kill()  # its kernel sees that within a second and goes too
            raise


def _execute_one(task: Task, environment: Mapping[str, str], processes: set[subprocess.Popen]) -> Outcome:
    task.target.parent.mkdir(parents=True, exist_ok=True)
    task.target.unlink(missing_ok=True)  # or an old one would be taken for what is executed now
    command = [sys.executable, "-m", "papermill", str(task.notebook.path), str(task.target)]
    command += ["--kernel", "python3", "--language", "python", "--no-progress-bar", "--cwd", str(project_root())]
    command += ["--start-timeout", "300"]  # seconds until the kernel is there; 60 are too few on a busy machine
    if task.parameters:
        command += ["--parameters_yaml", yaml.safe_dump(task.parameters)]
    started, clock = time.time(), time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    processes.add(process)
    _, stderr = process.communicate()
    processes.discard(process)
    error = "" if process.returncode == 0 else _failure(task.target, stderr)
    return Outcome(task, error, time.monotonic() - clock, started)


def _environment(folder: Path, jobs: int) -> dict[str, str]:
    """Variables that make papermill's kernel this Python, whatever kernels are installed for the user."""
    from ipykernel.kernelspec import write_kernel_spec

    write_kernel_spec(folder / "kernels" / "python3")
    paths = [str(folder), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    environment = {**os.environ, "JUPYTER_PATH": os.pathsep.join(paths)}
    if jobs > 1:  # share the cores, or the processes slow each other down
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    return environment


def _failure(executed: Path, stderr: str) -> str:
    """The end of the failing cell's traceback, or of what papermill said, and where to look."""
    text, where = stderr, ""
    if executed.exists():
        where = f"\nThe notebook up to there: {shown_path(executed)}"
        for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if output["output_type"] == "error":
                    text = "\n".join(output["traceback"]) or f"{output['ename']}: {output['evalue']}"
    lines = [line for line in _ANSI.sub("", text).splitlines() if line.strip()]
    return "\n".join(lines[-8:]) + where


def _tell(outcome: Outcome, counter: str, left: str) -> None:
    status = "failed after" if outcome.error else "done in"
    line = f"{counter} {outcome.task.notebook.id} {status} {_duration(outcome.seconds)}{left}"
    print(line, file=sys.stderr, flush=True)
    if outcome.error:
        print("  " + outcome.error.replace("\n", "\n  "), file=sys.stderr, flush=True)


def _row(outcome: Outcome, profile: str) -> dict[str, Any]:
    notebook, row = outcome.task.notebook, dict.fromkeys([*_CLAIMS, "figure"])
    path = notebook.record_path(profile)
    written = path.exists() and path.stat().st_mtime > outcome.started - 1  # clocks of file systems are coarse
    if written and not outcome.error:
        counts = notebook.record(profile).get("claims", {})
        row |= {column: counts.get(verdict) for column, verdict in _CLAIMS.items()}
        figure = path.with_suffix(".png")
        row["figure"] = shown_path(figure) if figure.exists() else None
    return {
        "artifact": notebook.id,
        "status": "failed" if outcome.error else "ok",
        "seconds": round(outcome.seconds, 1),
        **row,
        "notebook": shown_path(outcome.task.target),
    }


def _declared(parameter: Mapping[str, str]) -> tuple[str, Any]:
    """The name of a parameter's type, from its annotation or else its default, and the default."""
    try:
        default = ast.literal_eval(parameter["default"])
    except (ValueError, SyntaxError):
        default = parameter["default"]
    annotated = parameter["inferred_type_name"]
    return (type(default).__name__ if annotated == "None" else annotated.partition("[")[0].strip()), default


def shown_path(path: Path) -> str:
    """A path as a reader of the project writes it."""
    with suppress(ValueError):
        return str(path.relative_to(project_root()))
    return str(path)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _matches(notebook: Notebook, wanted: str) -> bool:
    return notebook.id == wanted or notebook.id.startswith(f"{wanted}/")


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key: ``index`` before the papers, ``fig2`` before ``fig10``."""
    parts = re.findall(r"\d+|\D+", name)
    return [("/" in name, 0, ""), *((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)]


def _papermill():
    try:
        import papermill
    except ImportError as error:
        raise FsslError('Executing notebooks needs papermill: pip install -e ".[notebooks]"') from error
    return papermill
