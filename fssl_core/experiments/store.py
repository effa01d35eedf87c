"""The run store: a run is a value, computed once and kept in a folder that its settings name.

What decides a result is a :class:`~fssl_core.settings.Settings` subclass with a method
``execute(run, progress) -> summary``, which calls ``progress(3, 50, loss=2.1)`` to say how far it is, with figures to
show. Its hash names the folder ``<runs>/<key>``::

    settings.json     what was asked for, with a digest of each image set that is read; written first
    checkpoint.pt     where to resume, with checkpoint.previous.pt, the one before it, and checkpoint.parts, the large
                      tensors of both; deleted at the end
    <name>.csv        tables, for example the metrics of each epoch
    <name>.tensors    models and other tensors
    left_out.json     what is not there of a run that was imported without its models, or without a table
    provenance.json   versions, device, precision, seconds, memory, commit
    manifest.json     the checksums of all these and of the summary (:mod:`fssl_core.experiments.manifest`)
    summary.json      the results, scalars; written last: a run with a summary is finished

A class attribute ``version`` says which results the code computes: raise it when they change, and stored runs of the
old version are computed again, and so are runs that build on them, whose settings hold those of other runs. The same
goes for the images: what was computed or begun on others of the same name (:mod:`fssl_core.data.digests`) is computed
again. Where a set is not there any more, its finished runs are.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from fssl_core import resources
from fssl_core.data import outlines
from fssl_core.data.datasets import data_digest
from fssl_core.data.missing import missing_datasets
from fssl_core.errors import DataError, FsslError, OtherRunError, SettingError
from fssl_core.experiments import dry_run, own_code
from fssl_core.experiments.display import plural, views
from fssl_core.experiments.durations import Durations
from fssl_core.experiments.local import Executor, Local
from fssl_core.experiments.manifest import LAST, LEFT_OUT, check_files, finish, listed_files, read_file, read_json
from fssl_core.experiments.progress import Sweep, active, finished, watched
from fssl_core.experiments.provenance import Session
from fssl_core.experiments.schedule import Schedule
from fssl_core.files import atomic_write, write_json
from fssl_core.notices import in_kernel, say, tell
from fssl_core.paths import runs_root
from fssl_core.resources import threads_of_a_run
from fssl_core.settings import Settings, checked, completed, flat
from fssl_core.training.checkpoint import Checkpoint, full_disk_explained, load_tensors, save_tensors
from fssl_core.training.saver import Saver

ARRIVING = ".arriving-"  # what is on its way into the store; a day old, it is of a killed process


class Run:
    """A handle on a run's folder, whether the run is finished, interrupted or not yet begun.

    Args:
        settings: what decides the run's result.
        digests: of image sets, by name, where they are known; else they are found when they are needed.

    Raises:
        SettingError: these are no settings of a run.
    """

    def __init__(self, settings: Settings, digests: Mapping[str, str | None] | None = None) -> None:
        if not (isinstance(settings, Settings) and callable(getattr(settings, "execute", None))):
            raise SettingError("settings", settings, "settings of a run, for example SplitSettings()")
        root = runs_root()
        if root.is_file():
            raise SettingError("FSSL_RUNS", str(root), "a folder, and this is a file")
        self.settings = settings
        self.folder = root / settings.key
        self._digests = digests

    def __repr__(self) -> str:
        return f"{type(self.settings).__name__} {self.settings.key}"

    def result_of(self, settings: Settings) -> "Run":
        """A finished run that this one builds on, computed first if it is not there yet.

        How an engine uses another's result, for example an attack the model it attacks, without knowing the store.
        """
        return run(settings, progress=False)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Where to resume: states of these settings, of these images and of this version of the code only."""
        return Checkpoint(self.folder, self.identity())

    def saver(self) -> Saver:
        """What saves the states that a training offers, as often as its time allows: a context around the training."""
        return Saver(self.checkpoint)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results by name; ``None`` while the run is unfinished."""
        return read_json(self.folder, "summary.json")

    @property
    def provenance(self) -> dict[str, Any] | None:
        """Versions, device, precision, seconds, memory and commit; ``None`` before the first checkpoint."""
        return read_json(self.folder, "provenance.json")

    @property
    def finished(self) -> bool:
        """Whether the results are there, and were computed by this version of the code on the images that are there.

        Raises:
            FsslError: the folder holds other settings, or is damaged.
        """
        stored, asked = read_json(self.folder, "settings.json", verify=False), self.identity()
        if stored is not None and not all(isinstance(stored.get(name, {}), dict) for name in ("data", "code")):
            path = self.folder / "settings.json"
            raise FsslError(f"{path} is damaged. Delete the folder {self.folder} and run again.")
        if stored is None and not (self.folder / "summary.json").exists():
            return False
        if stored is None or any(stored.get(name) != asked[name] for name in ("kind", "settings")):
            raise FsslError(
                f"The folder {self.folder} should hold the settings {asked}, but its settings.json says {stored}: it "
                "was changed by hand, or two settings share a name. Delete or move it and run again."
            )
        if self.summary is None or _changes(stored, asked):  # the summary is written last, so it is read first
            return False
        check_files(self.folder)
        return read_json(self.folder, "settings.json") == stored

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Keep a table; its index is not kept."""
        with full_disk_explained(self.folder), atomic_write(self.folder / f"{name}.csv", "w") as file:
            table.to_csv(file, index=False)

    def table(self, name: str) -> pd.DataFrame:
        """A table as it was written, floats to the bit.

        Raises:
            FsslError: this run has no such table; the message lists those it has.
        """
        return read_table(self.folder, name)

    def has_tensors(self, name: str) -> bool:
        """Whether a cell should ask :meth:`tensors` for them: where they are, or are to be computed again.

        They are not where the run was imported without its models; with ``$FSSL_RECORDED`` at 0 these are computed.

        Raises:
            SettingError: ``$FSSL_RECORDED`` is neither 0 nor 1.
        """
        return self._holds(f"{name}.tensors") or recorded_choice() == "0"

    def _holds(self, file: str) -> bool:
        """Whether there is such a file, of a finished run among those that the run wrote."""
        finished = (self.folder / LAST).exists()
        return (self.folder / file).exists() and (not finished or file in listed_files(self.folder))

    def save_tensors(self, name: str, state: dict[str, Any]) -> None:
        """Keep tensors and plain values, for example a model's ``state_dict``."""
        save_tensors(self.folder / f"{name}.tensors", state)

    def tensors(self, name: str) -> dict[str, Any]:
        """Tensors as they were saved, on the CPU.

        A run that was imported without its models is computed again, which is said.

        Raises:
            FsslError: this run has no such tensors, or their file is damaged.
        """
        if (self.folder / LAST).exists():
            check_files(self.folder)
        file = f"{name}.tensors"
        if self._holds(file):
            return load_tensors(self.folder / file)
        if outlines.in_use() or file not in (read_json(self.folder, LEFT_OUT) or {}):
            raise _missing(self.folder, name, ".tensors")
        say(f"{self} was imported without its models, which are needed now; computing it again.")
        with self.locked(wait=True):
            if (self.folder / LEFT_OUT).exists():  # else another process was faster
                (self.folder / LAST).unlink(missing_ok=True)  # and no more: others may be reading the tables
        _compute([self], progress=False)  # not `run`, which may take it from the records once more
        return self.tensors(name)

    @cached_property
    def _data(self) -> Mapping[str, str | None]:
        return digests_of([self.settings]) if self._digests is None else self._digests

    def identity(self) -> dict[str, Any]:
        """What decides the result: kind and version of the settings, the settings, and digests of the images.

        And of the code of what a user has put into a registry, such as a rule, where the settings name any.
        """
        values = {
            "kind": type(self.settings).__name__,
            "version": _version(self.settings),
            "settings": self.settings.identity(),
            "data": {name: self._data[name] for name in sorted(self.settings.data_sets)},
        }
        if own := own_code.digests(self.settings):
            values["code"] = own
        return json.loads(json.dumps(values))  # tuples as lists, as they come back from the file

    def changes_since(self, stored: Mapping[str, Any]) -> str:
        """Why what was computed as ``stored`` says cannot be used here, in words; empty if it can."""
        return _changes(stored, self.identity())

    def _row(self) -> dict[str, Any]:
        return {**flat(self.settings.as_dict()), **self.summary, "key": self.settings.key}

    def prepare(self) -> None:
        """Make the folder ready for computing; the caller holds the lock."""
        for leftover in self.folder.glob(".*.*"):  # of a write that a kill cut off
            if leftover.is_file():
                leftover.unlink()
        stored = read_json(self.folder, "settings.json")
        asked = self.identity()
        if stored is not None and (changes := _changes(stored, asked)):
            kept = f" What it was is kept in {self._kept_aside(stored)}." if self._is_of_other_data(stored) else ""
            say(f"{self} {changes}; starting again.{kept}")
            clear(self.folder)
        for name in (LAST, "manifest.json", LEFT_OUT):  # of a run that is not finished, or not any more
            (self.folder / name).unlink(missing_ok=True)
        write_json(self.folder / "settings.json", asked)

    def _is_of_other_data(self, stored: Mapping[str, Any]) -> bool:
        """Whether the results are of this version of the code, on other images: somebody may want them again."""
        asked = self.identity()
        same = stored.get("version") == asked["version"] and not _other_code(stored, asked)
        return self.summary is not None and same

    def _kept_aside(self, stored: Mapping[str, Any]) -> Path:
        """Keep what is in the folder beside it, under a name for the images that it was computed on."""
        images = hashlib.sha256(json.dumps(stored["data"], sort_keys=True).encode()).hexdigest()[:8]
        target = self.folder.with_name(f"{self.folder.name}-{images}")
        with tempfile.TemporaryDirectory(prefix=ARRIVING, dir=self.folder.parent) as temporary:
            kept = Path(temporary, "run")
            kept.mkdir()
            for path in self.folder.iterdir():
                if path.is_file() and path.name != "lock":
                    shutil.copy2(path, kept)
            shutil.rmtree(target, ignore_errors=True)  # computed twice on the same images
            kept.rename(target)
        return target

    def compute(self, sweep: Sweep, *, wait: bool) -> bool:
        """Compute this run, or resume it, unless it is finished.

        Args:
            sweep: the display that shows it.
            wait: for another process that computes it.

        Returns:
            whether it is finished; not if another process computes it.

        Raises:
            FsslError: the folder holds other settings, or no space is left. Errors of ``execute`` pass through; what
                is stored then lets the next call resume.
        """
        with full_disk_explained(self.folder), self.locked(wait=wait) as locked:
            if not locked:
                return False
            if self.finished:  # by another process, or by a run that builds on it
                sweep.stored(self)
            else:
                with sweep.run(self) as progress, threads_of_a_run():
                    self._compute(progress)
        return True

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Hold the run's lock, or ``False``; the system frees it when the process dies, however it dies."""
        lock = lock_of(self.folder)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                yield False
                return
            say(f"Another process is computing {self}; waiting for it.")
            lock.acquire()
        try:
            yield True
        finally:
            lock.release()

    def _compute(self, progress: Callable[..., None]) -> None:
        self.prepare()
        earlier = None
        if self.checkpoint.exists:
            try:
                earlier = self.provenance
            except FsslError:  # it decides no result, and the checkpoint is worth more
                path = self.folder / "provenance.json"
                say(f"{path} is damaged or cannot be read. What was computed before is used; its time is lost.")
        session = Session(earlier, getattr(self.settings, "precision", None))

        def record() -> None:
            write_json(self.folder / "provenance.json", session.record())

        self.checkpoint.after_save = record
        before = self.checkpoint.identity
        try:
            results = self.settings.execute(self, progress)
        except OtherRunError as error:
            say(f"{error} It is not used; starting again.")
            self.checkpoint.remove()
            session.earlier = {}
            results = self.settings.execute(self, progress)
        if digests_of([self.settings]) != before["data"]:
            raise FsslError(
                f"The images of {' or '.join(before['data'])} were changed while {self} was computed on them, so its "
                "results are not kept. Run it again."
            )
        execute = f"{type(self.settings).__name__}.execute"
        summary = checked_summary(results, flat(self.settings.as_dict()), execute)
        record()
        finish(self.folder, summary)
        self.checkpoint.remove()


def clear(folder: Path) -> None:
    """Delete what a run has stored, but its settings; the caller holds the lock."""
    # The summary first and the settings not at all: killed in between, the folder is an unfinished run of the old
    # version.
    (folder / LAST).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in ("lock", "settings.json"):
            path.unlink()


def lock_of(folder: Path) -> FileLock:
    """The lock of a run by its folder, which is made where it is missing.

    Only the system's own lock will do, which ends with the process: a file that stands for it would stay behind a
    process that was killed, and nobody could compute the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "lock", fallback_to_soft=False)


asked_keys: set[str] = set()  # of the runs that this process asked for; a notebook's set-up starts it anew


def run(settings: Settings, *, progress: bool = True) -> Run:
    """Compute a run, or resume it, unless it is finished; wait if another process is computing it.

    Args:
        settings: what to run.
        progress: show how far it is: in a notebook below the cell, else on stderr.

    Raises:
        FsslError: the folder holds other settings, or no space is left. Errors of ``execute`` pass through; what
            is stored then lets the next call resume.
        KeyboardInterrupt: the next call resumes; in a notebook this takes one line.
    """
    handle = Run(settings)
    asked_keys.add(settings.key)
    if dry_run.collected([settings]):
        return handle
    if not handle.finished:
        _take_recorded([handle])
        _compute([handle], progress=progress)
    return handle


def run_all(settings: Sequence[Settings], *, progress: bool = True, workers: int | None = None) -> pd.DataFrame:
    """Compute all runs that are not finished, several at a time where that pays, each after those that it builds on.

    Results do not depend on how many are computed at a time. What another process computes is left to it. With
    ``$DASK_SCHEDULER_ADDRESS`` the runs are computed on that cluster.

    Args:
        settings: what to run; equal settings are one run.
        progress: show how far they are, and the runs that are being computed: in a notebook below the cell, else on
            stderr.
        workers: how many at a time; default ``$FSSL_WORKERS``, else one for each GPU, or one for each core.

    Returns:
        one row for each of the given settings, in their order: the settings' fields (those of nested settings as
        ``outer.inner``), the summary, and the run's ``key``.

    Raises:
        as :func:`run`, when the others are computed; several errors as one
            :class:`~fssl_core.errors.RunsFailedError`. What is finished stays finished.
    """
    if isinstance(settings, Settings | str) or not isinstance(settings, Iterable):
        raise SettingError("settings", settings, "a list of settings of runs")
    if workers is not None:
        resources.workers(workers)  # a wrong number is refused where all runs are stored, too
    handles = [Run(item) for item in settings]
    asked_keys.update(handle.settings.key for handle in handles)
    if dry_run.collected([handle.settings for handle in handles]):
        return pd.DataFrame([{**flat(handle.settings.as_dict()), "key": handle.settings.key} for handle in handles])
    digests = digests_of(handle.settings for handle in handles)  # once for all: a large folder takes a second
    runs = {handle.settings.key: Run(handle.settings, digests) for handle in handles}
    if not all(map(finished, runs.values())):
        _take_recorded(runs.values())
        _check_data(runs.values(), digests)
        _compute(list(runs.values()), progress=progress, workers=workers)
    elif runs and progress and in_kernel():
        tell(f"{plural(len(runs), 'run')}, stored already")  # else nobody knows why it took no time
    return pd.DataFrame([runs[handle.settings.key]._row() for handle in handles])


def _take_recorded(runs: Iterable[Run]) -> None:
    if active() is None:  # else a run asks for what it builds on, for its model most of the time
        from fssl_core.experiments.archive import take_recorded  # which knows this module

        take_recorded(runs)


def _compute(runs: list[Run], *, progress: bool, workers: int | None = None) -> None:
    """Compute those that are not finished: within another run here, else where :func:`_executor` says."""
    if (outer := active()) is not None:
        for handle in runs:
            handle.compute(outer, wait=True)
        return
    with _executor(workers) as executor, watched(_sweep(runs, progress)) as sweep:
        schedule = Schedule(runs, Run, ahead=len(runs) > 1 or not isinstance(executor, Local))
        executor.compute(schedule, sweep)
        schedule.raise_errors(sweep.title)


def recorded_choice() -> str:
    """What ``$FSSL_RECORDED`` says of runs that are kept with the records: 1 takes them, 0 computes; empty: not said.

    Raises:
        SettingError: it is neither.
    """
    choice = os.environ.get("FSSL_RECORDED", "")
    if choice not in ("", "0", "1"):
        raise SettingError("FSSL_RECORDED", choice, "1 (take the runs that are kept with the records) or 0 (compute)")
    return choice


def _executor(workers: int | None) -> AbstractContextManager[Executor]:
    """What computes runs: the cluster that is named, or this machine."""
    if address := os.environ.get("DASK_SCHEDULER_ADDRESS"):
        from fssl_core.experiments.cluster import Cluster  # needs Dask, which is optional

        return Cluster(address)
    return nullcontext(Local(resources.workers(workers)))


def runs_table(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """One table of all the runs of a frame, with the settings of the run in every row.

    Args:
        frame: what :func:`run_all` returned, or some of its rows; the column ``key`` is used.
        name: of the table that each run wrote, e.g. ``"metrics"``.

    Returns:
        first the settings in which the runs differ, then the table's own columns, then the other settings, so that
        ``seed`` is a column with one seed as well. Where a setting and a column of the table share a name, the
        table's is kept.

    Raises:
        SettingError: the frame has no rows, or is none of :func:`run_all`.
    """
    if not isinstance(frame, pd.DataFrame) or "key" not in frame or frame.empty:
        raise SettingError("frame", type(frame).__name__, "what run_all returned, with at least one row")
    settings = {key: flat(stored_run(key)[0]) for key in frame["key"].unique()}
    table = pd.concat([read_table(runs_root() / key, name).assign(key=key) for key in settings], ignore_index=True)
    columns = table.columns.drop("key")
    values = pd.DataFrame([*settings.values()], index=[*settings]).drop(columns=columns, errors="ignore")
    varying = values.columns.intersection(_varying([*settings.values()]), sort=False)
    return table.join(values, on="key")[[*varying, *columns, *values.columns.drop(varying), "key"]]


def stored_run(key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """All settings and the provenance of a finished run, by its key.

    Raises:
        FsslError: there is no such run.
    """
    if isinstance(key, Settings):
        raise SettingError("key", type(key).__name__, "its attribute `key`, or a value of the column `key` of results")
    folder = runs_root() / checked("key", key, str)
    settings, provenance = read_json(folder, "settings.json"), read_json(folder, "provenance.json")
    if settings is None or provenance is None:
        raise FsslError(
            f"There is no finished run in {folder}. Delete the folder if it is there, and run the notebook that needs "
            "it from its first cell."
        )
    return completed(settings["kind"], settings["settings"]), provenance


def _sweep(runs: list[Run], show: bool) -> Sweep:
    """The display of these runs."""
    rows = [{"kind": type(run.settings).__name__, **flat(run.settings.as_dict())} for run in runs]
    varying, shown = _varying(rows), views(show=show)
    durations = _durations({row["kind"] for row in rows}) if shown else []
    return Sweep(runs, rows, varying, Durations(rows, varying, durations), shown)


def _durations(kinds: set[str]) -> Iterator[tuple[dict[str, Any], float]]:
    """Settings and seconds of the finished runs of some kinds."""
    for path in runs_root().glob("*/summary.json"):
        with suppress(FsslError, KeyError, TypeError, OverflowError):  # what is damaged matters when it is asked for
            stored, provenance = (
                read_json(path.parent, "settings.json"),
                read_json(path.parent, "provenance.json"),
            )
            if stored and provenance and stored.get("kind") in kinds:
                values = completed(stored["kind"], stored["settings"])
                yield {"kind": stored["kind"], **flat(values)}, float(provenance["seconds"])


def digests_of(settings: Iterable[Settings]) -> dict[str, str | None]:
    """By name, the digests of all image sets that runs of these settings read; ``None`` of a set that is not here."""
    return {name: data_digest(name) for name in sorted(set().union(*(item.data_sets for item in settings)))}


def _check_data(runs: Iterable[Run], digests: Mapping[str, str | None]) -> None:
    """Raise before the first run is computed if the images of a later one are not here; the message has all.

    A cluster may have images that are not here.
    """
    if os.environ.get("DASK_SCHEDULER_ADDRESS"):
        return
    absent = {name for name, digest in digests.items() if digest is None}
    needed = [handle.settings.data_sets & absent for handle in runs if absent and not finished(handle)]
    missing = missing_datasets(sorted(set().union(*needed)))
    if missing:
        raise DataError(" ".join(dict.fromkeys(missing.values())))


def _changes(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Why what is stored cannot be used any more, in words; empty if it can."""
    if stored.get("version") != asked["version"]:
        return f"was computed by version {stored.get('version')} of the code"
    if own := _other_code(stored, asked):
        return f"was computed with other code of {', '.join(map(repr, own))}"
    now, then = asked["data"], stored.get("data", {})
    others = [name for name in now if None not in (then.get(name), now[name]) and then[name] != now[name]]
    sets = ", ".join(f"{name!r} (digest {then[name]}, now {now[name]})" for name in others)
    return f"was computed on other images or labels of {sets}" if others else ""


def _other_code(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Names under which something of a user's own is registered that has changed since, or on one side only."""
    then, now = stored.get("code", {}), asked.get("code", {})
    return [name for name in {**then, **now} if then.get(name) != now.get(name)]


def _version(settings: Settings) -> int | str:
    """The version of the code behind a result, of its parts, and of that behind the runs which it builds on."""
    version = getattr(settings, "version", 1)
    others = {f"{name} {number}" for name, number in getattr(settings, "versions", {}).items()}
    others |= {f"{type(nested).__name__} {_version(nested)}" for nested in _versioned(settings)}
    return f"{version} on {', '.join(sorted(others))}" if others else version


def _versioned(settings: Settings) -> Iterator[Settings]:
    """The nearest settings within these that have a version, through those that have none."""
    for nested in settings.nested:
        if hasattr(nested, "version"):
            yield nested
        else:
            yield from _versioned(nested)


def checked_summary(summary: Mapping[str, Any], settings: Collection[str], of: str) -> dict[str, Any]:
    """Scalars as JSON knows them; a name that one of these settings has would make two columns of one name."""
    if not isinstance(summary, Mapping):
        raise TypeError(f"{of} returned a {type(summary).__name__}: expected a dict of a name and a number.")
    plain = {}
    for name, value in summary.items():
        if hasattr(value, "item"):  # numpy and torch scalars
            value = value.item()
        if not isinstance(value, int | float | str | None):
            raise TypeError(f"summary[{name!r}] is a {type(value).__name__}: a summary holds scalars, tables the rest.")
        if name == "key" or name in settings:
            raise ValueError(f"summary[{name!r}] has the name of a setting; choose another.")
        plain[name] = value
    return plain


def _varying(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names whose values differ between the rows, in order of appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if len({json.dumps(row.get(name)) for row in rows}) > 1]


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """A table of the run in a folder; see :meth:`Run.table`."""
    try:
        content = read_file(folder, f"{name}.csv")
        if content == b"\n":  # a table without columns, of which there is nothing to tell
            return pd.DataFrame()
        # An empty field is a missing number; the words "None" and "NA" are words.
        return pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])
    except FileNotFoundError:
        raise _missing(folder, name, ".csv") from None
    except ValueError as error:  # of pandas, whatever is wrong, in several lines
        reason = " ".join(str(error).split())
        raise FsslError(
            f"{folder / name}.csv is damaged ({reason}). Delete the folder {folder} and run again."
        ) from error


def _missing(folder: Path, name: str, suffix: str) -> FsslError:
    if f"{name}{suffix}" in (read_json(folder, LEFT_OUT) or {}):
        return FsslError(
            f"The run in {folder} was imported without {name}{suffix}. Delete the folder, set FSSL_RECORDED=0 and run "
            "again: that computes it."
        )
    names = ", ".join(sorted(path.stem for path in folder.glob(f"*{suffix}"))) or "none"
    return FsslError(f"The run in {folder} has no {name}{suffix}; it has: {names}.")
