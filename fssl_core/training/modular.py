"""MFCL: client modules learn to reconstruct at one server, the rest of the network to contrast at another one.

Motamedi and Kim, "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients", Section
2.1 and Algorithm 1. Two runs, the second on top of the first, so runs that differ in phase 2 share phase 1:

1. :class:`AutoencoderSettings`: federated averaging (:mod:`fssl_core.training.averaging`) of the client module and its
   decoder at the gServer, which sees parameters only.
2. :class:`ModularSettings`: each client sends the representations of its augmented views once; the rServer, which
   sees nothing else, trains the remaining layers and the projection layers of Table 11 by NT-Xent (Eq. 7). No
   gradient goes back.

Values are those of Table 12, and for what it leaves open ``papers/data/mfcl_settings.yaml``. Our choices: an
epoch of phase 2 shows each image once, in the pair whose turn it is, as SimCLR counts epochs; Adam starts afresh in
each client's round; a client module that has batch norm uses its running statistics in phase 2, which are averaged
with the parameters (``statistics="own"``: each client's own, as in the first author's public code). As in the paper's
traffic (Eq. 5), the rServer module that is sent to the clients at the end is not counted.
"""

import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, Pixels
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.federation.clients import ClientMatrix
from fssl_core.learning_rates import warmed_up
from fssl_core.models import CUTS, GlobalPool, client_module, decoder, joined, remaining_backbone
from fssl_core.models.client_module import LARGEST_CUT
from fssl_core.models.heads import MLP
from fssl_core.objectives import Objective, SelfSupervisedModel
from fssl_core.objectives.reconstruction import Autoencoder, Reconstruction
from fssl_core.objectives.simclr import nt_xent
from fssl_core.random import generator
from fssl_core.settings import Count, Range, Share, Temperature, Whole, added, check_choice, check_range
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.lars import LARS
from fssl_core.training.representations import Representations
from fssl_core.training.settings import TrainingSettings
from fssl_core.training.trainer import Trainer

EMBEDDING = 128  # width of the last projection layer: SimCLR v2's, whose head the public code has


# ---------------------------------------------------------------- phase 1


@dataclass(frozen=True, kw_only=True)
class AutoencoderSettings(AveragingSettings):
    """Phase 1. ``batch`` is K, the images of a batch of 2K views; ``momentum`` is Adam's beta_1."""

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again

    objective: Objective = field(default_factory=Reconstruction)
    seed: int = 0
    partition: str = "dirichlet:0.1:128"  # at least one batch of 2K for each client
    clients: int = 10
    augmentation: str = "simclr-cifar"
    norm: str = "twin"
    cut: Annotated[int, Range(1, LARGEST_CUT)] = 2  # convolutions of the client module: 4 of a ResNet-50
    channels_per_group: Count | None = None  # Lambda; None: 8 of twin norm and 16 of group norm
    variance: str = "pooled"  # of twin norm; or "mean", the listing of Table 18, or "equation", Eq. 2 literally
    rounds: int = 15
    local_epochs: int = 1
    batch: int = 64
    learning_rate: float = 0.05  # of Adam; 0.001 for Tiny ImageNet
    weight_decay: float = 0.0
    schedule: str = "constant"
    selection: str = "last"
    probe_epochs: int = 0  # the evaluation that counts comes after phase 2

    def check(self) -> None:
        super().check()
        if not isinstance(self.objective, Reconstruction):
            raise SettingError("objective", self.objective.name, "Reconstruction(): a decoder gives images")
        check_choice("architecture", self.architecture, CUTS)
        check_choice("keep_velocity", self.keep_velocity, [False])  # Adam starts afresh

    def load_data(self, device: torch.device | str = "cpu") -> Pixels:
        """As every federation's, but not normalised."""
        return Pixels.of(super().load_data(device))

    def build_model(self, data: Dataset) -> Autoencoder:
        """Client module and decoder with their first values, on the images' device.

        Raises:
            SettingError: the images are normalised, or there is no such client module.
        """
        if not isinstance(data, Pixels):
            raise SettingError("data", data.name, "Pixels, which load_data gives: the loss compares values in [0, 1]")
        options = {
            "width": self.width,
            "channels": data.channels,
            "image_size": data.image_size,
            "channels_per_group": self.channels_per_group,
            "variance": self.variance,
            "generator": generator(self.seed, "initialise"),
        }
        halves = [make(self.architecture, self.cut, self.norm, **options) for make in (client_module, decoder)]
        return Autoencoder(*halves).to(data.train.images.device, self.dtype)

    def local_optimizer(self, worker: ClientMatrix, velocity: ClientMatrix) -> torch.optim.Optimizer:
        betas = (self.momentum, 0.999)
        decay = self.weight_decay
        return torch.optim.Adam([worker.weights], lr=self.learning_rate, betas=betas, weight_decay=decay, fused=True)

    def client_model(self, run, data: Dataset) -> nn.Module:
        """The client module that a finished run left, in evaluation mode: images in [0, 1] to maps."""
        return self.trained_model(run, data).client_module


# ---------------------------------------------------------------- phase 2


@dataclass(frozen=True, kw_only=True)
class ModularSettings(TrainingSettings):
    """Phase 2, and what it builds on.

    A downstream evaluation sees the features before the projection layers; those behind them, on which the paper's
    linear evaluation stands, are in the run's own summary.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again
    selection: ClassVar[str] = "last"  # which model is kept

    phase1: AutoencoderSettings = field(default_factory=AutoencoderSettings)
    seed: int = 0
    # what the rServer receives
    pairs: Count = 8  # rho: pairs of views of each image (Section 5.4)
    missing: Share = 0.0  # delta: share of clients from which nothing arrives (Figure 8)
    twins: bool = True  # twin norm sees both views of a pair together; False: each alone, as it sees a test image
    statistics: str = added("averaged", before="averaged")  # of the client modules' batch norm; "own": each has its own
    datamix: Count = 1  # examples in each mixture that a client sends (fssl_core.privacy.datamix); 1: none is mixed
    # model at the rServer
    norm: str = "batch"
    projector: tuple[Count, ...] | None = None  # widths of the projection layers; None: (D, D, 128) for D features
    # optimisation
    epochs: Count = 150  # 200 for Tiny ImageNet
    pairs_per_epoch: Count = 1  # in which an epoch shows each image
    batch: Annotated[int, Range(2)] = 320  # images whose pairs are a batch, of all clients alike
    temperature: Temperature = 0.3
    learning_rate: float = 1.0  # of LARS; the highest
    warmup_epochs: Whole = 10
    momentum: float = 0.9
    weight_decay: float = 1e-4
    # evaluation
    validate_every: Count = 1  # epochs between kNN accuracies
    validation_share: float = 0.2  # of the test set
    knn_k: int = 200
    knn_temperature: float = 0.1
    probe_epochs: int = 100  # 0: no linear evaluation
    # execution
    precision: str = "float32"  # bfloat16: representations are computed and sent in float32 all the same

    def check(self) -> None:
        super().check()
        check_choice("norm", self.norm, ("batch", "group"))
        check_choice("statistics", self.statistics, ("averaged", *(["own"] if self.phase1.norm == "batch" else [])))
        if (self.precision == "float64") != (self.phase1.precision == "float64"):
            raise SettingError("precision", self.precision, "float64 in both phases or in none")
        if self.projector is not None and (not self.projector or min(self.projector) < 1):
            raise SettingError("projector", self.projector, "None, or at least one width, each at least 1")
        check_range("pairs_per_epoch", self.pairs_per_epoch, 1, self.pairs)
        check_range("warmup_epochs", self.warmup_epochs, 0, self.epochs)

    @property
    def clients(self) -> int:
        """M."""
        return self.phase1.clients

    @property
    def received(self) -> Tensor:
        """The Q clients whose representations arrive, ascending; a larger share of missing ones adds to the same."""
        order = torch.randperm(self.clients, generator=generator(self.seed, "missing clients"))
        return order[: max(1, self.clients - round(self.missing * self.clients))].sort().values

    def load_data(self, device: torch.device | str = "cpu") -> Pixels:
        return self.phase1.load_data(device)

    def build_model(self, data: Dataset) -> SelfSupervisedModel:
        """The whole network with its first values: a client module, the rServer's layers, projection layers."""
        first, init = self.phase1, generator(self.seed, "initialise rServer")
        options = {"norm": self.norm, "width": first.width, "image_size": data.image_size, "generator": init}
        rest = remaining_backbone(first.architecture, first.cut, **options)
        widths = self.projector or (rest.feature_dim, rest.feature_dim, EMBEDDING)
        projector = MLP(rest.feature_dim, widths, output_norm="affine", generator=init)
        device = data.train.images.device
        backbone = joined(first.build_model(data).client_module, rest.to(device, self.dtype))
        encoder = nn.Sequential(backbone, GlobalPool())
        return SelfSupervisedModel(encoder, projector.to(device, self.dtype), nn.Identity())

    def trainer(self, data: Dataset, run) -> "ModularTrainer":
        return ModularTrainer(self, data, self.phase1.client_model(run.result_of(self.phase1), data))

    def backbone(self, model: SelfSupervisedModel) -> nn.Module:
        """Client module and rServer encoder as one: images in [0, 1] to features."""
        return model.encoder

    def compared(self, model: SelfSupervisedModel) -> nn.Module:
        """All of it, as the paper's linear evaluation, which stands on the projection layers."""
        return model

    def accuracies(self, model: SelfSupervisedModel, data: Dataset) -> dict[str, float]:
        """That of the paper's linear evaluation; and ``features_probe_accuracy``, before the projection layers.

        Where each client has statistics of its own there are as many networks as clients. One classifier is trained on
        what each makes of its own images, and tested on what each makes of the test set: the mean over clients.
        """
        if not data.labelled or not self.probe_epochs:
            return {}
        if self.statistics == "averaged":
            parts = {"linear_probe_accuracy": self.compared(model), "features_probe_accuracy": self.backbone(model)}
            return {name: self.probe(part, data) for name, part in parts.items()}
        (first, *rest), pool = model.encoder
        sent = Representations(self, data, first)
        parts = {"linear_probe_accuracy": [pool, model.projector], "features_probe_accuracy": [pool]}
        return {name: self._probe_of_each(nn.Sequential(*rest, *part), sent, data) for name, part in parts.items()}

    def _probe_of_each(self, server: nn.Module, sent: Representations, data: Dataset) -> float:
        whole = {client: nn.Sequential(module, server) for client, module in sent.modules.items()}
        train, test = data.train, data.test
        with self.autocast(train.images.device):
            own = [(whole[client], sent.images[places]) for client, places in sent.positions.items()]
            learned = [extract(network, train.images[images], data.normalise) for network, images in own]
            asked = [extract(network, test.images, data.normalise) for network in whole.values()]
            labels = train.labels[sent.images], test.labels.repeat(len(whole))
            options = {"classes": len(data.classes), "epochs": self.probe_epochs, "seed": self.seed}
            return linear_probe(torch.cat(learned), labels[0], torch.cat(asked), labels[1], **options).accuracy


class ModularTrainer(Trainer):
    """Trains the rServer module; :meth:`advance` is an epoch.

    Args:
        settings, data: see :class:`~fssl_core.training.trainer.Trainer`.
        client_module: as phase 1 left it.

    Attributes:
        model: the whole network, of which the client module stays as it is.
        server: the part in training, representations to embeddings; shares its modules.
    """

    def __init__(self, settings: ModularSettings, data: Dataset, client_module: nn.Module) -> None:
        super().__init__(settings, data, settings.epochs)
        s = settings
        self.model = s.build_model(data)
        (first, *rest), pool = self.model.encoder
        first.load_state_dict(client_module.state_dict())
        self.representations = Representations(s, data, first)
        self.server = nn.Sequential(*rest, pool, self.model.projector)
        self.optimizer = LARS(
            self.server.parameters(), s.learning_rate, momentum=s.momentum, weight_decay=s.weight_decay
        )

    def advance(self) -> None:
        """An epoch; before the first one, every client sends its representations."""
        s = self.settings
        if not self.finished:
            self.receive(s.received.tolist())
        losses, accuracies = [], []
        for number in range(self.finished * s.pairs_per_epoch, (self.finished + 1) * s.pairs_per_epoch):
            order = self.order(number)
            for step, positions in enumerate(order):
                progress = (number + step / len(order)) / s.pairs_per_epoch  # in epochs
                self.optimizer.param_groups[0]["lr"] = self.rate(progress)
                loss, accuracy = self.step(self.representations.batch(positions, number % s.pairs))
                losses.append(loss)
                accuracies.append(accuracy)
        self.check_finite(losses, f"epoch {self.finished + 1}", f"learning_rate={s.learning_rate}")
        means = (torch.stack(values).mean().item() for values in (losses, accuracies))
        self.record(dict(zip(("loss", "contrastive_accuracy"), means, strict=True)))

    def receive(self, clients: list[int]) -> None:
        """Each of these clients sends all its representations."""
        for pair in range(self.settings.pairs):
            for client in clients:
                message = self.representations.message(client, pair)
                self.ledger.send(message[None], "representations", "up", torch.tensor([client]))

    def order(self, number: int) -> list[Tensor]:
        """Places in ``representations.images`` of each batch of pass ``number``; an incomplete last one is left out."""
        count = len(self.representations.images)
        size = min(self.settings.batch, count)
        order = torch.randperm(count, generator=generator(self.settings.seed, "rServer order", number))
        return list(order[: count // size * size].split(size))

    def rate(self, epochs: float) -> float:
        """The learning rate after so many epochs: a linear warm-up, then half a cosine down to 0."""
        s = self.settings
        return warmed_up(s.learning_rate, epochs, s.warmup_epochs, s.epochs)

    def step(self, representations: Tensor) -> tuple[Tensor, Tensor]:
        """One step on ``[2, B, c, h, w]``; the loss in nats and the contrastive accuracy."""
        with self.settings.autocast(self.device):
            embeddings = self.server(representations.flatten(0, 1))  # [2B, 128]: batch norm sees both views
            loss, accuracy = nt_xent(*embeddings.chunk(2), self.settings.temperature)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), accuracy

    # ---------------------------------------------------------------- evaluation

    def global_model(self) -> SelfSupervisedModel:
        return copy.deepcopy(self.model)

    def summary(self) -> dict[str, Any]:
        """As every engine's, with the bytes of a client that sends in place of those of an epoch."""
        result = super().summary()
        del result["bytes_per_client_epoch"]  # they send once
        sent = sum(table.sum().item() for table in self.ledger.epochs)
        return result | {"bytes_per_sending_client": sent / len(self.representations.positions)}

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; representations are computed again."""
        parts = {"server": self.server.state_dict(), "optimizer": self.optimizer.state_dict()}
        return super().state_dict() | parts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.server.load_state_dict(state["server"])
        self.optimizer.load_state_dict(state["optimizer"])
