"""Pooling and the projection head against their formulas."""

import torch

from fssl_core.models import GlobalPool, Projector
from fssl_core.random import generator


def test_global_pool_is_the_mean_over_pixels():
    x = torch.arange(24.0).view(1, 2, 3, 4)
    assert GlobalPool()(x).tolist() == [[sum(range(12)) / 12, sum(range(12, 24)) / 12]]


def test_projector_is_linear_relu_linear():
    projector = Projector(6, 5, 4, generator=generator(0, "model")).double()
    x = torch.randn(3, 6, generator=generator(0, "test"), dtype=torch.float64)
    w1, b1, w2, b2 = projector.state_dict().values()
    torch.testing.assert_close(projector(x), (x @ w1.T + b1).clamp(min=0) @ w2.T + b2, rtol=1e-12, atol=1e-12)


def test_projector_has_the_papers_size():
    assert [tuple(value.shape) for value in Projector(512).parameters()] == [
        (1024, 512),
        (1024,),
        (1024, 1024),
        (1024,),
    ]
