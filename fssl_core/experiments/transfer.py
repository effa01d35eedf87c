"""Finished runs on their way from one store to another: their files as bytes, checked where they arrive."""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from fssl_core.errors import FsslError
from fssl_core.experiments.manifest import LAST, NAME, TENSORS, listed_files, read_file
from fssl_core.experiments.store import ARRIVING, Run, lock_of
from fssl_core.files import write_json
from fssl_core.paths import runs_root
from fssl_core.training.checkpoint import full_disk_explained, load_tensors

SETTINGS = "settings.json"
DAY = 86400.0  # seconds
LONGEST_LINE = 1 << 16  # bytes; those of today's tables have 300 at most, and of a comma pandas makes 3 kB
TOO_WIDE = re.compile(rb"^[^\n]{%d}" % (LONGEST_LINE + 1), re.MULTILINE)  # without ^ tried from each byte


def store_id() -> str:
    """What tells the folder of runs from others; equal on two machines where they share it.

    Raises:
        FsslError: the file that says so is damaged.
    """
    path = runs_root() / "store.json"
    with full_disk_explained(path.parent), lock_of(path.parent):
        if not path.exists():
            write_json(path, {"id": os.urandom(8).hex()})
    try:
        return json.loads(path.read_text(encoding="utf-8"))["id"]
    except (ValueError, LookupError, TypeError) as error:
        raise FsslError(f"{path} is damaged ({error}). Delete it while nothing is computed, and run again.") from error


def content(run: Run) -> dict[str, bytes]:
    """The files of a finished run, by name."""
    return {name: (run.folder / name).read_bytes() for name in [*listed_files(run.folder), NAME]}


def arriving(root: Path) -> tempfile.TemporaryDirectory:
    """A folder in the store for what arrives. Those that a killed process left are deleted once they are a day old."""
    for left in root.glob(f"{ARRIVING}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left)
    return tempfile.TemporaryDirectory(prefix=ARRIVING, dir=root)


def put(run: Run, files: Mapping[str, bytes]) -> None:
    """Make a run finished by files that another store has of it, unless it is finished already.

    Raises:
        FsslError: they are of another run, of other images or code, or not what that run wrote, or do not fit on the
            disk. Nothing is kept.
    """
    refused = FsslError(f"What came of {run} is not what such a run writes, and is not used.")
    if any(Path(name).name != name or name.startswith(".") for name in files) or LAST not in files:
        raise refused
    with full_disk_explained(runs_root()), run.locked(wait=True):
        if run.finished:
            return
        with arriving(runs_root()) as temporary:
            arrived = Run(run.settings)
            arrived.folder = Path(temporary)
            for name, bytes_ in files.items():
                (arrived.folder / name).write_bytes(bytes_)
            if set(files) != {*listed_files(arrived.folder), NAME} or not arrived.finished:
                raise refused
            check_contents(arrived.folder, files)
            run.prepare()
            move(arrived.folder, run.folder, files)
            run.checkpoint.remove()


def check_contents(folder: Path, names: Iterable[str]) -> None:
    """Read each file of a run that has arrived; FsslError where one is not what the run wrote."""
    for name in names:
        if name.endswith(TENSORS):
            load_tensors(folder / name)
        elif name != NAME:
            content = read_file(folder, name)
            if name.endswith(".csv") and TOO_WIDE.search(content):
                raise FsslError(f"{folder / name} has a line of more than {LONGEST_LINE:,} bytes: no table is so wide.")


def move(source: Path, target: Path, names: Iterable[str]) -> None:
    """Move the files of a run from one folder to another, what makes it finished last."""
    for name in sorted(names, key=lambda name: (name == LAST, name == NAME)):
        os.replace(source / name, target / name)
