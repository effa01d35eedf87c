"""What settings of training have in common: how a run is evaluated and executed; for a federation, data and model too.

The engines add their own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.augment import AUGMENTATIONS
from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.data.partitions import parsed, partition
from fssl_core.devices import autocast, default_device, dtype_of, keep_freed_memory, repeatable_kernels
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.knn import knn_accuracy
from fssl_core.evaluation.linear_probe import linear_probe
from fssl_core.federation.clients import ClientMatrix
from fssl_core.learning_rates import half_cosine
from fssl_core.models import ARCHITECTURES, VERSIONS, Backbone, build_backbone, norms_of
from fssl_core.precision import chosen_precision, versions_of
from fssl_core.random import generator
from fssl_core.settings import (
    Channels,
    Count,
    DataName,
    NonNegative,
    Pixels,
    Range,
    Settings,
    Share,
    Temperature,
    Whole,
    check_choice,
    check_range,
)

if TYPE_CHECKING:
    from fssl_core.training.trainer import Trainer

SCHEDULES = ("cosine", "constant")
INCOMPLETE_BATCHES = ("left out", "kept")
SELECTIONS = ("knn", "last")


class TrainingSettings(Settings):
    """Settings of one training run, whatever the engine."""

    progress_unit: ClassVar[str] = "epoch"  # what its trainer counts

    # Named here and no fields yet: every subclass has them, with its own defaults and in its own order.
    seed: int
    clients: Count
    selection: str  # the model to keep: "knn", that with the best kNN accuracy, or "last"
    learning_rate: NonNegative
    momentum: Share
    weight_decay: NonNegative
    validation_share: Annotated[float, Range(0.001, 1)]
    knn_k: Count
    knn_temperature: Temperature
    probe_epochs: Whole
    precision: str  # of forward passes; "auto" becomes bfloat16 where that is fast, else float32: fssl_core.precision
    validate_every: Count = 1  # epochs or rounds between kNN accuracies; what is not measured is NaN in the metrics

    def check(self) -> None:
        object.__setattr__(self, "precision", chosen_precision(self.precision))

    @property
    def versions(self) -> dict[str, int]:
        """Of code that some settings use only, beside the class's own ``version``; by name, where it has changed."""
        return versions_of(self.precision)

    @property
    def supervised(self) -> bool:
        """Whether the training itself needs labels."""
        return False

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and images."""
        return dtype_of(self.precision)

    def autocast(self, device: torch.device) -> torch.autocast:
        """The precision of forward passes."""
        return autocast(device, self.precision)

    def load_data(self, device: torch.device | str = "cpu") -> Dataset:
        """The images of the run."""
        raise NotImplementedError

    def build_model(self, data: Dataset) -> nn.Module:
        """The whole model with its first values, on the images' device."""
        raise NotImplementedError

    def trainer(self, data: Dataset, run) -> "Trainer":
        """What trains these settings on these images; ``run`` gives access to runs that this one builds on."""
        raise NotImplementedError

    def backbone(self, model: nn.Module) -> nn.Module:
        """The part of a whole model that is left after pre-training: images, as the run sees them, to features."""
        raise NotImplementedError

    def compared(self, model: nn.Module) -> nn.Module:
        """The part of a whole model whose output kNN compares: unless overridden the backbone."""
        return self.backbone(model)

    def trained_model(self, run, data: Dataset) -> nn.Module:
        """The best model that a finished run of these settings left, frozen, in evaluation mode."""
        model = self.build_model(data)
        model.load_state_dict(run.tensors("best"))
        return model.eval().requires_grad_(False)

    def trained_backbone(self, run, data: Dataset) -> nn.Module:
        """The :meth:`backbone` of the best model that a finished run left, frozen, in evaluation mode."""
        return self.backbone(self.trained_model(run, data))

    # ---------------------------------------------------------------- how good a model is

    def knn_accuracy(self, part: nn.Module, data: Dataset) -> float:
        """kNN accuracy on the validation share of the test set, a fraction; NaN of images without labels.

        By it MocoSFL and MonAcoSFL choose their best epoch. Which images it is measured on depends on the seed alone.

        Args:
            part: what :meth:`compared` gives.
        """
        if not data.labelled:
            return math.nan
        train, test = data.train, data.test
        count = max(1, round(self.validation_share * len(test)))
        chosen = torch.randperm(len(test), generator=generator(self.seed, "validation"))[:count].to(test.labels.device)
        options = {"k": self.knn_k, "temperature": self.knn_temperature}
        with self.autocast(train.images.device):
            bank, queries = (extract(part, images, data.normalise) for images in (train.images, test.images[chosen]))
            return knn_accuracy(bank, train.labels, queries, test.labels[chosen], **options)

    def accuracies(self, model: nn.Module, data: Dataset) -> dict[str, float]:
        """The accuracies of a whole model, by name, that stand in a run's summary beside kNN's: fractions.

        On the full test set; none of images without labels.
        """
        if not data.labelled or not self.probe_epochs:
            return {}
        return {"linear_probe_accuracy": self.probe(self.backbone(model), data)}

    def probe(self, part: nn.Module, data: Dataset) -> float:
        """Accuracy of a linear classifier on what a part of a model makes of labelled images, on the full test set."""
        options = {"classes": len(data.classes), "epochs": self.probe_epochs, "seed": self.seed}
        with self.autocast(data.train.images.device):
            train, test = (extract(part, split.images, data.normalise) for split in (data.train, data.test))
            return linear_probe(train, data.train.labels, test, data.test.labels, **options).accuracy

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Train, evaluate, and leave the trainer's tables and tensors in the run's folder.

        Args:
            run: an :class:`fssl_core.experiments.store.Run`, of which the checkpoint and the writers are used.
            progress: called as ``progress(done, total, **figures)`` after each epoch or client.

        Returns:
            the run's summary: accuracies as fractions.
        """
        keep_freed_memory()
        with repeatable_kernels():  # some measure a model while they are made
            trainer = self.trainer(self.load_data(default_device()), run)
        state = run.checkpoint.load()
        if state is not None:
            trainer.load_state_dict(state)
        with run.saver() as saver, repeatable_kernels():
            trainer.train(progress, saver.offer)
            summary = trainer.summary()
            trainer.write(run)
        return summary


@dataclass(frozen=True, kw_only=True)
class FederationSettings(TrainingSettings):
    """Settings of a federation of clients that train; the defaults are those of CIFAR-10 with a ResNet-18."""

    seed: int = 1138  # authors' scripts of MonAcoSFL
    # data
    dataset: DataName = "cifar10"
    image_size: Pixels | None = None  # pixels; None: that of the data set
    train_images: Count | None = None  # use only so many, equally many of each class; None: all
    partition: str = "classes:2"
    clients: int = 20
    augmentation: str = "mocov2"
    # model
    architecture: str = "resnet18"
    width: Channels = 64  # channels of the stem
    norm: str = "group"
    # optimisation
    learning_rate: float = 0.06
    momentum: float = 0.9
    weight_decay: float = 5e-4
    # evaluation
    validation_share: float = 0.2  # of the test set, for the choice of the best model by kNN
    knn_k: int = 200
    knn_temperature: float = 0.1
    probe_epochs: int = 100  # 0: no linear probe; images without labels never have one
    # execution
    precision: str = "float32"  # bfloat16: autocast; weights, momentum and EMA stay float32

    @property
    def versions(self) -> dict[str, int]:
        of_model = {name: number for name, number in VERSIONS.items() if name == self.architecture}
        return super().versions | of_model

    @property
    def pairs(self) -> bool:
        """Whether a model in training sees both views of its images in one batch where it needs to: for twin norm."""
        return False

    def check(self) -> None:
        super().check()
        check_choice("architecture", self.architecture, ARCHITECTURES)
        norms = [norm for norm in norms_of(self.architecture) if norm != "twin" or self.pairs]
        check_choice("norm", self.norm, norms)
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        parsed(self.partition)

    # ---------------------------------------------------------------- what a trainer is made of

    def load_data(self, device: torch.device | str = "cpu") -> Dataset:
        """The images of the run: those of ``dataset``, of which ``train_images`` are kept for training."""
        return load_dataset(self.dataset, device=device, image_size=self.image_size, train_images=self.train_images)

    def divide(self, data: Dataset) -> list[Tensor]:
        """Indices of the training images that each client holds."""
        return partition(data.train.labels.cpu(), self.clients, self.partition, self.seed)

    def build_backbone(self, data: Dataset, init: torch.Generator) -> Backbone:
        """The backbone for these images, with first values from ``init``, on the CPU."""
        return build_backbone(
            self.architecture,
            width=self.width,
            norm=self.norm,
            image_size=data.image_size,
            channels=data.channels,
            generator=init,
        )

    def sgd(self, matrix: ClientMatrix, velocity: ClientMatrix) -> torch.optim.SGD:
        """SGD of all rows as one fused step on one parameter; ``velocity`` is its momentum buffer."""
        return self.sgd_of(matrix.weights, velocity.weights.detach())

    def sgd_of(self, weights: nn.Parameter, velocity: Tensor) -> torch.optim.SGD:
        """The same of any parameter with its momentum buffer."""
        optimizer = torch.optim.SGD([weights], momentum=self.momentum, weight_decay=self.weight_decay, fused=True)
        if self.momentum > 0:
            optimizer.state[weights]["momentum_buffer"] = velocity
        return optimizer


class RoundSettings(FederationSettings):
    """Settings of a federation that trains in rounds: clients pass over their own images, then models are averaged."""

    progress_unit: ClassVar[str] = "round"

    # Named here and no fields yet, as above.
    clients_per_round: Count | None  # None: all
    rounds: Count
    local_epochs: Count
    batch: Count
    schedule: str  # of the learning rate, round by round
    method: str  # what the tables call it
    incomplete_batch: str = "left out"  # or "kept": see used

    def check(self) -> None:
        super().check()
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("incomplete_batch", self.incomplete_batch, INCOMPLETE_BATCHES)
        if self.clients_per_round is not None:
            check_range("clients_per_round", self.clients_per_round, 1, self.clients)

    @property
    def sampled(self) -> int:
        """Clients that take part in a round."""
        return self.clients_per_round or self.clients

    @property
    def views(self) -> int:
        """Views of an image in a step."""
        return 1 if self.supervised else 2

    def accuracies(self, model: nn.Module, data: Dataset) -> dict[str, float]:
        """In addition, where the training has learned the labels, ``test_accuracy`` of its own classifier."""
        results = super().accuracies(model, data)
        if self.supervised:
            with self.autocast(data.train.images.device):
                logits = extract(model, data.test.images, data.normalise)
            results["test_accuracy"] = (logits.argmax(1) == data.test.labels).float().mean().item()
        return results

    def used(self, images: int) -> int:
        """Images that a client with so many trains on in a local epoch.

        A client with less than a batch takes one of all its images. Of others the last, incomplete batch of an epoch
        is left out, or kept unless it is a single image, which has no batch statistics and no negatives.
        """
        rest = images % min(self.batch, images)
        return images if self.incomplete_batch == "kept" and rest != 1 else images - rest

    def rate(self, finished: int) -> float:
        """The learning rate in the round after ``finished`` others."""
        fall = half_cosine(finished, self.rounds) if self.schedule == "cosine" else 1.0
        return self.learning_rate * fall
