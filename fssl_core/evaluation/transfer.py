"""What probes and fine-tuning share: all labels or a few, on the images of the pre-training or on others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.errors import SettingError
from fssl_core.evaluation.downstream import DownstreamSettings
from fssl_core.random import generator
from fssl_core.settings import Count, DataName


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
