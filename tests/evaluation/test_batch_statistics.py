import copy

import torch

from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.models import build_backbone


def normalise(images, dtype):
    return images.to(dtype) / 255


IMAGES = torch.randint(256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def backbone():
    """With statistics that no image has."""
    model = build_backbone("resnet10", width=8, norm="batch", image_size=8).double()
    for name, buffer in model.named_buffers():
        buffer.fill_(3.0) if "running" in name else None
    return model.eval()


def test_in_one_batch_evaluation_becomes_what_training_computes():
    model = backbone()
    before = copy.deepcopy(model.state_dict())
    mended = with_statistics_of(model, IMAGES, normalise, batch=40)
    x = normalise(IMAGES, torch.float64)
    with torch.no_grad():
        trained, evaluated = copy.deepcopy(model).train()(x), mended(x)
        assert (trained - model(x)).abs().max() > 0.1
        # Training divides by the biased variance, running statistics hold the unbiased one: 1/640 at least apart.
        torch.testing.assert_close(evaluated, trained, rtol=0.05, atol=0.05 * trained.abs().max().item())
    assert not mended.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_several_batches_give_the_mean_of_their_statistics():
    stem = backbone()[0]
    mended = with_statistics_of(stem, IMAGES, normalise, batch=10)
    convolution, norm = stem[0], stem[1]
    with torch.no_grad():
        maps = convolution(normalise(IMAGES, torch.float64)).unflatten(0, (4, 10)).transpose(1, 2).flatten(2)
    mean, var = mended[1].running_mean, mended[1].running_var
    torch.testing.assert_close(mean, maps.mean(2).mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(var, maps.var(2).mean(0), rtol=0, atol=1e-12)
    assert (norm.running_mean == 3).all()
