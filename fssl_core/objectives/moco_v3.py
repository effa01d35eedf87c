"""MoCo-v3: momentum contrast against the keys of the same batch, with a predictor and without a queue.

Chen, Xie and He, "An Empirical Study of Training Self-Supervised Vision Transformers", ICCV 2021, Algorithm 1. The
defaults are those of LW-FedSSL (Tun et al.; Section 4.1 and Algorithm 2): heads, temperature and momentum. MoCo-v3 has
hidden layers of 4096, a temperature of 0.2 and a momentum that rises from 0.99 to 1.

As in the code of MoCo-v3, the heads' linear layers have no bias and the projector ends in a batch norm without scale
and shift. The predictor ends without one, as there for ResNets and as the traffic that LW-FedSSL prints has it; for
vision transformers that code normalises it, too.

Differs from LW-FedSSL: its Eq. 2 lacks the factor ``2 tau`` of MoCo-v3's Algorithm 1, which takes the temperature out
of the gradients' scale. AdamW, which LW-FedSSL trains with, does the same to either; SGD does not. What is added to the
loss (``proximal``, ``representation_alignment``) weighs ``1 / (2 tau)`` times as much beside it, ten times at 0.05.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective, check_several, classify
from fssl_core.settings import Temperature


@in_full_precision
def in_batch_info_nce(queries: Tensor, keys: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """InfoNCE of each query with its own key against the keys of the other images, times ``2 tau``: ``ctr(q, k)``.

    Args:
        queries, keys: ``[B, D]``, one each of an image; they need not be unit vectors. Keys get no gradient.
        temperature: tau, above 0.

    Returns:
        the mean loss, and the contrastive accuracy: the fraction of queries that are closest to their own key.

    Raises:
        DataError: there is one image only, which nothing could be told from.
    """
    check_several(queries, "MoCo-v3")
    logits = F.normalize(queries, dim=1) @ F.normalize(keys.detach(), dim=1).T / temperature  # [B, B]
    loss, accuracy = classify(logits, torch.arange(len(logits), device=logits.device))
    return 2 * temperature * loss, accuracy


@dataclass(frozen=True, kw_only=True)
class MoCoV3(Objective):
    """Settings of MoCo-v3."""

    pairs: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    has_target: ClassVar[bool] = True
    output_bias: ClassVar[bool] = False

    name: str = "moco-v3"
    projector: tuple[int, ...] = (512, 512, 256)
    predictor: tuple[int, ...] = (512, 256)
    output_norm: str = "plain"
    temperature: Temperature = 0.05

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "MoCoV3Learner":
        return MoCoV3Learner(self, online, target)


class MoCoV3Learner(Learner):
    """Queries of each view against the target's keys of the other; the two losses are added."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        q, k = self.outputs(views), self.targets(views)
        pairs = [in_batch_info_nce(q[i], k[1 - i], self.objective.temperature) for i in range(2)]
        losses, accuracies = zip(*pairs, strict=True)
        return sum(losses), {"contrastive_accuracy": torch.stack(accuracies).mean()}

    def after_step(self) -> None:
        self.follow()
