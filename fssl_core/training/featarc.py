"""FeatARC: federated self-supervised learning with feature alignment and groups of clients, on the averaging engine.

Wang, Zhang, Li, Tian and Tedrake, "Does learning from decentralized non-IID unlabeled data benefit from self
supervision?", ICLR 2023: feature alignment regularisation and clustering. The paper's text and code were not at hand;
this is our reading of what it is described to do, and MFCL, which compares with it, says no more.

What is taken as the definition. w is the global model, h(x; w) the encoder's features as a unit vector:

1. Alignment. A client's local loss is that of its self-supervised objective and a distance of its features to those of
   the frozen global model of the round on the same views x::

       l = l_ssl + lambda * mean_x |h(x; w_k) - h(x; w)|^2,    the square being 2 - 2 cos.

   The frozen model normalises by the batch, as a target branch does, so a client that starts from it starts at 0.
2. Groups. From round ``group_from`` on, every client that takes part sends, with its model, one summary: the mean of
   h(x; w) over its images, not augmented. The server divides all clients of which it has a summary into C groups by
   k-means (:mod:`fssl_core.federation.grouping`), averages the models of each group by the aggregation rule, and those
   of all clients to the global model. A client starts its next round from its group's model, one without a summary
   from the global model; either is aligned with the global model, which is what keeps the groups' features comparable
   and their average useful.
3. The global model is what is evaluated.

Open, and our choice: the distance and its weight, what is clustered (features, not weights), when it begins, how many
groups, which model is evaluated. A group of which nobody takes part keeps its model. Summaries of absent clients are
those of the last time, made by an older global model. With a weight of 0 and one group this is FedAvg to the bit.

A client of a group receives two models in a round: its group's and the global one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.devices import in_full_precision
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.federation.aggregation import AVERAGES, Round, combine
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.grouping import k_means
from fssl_core.objectives import Objective, SelfSupervisedModel, SimCLR
from fssl_core.settings import Count, NonNegative, check_choice, check_range
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer


@dataclass(frozen=True, kw_only=True)
class FeatArcSettings(AveragingSettings):
    """Everything that decides the result of one run.

    Defaults: the federation of MFCL's Table 2 on CIFAR-10; local training as this engine's FedSimCLR has it, since the
    method is compared with that.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again

    objective: Objective = field(default_factory=lambda: SimCLR(projector=(512, 128), temperature=0.5))
    partition: str = "dirichlet:0.1"
    clients: int = 10
    selection: str = "last"
    alignment: NonNegative = 1.0  # lambda; 0: none
    groups: Count = 2  # C; 1: none
    group_from: int = 10  # the first round, from 1, at whose end clients are grouped: features must mean something

    def check(self) -> None:
        super().check()
        check_range("groups", self.groups, 1, self.clients)
        if self.groups == 1:
            return
        check_range("group_from", self.group_from, 1, self.rounds)
        check_choice("aggregation", self.aggregation, AVERAGES)
        if self.client_update.name != "replace":  # it would mix with the global model, not with the group's
            raise SettingError("client_update", self.client_update.name, "replace, unless groups is 1")
        if self.objective.has_target:  # a copy would be one of the global model
            check_choice("target_at_start", self.target_at_start, ("kept",))

    @property
    def method(self) -> str:
        """``FeatARC``, with what else is not FedAvg's."""
        others = super().method
        if not self.alignment and self.groups == 1:
            return others
        return "FeatARC" if others == "FedAvg" else f"FeatARC {others}"

    def trainer(self, data: Dataset, run) -> "FeatArcTrainer":
        return FeatArcTrainer(self, data, run)


@in_full_precision
def feature_distance(features: Tensor, global_features: Tensor) -> Tensor:
    """``|h - h_g|^2`` of unit vectors, averaged over the batch: ``[B, D]`` each to a scalar in [0, 4]."""
    return (F.normalize(features, dim=1) - F.normalize(global_features.detach(), dim=1)).square().sum(1).mean()


class FeatArcTrainer(AveragingTrainer):
    """Trains one federation; see :class:`AveragingTrainer`.

    Attributes:
        group_models: the groups' models, a row each; None with one group.
    """

    stays: ClassVar[tuple[str, ...]] = (*AveragingTrainer.stays, "group_models")
    compares_models: ClassVar[bool] = True  # those of a group are averaged apart

    def federate(self, model: SelfSupervisedModel) -> None:
        super().federate(model)
        s = self.settings
        self.group_models = ClientMatrix(model, s.groups) if s.groups > 1 else None

    # ---------------------------------------------------------------- a client

    def group_of(self, client: int) -> int | None:
        """None for a client of which no group is known."""
        return self.memory[client].get("group")

    def downloads(self, client: int) -> Iterator[Tensor]:
        yield from super().downloads(client)
        if (group := self.group_of(client)) is not None:
            for block in self.group_models.blocks.values():
                yield block[[group]]

    def _start(self, client: int) -> None:
        super()._start(client)
        if (group := self.group_of(client)) is not None:
            self.worker.take(self.group_models, [group])
        if self.settings.alignment:
            self._global_encoder = self.shared.row_copy(0).encoder  # its statistics will move

    def loss(self, inputs: Tensor, *labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.settings
        if not s.alignment:
            return super().loss(inputs, *labels)
        encoded: list[tuple[Tensor, Tensor]] = []  # images and their features, as the objective runs the encoder
        encoder = self.learner.online.encoder
        with encoder.register_forward_hook(lambda _, images, features: encoded.append((images[0], features))):
            loss, figures = super().loss(inputs, *labels)
        distances = []
        for images, features in encoded:
            with torch.no_grad():
                global_features = self._global_encoder(images)
            distances.append(feature_distance(features, global_features))
        alignment = torch.stack(distances).mean()
        return loss + s.alignment * alignment, figures | {"feature_distance": alignment.detach()}

    def _finish(self, position: int, client: int) -> None:
        super()._finish(position, client)
        s = self.settings
        if self.group_models is not None and self.finished + 1 >= s.group_from:
            summary = self.summarise(client)
            self.ledger.send(summary[None], "features", "up", torch.tensor([client]))
            self.memory[client]["summary"] = summary

    @torch.no_grad()
    def summarise(self, client: int) -> Tensor:
        """Mean unit feature of a client's images by the global model, float32 ``[D]`` on the CPU."""
        images = self.data.train.images[self.parts[client].to(self.device)]
        with self.settings.autocast(self.device):
            features = extract(self.shared.row_module(0).encoder, images, self.data.normalise)
        return F.normalize(features, dim=1).mean(0).cpu()

    # ---------------------------------------------------------------- the server

    def aggregate(self, sampled: Tensor, losses: Tensor) -> Round:
        this = super().aggregate(sampled, losses)
        if self.group_models is None or not self.regroup():
            return this
        groups = torch.tensor([self.group_of(client) for client in sampled.tolist()])
        beta = self.weights(this, sampled)  # [K, L]
        row = ClientMatrix(self.shared.row_module(0), 1)
        for group in groups.unique().tolist():
            inside = beta * (groups == group).to(beta)[:, None]
            combine(inside / inside.sum(0), this, row)
            row.put(self.group_models, [group])
        return this

    def regroup(self) -> bool:
        """Divide the clients of which there is a summary; False as long as there are too few of them."""
        s = self.settings
        summarised = [client for client in range(s.clients) if "summary" in self.memory[client]]
        if len(summarised) < s.groups:
            return False
        before = torch.tensor([self.memory[client].get("group", -1) for client in summarised])
        if (before < 0).all():  # a group of which nobody takes part yet begins with the global model
            self.group_models.load_state_dict(self.shared.state_dict(0))
        summaries = torch.stack([self.memory[client]["summary"] for client in summarised]).double()
        for client, group in zip(summarised, k_means(summaries, s.groups, before).tolist(), strict=True):
            self.memory[client]["group"] = group
        return True

    def record(self, row: dict[str, float]) -> None:
        """In addition ``groups_used``, groups that have a client; 1 before there are any."""
        held = {self.group_of(client) for client in range(self.settings.clients)} - {None}
        super().record({**row, "groups_used": max(1, len(held))})
