"""The large tensors of a checkpoint, each a file that its content names.

Equal tensors are one file, and one that is there already is not written again: of a federation in which five of a
hundred clients have trained, five rows. A file is the tensor's bytes under the SHA-256 of them; type and shape stand
in the checkpoint that refers to it.
"""

import hashlib
import re
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fssl_core.errors import CheckpointError
from fssl_core.files import atomic_write

NAME = re.compile(r"[0-9a-f]{64}")  # of a part
PIECE = 2**24  # bytes that are hashed or written at a time
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
DTYPES = {str(kind): kind for kind in FLOATS + INTEGERS}


class Parts:
    """A folder of tensors.

    Args:
        folder: where they lie; made when something is written.

    Attributes:
        written: bytes written so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.written = 0
        self._hashed: dict[int, tuple[weakref.ref, str]] = {}  # of settled tensors, by their id

    def put(self, tensor: Tensor, *, settled: bool = False, check: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Store a tensor, unless its bytes are there, and return what :meth:`get` needs, in plain values.

        Args:
            tensor: on any device, of one of ``DTYPES``.
            settled: it is never changed in place, so that it is hashed once.
            check: called between pieces; may raise.

        Raises:
            OSError: as :func:`atomic_write`.
        """
        record = {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        stored = self._hashed.get(id(tensor))
        if settled and stored and stored[0]() is tensor and (self.folder / stored[1]).exists():
            return record | {"sha256": stored[1]}
        content = _bytes(tensor)
        pieces = [content[start : start + PIECE] for start in range(0, len(content), PIECE)]
        checksum = hashlib.sha256()
        for piece in pieces:
            check()
            checksum.update(piece)
        path = self.folder / checksum.hexdigest()
        if not (path.exists() and path.stat().st_size == len(content)):
            with atomic_write(path) as file:
                for piece in pieces:
                    check()
                    file.write(piece)
            self.written += len(content)
        if settled:
            self._hashed[id(tensor)] = weakref.ref(tensor), path.name
        return record | {"sha256": path.name}

    def get(self, record: dict[str, Any]) -> Tensor:
        """The tensor that :meth:`put` stored, on the CPU.

        Raises:
            CheckpointError: it is not there, or damaged.
        """
        try:  # a checkpoint may come from outside
            kind, shape, name = DTYPES[record["dtype"]], torch.Size(record["shape"]), record["sha256"]
            size = shape.numel() * kind.itemsize
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name")
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"A checkpoint has a part that is none of {self.folder} ({error}).") from error
        path = self.folder / name
        try:
            with open(path, "rb") as file:
                whole = path.stat().st_size == size
                content = torch.empty(size if whole else 0, dtype=torch.uint8)
                view = memoryview(content.numpy())
                file.readinto(view)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error
        if not whole or hashlib.sha256(view).hexdigest() != name:
            path.unlink(missing_ok=True)  # or put would take it for what its name says
            raise CheckpointError(f"{path} is truncated or damaged: its checksum is wrong.")
        return content.view(kind).view(shape)

    def keep(self, names: Collection[str]) -> None:
        """Delete all files but these; also what a kill left half written."""
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if path.name not in names:
                    path.unlink(missing_ok=True)
        alive = {key: (ref, name) for key, (ref, name) in self._hashed.items() if ref() is not None and name in names}
        self._hashed = alive

    def remove(self) -> None:
        """Delete all of them and the folder."""
        self.keep(())
        with suppress(OSError):
            self.folder.rmdir()


def _bytes(tensor: Tensor) -> memoryview:
    """The content of a tensor as it lies in memory; of one on a GPU, of a copy."""
    return memoryview(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
