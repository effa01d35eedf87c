"""The clients of a split federation that live in processes of their own, for the engine to train.

:class:`~fssl_core.training.split.SplitTrainer` does not know the difference: it asks for activations, hands back
gradients, averages what was uploaded. The rows of the client matrices are copies here of the models that the clients
hold. They are brought up to date when clients upload their models, and when the engine measures something about them.

A client that is lost leaves the federation for good: its rows disappear, steps and averages go on with the others, and
who takes part in an epoch is drawn from those that are left. Where nobody of an epoch is left, others take their place.

How far each client has moved from what all had last is logged at every synchronisation, and who has moved much farther
than the others is named. Nobody is dropped for it: uneven clients move unevenly, and such a client is for a person to
judge.
"""

import math
from collections.abc import Iterator
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.errors import FsslError, NonFiniteLossError
from fssl_core.federation.clients import ClientForward, ClientMatrix
from fssl_core.federation.participation import sample_clients
from fssl_core.models.cutting import output_shape
from fssl_core.network.messages import Layout, Message, layout
from fssl_core.network.peers import Peers
from fssl_core.notices import say
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_clients import SplitClients

MODELS = {"parameters": "online", "momentum_parameters": "momentum"}  # what crosses as which purpose
PURPOSES = {model: purpose for purpose, model in MODELS.items()}
OUTLIER = 10  # times the median of the others


def layouts(settings: SplitSettings, client: nn.Module, data: Dataset) -> tuple[Layout, Layout]:
    """What a client's activations and its model have to look like.

    Args:
        client: the first layers.
    """
    count = settings.client_batch * (2 if settings.both_views else 1)  # views * batch
    shape = output_shape(client, data.channels, data.image_size)
    return {"activations": (settings.dtype, (count, *shape))}, layout(client.state_dict())


class RemoteClients(SplitClients):
    """What :class:`SplitClients` does, asked of the peers.

    Args:
        settings: of the run.
        client: the first layers with their first values, on the server's device.
        data: the server's images: for measurements and the number of steps.
        peers: all clients of the federation, before the first epoch.
    """

    def __init__(self, settings: SplitSettings, client: nn.Module, data: Dataset, peers: Peers) -> None:
        super().__init__(settings, client, data)
        self.peers = peers
        self._client = client
        activations, self._state = layouts(settings, client, data)
        self._latents = activations["activations"]
        self._current = True  # the rows here are the clients' models
        self._common = {name: _on_cpu(client.state_dict()) for name in PURPOSES}  # what all had last
        self._outliers: set[int] = set()  # named already
        self._norms: list[dict[str, Any]] = []

    @property
    def matrices(self) -> dict[str, tuple[ClientMatrix, ClientMatrix]]:
        """Without the state of SGD, which stays with the clients."""
        return {name: pair for name, pair in super().matrices.items() if name in PURPOSES}

    # ---------------------------------------------------------------- an epoch

    def start_epoch(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Draw who takes part.

        Returns:
            tensors without an element, in place of the images and draws, which are the clients' own.
        """
        self._epoch, self._step = epoch, 0
        self._take_part(self._draw())
        nothing = torch.empty(len(self.sampled), self.steps_per_epoch, 0)
        return nothing.long().to(self.data.train.images.device), nothing

    def _draw(self) -> Tensor:
        """As many as the settings say, of those that are left."""
        count = min(self.settings.sampled, len(self.members))
        return self.members[sample_clients(len(self.members), count, self.settings.seed, self._epoch)]

    def _take_part(self, sampled: Tensor) -> None:
        self.sampled = sampled
        self._rows = torch.searchsorted(self.members, sampled)
        everyone = len(sampled) == len(self.members)
        self.active_online = self.online if everyone else self._copy(self.online, self._rows)
        self.active_momentum = self.momentum if everyone else self._copy(self.momentum, self._rows)
        self.momentum_forward = ClientForward(self.active_momentum, self.settings.backend)
        self._unsampled_gap = None

    def _copy(self, matrix: ClientMatrix, rows: Tensor) -> ClientMatrix:
        chosen = ClientMatrix(self._client, len(rows))
        chosen.take(matrix, rows)
        return chosen

    # ---------------------------------------------------------------- a step

    def prepared(self, order: Tensor, draws: Tensor) -> Iterator[None]:
        """Nothing for each step: views are the clients' own."""
        yield from [None] * self.steps_per_epoch

    def forward(self, images: Tensor, draws: Tensor, views: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The activations that the clients send; the arguments are not used."""
        s = self.settings
        kinds = ["activations"] if s.freeze_client and s.both_views else ["activations", "momentum_activations"]
        request = Message("forward", {"epoch": self._epoch, "step": self._step})
        answers = self._ask(request, {kind: {kind: self._latents} for kind in kinds})
        self._step += 1
        self._current = False
        first, *others = (torch.stack([answer[kind].tensors[kind] for answer in answers]) for kind in kinds)
        activations = first.to(self.data.train.images.device)  # [clients, views * batch, c, h, w]
        return activations, others[0].to(activations.device) if others else activations

    def backward(self, gradient: Tensor) -> None:
        """Send each client the gradient of its activations.

        Raises:
            NonFiniteLossError: it is none. What clients answered is finite, so that this is nobody's fault.
        """
        if not gradient.isfinite().all():
            raise NonFiniteLossError(
                f"the loss is nan at step {self._step} of epoch {self._epoch + 1}, or its gradient. Lower "
                f"learning_rate={self.settings.learning_rate}."
            )
        for client, part in zip(self.sampled.tolist(), gradient, strict=True):
            self.peers.send([client], Message("gradients", tensors={"gradients": part}))
        self._forget_lost()

    # ---------------------------------------------------------------- models

    def upload(self, name: str) -> ClientMatrix:
        purpose = PURPOSES[name]
        answers = self._ask(Message("upload", {"purpose": purpose}), {purpose: self._state})
        states = [answer[purpose].tensors for answer in answers]
        self._log_norms(name, states)
        self._fill(name, states)
        return self.matrices[name][1]

    def receive(self, name: str, state: dict[str, Tensor]) -> None:
        self.peers.send(self.members.tolist(), Message(PURPOSES[name], tensors=state))
        super().receive(name, state)
        self._common[name] = _on_cpu(state)
        self._forget_lost()

    def _log_norms(self, name: str, states: list[dict[str, Tensor]]) -> None:
        """Log how far each client has moved, and name who has moved much farther than the others."""
        moved = {
            client: _distance(state, self._common[name])
            for client, state in zip(self.sampled.tolist(), states, strict=True)
        }
        where = {"epoch": self._epoch + 1, "step": self._step, "purpose": PURPOSES[name]}
        self._norms += [{**where, "client": client, "norm": norm} for client, norm in moved.items()]
        for client, norm in moved.items():
            others = [value for other, value in moved.items() if other != client]
            if others and norm > OUTLIER * median(others) and client not in self._outliers:
                self._outliers.add(client)
                say(
                    f"client {client} is an outlier: its {PURPOSES[name]} moved by {norm:.3g} until step {self._step} "
                    f"of epoch {self._epoch + 1}, the others' by {median(others):.3g} (median). It is not said again."
                )

    def norms(self) -> pd.DataFrame:
        """Euclidean distance of what each client uploaded to what all had last: by epoch, step (from 1), purpose and
        client."""
        return pd.DataFrame(self._norms, columns=["epoch", "step", "purpose", "client", "norm"])

    def misalignment(self) -> Tensor:
        if not self._current:
            both = {f"{name}/{block}": value for name in PURPOSES for block, value in self._state.items()}
            answers = self._ask(Message("measure"), {"measurement": both})
            for name in PURPOSES:
                states = [
                    {block: answer["measurement"].tensors[f"{name}/{block}"] for block in self._state}
                    for answer in answers
                ]
                self._fill(name, states)
            self._current = True
        return super().misalignment()

    @torch.no_grad()
    def _fill(self, name: str, states: list[dict[str, Tensor]]) -> None:
        """Write the models of the clients of this epoch into their rows."""
        for block, values in self.matrices[name][1].blocks.items():
            values.copy_(torch.stack([state[block] for state in states]))

    # ---------------------------------------------------------------- who is there

    def _ask(self, request: Message, answers: dict[str, Layout]) -> list[dict[str, Message]]:
        """The answers of the clients of this epoch, in their order, after those who are lost have been left out."""
        received: list[dict[str, Message]] = []
        while not received:
            received = list(self.peers.ask(self.sampled.tolist(), request, answers).values())
            self._forget_lost()
        return received

    def _forget_lost(self) -> None:
        """Remove the rows of clients that are not there any more.

        Raises:
            FsslError: nobody is left.
        """
        present = torch.tensor([client in self.peers.members for client in self.members.tolist()])
        if present.all():
            return
        if not present.any():
            raise FsslError("All clients are lost; the training cannot go on.")
        self.end_epoch()  # rows of this epoch go back to those of all
        rows = present.nonzero().flatten()
        self.members = self.members[rows]
        self.online, self.momentum = self._copy(self.online, rows), self._copy(self.momentum, rows)
        sampled = self.sampled[torch.isin(self.sampled, self.members)]
        self._take_part(sampled if len(sampled) else self._draw())


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}


def _distance(state: dict[str, Tensor], common: dict[str, Tensor]) -> float:
    """Of two models: the Euclidean norm of their difference."""
    return math.hypot(*(torch.linalg.vector_norm(value - common[name]).item() for name, value in state.items()))
