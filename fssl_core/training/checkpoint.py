"""Checkpoints that survive a kill, a full disk and a damaged file, and that run no code when they are read.

A file of tensors is one line with the SHA-256 of the rest, then what ``torch.save`` writes, as a stream. It is read
with ``weights_only=True``: tensors and plain values, never code. A checkpoint keeps its large tensors beside it, in
:mod:`~fssl_core.training.parts`, so that a save writes what has changed since the one before.
"""

import errno
import hashlib
import os
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from fssl_core.errors import CheckpointError, FsslError, OtherRunError, first_line
from fssl_core.federation.rows import Settled
from fssl_core.files import atomic_write
from fssl_core.settings import differences
from fssl_core.training.parts import Parts

LARGE = 2**20  # bytes from which on a tensor is a file of its own
GLOBALS = re.compile(r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w+Storage")
DEEPEST = 20  # tuples of tuples: a hash of one that has another twice takes 2 to the power of this

UNREADABLE = pickle.UnpicklingError, zipfile.BadZipFile, RuntimeError, EOFError, LookupError, ValueError, TypeError
REMEDIES = {  # of errors of the disk, what happened and what helps
    errno.ENOSPC: ("No space left for", "free some space"),
    errno.EDQUOT: ("No space left for", "free some space"),
    errno.EFBIG: ("A file is larger than this process may write, in", "raise the limit (ulimit -f)"),
    errno.EACCES: ("There is no permission to write", "change its permissions"),
    errno.EPERM: ("There is no permission to write", "change its permissions"),
    **dict.fromkeys(
        (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP),
        ("The file system has no locks (flock), for", "mount it with them"),
    ),
    errno.EROFS: ("The disk is read-only that holds", "mount it for writing"),
    errno.ENOTDIR: ("There is a file where a folder should be:", "move it away"),
    errno.EISDIR: ("There is a folder where a file should be:", "move it away"),
    errno.EEXIST: ("There is a file where a folder should be:", "move it away"),
}


class Checkpoint:
    """The newest state of a run and the one before it: ``checkpoint.pt`` and ``checkpoint.previous.pt``.

    Their large tensors are in the folder ``checkpoint.parts``, those that both have once.

    Args:
        folder: where all this lies; made at the first :meth:`save`.
        identity: plain values that decide what is computed, stored with each state: a state with others is refused.

    Attributes:
        after_save: called when a state is safely on disk.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.identity = dict(identity or {})
        self.path = self.folder / "checkpoint.pt"
        self.previous = self.folder / "checkpoint.previous.pt"
        self.parts = Parts(self.folder / "checkpoint.parts")
        self.after_save: Callable[[], None] = lambda: None
        self._newest: set[str] | None = None  # names of the parts of the newest state, where this object saved it

    def save(self, state: dict[str, Any], check: Callable[[], None] = lambda: None) -> None:
        """Store a state; the one stored before becomes the previous one.

        Whenever the process dies, at least one of the two is whole: the new state is on disk under a temporary name
        before the old one moves aside, and parts are deleted last.

        Args:
            state: nested dicts, lists and tuples of tensors, numbers, strings, booleans and ``None``.
            check: called now and then while much is written; may raise, and what was stored before is untouched.

        Raises:
            TypeError: the state holds something else, which could not be read again.
            FsslError: no space left on the device; what was stored before is untouched.
        """
        _check_plain(state, "state")
        parts: dict[str, dict[str, Any]] = {}  # of the large tensors, by their place in the state

        def without_large(tensor: torch.Tensor, name: str, settled: bool) -> torch.Tensor:
            if tensor.nbytes < LARGE:  # a view would be stored with all that it is a view of
                return tensor.clone() if tensor.nbytes < tensor.untyped_storage().nbytes() else tensor
            check()
            parts[name] = self.parts.put(tensor, settled=settled, check=check)
            return tensor.new_empty(0, device="cpu")

        with full_disk_explained(self.folder):
            small = _each_tensor(state, without_large)
            before = self._newest if self._newest is not None else self._stored_parts()
            with atomic_write(self.path) as file:
                _write(file, {"identity": self.identity, "state": small, "parts": parts})
                if self.path.exists():
                    os.replace(self.path, self.previous)
            self._newest = {record["sha256"] for record in parts.values()}
            self.parts.keep(self._newest | before)
        self.after_save()

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read, its tensors on the CPU; ``None`` when nothing was saved.

        Warns:
            UserWarning: the newest file is damaged, so the state before it is returned.

        Raises:
            OtherRunError: files are there, but of other settings, data or code.
            CheckpointError: files are there, but none can be read.
        """
        problems = []
        for path in (self.path, self.previous):
            try:
                state = self._of_this_run(path, load_tensors(path))
            except FileNotFoundError:
                continue
            except CheckpointError as error:
                problems.append(error)
                continue
            if problems:
                warnings.warn(f"{problems[0]} Going on from the checkpoint before it.", stacklevel=2)
                os.replace(self.previous, self.path)  # or the next save would put the damaged file in its place
            return state
        if problems:
            advice = f"Delete the folder {self.folder} to start this run again."
            kinds = {type(problem) for problem in problems}
            kind = OtherRunError if kinds == {OtherRunError} else CheckpointError
            raise kind(" ".join([*map(str, problems), advice]))
        return None

    def _of_this_run(self, path: Path, stored: dict[str, Any]) -> dict[str, Any]:
        if not (isinstance(stored, dict) and stored.keys() == {"identity", "state", "parts"}):
            raise OtherRunError(f"{path} does not say which run it is of: it was saved by an earlier version.")
        if stored["identity"] != self.identity:
            raise OtherRunError(f"{path} is of another run: {differences(stored['identity'], self.identity)}.")
        parts = stored["parts"]
        return _each_tensor(
            stored["state"], lambda tensor, name, _: self.parts.get(parts[name]) if name in parts else tensor
        )

    def _stored_parts(self) -> set[str]:
        """Names of the parts of the state that is about to become the previous one."""
        try:
            stored = load_tensors(self.path if self.path.exists() else self.previous)
            return {record["sha256"] for record in stored["parts"].values()}
        except (FileNotFoundError, CheckpointError, KeyError, TypeError):  # nothing there that could be gone on from
            return set()

    @property
    def exists(self) -> bool:
        """Whether there is a file to resume from, whatever it is worth."""
        return self.path.exists() or self.previous.exists()

    def remove(self) -> None:
        """Delete all of it."""
        self.previous.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.parts.remove()
        self._newest = None


def save_tensors(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values to ``path`` with their checksum; errors as :meth:`Checkpoint.save`."""
    _check_plain(state, "state")
    with full_disk_explained(Path(path).parent), atomic_write(path) as file:
        _write(file, state)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read what :func:`save_tensors` wrote, onto the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, holds more than tensors and plain values, or may not be read.
    """
    try:
        with open(path, "rb") as file:
            checksum = file.readline(80)
            start = file.tell()
            if checksum.strip() != hashlib.file_digest(file, "sha256").hexdigest().encode():
                raise CheckpointError(f"{path} is truncated or damaged: its checksum is wrong.")
            file.seek(start)
            if file.read(4) != b"PK\3\4":  # torch would read an older form, in which nothing is checked
                raise CheckpointError(f"{path} cannot be read: it is no archive of tensors.")
            with zipfile.ZipFile(file) as archive:  # as torch writes it; else a few bytes could fill the memory
                members = archive.infolist()
                packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
                if packed or sum(member.file_size for member in members) > file.seek(0, os.SEEK_END):
                    raise CheckpointError(f"{path} cannot be read: its tensors are compressed, or overlap.")
                if archive.start_dir != start + _directory(file, start):
                    raise CheckpointError(f"{path} cannot be read: it has two lists of its tensors.")
                for member in members:
                    if member.filename.lower().endswith("data.pkl"):  # torch does not look at the case
                        _check_pickle(path, archive.read(member))
            file.seek(start)
            return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error
    except UNREADABLE as error:
        raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from error


def _directory(file: IO[bytes], start: int) -> int:
    """Where torch finds the list of an archive's members, from ``start`` on: at the place that the end of it states.

    Python looks right before the end, so that one file could have a list for each. -1 where the two are not one.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(start, end - 98))
    tail = file.read()
    wide, locator, record = tail[-98:-42], tail[-42:-22], tail[-22:]  # the first two for large ones, and by torch
    if record[:4] != b"PK\5\6" or record[20:] != b"\0\0":  # a comment could be taken for the end
        return -1
    size, offset, last = *struct.unpack("<II", record[12:20]), end - 22
    if locator[:4] == b"PK\6\7":
        last = end - 98
        if wide[:4] != b"PK\6\6" or struct.unpack("<Q", locator[8:16]) != (last - start,):
            return -1
        size, offset = struct.unpack("<QQ", wide[40:])
    return offset if start + offset + size == last else -1


def _check_pickle(path: Path, content: bytes) -> None:
    """Refuse what torch allows beside tensors: a ``bytearray`` of any size, and tuples that take for ever to hash."""
    depths, deepest, before = {}, 0, ""  # of the tuples that are used again, by their place in the unpickler's memory
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL" and not GLOBALS.fullmatch(argument):
            raise CheckpointError(f"{path} cannot be read: it has {argument[:100]!r}, which no tensors need.")
        if opcode.name.endswith("BINGET"):
            deepest = max(deepest, depths.get(argument, 0))
        elif opcode.name.endswith("BINPUT") and "TUPLE" in before:
            depths[argument], deepest = 1 + deepest, 0
        if deepest > DEEPEST:
            raise CheckpointError(f"{path} cannot be read: it has tuples in tuples, more than {DEEPEST} deep.")
        before = opcode.name


@contextmanager
def full_disk_explained(folder: Path, otherwise: str = "set FSSL_RUNS to another folder") -> Iterator[None]:
    """Turn what a user can mend, as "no space left" or "permission denied", into an :class:`FsslError`.

    The error names the folder, or the file in it, and ``otherwise``, what to do where it cannot be mended. Errors on
    files elsewhere pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else Path(folder)
        if not (path.is_relative_to(folder) or Path(folder).is_relative_to(path)):
            raise
        what, remedy = REMEDIES[error.errno]
        raise FsslError(
            f"{what} {path}. What was stored there before is untouched: {remedy}, or {otherwise}, and run again."
        ) from error


class _Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.checksum = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.checksum.update(content)
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()


def _write(file: IO[bytes], state: dict[str, Any]) -> None:
    """Stream a state behind a line for its checksum, which is known at the end."""
    file.write(b"0" * 64 + b"\n")
    stream = _Hashing(file)
    try:
        torch.save(state, stream)
    except RuntimeError as error:  # torch's writer stumbles over what the disk said a moment before
        raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
    file.seek(0)
    file.write(stream.checksum.hexdigest().encode())
    file.flush()
    os.fsync(file.fileno())


def _each_tensor(
    value: Any, change: Callable[[torch.Tensor, str, bool], Any], name: str = "state", settled: bool = False
) -> Any:
    """A copy of nested dicts, lists and tuples with something else for each tensor.

    Args:
        value: the values.
        change: of a tensor, its name and whether it is settled.
        name: place of the values in the state.
        settled: the tensors are never changed in place.
    """
    settled = settled or isinstance(value, Settled)
    if isinstance(value, Mapping):
        return {key: _each_tensor(entry, change, f"{name}[{key!r}]", settled) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        entries = [_each_tensor(entry, change, f"{name}[{index}]", settled) for index, entry in enumerate(value)]
        return tuple(entries) if isinstance(value, tuple) else entries
    return change(value, name, settled) if isinstance(value, torch.Tensor) else value


def _check_plain(value: object, name: str) -> None:
    # Exact types: numpy.float64 is a float too, but would be written as a numpy object, which is not read back.
    if type(value) in (dict, OrderedDict):
        for key, entry in value.items():
            _check_plain(key, f"a key of {name}")
            _check_plain(entry, f"{name}[{key!r}]")
    elif type(value) in (list, tuple, Settled):
        for index, entry in enumerate(value):
            _check_plain(entry, f"{name}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in (int, float, str, bool, type(None)):
        allowed = "tensors, numbers, strings, booleans, None, and dicts, lists and tuples of them"
        raise TypeError(f"{name} is a {type(value).__name__}: a checkpoint holds {allowed}.")
