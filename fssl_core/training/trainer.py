"""What all engines do alike: keep the best model by kNN, count bytes, sum up a run, stop and go on.

Images without labels can be trained on, and say nothing of how good the model is: its kNN accuracy is NaN, a summary
has no linear probe, and the model to keep is the last one. Evaluate such a run on another data set, with the settings
of :mod:`fssl_core.evaluation.probe_runs` or :mod:`fssl_core.evaluation.fine_tuning`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.augment import augmentation
from fssl_core.data.datasets import Dataset
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.ledger import Ledger
from fssl_core.federation.rows import Room, Rows
from fssl_core.random import generator
from fssl_core.training.settings import RoundSettings, TrainingSettings

WITHOUT_LABELS = {"partition": "iid", "selection": "last", "probe_every": 0}  # settings that images without them need


class Trainer(ABC):
    """Trains one federation, an epoch or a client's part of a round at a time.

    Args:
        settings: what to do.
        data: images, normally ``settings.load_data(device)``; the models live on their device. Labels are used for
            the partition and the evaluation only.
        total: epochs or rounds of the whole run.

    Attributes:
        finished: epochs or rounds done.
        metrics: a row of figures for each of them.
        best: the model to keep so far, as ``settings.selection`` says: its ``knn_accuracy``, ``epoch`` and ``model``
            (a state).

    Raises:
        SettingError: the images have no labels, and the settings need them.
    """

    def __init__(self, settings: TrainingSettings, data: Dataset, total: int) -> None:
        if not data.labelled:
            _check_needs_no_labels(settings, data.name)
        self.settings = settings
        self.data = data
        self.device = data.train.images.device
        self.room = Room(self.device)
        self.ledger = Ledger(settings.clients)
        self.total = total
        self.finished = 0
        self.metrics: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"knn_accuracy": -1.0}

    @abstractmethod
    def advance(self) -> None:
        """Train one more epoch, or one more client of a round, and evaluate an epoch or round that is complete.

        Raises:
            NonFiniteLossError: a loss was NaN or infinite. Nothing of this epoch, or of this client, is kept.
        """

    @abstractmethod
    def global_model(self) -> nn.Module:
        """The model that all clients share: a copy, with the state that :attr:`best` keeps."""

    def knn_model(self) -> nn.Module:
        """The part of :meth:`global_model` whose output kNN compares."""
        return self.settings.compared(self.global_model())

    @property
    def progress(self) -> tuple[int, int]:
        """How often :meth:`advance` was called, and how often in all."""
        return self.finished, self.total

    def train(self, progress: Callable[..., None], offer: Callable[[Callable[[], dict]], None] | None = None) -> None:
        """Train to the end, from wherever this trainer stands.

        Args:
            progress: called as ``progress(done, total, **figures)``.
            offer: called with :meth:`state_dict` whenever another trainer could go on from here; see
                :meth:`fssl_core.training.saver.Saver.offer`.
        """
        progress(*self.progress)
        while self.finished < self.total:
            self.advance()
            if offer is not None:
                offer(self.state_dict)
            last = self.metrics[-1] if self.metrics else {}
            shown = {name: last.get(name, math.nan) for name in ("loss", "knn_accuracy")}
            progress(*self.progress, **{name: value for name, value in shown.items() if math.isfinite(value)})

    def looks(self, number: int) -> bool:
        """Whether this epoch or round, counted from 1, is evaluated at its end; the last one always is."""
        return number % self.settings.validate_every == 0 or number == self.total

    def validate(self) -> float:
        """kNN accuracy of the model that all clients share, on the validation share of the test set; NaN unlabelled."""
        return self.settings.knn_accuracy(self.knn_model(), self.data)

    def record(self, row: dict[str, float]) -> None:
        """Close an epoch or round: book its bytes, evaluate the shared model, and keep it if it is the best."""
        self.ledger.close_epoch()
        self.finished += 1
        knn = self.validate() if self.looks(self.finished) else math.nan
        self.metrics.append({"epoch": self.finished, **row, "knn_accuracy": knn})
        if self.settings.selection == "last" or knn > self.best["knn_accuracy"]:
            state = {name: value.clone() for name, value in self.global_model().state_dict().items()}
            self.best = {"knn_accuracy": knn, "epoch": self.finished, "model": state}

    def check_finite(self, losses: list[Tensor], where: str, rates: str) -> None:
        """Raise where a loss is not finite. Seldom called: looking at a loss makes the CPU wait for a GPU.

        Args:
            losses: of consecutive steps.
            where: what the steps belong to, e.g. ``"epoch 3"``.
            rates: the learning rates, as a message names them.
        """
        values = torch.stack(losses)
        if not values.isfinite().all():
            step = int((~values.isfinite()).nonzero()[0])
            raise NonFiniteLossError(
                f"the loss is {values[step].item()} at step {step + 1} of {where}; what was stored before it is kept. "
                f"Lower {rates}."
            )

    def summary(self) -> dict[str, Any]:
        """The run in a few numbers: accuracies of the best model by kNN, everything else of the last epoch or round.

        The linear probe uses the full test set; without labels there is none, whatever ``probe_epochs`` says.
        """
        model = self.global_model()
        model.load_state_dict(self.best["model"])
        last = {name: value for name, value in self.metrics[-1].items() if name not in ("epoch", "knn_accuracy")}
        traffic = torch.stack(self.ledger.epochs).sum(2).double()  # [epochs, clients] in bytes
        return {
            "knn_accuracy": self.best["knn_accuracy"],
            "best_epoch": self.best["epoch"],
            **last,
            "bytes_per_client_epoch": traffic.mean().item(),
            "training_images": len(self.data.train),
            "official_data": self.data.official,  # False: not comparable with published numbers
            **self.settings.accuracies(model, self.data),
        }

    def tables(self) -> dict[str, pd.DataFrame]:
        """What was measured, tidy: ``metrics`` by epoch or round, ``traffic`` by epoch or round and client."""
        return {"metrics": pd.DataFrame(self.metrics), "traffic": self.ledger.table()}

    def tensors(self) -> dict[str, dict[str, Any]]:
        """What a run keeps as tensors: ``best``, the state of the best model."""
        return {"best": self.best["model"]}

    def write(self, run) -> None:
        """Leave tables and tensors in the folder of an :class:`fssl_core.experiments.store.Run`."""
        for name, table in self.tables().items():
            run.write_table(name, table)
        for name, state in self.tensors().items():
            run.save_tensors(name, state)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch or round depends on; random numbers are a function of its number."""
        return {
            "finished": self.finished,
            "ledger": self.ledger.state_dict(),
            "metrics": self.metrics,
            "best": self.best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        self.ledger.load_state_dict(state["ledger"])
        self.finished, self.metrics, self.best = state["finished"], state["metrics"], state["best"]


class RoundTrainer(Trainer):
    """Trains one federation in rounds, in which clients pass over their own images.

    Attributes:
        parts: of each client, the numbers of its images.
        augment: makes a view of an image.
    """

    stays: ClassVar[tuple[str, ...]]  # the attributes whose models are kept between rounds; some may be None

    def __init__(self, settings: RoundSettings, data: Dataset) -> None:
        super().__init__(settings, data, settings.rounds)
        self.parts = settings.divide(data)
        self.augment = augmentation(settings.augmentation, data.image_size)

    def batches(self, client: int, number: int) -> list[tuple[Tensor, Tensor]]:
        """Images and augmentation draws of a client's pass ``number``; see :meth:`RoundSettings.used`.

        Returns:
            for each step, the images' numbers ``[batch]`` on their device, and draws ``[batch, views, numbers]``.
        """
        s, part = self.settings, self.parts[client]
        used = s.used(len(part))
        order = part[torch.randperm(len(part), generator=generator(s.seed, "order", number, client))[:used]]
        draws = self.augment.draw(s.views * used, generator(s.seed, "augment", number, client))
        draws = draws.unflatten(0, (used, s.views))
        size = min(s.batch, used)
        return list(zip(order.to(self.device).split(size), draws.split(size), strict=True))

    def summary(self) -> dict[str, Any]:
        """In addition the method's name."""
        return {"method": self.settings.method, **super().summary()}

    @property
    def kept(self) -> list[ClientMatrix | Rows]:
        """The models that stay from one round to the next."""
        return [matrix for name in self.stays if (matrix := getattr(self, name)) is not None]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"matrices": [matrix.all_rows() for matrix in self.kept]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for matrix, rows in zip(self.kept, state["matrices"], strict=True):
            matrix.load_all_rows(rows)


def _check_needs_no_labels(settings: TrainingSettings, name: str) -> None:
    if settings.supervised:
        raise SettingError("dataset", name, f"a data set with labels, with which {type(settings).__name__} trains")
    for setting, needed in WITHOUT_LABELS.items():
        if (value := getattr(settings, setting, needed)) != needed:
            raise SettingError(setting, value, f"{needed!r}, because {name} has no labels")
