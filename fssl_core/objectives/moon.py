"""MOON: supervised learning whose embeddings stay near the global model's, and leave those of one's own last model.

Li, He and Song, "Model-contrastive federated learning", CVPR 2021, Section 3.3 and Algorithm 1. Of an image x, with z
its embedding by the model in training, z_glob by the global model of the round and z_prev by the client's last model:

    l_con = -log exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau))      (Eq. 3)
    l     = l_sup + mu * l_con                                                                            (Eq. 4)

The network is encoder, projection head (two layers, no batch norm) and output layer; the output layer reads the
embedding, and the cosine compares embeddings. As in the authors' code, the two other models see the same augmented
images as the one in training and are in evaluation mode.

Differs: a client that has no last model takes the global model for it, so that its contrast is log 2 and has no
gradient; the authors' code takes the networks' first values.

Who keeps the last models: :mod:`fssl_core.training.moon`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone
from fssl_core.models.heads import MLP
from fssl_core.objectives.base import Learner, Objective, SelfSupervisedModel, classify
from fssl_core.settings import NonNegative, Range, Temperature


@in_full_precision
def moon_loss(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float) -> Tensor:
    """The model-contrastive loss (Eq. 3), averaged over the batch; no gradient reaches the other two models.

    Args:
        z, z_global, z_previous: embeddings of the same images, ``[B, D]`` each; they need not be unit vectors.
        temperature: tau, above 0.

    Returns:
        a scalar in nats; log 2 where the two other models are one.
    """
    similarities = [F.cosine_similarity(z, other.detach(), dim=1) / temperature for other in (z_global, z_previous)]
    return F.cross_entropy(torch.stack(similarities, 1), torch.zeros(len(z), dtype=torch.int64, device=z.device))


@dataclass(frozen=True, kw_only=True)
class Moon(Objective):
    """Settings of MOON.

    Args:
        classes: of the data set.
        contrast_weight: mu.
        temperature: tau of :func:`moon_loss`.
    """

    supervised: ClassVar[bool] = True
    replaced: ClassVar[dict[str, str]] = {"predictor": "the output layer follows the projection head"}

    name: str = "moon"
    projector: tuple[int, ...] = (512, 256)  # 256: Section 4.1; the hidden one is as wide as ResNet-18's features
    head_norm: bool = False
    classes: Annotated[int, Range(2)] = 10
    contrast_weight: NonNegative = 5.0  # Section 4.1: 5 on CIFAR-10, 1 on CIFAR-100 and Tiny-ImageNet
    temperature: Temperature = 0.5

    def check(self) -> None:
        super().check()
        if not self.projector:
            raise SettingError("projector", self.projector, "the width of at least one layer")

    def build_model(self, backbone: Backbone, init: torch.Generator) -> SelfSupervisedModel:
        model = super().build_model(backbone, init)
        model.predictor = MLP(self.projector[-1], (self.classes,), generator=init)
        return model

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "MoonLearner":
        return MoonLearner(self, online, target)


class MoonLearner(Learner):
    """The first view and its labels.

    Attributes:
        references: the global model of the round and the client's last one, frozen; set by the trainer.
    """

    references: tuple[SelfSupervisedModel, SelfSupervisedModel] | None = None

    def loss(self, views: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Eq. 4 in nats, the accuracy on this batch, and Eq. 3.

        Raises:
            SettingError: the trainer keeps no clients' models to contrast with.
        """
        o = self.objective
        z = self.online.embed(views[0])  # [B, D]
        loss, accuracy = classify(self.online.predictor(z), labels)
        figures = {"train_accuracy": accuracy}
        if not o.contrast_weight:
            return loss, figures
        if self.references is None:
            raise SettingError("objective", o.name, "an objective of federated averaging; this one needs MoonSettings")
        with torch.no_grad():
            others = [model.embed(views[0]) for model in self.references]
        contrast = moon_loss(z, *others, o.temperature)
        return loss + o.contrast_weight * contrast, figures | {"contrast": contrast.detach()}
