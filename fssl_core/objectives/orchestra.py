"""Orchestra: images find the cluster that a slow copy of the model sees them in; the clusters are the federation's.

Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022,
arXiv:2205.11506; a baseline of MFCL (Table 2). Every client has a memory of the latest unit projections by its target
branch. When it has trained, it clusters them into ``local_clusters`` of equal size and sends their centroids, the only
thing that leaves it besides the model. The server clusters the centroids of all clients into ``global_clusters`` C of
equal size, which clients receive. With z of the online and z' of the target branch, unit vectors of two views x, x',
the local loss is

    - sum_g p_g(z') log p_g(z)  +  cross-entropy of the rotation,      p(z) = softmax(C z / tau)

The second term keeps the first from its trivial solution, one cluster for everything: a linear layer on the projection
tells by how many quarter turns a view was rotated.

Equal size is that of Sinkhorn and Knopp's iteration: a table of assignments in which each point counts once and each
cluster gets the same share (:func:`sinkhorn`).

The defaults are those of the authors' code (akhilmathurs/orchestra), as MFCL states none: also the batch norm without
scale and shift that ends the head, a rotated view of its own, and a round before the first one in which clients do not
train and send the centroids of what the untrained model makes of their images. Three settings undo them:
``output_norm="none"``, ``views=2``, by which the second view is rotated, and ``start="random"``, by which the server
sends random unit vectors at first.

Differs from that code:

- Both clusterings are the same balanced spherical k-means, :func:`balanced_k_means`: a point goes to the cluster with
  the largest Sinkhorn assignment, a centroid becomes the unit mean of its points, one without points stays. On the
  server the code follows a gradient instead, in 500 steps (Genevay et al., "Differentiable deep clustering with cluster
  size constraints", 2019), and on a client it makes 5 iterations of k-means, of 10 of Sinkhorn's each; here 10 and 100.
  The server's clustering starts from its last centroids, as there.
- The image at place b of a batch is turned by b quarter turns, which is balanced, and random as batches are shuffled;
  there each image's turn is drawn.
- A client's memory goes on from round to round; in the code's simulation it starts with random weights in each.
- The target branch is what the engine's ``target_at_start`` says, a client's own or a copy of the global model; targets
  are not averaged. Its EMA follows after each step, in the code before the target is asked.
- Layer by layer, what is rotated is the output of the frozen layers, not the image.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.errors import DataError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import Backbone
from fssl_core.models.heads import MLP
from fssl_core.objectives.base import Learner, Objective, SelfSupervisedModel, classify
from fssl_core.objectives.moco import KeyQueue
from fssl_core.settings import Range, Temperature, added, check_choice, check_range

SHARPNESS = 25.0  # of similarities, before they are balanced
SINKHORN_ITERATIONS = 100
CLUSTERING_ITERATIONS = 10
ANGLES = 4  # quarter turns
STARTS = ("clusters", "random")


def sinkhorn(similarities: Tensor) -> Tensor:
    """Balanced soft assignments of points to clusters by the iteration of Sinkhorn and Knopp.

    Args:
        similarities: cosines of N points with K centroids, ``[N, K]``.

    Returns:
        ``[N, K]``, not negative: rows sum to 1, and columns, when it has converged, to ``N / K``.
    """
    points, clusters = similarities.shape
    p = (SHARPNESS * similarities).softmax(1)
    for _ in range(SINKHORN_ITERATIONS):
        p = p / p.sum(0) * (points / clusters)
        p = p / p.sum(1, keepdim=True)
    return p


@in_full_precision
def balanced_k_means(points: Tensor, centroids: Tensor) -> Tensor:
    """Spherical k-means with clusters of about equal size.

    Args:
        points: unit vectors, ``[N, D]``.
        centroids: unit vectors to start from, ``[K, D]``.

    Returns:
        centroids, ``[K, D]``: the unit mean of each cluster's points; as before where a cluster has none.
    """
    for _ in range(CLUSTERING_ITERATIONS):
        members = F.one_hot(sinkhorn(points @ centroids.T).argmax(1), len(centroids)).to(points)  # [N, K]
        means = F.normalize(members.T @ points, dim=1)  # not index_add_, whose sums have no fixed order on a GPU
        centroids = torch.where(members.any(0)[:, None], means, centroids)
    return centroids


@in_full_precision
def cluster_loss(z: Tensor, targets: Tensor, centroids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the online model's clusters with those of the target branch, averaged over the batch.

    Args:
        z, targets: embeddings of the same images by the two branches, ``[B, D]``; they need not be unit vectors.
            Targets get no gradient.
        centroids: unit vectors, ``[G, D]``.
        temperature: tau, above 0.

    Returns:
        the mean loss in nats, and the fraction of images for which both branches prefer the same cluster.
    """
    logits, target_logits = (F.normalize(x, dim=1) @ centroids.T / temperature for x in (z, targets.detach()))  # [B, G]
    agreement = (logits.detach().argmax(1) == target_logits.argmax(1)).float().mean()
    return F.cross_entropy(logits, target_logits.softmax(1)), agreement


def rotated(images: Tensor) -> tuple[Tensor, Tensor]:
    """Image b turned by ``b % 4`` quarter turns, ``[B, C, H, W]``, and these numbers, int64 ``[B]``.

    Raises:
        DataError: they are not square.
    """
    if images.shape[-1] != images.shape[-2]:
        raise DataError(f"Orchestra rotates square images, got {list(images.shape[-2:])} pixels: resize them.")
    turned = torch.empty_like(images)
    for quarters in range(ANGLES):
        turned[quarters::ANGLES] = images[quarters::ANGLES].rot90(quarters, dims=(-2, -1))
    return turned, torch.arange(len(images), device=images.device) % ANGLES


@dataclass(frozen=True, kw_only=True)
class Orchestra(Objective):
    """Settings of Orchestra.

    Args:
        temperature: tau of :func:`cluster_loss`.
        local_clusters: centroids that a client sends.
        global_clusters: G, centroids that it receives.
        memory_size: latest projections that a client clusters.
        views: 3: what is rotated is a view of its own; 2: the online model's.
        start: of the global centroids: ``"clusters"`` of the untrained model's projections, or ``"random"``.
    """

    has_target: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    replaced: ClassVar[dict[str, str]] = {"predictor": "the layer that tells rotations is in its place"}

    name: str = "orchestra"
    projector: tuple[int, ...] = (512, 512)
    ema_decay: float = 0.996
    temperature: Temperature = 0.1
    local_clusters: Annotated[int, Range(2)] = 16
    global_clusters: Annotated[int, Range(2)] = 128
    memory_size: Annotated[int, Range(2)] = 128
    output_norm: str = added("plain", before="none")
    views: int = added(3, before=2)
    start: str = added("clusters", before="random")

    @property
    def begins(self) -> bool:
        return self.start == "clusters"

    def check(self) -> None:
        super().check()
        check_choice("views", self.views, (2, 3))
        check_choice("start", self.start, STARTS)
        check_range("local_clusters", self.local_clusters, 2, self.memory_size)

    def build_model(self, backbone: Backbone, init: torch.Generator) -> SelfSupervisedModel:
        model = super().build_model(backbone, init)
        model.predictor = MLP(self.projector[-1], (ANGLES,), generator=init)
        return model

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "OrchestraLearner":
        return OrchestraLearner(self, online, target)

    def pool(
        self, contributions: dict[int, dict[str, Tensor]], before: dict[str, Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """``centroids``, the global ones ``[G, D]``; random before the first round."""
        if not contributions:
            random = torch.randn(self.global_clusters, self.projector[-1], generator=generator)
            return {"centroids": F.normalize(random, dim=1)}
        local = torch.cat([sent["centroids"] for sent in contributions.values()])
        return {"centroids": balanced_k_means(local, before["centroids"].to(local))}


class OrchestraLearner(Learner):
    """First view by the target branch, second view and a rotated one by the online model.

    Attributes:
        centroids: the global ones, ``[G, D]``.
        memory: the latest unit projections by the target branch.
    """

    def __init__(self, objective: Orchestra, online: ClientMatrix, target: ClientMatrix) -> None:
        super().__init__(objective, online, target)
        like = online.weights
        self.memory = KeyQueue(objective.memory_size, objective.projector[-1], device=like.device, dtype=like.dtype)
        self.centroids: Tensor | None = None

    def receive(self, pooled: dict[str, Tensor], client: int) -> None:
        self.centroids = pooled["centroids"].to(self.memory.keys)

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            self._targets = F.normalize(self.target(views[0]), dim=1)
        z = self.online.embed(views[1])
        clusters, agreement = cluster_loss(z, self._targets, self.centroids, self.objective.temperature)
        turned, quarters = rotated(views[-1])
        rotation, accuracy = classify(self.online.predictor(self.online.embed(turned)), quarters)
        figures = {"cluster_loss": clusters.detach(), "cluster_agreement": agreement, "rotation_accuracy": accuracy}
        return clusters + rotation, figures

    def begin(self, batches: Iterable[Tensor]) -> None:
        """Fill the memory with projections by the target branch."""
        for views in batches:
            if len(self.memory) == self.objective.memory_size:
                break
            self.memory.push(F.normalize(self.target(views[0]), dim=1)[: self.objective.memory_size - len(self.memory)])

    def after_step(self) -> None:
        self.memory.push(self._targets)
        self.follow()

    def contribution(self, batches: Iterable[Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        """``centroids``, the local ones ``[local_clusters, D]``, of what the memory holds.

        Raises:
            DataError: it holds fewer projections than there are to be clusters.
        """
        points, clusters = self.memory.keys, self.objective.local_clusters
        if len(points) < clusters:
            raise DataError(
                f"Orchestra makes {clusters} local clusters of a client's last projections, of which there are only "
                f"{len(points)}: lower local_clusters, or give clients more images or local epochs."
            )
        start = torch.randperm(len(points), generator=generator)[:clusters].to(points.device)
        return {"centroids": balanced_k_means(points, points[start])}

    def initial_state(self, generator: torch.Generator) -> dict[str, Any]:
        return {"memory": torch.zeros_like(self.memory.state_dict()["memory"]), "pushed": 0}

    def state_dict(self) -> dict[str, Any]:
        return copy.deepcopy(self.memory.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
