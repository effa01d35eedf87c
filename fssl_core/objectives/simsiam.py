"""SimSiam: predict the embedding of the other view, without negatives and without a target branch.

Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, Eq. 1 to 4 and Algorithm 1. The defaults are
the paper's of ImageNet (Section 3): a projector of three layers of 2048 and a predictor with a bottleneck of 512. On
CIFAR-10 its projector has two layers (Appendix D), which is ``projector=(2048, 2048)``.

The paper has batch norm on the projector's last layer, too; the authors' code gives that one no scale and shift.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective


@in_full_precision
def negative_cosine(predictions: Tensor, embeddings: Tensor) -> Tensor:
    """``D(p, stopgrad(z))``, the mean negative cosine (Eq. 1 and 3): ``[B, D]`` and ``[B, D]`` to a scalar."""
    return -F.cosine_similarity(predictions, embeddings.detach(), dim=1).mean()


@dataclass(frozen=True, kw_only=True)
class SimSiam(Objective):
    """Settings of SimSiam."""

    name: str = "simsiam"
    projector: tuple[int, ...] = (2048, 2048, 2048)
    predictor: tuple[int, ...] = (512, 2048)
    output_norm: str = "plain"

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "SimSiamLearner":
        return SimSiamLearner(self, online, target)


class SimSiamLearner(Learner):
    """Each view's prediction meets the other view's embedding; the loss is the mean of the two (Eq. 4)."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        model = self.online
        z = [model.embed(view) for view in views]  # view by view: batch norm must not mix them
        p = [model.predictor(embeddings) for embeddings in z]
        loss = (negative_cosine(p[0], z[1]) + negative_cosine(p[1], z[0])) / 2
        # 0 is a collapse; embeddings spread evenly over the sphere have 1 / sqrt(D) (Section 4.1, Fig. 2)
        deviation = F.normalize(torch.cat(z).detach(), dim=1).std(dim=0).mean()
        return loss, {"embedding_std": deviation}
