"""Linear probes of a pre-training, each a run of its own: on all labels or a few, on its own images or on others.

L-DAWA: Ur Rehman et al., "L-DAWA: layer-wise divergence aware weight aggregation in federated self-supervised visual
representation learning", ICCV 2023, Section 4.3 (all labels, 1 % and 10 %) and Section 5.5 (transfer to another data
set). ``reference/ldawa_settings.yaml`` lists what the paper leaves open. Images of another data set are normalised
with the mean and deviation of the pre-training's own: the frozen backbone then sees what it always saw of a pixel.

Differs from the authors' code: which images are labelled there is in files that are not released, here it is a random
share of each class; there the probe sees pixels in [0, 1], here images normalised as in the pre-training; and there
running statistics of batch norm may move while the probe trains, here the backbone is in evaluation mode.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.errors import SettingError
from fssl_core.evaluation.downstream import DownstreamSettings
from fssl_core.evaluation.features import unpooled
from fssl_core.evaluation.linear_probe import PROTOCOLS, ProbeResult, linear_probe
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range

FEATURES = ("pooled", "unpooled")


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
class ProbeSettings(DownstreamSettings):
    """A linear probe on top of a pre-training; its summary has ``linear_probe_accuracy``.

    With the defaults, and ``probe_epochs`` and ``seed`` of the pre-training, this is the probe that a federation of
    full precision reports in its own summary. L-DAWA's is ``protocol="sgd-steps", features="unpooled"``.
    """

    version: ClassVar[int] = 1  # raise when results change, those of PROTOCOLS too: stored runs are computed again
    measure: ClassVar[str] = "linear_probe"

    protocol: str = "adam-cosine"  # a key of PROTOCOLS
    features: str = "pooled"  # unpooled: the last feature map, flattened, as in the authors' code of L-DAWA
    epochs: int = 100  # Section 4.3
    dataset: str | None = None  # transfer: another data set, at the pre-training's image size; None: its own images
    train_images: int | None = None  # of ``dataset``, equally many of each class; None: all

    def check(self) -> None:
        super().check()
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("features", self.features, FEATURES)
        check_range("epochs", self.epochs, 1)
        if self.train_images is not None and self.dataset is None:
            raise SettingError("train_images", self.train_images, "None unless dataset names another data set")

    def evaluation_data(self, source: Dataset) -> Dataset:
        """``dataset`` at the image size of ``source``, on its device.

        Raises:
            SettingError: the images of the two differ in the number of channels.
        """
        if self.dataset is None:
            return source
        data = load_dataset(
            self.dataset,
            device=source.train.images.device,
            image_size=source.image_size,
            train_images=self.train_images,
        )
        if data.channels != source.channels:
            expected = f"a data set with {source.channels} channels, as {source.name} has"
            raise SettingError("dataset", self.dataset, expected)
        return data

    def labelled_images(self, data: Dataset) -> Tensor:
        return balanced_subset(data.train.labels, self.label_fraction, self.seed)

    def feature_model(self, backbone: nn.Module) -> nn.Module:
        return unpooled(backbone) if self.features == "unpooled" else backbone

    def train_head(self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> ProbeResult:
        return linear_probe(
            train_x,
            train_y,
            test_x,
            test_y,
            classes=classes,
            protocol=self.protocol,
            epochs=self.epochs,
            seed=self.seed,
        )
