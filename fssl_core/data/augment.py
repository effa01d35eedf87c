"""Random views of whole batches on the device, every image with its own draw.

The operations are those of ``torchvision.transforms.v2`` on float images in [0, 1], to rounding error: antialiased
bilinear ``resized_crop``, ``adjust_brightness`` / ``contrast`` / ``saturation`` / ``hue`` in an order of each image's
own, ``rgb_to_grayscale``, ``gaussian_blur`` with reflected borders, ``solarize``. torchvision's transforms themselves
draw once for a whole batch, which makes all views of a step alike: a silent bug in self-supervised learning.

A view is a pure function of the image and of one row of random numbers, so it does not depend on which other images
share the batch, on the device, or on how clients are batched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fssl_core.errors import SettingError
from fssl_core.settings import Count, NonNegative, Range, Settings, Share, check_choice

CROP_TRIES = 10  # as in torchvision's RandomResizedCrop
LUMA = (0.2989, 0.587, 0.114)  # as in torchvision's rgb_to_grayscale


@dataclass(frozen=True)
class ViewParameters:
    """What happens to each of B images; all on the CPU. One field per decision, row i for image i."""

    top: Tensor  # crop box in pixels, int64 [B]
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor  # bool [B]
    jitter: Tensor  # bool [B]
    order: Tensor  # int64 [B, 4]: order[i, t] is the jitter operation (index into ADJUSTMENTS) at place t
    factors: Tensor  # float [B, 4]: the factor of each jitter operation
    grayscale: Tensor  # bool [B]
    blur: Tensor  # bool [B]
    sigma: Tensor  # float [B], pixels
    solarize: Tensor  # bool [B]


@dataclass(frozen=True, kw_only=True)
class Augmentation(Settings):
    """Settings of a random view; the defaults only resize.

    Args:
        size: side of the view in pixels; the engines set it to that of the images.
        crop_scale: share of the image's area that a crop covers, smallest and largest, in (0, 1].
        crop_ratio: width / height of a crop, smallest and largest.
        flip: probability of a horizontal flip.
        jitter: probability of colour jitter.
        brightness, contrast, saturation: factors are uniform in [max(0, 1 - strength), 1 + strength].
        hue: shift of the hue is uniform in [-hue, hue], as a fraction of the colour circle, at most 0.5.
        grayscale: probability of dropping the colour.
        blur: probability of a Gaussian blur.
        blur_sigma: its standard deviation in pixels, smallest and largest.
        blur_kernel: its width in pixels, odd; 6 sigma + 1 loses nothing that is seen.
        solarize: probability of inverting the values from ``solarize_threshold`` on.
        solarize_threshold: in [0, 1].

    Images of one channel skip saturation, hue and grayscale, as in torchvision.
    """

    size: Count = 32
    crop_scale: tuple[float, float] = (1.0, 1.0)
    crop_ratio: tuple[float, float] = (1.0, 1.0)
    flip: Share = 0.0
    jitter: Share = 0.0
    brightness: NonNegative = 0.0
    contrast: NonNegative = 0.0
    saturation: NonNegative = 0.0
    hue: Annotated[float, Range(0, 0.5)] = 0.0
    grayscale: Share = 0.0
    blur: Share = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    blur_kernel: int = 13
    solarize: Share = 0.0
    solarize_threshold: Share = 0.5

    # Columns of `draws`: area and ratio of each crop try, place, then one per decision below.
    numbers: ClassVar[int] = 2 * CROP_TRIES + 2 + 4 + 4 + 6

    def check(self) -> None:
        for name, high in (("crop_scale", 1.0), ("crop_ratio", float("inf")), ("blur_sigma", float("inf"))):
            pair = getattr(self, name)
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= high:
                limit = "" if high == float("inf") else f", at most {high:g}"
                raise SettingError(name, pair, f"two numbers above 0{limit}, the smaller one first")
        if self.blur_kernel < 1 or self.blur_kernel % 2 == 0:
            raise SettingError("blur_kernel", self.blur_kernel, "an odd number of pixels")
        if self.blur > 0 and self.blur_kernel // 2 >= self.size:
            raise SettingError(
                "blur_kernel", self.blur_kernel, f"less than twice the view's size of {self.size}; or larger images"
            )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """All random numbers of ``count`` images: float32 ``[count, numbers]``, uniform in [0, 1), on the CPU."""
        return torch.rand(count, self.numbers, generator=generator)

    def two_views(self, images: Tensor, draws: Tensor) -> Tensor:
        """Two independent views of every image, all in one call.

        Args:
            images: uint8 ``[clients, batch, C, H, W]``.
            draws: ``[clients, batch, 2, numbers]``, from :meth:`draw`.

        Returns:
            float in [0, 1], ``[clients, 2, batch, C, size, size]``.
        """
        clients, batch, _, numbers = draws.shape
        both = images[:, None].expand(-1, 2, -1, -1, -1, -1)  # [clients, 2, batch, C, H, W]
        views = self(both.flatten(0, 2), draws.transpose(1, 2).reshape(-1, numbers))
        return views.view(clients, 2, batch, *views.shape[1:])

    def parameters(self, draws: Tensor, height: int, width: int) -> ViewParameters:
        """Turn random numbers ``[B, numbers]`` into decisions for images of ``height`` x ``width`` pixels."""
        areas, ratios, position, order, factors, rest = draws.cpu().split([CROP_TRIES, CROP_TRIES, 2, 4, 4, 6], dim=1)
        u_flip, u_jitter, u_gray, u_blur, u_sigma, u_solarize = rest.unbind(1)
        top, left, crop_height, crop_width = self._crop_box(
            areas.double(), ratios.double(), position.double(), height, width
        )
        low = torch.tensor([max(0.0, 1 - s) for s in (self.brightness, self.contrast, self.saturation)] + [-self.hue])
        high = torch.tensor([1 + self.brightness, 1 + self.contrast, 1 + self.saturation, self.hue])
        return ViewParameters(
            top=top,
            left=left,
            height=crop_height,
            width=crop_width,
            flip=u_flip < self.flip,
            jitter=u_jitter < self.jitter,
            order=order.argsort(dim=1),
            factors=torch.lerp(low, high, factors),
            grayscale=u_gray < self.grayscale,
            blur=u_blur < self.blur,
            sigma=self.blur_sigma[0] + (self.blur_sigma[1] - self.blur_sigma[0]) * u_sigma,
            solarize=u_solarize < self.solarize,
        )

    def _crop_box(
        self, areas: Tensor, ratios: Tensor, position: Tensor, height: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """torchvision's rejection sampling with all ten tries drawn at once: the first that fits is taken."""
        area = height * width * (self.crop_scale[0] + (self.crop_scale[1] - self.crop_scale[0]) * areas)  # [B, tries]
        low, high = torch.tensor(self.crop_ratio, dtype=torch.float64).log()
        ratio = torch.exp(low + (high - low) * ratios)
        widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)  # the first of the largest: the first that fits

        # No try fits: the central crop of the nearest ratio that is allowed.
        nearest = min(max(width / height, self.crop_ratio[0]), self.crop_ratio[1])
        central_width, central_height = min(width, round(height * nearest)), min(height, round(width / nearest))
        fitting = fits.any(dim=1)
        w = torch.where(fitting, widths.gather(1, first).squeeze(1), central_width)
        h = torch.where(fitting, heights.gather(1, first).squeeze(1), central_height)
        top = torch.where(fitting, (position[:, 0] * (height - h + 1)).floor(), (height - central_height) // 2)
        left = torch.where(fitting, (position[:, 1] * (width - w + 1)).floor(), (width - central_width) // 2)
        return top.long(), left.long(), h.long(), w.long()

    @torch.no_grad()
    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """One view of every image.

        Args:
            images: uint8 ``[B, C, H, W]`` with C = 1 or 3, on any device.
            draws: random numbers ``[B, numbers]`` from :meth:`draw`; best left on the CPU, where they are turned
                into decisions (on the device they cost one synchronisation).

        Returns:
            float32 ``[B, C, size, size]`` in [0, 1], on the images' device.

        Raises:
            SettingError: ``draws`` does not have one row of ``numbers`` per image, or the images are not uint8.
        """
        if images.dtype is not torch.uint8:
            raise SettingError("images", str(images.dtype), "torch.uint8, pixels from 0 to 255")
        if draws.shape != (len(images), self.numbers):
            raise SettingError("draws", tuple(draws.shape), f"a tensor of shape {(len(images), self.numbers)}")
        p, colour = self.parameters(draws, *images.shape[-2:]), images.shape[1] == 3
        with torch.autocast(images.device.type, enabled=False):  # eight bits of a bf16 product would be seen
            views = resized_crop(images, p.top, p.left, p.height, p.width, p.flip, self.size)
            for position in range(4):
                for operation, adjust in enumerate(ADJUSTMENTS if colour else ADJUSTMENTS[:2]):
                    change_rows(views, p.jitter & (p.order[:, position] == operation), adjust, p.factors[:, operation])
            if colour:
                change_rows(views, p.grayscale, lambda x: luma(x).expand_as(x))
            change_rows(views, p.blur, lambda x, sigma: gaussian_blur(x, sigma, self.blur_kernel), p.sigma)
            change_rows(views, p.solarize, lambda x: torch.where(x >= self.solarize_threshold, 1 - x, x))
        return views


def change_rows(views: Tensor, chosen: Tensor, operation: Callable[..., Tensor], *arguments: Tensor) -> None:
    """Replace the views whose row of ``chosen`` (bool ``[B]``, on the CPU) is true by ``operation`` of them."""
    rows = chosen.nonzero().squeeze(1)  # on the CPU, so that a GPU is not waited for
    if len(rows):
        indices = rows.to(views.device, non_blocking=True)
        arguments = [argument[rows].to(views.device, non_blocking=True) for argument in arguments]
        views.index_copy_(0, indices, operation(views.index_select(0, indices), *arguments))


def resized_crop(
    images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, flip: Tensor, size: int
) -> Tensor:
    """Cut a box out of each image and resize it to ``size`` x ``size``, bilinear with antialiasing, flipped if asked.

    Resizing is linear and separable, so it is one small matrix per image and axis; a flip reverses one of them.

    Args:
        images: uint8 ``[B, C, H, W]``.
        top, left, height, width: the boxes in pixels, int ``[B]``.
        flip: bool ``[B]``, whether the result is mirrored left to right.
        size: side of the result.

    Returns:
        float32 ``[B, C, size, size]`` in [0, 1].
    """
    batch, channels, rows, columns = images.shape
    device = images.device
    pixels = images.float().div_(255).view(batch, channels * rows, columns)
    across = _resize_matrix(left.to(device), width.to(device), columns, size, flip.to(device))  # [B, size, W]
    down = _resize_matrix(top.to(device), height.to(device), rows, size)  # [B, size, H]
    pixels = pixels.bmm(across.transpose(1, 2)).view(batch, channels, rows, size)
    return down.unsqueeze(1).matmul(pixels)  # [B, C, size, size]


def _resize_matrix(start: Tensor, length: Tensor, extent: int, size: int, flip: Tensor | None = None) -> Tensor:
    """Weights ``[B, size, extent]`` of the pixels of [start, start + length) in ``size`` resized ones."""
    pixel = torch.arange(extent, device=start.device)  # [extent]
    target = torch.arange(size, device=start.device).expand(len(start), size)  # [B, size]
    if flip is not None:
        target = torch.where(flip.unsqueeze(1), size - 1 - target, target)
    start, scale = start.unsqueeze(1), length.float().unsqueeze(1) / size  # [B, 1]
    centre = start + (target + 0.5) * scale  # [B, size]
    distance = (pixel + 0.5 - centre.unsqueeze(2)).abs()  # [B, size, extent]
    weight = (1 - distance / scale.clamp(min=1).unsqueeze(2)).clamp_(min=0)  # a triangle, wider when shrinking
    inside = (pixel >= start) & (pixel < start + length.unsqueeze(1))  # [B, extent]
    weight.mul_(inside.unsqueeze(1))
    return weight.div_(weight.sum(dim=2, keepdim=True))


def luma(x: Tensor) -> Tensor:
    """Luma ``[B, 1, H, W]`` of RGB images ``[B, 3, H, W]``; the image itself if it has one channel."""
    if x.shape[1] == 1:
        return x
    red, green, blue = LUMA
    return (x[:, :1] * red).add_(x[:, 1:2], alpha=green).add_(x[:, 2:], alpha=blue)


def adjust_brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply by ``factor`` ``[B]`` and clamp to [0, 1]."""
    return (x * factor.view(-1, 1, 1, 1)).clamp_(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean luma of the image: ``mean + factor * (x - mean)``, clamped to [0, 1]."""
    mean = luma(x.mean(dim=(2, 3), keepdim=True))  # luma is linear: the luma of the mean is the mean luma
    return torch.lerp(mean, x, factor.view(-1, 1, 1, 1)).clamp_(0, 1)


def adjust_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the luma of each pixel: ``luma + factor * (x - luma)``, clamped to [0, 1]."""
    return torch.lerp(luma(x), x, factor.view(-1, 1, 1, 1)).clamp_(0, 1)


def adjust_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the colour circle of HSV by ``shift`` ``[B]`` (1 = once round), keeping saturation and value.

    HSV's hue is piecewise linear in RGB and back, so saturation and value need not be computed: with the smallest
    and largest channel, each new channel is ``smallest + (largest - smallest) * w(hue)`` for a trapezoid w.
    """
    red, green, blue = x.unbind(1)  # [B, H, W]
    smallest, largest = x.aminmax(dim=1)
    chroma = largest - smallest
    hue = torch.where(
        red == largest, green - blue, torch.where(green == largest, blue - red + 2 * chroma, red - green + 4 * chroma)
    )
    hue.div_(chroma.clamp(min=1e-12)).add_(6 * shift.view(-1, 1, 1))  # in sixths of the circle
    hue.sub_(hue.div(6).floor_(), alpha=6)  # in [0, 6]
    trapezoids = ((hue - 3).abs_().sub_(1), 2 - (hue - 2).abs_(), 2 - (hue - 4).abs_())
    return torch.stack([smallest.addcmul(chroma, weight.clamp_(0, 1)) for weight in trapezoids], dim=1)


ADJUSTMENTS = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)  # the last two need colour


def gaussian_blur(x: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Blur each image ``[B, C, S, S]`` with its own ``sigma`` ``[B]`` in pixels, borders reflected.

    Written as one matrix per image, applied to rows and columns: the cost does not depend on the kernel's width.
    """
    size, reach = x.shape[-1], kernel // 2
    offset = torch.arange(-reach, reach + 1, device=x.device)  # [K]
    weight = torch.softmax(-(offset**2) / (2 * sigma.unsqueeze(1) ** 2), dim=1)  # [B, K]
    pixel = (torch.arange(size, device=x.device) + offset.unsqueeze(1)).abs()  # [K, S], reflected at 0
    pixel = size - 1 - (size - 1 - pixel).abs()  # and at the far end
    taps = F.one_hot(pixel, size).to(x.dtype)  # [K, S, S]: which pixel tap k of output pixel s reads
    matrix = weight.matmul(taps.flatten(1)).view(-1, 1, size, size)
    return matrix.matmul(x).matmul(matrix.transpose(2, 3))


_MOCO_V2 = Augmentation(
    crop_scale=(0.08, 1.0), crop_ratio=(3 / 4, 4 / 3), flip=0.5,
    jitter=0.8, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grayscale=0.2, blur=0.5,
)  # fmt: skip
_BYOL = _MOCO_V2.changed(saturation=0.2, blur=1.0)
_BYOL_SECOND = _BYOL.changed(blur=0.1, solarize=0.2)
AUGMENTATIONS = {
    # The MoCo-v2 list with torchvision's default crop, as in the code of MocoSFL and MonAcoSFL (MoCo-v2's own crop
    # covers 0.2 to 1 of the area).
    "mocov2": _MOCO_V2,
    # The same with MoCo-v2's own crop: L-DAWA's code, which follows Tamkin et al., "Viewmaker networks", ICLR 2021.
    "viewmaker": _MOCO_V2.changed(crop_scale=(0.2, 1.0)),
    # Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020, appendix A,
    # strength 1. MFCL's choice for Tiny ImageNet (Table 13).
    "simclr": _MOCO_V2.changed(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2),
    # For CIFAR-10 (B.9) they halve the four strengths and drop the blur; so does MFCL for the CIFAR sets (Table 13).
    "simclr-cifar": _MOCO_V2.changed(blur=0.0),
    # Grill et al., "Bootstrap Your Own Latent", NeurIPS 2020, table 6: the first view's distribution T and the
    # second's T'.
    "byol": _BYOL,
    "byol-second": _BYOL_SECOND,
    # Chen et al., "An Empirical Study of Training Self-Supervised Vision Transformers", ICCV 2021: BYOL's pair with the
    # crops that the commands of MoCo-v3's code have for ResNet-50. Those for vision transformers keep 0.08 to 1.
    "mocov3": _BYOL.changed(crop_scale=(0.2, 1.0)),
    "mocov3-second": _BYOL_SECOND.changed(crop_scale=(0.2, 1.0)),
    # Ours, for the embedded sets: no flip, because a mirrored digit is another sign.
    "digits": Augmentation(
        size=16, crop_scale=(0.4, 1.0), crop_ratio=(3 / 4, 4 / 3),
        jitter=0.8, brightness=0.4, contrast=0.4, blur=0.2, blur_sigma=(0.1, 1.0), blur_kernel=7,
    ),
    "none": Augmentation(),
}  # fmt: skip
OF_THE_KIT = dict(AUGMENTATIONS)  # any other preset is a user's own, under whatever name


def augmentation(preset: str, size: int) -> Augmentation:
    """The preset of that name for views of ``size`` x ``size`` pixels."""
    check_choice("augmentation", preset, AUGMENTATIONS)
    return AUGMENTATIONS[preset].changed(size=size)


def second_view(preset: str) -> str:
    """The preset of the second view: that of the first, or its ``-second`` where a method has two distributions."""
    return f"{preset}-second" if f"{preset}-second" in AUGMENTATIONS else preset
