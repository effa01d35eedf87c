"""Folders of images, with classes or without.

With classes: ``{train,test or val}/<class>/``, at any depth below; or as Tiny ImageNet is published, whose
``val/val_annotations.txt`` names the class of each image in ``val/images``, and whose ``test`` has no labels. Without:
images that lie directly in ``train``, in ``train2017`` (COCO's name) or in the folder itself. Each image is resized at
its shorter side and cut at the centre.

An image is what a viewer shows: turned as its EXIF data say, 16 bits a channel scaled to 8, transparent places on
white, the first picture of several, CMYK by the plain formula; colour profiles are left aside. Files are JPEG or PNG by
their content, whatever their name says. What is hidden (a leading dot) is not looked at.
"""

import os
import threading
import time
import unicodedata
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fssl_core.data import digests
from fssl_core.data.readers import Parts, damaged
from fssl_core.errors import DataError
from fssl_core.files import atomic_write, open_file
from fssl_core.notices import notice, printable
from fssl_core.paths import runs_root
from fssl_core.resources import cores

if TYPE_CHECKING:
    from PIL.Image import Image

Files = dict[str | None, list[Path]]  # images by class, both in the order of their names; of the class None without any
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
OTHER_SUFFIXES = (".avif", ".bmp", ".gif", ".heic", ".jp2", ".tif", ".tiff", ".webp")  # a notice says that there are
FORMATS = ("JPEG", "PNG")  # by content; Pillow knows others that start programs
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK")  # Pillow's names of what 8 bits a channel can be
LARGEST_IMAGE = 2**26  # pixels, 8192 x 8192; an image takes up to 21 bytes a pixel while it is decoded
LARGE_IMAGE = 2**22  # pixels; of images above, one is decoded at a time
ANNOTATIONS = Path("val", "val_annotations.txt")  # of Tiny ImageNet: a line for each image, its name and class first
LARGEST_TABLE = 2**24  # bytes of that file; the published one has 0.4 MB
PLACES = ("train", "train2017")  # of training images
KEPT_FROM = 20_000  # images; to read and decode so many takes minutes
BLOCK = 64  # images that a thread decodes at a time
DAY = 86_400  # seconds, in which a copy is written
_damaged = partial(damaged, remedy="Remove it, or put a whole copy in its place.")  # of one's own no other is fetched
DECODING = 2  # raise when the same file gives another image: copies that are kept are then made anew


def read_folder(folder: Path, image_size: int) -> Parts:
    """Train and test images of side ``image_size``; without classes, no test images, and labels of -1.

    Raises:
        DataError: as :func:`list_folder`, or an image cannot be decoded.
    """
    train, test = list_folder(folder)
    splits = [(_decode(folder, _paths(files), image_size), _labels(files)) for files in (train, test)]
    return splits[0], splits[1], tuple(test)


def count_folder(folder: Path) -> tuple[int, int, int]:
    """Numbers of train images, test images and classes; errors as those of :func:`list_folder`."""
    train, test = list_folder(folder)
    return len(_paths(train)), len(_paths(test)), len(test)


def list_files(folder: Path) -> list[Path]:
    """All files that :func:`read_folder` reads, images in its order; errors as those of :func:`list_folder`."""
    train, test = list_folder(folder)
    table = folder / ANNOTATIONS
    return [*_paths(train), *_paths(test), *([table] if test and table.is_file() else [])]


def is_image_folder(folder: Path) -> bool:
    """Whether a folder looks like a set of images; it may be one that cannot be read."""
    with suppress(PermissionError), os.scandir(folder) as entries:
        return any((entry.name in PLACES and entry.is_dir()) or _is_image(entry.name) for entry in entries)
    return False


def list_folder(folder: Path) -> tuple[Files, Files]:
    """Train and test images of each class in ``folder``, in ``{train,test or val}/<class>/``, any depth below.

    With Tiny ImageNet's table of classes the test images are those that it names. Of a set without classes the training
    images are of the class None, and there are no test images.

    Raises:
        DataError: a split is missing or empty, the splits do not have the same classes, or the table is damaged.
    """
    with _damaged(folder):
        if unlabelled := _list_unlabelled(folder):
            return {None: unlabelled}, {}
        test = folder / "test" if (folder / "test").is_dir() else folder / "val"
        listed = (folder / ANNOTATIONS).is_file()
        if listed:
            test = folder / ANNOTATIONS.parent
        splits = [_list_classes(folder / "train", folder), _listed(folder) if listed else _list_classes(test, folder)]
    if splits[0].keys() != splits[1].keys():
        only = sorted(splits[0].keys() ^ splits[1].keys())
        raise DataError(
            f"{folder / 'train'} and {test} must hold the same classes; only one has: {', '.join(only[:5])}."
        )
    return splits[0], splits[1]


def _list_unlabelled(folder: Path) -> list[Path]:
    """The images of a set without classes, by name; none where there are class folders."""
    image_folder = next((folder / name for name in PLACES if (folder / name).is_dir()), folder)
    if not image_folder.is_dir():
        return []
    with os.scandir(image_folder) as entries:  # knows folders from files without asking for each of 118,287
        entries = [entry for entry in entries if not entry.name.startswith(".")]
    if any(entry.is_dir() for entry in entries):
        return []
    return sorted(image_folder / name for name in _images(image_folder, [entry.name for entry in entries]))


def _list_classes(split: Path, folder: Path) -> Files:
    """Images by class, both in the order of their names."""
    if not split.is_dir():
        raise DataError(
            f"{folder} needs the folders train/<class>/ and test/<class>/ (or val/<class>/); without classes, "
            "images directly in train/ and no folder beside them."
        )
    files: Files = {}
    loose = 0  # images beside the folders of classes
    for entry in split.iterdir():
        name = unicodedata.normalize("NFC", entry.name)  # systems differ in how they write an accent
        if entry.name.startswith(".") or not entry.is_dir():
            loose += _is_image(entry.name)
            continue
        if name in files or not name.isprintable():
            raise DataError(f"{split} has a class {printable(name)!r} twice, or its name cannot be printed: rename it.")
        files[name] = _images_below(entry)
    if loose:
        notice(f"images in {split} itself, of no class, are left out: {loose}.")
    empty = sorted(name for name, paths in files.items() if not paths)
    if not files or empty:
        where = ", ".join(empty[:5]) or "<class>"
        raise DataError(f"{split} has no {', '.join(IMAGE_SUFFIXES)} images in {where}/.")
    return dict(sorted(files.items()))


def _listed(folder: Path) -> Files:
    """Images of ``val/images`` by class, as the table beside them has it; both in the order of their names."""
    table, images = folder / ANNOTATIONS, folder / ANNOTATIONS.parent / "images"
    if table.stat().st_size > LARGEST_TABLE:
        raise DataError(f"{table} has more than {LARGEST_TABLE:,} bytes: it is no table of Tiny ImageNet's classes.")
    unlisted, files = set(os.listdir(images)) if images.is_dir() else set(), {}
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0]
        if name not in unlisted or not _is_image(name) or not label or not label.isprintable():
            raise DataError(
                f"{table}, line {number}: {printable(line[:80])!r} should be the name of an image in {images} and its "
                "class, with a tab between."
            )
        unlisted.remove(name)  # a second line for it is refused
        files.setdefault(label, []).append(images / name)
    unlisted_images = [name for name in unlisted if _is_image(name)]
    if unlisted_images or not files:
        raise DataError(
            f"{table} names {sum(map(len, files.values())):,} images, and {images} has {len(unlisted_images):,} more."
        )
    return {label: sorted(paths) for label, paths in sorted(files.items())}


def _images_below(folder: Path) -> list[Path]:
    """At any depth, through links, by name."""
    paths, seen = [], set()
    for directory, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:
            raise DataError(f"{directory} is a link to a folder whose images are there already: remove it.")
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(directory, name) for name in _images(Path(directory), names)]
    return sorted(paths)


def _raise(error: OSError) -> None:
    raise error


def _images(directory: Path, names: Sequence[str]) -> list[str]:
    """Those of a folder's files that are images by their names."""
    others = sum(os.path.splitext(name)[1].lower() in OTHER_SUFFIXES for name in names)
    if others:
        notice(
            f"images of other formats in {directory} are left out: {others}; only {', '.join(IMAGE_SUFFIXES)} are read."
        )
    return [name for name in names if _is_image(name)]


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _paths(files: Files) -> list[Path]:
    return [path for paths in files.values() for path in paths]


def _labels(files: Files) -> Tensor:
    if None in files:
        return torch.full((len(files[None]),), -1)
    return torch.tensor([label for label, paths in enumerate(files.values()) for _ in paths], dtype=torch.int64)


# ---------------------------------------------------------------- decoding


def _decode(folder: Path, paths: Sequence[Path], image_size: int) -> Tensor:
    """The images, uint8 ``[N, 3, image_size, image_size]``; large sets are decoded once and kept beside the runs."""
    if len(paths) < KEPT_FROM:
        return _decode_all(paths, image_size)
    with _damaged(folder):
        stamp = digests.stamp(folder, paths)
    kept = runs_root() / "images" / f"{folder.name}-{image_size}-{DECODING}-{stamp}.npz"
    shape = (len(paths), 3, image_size, image_size)
    try:
        with kept.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # an archive: it has a checksum
            array = arrays["images"]
        if array.dtype == np.uint8 and array.shape == shape:
            return torch.from_numpy(array)
    except (OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, zipfile.BadZipFile):
        pass  # not there yet, or damaged: what is decoded now takes its place
    notice(f"decoding {len(paths):,} images of {folder} to {image_size} pixels, once: they are kept in {kept}")
    images = _decode_all(paths, image_size)
    try:
        for left in kept.parent.glob(f".{folder.name}-*.npz.*"):  # of a process that was killed while it wrote
            if time.time() - left.stat().st_mtime > DAY:
                left.unlink()
        with atomic_write(kept) as file:
            np.savez(file, images=images.numpy())
    except OSError as error:  # it is a cache
        notice(f"the decoded images cannot be kept in {kept} ({error.strerror}); the next run will decode them again.")
    return images


def _decode_all(paths: Sequence[Path], image_size: int) -> Tensor:
    try:
        images = torch.empty(len(paths), 3, image_size, image_size, dtype=torch.uint8)
    except RuntimeError as error:
        raise DataError(
            f"{len(paths):,} images of {image_size} pixels need {len(paths) * 3 * image_size**2:,} bytes, more memory "
            "than there is: choose a smaller image_size or fewer files."
        ) from error
    one_at_a_time = threading.Lock()

    def decode(start: int) -> None:
        for index, path in enumerate(paths[start : start + BLOCK], start):
            images[index] = read_image(path, image_size, one_at_a_time)

    with ThreadPoolExecutor(cores()) as threads:  # decoding leaves Python's lock free
        for _ in threads.map(decode, range(0, len(paths), BLOCK)):
            pass  # an error in a thread is raised here, and what has not begun is not begun
    return images


def read_image(path: Path, image_size: int, lock: AbstractContextManager | None = None) -> Tensor:
    """One image, resized at its shorter side and cut at the centre: uint8 ``[3, image_size, image_size]``.

    Args:
        path: a JPEG or PNG file.
        image_size: the side, pixels.
        lock: held while a large image is decoded, so that threads do not need memory for several.

    Raises:
        DataError: the file is missing, may not be read, is damaged, has more than ``LARGEST_IMAGE`` pixels or would
            have while it is resized, or it is not an image of these kinds.
    """
    from PIL import Image, UnidentifiedImageError  # comes with torchvision, whose own decoders are deprecated
    from torchvision.transforms.v2 import functional as F

    with _damaged(path), open_file(path) as file:
        try:
            image = Image.open(file, formats=FORMATS)  # reads no further than the size
        except UnidentifiedImageError as error:
            raise ValueError(f"by its content it is none of {', '.join(FORMATS)}") from error
        pixels, resized = image.width * image.height, image_size**2 * max(image.size) // min(image.size)
        if max(pixels, resized) > LARGEST_IMAGE:
            raise ValueError(f"{image.width} x {image.height} pixels; at most {LARGEST_IMAGE:,} are read")
        with image, lock if lock and pixels > LARGE_IMAGE else nullcontext():
            image = F.pil_to_tensor(_upright(image))  # [3, H, W]
            return F.center_crop(F.resize(image, [image_size], antialias=True), [image_size, image_size])


def _upright(image: "Image") -> "Image":
    """In RGB, as a viewer shows it."""
    from PIL import Image, ImageOps

    image.load()  # what is damaged is told
    with suppress(Exception):  # EXIF data that cannot be read say nothing; the image may be sound
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits of grey: convert() would make white of all above 255
        values = np.asarray(image).astype(np.int64)
        image = Image.fromarray(((255 * values + 32767) // 65535).astype(np.uint8))
    elif image.mode not in MODES:
        raise ValueError(f"its pixels are {image.mode}")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")
