"""The file formats of image sets: CIFAR pickles, idx, MedMNIST npz; folders are in :mod:`fssl_core.data.folders`.

Each reader returns ``(train, test, class names)`` with a split as ``(images uint8 [N, C, H, W], labels int64 [N])``
and raises :class:`DataError` that names the damaged file.
"""

import gzip
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fssl_core.errors import DataError

Split = tuple[Tensor, Tensor]  # images uint8 [N, C, H, W], labels int64 [N]
FETCH_ANEW = "Remove it and fetch the set anew; `fssl data` says how."


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Turn whatever a parser says about a broken file into one error that names the file and the way out."""
    try:
        yield
    except (DataError, PermissionError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing, the rest of its set is there. {FETCH_ANEW}") from error
    except Exception as error:  # a parser may raise anything on broken input
        raise DataError(
            f"{path} is damaged or cut short ({str(error) or type(error).__name__}). {FETCH_ANEW}"
        ) from error


def labelled(images: np.ndarray, labels: Any, classes: int) -> Split:
    """Tensors of a split after a check that every image has one known label."""
    images, labels = np.ascontiguousarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images are {images.dtype} of shape {images.shape}")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} images but labels of shape {labels.shape}")
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels are not all from 0 to {classes - 1}, or there are none")
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


class _ArrayUnpickler(pickle.Unpickler):
    """Admits numpy arrays, numbers, strings and plain containers; a pickle can otherwise run any code."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # the official files were written by Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np._core.multiarray._reconstruct
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise DataError(
            f"{self.path} asks for {module}.{name}, which no image set needs: it was not loaded, as it could run "
            f"arbitrary code. {FETCH_ANEW}"
        )


def load_pickle(path: Path) -> Any:
    """Read a pickle that may hold numpy arrays, numbers, strings and plain containers only.

    Raises:
        DataError: the file asks for anything else (the message names it), is missing or damaged.
    """
    with damaged(path), path.open("rb") as file:
        return _ArrayUnpickler(file, path).load()


def read_cifar10(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """``cifar-10-batches-py``: five train batches and one of test, as in the official archive."""
    return _read_cifar(
        folder, [f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta", "labels", "label_names"
    )


def read_cifar100(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """``cifar-100-python`` with its 100 fine classes."""
    return _read_cifar(folder, ["train"], "test", "meta", "fine_labels", "fine_label_names")


def _read_cifar(
    folder: Path, train: list[str], test: str, meta: str, label_key: str, names_key: str
) -> tuple[Split, Split, tuple[str, ...]]:
    contents = load_pickle(folder / meta)
    with damaged(folder / meta):
        classes = tuple(str(name) for name in contents[names_key])

    def read(name: str) -> Split:
        batch = load_pickle(folder / name)
        with damaged(folder / name):
            return labelled(batch["data"].reshape(-1, 3, 32, 32), batch[label_key], len(classes))

    images, labels = zip(*map(read, train), strict=True)
    return (torch.cat(images), torch.cat(labels)), read(test), classes


FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def read_fashion_mnist(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """Four idx files, gzipped or not."""
    splits = [
        _read_idx_split(folder, f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")
    ]
    return splits[0], splits[1], FASHION_CLASSES


def _read_idx_split(folder: Path, images: str, labels: str) -> Split:
    images, labels = (_read_idx(folder, name) for name in (images, labels))
    with damaged(folder):
        return labelled(images[:, None], labels, len(FASHION_CLASSES))


def _read_idx(folder: Path, name: str) -> np.ndarray:
    """idx: two zero bytes, type (8 = uint8), number of dimensions, each dimension as big-endian int32, values."""
    path = folder / f"{name}.gz"
    if not path.exists() and (folder / name).exists():
        path = folder / name
    with damaged(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if content[:3] != b"\0\0\x08":
            raise ValueError("not an idx file of bytes")
        shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape).copy()


def read_medmnist(path: Path, train: str = "train") -> tuple[Split, Split, tuple[str, ...]]:
    """A MedMNIST npz. Classes are named by their number, as in the file.

    Args:
        path: of the npz.
        train: which of its splits to train on, ``"train"`` or ``"val"``; the other one of them is left out.
    """
    with damaged(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        names = (f"{train}_images", f"{train}_labels", "test_images", "test_labels", "train_labels")
        train_images, train_labels, test_images, test_labels, all_labels = (arrays[name] for name in names)
    if train_labels.ndim != 2 or train_labels.shape[1] != 1:
        raise DataError(f"{path} gives an image several labels; only sets of one class per image can be used.")
    with damaged(path):
        classes = int(all_labels.max()) + 1
        train_split, test_split = (
            labelled(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels[:, 0], classes)
            for images, labels in ((train_images, train_labels), (test_images, test_labels))
        )
    return train_split, test_split, tuple(map(str, range(classes)))
