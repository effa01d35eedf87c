"""The file formats of image sets: CIFAR pickles, idx, MedMNIST npz; folders are in :mod:`fssl_core.data.folders`.

Each reader returns ``(train, test, class names)`` with a split as ``(images uint8 [N, C, H, W], labels int64 [N])``
and raises :class:`DataError` that names the damaged file.

A file may come from anybody. Nothing in it is run, no parser written in C sees a type or a shape that has not been
checked here, and a file takes no more memory than ``LARGEST`` bytes or ``RATIO`` times its own size.
"""

import gzip
import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.files import open_file
from fssl_core.notices import printable, visible

Split = tuple[Tensor, Tensor]  # images uint8 [N, C, H, W], labels int64 [N]
Parts = tuple[Split, Split, tuple[str, ...]]  # train, test, class names
FETCH_ANEW = "Remove it and fetch the set anew; `fssl data` says how."
LARGEST = 2**28  # bytes: of a CIFAR file, of an idx file as unpacked; the largest official one, CIFAR-100's, has 155 MB
MEDMNIST_FORM = "expected are images of uint8, [images, side, side] or [images, side, side, 3], and labels [images, 1]"
RATIO = 100  # how many times larger than its file an array of a MedMNIST npz may be, above LARGEST


@contextmanager
def damaged(path: Path, remedy: str = FETCH_ANEW) -> Iterator[None]:
    """Turn whatever a parser says about a broken file into one error that names the file and the way out."""
    shown = visible(str(path))
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{shown} is missing, the rest of its set is there. {remedy}") from error
    except PermissionError as error:
        raise DataError(f"{error.filename or shown} may not be read by this user: change its permissions.") from error
    except Exception as error:  # a parser may raise anything on broken input
        reason = printable(error) or type(error).__name__
        raise DataError(f"{shown} is damaged or cut short ({reason}). {remedy}") from error


def _at_most(content: bytes) -> bytes:
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return content


def labelled(images: np.ndarray, labels: Any, classes: int) -> Split:
    """Tensors of a split after a check that every image has one known label."""
    images, labels = np.ascontiguousarray(images), np.asarray(labels)
    channels, height, width = images.shape[1:] if images.ndim == 4 else (0, 0, 0)
    if images.dtype != np.uint8 or channels not in (1, 3) or height != width or width < 1:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} images but labels of shape {labels.shape}")
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels are not all from 0 to {classes - 1}, or there are none")
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


# ---------------------------------------------------------------- CIFAR

# What the official files consist of, as Python 2 wrote them, and look-alikes written by Python 3.
OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
}  # fmt: skip
MOST_TUPLES = 1000  # an array has four; nested by the million they end the process as soon as one is a key


class PickledArray:
    """Stands in for a numpy array while a pickle is read: keeps what the file says of it, and believes nothing.

    numpy's own ``__setstate__`` takes whatever type and shape it is told, and reads memory that is not the array's.
    """

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @property
    def array(self) -> np.ndarray:
        """Bytes ``[N, D]``: all that an image set keeps in arrays.

        Raises:
            ValueError: the file says something else.
        """
        match self.state:
            case (1, (int(rows), int(columns)), _PickledType(name="u1"), False, str() | bytes() as content):
                content = bytearray(content, "latin1") if isinstance(content, str) else bytearray(content)
            case (1, _, _PickledType(name=str(name)), *_):
                raise ValueError(f"an array of {printable(name)}, where bytes (u1) in rows and columns are expected")
            case _:
                raise ValueError("an array without content")
        if rows < 1 or columns < 1 or rows * columns != len(content):
            raise ValueError(f"{len(content)} bytes for an array of shape {(rows, columns)}")
        return np.frombuffer(content, np.uint8).reshape(rows, columns)


class _PickledType:
    """Stands in for a numpy dtype: its name. What else a file tells of it concerns types that images do not have."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass


class _ImageUnpickler(pickle.Unpickler):
    """Admits arrays, numbers, strings, lists, tuples and dictionaries; a pickle can otherwise run any code."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # the official files were written by Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return PickledArray
        if (module, name) == ("numpy", "dtype"):
            return _PickledType
        if (module, name) == ("numpy", "ndarray"):
            return None  # an argument of _reconstruct
        raise DataError(
            f"{self.path} asks for {printable(f'{module}.{name}')}, which no image set needs: it was not loaded, as it "
            f"could run arbitrary code. {FETCH_ANEW}"
        )


def load_pickle(path: Path) -> Any:
    """Read a pickle that may hold arrays (as :class:`PickledArray`), whole numbers, strings and plain containers only.

    Raises:
        DataError: the file asks for anything else (the message names it), is missing, damaged or larger than
            ``LARGEST``.
    """
    with damaged(path), open_file(path) as file:
        content = _at_most(file.read(LARGEST + 1))
        tuples, before, puts, kept_tuples = 0, "", 0, set()
        for index, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            tuples += "TUPLE" in opcode.name
            if opcode.name not in OPCODES or tuples > MOST_TUPLES:
                raise ValueError(f"the pickle asks for {opcode.name}, which no image set needs so")
            if opcode.name.endswith("PUT") or opcode.name == "MEMOIZE":
                if "TUPLE" in before:
                    kept_tuples.add(puts if argument is None else argument)
                puts += 1
            elif opcode.name.endswith("BINGET") and argument in kept_tuples:
                # A tuple of the same tuple twice, of that twice ...: its hash takes 2 ** depth steps.
                raise ValueError("the pickle uses a tuple twice, which no image set does")
            before = opcode.name
            # Room is made for as many objects as an index says, before there are any.
            limit = index if opcode.name.endswith("PUT") else 2**31
            if isinstance(argument, int) and abs(argument) > limit:
                raise ValueError(f"the pickle has a {opcode.name} of a number above {limit}")
        return _ImageUnpickler(io.BytesIO(content), path).load()


def read_cifar10(files: Sequence[Path]) -> Parts:
    """Five train batches, one of test, and the names of classes, as in the official archive."""
    return _read_cifar(files, "labels", "label_names")


def read_cifar100(files: Sequence[Path]) -> Parts:
    """Train and test images with their 100 fine classes, and the names of these."""
    return _read_cifar(files, "fine_labels", "fine_label_names")


def _read_cifar(files: Sequence[Path], label_key: str, names_key: str) -> Parts:
    *train, test, meta = files
    contents = load_pickle(meta)
    with damaged(meta):
        classes = tuple(_all_of(str, contents[names_key]))

    def read(path: Path) -> Split:
        batch = load_pickle(path)
        with damaged(path):
            return labelled(batch["data"].array.reshape(-1, 3, 32, 32), _all_of(int, batch[label_key]), len(classes))

    images, labels = zip(*map(read, train), strict=True)
    return (torch.cat(images), torch.cat(labels)), read(test), classes


def _all_of(kind: type, values: Any) -> list:
    if type(values) is not list or not all(type(value) is kind for value in values):
        raise ValueError(f"not a list of {kind.__name__}")
    return values


# ---------------------------------------------------------------- Fashion-MNIST

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def read_fashion_mnist(files: Sequence[Path]) -> Parts:
    """Four idx files, gzipped or not: train images, their labels, and the same of the test images."""
    return _read_idx_split(*files[:2]), _read_idx_split(*files[2:]), FASHION_CLASSES


def _read_idx_split(images: Path, labels: Path) -> Split:
    values, classes = _read_idx(images, 3), _read_idx(labels, 1)
    with damaged(images.parent):
        return labelled(values[:, None], classes, len(FASHION_CLASSES))


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """idx: two zero bytes, type (8 = uint8), number of dimensions, each dimension as big-endian uint32, values."""
    with damaged(path), open_file(path) as file:
        content = _at_most((gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(LARGEST + 1))
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"not an idx file of bytes in {dimensions} dimensions")
        shape = np.frombuffer(content, ">u4", count=dimensions, offset=4).tolist()
        values = np.frombuffer(bytearray(content[4 + 4 * dimensions :]), np.uint8)
        if math.prod(shape) != len(values):
            raise ValueError(f"{len(values)} bytes for an array of shape {tuple(shape)}")
        return values.reshape(shape)


# ---------------------------------------------------------------- MedMNIST


def read_medmnist(path: Path, train: str = "train") -> Parts:
    """A MedMNIST npz. Classes are named by their number, as in the file.

    Args:
        path: of the npz.
        train: which of its splits to train on, ``"train"`` or ``"val"``; the other one of them is left out.
    """
    names = (f"{train}_images", f"{train}_labels", "test_images", "test_labels", "train_labels")
    with damaged(path):
        train_images, train_labels, test_images, test_labels, all_labels = _read_npz(path, names)
    for images in (train_images, test_images):
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[1] != images.shape[2]:
            raise DataError(f"{path} has images of {images.dtype} and shape {[*images.shape]}; {MEDMNIST_FORM}.")
    if train_labels.ndim != 2:
        raise DataError(f"{path} has labels of shape {[*train_labels.shape]}; {MEDMNIST_FORM}, a class for each image.")
    if train_labels.shape[1] != 1:
        raise DataError(f"{path} gives an image several labels; only sets of one class per image can be used.")
    with damaged(path):
        classes = int(all_labels.max()) + 1
        if classes > len(all_labels):
            raise ValueError(f"a label is {classes - 1}, with {len(all_labels)} training images")
        train_split, test_split = (
            labelled(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels[:, 0], classes)
            for images, labels in ((train_images, train_labels), (test_images, test_labels))
        )
    return train_split, test_split, tuple(map(str, range(classes)))


def _read_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Arrays of whole numbers, each as large as its header says and not out of proportion to the file."""
    arrays = []
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        limit = max(LARGEST, RATIO * path.stat().st_size)
        for name in names:
            member = archive.getinfo(f"{name}.npy")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without limit
                raise ValueError(f"{name} are compressed by method {member.compress_type}")
            with archive.open(member) as values:
                if (version := np.lib.format.read_magic(values)) != (1, 0):  # those of later ones may be 4 GiB long
                    raise ValueError(f"{name} have a header of version {version}, where (1, 0) is expected")
                shape, _, dtype = np.lib.format.read_array_header_1_0(values)
                size = member.file_size - values.tell()
            if dtype.kind not in "iu" or not all(type(side) is int and side >= 0 for side in shape):
                raise DataError(f"{path} has {name} of {dtype}; {MEDMNIST_FORM}.")
            if math.prod(shape) * dtype.itemsize != size or size > limit:
                raise ValueError(f"{name} have {size:,} bytes, {dtype} of shape {shape}; at most {limit:,} are read")
            with archive.open(member) as values:
                arrays.append(np.lib.format.read_array(values, allow_pickle=False))
    return arrays
