"""The training of a model inversion attack: from activations to images, for many attacked models at once.

The decoders of K targets, with activations of one shape, are rows of one
:class:`~fssl_core.federation.clients.ClientMatrix`. They start from the same values and see the same images in the same
order, so a target's decoder does not depend, but for rounding, on what else is attacked.
:mod:`fssl_core.privacy.inversion` says where the attack comes from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from fssl_core.devices import autocast, dtype_of
from fssl_core.errors import DataError, NonFiniteLossError, SettingError
from fssl_core.federation.clients import ClientForward, ClientMatrix
from fssl_core.privacy.decoder import build_decoder
from fssl_core.random import generator

if TYPE_CHECKING:
    from fssl_core.privacy.inversion import InversionSettings

VALIDATION_SHARE = 0.1  # of the attacker's images, by which the epoch is selected: authors' code


@dataclass(frozen=True, eq=False)
class TrainedDecoders:
    """What :func:`train_decoders` found.

    Args:
        decoders: a row for each of the K targets, of the epoch with the lowest validation MSE.
        untrained: where they started from.
        history: columns target, epoch (from 1), train_mse (mean over the epoch's images) and validation_mse.
    """

    decoders: ClientMatrix
    untrained: ClientMatrix
    history: pd.DataFrame

    @property
    def best_epoch(self) -> list[int]:
        """Of each target, the epoch that was selected: the first with the lowest validation MSE."""
        rows = self.history.groupby("target")["validation_mse"].idxmin()
        return self.history["epoch"][rows].tolist()


def train_decoders(
    s: "InversionSettings", features: Tensor, images: Tensor, progress: Callable[[int], None] = lambda epoch: None
) -> TrainedDecoders:
    """Train a decoder for each of K targets; a tenth of the images is set aside to select the epoch.

    Args:
        s: of the attack.
        features: what each target sends of the attacker's images, ``[K, N, c, h, w]``.
        images: these images, float ``[N, C, H, W]`` in [0, 1], the same for all targets; at least two.
        progress: called with the number of finished epochs after each.

    Raises:
        SettingError: a latent that cannot be doubled to the size of the images, or a step that would see one pixel.
        DataError: shapes do not fit, or features are not finite.
        NonFiniteLossError: the error of a decoder is NaN or infinite.
    """
    _check_examples(features, images)
    device, dtype = images.device, dtype_of(s.precision)
    features, images = features.to(dtype), images.to(dtype)
    order = torch.randperm(len(images), generator=generator(s.seed, "attacker validation")).to(device)
    held_out, training = order.tensor_split([max(1, round(VALIDATION_SHARE * len(order)))])
    if (len(training) % s.batch or s.batch) == 1 and features.shape[3:].numel() == 1:
        expected = f"another number: of {len(training)} images the last step has one, and batch norm needs two pixels"
        raise SettingError("batch", s.batch, expected)

    start = build_decoder(s.decoder, features.shape[2:], images.shape[1:], generator=generator(s.seed, "decoder"))
    start = start.to(device, dtype)
    untrained, current, best = (ClientMatrix(start, len(features)) for _ in range(3))
    current.requires_grad_()
    forward = ClientForward(current, s.backend)
    forward.backend = forward.chosen(images[None, : s.batch])  # a decoder's maps are as large as images
    # Adam treats every number by itself, so a step on the whole matrix is a step of each decoder's own Adam.
    optimizer = torch.optim.Adam([current.weights], lr=s.learning_rate, fused=True)
    lowest = torch.full([len(features)], torch.inf, dtype=dtype, device=device)
    history = []
    for epoch in range(1, s.epochs + 1):
        shuffle = torch.randperm(len(training), generator=generator(s.seed, "attacker order", epoch)).to(device)
        train_mse = torch.zeros_like(lowest)
        for rows in training[shuffle].split(s.batch):
            errors = _errors(_decode(forward, features[:, rows], s.precision), images[rows])  # [K]
            errors.sum().backward()  # a decoder's gradient is that of its own error
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)  # the modules' gradients are views of this buffer
            train_mse += errors.detach() * (len(rows) / len(training))
        validation_mse = _errors(_decode_all(forward, features[:, held_out], s.precision), images[held_out])
        _check_finite(train_mse + validation_mse, epoch, s.learning_rate)

        better = validation_mse < lowest
        lowest = lowest.minimum(validation_mse)
        for name, block in best.blocks.items():
            block[better] = current.blocks[name][better]
        errors = zip(train_mse.tolist(), validation_mse.tolist(), strict=True)
        history += [
            {"target": target, "epoch": epoch, "train_mse": train, "validation_mse": validation}
            for target, (train, validation) in enumerate(errors)
        ]
        progress(epoch)
    return TrainedDecoders(best, untrained, pd.DataFrame(history))


def reconstruct(s: "InversionSettings", decoders: ClientMatrix, features: Tensor) -> Tensor:
    """Images that decoders make of what each target sends.

    Args:
        s: of the attack.
        decoders: a row for each of the K targets; not changed.
        features: ``[K, N, c, h, w]``.

    Returns:
        ``[K, N, C, H, W]`` in [0, 1].
    """
    return _decode_all(ClientForward(decoders, s.backend), features.to(decoders.weights.dtype), s.precision)


@torch.no_grad()
def _decode_all(forward: ClientForward, features: Tensor, precision: str) -> Tensor:
    """In evaluation mode, some images at a time; in training mode again afterwards."""
    forward.train(False)
    parts = [_decode(forward, part, precision) for part in features.split(64, dim=1)]
    forward.train()
    return torch.cat(parts, dim=1)


def _decode(forward: ClientForward, features: Tensor, precision: str) -> Tensor:
    with autocast(features.device, precision):
        return forward(features).to(features.dtype)  # [K, B, C, H, W]


def _errors(reconstructions: Tensor, images: Tensor) -> Tensor:
    """MSE of each target, ``[K]``, from ``[K, B, C, H, W]`` and ``[B, C, H, W]``."""
    return (reconstructions - images).square().flatten(1).mean(1)


def _check_examples(features: Tensor, images: Tensor) -> None:
    if features.dim() != 5 or images.dim() != 4 or features.shape[1] != len(images) or len(images) < 2:
        raise DataError(
            "A decoder is trained on features [targets, N, c, h, w] of at least 2 images [N, C, H, W], "
            f"got {list(features.shape)} and {list(images.shape)}."
        )
    if not features.isfinite().all():
        raise DataError(
            "The activations of the attacked clients are not all finite: a model has diverged. "
            "Attack an earlier checkpoint or train with a lower learning rate."
        )


def _check_finite(errors: Tensor, epoch: int, learning_rate: float) -> None:
    if not errors.isfinite().all():
        target = int((~errors.isfinite()).nonzero()[0])
        raise NonFiniteLossError(
            f"the MSE of decoder {target + 1} of {len(errors)} is not finite in epoch {epoch}. "
            f"Lower learning_rate={learning_rate}."
        )
