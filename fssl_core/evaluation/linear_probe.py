"""Linear evaluation: a linear classifier on frozen features.

Without augmentation the features of an image never change, so they are computed once and the probe trains on them.
There are two protocols, both of 100 epochs with batches of 128:

``adam-cosine``: MocoSFL (Appendix A.1) and MonAcoSFL (Section 5.1), Adam at 1e-3, cosine schedule. Two things differ
from the authors' code: its schedule has a period of 25 and is stepped per batch, so the rate oscillates, here it falls
once from the start to the end; and it reports the best test accuracy of all epochs, here that of the last one is
reported, and the best is given beside it.

``sgd-steps``: L-DAWA (Section 4.3), SGD at 0.01 with momentum 0.9, the rate falls to a tenth after epochs 60 and 80,
the last epoch is reported. Nesterov momentum and no weight decay are from the authors' code, which also leaves out an
incomplete last batch of an epoch; here it is used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR

from fssl_core.devices import in_full_precision
from fssl_core.evaluation.downstream import HeadResult
from fssl_core.evaluation.features import check_features
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range

PROBE_BATCH = 128  # features per step


@dataclass(frozen=True)
class Protocol:
    """How a linear probe is trained.

    Args:
        optimizer: from parameters and learning rate.
        schedule: from optimiser and number of epochs; stepped once per epoch.
        learning_rate: at the start.
    """

    optimizer: Callable[[list[Tensor], float], Optimizer]
    schedule: Callable[[Optimizer, int], LRScheduler]
    learning_rate: float


PROTOCOLS = {
    "adam-cosine": Protocol(
        optimizer=lambda parameters, rate: Adam(parameters, lr=rate, fused=True),
        schedule=lambda optimizer, epochs: CosineAnnealingLR(optimizer, T_max=epochs),
        learning_rate=1e-3,
    ),
    "sgd-steps": Protocol(
        optimizer=lambda parameters, rate: SGD(parameters, lr=rate, momentum=0.9, nesterov=True, fused=True),
        # a short probe has its steps at the same shares of its epochs
        schedule=lambda optimizer, epochs: MultiStepLR(optimizer, [round(0.6 * epochs), round(0.8 * epochs)]),
        learning_rate=0.01,
    ),
}


@dataclass(frozen=True)
class ProbeResult(HeadResult):
    """What a linear probe found.

    Args:
        accuracy_per_epoch: test accuracy after each epoch, in [0, 1].
        weight: of the trained classifier, [classes, D].
        bias: likewise, [classes].
    """

    weight: Tensor
    bias: Tensor


@in_full_precision
def linear_probe(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    classes: int,
    protocol: str = "adam-cosine",
    epochs: int = 100,
    batch: int = PROBE_BATCH,
    learning_rate: float | None = None,
    seed: int = 0,
) -> ProbeResult:
    """Train a linear classifier in float32, also inside ``torch.autocast``, and test it after every epoch.

    Args:
        train_x: features [N, D], any scale; all tensors on one device.
        train_y: int64 [N], in [0, classes).
        test_x: features [M, D].
        test_y: int64 [M].
        classes: number of classes.
        protocol: optimiser and schedule, a key of ``PROTOCOLS``.
        epochs: passes over the training features.
        batch: features per step; the last step of an epoch takes the rest.
        learning_rate: at the start; None: the protocol's.
        seed: decides the initial weights and the order; equal arguments give equal results.

    Raises:
        SettingError: ``protocol`` is unknown, ``epochs`` or ``batch`` is less than 1, or ``learning_rate`` is negative.
        DataError: shapes do not fit, features are not finite, or a label is outside [0, classes).
    """
    check_choice("protocol", protocol, PROTOCOLS)
    how = PROTOCOLS[protocol]
    learning_rate = how.learning_rate if learning_rate is None else learning_rate
    check_range("epochs", epochs, 1)
    check_range("batch", batch, 1)
    check_range("learning_rate", learning_rate, 0)
    check_features("training set", train_x, train_y, classes)
    check_features("test set", test_x, test_y, classes, like=train_x)

    device = train_x.device
    train_x, test_x = train_x.detach().float(), test_x.detach().float()
    bound = 1 / math.sqrt(train_x.shape[1])  # nn.Linear's initialisation
    start = generator(seed, "probe-init")
    # Fused optimisers walk through memory, so each is a tensor of its own: of a strided view they update the wrong
    # numbers.
    weight, bias = (
        ((2 * torch.rand(shape, generator=start) - 1) * bound).to(device).requires_grad_()
        for shape in [(classes, train_x.shape[1]), (classes,)]
    )

    optimizer = how.optimizer([weight, bias], learning_rate)
    schedule = how.schedule(optimizer, epochs)
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
