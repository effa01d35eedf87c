"""What follows a backbone: pooling, and the heads that are dropped after pre-training."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fssl_core.models.initialise import initialise_
from fssl_core.models.layers import BatchNorm2d


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


class MLP(nn.Sequential):
    """Projection or prediction head: linear layers with ReLU between them; ``[B, in_dim]`` to ``[B, widths[-1]]``.

    Args:
        in_dim: width of the input.
        widths: of the layers.
        batch_norm: normalise the hidden layers, which then have no bias.
        generator: source of the first values, see :func:`~fssl_core.models.initialise.initialise_`.
    """

    def __init__(
        self,
        in_dim: int,
        widths: Sequence[int],
        *,
        batch_norm: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        layers: list[nn.Module] = []
        for width in widths[:-1]:
            layers.append(skip_init(nn.Linear, in_dim, width, bias=not batch_norm))
            layers += [BatchNorm2d(width)] if batch_norm else []  # of [B, width]: it does not need height and width
            layers.append(nn.ReLU())
            in_dim = width
        super().__init__(*layers, skip_init(nn.Linear, in_dim, widths[-1]))
        initialise_(self, generator)
