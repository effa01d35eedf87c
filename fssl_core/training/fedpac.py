"""FedPAC: features aligned by class, and a classifier for each client, on the averaging engine.

Xu, Tong and Huang, "Personalized federated learning with feature alignment and classifier collaboration", ICLR 2023,
Algorithm 1. A model is a feature extractor f and a linear classifier g. In each round a client

1. receives the global extractor, its own combined classifier and the global centroids c of the classes, and measures by
   that extractor how its features are distributed (:mod:`fssl_core.federation.classifiers`),
2. trains the classifier for ``classifier_epochs``, the extractor fixed; then the extractor for ``local_epochs``, the
   classifier fixed, by cross-entropy and ``alignment * |f(x) - c_y|^2 / D``,
3. sends both, its centroids by the new extractor, and what it has measured.

The server averages extractors weighted by images and centroids weighted by images of the class, and combines for each
client the classifiers of all. Before there are global centroids nothing is aligned; a class that they lack is aligned
with the client's own centroid from before its training.

The method is for clients that are tested on classes like their own: ``client_accuracy`` is the mean over clients of
the accuracy of the global extractor with the client's classifier, the test set weighted as the client's classes are.
MFCL puts one number beside global models, without saying which it is; ``test_accuracy`` is that of the average
extractor with the average classifier.

Features are measured as training sees them, normalised by batches of the client's images: by running statistics, which
lag behind, centroids of a young network are far from the features that they should hold, and training diverges. (The
authors' networks have no normalisation.)

As in the authors' code: the squared distance is a mean over the features' D numbers; the classifier has a learning rate
of its own. Differs: momentum 0.9 and not 0.5, as all methods here; weights below 1e-3 are not cut off; a client that
takes part for the first time starts from the average classifier. With no alignment, ``classifier_epochs`` 0 (both are
trained together) and a shared classifier this is FedAvg to the bit, but for what is measured and sent for it.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import in_full_precision
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.federation.aggregation import SHARES, Round
from fssl_core.federation.classifiers import combination_weights, feature_statistics
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives import SelfSupervisedModel
from fssl_core.objectives.base import classify
from fssl_core.random import generator
from fssl_core.settings import NonNegative, Whole, check_choice
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.labelled import LabelledSettings

CLASSIFIERS = ("combined", "shared")


@dataclass(frozen=True, kw_only=True)
class FedPacSettings(LabelledSettings):
    """Everything that decides the result of one run.

    Defaults: of the method those of the authors' code; the rest those of :class:`LabelledSettings`, where
    ``local_epochs`` and ``learning_rate`` are the extractor's.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again
    method: ClassVar[str] = "FedPAC"

    alignment: NonNegative = 1.0  # lambda; 0: none
    classifier_epochs: Whole = 1  # 0: classifier and extractor are trained together
    classifier_rate: NonNegative = 0.1
    classifiers: str = "combined"  # for each client; or "shared": all clients start from the average

    def check(self) -> None:
        super().check()
        check_choice("classifiers", self.classifiers, CLASSIFIERS)
        check_choice("aggregation", self.aggregation, SHARES)
        check_choice("client_update", self.client_update.name, ["replace"])
        if self.proximal and self.classifier_epochs:  # it would pull at the part that is fixed
            raise SettingError("proximal", self.proximal, "0, unless classifier_epochs is 0")

    @property
    def passes(self) -> int:
        return self.classifier_epochs + self.local_epochs

    def trainer(self, data: Dataset, run) -> "FedPacTrainer":
        return FedPacTrainer(self, data, run)


@in_full_precision
def centroid_distance(features: Tensor, centroids: Tensor) -> Tensor:
    """``|f - c|^2 / D``, averaged over a batch: ``[B, D]`` each to a scalar."""
    return F.mse_loss(features, centroids)


class FedPacTrainer(AveragingTrainer):
    """Trains one federation; see :class:`AveragingTrainer`.

    Attributes:
        classifiers: of each client, the one that the server combined for it when it last took part.
        centroids: of the classes, ``[C, D]`` on the CPU, NaN as long as there is none; None after no round.
    """

    stays: ClassVar[tuple[str, ...]] = (*AveragingTrainer.stays, "classifiers")
    compares_models: ClassVar[bool] = True  # classifiers are combined for each client

    def federate(self, model: SelfSupervisedModel) -> None:
        super().federate(model)
        s = self.settings
        self.classifiers = self.waiting(model.projector) if s.classifiers == "combined" else None
        self.centroids: Tensor | None = None
        size = sum(value.numel() for value in model.encoder.parameters())
        self.of_extractor, self.of_classifier = map(self._of_part, (slice(0, size), slice(size, None)))

    def _of_part(self, span: slice) -> torch.optim.SGD:
        """The optimiser of a part of the model in training, whose numbers, gradients and velocity it shares."""
        part = nn.Parameter(self.worker.weights.detach()[span])
        part.grad = self.worker.weights.grad[span]
        return self.settings.sgd_of(part, self.velocity.weights.detach()[span])

    # ---------------------------------------------------------------- a client

    def load(self, client: int) -> None:
        super().load(client)
        s = self.settings
        if self.classifiers is not None and self.memory[client]["rounds"]:
            for name in self.classifiers.parameter_names:
                self.worker.blocks[f"projector.{name}"].copy_(self.classifiers.select(name, [client]))
        summary = self.statistics(client, 0) if s.alignment or self.classifiers is not None else {}
        if self.classifiers is not None:
            self.memory[client]["summary"] = {name: summary[name] for name in ("shares", "variance")}
        self._wanted = None  # centroids for the client that is training, [C, D]
        if self.centroids is not None:
            self._exchange({"centroids": self.centroids}, "down", client)
            lacks = self.centroids.isnan().any(1, keepdim=True)
            self._wanted = torch.where(lacks, summary["centroids"], self.centroids).to(self.device)

    @torch.no_grad()
    def statistics(self, client: int, when: int) -> dict[str, Tensor]:
        """:func:`feature_statistics` of a client's images by the model in training, not augmented; on the CPU.

        Args:
            client: whose images.
            when: 0 before its training, 1 after it.
        """
        s, part = self.settings, self.parts[client]
        order = torch.randperm(len(part), generator=generator(s.seed, "measure", self.finished, client, when))
        part = part[order].to(self.device)
        encoder = copy.deepcopy(self.learner.online.encoder).train()  # whose running statistics move
        with s.autocast(self.device):
            count = min(-(-len(part) // s.batch), max(1, len(part) // self.smallest_batch))
            batches = self.data.train.images[part].tensor_split(count)
            features = torch.cat([encoder(self.data.normalise(images, s.dtype)) for images in batches])
        values = feature_statistics(features, self.data.train.labels[part], s.objective.classes)
        return {name: value.to("cpu", s.dtype) for name, value in values.items()}

    def begin_pass(self, number: int) -> None:
        s, online = self.settings, self.learner.online
        first = number < s.classifier_epochs
        self._aligns = self._wanted is not None and not first
        if not s.classifier_epochs:
            return
        online.encoder.requires_grad_(not first)
        online.projector.requires_grad_(first)
        self.optimizer = self.of_classifier if first else self.of_extractor
        self.optimizer.param_groups[0]["lr"] = s.classifier_rate if first else s.rate(self.finished)

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        online, s = self.learner.online, self.settings
        features = online.encoder(inputs[0])
        loss, accuracy = classify(online.projector(features), *labels)
        figures = {"train_accuracy": accuracy}
        if not self._aligns:
            return loss, figures
        distance = centroid_distance(features, self._wanted[labels[0]])
        return loss + s.alignment * distance, figures | {"centroid_distance": distance.detach()}

    def _finish(self, position: int, client: int) -> None:
        super()._finish(position, client)
        summary = self.memory[client].pop("summary", {})
        if self.settings.alignment:
            after = self.statistics(client, 1)
            summary |= {name: after[name] for name in ("counts", "centroids")}
        if summary:
            self.memory[client]["summary"] = self._exchange(summary, "up", client)

    # ---------------------------------------------------------------- the server

    @torch.no_grad()
    def aggregate(self, sampled: Tensor, losses: Tensor) -> Round:
        this = super().aggregate(sampled, losses)
        if self.settings.alignment:
            counts, centroids = (self._summaries(name, sampled) for name in ("counts", "centroids"))
            mean = (counts[:, :, None] * centroids).sum(0) / counts.sum(0)[:, None]  # NaN where nobody has the class
            mean = mean.to(self.settings.dtype)
            self.centroids = mean if self.centroids is None else torch.where(mean.isnan(), self.centroids, mean)
        if self.classifiers is not None:
            classifier = ClientMatrix(self.shared.row_module(0).projector, 1)
            table = combination_weights(self._summaries("variance", sampled), self._summaries("shares", sampled))
            for client, weights in zip(sampled.tolist(), table, strict=True):
                for name, block in classifier.blocks.items():
                    received = this.received.blocks[f"projector.{name}"].flatten(1)
                    block.view(-1).copy_(torch.mv(received.T, weights.to(received)))
                classifier.put(self.classifiers, [client])
        return this

    def _summaries(self, name: str, clients: Tensor) -> Tensor:
        """What clients have measured, float64 with a row for each."""
        return torch.stack([self.memory[client]["summary"][name] for client in clients.tolist()]).double()

    def record(self, row: dict[str, float]) -> None:
        """In addition ``client_accuracy``, where the round is evaluated."""
        extra = {"client_accuracy": self.client_accuracy()} if self.looks(self.finished + 1) else {}
        super().record({**row, **extra})

    @torch.no_grad()
    def client_accuracy(self) -> float:
        """Mean over clients of the accuracy with their own classifier, on test images as their classes are spread."""
        s, test, model = self.settings, self.data.test, self.shared.row_module(0)
        with s.autocast(self.device):
            features = extract(model.encoder, test.images, self.data.normalise).to(s.dtype)
        member = F.one_hot(test.labels, s.objective.classes).double()  # [N, C]
        accuracies = []
        for client, part in enumerate(self.parts):
            personal = self.classifiers is not None and self.memory[client]["rounds"]
            classifier: nn.Module = self.classifiers.row_module(client) if personal else model.projector
            correct = (classifier(features).argmax(1) == test.labels).double() @ member  # of each class
            held = self.data.train.labels[part.to(self.device)].bincount(minlength=s.objective.classes).double()
            accuracies.append((held / held.sum() * correct / member.sum(0).clamp(min=1)).sum())
        return torch.stack(accuracies).mean().item()

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"centroids": self.centroids}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.centroids = state["centroids"]
