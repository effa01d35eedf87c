"""What follows a backbone: pooling and the projection head. Both stay on the server."""

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fssl_core.models.initialise import initialise_


class GlobalPool(nn.Module):
    """Mean over height and width: ``[B, C, H, W]`` to ``[B, C]``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class Projector(nn.Sequential):
    """Projection head of MoCo-v2 as MocoSFL uses it: linear, ReLU, linear; ``[B, in_dim]`` to ``[B, out]``.

    The output is not normalised. The head is dropped after pre-training.

    Args:
        in_dim: the backbone's ``feature_dim``.
        hidden: width of the hidden layer.
        out: size of the embedding.
        generator: source of the first values, see :func:`~fssl_core.models.initialise.initialise_`.
    """

    def __init__(
        self, in_dim: int, hidden: int = 1024, out: int = 1024, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(skip_init(nn.Linear, in_dim, hidden), nn.ReLU(), skip_init(nn.Linear, hidden, out))
        initialise_(self, generator)
