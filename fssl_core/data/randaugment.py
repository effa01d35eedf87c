"""RandAugment for whole batches on the device, every image with its own draw.

Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space", NeurIPS 2020, as
torchvision has it: 14 operations, the strength of each from one common magnitude, nearest neighbours, black where an
image was moved away. LW-FedSSL (Tun et al., Section 4.1) fine-tunes with it.

The operations are torchvision's own. Its ``v2.RandAugment`` draws once for a whole batch; here the images of a batch
that drew the same operation in the same direction pass it together. An augmented image is a pure function of the image
and of its row of random numbers.
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from types import ModuleType
from typing import Annotated

import torch
from torch import Tensor

from fssl_core.data.augment import change_rows
from fssl_core.errors import SettingError
from fssl_core.settings import Range, Settings, Whole

BINS = 31  # magnitudes go from 0 to 30
MOVES = 150 / 331  # largest translation, as a share of the image's side


@cache
def _torchvision() -> ModuleType:
    """Its functions of images; they take a second to import, and only those who draw augmentations need them."""
    from torchvision.transforms.v2 import functional

    return functional


def _affine(images: Tensor, *, dx: int = 0, dy: int = 0, shear_x: float = 0.0, shear_y: float = 0.0) -> Tensor:
    # Sheared about the corner, by slopes that torchvision wants as angles.
    angles = [math.degrees(math.atan(shear)) for shear in (shear_x, shear_y)]
    centre = [0, 0] if shear_x or shear_y else None
    return _torchvision().affine(images, angle=0.0, translate=[dx, dy], scale=1.0, shear=angles, center=centre)


# By name: a function of uint8 images and of ``at``, which gives the strength between those of magnitude 0 and 30. In
# the first table it may be negative.
SIGNED = {
    "shear-x": lambda x, at: _affine(x, shear_x=at(0, 0.3)),
    "shear-y": lambda x, at: _affine(x, shear_y=at(0, 0.3)),
    "translate-x": lambda x, at: _affine(x, dx=int(at(0, MOVES * x.shape[-1]))),
    "translate-y": lambda x, at: _affine(x, dy=int(at(0, MOVES * x.shape[-2]))),
    "rotate": lambda x, at: _torchvision().rotate(x, at(0, 30)),  # degrees
    "brightness": lambda x, at: _torchvision().adjust_brightness(x, 1 + at(0, 0.9)),
    "colour": lambda x, at: _torchvision().adjust_saturation(x, 1 + at(0, 0.9)),
    "contrast": lambda x, at: _torchvision().adjust_contrast(x, 1 + at(0, 0.9)),
    "sharpness": lambda x, at: _torchvision().adjust_sharpness(x, 1 + at(0, 0.9)),
}
UNSIGNED = {
    "identity": lambda x, at: x,
    "posterize": lambda x, at: _torchvision().posterize(x, 8 - round(at(0, 4))),  # bits
    "solarize": lambda x, at: _torchvision().solarize(x, 255 * at(1, 0)),
    "auto-contrast": lambda x, at: _torchvision().autocontrast(x),
    "equalize": lambda x, at: _torchvision().equalize(x),
}
OPERATIONS = SIGNED | UNSIGNED


@dataclass(frozen=True, kw_only=True)
class RandAugment(Settings):
    """Settings; the defaults are torchvision's.

    Args:
        operations: how many are drawn for an image, with replacement; 0: none.
        magnitude: of all of them, 0 to 30.
    """

    operations: Whole = 2
    magnitude: Annotated[int, Range(0, BINS - 1)] = 9

    @property
    def numbers(self) -> int:
        """Random numbers for an image."""
        return 2 * self.operations

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """All random numbers of ``count`` images: float32 ``[count, numbers]``, uniform in [0, 1), on the CPU."""
        return torch.rand(count, self.numbers, generator=generator)

    def decisions(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Which operations, and in which direction, follows from random numbers ``[B, numbers]``.

        Returns:
            int64 ``[B, operations]``, places in ``OPERATIONS``; bool ``[B, operations]``, whether the strength is
            negative, of use where an operation has a direction. Both on the CPU.
        """
        which, direction = draws.cpu().unflatten(1, (self.operations, 2)).unbind(2)
        return (which * len(OPERATIONS)).long(), direction < 0.5

    @torch.no_grad()
    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Augmented images.

        Args:
            images: uint8 ``[B, C, H, W]`` with C = 1 or 3, on any device.
            draws: random numbers ``[B, numbers]`` from :meth:`draw`.

        Returns:
            uint8, in shape and device as ``images``, which stay as they are.

        Raises:
            SettingError: ``draws`` does not have one row of ``numbers`` per image.
        """
        if draws.shape != (len(images), self.numbers):
            raise SettingError("draws", tuple(draws.shape), f"a tensor of shape {(len(images), self.numbers)}")
        images = images.clone()
        if self.operations == 0:
            return images
        which, negative = self.decisions(draws)
        signs = torch.where(negative & (which < len(SIGNED)), -1, 1)  # the signed ones come first
        for position in range(self.operations):
            for (index, operation), sign in product(enumerate(OPERATIONS.values()), (-1, 1)):
                rows = (which[:, position] == index) & (signs[:, position] == sign)
                change_rows(images, rows, partial(operation, at=partial(self._strength, sign)))
        return images

    def _strength(self, sign: int, first: float, last: float) -> float:
        return sign * torch.linspace(first, last, BINS)[self.magnitude].item()  # torchvision's, to the bit
