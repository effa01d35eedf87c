"""What a finished run consists of: the size and SHA-256 of each of its files, so that none is served that was changed.

``manifest.json`` is written before ``summary.json``, which it lists as well and which makes a run finished. A file is
checked when it is read. Of a file of tensors the sum is that of its content, which stands in its first line and is
compared by :func:`fssl_core.training.checkpoint.load_tensors`: large files are hashed once.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fssl_core.errors import FsslError
from fssl_core.files import atomic_write, write_json

NAME, LAST, LEFT_OUT = "manifest.json", "summary.json", "left_out.json"
TENSORS = ".tensors"
NO_RESULTS = ("lock", "checkpoint.pt", "checkpoint.previous.pt", NAME, LAST)


def finish(folder: Path, results: Mapping[str, Any]) -> None:
    """List the files of a run, and make it finished by its summary."""
    summary = json.dumps(results, indent=2).encode()
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    files = {name: _entry(folder / name) for name in names if name not in NO_RESULTS}
    write_json(folder / NAME, {**files, LAST: {"bytes": len(summary), "sha256": hashlib.sha256(summary).hexdigest()}})
    with atomic_write(folder / LAST) as file:
        file.write(summary)


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        if path.suffix == TENSORS:
            checksum = file.readline(80).decode("ascii", errors="replace").strip()
        else:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": checksum}


def without(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """What changes where some files of a finished run are left out: its manifest, and the list of what is not there.

    Args:
        folder: of the run.
        names: of files that it has; none: nothing changes.

    Returns:
        content by name of the file; the run itself is left as it is.
    """
    kept = listed_files(folder)
    if not (left := {name: kept.pop(name) for name in names}):
        return {}
    left = dict(sorted((left | (read_json(folder, LEFT_OUT) or {})).items()))  # of an import, which lacked others
    content = json.dumps(left, indent=2).encode()
    kept[LEFT_OUT] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {LEFT_OUT: content, NAME: json.dumps(kept, indent=2).encode()}


def check_files(folder: Path) -> None:
    """Raise unless the files of a finished run are there, as long as they were; tensors also by their checksum.

    Raises:
        FsslError: one is missing, or is not what the run wrote.
    """
    for name, entry in listed_files(folder).items():
        path = folder / name
        if not path.is_file():
            raise FsslError(f"{path} is missing. {_advice(folder)}")
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise FsslError(f"{path} is damaged (it has {size} of {entry['bytes']} bytes). {_advice(folder)}")
        if path.suffix == TENSORS and _entry(path) != entry:
            raise FsslError(f"{path} is damaged (it is not what the run wrote). {_advice(folder)}")


def read_file(folder: Path, name: str, *, verify: bool = True) -> bytes:
    """The content of a file of a run; that of a finished run is what the run wrote, unless ``verify`` is False.

    Raises:
        FileNotFoundError: there is no such file.
        FsslError: the file was changed since, added, or cannot be read.
    """
    path = folder / name
    try:
        content = path.read_bytes()
        verify = verify and (folder / LAST).exists()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FsslError(f"{path} cannot be read ({error.strerror}). {_advice(folder)}") from error
    if verify:
        listed = listed_files(folder)
        if name not in listed:
            raise FsslError(f"{path} is none of the files that the run wrote. Remove it, or read it by other means.")
        if hashlib.sha256(content).hexdigest() != listed[name]["sha256"]:
            raise FsslError(f"{path} is damaged (it is not what the run wrote). {_advice(folder)}")
    return content


def read_json(folder: Path, name: str, *, verify: bool = True) -> dict[str, Any] | None:
    """What a JSON file of a run holds; ``None`` where there is none. Errors as those of :func:`read_file`."""
    try:
        return dict(json.loads(read_file(folder, name, verify=verify)))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError, RecursionError) as error:
        raise FsslError(f"{folder / name} is damaged ({error}). {_advice(folder)}") from error


def listed_files(folder: Path) -> dict[str, dict[str, Any]]:
    """By name, ``bytes`` and ``sha256`` of the files that a finished run consists of, without the manifest.

    Raises:
        FsslError: the manifest is damaged or missing.
    """
    listed = read_json(folder, NAME, verify=False)
    if listed is None:
        raise FsslError(f"{folder / NAME} is missing. {_advice(folder)}")
    for entry in listed.values():
        if not (isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}):
            raise FsslError(f"{folder / NAME} is damaged. {_advice(folder)}")
    return listed


def _advice(folder: Path) -> str:
    return f"Delete the folder {folder} and run again."
