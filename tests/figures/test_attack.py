import numpy as np
import pandas as pd
import pytest
import torch

from fssl_core.errors import DataError
from fssl_core.figures.reconstructions import inversion_attack
from fssl_core.figures.style import METHOD_COLOURS
from tests.figures.reading import drawn, key, line_of, spreads

RUNS = pd.DataFrame(
    [
        {
            "method": method, "cut_layer": cut, "seed": seed, "mse": mse + 0.001 * seed, "psnr": 20 - cut, "ssim": 0.5,
            "untrained_mse": 0.1, "untrained_psnr": 10, "untrained_ssim": 0.0, "mean_image_mse": 0.05 + 0.01 * seed,
            "mean_image_psnr": 13, "mean_image_ssim": 0.2,         }
        for method, cut, mse in (
            ("MocoSFL", 1, 0.010),
            ("MocoSFL", 9, 0.030),
            ("MonAcoSFL", 1, 0.009),
            ("MonAcoSFL", 9, 0.040),
        )
        for seed in (-1, 0, 1)
    ]
)  # fmt: skip


def pictures(channels=1, side=16):
    """Eight originals, and reconstructions that are brighter for a deeper cut and for the second method."""
    originals = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, channels, side, side)
    made = {
        method: {cut: originals + 10 * cut + 100 * number for cut in (9, 1)}  # any order
        for number, method in enumerate(("MocoSFL", "MonAcoSFL"))
    }
    return originals, made


def draw(originals, made):
    return drawn(inversion_attack(RUNS, originals, made, subtitle="profile laptop"))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_stand_below_their_originals_shallow_cuts_first(channels):
    left, right, *_ = draw(*pictures(channels)).axes
    for number, axes in enumerate((left, right)):
        mosaic = axes.images[0].get_array()
        assert mosaic.shape == (3 * 17, 8 * 17, 3)  # a white line of one pixel between images
        middles = mosaic[8::17, 8::17, 0]
        expected = np.arange(8) + np.array([[0], [10 + 100 * number], [90 + 100 * number]])
        np.testing.assert_array_equal(middles, expected)
        assert (mosaic[16::17] == 255).all()
        assert (mosaic[:, 16::17] == 255).all()
        rows = {
            round(place): label.get_text()
            for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        }
        named = {8: "original", 25: "cut 1", 42: "cut 9"}
        assert rows == (named if number == 0 else dict.fromkeys(named, ""))
    assert [axes.get_title("left") for axes in (left, right)] == ["MocoSFL", "MonAcoSFL"]


def test_measures_are_drawn_with_their_spread_over_seeds_and_both_references():
    figure = draw(*pictures())
    mse, psnr, ssim = figure.axes[2:]
    assert [axes.get_ylabel() for axes in (mse, psnr, ssim)] == ["MSE", "PSNR (dB)", "SSIM"]
    assert mse.get_title("left") == "higher is more private"
    assert psnr.get_title("left") == "lower is more private"
    mocosfl, monacosfl = (line_of(mse, METHOD_COLOURS[name]) for name in ("MocoSFL", "MonAcoSFL"))
    np.testing.assert_allclose(mocosfl.get_ydata(), [0.010, 0.030])
    np.testing.assert_allclose(monacosfl.get_ydata(), [0.009, 0.040])
    np.testing.assert_allclose(spreads(mse)[:2], [[0.009, 0.011], [0.029, 0.031]])
    flat = {line.get_linestyle(): line.get_ydata().tolist() for line in mse.lines if len(set(line.get_ydata())) == 1}
    assert flat[":"] == pytest.approx([0.1, 0.1])
    assert flat["-."] == pytest.approx([0.05, 0.05])
    assert key(figure) == ["MocoSFL", "MonAcoSFL", "untrained decoder", "mean image"]


def test_without_images_the_measures_are_drawn_alone():
    figure = draw(None, {})
    assert [axes.get_ylabel() for axes in figure.axes] == ["MSE", "PSNR (dB)", "SSIM"]
    np.testing.assert_allclose(line_of(figure.axes[0], METHOD_COLOURS["MocoSFL"]).get_ydata(), [0.010, 0.030])


def test_reconstructions_that_cannot_stand_side_by_side_are_refused():
    originals, made = pictures()
    with pytest.raises(DataError, match=r"need the same cuts, got \[\[1, 9\], \[1\]\]"):
        draw(originals, made | {"MonAcoSFL": {1: originals}})
    with pytest.raises(DataError, match=r"the shape of the originals, got .*\[8, 1, 8, 8\]"):
        draw(originals, {"MocoSFL": {1: originals[..., :8, :8]}})
