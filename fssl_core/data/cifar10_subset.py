"""The part of CIFAR-10 behind the recorded runs at ``workstation``, taken out of the official files.

Runs know their images by the checksums of the files, so recorded ones are not taken where all of CIFAR-10 is. The part
has 10,000 training and 2,000 test images, 1,000 and 200 of each class. ``cifar10_subset.npy`` has their places in the
official order, in which ``data_batch_1`` holds the images 0 to 9,999, and so on; there are no pixels in it. The files
come out byte for byte as those that the runs read, or not at all.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from fssl_core.data import readers
from fssl_core.data.datasets import DOWNLOADS, find_dataset, how_to_get
from fssl_core.data.outlines import OUTLINES
from fssl_core.errors import DataError
from fssl_core.files import atomic_write
from fssl_core.notices import printable

SHA256 = {  # of the files that the recorded runs read
    "data_batch_1": "d1b0fcf1cc0f136d925fe5b3a38a945fcf9a6bf3d9f6eaea2de23bb85b346a28",
    "data_batch_2": "e3bebab99d23a20620287cc9ecf5f8ce6590682357a97562694e7f9285a17fd0",
    "data_batch_3": "5ce16884dc4d26bd082495ebe61332ee485b147ab91df1598817ba859e01282a",
    "data_batch_4": "e0e0686f2e4b71d4755cfd12a2469cbad475b87af4ff3b87a18ddddf0f3637f9",
    "data_batch_5": "5e32e1c186c9aea57bc07daa14648ecf67de19022088d002ef2ac23ba0a065cf",
    "test_batch": "62e9e63c87208a7dd15532fe0fcf578ea67f80ee3beea0d4275b54d3b03b17b3",
    "batches.meta": "8a15c82dc6057820bd186b94c10d4cab1c54b1fb9ddb6d43794c0840362c924e",
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def places() -> np.ndarray:
    """Places in the official order, uint16 ``[6, 2000]``: a row for each training file, and one for the test images."""
    return np.load(Path(__file__).with_suffix(".npy"), allow_pickle=False)


def write_subset(folder: Path) -> Path:
    """Write the part into a new folder ``cifar-10-batches-py`` in ``folder``, which is made when missing.

    Returns:
        the new folder.

    Raises:
        DataError: it is there already; or CIFAR-10 is missing in the data root, damaged, this very part already, or not
            what the recorded runs were made of. Nothing is written then.
        OSError: a file cannot be read or written, for example when no space is left; none of the part stays behind.
    """
    (name,) = DOWNLOADS["cifar10"].folders
    source, target = find_dataset("cifar10"), Path(folder).absolute() / name
    if target.exists():
        others = "is there already and stays as it is: name another folder"
        raise DataError(f"{target} {'holds the files of the recorded runs already' if _recorded(target) else others}.")
    if source is None:
        raise DataError(how_to_get("cifar10"))
    if _recorded(source):
        raise DataError(f"The files in {source} are those of the recorded runs already: there is nothing to do.")
    train, test, classes = readers.read_cifar10([source / name for name in DOWNLOADS["cifar10"].files])
    counts = len(train[1]), len(test[1])
    if (*counts, classes) != (OUTLINES["cifar10"].train, OUTLINES["cifar10"].test, CLASSES):
        raise DataError(
            f"{source} does not hold the official files of CIFAR-10, with 50,000 training and 10,000 test images of "
            f"the classes {', '.join(CLASSES)}: here are {counts[0]:,} and {counts[1]:,} of the classes "
            f"{printable(', '.join(classes))}. Move them away, then: fssl data cifar10 --download"
        )
    files = contents(train, test, places())
    others = [name for name, content in files.items() if hashlib.sha256(content).hexdigest() != SHA256[name]]
    if others:
        raise DataError(
            f"The files in {source} are not those that the recorded runs were made of: the subset would have another "
            f"{', '.join(others)} (by SHA-256), and was not written. Move them away, then: fssl data cifar10 "
            "--download. If that brings the same files, the runs have to be computed."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        for file, content in files.items():
            with atomic_write(Path(temporary, name, file)) as opened:
                opened.write(content)
        os.rename(Path(temporary, name), target)  # whole or not at all
    return target


def _recorded(folder: Path) -> bool:
    """Whether the files are those that the recorded runs read."""
    paths = {folder / name: known for name, known in SHA256.items()}
    return all(path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == paths[path] for path in paths)


def contents(train: readers.Split, test: readers.Split, places: np.ndarray) -> dict[str, bytes]:
    """The files by name, of the images and labels at these places."""
    files = {
        f"data_batch_{number}": _batch(f"training batch {number} of 5", "train", train, row)
        for number, row in enumerate(places[:-1], 1)
    }
    files["test_batch"] = _batch("testing batch 1 of 1", "test", test, places[-1])
    names, count = _list(map(_text, CLASSES)), _number(places.shape[1])
    return files | {
        "batches.meta": _dictionary(num_cases_per_batch=count, label_names=names, num_vis=_number(3 * 32 * 32))
    }


def _batch(title: str, part: str, split: readers.Split, places: np.ndarray) -> bytes:
    images, labels = (values[torch.from_numpy(places.astype(np.int64))].numpy() for values in split)
    return _dictionary(
        batch_label=_text(title),
        labels=_list(map(_number, labels.tolist())),
        data=_array(images.reshape(len(images), -1)),
        filenames=_list(_text(f"{part}_{place:05}.png") for place in places.tolist()),
    )


# ---------------------------------------------------------------- pickles of protocol 2, as Python 2 wrote them
# By hand: `pickle` writes other strings, and what it writes of an array changes with numpy.


def _dictionary(**entries: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(_text(key) + value for key, value in entries.items()) + b"u."


def _list(items: Iterable[bytes]) -> bytes:
    items = list(items)
    blocks = (b"".join(items[start : start + 1000]) for start in range(0, len(items), 1000))  # as `pickle` cuts them
    return b"]" + b"".join(b"(" + block + b"e" for block in blocks)


def _text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode("ascii")


def _number(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + value.to_bytes(2, "little")


def _array(values: np.ndarray) -> bytes:
    """Bytes ``[N, D]``: an empty array, whose state is set to version, shape, dtype, order and content."""
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1\x89\x88\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    shape = b"".join(map(_number, values.shape)) + b"\x86"
    content = b"T" + values.nbytes.to_bytes(4, "little") + values.tobytes()
    return made + b"(K\x01" + shape + dtype + b"\x89" + content + b"tb"
