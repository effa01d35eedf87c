import pytest
import torch
from torchvision.transforms import v2

from fssl_core.data.randaugment import OPERATIONS, SIGNED, RandAugment
from fssl_core.errors import SettingError
from fssl_core.random import generator

THEIRS = {
    "identity": "Identity", "shear-x": "ShearX", "shear-y": "ShearY", "translate-x": "TranslateX",
    "translate-y": "TranslateY", "rotate": "Rotate", "brightness": "Brightness", "colour": "Color",
    "contrast": "Contrast", "sharpness": "Sharpness", "posterize": "Posterize", "solarize": "Solarize",
    "auto-contrast": "AutoContrast", "equalize": "Equalize",
}  # fmt: skip


def random_images(count=40, channels=3, size=32):
    """Noise on a slope, within 40 to 200, so that auto-contrast and equalising have something to do."""
    noise = torch.rand(count, channels, size, size, generator=generator(0, "images"))
    return (40 + 80 * noise + torch.linspace(0, 80, size)).to(torch.uint8)


def torchvision_image(image, magnitude, names, negative):
    """The slow form: one image through the steps of torchvision's transform, with its table of strengths."""
    transform = v2.RandAugment()
    for name, minus in zip(names, negative, strict=True):
        strengths, signed = transform._AUGMENTATION_SPACE[THEIRS[name]]
        strengths = strengths(31, *image.shape[1:])
        strength = 0.0 if strengths is None else float(strengths[magnitude])
        image = transform._apply_image_or_video_transform(
            image, THEIRS[name], -strength if signed and minus else strength, "nearest", transform._fill
        )
    return image


def draws_of(name, direction):
    """A row of random numbers that means this operation: the middle of its share."""
    return [(list(OPERATIONS).index(name) + 0.5) / len(OPERATIONS), direction]


@pytest.mark.parametrize("magnitude", [0, 9, 14, 30])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_equals_torchvisions(name, channels, magnitude):
    images = random_images(4, channels, 20)
    draws = torch.tensor([draws_of(name, direction) for direction in (0.1, 0.9, 0.4, 0.6)])
    ours = RandAugment(operations=1, magnitude=magnitude)(images, draws)
    theirs = torch.stack(
        [
            torchvision_image(image, magnitude, [name], [minus])
            for image, minus in zip(images, (True, False) * 2, strict=True)
        ]
    )
    assert torch.equal(ours, theirs)
    assert ours.dtype == torch.uint8
    no_strength = name in ("auto-contrast", "equalize")
    if no_strength or (magnitude and name != "identity" and (channels == 3 or name != "colour")):
        assert not torch.equal(ours, images)


def test_both_directions_are_used():
    assert list(SIGNED) == [name for name in THEIRS if v2.RandAugment._AUGMENTATION_SPACE[THEIRS[name]][1]]
    image = random_images(1)
    for name in SIGNED:
        draws = torch.tensor([draws_of(name, direction) for direction in (0.1, 0.9)])
        minus, plus = RandAugment(operations=1)(image.expand(2, -1, -1, -1), draws)
        assert not torch.equal(minus, plus), name


def test_the_whole_equals_torchvision_image_by_image():
    images, augment = random_images(), RandAugment(operations=3, magnitude=14)
    draws = augment.draw(len(images), generator(1, "views"))
    which, negative = augment.decisions(draws)
    assert len(which.unique()) == 14
    names = [[list(OPERATIONS)[index] for index in row] for row in which.tolist()]
    expected = torch.stack(
        [torchvision_image(*row) for row in zip(images, [14] * 40, names, negative.tolist(), strict=True)]
    )
    assert torch.equal(augment(images, draws), expected)


def test_operations_and_directions_are_uniform_and_independent():
    augment = RandAugment()
    which, negative = augment.decisions(augment.draw(28_000, generator(0, "draws")))
    counts = torch.stack([which[:, place].bincount(minlength=14) for place in range(2)])
    assert ((counts - 2000) ** 2 / 2000).sum(1).max() < 34.5  # chi-square, 13 degrees of freedom, p = 0.001
    assert (negative.double().mean(0) - 0.5).abs().max() < 0.01
    pairs = (which[:, 0] * 14 + which[:, 1]).bincount(minlength=196)
    assert ((pairs - 28_000 / 196) ** 2 / (28_000 / 196)).sum() < 260  # 195 degrees of freedom, p = 0.001
    assert abs(negative[which[:, 0] < 7].double().mean() - 0.5) < 0.02


def test_an_image_does_not_depend_on_its_batch_and_equal_images_differ():
    augment, images = RandAugment(operations=2, magnitude=20), random_images(30)
    draws = augment.draw(30, generator(0, "draws"))
    before, out = images.clone(), augment(images, draws)
    assert torch.equal(images, before)
    order = torch.randperm(30, generator=generator(0, "shuffle"))
    assert torch.equal(augment(images[order], draws[order]), out[order])
    assert torch.equal(augment(images[3:4], draws[3:4]), out[3:4])
    assert len(augment(images[:1].expand(30, -1, -1, -1), draws).unique(dim=0)) > 15


def test_without_operations_images_stay():
    images, augment = random_images(3), RandAugment(operations=0)
    assert torch.equal(augment(images, augment.draw(3, generator(0, "draws"))), images)


def test_bad_settings_and_wrong_draws_are_named():
    with pytest.raises(SettingError, match="magnitude=31 cannot be used: expected a number from 0 to 30"):
        RandAugment(magnitude=31)
    with pytest.raises(SettingError, match="operations=-1 cannot be used: expected at least 0"):
        RandAugment(operations=-1)
    augment = RandAugment()
    with pytest.raises(SettingError, match=r"draws=\(3, 4\) cannot be used: expected a tensor of shape \(4, 4\)"):
        augment(random_images(4), augment.draw(3, generator(0, "draws")))


@pytest.mark.gpu
def test_cuda_gives_the_same_images():
    augment, images = RandAugment(), random_images()
    draws = augment.draw(len(images), generator(0, "draws"))
    there = augment(images.cuda(), draws).cpu()
    assert (there != augment(images, draws)).float().mean() < 0.01
