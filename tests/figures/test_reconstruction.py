import numpy as np
import pandas as pd
import pytest
import torch

from fssl_core.errors import DataError
from fssl_core.figures.reconstructions import (
    ATTACKS,
    PARTS,
    attacks_by_depth,
    reconstruction_cases,
    reconstructions_by_arm,
)
from tests.figures.reading import drawn, key

NAMES = ["C1D0", "C1D1", "C0D0", "C0D1", "C0D0 fitted", "C0D1 fitted"]
CASES = pd.DataFrame(
    [
        {
            "attack": attack, "part": part, "mse": 0.01 * place + 0.002 * seed, "psnr": 30.0 - place, "ssim": 0.5,
            "explained": 1 - 0.1 * place, "grey_mse": 0.07,
        }
        for place, attack in enumerate(NAMES)
        for part in PARTS
        for seed in (-1, 0, 1)
    ]
)  # fmt: skip


def panel(value: int, rows: int = 3, images: int = 4) -> torch.Tensor:
    return torch.full((rows, images, 1, 16, 16), value, dtype=torch.uint8)


def draw_cases(pictures, results=CASES):
    return drawn(reconstruction_cases(results, pictures, subtitle="profile laptop", title="Table 8"))


def test_without_pictures_the_measures_are_drawn_alone():
    figure = draw_cases({})
    assert [axes.get_xlabel() for axes in figure.axes] == ["MSE", "PSNR (dB)", "SSIM", "explained share"]
    assert not any(axes.images for axes in figure.axes)


def test_each_attack_has_a_panel_and_a_row_of_markers():
    pictures = {name: panel(10 * number) for number, name in enumerate(["to be found", *NAMES])}
    figure = draw_cases(pictures)
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in panels] == list(pictures)
    for number, axes in enumerate(panels):
        pixels = axes.images[0].get_array()
        assert pixels.shape == (3 * 17, 4 * 17, 3)
        assert (pixels[8::17, 8::17] == 10 * number).all()
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in panels]
    assert [names == ["view 1", "view 2", "image"] for names in labels] == [True, *4 * [False], True, False]
    measured = [axes for axes in figure.axes if axes.get_xlabel()]
    assert [label.get_text() for label in measured[0].get_yticklabels()] == NAMES
    means = [line for line in measured[0].lines if line.get_marker() in "os" and len(line.get_xdata()) == 1]
    assert sorted(line.get_xdata()[0] for line in means) == pytest.approx(np.repeat(0.01 * np.arange(6), 2))
    grey = next(line for line in measured[0].lines if line.get_linestyle() == ":")
    assert grey.get_xdata() == pytest.approx([0.07, 0.07])


def test_every_dot_is_a_run():
    measured = [axes for axes in draw_cases({"to be found": panel(0)}).axes if axes.get_xlabel()]
    dots = np.concatenate([line.get_xdata() for line in measured[0].lines if line.get_marker() == "."])
    assert sorted(dots) == pytest.approx(sorted(CASES["mse"]))


def test_panels_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"Panels of 3 rows need images \[3, images, C, H, W\], all alike"):
        draw_cases({"to be found": panel(0), "C1D0": panel(1, images=5)})
    with pytest.raises(DataError, match="Panels of 3 rows"):
        draw_cases({"to be found": panel(0, rows=2)})


DEPTHS = pd.DataFrame(
    [
        {
            "system": system, "attack": attack, "layers": layers, "seed": seed, "mse": 0.01 * layers, "psnr": 20.0,
            "ssim": 0.5, "explained": 0.6, "mean_image_mse": 0.04, "mean_image_psnr": 14.0, "mean_image_ssim": 0.1,
            "mean_image_explained": 0.2,
        }
        for system, attack in (("MFCL", "decoder"), ("MFCL", "search, model unknown"), ("MonAcoSFL", "search"))
        for layers in ((1, 2, 5) if system == "MFCL" else (1, 9))
        for seed in (0, 1)
    ]
)  # fmt: skip


def found(size: int = 16) -> dict:
    return {
        (system, attack): {
            layers: torch.full((4, 1, size, size), 10 * layers, dtype=torch.uint8) for layers in rows["layers"].unique()
        }
        for (system, attack), rows in DEPTHS.groupby(["system", "attack"])
    }


def test_a_panel_has_the_originals_and_a_row_for_each_number_of_layers():
    figure = drawn(attacks_by_depth(DEPTHS, panel(0)[0], found(), subtitle="profile laptop", title="Two attacks"))
    panels = [axes for axes in figure.axes if axes.images]
    titles = ["MFCL:\ndecoder", "MFCL:\nsearch, model unknown", "MonAcoSFL:\nsearch"]
    assert [axes.get_title(loc="left") for axes in panels] == titles
    assert [axes.images[0].get_array()[8::17, 8, 0].tolist() for axes in panels] == [
        [0, 10, 20, 50],
        [0, 10, 20, 50],
        [0, 10, 90],
    ]
    named = ["original", "cut 1", "cut 2", "cut 5"]
    assert [text.get_text() for text in panels[0].get_yticklabels()] == named
    mse, *_ = (axes for axes in figure.axes if axes.get_xlabel())
    names = ["MFCL: decoder", "MFCL: search, model unknown", "MonAcoSFL: search"]
    assert key(figure) == [*names, "mean image"]
    lines = dict(zip(names, (line for line in mse.lines if line.get_marker() not in ("None", "|", "_")), strict=True))
    assert lines["MonAcoSFL: search"].get_ydata() == pytest.approx([0.01, 0.09])
    assert {line.get_marker() for line in lines.values()} == {marker for marker, _ in ATTACKS.values()}
    assert any(line.get_linestyle() == "-." and line.get_ydata()[0] == pytest.approx(0.04) for line in mse.lines)


def test_reconstructions_of_another_size_are_refused():
    with pytest.raises(DataError, match=r"need the shape of the originals, got \[\[4, 1, 8, 8\], \[4, 1, 16, 16\]\]"):
        attacks_by_depth(DEPTHS, panel(0)[0], found(8), subtitle="", title="")


def test_reconstructions_stand_under_their_originals():
    originals = torch.arange(3, dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 16, 16).contiguous()
    figure = reconstructions_by_arm(originals, {"one arm": originals + 10}, subtitle="profile laptop")
    (axes,) = figure.axes
    shown = axes.images[0].get_array()
    assert shown.shape == (2 * 17, 3 * 17, 3)
    assert shown[[0, 17]][:, [0, 17, 34], 0].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["original", "one arm"]


def test_images_of_another_shape_are_refused():
    originals = torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    with pytest.raises(DataError, match=r"the shape of the first, got \[\[2, 1, 16, 16\], \[1, 1, 16, 16\]\]"):
        reconstructions_by_arm(originals, {"an arm": originals[:1]}, subtitle="")
