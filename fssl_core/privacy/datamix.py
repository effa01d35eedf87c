"""DataMix: a client sends mixtures of examples, and keeps to itself what they are mixtures of.

Liu et al., "DataMix: efficient privacy-preserving edge-cloud inference", ECCV 2020, after mixup: the edge mixes its
inputs with private coefficients, the cloud computes on mixtures, the edge takes the mixing out of what comes back.
MFCL (Section 5.6.1, Tables 6 and 8) mixes representations before they are sent to the rServer in phase 2.

MFCL does not say how. Our reading:

- Examples of one client and batch are mixed: ``z'_i = sum_j lambda_ij z_j``. As in mixup, ``lambda_i`` is uniform
  among the coefficients that are not negative and add up to 1, and few examples meet in a mixture, by default two.
  Groups and coefficients are new for every batch.
- All views of a batch are mixed with the same coefficients, so two views of an example become two views of a mixture:
  pairs stay pairs, and a batch keeps its size and its layout, the paper's ``B^m``.
- Nothing is taken out again: the rServer learns from mixtures, as MFCL has no answer that a client could de-mix.
  Whoever knows the coefficients can, with :func:`demix`.

What it hides is limited: with two examples in a mixture one of them has at least half of it, and who can tell examples
apart may separate them. It makes reconstruction harder; it is no encryption.
"""

import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.settings import check_range


def mixing_coefficients(examples: int, generator: torch.Generator, together: int = 2) -> Tensor:
    """The secret of a client for one batch: who is mixed with whom, and how much of each.

    Examples are divided at random into groups of ``together``, a last one takes the rest as well. The largest
    coefficient of a mixture is that of the example in whose place it stands.

    Args:
        examples: N, of the batch, not counting views; at least ``together``.
        generator: on the CPU.
        together: how many make a mixture; 1 mixes nothing.

    Returns:
        ``[N, N]`` float64 on the CPU, rows add up to 1. It has an inverse, except with probability 0.

    Raises:
        SettingError: fewer examples than make a mixture.
    """
    check_range("together", together, 1)
    if examples < together:
        raise SettingError("examples", examples, f"at least together={together}, or they would be sent as they are")
    order = torch.randperm(examples, generator=generator)
    groups = list(order.split(together))
    if len(groups[-1]) < together:
        groups[-2:] = [torch.cat(groups[-2:])]
    coefficients = torch.zeros(examples, examples, dtype=torch.float64)
    for group in groups:
        size = len(group)
        # Exponentials over their sum are uniform among coefficients that add up to 1.
        rows = torch.empty(size, size, dtype=torch.float64).exponential_(generator=generator)
        rows /= rows.sum(1, keepdim=True)
        row = torch.arange(size)
        largest, column = rows.max(1)
        rows[row, column] = rows.diagonal().clone()
        rows[row, row] = largest
        coefficients[group[:, None], group] = rows
    return coefficients


def datamix(representations: Tensor, coefficients: Tensor) -> Tensor:
    """Mixtures of examples, ``z'_i = sum_j lambda_ij z_j``, all views with the same coefficients.

    Args:
        representations: ``[V * N, ...]``: first views of all examples, then all second views, and so on.
        coefficients: ``[N, N]`` of :func:`mixing_coefficients`.

    Returns:
        ``[V * N, ...]`` of the same type and on the same device.

    Raises:
        SettingError: the coefficients are not of so many examples.
    """
    return (coefficients.to(representations) @ _by_view(representations, coefficients)).view_as(representations)


def demix(mixtures: Tensor, coefficients: Tensor) -> Tensor:
    """The examples of mixtures, or what a linear map made of them: the inverse of :func:`datamix`, same shapes."""
    mixed = _by_view(mixtures, coefficients)
    return torch.linalg.solve(coefficients.to(mixed), mixed).reshape(mixtures.shape)


def _by_view(representations: Tensor, coefficients: Tensor) -> Tensor:
    """``[V, N, numbers]``"""
    examples = len(coefficients)
    if len(representations) % examples:
        expected = f"a number that {len(representations)}, examples times views, is a multiple of"
        raise SettingError("coefficients", examples, expected)
    return representations.reshape(-1, examples, representations[0].numel())
