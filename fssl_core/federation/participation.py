"""Who takes part, with how large a batch, and how often clients are synchronised.

MocoSFL (Li et al., 2023), Section 5.1 and Appendix A.1: the server's batch stays around 100, and the number of local
steps between two synchronisations stays the same for any number of clients.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.random import generator
from fssl_core.settings import checked


def sample_clients(clients: int, count: int, seed: int, epoch: int) -> Tensor:
    """The clients of one epoch, drawn without replacement, in ascending order.

    Args:
        clients: size of the federation.
        count: how many take part, 1 to ``clients``.
        seed: of the run.
        epoch: number of the epoch; a different draw for each.

    Returns:
        int64, ``[count]``.
    """
    clients, count = checked("clients", clients, int), checked("clients_per_epoch", count, int)
    if not 1 <= count <= clients:
        raise SettingError("clients_per_epoch", count, f"1 to {clients}, the number of clients")
    if count == clients:
        return torch.arange(clients)
    return torch.randperm(clients, generator=generator(seed, "sample clients", epoch))[:count].sort().values


def without_dropouts(sampled: Tensor, probability: float, seed: int, epoch: int) -> Tensor:
    """The clients of an epoch that do not drop out before it begins, at least one.

    Args:
        sampled: from :func:`sample_clients`.
        probability: that a client drops out, each for itself, in [0, 1).
        seed, epoch: as there.
    """
    if not probability:
        return sampled
    stays = torch.rand(len(sampled), generator=generator(seed, "client dropout", epoch))
    staying = sampled[stays >= probability]
    return staying if len(staying) else sampled[stays.argmax()][None]  # a round needs somebody


@dataclass(frozen=True)
class AutoAdjusted:
    """What MocoSFL's rule gives for a number of clients."""

    client_batch: int
    clients_per_epoch: int
    syncs_per_epoch: int

    def steps_between_syncs(self, images: int, clients: int) -> int:
        """Local steps between two synchronisations when ``images`` are shared equally by ``clients``."""
        return images // clients // self.client_batch // self.syncs_per_epoch


def auto_adjust(clients: int) -> AutoAdjusted:
    """MocoSFL's automatic choice of batch, sampling and synchronisation (Section 5.1, Appendix A.1, the authors' code).

    The server's batch is 100 (``100 // clients`` images a client, at least 1), at most about 100 clients take part in
    an epoch, and ``1000 / (batch * clients)`` synchronisations an epoch keep 50 steps between two of them when the
    training set has 50,000 images.

    Args:
        clients: 1 to 1000, the range in which the rule gives at least one synchronisation an epoch.
    """
    clients = checked("clients", clients, int)
    if not 1 <= clients <= 1000:
        raise SettingError("clients", clients, "1 to 1000: the paper gives the rule for this range")
    client_batch = 100 // clients if clients <= 50 else 1
    sampled = clients // (clients // 100) if clients >= 200 else clients
    return AutoAdjusted(client_batch, sampled, 1000 // (client_batch * clients))
