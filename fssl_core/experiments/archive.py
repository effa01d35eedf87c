"""Finished runs in one file, to hand on: settings, tables, summaries, provenance, and models where they are asked for.

The file is a ZIP archive of two members: a list of the runs' keys, and a ZIP archive with a folder for each run, as
the run store has it (:mod:`fssl_core.experiments.store`), so tables are CSV, all else is JSON, and models are tensors
that load without running code. Runs are much alike, and the second member is compressed as a whole: that takes half of
what each file alone takes. What comes in is checked before it is kept: names, checksums, and that the settings are
those that the folder is named after.

Without models, or a table that nobody reads, a run keeps a list of them in ``left_out.json``. Whoever asks for a model
later has the run computed again; who asks for a table is told what to do.

Such files are kept with the project's records. A notebook that somebody steps through takes from them what it would
compute, and says so. Elsewhere runs are computed, and a line says what is recorded. ``$FSSL_RECORDED`` decides
otherwise: 1 takes, 0 computes, which is what `fssl reproduce` does.
"""

import json
import lzma
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import IO, Any

from filelock import Timeout

from fssl_core.errors import ArchiveError, FsslError
from fssl_core.experiments.display import plural
from fssl_core.experiments.manifest import LAST, LEFT_OUT, NAME, TENSORS, check_files, listed_files, read_json, without
from fssl_core.experiments.provenance import OVER_SESSIONS
from fssl_core.experiments.store import Run, checked_summary, clear, digests_of, lock_of, read_table, recorded_choice
from fssl_core.experiments.transfer import SETTINGS, arriving, check_contents, move
from fssl_core.files import atomic_write, open_file
from fssl_core.notices import in_kernel, notice, printable, say
from fssl_core.paths import records_root, runs_root, shown_path
from fssl_core.settings import Settings, flat, key_of
from fssl_core.training.checkpoint import Checkpoint, full_disk_explained

SUFFIXES = (".json", ".csv", TENSORS)
# Raised by JSON of another form, or nested deeper than Python can follow.
NOT_A_RUNS = LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
KEYS, MEMBER, PROVENANCE = "keys.json", "runs.zip", "provenance.json"
PIECE = 4096  # bytes: `zipfile` takes as many of LZMA's at a time and unpacks them all, up to 7,000 times as many
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA}  # `zipfile` unpacks others without a limit
# What `zipfile` raises of a file that is none, or not as it was written.
DAMAGED = (
    OSError, EOFError, RuntimeError, NotImplementedError, ValueError, zipfile.BadZipFile, zlib.error, lzma.LZMAError
)  # fmt: skip
LARGEST_TEXT = 256 << 20  # bytes of a table; those of today's runs have a few million at most
LARGEST_JSON = 8 << 20  # bytes; it takes 30 times as much memory when it is read, and today's have 140 kB at most
ENDS = 98  # bytes of the records that end a ZIP archive, where its list of members is longer than 65,535
LARGEST_DIRECTORY = 32 << 20  # bytes; `zipfile` reads it whole, and takes ten times as much memory
RATIO = 100  # how many times larger than its file an archive may be that is larger than LARGEST_TEXT
LARGE = 16 << 20  # bytes of all tensors in a file: above it is packed for speed, and not for size
PATIENCE = 10.0  # seconds in which another process has imported the same run
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal runs make equal files


def export_runs(
    settings: Iterable[Settings],
    path: Path,
    *,
    models: bool | Collection[str] = False,
    without_tables: Collection[str] = (),
) -> int:
    """Write those of these runs that are finished into one file.

    Args:
        settings: of the runs.
        path: the file, replaced if it is there; its folder is made when missing.
        models: take the models and other tensors along, which are by far the largest part; or those of these kinds of
            runs alone, by the names of their settings, for example ``["AutoencoderSettings"]``.
        without_tables: names of tables to leave out, for example ``["layers"]``, of those runs that have them.

    Returns:
        how many runs the file has.

    Raises:
        FsslError: none is finished, one is damaged, none is of such a kind or has such a table, or no space is left.
    """
    asked = list(settings)
    if not asked:
        raise FsslError("There is nothing to export: the notebooks that were named have no runs.")
    digests = digests_of(asked)
    finished = {run.settings.key: run for run in (Run(one, digests) for one in asked) if run.finished}
    if not finished:
        raise FsslError(f"None of the {len(asked)} runs is finished in {runs_root()}; run the notebooks first.")
    kinds = {key: type(run.settings).__name__ for key, run in finished.items()}
    with_models = set(kinds.values() if models is True else models or ())
    if unknown := with_models - set(kinds.values()):
        names = ", ".join(sorted(set(kinds.values())))
        raise FsslError(f"No finished run is of the kind {', '.join(sorted(unknown))}, but of {names}.")
    files = {key: {*listed_files(run.folder), NAME} for key, run in finished.items()}
    for key, names in files.items():
        if others := sorted(name for name in names if not _is_name(name)):
            where = finished[key].folder
            raise FsslError(
                f"{where} has {', '.join(others)}, and only {', '.join(SUFFIXES)} are handed on: let the run write "
                "tables or tensors in its place, or put such files elsewhere."
            )
    unwanted = {f"{name}.csv": name for name in without_tables}
    if unwanted:
        absent = [read_json(run.folder, LEFT_OUT) or {} for run in finished.values()]  # of an import that lacked them
        known = set().union(*files.values(), *absent)
        if unknown := [name for file, name in unwanted.items() if file not in known]:
            raise FsslError(f"None of the {len(finished)} finished runs has a table {', '.join(unknown)} to leave out.")
    with (
        full_disk_explained(path.parent, "name a file elsewhere"),
        atomic_write(path) as file,
        tempfile.TemporaryFile(dir=path.parent) as whole,
    ):
        with zipfile.ZipFile(whole, "w") as archive:
            members = []
            for key, run in finished.items():
                bare = kinds[key] not in with_models
                left_out = {name for name in files[key] if name in unwanted or (name.endswith(TENSORS) and bare)}
                changed = without(run.folder, left_out)
                check_contents(run.folder, files[key] - left_out)
                members += [(name, key, changed.get(name)) for name in files[key] - left_out | changed.keys()]
            for name, key, content in sorted(members, key=lambda member: member[:2]):  # what is alike side by side
                content = content or (finished[key].folder / name).read_bytes()
                archive.writestr(zipfile.ZipInfo(f"{key}/{name}", EPOCH), content)
            tensors = sum(member.file_size for member in archive.infolist() if member.filename.endswith(TENSORS))
        whole.seek(0)
        member = zipfile.ZipInfo(MEMBER, EPOCH)
        # What makes tables small takes minutes for a gigabyte of tensors, and makes them no smaller.
        member.compress_type = zipfile.ZIP_DEFLATED if tensors > LARGE else zipfile.ZIP_LZMA
        with zipfile.ZipFile(file, "w") as outer:
            outer.writestr(zipfile.ZipInfo(KEYS, EPOCH), json.dumps(sorted(finished)))
            with outer.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(whole, target)
    return len(finished)


@contextmanager
def opened(path: Path, folder: Path) -> Iterator[zipfile.ZipFile]:
    """The archive of runs in a file of :func:`export_runs`, unpacked into an unnamed file on the disk of ``folder``.

    Raises:
        ArchiveError: the file is none of those, or is damaged.
        FsslError: it does not fit on the disk.
    """
    with full_disk_explained(folder), tempfile.TemporaryFile(dir=folder) as whole:
        with _outer(path) as outer, full_disk_explained(folder):
            size, most = outer.getinfo(MEMBER).file_size, max(LARGEST_TEXT, RATIO * path.stat().st_size)
            if size > most:
                raise zipfile.BadZipFile(f"it would unpack to {size:,} bytes; at most {most:,} are taken")
            _check_space(path, outer.infolist(), folder)
            with outer.open(MEMBER) as source:
                shutil.copyfileobj(source, whole, PIECE)
        with _as_exported(path):
            archive = _archive(whole)
        with archive:
            yield archive


@contextmanager
def _outer(path: Path) -> Iterator[zipfile.ZipFile]:
    with _as_exported(path), open_file(path) as file, _archive(file) as outer:
        members = outer.infolist()
        known = [member.filename for member in members] == [KEYS, MEMBER]
        if not known or {member.compress_type for member in members} - METHODS:
            raise zipfile.BadZipFile(f"it has {len(members)} members of other names or methods")
        yield outer


def _archive(file: IO[bytes]) -> zipfile.ZipFile:
    """The archive in a file, unless its list of members is out of proportion: `zipfile` reads it whole at once."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - ENDS))
    ends = file.read().rjust(ENDS, b"\0")
    name, (listed,) = ends[-22:-18] + ends[-2:], struct.unpack_from("<I", ends, ENDS - 10)
    if ends[-42:-38] == b"PK\6\7":  # of a large archive: what counts stands in a record before these
        (listed,) = struct.unpack_from("<Q", ends, ENDS - 58)
    if name != b"PK\5\6\0\0" or listed > LARGEST_DIRECTORY:  # of ours none has a comment at its end
        raise zipfile.BadZipFile("it does not end as such a file does, or lists too many members")
    return zipfile.ZipFile(file)


@contextmanager
def _as_exported(path: Path) -> Iterator[None]:
    """Around reading the file, and nothing else: what it raises is the file's fault."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArchiveError(f"There is no file {path}.") from error
    except DAMAGED as error:
        raise ArchiveError(
            f"{path} is no file of `fssl runs export`, or it is damaged; nothing of it is used. ({error})"
        ) from error


def keys_of(path: Path) -> set[str]:
    """The keys of the runs in a file of :func:`export_runs`.

    Raises:
        ArchiveError: the file is none of those, or is damaged.
    """
    with _outer(path) as outer:
        keys = outer.getinfo(KEYS)
        if keys.file_size <= LARGEST_JSON and keys.compress_type == zipfile.ZIP_STORED:
            with suppress(ValueError, TypeError):
                return set(json.loads(outer.read(KEYS)))
    raise ArchiveError(f"{path} has no list of its runs, so nothing of it is used: get the file again.")


def import_runs(path: Path, wanted: Mapping[str, Run] | None = None) -> tuple[int, int]:
    """Put the runs of a file into the store, those that are not finished there already.

    A run that is there stays as it is; a line says so where it was made by another version of the code, or on other
    images, than the one that arrives. Whether a run can be used is asked when it is: else it is computed again.

    Args:
        path: the file.
        wanted: by key, the runs to take, of this version of the code and of the images that are here; default: all.

    Returns:
        how many runs the file has, and how many of them are new here.

    Raises:
        ArchiveError: the file is none of :func:`export_runs`, or is damaged. The runs before the one that is named
            are kept, each whole.
        FsslError: it does not fit on the disk.
    """
    root = runs_root()
    with full_disk_explained(root):
        root.mkdir(parents=True, exist_ok=True)
    members: dict[str, dict[str, zipfile.ZipInfo]] = {}
    with opened(path, root) as archive:
        for info in archive.infolist():
            key, slash, name = info.filename.partition("/")
            most = {".json": LARGEST_JSON, ".csv": LARGEST_TEXT}.get(Path(name).suffix, inf)
            fits = info.compress_type == zipfile.ZIP_STORED and info.file_size <= most
            if not (slash and _is_key(key) and _is_name(name) and fits) or name in members.setdefault(key, {}):
                raise ArchiveError(f"{path} has {info.filename!r}, which is no file of a run; nothing of it is used.")
            members[key][name] = info
        _check_space(path, archive.infolist(), root)
        asked = dict.fromkeys(members) if wanted is None else wanted
        with arriving(root) as temporary:
            new = sum(
                _put(archive, path, key, files, asked[key], Path(temporary))
                for key, files in members.items()
                if key in asked
            )
    return len(members), new


def recorded_files() -> list[Path]:
    """The files of runs that are kept with the project's records."""
    return sorted(records_root().glob("*/runs.*.zip"))


def recorded_keys() -> dict[Path, set[str]]:
    """Of each file that is kept with the project's records the keys of its runs; a damaged one is named, and left."""
    found = {}
    for path in recorded_files():
        try:
            found[path] = keys_of(path)
        except ArchiveError as error:
            notice(str(error))
    return found


def take_recorded(runs: Iterable[Run]) -> None:
    """Put into the store what is kept of these runs with the project's records; or say that there is something.

    A damaged file is named, and passed over.

    Raises:
        SettingError: ``$FSSL_RECORDED`` is neither 0 nor 1.
    """
    if (choice := recorded_choice()) == "0":
        return
    asked = {run.settings.key: run for run in runs}
    for path, known in recorded_keys().items():
        kept = {key: asked[key] for key in sorted(asked.keys() & known) if _is_missing(asked[key])}
        if not kept:
            continue
        if choice != "1" and not in_kernel():
            say(f"{plural(len(kept), 'run')} recorded in {shown_path(path)}: FSSL_RECORDED=1 takes them from there.")
            continue
        try:
            _, new = import_runs(path, kept)
        except ArchiveError as error:
            notice(str(error))
            continue
        if new:
            notice(f"runs are taken that are recorded in {shown_path(path)}; with FSSL_RECORDED=0 they are computed.")
        if others := sum(not run.finished for run in kept.values()):
            say(
                f"{plural(others, 'run')} recorded in {shown_path(path)} not taken: of other images or other code, or "
                "being computed."
            )


def _is_missing(run: Run) -> bool:
    """Neither finished nor damaged, which whoever computes it is told."""
    with suppress(FsslError):
        return not run.finished
    return False


def _check_space(path: Path, members: list[zipfile.ZipInfo], folder: Path) -> None:
    """Refuse what does not fit: no more is unpacked than the sizes that members are said to have."""
    if (size := sum(member.file_size for member in members)) > (free := shutil.disk_usage(folder).free):
        raise FsslError(f"{path} takes {size:,} bytes in {folder}, where {free:,} are free; free some space.")


def _put(
    archive: zipfile.ZipFile,
    path: Path,
    key: str,
    members: dict[str, zipfile.ZipInfo],
    wanted: Run | None,
    arrived: Path,
) -> bool:
    """Make a run finished by the files of an archive, unless it is, or unlike the one wanted; whether it was made.

    ``arrived`` is a folder beside the store's own, for one run after the other.
    """
    refused = ArchiveError(f"Run {key} of {path} is not what such a run writes, and is not used: get the file again.")
    root = runs_root()
    folder = root / key
    try:
        held = lock_of(folder).acquire(timeout=PATIENCE)
    except Timeout:
        say(f"Run {key} is left to another process, which is computing it.")
        return False
    with held:
        for left in arrived.iterdir():
            left.unlink()  # of the run before, which was not taken
        there = (folder / LAST).exists()
        for name in members.keys() & {SETTINGS} if there else members:  # of what is there already nothing else is read
            with (
                (arrived / name).open("wb") as target,
                _as_exported(path),
                full_disk_explained(root),
                archive.open(members[name]) as source,
            ):
                shutil.copyfileobj(source, target)
        if there:
            _compare(arrived, folder, path)
            return False
        try:
            whole = {SETTINGS, NAME, LAST} <= members.keys() and {*listed_files(arrived), NAME} == {*members}
            check_files(arrived)
            check_contents(arrived, members)
            stored = {name: read_json(arrived, name) for name in members if name.endswith(".json") and name != NAME}
            checked_summary(stored[LAST], flat(stored[SETTINGS]["settings"]), key)
            provenance = stored[PROVENANCE]
            sums = [provenance.get(name, 0) for name in OVER_SESSIONS]
            whole &= all(isinstance(value, int | float) and 0 <= float(value) < inf for value in sums)
            whole &= {"seconds", "modified"} <= provenance.keys()
            texts = (provenance["device"], provenance["commit"])
            whole &= all(isinstance(text, str) and text.isprintable() for text in texts)
            for name in (name for name in members if name.endswith(".csv")):
                read_table(arrived, name.removesuffix(".csv"))
        except (FsslError, *NOT_A_RUNS) as error:  # it names a folder that is gone when this is read
            raise refused from error
        if not (whole and _names(stored[SETTINGS], key)):
            raise refused
        if wanted is not None and wanted.changes_since(stored[SETTINGS]):
            return False
        begun = read_json(folder, SETTINGS, verify=False)
        if wanted is None and begun and Checkpoint(folder).exists and _differ(begun, stored[SETTINGS]):
            notice(
                f"run {key} was begun in {folder} by other code or on other images than {path} has it of, and is left "
                f"with its checkpoint. Delete {folder} to import that."
            )
            return False
        clear(folder)  # of a run that was only begun, maybe by other code
        move(arrived, folder, members)
    return True


def _compare(arrived: Path, folder: Path, path: Path) -> None:
    """Say so where a run that is there is not the one that arrives."""
    there, new = (read_json(one, SETTINGS, verify=False) or {} for one in (folder, arrived))
    if _differ(there, new):
        notice(
            f"run {folder.name} is in {folder.parent} already, by version {there.get('version')} of the code and maybe "
            f"on other images; {path} has it by version {printable(new.get('version'))}. Delete {folder} to "
            "import that."
        )


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs of equal settings are of other code or other images."""
    return any(one.get(name) != other.get(name) for name in ("version", "data", "code"))


def _names(stored: dict[str, Any], key: str) -> bool:
    """Whether a run of these settings has this key."""
    kind, settings, data = stored.get("kind"), stored.get("settings"), stored.get("data", {})
    whole = isinstance(kind, str) and isinstance(settings, dict) and isinstance(data, dict)
    return whole and key_of(kind, settings) == key


def _is_key(text: str) -> bool:
    return len(text) == 16 and set(text) <= set("0123456789abcdef")


def _is_name(text: str) -> bool:
    return text.endswith(SUFFIXES) and re.fullmatch(r"\w[\w.-]{0,99}", text, re.ASCII) is not None
