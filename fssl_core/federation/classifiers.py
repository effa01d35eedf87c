"""Which clients' classifiers a client should combine: FedPAC's quadratic programme.

Xu, Tong and Huang, "Personalized federated learning with feature alignment and classifier collaboration", ICLR 2023,
Section 4.2. Client j has the class shares p_j, and mean features mu_j[k] of its class k. With h_j[k] = p_j[k] mu_j[k],
and V_j the variance of its estimate of h_j, the weights of all clients' classifiers for client i are::

    alpha_i = argmin sum_j a_j^2 V_j + sum_k |h_i[k] - sum_j a_j h_j[k]|^2,    a_j >= 0, sum_j a_j = 1:

few images make a classifier noisy, other classes make it biased.
"""

import torch
from torch import Tensor

from fssl_core.errors import SettingError

RIDGE = 1e-12  # of the mean of the diagonal: two clients may have the same features


def feature_statistics(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """What a client tells of its images.

    Args:
        features: ``[N, D]``.
        labels: int64 ``[N]``, from 0 to ``classes - 1``.

    Returns:
        float64: ``counts`` ``[C]``, images of each class; ``centroids`` ``[C, D]``, their mean features, 0 without any;
        ``shares`` ``[C, D]``, which is h; ``variance``, a scalar, which is V.
    """
    features = features.double()
    member = torch.nn.functional.one_hot(labels, classes).double()  # [N, C]
    counts = member.sum(0)
    each = 1 / counts.clamp(min=1)
    centroids = each[:, None] * (member.T @ features)
    squares = each * (member.T @ features.square().sum(1))  # mean of |f|^2
    p = counts / len(features)
    shares = p[:, None] * centroids
    variance = ((p * squares).sum() - shares.square().sum()).clamp(min=0) / len(features)  # rounding may leave less
    return {"counts": counts, "centroids": centroids, "shares": shares, "variance": variance}


def combination_weights(variances: Tensor, shares: Tensor) -> Tensor:
    """The weights of all classifiers for each client, float64 ``[K, K]``, whose rows add up to one.

    With P the matrix of the quadratic form, its minimum on the simplex is that of ``x P x - 2 sum x`` over all x >= 0,
    scaled to add up to one: least squares without negative values.

    Args:
        variances: V of each client, ``[K]``, at least 0.
        shares: h of each client, ``[K, C, D]``.

    Raises:
        SettingError: a variance is negative, or a number is not finite.
    """
    from scipy.optimize import nnls  # half a second, for those that need it

    variances, h = variances.double().cpu(), shares.double().cpu().flatten(1)
    if not (variances.isfinite().all() and h.isfinite().all() and (variances >= 0).all()):
        raise SettingError("variances", variances.tolist(), "finite features and variances of at least 0")
    rows = []
    for mean in h:
        form = variances.diag() + (mean - h) @ (mean - h).T
        form += torch.eye(len(h)).double() * (RIDGE * form.diagonal().mean() + 1e-30)
        root = torch.linalg.cholesky(form)  # form = root root^T
        right_side = torch.linalg.solve_triangular(root, torch.ones(len(h), 1).double(), upper=False)[:, 0]
        solution, _ = nnls(root.T.numpy(), right_side.numpy())
        rows.append(torch.from_numpy(solution / solution.sum()))
    return torch.stack(rows)
