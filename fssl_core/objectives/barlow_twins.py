"""Barlow Twins: across a batch, each number of an embedding agrees between views and differs from all others.

Zbontar et al., "Barlow Twins: Self-Supervised Learning via Redundancy Reduction", ICML 2021, Eq. 1 and 2 and
Algorithm 1. The default of one linear layer in place of a projection head is L-DAWA's (Rehman et al., ICCV 2023,
Section 4.2), which gives SimCLR and Barlow Twins the same architecture; Barlow Twins has three layers of 8192.

As in Algorithm 1 and in L-DAWA's code, columns are standardised by the unbiased deviation while the cross-correlation
is divided by B. Its diagonal is therefore at most ``(B - 1) / B``, and the loss at least ``D / B^2``; the code of
Barlow Twins has a batch norm here, which divides by the biased deviation, and reaches 1 and 0. As in L-DAWA's code, the
views go through the model one after the other, and the loss is not scaled.

Differs from both: their deviation has no epsilon, so a column that is constant over the batch, as a dead unit gives,
makes the loss NaN. Ours adds 1e-5 to the variance, the epsilon of that batch norm: the column becomes zero, costs 1 on
the diagonal, and its gradient is finite. A column of variance 1 changes by a factor of 5e-6.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective, check_several
from fssl_core.settings import NonNegative

EPSILON = 1e-5


@in_full_precision
def cross_correlation(first: Tensor, second: Tensor) -> Tensor:
    """How the numbers of one view's embeddings correlate with those of the other's over the batch (Eq. 2).

    Args:
        first, second: embeddings of the two views, ``[B, D]``, with ``B`` at least 2.

    Returns:
        C, ``[D, D]``: between ``-(B - 1) / B`` and ``(B - 1) / B``.

    Raises:
        DataError: there is one image only, whose embedding has no deviation.
    """
    check_several(first, "Barlow Twins")
    return _standardise(first).T @ _standardise(second) / len(first)


def _standardise(z: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1."""
    variance, mean = torch.var_mean(z, dim=0)
    return (z - mean) * (variance + EPSILON).rsqrt()


def barlow_twins_loss(first: Tensor, second: Tensor, redundancy_weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 1: on the diagonal of the cross-correlation C, the squared distance to 1; elsewhere, to 0.

    Args:
        first, second: embeddings of the two views, ``[B, D]``.
        redundancy_weight: lambda, of the sum off the diagonal.

    Returns:
        the loss, and its parts: the sum on the diagonal and the sum off it.

    Raises:
        DataError: see :func:`cross_correlation`.
    """
    c = cross_correlation(first, second)
    squares = (c - torch.eye(len(c), dtype=c.dtype, device=c.device)).square()
    on_diagonal = squares.diagonal().sum()
    off_diagonal = squares.sum() - on_diagonal
    return on_diagonal + redundancy_weight * off_diagonal, on_diagonal, off_diagonal


@dataclass(frozen=True, kw_only=True)
class BarlowTwins(Objective):
    """Settings of Barlow Twins."""

    pairs: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    name: str = "barlow-twins"
    projector: tuple[int, ...] = (128,)
    redundancy_weight: NonNegative = 0.005  # lambda of L-DAWA's code and of Barlow Twins, Section 2.2

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "BarlowTwinsLearner":
        return BarlowTwinsLearner(self, online, target)


class BarlowTwinsLearner(Learner):
    """Both views through the online model."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, on_diagonal, off_diagonal = barlow_twins_loss(*self.outputs(views), self.objective.redundancy_weight)
        return loss, {"on_diagonal": on_diagonal.detach(), "off_diagonal": off_diagonal.detach()}
