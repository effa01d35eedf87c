"""How alike two images are: MSE, PSNR, SSIM and the share explained, one number per image.

SSIM: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", IEEE Transactions on
Image Processing 13(4), 2004, Section III.C, with its window (Gaussian, 11 x 11, sigma 1.5) and constants (K1 = 0.01,
K2 = 0.03). As in the authors' program, only windows that lie wholly inside the image count, so an image needs at least
11 x 11 pixels. Colour images: the mean over channels, where that paper looks at brightness only. The code of MocoSFL
and MonAcoSFL pads images with zeros instead; :func:`padded_ssim` does so.

Everything is computed in float64: a variance is a small difference of two means, and a GPU may round the products of
float32 to ten bits.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.errors import DataError

WINDOW, SIGMA = 11, 1.5  # pixels
C1, C2 = 0.01**2, 0.03**2  # (K1 L)^2 and (K2 L)^2 with L = 1, the range of a pixel


def mse(images: Tensor, references: Tensor) -> Tensor:
    """Mean squared error of each image.

    Args:
        images, references: float ``[N, C, H, W]`` in [0, 1].

    Returns:
        float64 ``[N]`` in [0, 1]; 0 for equal images.

    Raises:
        DataError: shapes differ, or pixels are not floats in [0, 1]. The same holds for the other two measures.
    """
    images, references = _checked(images, references)
    return (images - references).square().flatten(1).mean(1)


def psnr(images: Tensor, references: Tensor) -> Tensor:
    """Peak signal-to-noise ratio ``10 log10(1 / MSE)`` of each image, in decibel; infinite for equal images.

    Args and errors as :func:`mse`; returns float64 ``[N]``.
    """
    return -10 * mse(images, references).log10()


def ssim(images: Tensor, references: Tensor) -> Tensor:
    """Structural similarity of each image, Eq. 13 averaged over windows (Eq. 17) and channels; 1 for equal images.

    Args and errors as :func:`mse`; returns float64 ``[N]`` in [-1, 1].

    Raises:
        DataError: also for images smaller than the window.
    """
    x, y = _checked(images, references)
    check_size(min(x.shape[-2:]))
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = (_blur(values) for values in (x, y, x * x, y * y, x * y))
    variance_x, variance_y, covariance = mean_xx - mean_x**2, mean_yy - mean_y**2, mean_xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variance_x + variance_y + C2)
    return (luminance * structure).flatten(1).mean(1)


def padded_ssim(images: Tensor, references: Tensor) -> Tensor:
    """:func:`ssim` with a window around every pixel, of images with a black border five pixels wide.

    The border is the same in both, so images that differ are more alike by it.
    """
    border = [WINDOW // 2] * 4
    return ssim(F.pad(images, border), F.pad(references, border))


def explained(images: Tensor, references: Tensor) -> Tensor:
    """The squared correlation of the pixels of each image with those of its reference.

    It is the share of a reference's variance that the image explains for somebody who may change its brightness and
    contrast. A negative is worth as much as the picture, where MSE and SSIM take it for something worse than nothing:
    a model that is not known may well be matched by negatives.

    Args:
        images, references: ``[N, C, H, W]`` of any type and range.

    Returns:
        float64 ``[N]`` in [0, 1]; 0 where one of the two is all of one value.
    """
    x, y = (values.double().flatten(1) for values in (images, references))
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    product = x.square().sum(1) * y.square().sum(1)
    return torch.where(product > 0, (x * y).sum(1).square() / product, 0.0).clamp(max=1)


MEASURES = {"mse": mse, "psnr": psnr, "ssim": ssim}


def quality(images: Tensor, references: Tensor) -> dict[str, float]:
    """Mean and standard error, over images, of each measure; both are float ``[N, C, H, W]`` in [0, 1].

    Beside them the mean of :func:`padded_ssim`, as ``ssim_padded``.
    """
    results = {}
    for name, measure in MEASURES.items():
        values = measure(images, references)  # [N]
        results[name] = values.mean().item()
        results[f"{name}_standard_error"] = values.std().item() / len(values) ** 0.5
    results["ssim_padded"] = padded_ssim(images, references).mean().item()
    return results


def check_size(side: int) -> None:
    """Raise :class:`DataError` for images too small for :func:`ssim`."""
    if side < WINDOW:
        raise DataError(
            f"SSIM looks at windows of {WINDOW} x {WINDOW} pixels and the images have a side of {side}: "
            f"use an image_size of at least {WINDOW}."
        )


def _blur(x: Tensor) -> Tensor:
    """Weighted mean over every window: ``[N, C, H, W]`` to ``[N, C, H - 10, W - 10]``."""
    distance = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    weights = torch.exp(-(distance**2) / (2 * SIGMA**2))
    weights /= weights.sum()
    rows = x.flatten(0, 1)[:, None]  # [N * C, 1, H, W]
    rows = F.conv2d(F.conv2d(rows, weights[None, None, :, None]), weights[None, None, None, :])
    return rows.view(*x.shape[:2], *rows.shape[2:])


def _checked(images: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
    if images.shape != references.shape or images.dim() != 4 or images.numel() == 0:
        raise DataError(
            f"Two sets of images [N, C, H, W] of one shape are compared, "
            f"got {list(images.shape)} and {list(references.shape)}."
        )
    for values in (images, references):
        if not (values.is_floating_point() and ((values >= 0) & (values <= 1)).all()):
            raise DataError(
                f"Pixels need to be floats in [0, 1], got {values.dtype} from {values.min()} to {values.max()}: "
                "divide uint8 images by 255, undo a normalisation."
            )
    return images.double(), references.double()
