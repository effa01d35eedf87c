"""Groups of clients that are alike: Lloyd's k-means on one summary of each client.

Deterministic, and made to be called round after round while the space of the summaries itself moves with the model
that makes them: it goes on from the last groups, not from the last centroids, so that a group keeps its number and
does not lose its members to whichever old centroid happens to be near. The first groups start from points that are far
apart (Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985).
"""

import torch
from torch import Tensor

from fssl_core.settings import check_range

ITERATIONS = 100  # at most; a handful is enough for some hundred clients


def far_apart(points: Tensor, groups: int, centroids: Tensor | None = None) -> Tensor:
    """Add to some centroids, again and again, the point that is farthest from all of them.

    Args:
        points: ``[N, D]``.
        groups: how many centroids there are to be.
        centroids: those to begin with, ``[fewer, D]``; None: the point nearest to the mean.
    """
    if centroids is None:
        centroids = points[_distances(points, points.mean(0, keepdim=True)).argmin(0)]
    while len(centroids) < groups:
        farthest = _distances(points, centroids).amin(1).argmax()
        centroids = torch.cat([centroids, points[farthest][None]])
    return centroids


def k_means(points: Tensor, groups: int, members: Tensor | None = None) -> Tensor:
    """Lloyd's algorithm until no point changes its group.

    Args:
        points: ``[N, D]``, float64 for bits that repeat on every machine.
        groups: from 1 to N.
        members: the group of each point before, int64 ``[N]``, -1 for none, to go on from; None: :func:`far_apart`.
            A group without members begins at the point that is farthest from the others.

    Returns:
        the group of each point, int64 ``[N]``.

    Raises:
        SettingError: fewer points than groups.
    """
    check_range("groups", groups, 1, len(points))
    if members is None:
        members = torch.full((len(points),), -1)
    present = [group for group in range(groups) if (members == group).any()]
    empty = [group for group in range(groups) if group not in present]
    means = torch.stack([points[members == group].mean(0) for group in present]) if present else None
    centroids = points.new_empty(groups, points.shape[1])
    centroids[present + empty] = far_apart(points, groups, means)
    for _ in range(ITERATIONS):
        nearest = _distances(points, centroids).argmin(1)
        if torch.equal(nearest, members):
            break
        members = nearest
        for group in members.unique().tolist():  # a centroid that nobody is near to stays
            centroids[group] = points[members == group].mean(0)
    return members


def _distances(points: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
