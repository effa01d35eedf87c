"""What the files of an image set hold, as a digest: sets of one name with other images or labels are told apart by it.

It is the SHA-256 of every file that is read and of its path in the set: folders are classes, and the order of files is
that of images. A set is hashed once. The digest is then found by the paths, sizes and times of the files, in
``digests.json`` beside the stored runs; where that file is missing, damaged or cannot be written, nothing is lost but
time.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from fssl_core.errors import DataError
from fssl_core.files import write_json
from fssl_core.notices import notice
from fssl_core.paths import runs_root

READERS = 1  # raise when other images are read of the same files
LARGE = 2**31  # bytes; hashing so many takes a while
DIGITS = 16


def stamp(location: Path, files: Sequence[Path]) -> str:
    """Sixteen hex digits that change when a file is added, removed, renamed or written; no file is read.

    Args:
        location: the folder of the set, or its only file.
        files: those that its reader opens, in the order in which it takes them.

    Raises:
        OSError: a file is missing.
        DataError: something is none, such as a pipe, of which reading might never end.
    """
    hashed = hashlib.sha256(f"readers {READERS}\n".encode())
    for path in files:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise DataError(f"{path} is not a regular file: remove it, or put the file itself in its place.")
        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"  # the second one even where the first was set back
        hashed.update(f"{_name(location, path)} {status.st_size} {times}\n".encode(errors="surrogateescape"))
    return hashed.hexdigest()[:DIGITS]


def digest_files(location: Path, files: Sequence[Path]) -> str:
    """Sixteen hex digits that name the contents of the files of a set; arguments as those of :func:`stamp`.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    cache = runs_root() / "digests.json"
    try:
        now = stamp(location, files)
        entry = f"{now} {location.resolve()}"  # machines that share the runs may have images of their own at one path
        if kept := _kept(cache).get(entry):
            return kept
        if (size := sum(path.stat().st_size for path in files)) > LARGE:
            notice(f"reading {size / 2**30:.0f} GiB of {location} once, to know these images again")
        with ThreadPoolExecutor() as threads:  # hashing leaves Python's lock free
            sums = threads.map(_sum, files)
            listed = "".join(f"{sha256} {_name(location, path)}\n" for sha256, path in zip(sums, files, strict=True))
    except OSError as error:
        raise DataError(f"{error.filename or location} cannot be read ({error.strerror}).") from error
    digest = hashlib.sha256(f"readers {READERS}\n{listed}".encode(errors="surrogateescape")).hexdigest()[:DIGITS]
    with suppress(OSError):  # else it is computed again next time
        write_json(cache, {**_kept(cache), entry: digest})
    return digest


def _name(location: Path, path: Path) -> str:
    """The path in the set; ``Path.relative_to`` would take as long as all the rest for a hundred thousand files."""
    return str(path).removeprefix(f"{location}{os.sep}") if path != location else path.name


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(cache: Path) -> dict[str, str]:
    """By the stamp of files and their location, their digest."""
    try:
        stored = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = stored.items() if isinstance(stored, dict) else ()
    return {entry: digest for entry, digest in entries if isinstance(digest, str)}
