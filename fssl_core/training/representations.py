"""The clients' side of MFCL's phase 2: representations of augmented views, which each client sends once.

Motamedi and Kim, "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients", Section
2.1 and Algorithm 1, lines 16 to 19; Section 5.4: eight pairs of views of each image are sent. With DataMix (Section
5.6.1, :mod:`fssl_core.privacy.datamix`) a client sends mixtures of two or more of its images instead.

A representation is a function of the settings and of the client's own images. Where all of them together do not fit
into ``HELD_BYTES`` (those of CIFAR-10 have 210 GB), the simulation computes those of a batch when the batch is made.
The bits are the same.

Two readings of batch norm. Its running statistics are averaged with the parameters, or each client has its own: the
first author's public code averages what is trained, and they are not.

Two readings of "the two views of an image". In training, twin norm normalises both together, and so it does here unless
``twins`` is False. Group by group, the two views then have a common mean of zero: what one view is above it, the other
one is below. A contrastive loss can tell pairs by that, and an image that is classified later has no twin.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.augment import augmentation, second_view
from fssl_core.data.datasets import Dataset
from fssl_core.evaluation.batch_statistics import with_statistics_over
from fssl_core.models import paired
from fssl_core.privacy.datamix import mixing_coefficients
from fssl_core.random import generator

if TYPE_CHECKING:
    from fssl_core.training.modular import ModularSettings

HELD_BYTES = 2**30


class Representations:
    """What the clients send: of each image ``pairs`` pairs of representations.

    Args:
        settings: of the run.
        data: images.
        client_module: as phase 1 left it; it is frozen.

    Attributes:
        modules: by client, the client module that it has; one for all, or with statistics of its own.
        images: numbers of the images of all clients whose representations arrive, client by client, ``[N]``. A batch
            is made of positions in this row.
        positions: by client, where its own images stand in ``images``.
        shape: of a representation, (c, h, w).
        held: all of them are kept in memory.

    Raises:
        SettingError: a client has fewer images than make a mixture.
    """

    def __init__(self, settings: "ModularSettings", data: Dataset, client_module: nn.Module) -> None:
        first = settings.phase1
        self.settings, self.data = settings, data
        self.client_batch = first.batch  # images in a call of the module: always so many, or bits might differ
        self.augment = augmentation(first.augmentation, data.image_size)
        self.augment_second = augmentation(second_view(first.augmentation), data.image_size)
        parts = first.divide(data)
        received = settings.received.tolist()
        self.images = torch.cat([parts[client] for client in received]).to(data.train.images.device)
        runs = torch.arange(len(self.images)).split([len(parts[client]) for client in received])
        self.positions = dict(zip(received, runs, strict=True))
        self._owner = torch.cat([torch.full((len(own),), client) for client, own in self.positions.items()])
        module = client_module.eval().requires_grad_(False)
        self.modules = dict.fromkeys(received, module)
        if settings.statistics == "own":
            self.modules = {client: with_statistics_over(module, self._inputs(client)) for client in received}
        self._latest = -1  # the pair whose draws and mixtures are at hand
        batch = self._sent(torch.tensor([0]), 0)
        self.shape = tuple(batch.shape[2:])
        self.held = batch.nbytes * settings.pairs * len(self.images) <= HELD_BYTES
        self._kept: dict[int, Tensor] = {}

    def message(self, client: int, pair: int) -> Tensor:
        """What a client sends of one pair of views of each of its images, ``[images, 2, c, h, w]``.

        Where representations are not held, an empty tensor of that shape: there is nobody who keeps the message.
        """
        if self.held:
            return self._all(pair)[self.positions[client]]
        empty = torch.empty((), dtype=self.settings.dtype, device=self.images.device)
        return empty.expand(len(self.positions[client]), 2, *self.shape)

    def batch(self, positions: Tensor, pair: int) -> Tensor:
        """Representations at ``positions``, int64 ``[B]`` on the CPU: ``[2, B, c, h, w]``, first and second views."""
        representations = (
            self._all(pair)[positions.to(self.images.device)] if self.held else self._sent(positions, pair)
        )
        return representations.transpose(0, 1)

    def _all(self, pair: int) -> Tensor:
        if pair not in self._kept:
            self._kept[pair] = torch.cat([self._sent(positions, pair) for positions in self.positions.values()])
        return self._kept[pair]

    @torch.no_grad()
    def _sent(self, positions: Tensor, pair: int) -> Tensor:
        """Computed: representations at ``positions``, or the mixtures sent in their place, ``[B, 2, c, h, w]``."""
        if self._latest != pair:
            self._draws = torch.cat([self.draws(client, pair) for client in self.positions])
            self._mixing = self._mixtures(pair) if self.settings.datamix > 1 else None
            self._latest = pair
        if self._mixing is None:
            return self._represent(positions, self._draws[positions])
        together, coefficients = (values[positions] for values in self._mixing)  # [B, P]
        members = self._represent(together.flatten(), self._draws[together.flatten()]).unflatten(0, together.shape)
        return (members * coefficients.to(members)[:, :, None, None, None, None]).sum(1)

    def _represent(self, positions: Tensor, draws: Tensor) -> Tensor:
        """The client module's maps of both views, ``[B, 2, c, h, w]``; draws are ``[B, 2, numbers]``."""
        if self.settings.statistics == "averaged":  # one module for all, so that batches may have images of all
            return self._maps(next(iter(self.modules.values())), positions, draws)
        owner, order, done = self._owner[positions], [], []
        for client in owner.unique().tolist():
            own = (owner == client).nonzero().flatten()
            order.append(own)
            done.append(self._maps(self.modules[client], positions[own], draws[own]))
        return torch.cat(done)[torch.cat(order).argsort().to(self.images.device)]

    def _maps(self, module: nn.Module, positions: Tensor, draws: Tensor) -> Tensor:
        done = []
        for batch, numbers in zip(positions.split(self.client_batch), draws.split(self.client_batch), strict=True):
            filled = torch.arange(self.client_batch).clamp(max=len(batch) - 1)  # up to the last, which is repeated
            with paired(module) if self.settings.twins else nullcontext():
                maps = module(self._input(batch[filled], numbers[filled]))  # [2K, c, h, w]
            done.append(maps.unflatten(0, (2, -1)).transpose(0, 1)[: len(batch)])
        return torch.cat(done)

    def _inputs(self, client: int) -> Iterator[Tensor]:
        """A client's images in the first pair of views, a batch at a time, as the client module takes them."""
        draws = self.draws(client, 0).split(self.client_batch)
        for batch, numbers in zip(self.positions[client].split(self.client_batch), draws, strict=True):
            yield self._input(batch, numbers)

    def _input(self, positions: Tensor, draws: Tensor) -> Tensor:
        """Both views of images at ``positions`` ``[B]``, as the client module takes them, ``[2B, C, H, W]``."""
        pixels = self.data.train.images[self.images[positions.to(self.images.device)]]
        return self.data.normalise(self.views(pixels, draws), self.settings.dtype).flatten(0, 1)

    def views(self, pixels: Tensor, draws: Tensor) -> Tensor:
        """Of uint8 images ``[B, C, H, W]`` and draws ``[B, 2, numbers]``, both views ``[2, B, C, H, W]`` in [0, 1]."""
        return torch.stack([self.augment(pixels, draws[:, 0]), self.augment_second(pixels, draws[:, 1])])

    def draws(self, client: int, pair: int) -> Tensor:
        """Augmentation draws of a client's images for one of their pairs of views, ``[images, 2, numbers]``."""
        count = len(self.positions[client])
        numbers = self.augment.draw(2 * count, generator(self.settings.seed, "representations", client, pair))
        return numbers.unflatten(0, (count, 2))

    def coefficients(self, client: int, pair: int) -> list[Tensor]:
        """DataMix's secret of each batch of a client, ``[n, n]``; batches are of neighbouring places."""
        s, batches = self.settings, list(self.positions[client].split(self.client_batch))
        if len(batches) > 1 and len(batches[-1]) < s.datamix:
            batches[-2:] = [torch.cat(batches[-2:])]
        draw = generator(s.seed, "datamix", client, pair)
        return [mixing_coefficients(len(batch), draw, s.datamix) for batch in batches]

    def _mixtures(self, pair: int) -> tuple[Tensor, Tensor]:
        """Of each place, the places that are mixed in it and their coefficients, both ``[N, P]``."""
        together, coefficients, start = [], [], 0
        most = 2 * self.settings.datamix - 1  # the last group of a batch has what is left over, too
        for client in self.positions:
            for matrix in self.coefficients(client, pair):
                values, members = matrix.topk(min(most, len(matrix)), dim=1)
                missing = (0, most - values.shape[1])
                together.append(F.pad(start + members, missing, value=start))
                coefficients.append(F.pad(values, missing))
                start += len(matrix)
        weights = torch.cat(coefficients)
        used = int((weights > 0).any(0).sum())
        return torch.cat(together)[:, :used], weights[:, :used]
