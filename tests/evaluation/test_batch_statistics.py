import copy

import pytest
import torch

from fssl_core.data.datasets import ImageSet
from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.models import build_backbone


def normalise(images, dtype):
    return images.to(dtype) / 255


IMAGES = torch.randint(256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
DATA = ImageSet(IMAGES, torch.arange(40) % 4)


def backbone():
    """With statistics that no image has."""
    model = build_backbone("resnet10", width=8, norm="batch", image_size=8).double()
    for name, buffer in model.named_buffers():
        buffer.fill_(3.0) if "running" in name else None
    return model.eval()


def test_in_one_batch_evaluation_becomes_what_training_computes():
    model = backbone()
    before = copy.deepcopy(model.state_dict())
    mended = with_statistics_of(model, DATA, normalise, batch=40)
    x = normalise(IMAGES, torch.float64)
    with torch.no_grad():
        trained, evaluated = copy.deepcopy(model).train()(x), mended(x)
        assert (trained - model(x)).abs().max() > 0.1
        # Training divides by the biased variance, running statistics hold the unbiased one: 1/640 at least apart.
        torch.testing.assert_close(evaluated, trained, rtol=0.05, atol=0.05 * trained.abs().max().item())
    assert not mended.training
    for own, other in zip(model.modules(), mended.modules(), strict=True):  # for training that goes on from there
        assert getattr(own, "momentum", None) == getattr(other, "momentum", None)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("images", [40, 33])
def test_several_batches_give_the_mean_of_their_statistics_by_their_sizes(images):
    stem = backbone()[0]
    mended = with_statistics_of(stem, ImageSet(DATA.images[:images], DATA.labels[:images]), normalise, batch=10)
    convolution, norm = stem[0], stem[1]
    with torch.no_grad():
        maps = convolution(normalise(IMAGES[:images], torch.float64)).split(10)
    sizes = torch.tensor([len(part) for part in maps], dtype=torch.float64)
    flat = [part.transpose(0, 1).flatten(1) for part in maps]
    mean, var = (torch.stack([function(part, 1) for part in flat]) for function in (torch.mean, torch.var))
    torch.testing.assert_close(mended[1].running_mean, sizes @ mean / images, rtol=0, atol=1e-12)
    torch.testing.assert_close(mended[1].running_var, sizes @ var / images, rtol=0, atol=1e-12)
    assert (norm.running_mean == 3).all()


def test_one_image_that_is_left_is_no_batch_of_its_own():
    """Where maps have one pixel, batch norm has no variance of it."""
    deep = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4), torch.nn.BatchNorm1d(4)).double()
    mended = with_statistics_of(deep, ImageSet(IMAGES[:21], DATA.labels[:21]), normalise, batch=10)
    values = deep[:2](normalise(IMAGES[:21], torch.float64)).detach()
    parts = values.split(7)
    torch.testing.assert_close(mended[2].running_mean, values.mean(0), rtol=0, atol=1e-12)
    variance = torch.stack([part.var(0) for part in parts]).mean(0)
    torch.testing.assert_close(mended[2].running_var, variance, rtol=0, atol=1e-12)


def test_images_that_lie_class_by_class_are_mixed():
    """Else the variance would be that within a class: here next to nothing."""
    stem = backbone()[0]
    labels = torch.arange(40) // 10
    images = (60 * labels).to(torch.uint8)[:, None, None, None].expand(-1, 3, 8, 8).contiguous()
    found = with_statistics_of(stem, ImageSet(images, labels), normalise, batch=10)[1].running_var
    with torch.no_grad():
        maps = stem[0](normalise(images, torch.float64))
    of_all, of_a_class = maps.transpose(0, 1).flatten(1).var(1), maps[:10].transpose(0, 1).flatten(1).var(1)
    assert (found > 0.5 * of_all).all()
    assert of_a_class.mean() < 0.2 * of_all.mean()
    again = with_statistics_of(stem, ImageSet(images, labels), normalise, batch=10)[1].running_var
    assert torch.equal(found, again)
