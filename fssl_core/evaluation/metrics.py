"""How well classes are told apart: accuracy, and averages over classes, from predicted and true classes.

LW-FedSSL (Tun et al., Tables 9, 11, 12 and 13) reports precision, recall, F1 and mean per-class accuracy, and does not
define them. The accuracy of a class is its recall, so macro recall and mean per-class accuracy differ only in the
classes that they average over. The macro mean of scikit-learn and torchmetrics is over the classes that occur among the
labels or the predictions, a class that is predicted but never true having recall 0; mean per-class accuracy is over the
classes that occur among the labels. Where a test set has every class the two are equal, and those of the paper do.

The paper prints different numbers for the two all the same. Its authors' related code averages macro means over the
batches of the test set: a class that a batch lacks does not count in it, so rare classes weigh less.
:func:`mean_over_batches` does that.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.settings import check_range


@dataclass(frozen=True)
class ClassificationMetrics:
    """All in [0, 1]. A ratio whose denominator is 0 counts as 0.

    Args:
        accuracy: share of the images that are right.
        precision, recall, f1: macro means, over the classes that occur among the labels or the predictions.
        mean_per_class_accuracy: mean of the recalls of the classes that occur among the labels.
    """

    accuracy: float
    precision: float
    recall: float
    f1: float
    mean_per_class_accuracy: float


def confusion_matrix(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """How often class i was taken for class j: int64 ``[classes, classes]``, rows are the true classes.

    Args:
        predictions, labels: int64 ``[N]``, in [0, classes), on one device.
        classes: their number.

    Raises:
        DataError: shapes differ, there are no images, or a class is outside [0, classes).
    """
    if predictions.shape != labels.shape or labels.dim() != 1 or len(labels) == 0:
        raise DataError(
            f"Metrics need one prediction for each label [N] with N > 0, got {list(predictions.shape)} predictions and "
            f"{list(labels.shape)} labels."
        )
    for name, values in (("Predictions", predictions), ("Labels", labels)):
        if values.min() < 0 or values.max() >= classes:
            raise DataError(f"{name} span {values.min()} to {values.max()}: expected 0 to {classes - 1}.")
    return (labels * classes + predictions).bincount(minlength=classes**2).view(classes, classes)


def classification_metrics(predictions: Tensor, labels: Tensor, classes: int) -> ClassificationMetrics:
    """Arguments and errors as those of :func:`confusion_matrix`."""
    counts = confusion_matrix(predictions, labels, classes).double()
    correct, true, predicted = counts.diag(), counts.sum(1), counts.sum(0)  # each [classes]
    recall, precision = correct / true.clamp(min=1), correct / predicted.clamp(min=1)
    f1 = 2 * correct / (true + predicted).clamp(min=1)
    occurs = true + predicted > 0
    means = [values[occurs].mean().item() for values in (precision, recall, f1)]
    return ClassificationMetrics((correct.sum() / counts.sum()).item(), *means, recall[true > 0].mean().item())


def mean_over_batches(predictions: Tensor, labels: Tensor, classes: int, batch: int) -> ClassificationMetrics:
    """The mean of :func:`classification_metrics` over batches of consecutive images, the last one smaller.

    Args:
        predictions, labels, classes: see :func:`confusion_matrix`.
        batch: images in a batch.
    """
    check_range("batch", batch, 1)
    parts = zip(predictions.split(batch), labels.split(batch), strict=True)
    rows = [list(vars(classification_metrics(*part, classes)).values()) for part in parts]
    return ClassificationMetrics(*torch.tensor(rows, dtype=torch.float64).mean(0).tolist())


def chance(labels: Tensor) -> float:
    """Accuracy without looking at the images: the share of the commonest label, of int64 ``[M]`` of the test images."""
    return labels.bincount().max().item() / len(labels)
