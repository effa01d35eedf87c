"""A head on the frozen features of a pre-training, as a run of its own: what all such evaluations do alike.

There is no augmentation, so each image passes the backbone once. Runs that differ in the head only share their
pre-training. Probes and fine-tuning take all labels or a few, on the images of the pre-training or on others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.devices import default_device, repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.evaluation.features import extract
from fssl_core.evaluation.metrics import chance
from fssl_core.random import generator
from fssl_core.settings import Count, DataName, Range, Settings


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
            "chance": chance(data.test.labels),
            "official_data": source.official and data.official,  # False: not comparable with published numbers
        }


def balanced_subset(labels: Tensor, label_fraction: float, seed: int) -> Tensor:
    """The images that keep their labels: the same share of every class, chosen at random.

    With one seed a smaller share is a part of a larger one, so shares differ in nothing else.

    Args:
        labels: int64 ``[N]`` of all training images.
        label_fraction: share of each class, in (0, 1], rounded to whole images.
        seed: decides which.

    Returns:
        int64 indices ``[labels]`` in ascending order, on the CPU.

    Raises:
        SettingError: a class of ``labels`` would have no labelled image.
    """
    labels = labels.cpu()
    classes, counts = labels.unique(return_counts=True)
    smallest = int(counts.min())
    if round(label_fraction * smallest) < 1:
        expected = f"a share from {1 / smallest:.2g} to 1, which leaves one of the smallest class's {smallest:,} images"
        raise SettingError("label_fraction", label_fraction, expected)
    chosen = []
    for label in classes.tolist():
        members = (labels == label).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=generator(seed, "balanced labels", label))
        chosen.append(members[order[: round(label_fraction * len(members))]])
    return torch.cat(chosen).sort().values


@dataclass(frozen=True, kw_only=True)
class TransferSettings(DownstreamSettings):
    """A downstream evaluation with the same share of labels in every class, on any data set."""

    dataset: DataName | None = None  # another data set, at the pre-training's image size; None: its own images
    train_images: Count | None = None  # of ``dataset``, equally many of each class; None: all

    def check(self) -> None:
        super().check()
        if self.train_images is not None and self.dataset is None:
            raise SettingError("train_images", self.train_images, "None unless dataset names another data set")

    def evaluation_data(self, source: Dataset) -> Dataset:
        """``dataset`` at the image size of ``source``, on its device.

        Raises:
            SettingError: the images that would be classified have no labels, or those of the two differ in the number
                of channels.
        """
        if self.dataset is None:
            if not source.labelled:
                expected = f"the name of a labelled data set, because {source.name}, of the pre-training, has no labels"
                raise SettingError("dataset", None, expected)
            return source
        data = load_dataset(
            self.dataset,
            device=source.train.images.device,
            image_size=source.image_size,
            train_images=self.train_images,
        )
        if not data.labelled:
            raise SettingError("dataset", self.dataset, "a labelled data set")
        if data.channels != source.channels:
            expected = f"a data set with {source.channels} channels, as {source.name} has"
            raise SettingError("dataset", self.dataset, expected)
        return data

    def labelled_images(self, data: Dataset) -> Tensor:
        return balanced_subset(data.train.labels, self.label_fraction, self.seed)
