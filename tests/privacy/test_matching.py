import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.errors import DataError, NonFiniteLossError
from fssl_core.privacy.image_quality import psnr
from fssl_core.privacy.matching import GradientDistance, match, representation_error, total_variation


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal() -> nn.Module:
    """2 x 2 pixels become four channels, turned in space: nothing is lost."""
    turn, _ = torch.linalg.qr(random(4, 4, seed=9) - 0.5)
    conv = nn.Conv2d(1, 4, 2, stride=2, bias=False).double().requires_grad_(False)
    conv.weight.copy_(turn.view(4, 1, 2, 2))
    return conv


def by_views(model):
    return lambda images: model(images.flatten(0, 1)).unflatten(0, images.shape[:2])


IMAGES = random(2, 3, 1, 8, 8)  # two views of three images
SEARCH = {"iterations": 300, "learning_rate": 0.1}


def search(model, images=IMAGES, start=None, **values):
    start = random(*images.shape, seed=1) if start is None else start
    return match(by_views(model), by_views(model)(images), start, **SEARCH | values)


# ---------------------------------------------------------------- terms


def test_terms_are_those_of_slow_loops():
    variation = total_variation(IMAGES)
    for view in range(2):
        for n in range(3):
            image = IMAGES[view, n, 0]
            down = [abs(image[i + 1, j] - image[i, j]) for i in range(7) for j in range(8)]
            across = [abs(image[i, j + 1] - image[i, j]) for i in range(8) for j in range(7)]
            assert variation[view, n].item() == pytest.approx(sum(down).item() / 56 + sum(across).item() / 56)
    found, sent = random(2, 3, 4, 2, 2, seed=2), random(2, 3, 4, 2, 2, seed=3)
    for n, error in enumerate(representation_error(found, sent).tolist()):
        assert error == pytest.approx(((found[:, n] - sent[:, n]).norm() / sent[:, n].norm()).item() ** 2)


def test_gradient_distance_is_that_of_a_gradient_by_hand():
    """Of |Wx - x|^2, summed, the gradient is 2 (Wx - x) x^T."""
    weight = nn.Parameter(random(6, 6, seed=4))
    wanted, other = random(1, 5, 6, seed=5), random(1, 5, 6, seed=6)
    distance = GradientDistance(lambda x: (x @ weight.T - x).square().sum(), [weight], wanted)

    def by_hand(x):
        return sum(2 * torch.outer(weight.detach() @ row - row, row) for row in x[0]).flatten()

    a, b = by_hand(wanted), by_hand(other)
    torch.testing.assert_close(distance.observed, a, rtol=0, atol=1e-10)
    assert distance(other).item() == pytest.approx(1 - (a @ b / (a.norm() * b.norm())).item(), abs=1e-10)
    assert distance(wanted).item() == pytest.approx(0, abs=1e-12)
    assert torch.autograd.gradcheck(distance, other.requires_grad_())  # by finite differences: it can be searched along


# ---------------------------------------------------------------- the search


def test_what_an_invertible_model_sends_gives_the_images_away():
    found, history = search(orthogonal())
    assert psnr(found.flatten(0, 1), IMAGES.flatten(0, 1)).min() > 40
    assert history["iteration"].tolist() == list(range(0, 301, 15))
    assert history["representation_error"].iloc[-1] < 1e-4 < history["representation_error"].iloc[0]
    assert history["gradient_distance"].isna().all()


def test_a_gradient_says_what_representations_leave_open():
    """Only the mean of an image is sent; a linear layer's gradient for its weights is a multiple of the image."""
    layer = nn.Linear(64, 1).double()
    images = IMAGES[:1, :1]

    def mean(x):
        return x.mean((-3, -2, -1))[..., None]

    def loss(x):
        return (layer(x.flatten(2)) - 1).square().mean()

    sent, start = mean(images), random(1, 1, 1, 8, 8, seed=1)
    without, _ = match(mean, sent, start, **SEARCH)
    distance = GradientDistance(loss, list(layer.parameters()), images)
    found, history = match(mean, sent, start, **SEARCH, gradient_distance=distance, gradient_weight=1.0)
    assert psnr(without[0], images[0]).item() < 15
    assert psnr(found[0], images[0]).item() > 40
    assert history["gradient_distance"].iloc[-1] < 1e-5


def test_images_searched_together_are_those_searched_one_at_a_time():
    start, values = random(*IMAGES.shape, seed=1), {"iterations": 40, "total_variation_weight": 0.01}
    together, history = search(orthogonal(), start=start, **values)
    alone = [search(orthogonal(), IMAGES[:, [n]], start[:, [n]], **values) for n in range(3)]
    torch.testing.assert_close(together, torch.cat([found for found, _ in alone], dim=1), rtol=0, atol=1e-10)
    mean = sum(table["total_variation"] for _, table in alone) / 3
    assert history["total_variation"].tolist() == pytest.approx(mean.tolist(), abs=1e-10)


def test_a_gradient_counts_for_each_image_as_for_one_alone():
    """A batch of copies has the gradient of one of them, and each copy a part of its distance."""
    layer, start, found = nn.Linear(64, 1).double(), random(1, 1, 1, 8, 8, seed=1), []
    for copies in (1, 3):
        images = IMAGES[:1, :1].expand(1, copies, 1, 8, 8)
        distance = GradientDistance(
            lambda x: (layer(x.flatten(2)) - 1).square().mean(), list(layer.parameters()), images
        )
        values = {"iterations": 20, "gradient_distance": distance, "gradient_weight": 1.0}
        found.append(search(orthogonal(), images, start.expand_as(images), **values)[0])
    torch.testing.assert_close(found[1], found[0].expand_as(found[1]), rtol=0, atol=1e-8)


def test_the_total_variation_of_an_image_is_the_mean_over_its_views():
    start = random(*IMAGES.shape, seed=1)
    _, history = search(orthogonal(), start=start, iterations=1)
    by_view = [[total_variation(start[view, n]).item() for view in range(2)] for n in range(3)]
    assert history["total_variation"].iloc[0] == pytest.approx(sum(map(sum, by_view)) / 6)


def test_total_variation_makes_smooth_images():
    rough, smooth = (search(orthogonal(), total_variation_weight=weight)[0] for weight in (0.0, 1.0))
    assert total_variation(smooth).mean() < 0.5 * total_variation(rough).mean()


def test_a_fitted_surrogate_matches_where_a_random_one_cannot():
    sent, start = by_views(orthogonal())(IMAGES), random(*IMAGES.shape, seed=1)
    errors = {}
    for fitted in (False, True):
        surrogate = nn.Conv2d(1, 4, 2, stride=2).double().requires_grad_(fitted)
        with torch.no_grad():
            surrogate.weight.fill_(0.1)  # all four channels alike
            surrogate.bias.zero_()
        parameters = list(surrogate.parameters()) if fitted else ()
        _, history = match(by_views(surrogate), sent, start, iterations=300, learning_rate=0.1, surrogate=parameters)
        assert torch.equal(surrogate.weight, torch.full_like(surrogate.weight, 0.1)) is not fitted
        errors[fitted] = history["representation_error"].iloc[-1]
    assert errors[True] < 0.8 * errors[False]


def test_measures_and_progress_are_of_every_step_logged_and_the_start_is_not_changed():
    start, calls = random(*IMAGES.shape, seed=1), []
    before = start.clone()
    found, history = search(
        orthogonal(), start=start, iterations=7, measure=lambda x: {"first": x[0, 0, 0, 0, 0].item()},
        progress=calls.append,
    )  # fmt: skip
    assert torch.equal(start, before)
    assert history["iteration"].tolist() == list(range(8))
    assert history["first"].iloc[[0, -1]].tolist() == [start[0, 0, 0, 0, 0].item(), found[0, 0, 0, 0, 0].item()]
    assert calls == list(range(1, 8))
    assert 0 <= found.min() <= found.max() <= 1


def test_the_same_search_gives_the_same_bits():
    distance = GradientDistance(lambda x: F.mse_loss(weight * x, x), [weight := nn.Parameter(IMAGES[0, 0])], IMAGES)
    values = {"iterations": 30, "gradient_distance": distance, "gradient_weight": 0.1, "total_variation_weight": 0.1}
    (first, table), (second, again) = (search(orthogonal(), **values) for _ in range(2))
    assert torch.equal(first, second)
    assert table.equals(again)


def test_representations_that_cannot_be_matched():
    represent = by_views(orthogonal())
    sent = represent(IMAGES)
    start = random(*IMAGES.shape, seed=1)
    nothing = sent.clone()
    nothing[:, 1] = 0
    with pytest.raises(DataError, match="all zeros"):
        match(represent, nothing, start, **SEARCH)
    with pytest.raises(DataError, match=r"not all finite.*diverged"):
        match(represent, sent.log(), start, **SEARCH)
    with pytest.raises(NonFiniteLossError, match=r"attack is nan at step 0\. Lower learning_rate=0.1"):
        match(lambda images: represent(images) * math.nan, sent, start, **SEARCH)
