"""What follows a backbone: pooling, and the heads that are dropped after pre-training."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fssl_core.models.initialise import initialise_
from fssl_core.models.layers import BatchNorm2d
from fssl_core.settings import check_choice

OUTPUT_NORMS = ("none", "affine", "plain")


class GlobalPool(nn.Module):
    """Mean over height and width: ``[B, C, H, W]`` to ``[B, C]``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class MLP(nn.Sequential):
    """Projection or prediction head: linear layers with ReLU between them; ``[B, in_dim]`` to ``[B, widths[-1]]``.

    The output, of which losses and dictionaries are made, has the precision of the weights.

    Args:
        in_dim: width of the input.
        widths: of the layers.
        batch_norm: normalise the hidden layers, which then have no bias.
        output_norm: batch norm after the last layer, which then has no bias: ``"none"``, ``"affine"``, or ``"plain"``,
            without scale and shift.
        output_bias: the last layer has a bias where no batch norm follows it.
        generator: source of the first values, see :func:`~fssl_core.models.initialise.initialise_`.

    Raises:
        SettingError: an unknown ``output_norm``.
    """

    def __init__(
        self,
        in_dim: int,
        widths: Sequence[int],
        *,
        batch_norm: bool = True,
        output_norm: str = "none",
        output_bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        check_choice("output_norm", output_norm, OUTPUT_NORMS)
        layers: list[nn.Module] = []
        for width in widths[:-1]:
            layers.append(skip_init(nn.Linear, in_dim, width, bias=not batch_norm))
            layers += [BatchNorm2d(width)] if batch_norm else []  # of [B, width]: it does not need height and width
            layers.append(nn.ReLU())
            in_dim = width
        layers.append(skip_init(nn.Linear, in_dim, widths[-1], bias=output_bias and output_norm == "none"))
        if output_norm != "none":
            layers.append(BatchNorm2d(widths[-1], affine=output_norm == "affine"))
        super().__init__(*layers)
        initialise_(self, generator)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(next(self.parameters()).dtype)
