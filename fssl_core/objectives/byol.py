"""BYOL: predict the target branch's embedding of the other view; no negatives.

Grill et al., "Bootstrap your own latent", NeurIPS 2020, Eq. 2 and Section 3.3. The heads' widths and the decay are
those of Zhuang et al., "Divergence-aware federated self-supervised learning", ICLR 2022, whose federated BYOL is the
baseline of MocoSFL's tables; BYOL itself has 4096 and 256 and a decay that rises from 0.996 to 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective


@in_full_precision
def byol_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean squared distance of the unit vectors, ``2 - 2 cos`` (Eq. 2): ``[N, D]`` and ``[N, D]`` to a scalar."""
    return (2 - 2 * F.cosine_similarity(predictions, targets.detach(), dim=1)).mean()


@dataclass(frozen=True, kw_only=True)
class BYOL(Objective):
    """Settings of BYOL."""

    pairs: ClassVar[bool] = True
    has_target: ClassVar[bool] = True

    name: str = "byol"
    predictor: tuple[int, ...] = (4096, 2048)
    output_norm: str = "none"  # LW-FedSSL's heads have "plain", and no bias
    output_bias: bool = True

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "BYOLLearner":
        return BYOLLearner(self, online, target)


class BYOLLearner(Learner):
    """Each view predicts the target of the other; the two losses are added."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        predictions, targets = self.outputs(views), self.targets(views)
        return byol_loss(predictions[0], targets[1]) + byol_loss(predictions[1], targets[0]), {}

    def after_step(self) -> None:
        self.follow()
