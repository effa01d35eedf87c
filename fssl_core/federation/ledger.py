"""The cost ledger: whatever crosses the network crosses :meth:`Ledger.send`, which counts its bytes."""

import pandas as pd
import torch
from torch import Tensor

PURPOSES = (
    "activations",
    "momentum_activations",
    "gradients",
    "parameters",
    "momentum_parameters",
    "features",  # a summary of a client's images: FedCA's dictionary, Orchestra's centroids
    "representations",  # of all of its images, once: MFCL
)
DIRECTIONS = ("up", "down")  # client to server, server to client


class Ledger:
    """Bytes by epoch, client, purpose and direction.

    Args:
        clients: number of clients in the federation.
    """

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self._open = self._empty()
        self.epochs: list[Tensor] = []  # closed epochs, each [clients, purposes * directions] in bytes

    def _empty(self) -> Tensor:
        return torch.zeros(self.clients, len(PURPOSES) * len(DIRECTIONS), dtype=torch.int64)

    def send(self, tensor: Tensor, purpose: str, direction: str, clients: Tensor) -> Tensor:
        """Count a tensor as it crosses, and hand it on unchanged.

        Args:
            tensor: ``[len(clients), ...]``: one slice for each client; each slice is one message.
            purpose: one of ``PURPOSES``.
            direction: ``"up"`` or ``"down"``.
            clients: which clients send or receive, int64 on the CPU.

        Returns:
            ``tensor``.

        Raises:
            ValueError: unknown purpose or direction, a first dimension that is not the number of clients, or 16-bit
                floats: whether a layer makes those in bfloat16 depends on the device, and what a method sends does
                not.
        """
        if tensor.dtype in (torch.bfloat16, torch.float16):
            raise ValueError(f"{purpose} of {tensor.dtype} would cross: send the float32 that the method is made for")
        if len(tensor) != len(clients):
            raise ValueError(f"a tensor for {len(clients)} clients has a first dimension of {len(tensor)}")
        if purpose not in PURPOSES or direction not in DIRECTIONS:
            raise ValueError(f"{purpose!r} {direction!r} is none of {PURPOSES} and {DIRECTIONS}")
        column = PURPOSES.index(purpose) * len(DIRECTIONS) + DIRECTIONS.index(direction)
        self._open[clients, column] += tensor[0].numel() * tensor.element_size()
        return tensor

    def close_epoch(self) -> None:
        """Book what was sent since the last call as one epoch."""
        self.epochs.append(self._open)
        self._open = self._empty()

    def state_dict(self) -> dict[str, list[Tensor] | Tensor]:
        """What was counted, the epoch under way included."""
        return {"epochs": self.epochs, "open": self._open}

    def load_state_dict(self, state: dict[str, list[Tensor] | Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self.epochs, self._open = state["epochs"], state["open"]

    def table(self) -> pd.DataFrame:
        """One row an epoch (from 1) and client; a column of bytes for each purpose and direction."""
        columns = [f"{purpose}_{direction}" for purpose in PURPOSES for direction in DIRECTIONS]
        frames = [
            pd.DataFrame(bytes_.numpy(), columns=columns).assign(epoch=epoch, client=range(self.clients))
            for epoch, bytes_ in enumerate(self.epochs, start=1)
        ]
        order = ["epoch", "client", *columns]
        return pd.concat(frames, ignore_index=True)[order] if frames else pd.DataFrame(columns=order)
