"""What every self-supervised objective consists of: networks, a loss of two views, and what it remembers.

An objective is a value (:class:`Objective`, frozen settings); at work on one client's model it is a :class:`Learner`.
A file of its own holds each method: its loss, its defaults, its target branch if it has one.

Some methods exchange more than the model; the engine carries it, and counts its bytes. FedCA and Orchestra set
:attr:`Objective.shares`: a client that has trained sends its :meth:`Learner.contribution`, the server makes something
for everybody of them (:meth:`Objective.pool`), and a client gets that before it trains (:meth:`Learner.receive`). FedCA
may have public images besides (:meth:`Objective.public`), whose wanted representations a client gets once
(:meth:`Learner.align`).
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import launches_kernels
from fssl_core.errors import DataError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone, GlobalPool, needs_pairs, uses_batch_statistics
from fssl_core.models.heads import MLP, OUTPUT_NORMS
from fssl_core.settings import Count, Settings, Share, check_choice, check_own_name


def classify(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy, and the fraction that is right; contrastive losses tell which column is the positive.

    Args:
        logits: ``[N, K]``; one of -inf takes its column out.
        classes: the right column of each row, int64 ``[N]``.

    Returns:
        the mean loss in nats, and the accuracy, both scalars.
    """
    return F.cross_entropy(logits, classes), (logits.detach().argmax(1) == classes).float().mean()


def check_several(embeddings: Tensor, method: str) -> None:
    """Raise :class:`DataError` where a batch ``[B, ...]`` has one image: a loss that compares images would be 0."""
    if len(embeddings) < 2:
        raise DataError(
            f"{method} needs at least 2 images in a batch, got {len(embeddings)}: choose a larger batch, or a "
            "partition that gives every client more images."
        )


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

    def embed(self, images: Tensor) -> Tensor:
        """What comes before the predictor, ``[B, D]``."""
        return self.projector(self.encoder(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.predictor(self.embed(images))


@dataclass(frozen=True, kw_only=True)
class Objective(Settings, ABC):
    """Settings of a method.

    Args:
        name: of the method; there to be stored with a run.
        projector: widths of the projection head's layers, the last one being the embedding's.
        predictor: likewise of the predictor; empty: none.
        head_norm: batch norm in the hidden layers of both heads.
        ema_decay: of the target branch, where there is one.
    """

    has_target: ClassVar[bool] = False  # a second encoder and projector that follow the first ones
    supervised: ClassVar[bool] = False  # the loss needs labels: see Learner.loss
    pairs: ClassVar[bool] = False  # a model sees both views in one batch where it needs to: see Learner.outputs
    compares: ClassVar[bool] = False  # the loss compares the images of a batch with one another
    shares: ClassVar[bool] = False  # clients exchange something made of their images beside the model: see pool
    begins: ClassVar[bool] = False  # clients send something before they train for the first time: see Learner.begin
    replaced: ClassVar[dict[str, str]] = {}  # heads that cannot be set, and what there is instead
    # A method may make a setting of these. Were they settings of all methods, stored runs would change their names.
    output_norm: ClassVar[str] = "none"  # batch norm at the projector's end: "none", "affine", "plain"; see MLP
    output_bias: ClassVar[bool] = True  # the heads' last layers have a bias where no batch norm follows
    views: ClassVar[int] = 2  # of an image in a step

    name: str = ""
    projector: tuple[Count, ...] = (4096, 2048)
    predictor: tuple[Count, ...] = ()
    head_norm: bool = True
    ema_decay: Share = 0.99

    def check(self) -> None:
        check_own_name(self)
        for head, instead in self.replaced.items():
            if getattr(self, head):
                raise SettingError(head, getattr(self, head), f"(): {instead}")
        if not (self.projector or self.supervised or "projector" in self.replaced):
            raise SettingError("projector", self.projector, "the width of at least one layer")
        if self.predictor and self.predictor[-1:] != self.projector[-1:]:
            expected = f"widths that end like those of projector={self.projector!r}, whose embeddings it predicts"
            raise SettingError("predictor", self.predictor, expected)
        check_choice("output_norm", self.output_norm, OUTPUT_NORMS)

    @property
    def smallest_batch(self) -> int:
        """Images that a step needs: two where the loss compares images, or a head normalises by the batch."""
        hidden = self.head_norm and max(len(self.projector), len(self.predictor)) > 1
        return 2 if self.compares or hidden or self.output_norm != "none" else 1

    def build_model(self, backbone: Backbone, init: torch.Generator) -> SelfSupervisedModel:
        """The online model, on the CPU, its heads with first values from ``init``."""
        options = {"batch_norm": self.head_norm, "output_bias": self.output_bias, "generator": init}
        projector = MLP(backbone.feature_dim, self.projector, output_norm=self.output_norm, **options)
        predictor: nn.Module = nn.Identity()
        if self.predictor:
            predictor = MLP(self.projector[-1], self.predictor, **options)
        return SelfSupervisedModel(nn.Sequential(backbone, GlobalPool()), projector, predictor)

    def build_target(self, model: SelfSupervisedModel) -> nn.Module | None:
        """The target branch, a copy of encoder and projector; None for methods without."""
        return copy.deepcopy(nn.Sequential(model.encoder, model.projector)) if self.has_target else None

    @abstractmethod
    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "Learner":
        """The objective at work on a model: matrices of one row each, ``online`` with room for gradients."""

    def pool(
        self, contributions: dict[int, dict[str, Tensor]], before: dict[str, Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """What the server makes of the contributions of a round for the clients of the next one.

        Args:
            contributions: by client, ascending; empty before the first round.
            before: what it had made for this round; empty before the first.
            generator: for what is random in it.

        Returns:
            tensors by name; none: clients receive nothing.
        """
        return {}

    def public(self, settings: Settings, data: Dataset, run: Any) -> tuple[Tensor, Tensor] | None:
        """Images that every client has, and the representations that clients learn to give them; None: no such.

        Args:
            settings: of the federation.
            data: its images.
            run: gives access to runs that this one builds on; None where there is no such access.

        Returns:
            images ``[P, C, H, W]``, normalised as those of ``data``, and representations ``[P, D]``, which a client
            receives once.
        """
        return None


class Learner(ABC):
    """An objective at work on one model. One learner serves all clients in turn: see :meth:`load_state_dict`.

    Args:
        objective: its settings.
        online: the model, a matrix of one row with room for gradients.
        target: encoder and projector of the target branch, a matrix of one row.

    Attributes:
        together: whether all views of a batch go through the encoder in one call: what comes out is the same.
    """

    def __init__(self, objective: Objective, online: ClientMatrix, target: ClientMatrix | None) -> None:
        self.objective = objective
        self._online, self._target = online, target
        self.online = online.module()
        self.target = None if target is None else target.module()
        self._pairs = needs_pairs(self.online)
        # One call for all views saves a GPU half of its launches, which take longer than small kernels do.
        self.together = launches_kernels(online.weights.device) and not uses_batch_statistics(self.online.encoder)

    @abstractmethod
    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and figures worth logging, all scalars.

        The learner of a supervised objective takes labels, too, int64 ``[B]``: ``loss(views, labels)``.

        Args:
            views: normalised views of each image, ``[views, B, C, H, W]``; two, unless the objective says otherwise.
        """

    def outputs(self, views: Tensor) -> list[Tensor]:
        """The online model's output of each view, ``[B, D]``: view by view, as batch norm must not mix them.

        Twin norm needs both views in one batch. Batch norm behind it then sees both, too, as in SimCLR's own code.
        """
        return self._each(self.online, views)

    @torch.no_grad()
    def targets(self, views: Tensor) -> list[Tensor]:
        """The target branch's embedding of each view, ``[B, D]``, without gradient."""
        return self._each(self.target, views)

    def _each(self, model: nn.Module, views: Tensor) -> list[Tensor]:
        if self._pairs:
            return list(model(views.flatten(0, 1)).chunk(2))
        if not self.together:
            return [model(view) for view in views]
        encoder, *heads = model.children()  # heads may have batch norm
        return [nn.Sequential(*heads)(features) for features in encoder(views.flatten(0, 1)).chunk(len(views))]

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

    def receive(self, pooled: dict[str, Tensor], client: int) -> None:  # noqa: B027
        """Take over what :meth:`Objective.pool` made, as the client of this number, before its local training."""

    def align(self, images: Tensor, representations: Tensor) -> None:  # noqa: B027
        """Take over what :meth:`Objective.public` gave, images as the model in training sees them."""

    def begin(self, batches: Iterable[Tensor]) -> None:  # noqa: B027
        """See images before the first round, for the first contribution; called without gradients.

        Batch norm's running statistics may change: the client takes over the global model again when it trains.
        """

    def contribution(self, batches: Iterable[Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        """What the client sends beside its model when it has trained; called without gradients.

        Args:
            batches: of the last local epoch, as :meth:`loss` had them; made when they are asked for.
            generator: for what is random in it.

        Returns:
            tensors by name, in the precision of the model.
        """
        return {}
