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
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.augment import AUGMENTATIONS, augmentation
from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.data.partitions import partition
from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.identifiability import own_and_common_identifiability
from fssl_core.evaluation.protocols import probe_accuracy, validation_accuracy
from fssl_core.federation.clients import BACKENDS, ClientForward, ClientMatrix, divergence, misalignment
from fssl_core.federation.ledger import Ledger
from fssl_core.federation.participation import sample_clients
from fssl_core.models import ARCHITECTURES, build_backbone
from fssl_core.models.cutting import cut
from fssl_core.models.heads import GlobalPool, Projector
from fssl_core.objectives.moco import KeyQueue, info_nce
from fssl_core.random import generator
from fssl_core.settings import Settings, check_choice, check_range

METHODS = ("MocoSFL", "MonAcoSFL")


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings):
    """Everything that decides the result of one run. Defaults: MonAcoSFL, Section 5.1, 20 clients on CIFAR-10.

    Where the paper leaves a value open, the default is the one that ``reference/monacosfl_settings.yaml`` gives a
    reason for. ``learning_rate`` and the batch are those of the paper; ``client_learning_rate`` of None means the same
    rate on the clients. The server's loss is a mean over the images of all clients, so each client's gradient carries
    a factor 1 / clients; a run with few steps may scale the clients' rate up by that number.
    """

    version: ClassVar[int] = 1  # raise when the engine's results change: stored runs are then computed again

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
    projector_hidden: int = 1024
    projector_dim: int = 1024  # authors' code
    # objective
    temperature: float = 0.1  # authors' code
    ema_decay: float = 0.99  # authors' code
    queue_size: int = 6000
    symmetric: bool = True  # both views are query and key
    # federation
    clients_per_epoch: int | None = None  # None: all
    client_batch: int = 5  # images a client and step, before augmentation
    sync_every: int = 50  # steps; clients are also synchronised at the end of every epoch
    # optimisation
    epochs: int = 200
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
        device = default_device()
        trainer = SplitTrainer(self, self.load_data(device), device)
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
        data: images on ``device``, normally ``settings.load_data(device)``; labels are used for the partition and the
            evaluation only.
        device: where everything lives.

    Raises:
        SettingError: the settings do not fit the data, for example a batch larger than a client's share.
    """

    def __init__(self, settings: SplitSettings, data: Dataset, device: torch.device | str = "cpu") -> None:
        self.settings = s = settings
        self.device = torch.device(device)
        self.dtype = torch.float64 if s.precision == "float64" else torch.float32
        self.data = data
        self.mean, self.std = (value.to(self.device, self.dtype) for value in (data.mean, data.std))  # [C]
        self.parts = s.divide(data)
        smallest = min(len(part) for part in self.parts)
        self.steps_per_epoch = smallest // s.client_batch  # an incomplete last batch is left out
        if self.steps_per_epoch == 0:
            raise SettingError("client_batch", s.client_batch, f"at most {smallest}, the images of the smallest client")
        self.augment = augmentation(s.augmentation, data.image_size)
        self._build_models()
        self.queue = KeyQueue(s.queue_size, s.projector_dim, device=self.device, dtype=self.dtype)
        self.ledger = Ledger(s.clients)
        self.all_clients = torch.arange(s.clients)
        self.sampled = self.all_clients
        self._unsampled_gap: Tensor | float | None = None  # kept between synchronisations
        self.epoch = 0  # finished epochs
        self.metrics: list[dict[str, float]] = []
        self.step_log: list[dict[str, float]] = []
        self.divergence_log: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"knn_accuracy": -1.0}

    def _build_models(self) -> None:
        s = self.settings
        init = generator(s.seed, "initialise")
        backbone = build_backbone(
            s.architecture,
            width=s.width,
            norm=s.norm,
            image_size=self.data.image_size,
            channels=self.data.channels,
            generator=init,
        )
        client, server = cut(backbone, s.cut_layer)
        projector = Projector(backbone.feature_dim, s.projector_hidden, s.projector_dim, generator=init)
        server = nn.Sequential(server, GlobalPool(), projector)
        client, server = (part.to(self.device, self.dtype) for part in (client, server))

        # Every client has a row in the first matrix of a pair; the second holds those that train in this epoch.
        # With full participation they are one and the same.
        self.online, self.active_online = self._all_and_active(client)
        self.momentum, self.active_momentum = self._all_and_active(client)
        self.velocity, self.active_velocity = self._all_and_active(client)  # of SGD, kept by each client
        self.velocity.weights.zero_()
        self.server_online, self.server_momentum, self.server_velocity = (ClientMatrix(server, 1) for _ in range(3))
        self.server_velocity.weights.zero_()

        self.active_online.requires_grad_()
        self.server_online.requires_grad_()
        self.client_forward = ClientForward(self.active_online, s.backend)
        self.momentum_forward = ClientForward(self.active_momentum, s.backend)
        self.server, self.momentum_server = self.server_online.module(), self.server_momentum.module()
        self.client_optimizer = self._sgd(self.active_online, self.active_velocity)
        self.server_optimizer = self._sgd(self.server_online, self.server_velocity)

    def _all_and_active(self, client: nn.Module) -> tuple[ClientMatrix, ClientMatrix]:
        everyone = ClientMatrix(client, self.settings.clients)
        full = self.settings.sampled == self.settings.clients
        return everyone, everyone if full else ClientMatrix(client, self.settings.sampled)

    def _sgd(self, matrix: ClientMatrix, velocity: ClientMatrix) -> torch.optim.SGD:
        """SGD of all clients as one fused step on one parameter; ``velocity`` is its momentum buffer."""
        s = self.settings
        optimizer = torch.optim.SGD([matrix.weights], momentum=s.momentum, weight_decay=s.weight_decay, fused=True)
        if s.momentum > 0:
            optimizer.state[matrix.weights]["momentum_buffer"] = velocity.weights.detach()
        return optimizer

    @property
    def _matrices(self) -> dict[str, tuple[ClientMatrix, ClientMatrix]]:
        return {
            "online": (self.online, self.active_online),
            "momentum": (self.momentum, self.active_momentum),
            "velocity": (self.velocity, self.active_velocity),
        }

    @property
    def _server_matrices(self) -> tuple[ClientMatrix, ...]:
        return self.server_online, self.server_momentum, self.server_velocity

    # ---------------------------------------------------------------- one epoch

    def train_epoch(self) -> None:
        """Every sampled client passes once over its images; then the epoch is evaluated.

        Raises:
            NonFiniteLossError: the loss of a step was NaN or infinite. Nothing of this epoch is kept.
        """
        s = self.settings
        self._start_epoch()
        order, draws = self._epoch_randomness()
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
                    self._step_rows[-1]["misalignment"] = self._misalignment()
        self._end_epoch(torch.stack(losses), torch.stack(accuracies))

    def _start_epoch(self) -> None:
        s = self.settings
        self.sampled = sample_clients(s.clients, s.sampled, s.seed, self.epoch)
        for everyone, active in self._matrices.values():
            if active is not everyone:
                active.take(everyone, self.sampled)
        self._unsampled_gap = None
        cosine = 0.5 * (1 + math.cos(math.pi * self.epoch / s.epochs))
        client_rate = s.learning_rate if s.client_learning_rate is None else s.client_learning_rate
        self.client_optimizer.param_groups[0]["lr"] = client_rate * cosine
        self.server_optimizer.param_groups[0]["lr"] = s.learning_rate * cosine

    def _park(self) -> None:
        """Write the clients of this epoch back to their rows."""
        for everyone, active in self._matrices.values():
            if active is not everyone:
                active.put(everyone, self.sampled)

    def _epoch_randomness(self) -> tuple[Tensor, Tensor]:
        """Which image each client takes at each step, and the numbers that decide its two augmentations.

        Each client has a generator of its own, so that neither the order of clients nor who else takes part
        changes what a client sees.

        Returns:
            indices ``[clients, steps, batch]`` on the device, and uniform numbers
            ``[clients, steps, batch, 2, numbers]`` on the CPU, where the augmentation turns them into decisions.
        """
        s = self.settings
        used = self.steps_per_epoch * s.client_batch
        order, draws = [], []
        for client in self.sampled.tolist():
            part = self.parts[client]
            order.append(
                part[torch.randperm(len(part), generator=generator(s.seed, "order", self.epoch, client))[:used]]
            )
            draws.append(self.augment.draw(2 * used, generator(s.seed, "augment", self.epoch, client)))
        shape = (len(order), self.steps_per_epoch, s.client_batch)
        return torch.stack(order).view(shape).to(self.device), torch.stack(draws).view(*shape, 2, -1)

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
        self._park()
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
        s, send = self.settings, self.ledger.send
        self.active_momentum.average_towards_(self.active_online, s.ema_decay)
        self.server_momentum.average_towards_(self.server_online, s.ema_decay)

        queries, keys = self._views(images, draws)  # each [clients, views * batch, C, H, W]
        with self._autocast():
            activations = self.client_forward(queries)  # [clients, views * batch, c, h, w]
            with torch.no_grad():
                momentum_activations = self.momentum_forward(keys)

        received = send(activations.detach(), "activations", "up", self.sampled).requires_grad_()
        received_momentum = send(momentum_activations, "momentum_activations", "up", self.sampled)
        loss, accuracy = self._server_step(received, received_momentum)
        gradient = send(received.grad, "gradients", "down", self.sampled)

        activations.backward(gradient)
        self.client_optimizer.step()
        self.client_optimizer.zero_grad(set_to_none=False)  # the modules' gradients are views of this buffer
        return loss, accuracy

    def _server_step(self, activations: Tensor, momentum_activations: Tensor) -> tuple[Tensor, Tensor]:
        """SFL-V1: the activations of all clients are one batch and lead to one update."""
        with self._autocast():
            queries = self.server(activations.flatten(0, 1))  # [clients * views * batch, D]
            with torch.no_grad():
                keys = self.momentum_server(momentum_activations.flatten(0, 1))
        queries, keys = (F.normalize(output.to(self.dtype), dim=1) for output in (queries, keys))
        if self.settings.symmetric:  # a query of view 1 belongs to the key of view 2, and the other way round
            keys = keys.unflatten(0, (len(activations), 2, -1)).flip(1).flatten(0, 2)
        loss, accuracy = info_nce(queries, keys, self.queue.keys, self.settings.temperature)
        loss.backward()
        self.queue.push(keys)
        self.server_optimizer.step()
        self.server_optimizer.zero_grad(set_to_none=False)
        return loss.detach(), accuracy

    def _views(self, images: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """What the online and the momentum models see: both views when the loss is symmetric, else one each."""
        clients, batch, _, numbers = draws.shape
        both = images[:, None].expand(-1, 2, -1, -1, -1, -1)  # [clients, 2, batch, C, H, W]
        views = self.augment(both.flatten(0, 2), draws.transpose(1, 2).reshape(-1, numbers))
        views = self._normalise(views.to(self.dtype)).view(clients, 2, batch, *views.shape[1:])
        if self.settings.symmetric:
            both_views = views.flatten(1, 2)
            return both_views, both_views
        return views[:, 0], views[:, 1]

    def _normalise(self, images: Tensor) -> Tensor:
        """Pixels in [0, 1] to mean 0 and deviation 1 of the training set, by channel."""
        return (images - self.mean[:, None, None]) / self.std[:, None, None]

    def _autocast(self):
        if self.settings.precision == "bfloat16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    # ---------------------------------------------------------------- synchronisation

    def synchronise(self) -> None:
        """Replace the online client models by their average; in MonAcoSFL the momentum models, too."""
        self._average(self.active_online, self.online, "parameters")
        if self.settings.method == "MonAcoSFL":  # the difference between the two methods
            self._average(self.active_momentum, self.momentum, "momentum_parameters")
        self._unsampled_gap = None

    @torch.no_grad()
    def _average(self, active: ClientMatrix, everyone: ClientMatrix, purpose: str) -> None:
        """The mean over the clients of this epoch overwrites the model of every client, sampled or not."""
        for name, block in active.blocks.items():
            mean = self.ledger.send(block, purpose, "up", self.sampled).mean(0)
            copies = mean.expand_as(everyone.blocks[name])
            everyone.blocks[name].copy_(self.ledger.send(copies, purpose, "down", self.all_clients))
            if active is not everyone:
                block.copy_(mean.expand_as(block))

    # ---------------------------------------------------------------- measurements

    def _measure(self, step: int, sync: bool) -> None:
        """Log a step before a possible synchronisation: what a synchronisation changes is seen beside it."""
        gap = self._misalignment()
        row = {
            "step": self.epoch * self.steps_per_epoch + step + 1,
            "synced": sync,
            "misalignment_before_sync": gap,
            "misalignment": gap,
        }
        if sync:
            own, common = self._identifiability()
            distances = divergence(self.active_online)
            row |= {"divergence": distances.sum(), "identifiability": own, "identifiability_common": common}
            if self.settings.log_steps:
                names = list(self.active_online.parameter_blocks)
                self.divergence_log += [
                    {"step": row["step"], "layer": name, "divergence": float(distance)}
                    for name, distance in zip(names, distances.tolist(), strict=True)
                ]
        self._step_rows.append(row)

    def _misalignment(self) -> Tensor:
        """Mean absolute difference of online and momentum parameters over ALL clients (MonAcoSFL, Eq. 2)."""
        if self._unsampled_gap is None:  # the share of clients that do not take part changes at synchronisations only
            others = self.all_clients[~torch.isin(self.all_clients, self.sampled)]
            self._unsampled_gap = misalignment(self.online, self.momentum, others) if len(others) else 0.0
        total = misalignment(self.active_online, self.active_momentum) + self._unsampled_gap
        return total / (self.online.clients * self.online.parameters)

    def _identifiability(self, images_per_client: int = 32) -> tuple[float, float]:
        """Does a momentum key give away its client, through the clients' own models and through a common one?"""
        if len(self.sampled) == 1:
            return math.nan, math.nan
        parts = [self.parts[client] for client in self.sampled.tolist()]
        count = min(images_per_client, *map(len, parts))
        images = torch.stack([self.data.train.images[part[:count]] for part in parts])  # [clients, count, C, H, W]
        images = self._normalise(images.to(self.dtype) / 255)
        return own_and_common_identifiability(self.active_momentum, self.momentum_forward, self.momentum_server, images)

    # ---------------------------------------------------------------- evaluation

    def global_model(self) -> nn.Sequential:
        """The model that all clients share after an epoch: client part, server part, pooling, projector; a copy."""
        return copy.deepcopy(nn.Sequential(self.online.row_module(0), *self.server))

    def validate(self) -> float:
        """kNN accuracy of the model that all clients share, on the validation share of the test set."""
        s = self.settings
        with self._autocast():
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
            "bytes_per_client_epoch": traffic.mean().item(),
            "images_between_syncs": min(s.sync_every, self.steps_per_epoch) * s.client_batch,
            "training_images": len(self.data.train),
            "official_data": self.data.official,  # False: not comparable with published numbers
        }
        if s.probe_epochs:
            model = self.global_model()
            model.load_state_dict(self.best["model"])
            with self._autocast():
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
            "clients": {name: everyone.all_rows() for name, (everyone, _) in self._matrices.items()},
            "server": [matrix.all_rows() for matrix in self._server_matrices],
            "queue": self.queue.state_dict(),
            "ledger": self.ledger.epochs,
            "metrics": self.metrics,
            "step_log": self.step_log,
            "divergence_log": self.divergence_log,
            "best": self.best,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        for name, (everyone, _) in self._matrices.items():
            everyone.load_all_rows(state["clients"][name])
        for matrix, rows in zip(self._server_matrices, state["server"], strict=True):
            matrix.load_all_rows(rows)
        self.queue.load_state_dict(state["queue"])
        self.epoch, self.best = state["epoch"], state["best"]
        self.ledger.epochs, self.metrics = state["ledger"], state["metrics"]
        self.step_log, self.divergence_log = state["step_log"], state["divergence_log"]
