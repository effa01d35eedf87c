"""Checkpoints that survive a kill, a full disk and a damaged file, and that run no code when they are read.

A file of tensors is one line with the SHA-256 of the rest, then what ``torch.save`` writes. It is read with
``weights_only=True``: tensors and plain values, never code.
"""

import errno
import hashlib
import io
import os
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from fssl_core.errors import CheckpointError, FsslError
from fssl_core.files import atomic_write


class Checkpoint:
    """The newest state of a run and the one before it: ``checkpoint.pt`` and ``checkpoint.previous.pt``.

    Args:
        folder: where the two files lie; made at the first :meth:`save`.
        after_save: called when a state is safely on disk.
    """

    def __init__(self, folder: Path, after_save: Callable[[], None] = lambda: None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "checkpoint.pt"
        self.previous = self.folder / "checkpoint.previous.pt"
        self.after_save = after_save

    def save(self, state: dict[str, Any]) -> None:
        """Store a state; the one stored before becomes the previous one.

        Whenever the process dies, at least one of the two files is whole: the new state is on disk under a
        temporary name before the old one moves aside.

        Args:
            state: nested dicts, lists and tuples of tensors, numbers, strings, booleans and ``None``.

        Raises:
            TypeError: the state holds something else, which could not be read again.
            FsslError: no space left on the device; what was stored before is untouched.
        """
        with full_disk_explained(self.folder), atomic_write(self.path) as file:
            _write(file, state)
            file.flush()
            os.fsync(file.fileno())
            if self.path.exists():
                os.replace(self.path, self.previous)
        self.after_save()

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read, its tensors on the CPU; ``None`` when nothing was saved.

        Warns:
            UserWarning: the newest file is damaged, so the state before it is returned.

        Raises:
            CheckpointError: files are there, but none can be read.
        """
        problems = []
        for path in (self.path, self.previous):
            try:
                state = load_tensors(path)
            except FileNotFoundError:
                continue
            except CheckpointError as error:
                problems.append(str(error))
                continue
            if problems:
                warnings.warn(f"{problems[0]} Going on from the checkpoint before it.", stacklevel=2)
                os.replace(self.previous, self.path)  # or the next save would put the damaged file in its place
            return state
        if problems:
            advice = f"Delete the folder {self.folder} to start this run again."
            raise CheckpointError(" ".join([*problems, advice]))
        return None

    def remove(self) -> None:
        """Delete both files."""
        self.previous.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def save_tensors(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values to ``path`` with their checksum; errors as :meth:`Checkpoint.save`."""
    with full_disk_explained(Path(path).parent), atomic_write(path) as file:
        _write(file, state)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote, onto the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, or holds more than tensors and plain values.
    """
    with open(path, "rb") as file:
        checksum, content = file.readline(), file.read()
    if checksum.strip() != hashlib.sha256(content).hexdigest().encode():
        raise CheckpointError(f"{path} is truncated or damaged: its checksum is wrong.")
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


@contextmanager
def full_disk_explained(folder: Path) -> Iterator[None]:
    """Turn "no space left" and "quota exceeded" into an :class:`FsslError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FsslError(
            f"No space left for {folder}. What was stored there before is untouched: free some space (or set "
            "FSSL_RUNS to a folder on another disk) and run again."
        ) from error


def _write(file: IO[bytes], state: dict[str, Any]) -> None:
    _check_plain(state, "state")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    file.write(hashlib.sha256(buffer.getbuffer()).hexdigest().encode() + b"\n")
    file.write(buffer.getbuffer())


def _check_plain(value: object, name: str) -> None:
    # Exact types: numpy.float64 is a float too, but would be written as a numpy object, which is not read back.
    if type(value) in (dict, OrderedDict):
        for key, entry in value.items():
            _check_plain(key, f"a key of {name}")
            _check_plain(entry, f"{name}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, entry in enumerate(value):
            _check_plain(entry, f"{name}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in (int, float, str, bool, type(None)):
        allowed = "tensors, numbers, strings, booleans, None, and dicts, lists and tuples of them"
        raise TypeError(f"{name} is a {type(value).__name__}: a checkpoint holds {allowed}.")
