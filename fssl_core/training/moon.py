"""MOON on the averaging engine: the clients keep their last models to contrast with.

Li, He and Song, "Model-contrastive federated learning", CVPR 2021, Algorithm 1; loss, network and differences:
:mod:`fssl_core.objectives.moon`. Everything else is federated averaging: with a ``contrast_weight`` of 0 this is FedAvg
with MOON's network, which is how the paper compares methods.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from fssl_core.data.datasets import Dataset
from fssl_core.objectives import Objective, SelfSupervisedModel
from fssl_core.objectives.moon import Moon
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.labelled import LabelledSettings


@dataclass(frozen=True, kw_only=True)
class MoonSettings(LabelledSettings):
    """Everything that decides the result of one run. Defaults: Section 4.1, CIFAR-10, with the ResNet-18 of MFCL."""

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again

    trains: ClassVar[type[Objective]] = Moon
    objective: Objective = field(default_factory=Moon)

    @property
    def method(self) -> str:
        """``MOON``, with what else is not FedAvg's."""
        others = super().method
        if not self.objective.contrast_weight:
            return others
        return "MOON" if others == "FedAvg" else f"MOON {others}"

    def trainer(self, data: Dataset, run) -> "MoonTrainer":
        return MoonTrainer(self, data, run)


class MoonTrainer(AveragingTrainer):
    """Trains one federation; see :class:`AveragingTrainer`, whose ``client_models`` are the clients' last models."""

    def federate(self, model: SelfSupervisedModel) -> None:
        super().federate(model)
        if self.client_models is None and self.settings.objective.contrast_weight:
            self.client_models = self.waiting(model)

    def _start(self, client: int) -> None:
        super()._start(client)
        if self.client_models is None:
            return
        shared = self.shared.row_module(0).eval()
        newcomer = self.memory[client]["rounds"] == 0
        self.learner.references = shared, shared if newcomer else self.client_models.row_module(client).eval()
