"""Fine-tuning: a pre-trained backbone and a linear classifier, trained together on labelled images.

LW-FedSSL: Tun et al., "LW-FedSSL: resource-efficient layer-wise federated self-supervised learning", Section 4.1: 40
epochs, 10 of them warm-up, batches of 256, AdamW at 1e-3 with a weight decay of 1e-5, cosine schedule, RandAugment. Its
row "Scratch" (Table 2) is the same without pre-training: ``scratch=True``.

What the paper leaves open: all weights are trained ("fine-tuned"); as in pre-training, the base rate is that of batches
of 256 and scales with them; it changes with every step as in the code of MoCo-v3, up from 0 and down to 0; RandAugment
as torchvision has it by default, and no other augmentation; images are normalised as in the pre-training; metrics are
those of the last epoch on the whole test set, and beside them their means over its batches, see
:mod:`fssl_core.evaluation.metrics`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.data.randaugment import RandAugment
from fssl_core.devices import autocast, default_device, dtype_of, keep_freed_memory, repeatable_kernels
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.downstream import TransferSettings
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.metrics import chance, classification_metrics, mean_over_batches
from fssl_core.learning_rates import warmed_up
from fssl_core.models import GlobalPool, TwinNorm
from fssl_core.models.heads import MLP
from fssl_core.precision import chosen_precision, versions_of
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range, Settings, Whole, check_range

BATCH_OF_RATE = 256  # the base learning rate is that of this batch


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings(TransferSettings):
    """Fine-tuning on top of a pre-training; its summary has ``fine_tune_accuracy`` and the other metrics.

    With ``scratch`` the pre-training says only what is built and how images are normalised: it needs
    ``build_backbone(data, generator) -> Backbone`` and is not run.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "epoch"
    measure: ClassVar[str] = "fine_tune"

    epochs: Count = 40
    warmup_epochs: Whole = 10
    batch: Annotated[int, Range(2)] = 256
    base_learning_rate: NonNegative = 1e-3  # of a batch of 256
    weight_decay: NonNegative = 1e-5
    augmentation: RandAugment = field(default_factory=RandAugment)
    scratch: bool = False  # start from first values in place of the pre-trained ones
    precision: str = "float32"  # bfloat16: autocast; weights and AdamW's averages stay float32; "auto": see precision

    def check(self) -> None:
        super().check()
        check_range("warmup_epochs", self.warmup_epochs, 0, self.epochs)
        object.__setattr__(self, "precision", chosen_precision(self.precision))
        if self.scratch and not hasattr(self.pretraining, "build_backbone"):
            expected = "settings with build_backbone, for example an AveragingSettings, where scratch=True"
            raise SettingError("pretraining", type(self.pretraining).__name__, expected)

    @property
    def versions(self) -> dict[str, int]:
        """Of its arithmetic, where that has changed."""
        return versions_of(self.precision)

    @property
    def needs(self) -> tuple[Settings, ...]:
        return () if self.scratch else super().needs

    def learning_rate(self, epoch: float) -> float:
        """The rate at a time in [0, epochs), a fraction being a part of an epoch's steps."""
        peak = self.base_learning_rate * self.batch / BATCH_OF_RATE
        return warmed_up(peak, epoch, self.warmup_epochs, self.epochs)

    # ---------------------------------------------------------------- a run

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Pre-train unless that run is finished, or from scratch; fine-tune, from the last epoch's checkpoint if any.

        Returns:
            the run's summary: metrics on the full test set as fractions, the same as means over batches of it
            (``fine_tune_batch_...``), the accuracy of chance, and the number of labelled images. The table ``metrics``
            has loss and accuracy by epoch.
        """
        keep_freed_memory()
        device = default_device()
        source = self.pretraining.load_data(device)
        data = self.evaluation_data(source)
        chosen = self.labelled_images(data).to(device)  # what cannot be used is found before any training
        with run.saver() as saver, repeatable_kernels():
            tuning = FineTuning(self, self.starting_model(run, source), source, data, chosen)
            state = run.checkpoint.load()
            if state is not None:
                tuning.load_state_dict(state)
            progress(len(tuning.rows), self.epochs)
            while len(tuning.rows) < self.epochs:
                tuning.train_epoch()
                saver.offer(tuning.state_dict)
                last = tuning.rows[-1]
                progress(len(tuning.rows), self.epochs, loss=last["loss"], accuracy=last["accuracy"])
            predictions = tuning.predictions()
            run.write_table("metrics", pd.DataFrame(tuning.rows))
        labels, classes = data.test.labels, len(data.classes)
        whole = asdict(classification_metrics(predictions, labels, classes))
        by_batch = asdict(mean_over_batches(predictions, labels, classes, self.batch))
        return {
            **{f"fine_tune_{name}": value for name, value in whole.items()},
            **{f"fine_tune_batch_{name}": by_batch[name] for name in by_batch if name != "accuracy"},
            "best_fine_tune_accuracy": max(row["accuracy"] for row in tuning.rows),
            "labelled_images": len(chosen),
            "chance": chance(labels),
            "official_data": source.official and data.official,  # False: not comparable with published numbers
        }

    def starting_model(self, run, source: Dataset) -> nn.Module:
        """The backbone before fine-tuning: normalised images of ``source``'s device to features."""
        if self.scratch:
            backbone = self.pretraining.build_backbone(source, generator(self.seed, "initialise"))
            return nn.Sequential(backbone, GlobalPool()).to(source.train.images.device)
        return self.pretraining.trained_backbone(run.result_of(self.pretraining), source)


class FineTuning:
    """Backbone and classifier on their way, an epoch at a time.

    Args:
        settings: what to do.
        backbone: from normalised images to features; it is trained itself, not a copy.
        source: whose mean and deviation normalise images.
        data: whose images are classified.
        chosen: indices ``[N]`` of the training images, on their device.

    Attributes:
        rows: figures of each epoch that is done.
    """

    def __init__(
        self, settings: FineTuneSettings, backbone: nn.Module, source: Dataset, data: Dataset, chosen: Tensor
    ) -> None:
        s = self.settings = settings
        self.source, self.data, self.chosen = source, data, chosen
        self.device, self.dtype = chosen.device, dtype_of(s.precision)
        features = extract(backbone, data.test.images[:1], source.normalise).shape[1]
        head = MLP(features, (len(data.classes),), generator=generator(s.seed, "fine-tune head"))
        self.model = nn.Sequential(backbone, head.to(self.device)).to(self.dtype).requires_grad_()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=s.weight_decay, fused=True)
        self.rows: list[dict[str, float]] = []

    def train_epoch(self) -> None:
        """Train one more epoch and test.

        Raises:
            NonFiniteLossError: a loss was NaN or infinite.
        """
        s, epoch, train = self.settings, len(self.rows), self.data.train
        order = torch.randperm(len(self.chosen), generator=generator(s.seed, "fine-tune", epoch))
        draws = s.augmentation.draw(len(order), generator(s.seed, "fine-tune augment", epoch))
        batches = list(zip(order.split(s.batch), draws.split(s.batch), strict=True))
        if len(batches) > 1 and len(batches[-1][0]) == 1:
            batches.pop()  # batch norm cannot normalise a single image: it is left out of this epoch
        self.model.train()
        for layer in self.model.modules():
            if isinstance(layer, TwinNorm):
                layer.eval()  # the images of a batch are no pairs
        losses = []
        for step, (rows, numbers) in enumerate(batches):
            self.optimizer.param_groups[0]["lr"] = s.learning_rate(epoch + step / len(batches))
            images = self.chosen[rows.to(self.device)]
            views = self.source.normalise(s.augmentation(train.images[images], numbers), self.dtype)
            with autocast(self.device, s.precision):
                loss = F.cross_entropy(self.model(views), train.labels[images])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
        if not math.isfinite(mean):
            raise NonFiniteLossError(
                f"the loss is {mean} in epoch {epoch + 1} of fine-tuning; what was stored before it is kept. "
                f"Lower base_learning_rate={s.base_learning_rate}."
            )
        accuracy = (self.predictions() == self.data.test.labels).double().mean().item()
        self.rows.append({"epoch": epoch + 1, "loss": mean, "accuracy": accuracy})

    def predictions(self) -> Tensor:
        """Most likely class of each test image, int64 ``[M]``."""
        with autocast(self.device, self.settings.precision):
            return extract(self.model, self.data.test.images, self.source.normalise).argmax(1)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; random numbers are a function of its number."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rows = state["rows"]
