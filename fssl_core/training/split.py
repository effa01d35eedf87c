"""Split federated contrastive learning: MocoSFL and MonAcoSFL.

MocoSFL: Li et al., "MocoSFL: enabling cross-client collaborative self-supervised learning", ICLR 2023, Section 4.1.
MonAcoSFL: Przewięźlikowski et al., "A deep cut into Split Federated Self-supervised Learning", ECML PKDD 2024,
Section 4.2.

A client holds the first layers of the network, online and momentum; the server holds the rest. In each step

1. every momentum model moves towards its online model (EMA),
2. each client augments its images twice and sends the activations of both models,
3. the server treats all activations as one batch, computes InfoNCE against one shared queue of keys, updates its
   part and returns the gradients of the online activations,
4. each client updates its own part.

Every ``sync_every`` steps the clients' online parts are replaced by their average. MonAcoSFL does the same with the
momentum parts, and this is the only difference: see :meth:`SplitTrainer.synchronise`.

Differs from the papers: the queue starts empty instead of with random keys (:mod:`fssl_core.objectives.moco`). From
the authors' code: all learning rates follow one cosine per epoch (their clients' cosine restarts many times), and the
average is over exactly the clients that took part. The symmetric loss has three readings
(:mod:`fssl_core.training.split_server`): the default is that of MonAcoSFL's code for both methods, which then differ in
nothing but the average; from ``workstation`` on the profiles take MocoSFL's text in its own paper's tables. There the
client sends two activations of an image, not four, and the server's gradient is another (in MocoSFL's code it is twice
as large still). ``papers/data/monacosfl_settings.yaml`` and ``papers/data/mocosfl_settings.yaml`` list all of them.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.evaluation.identifiability import own_and_common_identifiability
from fssl_core.federation.clients import BACKENDS, divergence
from fssl_core.learning_rates import half_cosine
from fssl_core.models.cutting import cut, normalises_single_values
from fssl_core.models.heads import MLP, GlobalPool
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Settings, Share, Temperature, added, check_choice, check_range
from fssl_core.training.settings import SELECTIONS, FederationSettings
from fssl_core.training.split_clients import SplitClients
from fssl_core.training.split_server import SWAPS, VARIANTS, SplitServer
from fssl_core.training.trainer import Trainer

METHODS = ("MocoSFL", "MonAcoSFL")
MEASURED = ("misalignment_before_sync", "misalignment", "divergence", "identifiability", "identifiability_common")


@dataclass(frozen=True, kw_only=True)
class SplitSettings(FederationSettings):
    """Everything that decides the result of one run. Defaults: MonAcoSFL, Section 5.1, 20 clients on CIFAR-10.

    Where the paper leaves a value open, the default is the one that ``papers/data/monacosfl_settings.yaml`` gives a
    reason for. ``learning_rate`` and the batch are those of the paper; ``client_learning_rate`` of None means the same
    rate on the clients. The server's loss is a mean over the images of all clients, so each client's gradient carries
    a factor 1 / clients; a run with few steps may scale the clients' rate up by that number.
    """

    version: ClassVar[int] = 2  # raise when the engine's results change: stored runs are then computed again

    method: str = "MonAcoSFL"
    # model
    cut_layer: int = 11
    pretrained_client: Settings | None = None  # a run that made the client part all start from (TAResSFL)
    freeze_client: bool = False  # the client part is not trained, nor synchronised
    projector_hidden: Count = 1024
    projector_dim: Count = 1024  # authors' code
    # objective
    temperature: Temperature = 0.1  # authors' code
    ema_decay: Share = 0.99  # authors' code
    queue_size: Count = 6000
    symmetric: bool = True  # both views are query and key
    swap_at: str = added("client", before="client")  # where they are swapped: see split_server
    # federation
    variant: str = "SFL-V1"  # one update of the server for all clients together; SFL-V2: one for each
    clients_per_epoch: Count | None = None  # None: all
    client_batch: Count = 5  # images a client and step, before augmentation
    sync_every: Count = 50  # steps; clients are also synchronised at the end of every epoch
    # optimisation
    epochs: Count = 200
    schedule_epochs: int | None = None  # the cosine ends here, where a run stops earlier; None: at the last epoch
    client_learning_rate: NonNegative | None = None
    # measurement and execution
    selection: str = added("knn", before="knn")  # the model with the best kNN accuracy; or "last"
    validate_every: int = added(1, before=1)  # epochs between kNN accuracies and measurements of the clients
    log_steps: bool = False  # misalignment, loss and synchronisations of every step
    backend: str = "auto"  # how clients are run: in one call, or in a loop

    def check(self) -> None:
        super().check()
        check_choice("method", self.method, METHODS)
        check_choice("backend", self.backend, BACKENDS)
        check_choice("variant", self.variant, VARIANTS)
        check_choice("swap_at", self.swap_at, SWAPS)
        check_choice("selection", self.selection, SELECTIONS)
        if self.clients_per_epoch is not None:
            check_range("clients_per_epoch", self.clients_per_epoch, 1, self.clients)
        if self.schedule_epochs is not None:
            check_range("schedule_epochs", self.schedule_epochs, self.epochs)
        if self.pretrained_client and not getattr(self.pretrained_client, "leaves_client", False):
            expected = "settings of a training that leaves a client part, such as ResistanceSettings"
            raise SettingError("pretrained_client", type(self.pretrained_client).__name__, expected)
        names = ("dataset", "image_size", "architecture", "width", "norm", "cut_layer")
        for name in names if self.pretrained_client else ():
            check_choice(f"pretrained_client.{name}", getattr(self.pretrained_client, name), [getattr(self, name)])

    @property
    def sampled(self) -> int:
        """Clients that take part in an epoch."""
        return self.clients_per_epoch or self.clients

    @property
    def versions(self) -> dict[str, int]:
        """A measurement no longer sets frozen clients back to training mode, which batch norm's statistics show."""
        frozen = {"frozen batch norm": 2} if self.freeze_client and self.norm == "batch" else {}
        return super().versions | frozen

    @property
    def both_views(self) -> bool:
        """Whether both views of an image pass through both models of a client, rather than one view through each."""
        return self.symmetric and self.swap_at == "client"

    def build_model(self, data: Dataset) -> nn.Sequential:
        """Client part, server part, pooling and projector with their first values, on the images' device."""
        init = generator(self.seed, "initialise")
        backbone = self.build_backbone(data, init)
        widths = (self.projector_hidden, self.projector_dim)
        projector = MLP(backbone.feature_dim, widths, batch_norm=False, generator=init)
        model = nn.Sequential(*cut(backbone, self.cut_layer), GlobalPool(), projector)
        return model.to(data.train.images.device, self.dtype)

    def trainer(self, data: Dataset, run) -> "SplitTrainer":
        client = self.pretrained_client and run.result_of(self.pretrained_client).tensors("client")
        return SplitTrainer(self, data, client)

    def client_model(self, run, data: Dataset) -> nn.Module:
        """The client part that a finished run left, in evaluation mode: normalised images to activations."""
        return self.trained_model(run, data)[0]

    def backbone(self, model: nn.Sequential) -> nn.Sequential:
        """Without the projector."""
        return model[:-1]

    def compared(self, model: nn.Sequential) -> nn.Sequential:
        """All of it: as in the papers, kNN compares the projector's output."""
        return model

    def schedule(self, epoch: int) -> float:
        """Factor of all learning rates after ``epoch`` epochs: one cosine from 1 to 0."""
        return half_cosine(epoch, self.schedule_epochs or self.epochs)


class SplitTrainer(Trainer):
    """Trains one federation. ``advance`` is the loop over steps, ``step`` one step of all clients and the server.

    Args:
        settings, data: see :class:`~fssl_core.training.trainer.Trainer`.
        client: state of the client part that all clients start from, in place of the model's first values.
        clients: those to train, of the same settings and data; None: all of them, in this process.

    Raises:
        SettingError: the settings do not fit the data, for example a batch larger than a client's share.
    """

    def __init__(
        self,
        settings: SplitSettings,
        data: Dataset,
        client: dict[str, Tensor] | None = None,
        clients: SplitClients | None = None,
    ) -> None:
        super().__init__(settings, data, settings.epochs)
        model = settings.build_model(data)
        if client is not None:
            model[0].load_state_dict(client)
        at_client = settings.client_batch * (2 if settings.both_views else 1)  # images that are normalised together
        at_server = at_client * (settings.sampled if settings.variant == "SFL-V1" else 1)
        for part, images in ((model[0], at_client), (model[:2], at_server)):
            if images == 1 and normalises_single_values(part, data.channels, data.image_size):
                check_range("client_batch", settings.client_batch, 2)
        self.clients = SplitClients(settings, model[0], data) if clients is None else clients
        self.server = SplitServer(settings, model[1:])
        self.step_log: list[dict[str, float]] = []
        self.divergence_log: list[dict[str, float]] = []

    @property
    def steps_per_epoch(self) -> int:
        """Steps of the smallest client."""
        return self.clients.steps_per_epoch

    # ---------------------------------------------------------------- one epoch

    def advance(self) -> None:
        """As many steps of every sampled client as the smallest of all can make; then the epoch is evaluated."""
        s = self.settings
        order, draws = self.start_epoch()
        losses, accuracies, self._step_rows = [], [], []
        evaluates = self.looks(self.finished + 1)
        for step, views in enumerate(self.clients.prepared(order, draws)):
            images = self.data.train.images[order[:, step]]  # [clients, batch, C, H, W]
            loss, accuracy = self.step(images, draws[:, step], views)
            losses.append(loss)
            accuracies.append(accuracy)
            last = step + 1 == self.steps_per_epoch
            synchronises = last or (step + 1) % s.sync_every == 0
            if synchronises:
                rates = f"learning_rate={s.learning_rate} or client_learning_rate={s.client_learning_rate}"
                self.check_finite(losses, f"epoch {self.finished + 1}", rates)
            measured = s.log_steps or (last and evaluates)
            if measured:
                self._measure(step, synchronises)
            if synchronises:
                self.synchronise()
                if measured:
                    self._step_rows[-1]["misalignment"] = self.clients.misalignment()
        self._end_epoch(torch.stack(losses), torch.stack(accuracies))

    def start_epoch(self) -> tuple[Tensor, Tensor]:
        """Set the learning rates; returns what :meth:`SplitClients.start_epoch` does."""
        self.server.start_epoch(self.finished)
        return self.clients.start_epoch(self.finished)

    def _end_epoch(self, losses: Tensor, accuracies: Tensor) -> None:
        self.clients.end_epoch()
        row = self._step_rows[-1] if self._step_rows else dict.fromkeys(MEASURED, math.nan)
        last = {name: float(value) for name, value in row.items() if name not in ("step", "synced")}
        if self.settings.log_steps:
            for row, loss, accuracy in zip(self._step_rows, losses, accuracies, strict=True):
                row |= {"loss": loss, "contrastive_accuracy": accuracy}
                self.step_log.append({name: float(value) for name, value in row.items()})
        self.record({"loss": losses.mean().item(), "contrastive_accuracy": accuracies.mean().item(), **last})

    # ---------------------------------------------------------------- one step

    def step(self, images: Tensor, draws: Tensor, views: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step of all sampled clients and the server.

        Args:
            images: uint8, ``[clients, batch, channels, height, width]``.
            draws: uniform numbers of the augmentation, ``[clients, batch, 2, numbers]``.
            views: see :meth:`SplitClients.forward`.

        Returns:
            the server's loss and contrastive accuracy, as scalars on the device.
        """
        send = self.ledger.send
        activations, momentum_activations = self.clients.forward(images, draws, views)
        sampled = self.clients.sampled  # after that: over a network a client may have been lost
        received = send(activations, "activations", "up", sampled)
        if momentum_activations is activations:  # of frozen clients: once is enough
            received_momentum = received
        else:
            received_momentum = send(momentum_activations, "momentum_activations", "up", sampled)
        gradient, loss, accuracy = self.server.step(received, received_momentum)
        if not self.settings.freeze_client:
            self.clients.backward(send(gradient, "gradients", "down", sampled))
        return loss, accuracy

    # ---------------------------------------------------------------- synchronisation

    def synchronise(self) -> None:
        """Replace the online client models by their average; in MonAcoSFL the momentum models, too."""
        if self.settings.freeze_client:
            return  # all are equal and stay so
        self._average("online", "parameters")
        if self.settings.method == "MonAcoSFL":  # the difference between the two methods
            self._average("momentum", "momentum_parameters")

    @torch.no_grad()
    def _average(self, name: str, purpose: str) -> None:
        """The mean over the clients of this epoch overwrites the model of every client, sampled or not."""
        models, average = self.clients.upload(name), {}
        for block, values in models.blocks.items():  # [clients, *shape]
            mean = self.ledger.send(values, purpose, "up", self.clients.sampled).mean(0)
            copies = mean.expand(len(self.clients.members), *mean.shape)
            average[block] = self.ledger.send(copies, purpose, "down", self.clients.members)[0]
        self.clients.receive(name, average)

    # ---------------------------------------------------------------- measurements

    def _measure(self, step: int, sync: bool) -> None:
        """Log a step before a possible synchronisation: what a synchronisation changes is seen beside it."""
        gap = self.clients.misalignment()
        row = {
            "step": self.finished * self.steps_per_epoch + step + 1,
            "synced": sync,
            "misalignment_before_sync": gap,
            "misalignment": gap,
        }
        if sync:
            identifiability, common = self._identifiability()
            distances = divergence(self.clients.active_online)
            row |= {"divergence": distances.sum(), "identifiability": identifiability, "identifiability_common": common}
            if self.settings.log_steps:
                names = list(self.clients.active_online.parameter_blocks)
                self.divergence_log += [
                    {"step": row["step"], "layer": name, "divergence": float(distance)}
                    for name, distance in zip(names, distances.tolist(), strict=True)
                ]
        self._step_rows.append(row)

    def _identifiability(self) -> tuple[float, float]:
        """Does a momentum key give away its client, through the clients' own models and through a common one?"""
        clients = self.clients
        images = clients.some_images()
        if min(images.shape[:2]) == 1:  # one client, or one image of each, says nothing
            return math.nan, math.nan
        return own_and_common_identifiability(
            clients.active_momentum, clients.momentum_forward, self.server.momentum_model, images
        )

    # ---------------------------------------------------------------- evaluation

    def global_model(self) -> nn.Sequential:
        """The model that all clients share after an epoch: client part, server part, pooling, projector; a copy."""
        return copy.deepcopy(nn.Sequential(self.clients.online.row_module(0), *self.server.model))

    def summary(self) -> dict[str, Any]:
        s = self.settings
        return super().summary() | {
            "steps": self.finished * self.steps_per_epoch,
            "server_updates_per_step": self.server.steps / self.steps_per_epoch,  # of the last epoch
            "images_between_syncs": min(s.sync_every, self.steps_per_epoch) * s.client_batch,
        }

    def tables(self) -> dict[str, pd.DataFrame]:
        """In addition, on request: ``steps``, a row for each, and ``divergence`` by synchronisation and layer."""
        logs = {"steps": pd.DataFrame(self.step_log), "divergence": pd.DataFrame(self.divergence_log)}
        return super().tables() | (logs if self.settings.log_steps else {})

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "clients": self.clients.state_dict(),
            "server": self.server.state_dict(),
            "step_log": self.step_log,
            "divergence_log": self.divergence_log,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.clients.load_state_dict(state["clients"])
        self.server.load_state_dict(state["server"])
        self.step_log, self.divergence_log = state["step_log"], state["divergence_log"]
