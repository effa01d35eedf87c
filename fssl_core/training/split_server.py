"""The server's side of split federated contrastive learning: the upper layers, the queue, the loss.

Li et al., "MocoSFL", ICLR 2023, Algorithm 1. In SFL-V1 the activations of all clients are one batch and lead to one
update of the server; in SFL-V2 the server takes the clients one after the other and updates after each (Thapa et al.,
"SplitFed", AAAI 2022, Section 3).

A symmetric loss has two directions, in which two views of an image are query and key in turn. Three readings of
``swap_at`` say where they are swapped:

- ``"client"``, the released code of MonAcoSFL: both views pass through both models of a client. Four activations of an
  image go up, two gradients come down; the loss is the mean of the directions.
- ``"server"``, the text of MocoSFL (Appendix A.1): a client sends its online activation of one view and the
  momentum activation of the other, the server runs both through both of its parts, and takes the mean.
- ``"server-sum"``, the released code of MocoSFL, and MonAcoSFL's script for MobileNetV2: the same, but the sum.

In the last two the client's model learns from one direction only, since no gradient passes a momentum model.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.moco import KeyQueue, info_nce
from fssl_core.random import generator

if TYPE_CHECKING:
    from fssl_core.training.split import SplitSettings

VARIANTS = ("SFL-V1", "SFL-V2")
SWAPS = ("client", "server", "server-sum")


class SplitServer:
    """The upper layers, online and momentum, with the queue and an optimiser.

    Args:
        settings: of the run.
        server: the upper layers with pooling and projector and their first values, on the device; copied.

    Attributes:
        steps: updates made since the last :meth:`start_epoch`.
    """

    def __init__(self, settings: "SplitSettings", server: nn.Module) -> None:
        self.settings = s = settings
        device = next(server.parameters()).device
        self.online, self.momentum, self.velocity = (ClientMatrix(server, 1) for _ in range(3))
        self.velocity.weights.zero_()
        self.online.requires_grad_()
        self.model, self.momentum_model = self.online.module(), self.momentum.module()
        self.optimizer = s.sgd(self.online, self.velocity)
        self.queue = KeyQueue(s.queue_size, s.projector_dim, device=device, dtype=s.dtype)
        self.steps = 0

    def start_epoch(self, epoch: int) -> None:
        """Set the learning rate of the epoch with this number."""
        self.epoch, self.steps = epoch, 0
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * self.settings.schedule(epoch)

    def step(self, activations: Tensor, momentum_activations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of all clients.

        Args:
            activations, momentum_activations: what the clients sent, ``[clients, views * batch, c, h, w]``.

        Returns:
            the gradient of the activations, in their shape; loss and contrastive accuracy, as scalars, averaged over
            the clients.
        """
        if self.settings.variant == "SFL-V1":
            return self._update(activations, momentum_activations)
        turns = torch.randperm(
            len(activations), generator=generator(self.settings.seed, "turns", self.epoch, self.steps)
        ).tolist()
        results = {client: self._update(activations[[client]], momentum_activations[[client]]) for client in turns}
        gradients, losses, accuracies = zip(*(results[client] for client in sorted(results)), strict=True)
        return torch.cat(gradients), torch.stack(losses).mean(), torch.stack(accuracies).mean()

    def _update(self, activations: Tensor, momentum_activations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The activations of the given clients are one batch and lead to one update."""
        s = self.settings
        self.momentum.average_towards_(self.online, s.ema_decay)
        activations = activations.detach().requires_grad_(not s.freeze_client)
        directions = [(activations, momentum_activations)]
        if s.symmetric and not s.both_views:
            directions.append((momentum_activations, activations.detach()))
        losses, accuracies, new_keys = [], [], []
        for queried, keyed in directions:
            with s.autocast(activations.device):
                queries = self.model(queried.flatten(0, 1))  # [clients * views * batch, D]
                with torch.no_grad():
                    keys = self.momentum_model(keyed.flatten(0, 1))
            queries, keys = (F.normalize(output, dim=1) for output in (queries, keys))
            if s.both_views:  # a query of view 1 belongs to the key of view 2, and the other way round
                keys = keys.unflatten(0, (len(activations), 2, -1)).flip(1).flatten(0, 2)
            loss, accuracy = info_nce(queries, keys, self.queue.keys, s.temperature)
            losses.append(loss)
            accuracies.append(accuracy)
            new_keys.append(keys)
        loss, accuracy = torch.stack(losses).mean(), torch.stack(accuracies).mean()
        if s.swap_at == "server-sum":
            loss = len(losses) * loss
        loss.backward()
        self.queue.push(torch.cat(new_keys[::-1]))  # as in the code; what the queue drops depends on it
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.steps += 1
        gradient = activations.new_zeros(()).expand_as(activations) if s.freeze_client else activations.grad
        return gradient, loss.detach(), accuracy

    @property
    def _matrices(self) -> tuple[ClientMatrix, ...]:
        return self.online, self.momentum, self.velocity

    def state_dict(self) -> dict[str, Any]:
        """Weights, momentum, queue and the updates of the last epoch; not copies."""
        matrices = [matrix.all_rows() for matrix in self._matrices]
        return {"matrices": matrices, "queue": self.queue.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        for matrix, rows in zip(self._matrices, state["matrices"], strict=True):
            matrix.load_all_rows(rows)
        self.queue.load_state_dict(state["queue"])
        self.steps = state["steps"]
