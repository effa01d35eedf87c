"""Images that need no download: two sets made from scikit-learn's 1,797 handwritten digits, and its two photographs.

``digits`` are the digits themselves; raw pixels already classify them, so they show little of self-supervision.
``scattered-digits`` places each digit at a random scale, place and rotation on a 16 x 16 canvas of random brightness
with noise: raw pixels classify these poorly, learned features clearly better, in seconds of training on a CPU.

Both sets are the same on every machine: numbers are drawn as uniform float64 and used in element-wise arithmetic only.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from fssl_core.data.readers import Split
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range

PHOTOGRAPHS = ("china", "flower")
VERSION = 1  # raise when the images change: what was computed on them is then computed again
SEED = 20240601
TRAIN_SHARE = 0.75  # of each class's digits
CANVAS = 16  # pixels
TRAIN_PER_CLASS, TEST_PER_CLASS = 400, 100
SCALE = (0.5, 0.85)  # side of the placed digit as a share of the canvas
ROTATION = math.radians(15)  # at most, either way
CONTRAST = (0.4, 0.9)  # of a digit's ink, in units of the pixel range
OFFSET = (0.0, 0.4)  # brightness of the background
NOISE = 0.06  # standard deviation of a pixel's noise


@lru_cache(maxsize=1)
def digits() -> tuple[Split, Split]:
    """Train (1,347) and test (450) digits, uint8 ``[N, 1, 8, 8]``, with their labels; the same share of each class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(1)  # 0..16 -> 0..255
    labels = torch.from_numpy(bunch.target).long()
    rank = _uniform("split", len(labels)).argsort()
    train, test = [], []
    for digit in range(10):
        members = rank[labels[rank] == digit]
        cut = round(TRAIN_SHARE * len(members))
        train.append(members[:cut])
        test.append(members[cut:])
    train, test = torch.cat(train).sort().values, torch.cat(test).sort().values
    return (images[train], labels[train]), (images[test], labels[test])


@lru_cache(maxsize=1)
def scattered_digits() -> tuple[Split, Split]:
    """Train (4,000) and test (1,000) images, uint8 ``[N, 1, 16, 16]``, with their labels; classes equally often.

    Train images are made from the train digits of :func:`digits` only, test images from its test digits only.
    """
    train, test = digits()
    return _scatter("train", *train, TRAIN_PER_CLASS), _scatter("test", *test, TEST_PER_CLASS)


def photograph(name: str = "china", size: int = 224) -> Tensor:
    """A photograph from scikit-learn, its central square resized with anti-aliasing: uint8 ``[3, size, size]``.

    Args:
        name: ``"china"``, a temple under a wide sky, or ``"flower"``, a dahlia before a dark ground.
        size: side in pixels; the square of the original has 427.

    Raises:
        SettingError: another name, or a size below 1.
    """
    check_choice("photograph", name, PHOTOGRAPHS)
    check_range("size", size, low=1)
    from sklearn.datasets import load_sample_image

    image = torch.tensor(load_sample_image(f"{name}.jpg")).permute(2, 0, 1)  # [3, 427, 640]
    side = min(image.shape[1:])
    top, left = ((length - side) // 2 for length in image.shape[1:])
    square = image[None, :, top : top + side, left : left + side].float()
    resized = F.interpolate(square, size=(size, size), mode="bilinear", antialias=True)
    return resized[0].round().clamp(0, 255).to(torch.uint8)


def _scatter(split: str, images: Tensor, labels: Tensor, per_class: int) -> Split:
    """``per_class`` scattered images of each class, made from all its digits in turn, classes alternating."""
    members = [(labels == digit).nonzero().squeeze(1) for digit in range(10)]
    source = torch.stack([rows[torch.arange(per_class) % len(rows)] for rows in members], dim=1).flatten()  # [N]
    count = len(source)

    uniform = _uniform(split, count, 6)
    scale = _between(SCALE, uniform[:, 0])
    row, column = (_between((scale / 2, 1 - scale / 2), uniform[:, i]) * CANVAS for i in (1, 2))  # the digit's centre
    angle = _between((-ROTATION, ROTATION), uniform[:, 3])
    contrast, offset = _between(CONTRAST, uniform[:, 4]), _between(OFFSET, uniform[:, 5])
    noise = (_uniform(f"{split} noise", count, 3, CANVAS, CANVAS).sum(dim=1) - 1.5) * 2 * NOISE  # nearly normal

    # Where each pixel of the canvas lies on the digit, which reaches from -1 to 1: turn back, shrink back.
    y = torch.arange(CANVAS, dtype=torch.float64).view(1, -1, 1) + 0.5 - row.view(-1, 1, 1)  # [N, CANVAS, 1]
    x = torch.arange(CANVAS, dtype=torch.float64).view(1, 1, -1) + 0.5 - column.view(-1, 1, 1)  # [N, 1, CANVAS]
    cos, sin, zoom = (value.view(-1, 1, 1) for value in (angle.cos(), angle.sin(), 2 / (scale * CANVAS)))
    places = torch.stack([(sin * y + cos * x) * zoom, (cos * y - sin * x) * zoom], dim=-1)  # [N, CANVAS, CANVAS, 2]
    ink = F.grid_sample(images[source].double() / 255, places, align_corners=False)[:, 0]  # 0 outside the digit

    pixels = offset.view(-1, 1, 1) + contrast.view(-1, 1, 1) * ink + noise
    return pixels.clamp(0, 1).mul(255).round().to(torch.uint8).unsqueeze(1), labels[source]


def _uniform(purpose: str, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator(SEED, f"embedded digits, {purpose}"), dtype=torch.float64)


def _between(bounds: tuple, uniform: Tensor) -> Tensor:
    low, high = bounds
    return low + (high - low) * uniform
