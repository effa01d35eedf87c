"""Untrained models under the evaluation of trained ones: what a training has to beat before it has learned anything.

An encoder with its first, random values already tells classes apart better than chance, and small images or few
classes make it look good. Its accuracy is a run of its own. Trainings that differ in nothing but how they train start
from one model, so they share one such run.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import default_device, repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.evaluation.downstream import DownstreamSettings
from fssl_core.evaluation.metrics import chance
from fssl_core.settings import Settings

# Fields of trainings that decide the first model, or how a model is evaluated; all others say how it is trained.
DECISIVE = ("seed", "dataset", "image_size", "train_images", "precision", "phase1", "objective")
DECISIVE += ("architecture", "width", "norm", "cut", "channels_per_group", "variance")
DECISIVE += ("projector", "projector_hidden", "projector_dim")
DECISIVE += ("shares", "bases")  # the first decides no model, but which widths are valid
DECISIVE += ("validation_share", "knn_k", "knn_temperature", "probe_epochs")


@dataclass(frozen=True, kw_only=True)
class UntrainedSettings(Settings):
    """The evaluation that a training's summary has of its best model, of the model before the first step.

    It stands for a pre-training as well, in the settings of an evaluation.

    Args:
        of: settings of a training, with ``load_data``, ``build_model``, ``backbone``, ``compared``, ``knn_accuracy``
            and ``accuracies``. It is not run; what it builds on, such as the first phase of MFCL, is untrained, too.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again

    of: Settings

    def check(self) -> None:
        if not is_training(self.of):
            raise SettingError("of", type(self.of).__name__, "settings of a training, for example AveragingSettings()")

    @property
    def needs(self) -> tuple[Settings, ...]:
        return ()

    def load_data(self, device: str = "cpu") -> Dataset:
        """The images of the training."""
        return self.of.load_data(device)

    def model(self, data: Dataset) -> nn.Module:
        """The whole model with its first values, frozen, in evaluation mode."""
        return self.of.build_model(data).eval().requires_grad_(False)

    def trained_backbone(self, run, data: Dataset) -> nn.Module:
        """The part of it that pre-training would leave, untrained: images to features."""
        return self.of.backbone(self.model(data))

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Evaluate the model.

        Returns:
            the accuracies that a summary of the training has, by the same names, and that of chance; fractions.
        """
        data = self.load_data(default_device())
        progress(0, 1)
        with repeatable_kernels():
            model = self.model(data)
            knn = self.of.knn_accuracy(self.of.compared(model), data)
            others = self.of.accuracies(model, data)
        progress(1, 1)
        by_chance = chance(data.test.labels) if data.labelled else math.nan
        return {"knn_accuracy": knn, **others, "chance": by_chance, "official_data": data.official}


def is_training(settings: Settings) -> bool:
    """Whether these are settings of a training whose model is evaluated."""
    return hasattr(settings, "build_model") and hasattr(settings, "accuracies")


def untrained(settings: Settings) -> Settings | None:
    """The run that says what the accuracies of another one would be without training.

    Args:
        settings: of a training, or of an evaluation on top of one.

    Returns:
        the same evaluation of the untrained model; None where there is none: of attacks and landscapes, and of
        fine-tuning from scratch, which is itself that of an untrained model.
    """
    if is_training(settings):
        of_each = getattr(settings, "statistics", "averaged") == "own"  # evaluated on what each client would send
        return UntrainedSettings(of=settings if of_each else _decisive(settings))
    if isinstance(settings, DownstreamSettings) and not getattr(settings, "scratch", False):
        return dataclasses.replace(settings, pretraining=_pretraining(settings.pretraining))
    return None


def _pretraining(settings: Settings) -> Settings:
    """The untrained model in place of a pre-training; whose own accuracies nobody asks for."""
    if is_training(settings):
        return UntrainedSettings(of=_decisive(settings, probe_epochs=0))
    if isinstance(settings, UntrainedSettings):
        return settings
    return dataclasses.replace(settings, pretraining=_pretraining(settings.pretraining))


def _decisive(settings: Settings, **changes: Any) -> Settings:
    """The settings with all that only says how to train at its default, if those are valid; else as they are."""
    names = {field.name for field in dataclasses.fields(settings)}
    values = {name: getattr(settings, name) for name in DECISIVE if name in names}
    if "cut_layer" in names:
        values["cut_layer"] = 1  # cut in two, a network computes the same, wherever that is
    if "phase1" in names:
        values["phase1"] = _decisive(settings.phase1)
    try:
        return type(settings)(**values | changes)
    except SettingError:  # twin norm, say, needs another scheme than the default
        return settings
