"""Linear evaluation: a linear classifier on frozen features.

The protocol of MocoSFL and MonAcoSFL (Section 4 of each): 100 epochs, batch 128, Adam at 1e-3, cosine schedule, no
augmentation. Without augmentation the features of an image never change, so they are computed once and the probe
trains on them. Two things differ from the authors' code: its schedule has a period of 25 and is stepped per batch,
so the rate oscillates, here it falls once from the start to the end; and it reports the best test accuracy of all
epochs, here that of the last one is reported, and the best is given beside it.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.evaluation.features import check_features
from fssl_core.random import generator
from fssl_core.settings import check_range


@dataclass(frozen=True)
class ProbeResult:
    """What a linear probe found.

    Args:
        accuracy_per_epoch: test accuracy after each epoch, in [0, 1].
        weight: of the trained classifier, [classes, D].
        bias: likewise, [classes].
    """

    accuracy_per_epoch: tuple[float, ...]
    weight: Tensor
    bias: Tensor

    @property
    def accuracy(self) -> float:
        """Test accuracy of the last epoch, in [0, 1]: the one to report."""
        return self.accuracy_per_epoch[-1]

    @property
    def best_accuracy(self) -> float:
        """Highest test accuracy of all epochs, as the authors' code reports; it selects on the test set."""
        return max(self.accuracy_per_epoch)


def linear_probe(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    classes: int,
    epochs: int = 100,
    batch: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> ProbeResult:
    """Train a linear classifier on ``train_x`` and test it after every epoch.

    Args:
        train_x: features [N, D], any scale; all tensors on one device.
        train_y: int64 [N], in [0, classes).
        test_x: features [M, D].
        test_y: int64 [M].
        classes: number of classes.
        epochs: passes over the training features.
        batch: features per step; the last step of an epoch takes the rest.
        learning_rate: Adam's, at the start; it falls to zero by a cosine, one step per epoch.
        seed: decides the initial weights and the order; equal arguments give equal results.

    Raises:
        SettingError: ``epochs`` or ``batch`` is less than 1, or ``learning_rate`` is negative.
        DataError: shapes do not fit, features are not finite, or a label is outside [0, classes).
    """
    check_range("epochs", epochs, 1)
    check_range("batch", batch, 1)
    check_range("learning_rate", learning_rate, 0)
    for name, x, y in (("training set", train_x, train_y), ("test set", test_x, test_y)):
        check_features(name, x, y)
        if y.min() < 0 or y.max() >= classes:
            raise DataError(f"Labels of the {name} span {y.min()} to {y.max()}: expected 0 to {classes - 1}.")

    device = train_x.device
    train_x, test_x = train_x.detach().float(), test_x.detach().float()
    bound = 1 / math.sqrt(train_x.shape[1])  # nn.Linear's initialisation
    start = generator(seed, "probe-init")
    # Fused Adam walks through memory, so each is a tensor of its own: of a strided view it updates the wrong numbers.
    weight, bias = (
        ((2 * torch.rand(shape, generator=start) - 1) * bound).to(device).requires_grad_()
        for shape in [(classes, train_x.shape[1]), (classes,)]
    )

    optimizer = torch.optim.Adam([weight, bias], lr=learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    accuracy = torch.empty(epochs, dtype=torch.float64, device=device)
    for epoch in range(epochs):
        order = torch.randperm(len(train_x), generator=generator(seed, "probe", epoch)).to(device)
        for rows in order.split(batch):
            optimizer.zero_grad()
            F.cross_entropy(F.linear(train_x[rows], weight, bias), train_y[rows]).backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            accuracy[epoch] = (F.linear(test_x, weight, bias).argmax(1) == test_y).double().mean()
    return ProbeResult(tuple(accuracy.tolist()), weight.detach(), bias.detach())
