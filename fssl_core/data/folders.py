"""Folders of images, with classes or without.

With classes: ``{train,test or val}/<class>/``, at any depth below. Without: images that lie directly in ``train``, in
``train2017`` (COCO's name) or in the folder itself. Each image is resized at its shorter side and cut at the centre.
"""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fssl_core.data.readers import Split, damaged
from fssl_core.errors import DataError
from fssl_core.files import atomic_write
from fssl_core.notices import notice
from fssl_core.paths import runs_root

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
PLACES = ("train", "train2017")  # of training images
KEPT_FROM = 20_000  # images; to read and decode so many takes minutes
BLOCK = 64  # images that a thread decodes at a time


def read_folder(folder: Path, image_size: int) -> tuple[Split, Split, tuple[str, ...]]:
    """Train and test images of side ``image_size``; without classes, no test images, and labels of -1.

    Raises:
        DataError: as :func:`list_folder`, or an image cannot be decoded.
    """
    plain = list_unlabelled(folder)
    if plain:
        images = _decode(folder, plain, image_size)
        labels = torch.full((len(images),), -1)
        return (images, labels), (images.new_empty(0, *images.shape[1:]), labels[:0]), ()
    splits = list_folder(folder)
    train, test = (
        (_decode(folder, [path for paths in files.values() for path in paths], image_size), _labels(files))
        for files in splits
    )
    return train, test, tuple(splits[0])


def count_folder(folder: Path) -> tuple[int, int]:
    """Numbers of train and test images; errors as those of :func:`list_folder`."""
    plain = list_unlabelled(folder)
    if plain:
        return len(plain), 0
    train, test = (sum(map(len, files.values())) for files in list_folder(folder))
    return train, test


def list_files(folder: Path) -> list[Path]:
    """All images that :func:`read_folder` reads, in its order; errors as those of :func:`list_folder`."""
    plain = list_unlabelled(folder)
    return plain or [path for files in list_folder(folder) for paths in files.values() for path in paths]


def is_image_folder(folder: Path) -> bool:
    """Whether a folder looks like a set of images; it may be one that cannot be read."""
    with suppress(PermissionError), os.scandir(folder) as entries:
        return any((entry.name in PLACES and entry.is_dir()) or _is_image(entry.name) for entry in entries)
    return False


def list_unlabelled(folder: Path) -> list[Path]:
    """The images of a set without classes, by name; none where there are class folders."""
    place = next((folder / name for name in PLACES if (folder / name).is_dir()), folder)
    if not place.is_dir():
        return []
    with os.scandir(place) as entries:  # knows folders from files without asking for each of 118,287
        entries = [entry for entry in entries if not entry.name.startswith(".")]
    if any(entry.is_dir() for entry in entries):
        return []
    return [place / name for name in sorted(entry.name for entry in entries if _is_image(entry.name))]


def list_folder(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Train and test images of each class in ``folder``, in ``{train,test or val}/<class>/``, any depth below.

    Raises:
        DataError: a split is missing or empty, or the splits do not have the same classes.
    """
    test = folder / "test" if (folder / "test").is_dir() else folder / "val"
    splits = []
    for split in (folder / "train", test):
        if not split.is_dir():
            raise DataError(
                f"{folder} needs the folders train/<class>/ and test/<class>/ (or val/<class>/); without classes, "
                "images directly in train/ and no folder beside them."
            )
        files = {
            entry.name: sorted(path for path in entry.rglob("*") if _is_image(path.name))
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


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _labels(files: dict[str, list[Path]]) -> Tensor:
    counts = torch.tensor([len(paths) for paths in files.values()])
    return torch.arange(len(counts)).repeat_interleave(counts)


# ---------------------------------------------------------------- decoding


def _decode(folder: Path, paths: Sequence[Path], image_size: int) -> Tensor:
    """The images, uint8 ``[N, 3, image_size, image_size]``; large sets are decoded once and kept beside the runs."""
    if len(paths) < KEPT_FROM:
        return _decode_all(paths, image_size)
    kept = runs_root() / "images" / f"{folder.name}-{image_size}-{_fingerprint(folder, paths)}.npy"
    shape = (len(paths), 3, image_size, image_size)
    try:
        array = np.load(kept, allow_pickle=False)
        if array.dtype == np.uint8 and array.shape == shape:
            return torch.from_numpy(array)
    except (OSError, ValueError, EOFError):
        pass  # not there yet, or damaged: what is decoded now takes its place
    notice(f"decoding {len(paths):,} images of {folder} to {image_size} pixels, once: they are kept in {kept}")
    images = _decode_all(paths, image_size)
    with atomic_write(kept) as file:
        np.save(file, images.numpy())
    return images


def _fingerprint(folder: Path, paths: Sequence[Path]) -> str:
    """Sixteen hex digits that change when a file is added, removed, renamed or written."""
    hashed = hashlib.sha256()
    for path in paths:
        status = path.stat()
        hashed.update(f"{path.relative_to(folder)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return hashed.hexdigest()[:16]


def _decode_all(paths: Sequence[Path], image_size: int) -> Tensor:
    from PIL import Image  # comes with torchvision, whose own decoders are deprecated
    from torchvision.transforms.v2 import functional as F

    images = torch.empty(len(paths), 3, image_size, image_size, dtype=torch.uint8)

    def decode(start: int) -> None:
        for place, path in enumerate(paths[start : start + BLOCK], start):
            with damaged(path), Image.open(path) as file:
                image = F.pil_to_tensor(file.convert("RGB"))  # [3, H, W]
                resized = F.resize(image, [image_size], antialias=True)
                images[place] = F.center_crop(resized, [image_size, image_size])

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # decoding leaves Python's lock free
        for _ in threads.map(decode, range(0, len(paths), BLOCK)):
            pass  # an error in a thread is raised here, and what has not begun is not begun
    return images
