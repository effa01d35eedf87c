"""States of clients that wait until it is their turn again: last models, target branches, velocities.

A row is one flat tensor that nobody changes in place; a client that has trained gets a new one. So clients whose states
are equal share a row, what a checkpoint takes needs no copy and can be written while the training goes on, and what has
not changed since the last checkpoint is the same tensor. Rows lie on the models' device as long as there is room for
all of them (:class:`Room`), else in host memory, pinned for a GPU: where a row lies changes no number.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from fssl_core.federation.clients import ClientMatrix
from fssl_core.settings import check_range

SHARE_OF_ROWS = 0.5  # of the free memory of a GPU; the rest is for models in training, activations and images


class Settled(list):
    """A list whose tensors, at whatever depth, are never changed in place: a checkpoint takes them without a copy."""


class Room:
    """Memory of the models' device for rows that wait.

    Attributes:
        free: bytes left: on a GPU ``SHARE_OF_ROWS`` of what is free now; None elsewhere, without limit.
    """

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda" and torch.cuda.is_available()
        self.free = int(SHARE_OF_ROWS * torch.cuda.mem_get_info(device)[0]) if on_gpu else None

    def takes(self, size: int) -> bool:
        """Whether ``size`` bytes are left for rows; if so, they are taken."""
        if self.free is None:
            return True
        fits = size <= self.free
        self.free -= size if fits else 0
        return fits


class Rows:
    """The states of clients that wait, a row each; :class:`ClientMatrix` takes some of them and puts them back.

    Args:
        model: an ordinary module, with floating-point numbers of one type; every row starts as its state.
        clients: number of rows.
        room: where they may lie; None: on the model's device.

    Attributes:
        device: of the models; rows may lie elsewhere (:attr:`place`).
    """

    def __init__(self, model: nn.Module, clients: int, room: Room | None = None) -> None:
        check_range("clients", clients, 1)
        like = ClientMatrix(model, 1)
        self.clients, self.elements, self.parameters = clients, like.elements, like.parameters
        self.device = like.weights.device
        self._model = model
        names = list(like.blocks)
        ends = accumulate((block.numel() for block in like.blocks.values()), initial=0)
        shapes = [block.shape[1:] for block in like.blocks.values()]
        self._spans = {name: (*span, shape) for name, span, shape in zip(names, pairwise(ends), shapes, strict=True)}
        self.parameter_names = like.parameter_names
        size = clients * self.elements * like.weights.element_size()
        self.place = self.device if room is None or room.takes(size) else torch.device("cpu")
        self._rows = [self._settled(like.row(0))] * clients

    def _settled(self, row: Tensor) -> Tensor:
        row = row.to(self.place)
        return row.pin_memory() if self.device.type == "cuda" and self.place.type == "cpu" else row

    # ---------------------------------------------------------------- as a matrix has it

    def select(self, name: str, clients: Sequence[int] | Tensor) -> Tensor:
        """One tensor of the states of some clients, ``[len(clients), *shape]`` on the models' device; a copy."""
        start, end, shape = self._spans[name]
        chosen = [self._rows[client][start:end].to(self.device, non_blocking=True) for client in _numbers(clients)]
        return torch.stack(chosen).view(len(chosen), *shape)

    @property
    def blocks(self) -> dict[str, Tensor]:
        """As those of a :class:`ClientMatrix`, but copies."""
        return {name: self.select(name, range(self.clients)) for name in self._spans}

    def state_dict(self, client: int) -> dict[str, Tensor]:
        """A copy of one client's state."""
        return {name: self.select(name, [client])[0] for name in self._spans}

    def row_module(self, client: int) -> nn.Module:
        """An ordinary module with the state of a client; a copy."""
        one = ClientMatrix(self._model, 1)
        one.take(self, [client])
        return one.row_module(0)

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor], client: int | None = None) -> None:
        """Give one client a state; with None, give every client the same state: the same row."""
        row = self._settled(torch.cat([state[name].reshape(-1) for name in self._spans]))
        if client is None:
            self._rows = [row] * self.clients
        else:
            self._rows[client] = row

    @torch.no_grad()
    def replace(self, clients: Sequence[int] | Tensor, source: ClientMatrix) -> None:
        """The rows of a matrix are the states of these clients from now on."""
        for row, client in enumerate(_numbers(clients)):
            self._rows[client] = self._settled(source.row(row))

    @torch.no_grad()
    def zero_(self) -> None:
        """The parameters of all clients are 0."""
        row = self._rows[0].clone()
        row[: self.parameters] = 0
        self._rows = [self._settled(row)] * self.clients

    # ---------------------------------------------------------------- checkpoints

    def all_rows(self) -> dict[str, list]:
        """Each different row once, and for each client the number of its own; not copies."""
        distinct = {id(row): row for row in self._rows}
        numbers = {key: number for number, key in enumerate(distinct)}
        return {"rows": Settled(distinct.values()), "of": [numbers[id(row)] for row in self._rows]}

    def load_all_rows(self, rows: Mapping[str, list]) -> None:
        """Take over what :meth:`all_rows` gave, of the same model and number of clients."""
        distinct = [self._settled(row) for row in rows["rows"]]
        self._rows = [distinct[number] for number in rows["of"]]


def _numbers(clients: Sequence[int] | Tensor) -> list[int]:
    return clients.tolist() if isinstance(clients, Tensor) else list(clients)
