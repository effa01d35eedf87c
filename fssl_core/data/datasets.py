"""Image sets by name, each as uint8 tensors on the run's device.

Embedded (no download): ``digits``, ``scattered-digits``. Under ``$FSSL_DATA``, else ``data`` in the project, in
torchvision's layouts: ``cifar10``, ``cifar100``, ``fashion-mnist``; ``medmnist/<subset>`` from
``medmnist/<subset>.npz``, and ``medmnist/<subset>:val`` with its validation split to train on; and any other name as a
folder of images ``NAME/{train,test}/<class>/*.jpg``. A folder whose images lie in no class folders, such as ``coco``
with its ``coco/train2017/*.jpg``, is a set without labels and without test images.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from fssl_core.data import digests, embedded, folders, outlines, readers
from fssl_core.data.outlines import MEDMNIST_SETS, OUTLINES
from fssl_core.devices import check_device
from fssl_core.errors import DataError, SettingError
from fssl_core.notices import notice
from fssl_core.papers.names import printed_name
from fssl_core.paths import data_root
from fssl_core.settings import Count, checked, did_you_mean

FOLDER_IMAGE_SIZE = 64  # pixels; images in folders have no size in common


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with their classes; treat the tensors as read-only, they are shared.

    Args:
        images: uint8 ``[N, C, H, W]``.
        labels: int64 ``[N]``; -1 where there are none.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> "ImageSet":
        return ImageSet(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test images of one set.

    Args:
        name: as given to :func:`load_dataset`.
        train, test: images and labels; the test set of an unlabelled set is empty.
        classes: name of each class; none for an unlabelled set.
        official: the files are known to be the published ones. False for subsets and look-alikes, for folders of
            images (nothing tells; COCO by its number of images), and for the embedded sets: do not compare such
            results with published numbers.
    """

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    official: bool

    @property
    def title(self) -> str:
        """The name as figures have it: ``"CIFAR-10"``, or ``"CIFAR-10 subset"`` where it is not ``official``."""
        return printed_name(self.name, self.official)

    @property
    def labelled(self) -> bool:
        """Whether the images have classes. Without them there is pre-training, and nothing to evaluate it by."""
        return bool(self.classes)

    @property
    def channels(self) -> int:
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """Side of the square images in pixels."""
        return self.train.images.shape[-1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an image: channels, and the side twice."""
        return self.channels, self.image_size, self.image_size

    @property
    def mean(self) -> Tensor:
        """Mean of each channel over the training images, values in [0, 1]: float ``[C]`` on their device."""
        return self._statistics[0]

    @property
    def std(self) -> Tensor:
        """Standard deviation of each channel, as :attr:`mean`; 1 of a channel that is the same everywhere."""
        return self._statistics[1]

    def normalise(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Images ``[..., C, H, W]``, uint8 or float in [0, 1], to mean 0 and deviation 1 of each channel."""
        mean, std = (value.to(images.device, dtype)[:, None, None] for value in (self.mean, self.std))
        images = images.to(dtype) if images.is_floating_point() else images.to(dtype) / 255
        return (images - mean) / std

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        # From counts of the 256 values: exact, and no float copy of the images is made.
        channels = self.train.images.transpose(0, 1).flatten(1)  # [C, N * H * W]
        share = torch.stack([values.bincount(minlength=256) for values in channels]).double() / channels.shape[1]
        value = torch.arange(256, device=channels.device) / 255.0
        mean = (share * value).sum(1)
        variance = (share * (value - mean.unsqueeze(1)) ** 2).sum(1)
        return mean.float(), variance.where(variance > 0, 1.0).sqrt().float()

    def with_fewer_images(self, train_images: int) -> "Dataset":
        """The same test set, and of each class the first ``train_images / classes`` training images.

        Of an unlabelled set the first ``train_images``.

        Raises:
            SettingError: that number is not a multiple of the classes, or a class has too few images.
        """
        if not self.labelled:
            if not 1 <= train_images <= len(self.train):
                raise SettingError("train_images", train_images, f"from 1 to {len(self.train)}, the number of images")
            fewer = ImageSet(self.train.images[:train_images], self.train.labels[:train_images])
            return replace(self, train=fewer)
        classes, labels = len(self.classes), self.train.labels
        each, smallest = train_images // classes, int(labels.bincount(minlength=classes).min())
        if train_images < 1 or train_images % classes or each > smallest:
            expected = f"a multiple of {classes}, the number of classes, up to {smallest * classes}"
            raise SettingError("train_images", train_images, expected)
        chosen = torch.cat([(labels == label).nonzero()[:each, 0] for label in range(classes)]).sort().values
        return replace(self, train=ImageSet(self.train.images[chosen], labels[chosen]))


class Pixels(Dataset):
    """A data set that is not normalised: its models see pixels in [0, 1], in training and in every evaluation."""

    @classmethod
    def of(cls, data: Dataset) -> "Pixels":
        """The same images."""
        return cls(**{part.name: getattr(data, part.name) for part in fields(data)})

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(self.channels, device=self.train.images.device)
        return zeros, zeros + 1


@dataclass(frozen=True)
class _Download:
    """A set that torchvision can fetch."""

    read: Callable[[Sequence[Path]], readers.Parts]
    folders: tuple[str, ...]  # where it may lie under the data root; torchvision's own place first
    files: tuple[str, ...]  # in one of these folders, in the order in which they are read
    torchvision_class: str


DOWNLOADS = {
    "cifar10": _Download(
        readers.read_cifar10,
        ("cifar-10-batches-py",),
        (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"),
        "CIFAR10",
    ),
    "cifar100": _Download(readers.read_cifar100, ("cifar-100-python",), ("train", "test", "meta"), "CIFAR100"),
    "fashion-mnist": _Download(
        readers.read_fashion_mnist,
        ("FashionMNIST/raw", "fashion-mnist"),
        tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")),
        "FashionMNIST",
    ),
}
MEDMNIST = "medmnist/"  # the prefix of its sets' names, and their folder
MEDMNIST_COUNTS = {name: versions for name, (_, _, versions) in MEDMNIST_SETS.items()}  # train, validation and test
VALIDATION = ":val"  # after the name of a MedMNIST set: its validation split in place of the train split
COCO = "coco"
COCO_IMAGES = OUTLINES[COCO].train  # of train2017
EMBEDDED = {"scattered-digits": embedded.scattered_digits, "digits": embedded.digits}
BY_HAND = {  # how to get the sets that torchvision does not fetch into {place}
    COCO: (
        "Fetch http://images.cocodataset.org/zips/train2017.zip (18 GB) and unpack it there, so that its images lie in "
        "{place}/train2017; no annotations are needed."
    ),
    "tiny-imagenet-200": (
        "Fetch http://cs231n.stanford.edu/tiny-imagenet-200.zip (248 MB) and unpack it there as it is, so that "
        "{place}/val/val_annotations.txt is there."
    ),
    "caltech-101": (
        "Fetch https://data.caltech.edu/records/mzrjq-6wc02 (137 MB) and put the images of its 101 classes there, as "
        "train/<class>/*.jpg and test/<class>/*.jpg, without BACKGROUND_Google. The paper does not state the split; 30 "
        "training images of each class are usual."
    ),
    "imagenet12": (
        "Put images there as train/<class>/*.jpg and test/<class>/*.jpg. They are a 12-class subset of ImageNet; the "
        "paper does not say which classes: take those of the work that it cites (Li et al., NeurIPS 2021)."
    ),
}


def load_dataset(
    name: str, *, device: torch.device | str = "cpu", image_size: int | None = None, train_images: int | None = None
) -> Dataset:
    """A set by name, wholly on ``device``.

    Args:
        name: see the module's description and :func:`known_datasets`.
        device: where the tensors go. Sets on the CPU are kept for the next call in the process.
        image_size: resize all images to this side (bilinear, antialiased). None keeps the set's own size; for
            folders of images it is 64, shorter side resized and centre cut.
        train_images: keep only so many, see :meth:`Dataset.with_fewer_images`. None keeps all.

    Raises:
        SettingError: ``image_size`` is below 1, ``train_images`` cannot be had, or there is no such device.
        DataError: the set is missing (the message says where it was looked for and how to get it), damaged, may not
            be read, or its pickles ask for more than arrays.
    """
    checked("dataset", name, str)
    checked("train_images", train_images, int | None)
    checked("image_size", image_size, Count | None)
    device = check_device(device)
    try:
        if outlines.in_use() and name not in EMBEDDED:
            data = outline(name, image_size)
        else:
            data = _load(name, data_root(), image_size, _stamp(name))
    except PermissionError as error:
        raise DataError(f"{error.filename or name} may not be read: change its permissions.") from error
    if _is_published(name) and not (data.official or outlines.in_use()):
        notice(
            f"the files of {name} are not the official ones ({len(data.train):,} train and {len(data.test):,} test "
            "images): do not compare results on them with published ones."
        )
    if train_images is not None:
        data = data.with_fewer_images(train_images)
    if device.type == "cpu" or data.train.images.is_meta:
        return data
    return replace(data, train=data.train.to(device), test=data.test.to(device))


@lru_cache(maxsize=4)
def _load(name: str, root: Path, image_size: int | None, stamp: str) -> Dataset:
    """The set; by ``root`` and the ``stamp`` of its files other ones are not taken for those that were read before."""
    if name in EMBEDDED:
        (train, test), classes, official = EMBEDDED[name](), tuple(map(str, range(10))), False
    else:
        path = find_dataset(name)
        if path is None:
            raise DataError(how_to_get(name))
        train, test, classes = _read(name, path, image_size or FOLDER_IMAGE_SIZE)
        official = _is_official(name, path, len(train[0]), len(test[0]))
        shapes = [tuple(images.shape[1:]) for images, _ in (train, test)]
        if shapes[0] != shapes[1]:
            raise DataError(
                f"{path} has training images of {_size(shapes[0])} and test images of {_size(shapes[1])}: they must be "
                "alike. Convert them, or get the set again."
            )
    if image_size is not None:
        train, test = ((_resize(images, image_size), labels) for images, labels in (train, test))
    return Dataset(name, ImageSet(*train), ImageSet(*test), classes, official)


def _size(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{width} x {height} pixels with {channels} channel(s)"


def outline(name: str, image_size: int | None = None) -> Dataset:
    """A set as :mod:`fssl_core.data.outlines` has it, its images without values on the meta device.

    A folder of images that is none of the published sets has the images that are there.

    Raises:
        DataError: nothing tells what the set is like.
    """
    published, path = outlines.outlines_of(name), find_dataset(name)
    if not published and path is None:
        raise DataError(f"Nothing tells what the set {name!r} is like. {how_to_get(name)}")
    described = published[0] if published else outlines.Outline(*folders.count_folder(path), FOLDER_IMAGE_SIZE)
    splits = (ImageSet(*described.split(images, image_size)) for images in (described.train, described.test))
    return Dataset(name, *splits, tuple(map(str, range(described.classes))), official=False)


def data_digest(name: str) -> str | None:
    """What names the images and labels of a set: sixteen hex digits of its files, or an embedded set's version.

    None where the set is not there, or is none that can be read.
    """
    if name in EMBEDDED:
        return f"embedded {embedded.VERSION}"
    path = find_dataset(name)
    try:
        return None if path is None else digests.digest_files(path, _files(name, path))
    except DataError:
        return None  # whoever reads the set is told what is wrong with it


def _stamp(name: str) -> str:
    path = None if name in EMBEDDED else find_dataset(name)
    try:
        return "" if path is None else digests.stamp(path, _files(name, path))
    except (DataError, OSError):
        return ""  # the reader tells


def _files(name: str, path: Path) -> list[Path]:
    """The files of a set that are read, in their order.

    Raises:
        DataError: the folder holds no images, or not in the way that is expected.
    """
    if name == "fashion-mnist":  # gzipped, as torchvision fetches them, or not
        return [
            path / file if (path / file).exists() and not (path / f"{file}.gz").exists() else path / f"{file}.gz"
            for file in DOWNLOADS[name].files
        ]
    if name in DOWNLOADS:
        return [path / file for file in DOWNLOADS[name].files]
    return [path] if name.startswith(MEDMNIST) else folders.list_files(path)


def find_dataset(name: str) -> Path | None:
    """The file or folder of a set that is not embedded, if it is in the data root; nothing is read."""
    return next((path for path in _places(name) if path.exists()), None)


def _places(name: str) -> list[Path]:
    """Where a set that is not embedded is looked for."""
    if name in DOWNLOADS:
        return [data_root() / folder for folder in DOWNLOADS[name].folders]
    return [data_root() / (f"{name.removesuffix(VALIDATION)}.npz" if name.startswith(MEDMNIST) else name)]


def how_to_get(name: str) -> str:
    """Where a set that is not embedded was looked for, and the command or address that gives it."""
    if name.startswith(MEDMNIST):
        name = name.removesuffix(VALIDATION)  # whose images are in the same file
    where = " or ".join(map(str, _places(name)))
    known = known_datasets()
    meant = "" if name in known else did_you_mean(name, known)
    hint = "" if os.environ.get("FSSL_DATA") else " FSSL_DATA is not set, so the project's own folder was searched."
    if name in DOWNLOADS:
        how = f"Get it with: fssl data {name} --download"
    elif outlines.outlines_of(name) and name.startswith(MEDMNIST):
        file = _places(name)[0].name
        how = (
            f"Fetch https://zenodo.org/records/10519652/files/{file} and put it there; about it: https://medmnist.com."
        )
    elif name.startswith(MEDMNIST):
        how = f"Put an npz in MedMNIST's form there, or use one of its sets: {', '.join(MEDMNIST_SETS)}."
    elif name in BY_HAND:
        how = BY_HAND[name].format(place=where)
    else:
        how = (
            "Put images there as train/<class>/*.jpg and test/<class>/*.jpg, or without classes as train/*.jpg; or use "
            f"one of: {', '.join(known)}."
        )
    return f"The set {name!r} is not at {where}{meant}.{hint} {how}"


def _read(name: str, path: Path, folder_image_size: int) -> readers.Parts:
    if name in DOWNLOADS:
        return DOWNLOADS[name].read(_files(name, path))
    if name.startswith(MEDMNIST):
        return readers.read_medmnist(path, "val" if name.endswith(VALIDATION) else "train")
    return folders.read_folder(path, folder_image_size)


def _is_published(name: str) -> bool:
    """Whether numbers of images tell the set of that name; those of Caltech-101 and imagenet12 are a choice."""
    return name in (*DOWNLOADS, COCO, "tiny-imagenet-200") or name.startswith(MEDMNIST)


def _is_official(name: str, path: Path, train: int, test: int) -> bool:
    """By the number of images and, where torchvision lists them, the md5 of each file."""
    counts = [(known.train, known.test) for known in outlines.outlines_of(name)]
    if not _is_published(name) or (train, test) not in counts:
        return False
    if name not in DOWNLOADS:
        return True
    from torchvision import datasets

    source = getattr(datasets, DOWNLOADS[name].torchvision_class)
    sums = source.resources if name == "fashion-mnist" else source.train_list + source.test_list
    # idx files may have been unpacked and the archives removed; only archives have a known checksum.
    return all(datasets.utils.check_integrity(path / file, md5) for file, md5 in sums if (path / file).exists())


def _resize(images: Tensor, size: int) -> Tensor:
    if images.shape[-1] == size:
        return images
    from torchvision.transforms.v2 import functional as F

    return torch.cat([F.resize(block, [size, size], antialias=True) for block in images.split(4096)])


def known_datasets() -> list[str]:
    """Names for :func:`load_dataset`: the sets known by name, and what else lies in the data root.

    The validation splits of MedMNIST sets are not listed beside them.
    """
    root = data_root()
    medmnist = sorted(MEDMNIST + path.stem for path in (root / MEDMNIST).glob("*.npz") if path.stem.isprintable())
    folders_here = (path for path in root.glob("*") if path.name.isprintable() and path.is_dir())
    others = sorted(path.name for path in folders_here if folders.is_image_folder(path))
    return list(dict.fromkeys([*EMBEDDED, *DOWNLOADS, COCO, *medmnist, *others]))


def inventory() -> pd.DataFrame:
    """What is there, one row per name of :func:`known_datasets`.

    Columns: ``name``; ``found``; ``train`` and ``test``, numbers of images (missing where there are none to count);
    ``official`` as in :class:`Dataset`; ``path``, where the set is or the first place where it was looked for;
    ``problem``, why a set that was found cannot be read, else empty.
    """
    table = pd.DataFrame([_describe(name) for name in known_datasets()])
    return table.astype({"train": "Int64", "test": "Int64"})


def _describe(name: str) -> dict[str, object]:
    row = {"name": name, "found": True, "train": None, "test": None, "official": False, "path": "", "problem": ""}
    if name in EMBEDDED:
        train, test = EMBEDDED[name]()
        return row | {"train": len(train[0]), "test": len(test[0]), "path": "embedded"}
    path = find_dataset(name)
    if path is None:
        return row | {"found": False, "path": str(_places(name)[0])}
    row["path"] = str(path)
    try:
        if name in DOWNLOADS or name.startswith(MEDMNIST):
            splits = _read(name, path, FOLDER_IMAGE_SIZE)[:2]
            train, test = (len(labels) for _, labels in splits)
        else:  # counted, not decoded
            train, test, _ = folders.count_folder(path)
    except DataError as error:
        return row | {"problem": str(error)}
    return row | {"train": train, "test": test, "official": _is_official(name, path, train, test)}


def download(name: str) -> Path:
    """Fetch a set through torchvision into the data root and return its folder; nothing is done if it is there.

    Raises:
        DataError: torchvision does not have the set, other files are in its place, or it cannot be reached.
    """
    root = data_root()
    checked("dataset", name, str)
    if name in EMBEDDED:
        raise DataError(f"{name} is embedded: there is nothing to download.")
    path = find_dataset(name)
    if name not in DOWNLOADS:
        if path is not None:
            raise DataError(f"{name} is at {path} already; it cannot be downloaded, {', '.join(DOWNLOADS)} can.")
        raise DataError(f"{name} cannot be downloaded; {', '.join(DOWNLOADS)} can. {how_to_get(name)}")
    if path is not None:
        if _load(name, root, None, _stamp(name)).official:
            return path
        raise DataError(f"{path} holds files of {name} that are not the official ones. Move them away first.")

    from torchvision import datasets

    source = DOWNLOADS[name]
    try:
        getattr(datasets, source.torchvision_class)(root, download=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{name} could not be fetched into {root} ({error}). Try again, or put it there by hand."
        ) from error
    return root / source.folders[0]


def digest(data: Dataset) -> str:
    """Sixteen hex digits that name the training images and labels."""
    hashed = hashlib.sha256()
    for values in (data.train.images, data.train.labels):
        hashed.update(f"{values.dtype} {list(values.shape)}".encode())
        hashed.update(values.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return hashed.hexdigest()[:16]
