"""MSE, PSNR and SSIM against closed cases and kornia."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kornia.metrics import ssim as kornia_ssim

from fssl_core.errors import DataError
from fssl_core.privacy.image_quality import C1, explained, mse, padded_ssim, psnr, quality, ssim
from fssl_core.random import generator

MEASURES = [mse, psnr, ssim]


def random(*shape: int, key: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=generator(0, "test", key), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3, 1, 16, 16), (2, 3, 32, 20), (2, 1, 11, 11)])
def test_ssim_is_kornias_over_whole_windows(shape):
    x = random(*shape)
    y = (0.7 * x + 0.3 * random(*shape, key=1)).clamp(0, 1)
    expected = kornia_ssim(x, y, 11, eps=0.0, padding="valid").flatten(1).mean(1)
    torch.testing.assert_close(ssim(x, y), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 1, 16, 16), (2, 3, 32, 20)])
def test_padded_ssim_is_the_one_of_the_attacks_code(shape):
    """There, a two-dimensional window is moved over every pixel with zeros around the image."""
    x = random(*shape)
    y = (0.7 * x + 0.3 * random(*shape, key=1)).clamp(0, 1)
    line = torch.exp(-((torch.arange(11, dtype=torch.float64) - 5) ** 2) / 4.5)
    window = (line[:, None] * line / line.sum() ** 2).expand(shape[1], 1, 11, 11)

    def mean(values):
        return F.conv2d(values, window, padding=5, groups=shape[1])

    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    table = (2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    torch.testing.assert_close(padded_ssim(x, y), table.mean((1, 2, 3)), rtol=1e-10, atol=1e-10)
    assert (padded_ssim(x, y) > ssim(x, y)).all()
    assert quality(x, y)["ssim_padded"] == pytest.approx(table.mean().item())


def test_ssim_of_constant_images_compares_their_brightness_only():
    x, y = torch.full((1, 1, 16, 16), 0.2), torch.full((1, 1, 16, 16), 0.5)
    expected = (2 * 0.2 * 0.5 + C1) / (0.2**2 + 0.5**2 + C1)
    assert ssim(x, y).item() == pytest.approx(expected, rel=1e-6)


def test_equal_images_and_those_a_tenth_apart():
    x = random(2, 3, 16, 16) * 0.9
    torch.testing.assert_close(ssim(x, x), torch.ones(2, dtype=torch.float64))
    assert psnr(x, x).isposinf().all()
    torch.testing.assert_close(mse(x, x + 0.1), torch.full((2,), 0.01, dtype=torch.float64))
    torch.testing.assert_close(psnr(x, x + 0.1), torch.full((2,), 20.0, dtype=torch.float64))


@pytest.mark.parametrize("measure", MEASURES)
def test_every_image_is_measured_by_itself_and_in_float64(measure):
    x, y = random(4, 3, 16, 16).float(), random(4, 3, 16, 16, key=1).float()
    together = measure(x, y)
    assert together.dtype == torch.float64
    alone = torch.cat([measure(a[None], b[None]) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    assert together.unique().numel() == 4


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 3, 16, 16), torch.zeros(2, 1, 16, 16), r"got \[2, 3, 16, 16\] and \[2, 1, 16, 16\]"),
        (torch.zeros(1, 1, 16, 16, dtype=torch.uint8), torch.zeros(1, 1, 16, 16), r"got torch.uint8 from 0 to 0"),
        (torch.zeros(1, 1, 16, 16), torch.full((1, 1, 16, 16), 7.0), r"floats in \[0, 1\], got .* to 7.0: divide"),
        (torch.full((1, 1, 16, 16), torch.nan), torch.zeros(1, 1, 16, 16), r"floats in \[0, 1\], got .* nan"),
    ],
)
def test_what_is_no_pair_of_images_is_refused(measure, x, y, message):
    with pytest.raises(DataError, match=message):
        measure(x, y)


def test_images_smaller_than_the_window_have_no_ssim():
    x = torch.zeros(1, 1, 8, 16)
    with pytest.raises(DataError, match=r"11 x 11 pixels and the images have a side of 8: use an image_size of at"):
        ssim(x, x)


def test_what_is_explained_is_what_a_line_through_the_pixels_leaves():
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 3, 3, 5, 4, generator=random, dtype=torch.float64)
    for n, share in enumerate(explained(x, y).tolist()):
        slope, offset = np.polyfit(x[n].flatten(), y[n].flatten(), 1)
        left = (slope * x[n] + offset - y[n]).square().mean()
        assert share == pytest.approx(1 - (left / y[n].var(correction=0)).item(), abs=1e-12)
    torch.testing.assert_close(explained(0.9 - 0.5 * y, y), torch.ones(3, dtype=torch.float64))
    one_value = torch.full_like(y, 0.3)  # whose mean is rounded
    assert explained(one_value, y).tolist() == pytest.approx([0, 0, 0], abs=1e-12)
