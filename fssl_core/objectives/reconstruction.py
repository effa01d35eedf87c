"""Reconstruction: an auto-encoder gives each augmented view back. MFCL's objective for the clients (phase 1).

Motamedi and Kim, "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients",
Section 2.1, Eq. 1: ``L(A(x), g(f(A(x))))`` with client module f, decoder g and augmentation A. Both views of K images
are one batch of 2K, all first views and then all second views (Fig. 2): twin norm normalises the two together.

The loss compares pixels in [0, 1], so the images must not be normalised:
:class:`~fssl_core.training.modular.AutoencoderSettings` sees to that.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone, GlobalPool
from fssl_core.objectives.base import Learner, Objective
from fssl_core.settings import check_choice

SATURATED = 1e-7  # values nearer to 0 or 1 count as this far from them, as in Keras, which the paper uses


def binary_cross_entropy(reconstructed: Tensor, images: Tensor) -> Tensor:
    """Mean over pixels in nats; of images that are not black and white its least value is above 0.

    PyTorch's own stops the program where a value is NaN; from this one a NaN comes back.

    Args:
        reconstructed: in [0, 1], of any shape.
        images: likewise.
    """
    x = reconstructed.clamp(SATURATED, 1 - SATURATED)
    return -(images * x.log() + (1 - images) * (1 - x).log()).mean()


LOSSES = {"bce": binary_cross_entropy, "mse": F.mse_loss}


class Autoencoder(nn.Module):
    """Client module and decoder; with the features that stand for an image when it is evaluated.

    Args:
        client_module: images ``[B, C, H, W]`` in [0, 1] to maps ``[B, c, h, w]``.
        decoder: maps to images in (0, 1).

    Attributes:
        encoder: the client module, and a mean over its maps: to features ``[B, c]``.
    """

    def __init__(self, client_module: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(client_module, GlobalPool()), decoder

    @property
    def client_module(self) -> nn.Module:
        return self.encoder[0]

    def forward(self, images: Tensor) -> Tensor:
        return self.decoder(self.client_module(images))


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective):
    """Settings of the objective; it has neither projector nor predictor.

    Args:
        loss: mean over pixels of the binary cross-entropy in nats (``"bce"``, Appendix B.2.2, for the module of
            ResNet-18), or of the squared error (``"mse"``, named in Section 2.1).
    """

    pairs: ClassVar[bool] = True
    replaced: ClassVar[dict[str, str]] = dict.fromkeys(
        ("projector", "predictor"), "the decoder follows the client module"
    )

    name: str = "reconstruction"
    projector: tuple[int, ...] = ()
    loss: str = "bce"

    def check(self) -> None:
        super().check()
        check_choice("loss", self.loss, LOSSES)

    def build_model(self, backbone: Backbone, init: torch.Generator) -> nn.Module:
        raise SettingError("objective", self.name, "another one, or AutoencoderSettings, whose models have a decoder")

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "ReconstructionLearner":
        return ReconstructionLearner(self, online, target)


class ReconstructionLearner(Learner):
    """All views of a batch through an :class:`Autoencoder`, in one call."""

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the squared error of a pixel (``squared_error``) whichever loss it is.

        Args:
            views: two views of each image in [0, 1], ``[2, K, C, H, W]``.
        """
        images = views.flatten(0, 1)  # [2K, C, H, W]: B^m of Section 2.1
        reconstructed = self.online(images)
        with torch.autocast(images.device.type, enabled=False):  # 1 - x needs all digits
            reconstructed = reconstructed.to(images.dtype)
            loss = LOSSES[self.objective.loss](reconstructed, images)
            return loss, {"squared_error": F.mse_loss(reconstructed.detach(), images)}
