"""Every objective at work on one small client, without an engine."""

import torch

from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone
from fssl_core.objectives import OBJECTIVES, Objective
from fssl_core.random import generator

HEADS = {"projector": (24, 16), "predictor": (32, 16)}
SMALL = {
    "moco-v2": {"projector": (24, 16), "queue_size": 16},
    "byol": HEADS,
    "simclr": {"projector": (16,)},
    "barlow-twins": {"projector": (16,)},
    "simsiam": HEADS,
    "moco-v3": HEADS,
    "fedca": {"projector": (16,)},
    "orchestra": {
        "projector": (24, 16),
        "local_clusters": 4,
        "global_clusters": 6,
        "memory_size": 16,
        "views": 2,
        "output_norm": "none",
    },
    "supervised": {"classes": 4},
}


def small(name: str, **values) -> Objective:
    return OBJECTIVES[name](**SMALL[name] | values)


class Client:
    """A learner with the matrices that it works on, of float64."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        backbone = build_backbone("resnet10", width=8, norm="batch", image_size=8, generator=generator(0, "backbone"))
        self.model = objective.build_model(backbone, generator(0, "heads")).double()
        self.online = ClientMatrix(self.model, 1).requires_grad_()
        target = objective.build_target(self.model)
        self.target = None if target is None else ClientMatrix(target, 1)
        self.learner = objective.learner(self.online, self.target)
        if objective.shares:  # as before the first round
            self.learner.receive(objective.pool({}, {}, generator(0, "pool")), 0)

    def loss(self, views: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of some views; a supervised one with the labels 0, 1, 2, 3, 0, 1, ..."""
        labels = [torch.arange(views.shape[1]) % 4] if self.objective.supervised else []
        return self.learner.loss(views, *labels)

    def train(self, batches: list[torch.Tensor], learning_rate: float) -> list[float]:
        """Plain SGD; the loss before each step."""
        losses = []
        for views in batches:
            loss, _ = self.loss(views)
            loss.backward()
            with torch.no_grad():
                self.online.weights -= learning_rate * self.online.weights.grad
            self.online.weights.grad.zero_()
            self.learner.after_step()
            losses.append(loss.item())
        return losses


def two_views(batch: int = 8, seed: int = 0, noise: float = 0.3) -> torch.Tensor:
    """Blurred noise as images, and more noise on each view: ``[2, batch, 3, 8, 8]``."""
    random = generator(seed, "views")
    images = torch.randn(batch, 3, 2, 2, generator=random, dtype=torch.float64).repeat_interleave(4, 2)
    images = images.repeat_interleave(4, 3)
    return images + noise * torch.randn(2, *images.shape, generator=random, dtype=torch.float64)


def embeddings(count: int = 6, dim: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, generator=generator(seed, "embeddings"), dtype=torch.float64)
