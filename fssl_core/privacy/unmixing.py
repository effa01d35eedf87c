"""Unmixing: DataMix of two examples undone by who sees the mixtures only, if they are of maps behind a ReLU.

Ours, for MFCL's cases with DataMix (Section 5.6.2; :mod:`fssl_core.privacy.datamix`). A mixture of maps that are never
negative is zero where all of them are. So the mixtures of one group are zero at the same places, and others are not:
the pattern of zeros tells who is mixed with whom. In a group of two,

    z'_1 = a z_1 + (1 - a) z_2,    z'_2 = (1 - b) z_1 + b z_2,

the ratio z'_1 / z'_2 is at least t = (1 - a) / b, and it is t where z_1 = 0 and z_2 > 0; among many numbers there is
such a place. Then z'_1 - t z'_2 has nothing of z_2, and of z_1 it has a - t (1 - b) = 1 - t:

    z_1 = (z'_1 - t z'_2) / (1 - t).

With t at hand nothing of the secret is left. This needs exact zeros, which noise on the maps would take away.
"""

import numpy as np
import torch
from torch import Tensor


def zero_patterns(mixtures: Tensor) -> list[bytes]:
    """Where the maps of each example are zero, over all of its views: equal only for mixtures of the same examples.

    Args:
        mixtures: ``[V, N, ...]``.
    """
    zeros = (mixtures == 0).transpose(0, 1).flatten(1).cpu().numpy()  # [N, numbers]
    return [row.tobytes() for row in np.packbits(zeros, axis=1)]


def unmix(first: Tensor, second: Tensor) -> Tensor:
    """The examples behind the first of two mixtures of the same two.

    Args:
        first: mixtures in which the wanted examples have at least half, ``[V, N, ...]``, nowhere negative.
        second: those of the same examples in which the other one has at least half, ``[V, N, ...]``.

    Returns:
        ``[V, N, ...]``, of the type of ``first``. An example that has no zero where the other one is positive, in any
        view, leaves a part of itself in the other one.
    """
    x, y = (values.double().transpose(0, 1) for values in (first, second))  # [N, V, ...]
    both = (x > 0) & (y > 0)
    t = torch.where(both, x / y, torch.inf).flatten(1).amin(1).view(-1, *(1,) * (x.dim() - 1))
    unmixed = (x - t * y) / (1 - t)
    return unmixed.clamp(min=0).transpose(0, 1).to(first.dtype)
