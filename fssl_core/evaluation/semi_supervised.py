"""Semi-supervised evaluation: a small head on frozen features, trained on a few labels.

MocoSFL: Li et al., "MocoSFL: enabling cross-client collaborative self-supervised learning", ICLR 2023, Appendix B.2
and Table 4: accuracy with 1 % and with 10 % of CIFAR-10's labels after pre-training on non-IID clients.

The paper does not describe the protocol; this is that of the authors' code. The backbone is frozen. A random share of
the training images, not balanced over the classes, keeps its labels and trains Linear - batch norm - ReLU - Linear by
Adam for 100 epochs. There is no augmentation, so each image passes the backbone once. Differs from the code: the rate
falls to a tenth after 60 and after 80 epochs, where the code counts the same numbers in batches and so trains most
of the time at a hundredth; and the accuracy of the last epoch is reported, where the code reports the best test
accuracy of all epochs, a choice made on the test set. The best is given beside it.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fssl_core.data.datasets import Dataset
from fssl_core.devices import in_full_precision
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.downstream import DownstreamSettings, HeadResult
from fssl_core.evaluation.features import check_features
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range


@dataclass(frozen=True)
class SemiSupervisedResult(HeadResult):
    """What a head found.

    Args:
        accuracy_per_epoch: test accuracy after each epoch, in [0, 1].
        head: the trained head from [B, D] to [B, classes], in evaluation mode.
    """

    head: nn.Sequential


def labelled_subset(images: int, label_fraction: float, seed: int) -> Tensor:
    """The images that keep their labels: a random share of all, whatever their classes.

    With one seed a smaller share is a part of a larger one, so shares differ in nothing else.

    Args:
        images: number of training images.
        label_fraction: share of them, in (0, 1], rounded to whole images.
        seed: decides which.

    Returns:
        int64 indices ``[labels]``, in random order.

    Raises:
        SettingError: fewer than two images would keep their labels, and batch norm needs two.
    """
    labels = round(label_fraction * images)
    if not 2 <= labels <= images:
        expected = f"a share from {2 / images:.2g} to 1, which leaves at least 2 of {images:,} images a label"
        raise SettingError("label_fraction", label_fraction, expected)
    return torch.randperm(images, generator=generator(seed, "labelled images"))[:labels]


def _head(features: int, hidden: int, classes: int, start: torch.Generator) -> nn.Sequential:
    """Linear - batch norm - ReLU - Linear on the CPU, with PyTorch's initialisation drawn from ``start``.

    The first layer has no bias: batch norm would subtract it again, and Adam would turn the rounding errors that are
    its gradient into a walk.
    """
    first, last = skip_init(nn.Linear, features, hidden, bias=False), skip_init(nn.Linear, hidden, classes)
    for layer in (first, last):
        bound = 1 / math.sqrt(layer.in_features)
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=start)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), last)


@dataclass(frozen=True, kw_only=True)
class SemiSupervisedSettings(DownstreamSettings):
    """A head trained on few labels, on top of a pre-training; its summary has ``semi_supervised_accuracy``.

    Defaults: the authors' code, see ``papers/data/mocosfl_settings.yaml``.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    measure: ClassVar[str] = "semi_supervised"

    label_fraction: float = 0.01  # Table 4: 1 % and 10 %
    hidden: Count = 512
    epochs: Count = 100
    batch: Annotated[int, Range(2)] = 128
    learning_rate: NonNegative = 1e-3
    decay_epochs: tuple[Count, ...] = (60, 80)  # finished epochs after which the rate is divided by ten

    def labelled_images(self, data: Dataset) -> Tensor:
        return labelled_subset(len(data.train), self.label_fraction, self.seed)

    @in_full_precision
    def train_head(
        self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int
    ) -> SemiSupervisedResult:
        """Train a head with one hidden layer in float32, also inside ``torch.autocast``, and test it after every epoch.

        A class may have no labelled image. The last step of an epoch takes the rest, unless that is a single image,
        which batch norm cannot normalise: it is left out of this epoch.

        Raises:
            DataError: shapes do not fit, fewer than two images are labelled, features are not finite, or a label is
                outside [0, classes).
        """
        check_features("labelled images", train_x, train_y, classes)
        check_features("test set", test_x, test_y, classes, like=train_x)
        if len(train_x) < 2:
            raise DataError("Batch norm needs at least 2 labelled images, got 1: label more of them.")

        device = train_x.device
        train_x, test_x = train_x.detach().float(), test_x.detach().float()
        head = _head(train_x.shape[1], self.hidden, classes, generator(self.seed, "head-init")).to(device)
        optimizer = torch.optim.Adam(head.parameters(), lr=self.learning_rate, fused=True)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=self.decay_epochs, gamma=0.1)
        accuracy = torch.empty(self.epochs, dtype=torch.float64, device=device)
        for epoch in range(self.epochs):
            order = torch.randperm(len(train_x), generator=generator(self.seed, "head", epoch)).to(device)
            for rows in order.split(self.batch):
                if len(rows) == 1:
                    continue
                optimizer.zero_grad()
                F.cross_entropy(head(train_x[rows]), train_y[rows]).backward()
                optimizer.step()
            schedule.step()
            head.eval()
            with torch.no_grad():
                accuracy[epoch] = (head(test_x).argmax(1) == test_y).double().mean()
            head.train()
        return SemiSupervisedResult(tuple(accuracy.tolist()), head.eval().requires_grad_(False))
