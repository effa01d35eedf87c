"""The file formats of image sets: CIFAR pickles, idx, MedMNIST npz, folders of images.

Each reader returns ``(train, test, class names)`` with a split as ``(images uint8 [N, C, H, W], labels int64 [N])``
and raises :class:`DataError` that names the damaged file.
"""

import gzip
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fssl_core.errors import DataError

Split = tuple[Tensor, Tensor]  # images uint8 [N, C, H, W], labels int64 [N]
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
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


def read_medmnist(path: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """A MedMNIST npz; its validation images are left out. Classes are named by their number, as in the file."""
    with damaged(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        names = ("train_images", "train_labels", "test_images", "test_labels")
        train_images, train_labels, test_images, test_labels = (arrays[name] for name in names)
    if train_labels.ndim != 2 or train_labels.shape[1] != 1:
        raise DataError(f"{path} gives an image several labels; only sets of one class per image can be used.")
    with damaged(path):
        classes = int(train_labels.max()) + 1
        train, test = (
            labelled(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels[:, 0], classes)
            for images, labels in ((train_images, train_labels), (test_images, test_labels))
        )
    return train, test, tuple(map(str, range(classes)))


def list_folder(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Train and test images of each class in ``folder``, in ``{train,test or val}/<class>/``, any depth below.

    Raises:
        DataError: a split is missing or empty, or the splits do not have the same classes.
    """
    test = folder / "test" if (folder / "test").is_dir() else folder / "val"
    splits = []
    for split in (folder / "train", test):
        if not split.is_dir():
            raise DataError(f"{folder} needs the folders train/<class>/ and test/<class>/ (or val/<class>/).")
        files = {
            entry.name: sorted(path for path in entry.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            for entry in sorted(split.iterdir())
            if entry.is_dir()
        }
        empty = [name for name, paths in files.items() if not paths]
        if not files or empty:
            where = ", ".join(empty[:5]) or "<class>"
            raise DataError(f"{split} has no {', '.join(IMAGE_SUFFIXES)} images in {where}/.")
        splits.append(files)
    if splits[0].keys() != splits[1].keys():
        only = sorted(splits[0].keys() ^ splits[1].keys())
        raise DataError(
            f"{folder / 'train'} and {test} must hold the same classes; only one has: {', '.join(only[:5])}."
        )
    return splits[0], splits[1]


def read_folder(folder: Path, image_size: int) -> tuple[Split, Split, tuple[str, ...]]:
    """A folder of images; each is resized to ``image_size`` at its shorter side and cut at the centre."""
    train, test = list_folder(folder)
    return _decode_all(train, image_size), _decode_all(test, image_size), tuple(train)


def _decode_all(files: dict[str, list[Path]], image_size: int) -> Split:
    from PIL import Image  # comes with torchvision, whose own decoders are deprecated
    from torchvision.transforms.v2 import functional as F

    def decode(path: Path) -> Tensor:
        with damaged(path), Image.open(path) as file:
            image = F.pil_to_tensor(file.convert("RGB"))  # [3, H, W]
            return F.center_crop(F.resize(image, [image_size], antialias=True), [image_size, image_size])

    paths = [path for paths in files.values() for path in paths]
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # decoding leaves Python's lock free
        images = torch.stack(list(threads.map(decode, paths)))
    counts = torch.tensor([len(paths) for paths in files.values()])
    return images, torch.arange(len(counts)).repeat_interleave(counts)
