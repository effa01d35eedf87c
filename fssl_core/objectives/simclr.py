"""SimCLR: each embedding finds the one of the image's other view among all embeddings of the batch.

Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020, Eq. 1 and Algorithm 1.
The defaults are those of L-DAWA (Rehman et al., ICCV 2023, Section 4.2) and of its code: one linear layer in place of
the projection head and a temperature of 0.07; SimCLR itself has a head of two layers and 0.5 on CIFAR-10.

Differs from SimCLR's code, as L-DAWA's does: the views go through the model one after the other, so batch norm sees
only one of them at a time.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.errors import DataError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective, check_several, classify
from fssl_core.settings import Temperature, check_choice

LOSSES = ("both-directions", "one-direction")


@in_full_precision
def nt_xent(
    first: Tensor,
    second: Tensor,
    temperature: float,
    loss: str = "both-directions",
    dictionary: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """NT-Xent (Eq. 1) averaged over the batch, or its variant in the code of L-DAWA.

    Args:
        first, second: embeddings of the two views, ``[B, D]``; they need not be unit vectors.
        temperature: tau, above 0.
        loss: ``"both-directions"``: each of the 2B embeddings against the other 2B - 1. ``"one-direction"``: each of
            the first view's against all 2B, so that the similarity of an embedding with itself, exp(1 / tau), stays
            in the denominator.
        dictionary: unit vectors ``[K, D]`` that are negatives of all of these embeddings, too.

    Returns:
        the mean loss in nats, and the contrastive accuracy: the fraction of these embeddings that are closer to the
        other view of their image than to every other embedding and every entry of the dictionary.

    Raises:
        DataError: there is one image only and no dictionary, so that nothing could be told from it, or the views have
            other shapes.
    """
    if dictionary is None or not len(dictionary):
        check_several(first, "NT-Xent")
    if first.shape != second.shape:
        raise DataError(f"NT-Xent needs two views of the same images, got {[*first.shape]} and {[*second.shape]}.")
    count = len(first)
    z = F.normalize(torch.cat([first, second]), dim=1)  # [2B, D]
    queries = z if loss == "both-directions" else z[:count]
    positives = torch.arange(2 * count, device=z.device).roll(count)[: len(queries)]
    logits = queries @ z.T  # [2B or B, 2B]
    if dictionary is not None:
        logits = torch.cat([logits, queries @ dictionary.T], dim=1)  # [.., 2B + K]
    logits = logits / temperature
    others = logits.masked_fill(torch.eye(*logits.shape, dtype=torch.bool, device=z.device), -torch.inf)
    mean, accuracy = classify(others, positives)
    return (F.cross_entropy(logits, positives) if loss == "one-direction" else mean), accuracy


@dataclass(frozen=True, kw_only=True)
class SimCLR(Objective):
    """Settings of SimCLR; ``temperature`` and ``loss`` are those of :func:`nt_xent`."""

    pairs: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    name: str = "simclr"
    projector: tuple[int, ...] = (128,)
    output_norm: str = "none"  # LW-FedSSL's heads have "plain"
    temperature: Temperature = 0.07  # L-DAWA's code; LW-FedSSL has 0.05
    loss: str = "both-directions"  # L-DAWA's code has the other

    def check(self) -> None:
        super().check()
        check_choice("loss", self.loss, LOSSES)

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "SimCLRLearner":
        return SimCLRLearner(self, online, target)


class SimCLRLearner(Learner):
    """Both views through the online model."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, accuracy = nt_xent(*self.outputs(views), self.objective.temperature, self.objective.loss)
        return loss, {"contrastive_accuracy": accuracy}
