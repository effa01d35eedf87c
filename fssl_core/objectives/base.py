"""What every self-supervised objective consists of: networks, a loss of two views, and what it remembers.

An objective is a value (:class:`Objective`, frozen settings); at work on one client's model it is a :class:`Learner`.
A file of its own holds each method: its loss, its defaults, its target branch if it has one.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone, GlobalPool
from fssl_core.models.heads import MLP
from fssl_core.settings import Settings, check_choice, check_range


class SelfSupervisedModel(nn.Module):
    """Encoder, projection head and, in some methods, a predictor; a client's whole model.

    Args:
        encoder: images ``[B, C, H, W]`` to features ``[B, D]``.
        projector: features to embeddings.
        predictor: embeddings to embeddings; the identity in most methods.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module, predictor: nn.Module) -> None:
        super().__init__()
        self.encoder, self.projector, self.predictor = encoder, projector, predictor  # a target has the first two

    def forward(self, images: Tensor) -> Tensor:
        return self.predictor(self.projector(self.encoder(images)))


@dataclass(frozen=True, kw_only=True)
class Objective(Settings):
    """Settings of a method.

    Args:
        name: of the method; there to be stored with a run.
        projector: widths of the projection head's layers, the last one being the embedding's.
        predictor: likewise of the predictor; empty: none.
        head_norm: batch norm in the hidden layers of both heads.
        ema_decay: of the target branch, where there is one.
    """

    has_target: ClassVar[bool] = False  # a second encoder and projector that follow the first ones

    name: str = ""
    projector: tuple[int, ...] = (4096, 2048)
    predictor: tuple[int, ...] = ()
    head_norm: bool = True
    ema_decay: float = 0.99

    def check(self) -> None:
        check_choice("name", self.name, [type(self).__dataclass_fields__["name"].default])
        for name in ("projector", "predictor"):
            for width in getattr(self, name):
                check_range(name, width, 1)
        check_range("ema_decay", self.ema_decay, 0, 1)

    def build_model(self, backbone: Backbone, init: torch.Generator) -> SelfSupervisedModel:
        """The online model, on the CPU, its heads with first values from ``init``."""
        projector = MLP(backbone.feature_dim, self.projector, batch_norm=self.head_norm, generator=init)
        predictor: nn.Module = nn.Identity()
        if self.predictor:
            predictor = MLP(self.projector[-1], self.predictor, batch_norm=self.head_norm, generator=init)
        return SelfSupervisedModel(nn.Sequential(backbone, GlobalPool()), projector, predictor)

    def build_target(self, model: SelfSupervisedModel) -> nn.Module | None:
        """The target branch, a copy of encoder and projector; None for methods without."""
        return copy.deepcopy(nn.Sequential(model.encoder, model.projector)) if self.has_target else None

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "Learner":
        """The objective at work on a model: matrices of one row each, ``online`` with room for gradients."""
        raise NotImplementedError


class Learner(ABC):
    """An objective at work on one model. One learner serves all clients in turn: see :meth:`load_state_dict`.

    Args:
        objective: its settings.
        online: the model, a matrix of one row with room for gradients.
        target: encoder and projector of the target branch, a matrix of one row.
    """

    def __init__(self, objective: Objective, online: ClientMatrix, target: ClientMatrix | None) -> None:
        self.objective = objective
        self._online, self._target = online, target
        self.online = online.module()
        self.target = None if target is None else target.module()

    @abstractmethod
    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and figures worth logging, all scalars.

        Args:
            views: two normalised views of each image, ``[2, B, C, H, W]``.
        """

    def after_step(self) -> None:  # noqa: B027  (most have nothing to do)
        """Called when the optimiser has moved the online model."""

    def follow(self) -> None:
        """The target's parameters move towards the online ones: ``target = m * target + (1 - m) * online``."""
        online = self._online.weights.detach()[: self._target.parameters]  # encoder and projector come first
        self._target.weights.lerp_(online, 1 - self.objective.ema_decay)

    def initial_state(self, generator: torch.Generator) -> dict[str, Any]:
        """What a client remembers besides models, before its first step."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a client remembers besides models; copies."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on as the client that this is the state of."""
