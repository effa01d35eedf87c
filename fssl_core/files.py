"""Writing files so that a reader sees the old file or the new one, never half of it."""

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO


@contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` when the block ends without an error.

    Args:
        path: the file to replace; its folder is made when missing.
        mode: ``"wb"`` for bytes or ``"w"`` for text (UTF-8).

    Raises:
        OSError: as the file system raises it, for example when no space is left; ``path`` is then untouched
            and no temporary file stays behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    # Opened as any file, so that who may read it is up to the user's umask, which one of `tempfile` does not follow.
    opened = temporary.open(mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8")
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to read; of anything else, such as a pipe or a device, reading might never end.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    return path.open("rb")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write plain values as JSON; errors as those of :func:`atomic_write`."""
    with atomic_write(path, "w") as file:
        json.dump(value, file, indent=2)
