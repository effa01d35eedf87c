"""Weighted k-nearest-neighbour classification, the accuracy that needs no training.

Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination" (CVPR 2018), Section 3.4:
a neighbour votes for its class with weight exp(similarity / T). Both MocoSFL and MonAcoSFL choose their checkpoint
by it. k and T are not in the papers; 200 and 0.1 are those of the authors' code.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import check_features
from fssl_core.notices import notice
from fssl_core.settings import check_range

KNN_BLOCK = 1024  # queries handled at a time; memory is about ``KNN_BLOCK * N`` floats


@torch.no_grad()
@in_full_precision
def knn_accuracy(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, query_labels: Tensor, *, k: int = 200, temperature: float = 0.1
) -> float:
    """Fraction of queries whose class wins the vote of their ``k`` most similar features in the bank.

    Neighbours exactly as similar as the k-th vote as well, and a tie between classes goes to the lower label, so
    the order of the bank does not matter. Similarities are float32, also inside ``torch.autocast``.

    Args:
        bank: features that vote, [N, D]; need not be normalised.
        bank_labels: int64 [N], non-negative.
        queries: features to classify, [M, D].
        query_labels: int64 [M].
        k: number of neighbours; with a bank smaller than that, all of it votes and one notice says so.
        temperature: T > 0; the smaller, the more the nearest neighbours decide.

    Returns:
        Accuracy in [0, 1].

    Raises:
        SettingError: ``k`` or ``temperature`` is not positive.
        DataError: shapes do not fit, or features are not finite.
    """
    check_range("k", k, 1)
    if not temperature > 0:
        raise SettingError("temperature", temperature, "a positive number")
    check_features("bank", bank, bank_labels)
    check_features("queries", queries, query_labels, like=bank)
    if k > len(bank):
        notice(f"kNN: k={k} neighbours asked for, the bank has {len(bank)}; all of them vote.")
        k = len(bank)

    bank = F.normalize(bank.float())
    classes = int(bank_labels.max()) + 1
    correct = torch.zeros((), dtype=torch.int64, device=bank.device)
    for query, label in zip(queries.split(KNN_BLOCK), query_labels.split(KNN_BLOCK), strict=True):
        similarity = F.normalize(query.float()) @ bank.T  # [B, N]
        # One more than vote, to see whether it is as similar as the last of them.
        top, nearest = similarity.topk(min(k + 1, len(bank)))  # [B, k + 1], descending
        votes = _votes(top[:, :k], bank_labels[nearest[:, :k]], top[:, :1], temperature, classes)
        tied = (top[:, k - 1] == top[:, -1]).nonzero().flatten() if k < len(bank) else ()
        for row in tied:  # rare
            voting = (similarity[row] >= top[row, k - 1]).nonzero()[:, 0]
            values = similarity[row, voting][None], bank_labels[voting][None]
            votes[row] = _votes(*values, top[row, :1][None], temperature, classes)[0]
        correct += (votes.argmax(1) == label).sum()
    return correct.item() / len(queries)


def _votes(similarity: Tensor, labels: Tensor, largest: Tensor, temperature: float, classes: int) -> Tensor:
    """The votes ``[B, classes]`` of neighbours with these similarities and labels, ``[B, n]`` each.

    In float64, so that the order of the neighbours does not matter. ``exp(sim / T)`` is taken up to a factor per query,
    which keeps the largest weight at 1 for any temperature.
    """
    weight = similarity.sub(largest).div_(temperature).exp_().double()
    return weight.new_zeros(len(weight), classes).scatter_add_(1, labels, weight)
