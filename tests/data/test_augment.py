import kornia
import pytest
import torch
from torchvision.transforms.v2 import functional as TF

from fssl_core.data.augment import (
    ADJUSTMENTS,
    AUGMENTATIONS,
    Augmentation,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augmentation,
    gaussian_blur,
    luma,
    resized_crop,
)
from fssl_core.errors import SettingError
from fssl_core.random import generator

ORACLES = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)


def random_images(count=24, channels=3, size=32, seed=0):
    return torch.randint(0, 256, (count, channels, size, size), generator=generator(seed, "images")).to(torch.uint8)


def torchvision_view(image, aug, p, i):
    """The slow form: one image through torchvision's functional operations with the parameters of row i."""
    box = (int(p.top[i]), int(p.left[i]), int(p.height[i]), int(p.width[i]))
    x = TF.resized_crop(image / 255, *box, [aug.size, aug.size], antialias=True)
    if p.jitter[i]:
        for operation in p.order[i].tolist():
            x = ORACLES[operation](x, p.factors[i, operation].item())
    if p.grayscale[i]:
        x = TF.rgb_to_grayscale(x, num_output_channels=len(x))
    if p.blur[i]:
        x = TF.gaussian_blur(x, [aug.blur_kernel] * 2, [p.sigma[i].item()] * 2)
    if p.solarize[i]:
        x = TF.solarize(x, aug.solarize_threshold)
    return TF.horizontal_flip(x) if p.flip[i] else x


EVERYTHING = AUGMENTATIONS["simclr"].changed(jitter=0.5, grayscale=0.3, solarize=0.5)


@pytest.mark.parametrize("preset", [*AUGMENTATIONS, "everything"])
@pytest.mark.parametrize(("channels", "image_size", "size"), [(3, 32, 32), (1, 16, 16), (3, 48, 20), (3, 20, 48)])
def test_whole_view_equals_torchvision_image_by_image(preset, channels, image_size, size):
    aug = EVERYTHING.changed(size=size) if preset == "everything" else augmentation(preset, size)
    images = random_images(channels=channels, size=image_size)
    draws = aug.draw(len(images), generator(1, "views"))
    p = aug.parameters(draws, image_size, image_size)
    if preset == "everything":  # both answers to every question are compared
        assert all(0 < d.sum() < len(images) for d in (p.flip, p.jitter, p.grayscale, p.blur, p.solarize))
    expected = torch.stack([torchvision_view(image, aug, p, i) for i, image in enumerate(images)])
    views = aug(images, draws)
    assert views.dtype == torch.float32
    assert views.min() >= 0
    assert views.max() <= 1 + 1e-6
    # Solarising jumps at its threshold, where rounding may fall on either side.
    different = (views - expected).abs() > 1e-5
    assert different.float().mean() <= (1e-4 if aug.solarize else 0)


@pytest.mark.parametrize("flip", [False, True])
def test_crop_equals_torchvision(flip):
    images = random_images(3, size=20)
    boxes = torch.tensor([[0, 0, 20, 20], [3, 5, 1, 2], [4, 0, 15, 7]])
    views = resized_crop(images, *boxes.T, torch.full((3,), flip), 9)
    expected = torch.stack(
        [TF.resized_crop(x / 255, *box, [9, 9]) for x, box in zip(images, boxes.tolist(), strict=True)]
    )
    torch.testing.assert_close(views, expected.flip(-1) if flip else expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("operation", range(4))
def test_jitter_equals_torchvision(operation):
    images = random_images(9) / 255
    images[0] = 0.25  # no colour
    images[1] = 0
    images[2, 0] = images[2, 1]  # two largest or two smallest channels
    factors = torch.tensor([0.4, 0, 0.7, 0, 0.5, 1, 1.3, 1.8, 2]) if operation < 3 else torch.linspace(-0.5, 0.5, 9)
    expected = torch.stack([ORACLES[operation](x, f.item()) for x, f in zip(images, factors, strict=True)])
    torch.testing.assert_close(ADJUSTMENTS[operation](images, factors), expected, rtol=0, atol=2e-6)


def test_one_channel_contrast_equals_torchvision():
    images, factors = random_images(3, channels=1) / 255, torch.tensor([0.3, 1.0, 1.7])
    expected = torch.stack([TF.adjust_contrast(x, f.item()) for x, f in zip(images, factors, strict=True)])
    torch.testing.assert_close(adjust_contrast(images, factors), expected, rtol=0, atol=1e-6)


def test_jitter_operations_do_not_change_their_input():
    images, factors = random_images(4) / 255, torch.full((4,), 0.3)
    before = images.clone()
    for adjust in (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue):
        adjust(images, factors)
    gaussian_blur(images, factors, 5)
    assert torch.equal(images, before)


def test_luma_equals_torchvision():
    images = random_images(4) / 255
    torch.testing.assert_close(luma(images), TF.rgb_to_grayscale(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kernel", "size"), [(1, 8), (3, 8), (13, 8), (23, 32)])
def test_blur_equals_torchvision_and_kornia(kernel, size):
    images, sigma = random_images(4, size=size) / 255, torch.tensor([0.1, 0.5, 1.0, 2.0])
    blurred = gaussian_blur(images, sigma, kernel)
    expected = torch.stack(
        [TF.gaussian_blur(x, [kernel] * 2, [s.item()] * 2) for x, s in zip(images, sigma, strict=True)]
    )
    torch.testing.assert_close(blurred, expected, rtol=0, atol=5e-6)
    other = kornia.filters.gaussian_blur2d(images, (kernel, kernel), sigma[:, None].expand(-1, 2))
    torch.testing.assert_close(blurred, other, rtol=0, atol=1e-5)


def test_hue_and_brightness_equal_kornia():
    images, shift = random_images(6) / 255, torch.linspace(-0.45, 0.45, 6)
    other = kornia.enhance.adjust_hue(images, shift * 2 * torch.pi)  # in radians there
    torch.testing.assert_close(adjust_hue(images, shift), other, rtol=0, atol=1e-4)
    factors = torch.linspace(0.2, 1.8, 6)
    other = kornia.enhance.adjust_brightness_accumulative(images, factors)
    torch.testing.assert_close(adjust_brightness(images, factors), other, rtol=0, atol=1e-6)


def test_a_view_does_not_depend_on_its_batch():
    aug, images = augmentation("byol-second", 32), random_images(20)
    draws = aug.draw(20, generator(0, "draws"))
    views = aug(images, draws)
    shuffled = torch.randperm(20, generator=generator(0, "shuffle"))
    torch.testing.assert_close(aug(images[shuffled], draws[shuffled]), views[shuffled], rtol=0, atol=1e-6)
    torch.testing.assert_close(aug(images[:1], draws[:1]), views[:1], rtol=0, atol=1e-6)


def test_equal_images_in_a_batch_get_different_views():
    aug = augmentation("mocov2", 32)
    views = aug(random_images(1).expand(16, -1, -1, -1), aug.draw(16, generator(0, "draws")))
    distances = torch.cdist(views.flatten(1), views.flatten(1))
    assert (distances + torch.eye(16) * 10 > 0.5).all()


def test_the_same_draws_give_the_same_views_and_the_images_are_left_alone():
    aug, images = augmentation("simclr", 32), random_images()
    before, draws = images.clone(), aug.draw(len(images), generator(0, "draws"))
    assert torch.equal(aug(images, draws), aug(images, draws))
    assert torch.equal(images, before)
    assert torch.equal(draws, aug.draw(len(images), generator(0, "draws")))
    assert not torch.equal(draws, aug.draw(len(images), generator(1, "draws")))


def test_bf16_autocast_does_not_coarsen_views():
    aug, images = augmentation("mocov2", 32), random_images()
    draws = aug.draw(len(images), generator(0, "draws"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        views = aug(images, draws)
    assert torch.equal(views, aug(images, draws))


def test_none_only_scales_the_values():
    images = random_images()
    aug = augmentation("none", 32)
    torch.testing.assert_close(aug(images, aug.draw(len(images), generator(0, ""))), images / 255, rtol=0, atol=1e-7)


def test_decisions_have_the_stated_distributions():
    aug = augmentation("mocov2", 32).changed(solarize=0.3, brightness=0.3, contrast=1.5, saturation=0.0)
    count = 20_000
    p = aug.parameters(aug.draw(count, generator(0, "many")), 64, 64)
    for name in ("flip", "jitter", "grayscale", "blur", "solarize"):
        assert abs(getattr(p, name).float().mean() - getattr(aug, name)) < 0.015, name
    low, high = torch.tensor([0.7, 0, 1, -0.1]), torch.tensor([1.3, 2.5, 1, 0.1])
    assert ((p.factors >= low - 1e-6) & (p.factors <= high + 1e-6)).all()
    torch.testing.assert_close(p.factors.mean(0), (low + high) / 2, rtol=0, atol=0.02)
    torch.testing.assert_close(p.factors.std(0), (high - low) / 12**0.5, rtol=0, atol=0.02)
    assert p.sigma.min() >= 0.1
    assert p.sigma.max() <= 2
    assert abs(p.sigma.mean() - 1.05) < 0.02


def test_all_24_orders_of_jitter_are_equally_frequent_and_independent_of_the_factors():
    aug = augmentation("mocov2", 32)
    count = 24_000
    p = aug.parameters(aug.draw(count, generator(0, "orders")), 32, 32)
    frequency = (p.order * torch.tensor([64, 16, 4, 1])).sum(1).bincount()
    frequency = frequency[frequency > 0]
    assert len(frequency) == 24
    assert ((frequency - 1000) ** 2 / 1000).sum() < 49.7  # chi-square, 23 degrees of freedom, p = 0.001
    first = p.order[:, 0] == 0
    assert abs(p.factors[first, 0].mean() - p.factors[~first, 0].mean()) < 0.01


def test_what_is_decided_of_an_image_is_independent_of_all_else_that_is():
    """Of each its distribution could be right, and two of them one random number."""
    aug = augmentation("simclr", 32).changed(solarize=0.3)
    count = 20_000
    p = aug.parameters(aug.draw(count, generator(0, "independent")), 64, 64)
    decided = [
        p.height * p.width,
        p.height.log() - p.width.log(),
        (p.top + 0.5) / (65 - p.height),
        (p.left + 0.5) / (65 - p.width),
        *(p.flip, p.jitter, p.order[:, 0], *p.factors.T, p.grayscale, p.blur, p.sigma, p.solarize),
    ]
    correlations = torch.corrcoef(torch.stack([values.double() for values in decided]))
    assert (correlations - torch.eye(len(decided))).abs().max() < 4.5 / count**0.5


def test_crops_are_those_of_torchvision_in_distribution():
    """Where no try is rejected the area is uniform; else compare with torchvision's own sampler."""
    from torchvision.transforms import v2

    aug = Augmentation(size=32, crop_scale=(0.08, 1.0), crop_ratio=(3 / 4, 4 / 3))
    p = aug.parameters(aug.draw(20_000, generator(0, "crops")), 48, 64)
    assert (p.top >= 0).all()
    assert (p.left >= 0).all()
    assert (p.top + p.height <= 48).all()
    assert (p.left + p.width <= 64).all()
    area = p.height * p.width / (48 * 64)
    assert area.min() > 0.07  # rounding to pixels
    ratio = p.width / p.height
    assert ratio.min() > 0.65
    assert ratio.max() < 1.5

    sampler = v2.RandomResizedCrop(32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        boxes = [sampler.make_params([torch.empty(3, 48, 64)]) for _ in range(4000)]
    for name in ("top", "left", "height", "width"):
        theirs = torch.tensor([box[name] for box in boxes]).float()
        ours = getattr(p, name).float()
        # Largest difference of the two empirical distribution functions (Kolmogorov-Smirnov, p = 0.001).
        values = torch.arange(65).float()
        gap = (ours[:, None] <= values).float().mean(0) - (theirs[:, None] <= values).float().mean(0)
        assert gap.abs().max() < 1.95 * (1 / len(ours) + 1 / len(theirs)) ** 0.5, name


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(40, 10, (13, 0, 13, 10)), (10, 40, (0, 13, 10, 13)), (30, 30, (0, 0, 30, 30))],
)
def test_without_a_fitting_try_the_central_crop_is_taken(height, width, box):
    """Every try wants the whole area: it fits a square image only at ratio 1, an oblong one never."""
    aug = Augmentation(crop_scale=(1.0, 1.0), crop_ratio=(3 / 4, 4 / 3))
    draws = torch.zeros(1, aug.numbers)  # ratio 3/4 in every try
    p = aug.parameters(draws, height, width)
    assert (int(p.top), int(p.left), int(p.height), int(p.width)) == box


def test_first_fitting_try_is_taken():
    aug = Augmentation(crop_scale=(0.25, 1.0), crop_ratio=(3 / 4, 4 / 3))
    draws = torch.zeros(1, aug.numbers)
    draws[0, :3] = torch.tensor([0.999, 0.999, 0.0])  # two tries too large at ratio 3/4, the third a quarter
    draws[0, 20:22] = 0.999  # bottom right
    p = aug.parameters(draws, 32, 32)
    assert (int(p.height), int(p.width)) == (round((0.25 * 1024 / 0.75) ** 0.5), round((0.25 * 1024 * 0.75) ** 0.5))
    assert int(p.top + p.height) == 32
    assert int(p.left + p.width) == 32


def test_presets_hold_what_their_sources_say():
    moco = AUGMENTATIONS["mocov2"]
    assert (moco.brightness, moco.contrast, moco.saturation, moco.hue) == (0.4, 0.4, 0.4, 0.1)
    assert (moco.jitter, moco.grayscale, moco.blur, moco.flip) == (0.8, 0.2, 0.5, 0.5)
    assert (moco.crop_scale, moco.blur_sigma) == ((0.08, 1.0), (0.1, 2.0))
    assert AUGMENTATIONS["digits"].flip == 0
    assert augmentation("simclr", 64) == AUGMENTATIONS["simclr"].changed(size=64)
    byol = {"saturation": 0.2, "blur": 1.0}
    second = byol | {"blur": 0.1, "solarize": 0.2}
    for name, apart in {  # from MoCo-v2's: strengths of SimCLR's appendix A, and of BYOL's table 6
        "viewmaker": {"crop_scale": (0.2, 1.0)},
        "simclr": {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2},
        "simclr-cifar": {"blur": 0.0},
        "byol": byol,
        "byol-second": second,
        "mocov3": byol | {"crop_scale": (0.2, 1.0)},
        "mocov3-second": second | {"crop_scale": (0.2, 1.0)},
    }.items():
        assert AUGMENTATIONS[name] == moco.changed(**apart), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flip": 1.5}, "flip=1.5 cannot be used: expected a number from 0 to 1"),
        ({"hue": 0.6}, "hue=0.6 cannot be used: expected a number from 0 to 0.5"),
        ({"contrast": -1.0}, "contrast=-1.0 cannot be used: expected at least 0"),
        ({"size": 0}, "size=0 cannot be used: expected at least 1"),
        ({"crop_scale": (0.5, 1.5)}, "crop_scale=.*two numbers above 0, at most 1, the smaller one first"),
        ({"crop_ratio": (2.0, 1.0)}, "crop_ratio=.*two numbers above 0, the smaller one first"),
        ({"blur_sigma": (0.0, 1.0)}, "blur_sigma="),
        ({"blur_kernel": 4}, "blur_kernel=4 cannot be used: expected an odd number"),
        ({"blur": 0.5, "size": 6}, "blur_kernel=13 cannot be used: expected less than twice the view's size of 6"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        Augmentation(**changes)


def test_unknown_preset_and_wrong_draws_are_named():
    with pytest.raises(
        SettingError, match="augmentation='moco' cannot be used: expected one of mocov2, viewmaker, simclr"
    ):
        augmentation("moco", 32)
    aug = Augmentation()
    with pytest.raises(SettingError, match=r"draws=\(3, 36\) cannot be used: expected a tensor of shape \(4, 36\)"):
        aug(random_images(4), aug.draw(3, generator(0, "draws")))


@pytest.mark.gpu
@pytest.mark.parametrize("on_device", [False, True])
def test_cuda_gives_the_same_views(on_device):
    aug, images = augmentation("mocov2", 32), random_images()
    draws = aug.draw(len(images), generator(0, "draws"))
    views = aug(images.cuda(), draws.cuda() if on_device else draws)
    torch.testing.assert_close(views.cpu(), aug(images, draws), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_images_that_are_no_bytes_are_refused(dtype):
    augment = Augmentation(size=8)
    images = torch.ones(2, 3, 8, 8, dtype=dtype)
    with pytest.raises(SettingError, match=r"images='torch\..*uint8"):
        augment(images, augment.draw(2, torch.Generator()))
