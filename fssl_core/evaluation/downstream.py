"""A head on the frozen features of a pre-training, as a run of its own: what all such evaluations do alike.

There is no augmentation, so each image passes the backbone once. Runs that differ in the head only share their
pre-training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import default_device, repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.metrics import chance
from fssl_core.settings import Range, Settings


@dataclass(frozen=True)
class HeadResult:
    """How well a head did.

    Args:
        accuracy_per_epoch: test accuracy after each epoch, in [0, 1].
    """

    accuracy_per_epoch: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Test accuracy of the last epoch, in [0, 1]: the one to report."""
        return self.accuracy_per_epoch[-1]

    @property
    def best_accuracy(self) -> float:
        """Highest test accuracy of all epochs, as the authors' code of MocoSFL reports; it selects on the test set."""
        return max(self.accuracy_per_epoch)


@dataclass(frozen=True, kw_only=True)
class DownstreamSettings(Settings):
    """A head trained on top of a pre-training that is a run of its own. A subclass says which images and which head.

    ``pretraining`` is any settings with ``load_data(device) -> Dataset`` and
    ``trained_backbone(run, data) -> nn.Module``, which gives the pre-trained model from normalised images to features
    on the data's device, without its projector; for example a ``SplitSettings``.
    """

    measure: ClassVar[str]  # of the summary: ``<measure>_accuracy``

    pretraining: Settings
    label_fraction: Annotated[float, Range(1e-9, 1)] = 1.0  # share of the training images that keep their label
    seed: int = 0  # which images are labelled, initial weights, order

    def check(self) -> None:
        missing = [name for name in ("load_data", "trained_backbone") if not hasattr(self.pretraining, name)]
        if missing:
            expected = f"settings with {' and '.join(missing)}, for example a SplitSettings"
            raise SettingError("pretraining", type(self.pretraining).__name__, expected)

    # ---------------------------------------------------------------- what a subclass says

    def evaluation_data(self, source: Dataset) -> Dataset:
        """The images that are classified; unless overridden ``source``, those of the pre-training."""
        return source

    def labelled_images(self, data: Dataset) -> Tensor:
        """Indices ``[labels]`` of the training images that the head is trained on."""
        raise NotImplementedError

    def feature_model(self, backbone: nn.Module) -> nn.Module:
        """The part of the pre-trained backbone whose output the head sees; unless overridden all of it."""
        return backbone

    def train_head(self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> HeadResult:
        """Train a head on features ``train_x`` [N, D] with labels ``train_y`` [N], and test it."""
        raise NotImplementedError

    # ---------------------------------------------------------------- a run

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Pre-train unless that run is finished, train the head, and leave its accuracies in the table ``metrics``.

        Args:
            run: an :class:`fssl_core.experiments.store.Run`, of which ``result_of`` and the writers are used.
            progress: called as ``progress(done, total)`` for the pre-training and the head.

        Returns:
            the run's summary: accuracies on the full test set and that of chance, as fractions, and the number of
            labelled images.
        """
        device = default_device()
        source = self.pretraining.load_data(device)
        data = self.evaluation_data(source)
        chosen = self.labelled_images(data).to(device)  # what cannot be used is found before any training
        pretrained = run.result_of(self.pretraining)
        progress(1, 2)
        with repeatable_kernels():
            model = self.feature_model(self.pretraining.trained_backbone(pretrained, source))
            # A frozen model goes with the statistics that it was trained with, whatever images it sees now.
            labelled, test = (
                extract(model, images, source.normalise) for images in (data.train.images[chosen], data.test.images)
            )
            result = self.train_head(labelled, data.train.labels[chosen], test, data.test.labels, len(data.classes))
        accuracies = result.accuracy_per_epoch
        run.write_table("metrics", pd.DataFrame({"epoch": range(1, len(accuracies) + 1), "accuracy": accuracies}))
        progress(2, 2)
        return {
            f"{self.measure}_accuracy": result.accuracy,
            f"best_{self.measure}_accuracy": result.best_accuracy,
            "labelled_images": len(chosen),
            "chance": chance(data.test.labels, len(data.classes)),
            "official_data": source.official and data.official,  # False: not comparable with published numbers
        }
