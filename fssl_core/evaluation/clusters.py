"""Clusters of features: their t-SNE picture, and numbers for how well classes stand apart in it and without it.

MFCL (Motamedi and Kim, TMLR), Figure 9 and Appendix B.4, counts by eye how many classes form clusters in a t-SNE
picture of what comes behind the projection layers. van der Maaten and Hinton, "Visualizing data using t-SNE", 2008:
the plane keeps who is near whom, while sizes of clusters and distances between them mean little. So the same numbers
are taken of the features themselves.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.evaluation.features import check_features
from fssl_core.settings import check_range

SEPARATED = 0.8  # purity from which on a class stands apart


@dataclass(frozen=True)
class ClusterMeasures:
    """How well classes stand apart.

    Args:
        silhouette: mean over images, in [-1, 1]; Rousseeuw, 1987, with the classes as clusters.
        purity: share of an image's ``k`` nearest others that are of its class, mean over images, in [0, 1].
        separated_classes: how many classes have a mean purity of ``SEPARATED`` or more.
    """

    silhouette: float
    purity: float
    separated_classes: int


def tsne_plane(features: Tensor, *, perplexity: float = 30.0, seed: int = 0, init: str = "pca") -> Tensor:
    """The t-SNE picture of features [N, D], scikit-learn's, Euclidean: float32 [N, 2] on the CPU.

    Args:
        features: on any device.
        perplexity: about how many neighbours an image has; below N.
        seed: of the start where ``init`` is ``"random"``. From ``"pca"``, the first two principal components, equal
            features have equal pictures, up to rounding where the number of threads differs.
        init: ``"pca"`` or ``"random"``.

    Raises:
        SettingError: the perplexity is not above 0 and below N.
    """
    from sklearn.manifold import TSNE

    check_range("perplexity", perplexity, 1e-6, len(features) - 1)
    model = TSNE(perplexity=perplexity, init=init, random_state=seed)
    return torch.from_numpy(model.fit_transform(features.cpu().numpy()))


def cluster_measures(points: Tensor, labels: Tensor, *, k: int = 10) -> ClusterMeasures:
    """How well the classes of points stand apart, by Euclidean distances.

    Args:
        points: [N, D], a plane or features; to compare features as cosines do, give them unit length first.
        labels: int64 [N], of at least two classes, one of which has several points.
        k: neighbours of an image that are looked at, below N.

    Raises:
        SettingError: ``k`` is not from 1 to N - 1.
        DataError: shapes do not fit, points are not finite, or classes are too few or too many.
    """
    from sklearn.metrics import silhouette_score

    check_features("points", points, labels)
    check_range("k", k, 1, len(points) - 1)
    classes = labels.unique()
    if not 1 < len(classes) < len(points):
        expected = f"2 to {len(points) - 1} classes of {len(points)} points"
        raise DataError(f"Clusters need {expected}, got {len(classes)}: take more images.")
    distances = torch.cdist(points.double(), points.double()).fill_diagonal_(torch.inf)
    nearest = distances.topk(k, largest=False).indices  # [N, k]
    purity = (labels[nearest] == labels[:, None]).double().mean(1)
    by_class = torch.stack([purity[labels == label].mean() for label in classes])
    silhouette = silhouette_score(points.cpu().numpy(), labels.cpu().numpy())
    return ClusterMeasures(float(silhouette), purity.mean().item(), int((by_class >= SEPARATED).sum()))
