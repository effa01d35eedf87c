"""What data sets are like without their images: enough to plan runs on sets that are not here.

Numbers of images and of classes, sides in pixels and channels are those of the published sets; the side of image
folders is that which they are decoded to unless settings say otherwise. Classes are taken to be equally large.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Outline:
    """Of a set: training and test images, classes (0: no labels), the side in pixels, and channels."""

    train: int
    test: int
    classes: int
    side: int
    channels: int = 3

    def split(self, images: int, side: int | None) -> tuple[Tensor, Tensor]:
        """So many images without values, uint8 ``[N, C, H, W]`` on the meta device, and their labels on the CPU."""
        side = side or self.side
        pixels = torch.empty(images, self.channels, side, side, dtype=torch.uint8, device="meta")
        labels = torch.arange(images) % self.classes if self.classes else torch.full((images,), -1)
        return pixels, labels


OUTLINES = {
    "cifar10": Outline(50_000, 10_000, 10, 32),
    "cifar100": Outline(50_000, 10_000, 100, 32),
    "fashion-mnist": Outline(60_000, 10_000, 10, 28, channels=1),
    "tiny-imagenet-200": Outline(100_000, 10_000, 200, 64),
    "coco": Outline(118_287, 0, 0, 64),
    "caltech-101": Outline(3_030, 5_647, 101, 64),
    "imagenet12": Outline(12_000, 600, 12, 64),
}
# Classes, channels, and the numbers of train, validation and test images of the single-label 2-D sets of MedMNIST v2
# (Yang et al., Scientific Data 10:41, 2023) and of their later corrections; the same at larger sizes, as pathmnist_64.
MEDMNIST_SETS = {
    "bloodmnist": (8, 3, [(11_959, 1_712, 3_421)]),
    "breastmnist": (2, 1, [(546, 78, 156)]),
    "dermamnist": (7, 3, [(7_007, 1_003, 2_005)]),
    "octmnist": (4, 1, [(97_477, 10_832, 1_000)]),
    "organamnist": (11, 1, [(34_561, 6_491, 17_778), (34_581, 6_491, 17_778)]),
    "organcmnist": (11, 1, [(12_975, 2_392, 8_216), (13_000, 2_392, 8_268)]),
    "organsmnist": (11, 1, [(13_932, 2_452, 8_827), (13_940, 2_452, 8_829)]),
    "pathmnist": (9, 3, [(89_996, 10_004, 7_180)]),
    "pneumoniamnist": (2, 1, [(4_708, 524, 624)]),
    "retinamnist": (5, 3, [(1_080, 120, 400)]),
    "tissuemnist": (8, 1, [(165_466, 23_640, 47_280)]),
}
_in_use = False


@contextmanager
def outlines_only() -> Iterator[None]:
    """Inside the block every set that is not embedded is its outline, whether its files are there or not."""
    global _in_use
    before, _in_use = _in_use, True
    try:
        yield
    finally:
        _in_use = before


def in_use() -> bool:
    """Whether this is inside :func:`outlines_only`."""
    return _in_use


def outlines_of(name: str) -> list[Outline]:
    """Of each version of a published set, the smallest first, by its name for ``load_dataset``; none of another set."""
    match = re.fullmatch(r"medmnist/(?P<subset>[a-z]+)(_(?P<side>64|128|224))?(?P<validation>:val)?", name)
    if match is None or match["subset"] not in MEDMNIST_SETS:
        return [OUTLINES[name]] if name in OUTLINES else []
    classes, channels, versions = MEDMNIST_SETS[match["subset"]]
    side = int(match["side"] or 28)
    return [
        Outline(validation if match["validation"] else train, test, classes, side, channels)
        for train, validation, test in versions
    ]
