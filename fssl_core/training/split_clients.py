"""The clients' side of split federated contrastive learning: what a device holds and does.

A client holds the first layers of the network, online and momentum, its own images, and an optimiser. The engine
(:mod:`fssl_core.training.split`) has all clients in one object; over a network each process has one with a single
member (:mod:`fssl_core.network`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from fssl_core.data.augment import augmentation
from fssl_core.data.datasets import Dataset
from fssl_core.devices import launches_kernels
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientForward, ClientMatrix, keeps_clients_apart, misalignment
from fssl_core.federation.participation import sample_clients
from fssl_core.federation.rows import Room, Rows
from fssl_core.models import ARCHITECTURES
from fssl_core.random import generator
from fssl_core.settings import is_own

MEASURED_IMAGES = 32  # of each client, at the end of an epoch

if TYPE_CHECKING:
    from fssl_core.training.split import SplitSettings


class SplitClients:
    """Client models with their images and optimiser.

    Every member has a row in ``online``, ``momentum`` and ``velocity``; the matrices ``active_...`` hold those that
    train in this epoch. With full participation they are one and the same, else the others wait
    (:mod:`fssl_core.federation.rows`).

    Args:
        settings: of the run.
        client: the first layers with their first values, on the device; copied.
        data: images on the same device.
        members: the clients simulated here; None for all.

    Raises:
        SettingError: ``client_batch`` is larger than the share of the smallest client, or an architecture of yours
            cannot run all clients in one call.
    """

    bytes_of_views: ClassVar[int] = 64 << 20  # made in one call on a GPU

    def __init__(
        self, settings: "SplitSettings", client: nn.Module, data: Dataset, members: Sequence[int] | None = None
    ) -> None:
        self.settings = s = settings
        self.data = data
        self.parts = s.divide(data)  # of all clients
        smallest = min(len(part) for part in self.parts)
        self.steps_per_epoch = smallest // s.client_batch  # an incomplete last batch is left out
        if self.steps_per_epoch == 0:
            raise SettingError("client_batch", s.client_batch, f"at most {smallest}, the images of the smallest client")
        self.augment = augmentation(s.augmentation, data.image_size)
        self.members = torch.arange(s.clients) if members is None else torch.as_tensor(members)
        count = len(self.members) if s.sampled == s.clients or members is not None else s.sampled
        if is_own(ARCHITECTURES[s.architecture]) and s.backend != "loop":
            images = torch.rand(2, 2, *data.train.images.shape[1:], generator=generator(0, "two clients"))
            if not keeps_clients_apart(client, images.to(data.train.images.device, s.dtype)):
                expected = (
                    f"'loop': layers of {s.architecture} look across channels, or have weights for those of one "
                    "client, and in one call all clients stand side by side"
                )
                raise SettingError("backend", s.backend, expected)
        self._room = Room(data.train.images.device)
        self.online, self.active_online = self._all_and_active(client, count)
        self.momentum, self.active_momentum = self._all_and_active(client, count)
        self.velocity, self.active_velocity = self._all_and_active(client, count)  # of SGD, kept by each client
        self.velocity.zero_()
        if not s.freeze_client:
            self.active_online.requires_grad_()
        self.online_forward = ClientForward(self.active_online, s.backend)
        self.momentum_forward = ClientForward(self.active_momentum, s.backend)
        for forward in (self.online_forward, self.momentum_forward):
            forward.train(not s.freeze_client)  # what is frozen keeps its running statistics, too
        self.optimizer = s.sgd(self.active_online, self.active_velocity)
        self.sampled = self.members  # those that train in this epoch, and their rows
        self._rows = torch.arange(len(self.members))
        self._unsampled_gap: Tensor | float | None = None  # kept between synchronisations

    def _all_and_active(self, client: nn.Module, active: int) -> tuple[ClientMatrix | Rows, ClientMatrix]:
        training = ClientMatrix(client, active)
        return training if active == len(self.members) else Rows(client, len(self.members), self._room), training

    @property
    def matrices(self) -> dict[str, tuple[ClientMatrix | Rows, ClientMatrix]]:
        """By name, the matrix of all members and of those that train in this epoch."""
        return {
            "online": (self.online, self.active_online),
            "momentum": (self.momentum, self.active_momentum),
            "velocity": (self.velocity, self.active_velocity),
        }

    # ---------------------------------------------------------------- an epoch

    def start_epoch(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Draw who takes part, and what they see.

        Each client has a generator of its own, so that neither the order of clients nor who else takes part
        changes what a client sees.

        Args:
            epoch: number of finished epochs.

        Returns:
            indices of the images that each client takes at each step, ``[clients, steps, batch]`` on the device, and
            the uniform numbers that decide their two augmentations, ``[clients, steps, batch, 2, numbers]`` on the
            CPU, where the augmentation turns them into decisions.
        """
        s = self.settings
        sampled = sample_clients(s.clients, s.sampled, s.seed, epoch)
        self.sampled = sampled[torch.isin(sampled, self.members)]
        self._rows = torch.searchsorted(self.members, self.sampled)
        for all_rows, active in self.matrices.values():
            if active is not all_rows:
                active.take(all_rows, self._rows)
        self._unsampled_gap = None
        rate = s.learning_rate if s.client_learning_rate is None else s.client_learning_rate
        self.optimizer.param_groups[0]["lr"] = rate * s.schedule(epoch)

        used = self.steps_per_epoch * s.client_batch
        order, draws = [], []
        for client in self.sampled.tolist():
            part = self.parts[client]
            order.append(part[torch.randperm(len(part), generator=generator(s.seed, "order", epoch, client))[:used]])
            draws.append(self.augment.draw(2 * used, generator(s.seed, "augment", epoch, client)))
        shape = (len(order), self.steps_per_epoch, s.client_batch)
        device = self.data.train.images.device
        return torch.stack(order).view(shape).to(device), torch.stack(draws).view(*shape, 2, -1)

    def end_epoch(self) -> None:
        """Write the clients of this epoch back to their rows."""
        for all_rows, active in self.matrices.values():
            if active is not all_rows:
                active.put(all_rows, self._rows)

    # ---------------------------------------------------------------- a step

    def prepared(self, order: Tensor, draws: Tensor) -> Iterator[Tensor | None]:
        """For each step the two views that :meth:`forward` may be given, of what :meth:`start_epoch` gave.

        On a GPU those of as many steps as :attr:`bytes_of_views` admits are made in one call, as in
        :meth:`fssl_core.training.averaging.AveragingTrainer.prepared`; elsewhere None: a step makes its own.
        """
        (clients, steps, batch), train = order.shape, self.data.train.images
        if not launches_kernels(train.device):
            yield from [None] * steps
            return
        ahead = max(1, self.bytes_of_views // (clients * batch * 2 * train[0].numel() * self.settings.dtype.itemsize))
        for start in range(0, steps, ahead):
            part = slice(start, start + ahead)
            views = self.two_views(train[order[:, part].flatten(1)], draws[:, part].flatten(1, 2))
            yield from views.split(batch, dim=2)

    def forward(self, images: Tensor, draws: Tensor, views: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Move the momentum models, augment twice, run both models.

        Args:
            images: uint8, ``[clients, batch, channels, height, width]``.
            draws: uniform numbers of the augmentation, ``[clients, batch, 2, numbers]``.
            views: what :meth:`prepared` made of these; None: they are made here.

        Returns:
            activations of the online and of the momentum models, each ``[clients, views * batch, c, h, w]``: what the
            clients send, in the precision of their weights. Of a frozen client that sees both views both are the same
            tensor.
        """
        s = self.settings
        queries, keys = self.views(images, draws, views)  # each [clients, views * batch, C, H, W]
        if not s.freeze_client:
            self.active_momentum.average_towards_(self.active_online, s.ema_decay)
        with s.autocast(self.data.train.images.device):
            self._activations = self.online_forward(queries).to(s.dtype)
            if s.freeze_client and keys is queries:
                return self._activations, self._activations
            with torch.no_grad():
                momentum_activations = self.momentum_forward(keys).to(s.dtype)
        return self._activations.detach(), momentum_activations

    def backward(self, gradient: Tensor) -> None:
        """Update the online models with the server's gradient of the activations that :meth:`forward` gave."""
        self._activations.backward(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)  # the modules' gradients are views of this buffer

    def two_views(self, images: Tensor, draws: Tensor) -> Tensor:
        """Normalised views ``[clients, 2, batch, C, H, W]``."""
        return self.data.normalise(self.augment.two_views(images, draws), self.settings.dtype)

    def views(self, images: Tensor, draws: Tensor, views: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What the online and the momentum models see: both views, or one each (``SplitSettings.both_views``)."""
        views = self.two_views(images, draws) if views is None else views
        if self.settings.both_views:
            both_views = views.flatten(1, 2)
            return both_views, both_views
        return views[:, 0], views[:, 1]

    # ---------------------------------------------------------------- synchronisation

    def upload(self, name: str) -> ClientMatrix:
        """The models ``"online"`` or ``"momentum"`` of the clients of this epoch, as they send them for the average."""
        return self.matrices[name][1]

    def receive(self, name: str, state: dict[str, Tensor]) -> None:
        """Every member, sampled or not, takes over the state ``state`` of ``"online"`` or ``"momentum"``."""
        for matrix in dict.fromkeys(self.matrices[name]):
            matrix.load_state_dict(state)
        self._unsampled_gap = None

    # ---------------------------------------------------------------- measurements

    def misalignment(self) -> Tensor:
        """Mean absolute difference of online and momentum parameters over ALL members (MonAcoSFL, Eq. 2)."""
        if self._unsampled_gap is None:  # the share of clients that do not take part changes at synchronisations only
            absent = torch.arange(len(self.members))
            absent = absent[~torch.isin(absent, self._rows)]
            self._unsampled_gap = misalignment(self.online, self.momentum, absent) if len(absent) else 0.0
        total = misalignment(self.active_online, self.active_momentum) + self._unsampled_gap
        return total / (self.online.clients * self.online.parameters)

    def some_images(self) -> Tensor:
        """The first images of each sampled client, at most ``MEASURED_IMAGES`` and equally many, normalised and not
        augmented: ``[clients, images, C, H, W]``."""
        parts = [self.parts[client] for client in self.sampled.tolist()]
        count = min(MEASURED_IMAGES, *map(len, parts))
        images = torch.stack([self.data.train.images[part[:count]] for part in parts])
        return self.data.normalise(images, self.settings.dtype)

    # ---------------------------------------------------------------- interruption

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """All rows between two epochs; not copies."""
        return {name: all_clients.all_rows() for name, (all_clients, _) in self.matrices.items()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        for name, (all_clients, _) in self.matrices.items():
            all_clients.load_all_rows(state[name])
