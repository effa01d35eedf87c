import numpy as np
import pytest
import torch
from lightly.loss import BarlowTwinsLoss

from fssl_core.errors import DataError
from fssl_core.objectives.barlow_twins import barlow_twins_loss, cross_correlation
from tests.objectives.learners import Client, embeddings, small, two_views

WIDE = 1e4  # embeddings this wide make the epsilon of the deviation vanish


def test_cross_correlation_is_numpys_times_the_bias():
    first, second = WIDE * embeddings(seed=1), WIDE * embeddings(seed=2)
    pearson = np.corrcoef(first.numpy(), second.numpy(), rowvar=False)[:5, 5:]
    np.testing.assert_allclose(cross_correlation(first, second).numpy(), pearson * 5 / 6, rtol=0, atol=1e-9)


def test_loss_is_equation_1_term_by_term():
    first, second = embeddings(seed=1), embeddings(seed=2)
    columns = []
    for z in (first, second):
        means = [sum(column) / 6 for column in z.T.tolist()]
        variances = [sum((v - m) ** 2 for v in c) / 5 for c, m in zip(z.T.tolist(), means, strict=True)]
        deviations = [(variance + 1e-5) ** 0.5 for variance in variances]
        columns.append([[(v - m) / s for v in c] for c, m, s in zip(z.T.tolist(), means, deviations, strict=True)])
    on = off = 0.0
    for i, one in enumerate(columns[0]):
        for j, other in enumerate(columns[1]):
            c = sum(a * b for a, b in zip(one, other, strict=True)) / 6
            on, off = (on + (1 - c) ** 2, off) if i == j else (on, off + c**2)
    parts = [part.item() for part in barlow_twins_loss(first, second, 0.1)]
    assert parts == pytest.approx([on + 0.1 * off, on, off], abs=1e-12)


def test_loss_is_lightlys_with_a_batch_norm():
    """Which divides by the biased deviation: its cross-correlation is ours times B / (B - 1)."""
    first, second = WIDE * embeddings(seed=1), WIDE * embeddings(seed=2)
    off = BarlowTwinsLoss(lambda_param=1.0)(first, second) - BarlowTwinsLoss(lambda_param=0.0)(first, second)
    torch.testing.assert_close(barlow_twins_loss(first, second, 1.0)[2], off * (5 / 6) ** 2)
    first = WIDE * embeddings(100_000, seed=1)  # where the factor hardly matters
    second = first + WIDE * embeddings(100_000, seed=2)
    loss, *_ = barlow_twins_loss(first, second, 0.005)
    torch.testing.assert_close(loss, BarlowTwinsLoss(lambda_param=0.005)(first, second), rtol=1e-4, atol=0)


def test_the_least_loss_is_that_of_the_bias():
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64) * WIDE  # uncorrelated columns
    assert barlow_twins_loss(signs, signs, 1.0)[0].item() == pytest.approx(2 / 4**2, abs=1e-9)


def test_a_constant_column_costs_one_and_its_gradient_is_finite():
    first, second = embeddings(seed=1), embeddings(seed=2)
    first[:, 2] = second[:, 2] = 0.7
    kept = [0, 1, 3, 4]
    expected = barlow_twins_loss(first[:, kept], second[:, kept], 0.005)[0] + 1
    first.requires_grad_()
    loss, *_ = barlow_twins_loss(first, second, 0.005)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert first.grad.isfinite().all()


def test_one_image_is_refused():
    with pytest.raises(DataError, match="at least 2 images in a batch, got 1: choose a larger batch"):
        barlow_twins_loss(embeddings(1), embeddings(1), 0.005)


def test_statistics_are_float32_where_the_model_is_not():
    first = 100 + embeddings(64, seed=1).float().bfloat16()  # a deviation of 1 around a mean of 100
    second = 100 + embeddings(64, seed=1).float().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        parts = barlow_twins_loss(first, second, 0.005)
    torch.testing.assert_close(parts, barlow_twins_loss(first.float(), second.float(), 0.005), rtol=0, atol=0)


def test_figures_are_the_parts_of_the_loss():
    loss, figures = Client(small("barlow-twins", redundancy_weight=0.2)).loss(two_views())
    torch.testing.assert_close(loss.detach(), figures["on_diagonal"] + 0.2 * figures["off_diagonal"])
