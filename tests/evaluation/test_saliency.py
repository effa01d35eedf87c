import pytest
import torch
from torch import nn

from fssl_core.errors import DataError
from fssl_core.evaluation.saliency import left_share, saliency, side_by_side
from fssl_core.models import GlobalPool, client_module
from fssl_core.random import generator


def images(count=3, channels=3, size=8, purpose="images"):
    return torch.randint(256, (count, channels, size, size), dtype=torch.uint8, generator=generator(0, purpose))


def plain(pixels, dtype):
    return pixels.to(dtype)


def test_of_a_linear_model_it_is_the_absolute_weights():
    linear = nn.Linear(3 * 8 * 8, 5).double()
    model = nn.Sequential(nn.Flatten(), linear)
    directions = torch.randn(2, 5, generator=generator(0, "directions"))
    weight = (directions.double() @ linear.weight).detach().view(2, 3, 8, 8)
    expected = weight.abs().sum(1).mean(0).expand(3, 8, 8)
    torch.testing.assert_close(saliency(model, images(), plain, directions), expected)
    # A normalisation divides by the deviation of each colour: the gradient is of the pixels before it.
    deviation = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)[:, None, None]
    maps = saliency(model, images(), lambda pixels, dtype: (pixels.to(dtype) - 0.5) / deviation, directions)
    torch.testing.assert_close(maps, (weight / deviation).abs().sum(1).mean(0).expand(3, 8, 8))


def network():
    client = client_module("resnet10", 2, "twin", width=8, image_size=8, generator=generator(0, "model"))
    return nn.Sequential(client, GlobalPool(), nn.BatchNorm1d(8)).double()


def test_of_a_network_it_is_what_finite_differences_give():
    model, some = network(), images(2)
    directions = torch.randn(3, 8, generator=generator(0, "directions"), dtype=torch.float64)
    maps = saliency(model, some, plain, directions)
    assert maps.shape == (2, 8, 8)
    model.eval()
    step, pixels = 1e-6, some.double() / 255
    for n, row, column in [(0, 0, 0), (0, 3, 5), (1, 7, 2)]:
        slopes = torch.zeros(3, 3, dtype=torch.float64)  # [scores, colours]
        for colour in range(3):
            moved = pixels[n].repeat(2, 1, 1, 1)
            moved[0, colour, row, column] += step
            moved[1, colour, row, column] -= step
            with torch.no_grad():
                up, down = model(moved) @ directions.T
            slopes[:, colour] = (up - down) / (2 * step)
        assert maps[n, row, column].item() == pytest.approx(slopes.abs().sum(1).mean().item(), rel=1e-5)


def test_images_do_not_mix_and_the_model_stays_as_it_is():
    model, some = network().train(), images(4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    directions = torch.eye(8)
    together = saliency(model, some, plain, directions)
    torch.testing.assert_close(saliency(model, some, plain, directions, batch=1), together)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_directions_of_other_features_are_refused():
    with pytest.raises(DataError, match=r"Directions \[1, 7\] do not fit features \[3, 8\]"):
        saliency(network(), images(), plain, torch.ones(1, 7))


def test_halves_keep_their_places():
    dark, bright = torch.full((2, 1, 4, 8), 10, dtype=torch.uint8), torch.full((2, 1, 4, 8), 200, dtype=torch.uint8)
    pair = side_by_side(dark, bright)
    assert pair.shape == dark.shape
    assert (pair[..., :4] == 10).all()
    assert (pair[..., 4:] == 200).all()
    # Without the smoothing of pixels far apart, every other column would decide.
    stripes = torch.tensor([0, 255] * 4, dtype=torch.uint8).expand(2, 1, 4, 8)
    assert ((side_by_side(stripes, stripes).float() - 127.5).abs() < 40).all()


@pytest.mark.parametrize("other", [(2, 1, 8, 6), (3, 1, 8, 8)])
def test_halves_of_other_shapes_are_refused(other):
    with pytest.raises(DataError, match="one shape and even width"):
        side_by_side(images(2, 1), torch.zeros(other, dtype=torch.uint8))
    with pytest.raises(DataError, match="even width"):
        side_by_side(*[torch.zeros(1, 1, 7, 7, dtype=torch.uint8)] * 2)


def test_the_left_share_of_a_map():
    maps = torch.ones(3, 2, 4)
    maps[1, :, 2:] = 3
    maps[2] = 0
    maps[2, 0, 0] = 5
    assert left_share(maps).tolist() == [0.5, 0.25, 1]
    assert left_share(torch.zeros(1, 2, 4)).isnan().all()
