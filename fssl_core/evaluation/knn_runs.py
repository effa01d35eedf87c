"""kNN on top of a pre-training as a run of its own: on the features before any projection, on all test images.

A run's own kNN accuracy may be of the projection layers, and is of a share of the test set, because it chooses the
model to keep; this one compares engines.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fssl_core.evaluation.downstream import HeadResult
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.transfer import TransferSettings
from fssl_core.settings import Count, Temperature


@dataclass(frozen=True, kw_only=True)
class KnnSettings(TransferSettings):
    """kNN with the labelled images as its bank; its summary has ``knn_accuracy``. Nothing is trained."""

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    measure: ClassVar[str] = "knn"

    k: Count = 200
    temperature: Temperature = 0.1

    def train_head(self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> HeadResult:
        found = knn_accuracy(train_x, train_y, test_x, test_y, k=self.k, temperature=self.temperature)
        return HeadResult((found,))
