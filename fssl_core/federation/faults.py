"""Clients that send something else than what they have learned.

Each takes part and trains like the others, and then falsifies its update, the difference between its model and the
global one that it received. Tensor by tensor, with the update d of n numbers and its length ``|d|``, it sends the
global model and, in place of d, ``scale`` times

=============  =======================================  ==============================================================
fault          update                                   where it comes from
=============  =======================================  ==============================================================
``noise``      ``|d| / sqrt(n) * N(0, 1)``              Gaussian noise (Blanchard et al., NeurIPS 2017), which has
                                                        one deviation for all tensors there
``sign-flip``  ``-d``                                   the direction in which its own loss grows
``constant``   ``|d| / sqrt(n)`` in all n numbers       one value everywhere: no image has a say in its direction, and
                                                        faulty clients point the same way without knowing each other
=============  =======================================  ==============================================================

So faults of one scale are equally long (noise is so on average) and differ in direction only: at scale 1 a norm tells
no fault from an honest update; at scale 0 a client sends back what it got.

Threat model. The attacker is a fixed set of clients, drawn once for a run. Each of them knows its own images, the
global models that it receives, and so its own honest update. It does not know the others' images, models or updates,
who else is faulty, or the aggregation rule: the guarantees of robust rules are about a stronger attacker, who knows all
of these. It wants the training to fail. It cannot send more than a client's share of messages, and says the truth of
its loss and its number of images. Running statistics of normalisation (a negative variance would be noticed), what some
objectives exchange beside the model, and what it keeps for itself are as its training made them.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.random import generator

LARGEST_SCALE = 1000.0  # models stay finite in float32


def _noise(update: Tensor, draw: Generator) -> Tensor:
    normal = torch.randn(update.shape, generator=draw, dtype=torch.float32)  # the same numbers on every device
    return _size(update) * normal.to(update)


def _size(update: Tensor) -> Tensor:
    """Root mean square."""
    return torch.linalg.vector_norm(update) / max(1, update.numel()) ** 0.5


FAULTS: dict[str, Callable[[Tensor, Generator], Tensor]] = {  # from a tensor of an update to what replaces it
    "noise": _noise,
    "sign-flip": lambda update, draw: -update,
    "constant": lambda update, draw: _size(update).expand_as(update),
}


def faulty_clients(clients: int, share: float, seed: int) -> frozenset[int]:
    """``share`` of the clients, rounded; a larger share adds to the same ones.

    Raises:
        SettingError: the share is not 0 and rounds to nobody.
    """
    count = round(share * clients)
    if share and not count:
        raise SettingError("faulty_share", share, f"0, or enough for one of {clients} clients: above {0.5 / clients:g}")
    return frozenset(torch.randperm(clients, generator=generator(seed, "faulty clients"))[:count].tolist())


@torch.no_grad()
def falsify(
    model: ClientMatrix, received: ClientMatrix, fault: str, scale: float, draw: Generator, *, into: ClientMatrix
) -> None:
    """Write what a faulty client sends; matrices of one row.

    Args:
        model: what the client has trained.
        received: the global model that it got; of a client that holds a part, the first numbers along each axis.
        fault: a key of :data:`FAULTS`.
        scale: length of the update, as a multiple of the honest one's.
        draw: for noise.
        into: anything; all of it is overwritten.
    """
    into.take(model, [0])
    for name, block in into.parameter_blocks.items():
        start = received.blocks[name][tuple(map(slice, block.shape))]
        block.copy_(start + scale * FAULTS[fault](block - start, draw))
