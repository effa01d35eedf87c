"""kNN and linear probes of a pre-training, each a run of its own: on all labels or a few, on its own images or others.

L-DAWA: Ur Rehman et al., "L-DAWA: layer-wise divergence aware weight aggregation in federated self-supervised visual
representation learning", ICCV 2023, Section 4.3 (all labels, 1 % and 10 %) and Section 5.5 (transfer to another data
set). ``papers/data/ldawa_settings.yaml`` lists what the paper leaves open. Images of another data set are normalised
with the mean and deviation of the pre-training's own: the frozen backbone then sees what it always saw of a pixel.

Differs from the authors' code: which images are labelled there is in files that are not released, here it is a random
share of each class; there the probe sees pixels in [0, 1], here images normalised as in the pre-training; and there
running statistics of batch norm may move while the probe trains, here the backbone is in evaluation mode.

kNN is on the features before any projection, and on all test images. A run's own kNN accuracy may be of the projection
layers, and is of a share of the test set, because it chooses the model to keep; this one compares engines.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fssl_core.evaluation.downstream import HeadResult, TransferSettings
from fssl_core.evaluation.features import standardised, unpooled
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import PROTOCOLS, ProbeResult, linear_probe
from fssl_core.settings import Count, Temperature, added, check_choice

FEATURES = ("pooled", "unpooled")


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(TransferSettings):
    """A linear probe on top of a pre-training; its summary has ``linear_probe_accuracy``.

    With the defaults, and ``probe_epochs`` and ``seed`` of the pre-training, this is the probe that a federation of
    full precision reports in its own summary. L-DAWA's is ``protocol="sgd-steps", features="unpooled"``.
    """

    version: ClassVar[int] = 1  # raise when results change, those of PROTOCOLS too: stored runs are computed again
    measure: ClassVar[str] = "linear_probe"

    protocol: str = "adam-cosine"  # a key of PROTOCOLS
    features: str = "pooled"  # unpooled: the last feature map, flattened, as in the authors' code of L-DAWA
    standardised: bool = added(False, before=False)  # features, by the labelled images; as they are in the papers' code
    epochs: Count = 100  # Section 4.3

    def check(self) -> None:
        super().check()
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("features", self.features, FEATURES)

    def feature_model(self, backbone: nn.Module) -> nn.Module:
        return unpooled(backbone) if self.features == "unpooled" else backbone

    def train_head(self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> ProbeResult:
        if self.standardised:
            train_x, test_x = standardised(train_x, test_x)
        return linear_probe(
            train_x,
            train_y,
            test_x,
            test_y,
            classes=classes,
            protocol=self.protocol,
            epochs=self.epochs,
            seed=self.seed,
        )


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
