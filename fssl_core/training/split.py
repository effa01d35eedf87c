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
average is over exactly the clients that took part. ``reference/monacosfl_settings.yaml`` lists all of them.
"""

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.augment import AUGMENTATIONS
from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.data.partitions import partition
from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import NonFiniteLossError
from fssl_core.evaluation.identifiability import own_and_common_identifiability
from fssl_core.evaluation.protocols import probe_accuracy, validation_accuracy
from fssl_core.federation.clients import BACKENDS, ClientMatrix, divergence
from fssl_core.federation.ledger import Ledger
from fssl_core.models import ARCHITECTURES, build_backbone
from fssl_core.models.cutting import cut
from fssl_core.models.heads import GlobalPool, Projector
from fssl_core.random import generator
from fssl_core.settings import Settings, check_choice, check_range
from fssl_core.training.split_clients import SplitClients
from fssl_core.training.split_server import VARIANTS, SplitServer

METHODS = ("MocoSFL", "MonAcoSFL")


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings):
    """Everything that decides the result of one run. Defaults: MonAcoSFL, Section 5.1, 20 clients on CIFAR-10.

    Where the paper leaves a value open, the default is the one that ``reference/monacosfl_settings.yaml`` gives a
    reason for. ``learning_rate`` and the batch are those of the paper; ``client_learning_rate`` of None means the same
    rate on the clients. The server's loss is a mean over the images of all clients, so each client's gradient carries
    a factor 1 / clients; a run with few steps may scale the clients' rate up by that number.
    """

    version: ClassVar[int] = 2  # raise when the engine's results change: stored runs are then computed again

    method: str = "MonAcoSFL"
    seed: int = 1138  # authors' scripts
    # data
    dataset: str = "cifar10"
    image_size: int | None = None  # pixels; None: that of the data set
    train_images: int | None = None  # use only so many, equally many of each class; None: all
    partition: str = "classes:2"
    clients: int = 20
    augmentation: str = "mocov2"
    # model
    architecture: str = "resnet18"
    width: int = 64  # channels of the stem
    norm: str = "group"
    cut_layer: int = 11
    pretrained_client: Settings | None = None  # a run that made the client part all start from (TAResSFL)
    freeze_client: bool = False  # the client part is not trained, nor synchronised
    projector_hidden: int = 1024
    projector_dim: int = 1024  # authors' code
    # objective
    temperature: float = 0.1  # authors' code
    ema_decay: float = 0.99  # authors' code
    queue_size: int = 6000
    symmetric: bool = True  # both views are query and key
    # federation
    variant: str = "SFL-V1"  # one update of the server for all clients together; SFL-V2: one for each
    clients_per_epoch: int | None = None  # None: all
    client_batch: int = 5  # images a client and step, before augmentation
    sync_every: int = 50  # steps; clients are also synchronised at the end of every epoch
    # optimisation
    epochs: int = 200
    schedule_epochs: int | None = None  # the cosine ends here, where a run stops earlier; None: at the last epoch
    learning_rate: float = 0.06
    client_learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 5e-4
    # evaluation
    validation_share: float = 0.2  # of the test set, for the choice of the best epoch by kNN
    knn_k: int = 200
    knn_temperature: float = 0.1
    probe_epochs: int = 100  # 0: no linear probe
    # measurement and execution
    log_steps: bool = False  # misalignment, loss and synchronisations of every step
    precision: str = "float32"  # bfloat16: autocast; weights, momentum and EMA stay float32
    backend: str = "auto"  # how clients are run: in one call, or in a loop

    def check(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("architecture", self.architecture, ARCHITECTURES)
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        check_choice("backend", self.backend, BACKENDS)
        check_choice("variant", self.variant, VARIANTS)
        check_choice("precision", self.precision, ("float32", "bfloat16", "float64"))
        for name in ("clients", "width", "queue_size", "client_batch", "sync_every", "epochs", "knn_k"):
            check_range(name, getattr(self, name), 1)
        for name in ("learning_rate", "weight_decay", "probe_epochs"):
            check_range(name, getattr(self, name), 0)
        for name in ("ema_decay", "momentum"):
            check_range(name, getattr(self, name), 0, 1)
        check_range("validation_share", self.validation_share, 0.001, 1)
        check_range("temperature", self.temperature, 1e-6)
        check_range("knn_temperature", self.knn_temperature, 1e-6)
        if self.clients_per_epoch is not None:
            check_range("clients_per_epoch", self.clients_per_epoch, 1, self.clients)
        if self.schedule_epochs is not None:
            check_range("schedule_epochs", self.schedule_epochs, self.epochs)
        for name in ("architecture", "width", "norm", "cut_layer") if self.pretrained_client else ():
            check_choice(f"pretrained_client.{name}", getattr(self.pretrained_client, name), [getattr(self, name)])

    @property
    def sampled(self) -> int:
        """Clients that take part in an epoch."""
        return self.clients_per_epoch or self.clients

    def load_data(self, device: torch.device | str = "cpu") -> Dataset:
        """The images of the run: those of ``dataset``, of which ``train_images`` are kept for training."""
        data = load_dataset(self.dataset, device=device, image_size=self.image_size)
        return data if self.train_images is None else data.with_fewer_images(self.train_images)

    def divide(self, data: Dataset) -> list[Tensor]:
        """Indices of the training images that each client holds."""
        return partition(data.train.labels.cpu(), self.clients, self.partition, self.seed)

    def build_model(self, data: Dataset) -> nn.Sequential:
        """Client part, server part, pooling and projector with their first values, on the images' device."""
        init = generator(self.seed, "initialise")
        backbone = build_backbone(
            self.architecture,
            width=self.width,
            norm=self.norm,
            image_size=data.image_size,
            channels=data.channels,
            generator=init,
        )
        projector = Projector(backbone.feature_dim, self.projector_hidden, self.projector_dim, generator=init)
        model = nn.Sequential(*cut(backbone, self.cut_layer), GlobalPool(), projector)
        return model.to(data.train.images.device, self.dtype)

    def client_model(self, run, data: Dataset) -> nn.Module:
        """The client part that a finished run left, in evaluation mode: normalised images to activations."""
        return self._trained_model(run, data)[0]

    def trained_backbone(self, run, data: Dataset) -> nn.Module:
        """Client part, server part and pooling that a finished run left, in evaluation mode: images to features."""
        return self._trained_model(run, data)[:-1]

    def _trained_model(self, run, data: Dataset) -> nn.Sequential:
        model = self.build_model(data)
        model.load_state_dict(run.tensors("best"))
        return model.eval().requires_grad_(False)

    # What the two sides of the engine have in common

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and images."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def autocast(self, device: torch.device) -> AbstractContextManager:
        """The precision of forward passes."""
        if self.precision == "bfloat16":
            return torch.autocast(device.type, torch.bfloat16)
        return nullcontext()

    def schedule(self, epoch: int) -> float:
        """Factor of all learning rates after ``epoch`` epochs: one cosine from 1 to 0."""
        return 0.5 * (1 + math.cos(math.pi * epoch / (self.schedule_epochs or self.epochs)))

    def sgd(self, matrix: ClientMatrix, velocity: ClientMatrix) -> torch.optim.SGD:
        """SGD of all rows as one fused step on one parameter; ``velocity`` is its momentum buffer."""
        optimizer = torch.optim.SGD(
            [matrix.weights], momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )
        if self.momentum > 0:
            optimizer.state[matrix.weights]["momentum_buffer"] = velocity.weights.detach()
        return optimizer

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Train, evaluate, and leave the tables ``metrics``, ``traffic`` and, on request, ``steps`` and
        ``divergence`` and the tensors ``best`` in the run's folder.

        Args:
            run: an :class:`fssl_core.experiments.store.Run`, of which the checkpoint and the writers are used.
            progress: called as ``progress(done, total, **figures)`` after each epoch.

        Returns:
            the run's summary: accuracies as fractions.
        """
        keep_freed_memory()
        client = self.pretrained_client and run.result_of(self.pretrained_client).tensors("client")
        trainer = SplitTrainer(self, self.load_data(default_device()), client)
        state = run.checkpoint.load()
        if state is not None:
            trainer.load_state_dict(state)
        progress(trainer.epoch, self.epochs)
        with repeatable_kernels():
            while trainer.epoch < self.epochs:
                trainer.train_epoch()
                run.checkpoint.save(trainer.state_dict())
                shown = {name: trainer.metrics[-1][name] for name in ("loss", "knn_accuracy")}
                progress(trainer.epoch, self.epochs, **shown)
            summary = trainer.summary()
        for name, table in trainer.tables().items():
            run.write_table(name, table)
        run.save_tensors("best", trainer.best["model"])
        return summary


class SplitTrainer:
    """Trains one federation. ``train_epoch`` is the loop over steps, ``step`` one step of all clients and the server.

    Args:
        settings: what to do.
        data: images, normally ``settings.load_data(device)``; the models live on their device. Labels are used for
            the partition and the evaluation only.
        client: state of the client part that all clients start from, in place of the model's first values.

    Raises:
        SettingError: the settings do not fit the data, for example a batch larger than a client's share.
    """

    def __init__(self, settings: SplitSettings, data: Dataset, client: dict[str, Tensor] | None = None) -> None:
        self.settings = s = settings
        self.data = data
        model = s.build_model(data)
        if client is not None:
            model[0].load_state_dict(client)
        self.clients = SplitClients(s, model[0], data)
        self.server = SplitServer(s, model[1:])
        self.ledger = Ledger(s.clients)
        self.all_clients = torch.arange(s.clients)
        self.epoch = 0  # finished epochs
        self.metrics: list[dict[str, float]] = []
        self.step_log: list[dict[str, float]] = []
        self.divergence_log: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"knn_accuracy": -1.0}

    @property
    def steps_per_epoch(self) -> int:
        """Steps of the smallest client."""
        return self.clients.steps_per_epoch

    # ---------------------------------------------------------------- one epoch

    def train_epoch(self) -> None:
        """Every sampled client passes once over its images; then the epoch is evaluated.

        Raises:
            NonFiniteLossError: the loss of a step was NaN or infinite. Nothing of this epoch is kept.
        """
        s = self.settings
        order, draws = self.start_epoch()
        losses, accuracies, self._step_rows = [], [], []
        for step in range(self.steps_per_epoch):
            images = self.data.train.images[order[:, step]]  # [clients, batch, C, H, W]
            loss, accuracy = self.step(images, draws[:, step])
            losses.append(loss)
            accuracies.append(accuracy)
            last = step + 1 == self.steps_per_epoch
            due = last or (step + 1) % s.sync_every == 0
            if due:
                self._check_finite(losses)
            if s.log_steps or last:
                self._measure(step, due)
            if due:
                self.synchronise()
                if s.log_steps or last:
                    self._step_rows[-1]["misalignment"] = self.clients.misalignment()
        self._end_epoch(torch.stack(losses), torch.stack(accuracies))

    def start_epoch(self) -> tuple[Tensor, Tensor]:
        """Set the learning rates; returns what :meth:`SplitClients.start_epoch` does."""
        self.server.start_epoch(self.epoch)
        return self.clients.start_epoch(self.epoch)

    def _check_finite(self, losses: list[Tensor]) -> None:
        """Only at synchronisations: looking at a loss makes the CPU wait for a GPU."""
        values = torch.stack(losses)
        if not values.isfinite().all():
            step = int((~values.isfinite()).nonzero()[0])
            raise NonFiniteLossError(
                f"the loss is {values[step].item()} at step {step + 1} of epoch {self.epoch + 1}; "
                f"the checkpoint of epoch {self.epoch} is kept. Lower learning_rate={self.settings.learning_rate} "
                f"or client_learning_rate={self.settings.client_learning_rate}."
            )

    def _end_epoch(self, losses: Tensor, accuracies: Tensor) -> None:
        self.clients.end_epoch()
        self.ledger.close_epoch()
        last = {name: float(value) for name, value in self._step_rows[-1].items() if name not in ("step", "synced")}
        if self.settings.log_steps:
            for row, loss, accuracy in zip(self._step_rows, losses, accuracies, strict=True):
                row |= {"loss": loss, "contrastive_accuracy": accuracy}
                self.step_log.append({name: float(value) for name, value in row.items()})
        self.epoch += 1
        knn = self.validate()
        self.metrics.append(
            {
                "epoch": self.epoch,
                "loss": losses.mean().item(),
                "contrastive_accuracy": accuracies.mean().item(),
                "knn_accuracy": knn,
                **last,
            }
        )
        if knn > self.best["knn_accuracy"]:
            state = {name: value.clone() for name, value in self.global_model().state_dict().items()}
            self.best = {"knn_accuracy": knn, "epoch": self.epoch, "model": state}

    # ---------------------------------------------------------------- one step

    def step(self, images: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """One step of all sampled clients and the server.

        Args:
            images: uint8, ``[clients, batch, channels, height, width]``.
            draws: uniform numbers of the augmentation, ``[clients, batch, 2, numbers]``.

        Returns:
            the server's loss and contrastive accuracy, as scalars on the device.
        """
        send, sampled = self.ledger.send, self.clients.sampled
        activations, momentum_activations = self.clients.forward(images, draws)
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
        _, active = self.clients.matrices[name]
        average = {}
        for block, values in active.blocks.items():  # [clients, *shape]
            mean = self.ledger.send(values, purpose, "up", self.clients.sampled).mean(0)
            copies = mean.expand(len(self.all_clients), *mean.shape)
            average[block] = self.ledger.send(copies, purpose, "down", self.all_clients)[0]
        self.clients.receive(name, average)

    # ---------------------------------------------------------------- measurements

    def _measure(self, step: int, sync: bool) -> None:
        """Log a step before a possible synchronisation: what a synchronisation changes is seen beside it."""
        gap = self.clients.misalignment()
        row = {
            "step": self.epoch * self.steps_per_epoch + step + 1,
            "synced": sync,
            "misalignment_before_sync": gap,
            "misalignment": gap,
        }
        if sync:
            own, common = self._identifiability()
            distances = divergence(self.clients.active_online)
            row |= {"divergence": distances.sum(), "identifiability": own, "identifiability_common": common}
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
        if len(clients.sampled) == 1:
            return math.nan, math.nan
        return own_and_common_identifiability(
            clients.active_momentum, clients.momentum_forward, self.server.momentum_model, clients.some_images(32)
        )

    # ---------------------------------------------------------------- evaluation

    def global_model(self) -> nn.Sequential:
        """The model that all clients share after an epoch: client part, server part, pooling, projector; a copy."""
        return copy.deepcopy(nn.Sequential(self.clients.online.row_module(0), *self.server.model))

    def validate(self) -> float:
        """kNN accuracy of the model that all clients share, on the validation share of the test set."""
        s = self.settings
        with s.autocast(self.data.train.images.device):
            return validation_accuracy(
                self.global_model(),
                self.data,
                share=s.validation_share,
                seed=s.seed,
                k=s.knn_k,
                temperature=s.knn_temperature,
            )

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers: accuracies of the best epoch by kNN, everything else of the last.

        The linear probe uses the full test set.
        """
        s = self.settings
        last = {name: value for name, value in self.metrics[-1].items() if name not in ("epoch", "knn_accuracy")}
        traffic = torch.stack(self.ledger.epochs).sum(2).double()  # [epochs, clients] in bytes
        result = {
            "knn_accuracy": self.best["knn_accuracy"],
            "best_epoch": self.best["epoch"],
            **last,
            "steps": self.epoch * self.steps_per_epoch,
            "server_updates_per_step": self.server.steps / self.steps_per_epoch,  # of the last epoch
            "bytes_per_client_epoch": traffic.mean().item(),
            "images_between_syncs": min(s.sync_every, self.steps_per_epoch) * s.client_batch,
            "training_images": len(self.data.train),
            "official_data": self.data.official,  # False: not comparable with published numbers
        }
        if s.probe_epochs:
            model = self.global_model()
            model.load_state_dict(self.best["model"])
            with s.autocast(self.data.train.images.device):
                result["linear_probe_accuracy"] = probe_accuracy(
                    model[:-1], self.data, epochs=s.probe_epochs, seed=s.seed
                )  # without the projector
        return result

    def tables(self) -> dict[str, pd.DataFrame]:
        """What was measured, tidy: ``metrics`` by epoch, ``traffic`` by epoch and client, logs by step."""
        tables = {"metrics": pd.DataFrame(self.metrics), "traffic": self.ledger.table()}
        if self.settings.log_steps:
            tables |= {"steps": pd.DataFrame(self.step_log), "divergence": pd.DataFrame(self.divergence_log)}
        return tables

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on. Random numbers are a function of the epoch and need no state."""
        return {
            "epoch": self.epoch,
            "clients": self.clients.state_dict(),
            "server": self.server.state_dict(),
            "ledger": self.ledger.epochs,
            "metrics": self.metrics,
            "step_log": self.step_log,
            "divergence_log": self.divergence_log,
            "best": self.best,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        self.clients.load_state_dict(state["clients"])
        self.server.load_state_dict(state["server"])
        self.epoch, self.best = state["epoch"], state["best"]
        self.ledger.epochs, self.metrics = state["ledger"], state["metrics"]
        self.step_log, self.divergence_log = state["step_log"], state["divergence_log"]
