"""Supervised learning: cross-entropy of a linear classifier on the pooled features of one augmented view.

What self-supervised methods are compared with: FedAvg and FedProx as their papers have them (McMahan et al., AISTATS
2017; Li et al., MLSys 2020), and training on all images in one place.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone, GlobalPool
from fssl_core.models.heads import MLP
from fssl_core.objectives.base import Learner, Objective, SelfSupervisedModel, classify
from fssl_core.settings import Range


@dataclass(frozen=True, kw_only=True)
class Supervised(Objective):
    """Settings of supervised learning. The classifier stands where other methods have their projector."""

    supervised: ClassVar[bool] = True
    replaced: ClassVar[dict[str, str]] = dict.fromkeys(("projector", "predictor"), "the classifier follows the encoder")

    name: str = "supervised"
    projector: tuple[int, ...] = ()
    classes: Annotated[int, Range(2)] = 10  # of the data set

    def build_model(self, backbone: Backbone, init: torch.Generator) -> SelfSupervisedModel:
        classifier = MLP(backbone.feature_dim, (self.classes,), generator=init)
        return SelfSupervisedModel(nn.Sequential(backbone, GlobalPool()), classifier, nn.Identity())

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "SupervisedLearner":
        return SupervisedLearner(self, online, target)


class SupervisedLearner(Learner):
    """The first view and its labels."""

    def loss(self, views: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy in nats, and the accuracy on this batch."""
        loss, accuracy = classify(self.online(views[0]), labels)
        return loss, {"train_accuracy": accuracy}
