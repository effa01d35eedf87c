"""Seconds that a run's messages take on a stated network, from the bytes that the ledger has counted.

Rounds are synchronous: one lasts until its slowest client is done,

    seconds = max_k s_k * (8 * up_k / B_up + 8 * down_k / B_down) + 2 * latency * round_trips

over the clients k, with bytes ``up_k`` and ``down_k`` and bandwidths B in bits a second; one in which nobody exchanges
anything takes no time. ``s_k`` says how many times slower than stated the link of client k is in this round:
``exp(straggling * z)`` with a standard normal z for each client and round, a log-normal distribution with median 1.
With a straggling of 0.5 one client in a hundred is 3.2 times as slow or slower. The more clients, the slower the
slowest.

What it leaves out: computation, the server's own link (never the bottleneck here), headers and lost packets, and
compression. Clients of the split engine wait for each other at every step; that is as long if one client is the slowest
at all steps of an epoch, as it is here.
"""

from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.federation.ledger import DIRECTIONS, PURPOSES
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range, Settings, checked

MEGABIT = 10**6  # bits


@dataclass(frozen=True, kw_only=True)
class Link(Settings):
    """The network between each client and the server.

    Args:
        up, down: bandwidth from a client to the server, and back, in megabits (10^6 bits) a second, above 0.
        latency: seconds that a message of no length takes one way.
        straggling: standard deviation of the logarithm of a slow-down; 0: all clients are as fast as stated.
        seed: of the slow-downs.
    """

    up: Annotated[float, Range(1e-6)] = 10.0
    down: Annotated[float, Range(1e-6)] = 50.0
    latency: NonNegative = 0.05
    straggling: NonNegative = 0.0
    seed: int = 0

    def slow_downs(self, epoch: int, clients: int) -> torch.Tensor:
        """How many times as long each client's transfers take in an epoch or round, float64 ``[clients]``."""
        draw = generator(self.seed, "stragglers", epoch)
        return torch.exp(self.straggling * torch.randn(clients, generator=draw, dtype=torch.float64))


def round_seconds(traffic: pd.DataFrame, link: Link, *, round_trips: int = 1) -> pd.DataFrame:
    """Duration of each epoch or round; their sum is that of the run.

    Args:
        traffic: as :meth:`Ledger.table <fssl_core.federation.ledger.Ledger.table>` gives it and a run keeps it in its
            table ``traffic``: bytes by epoch (from 1) and client, all clients in each epoch.
        link: of every client.
        round_trips: how often in a round a client waits for an answer: 1 in federated averaging, which fetches a model
            and delivers one; in split learning once for each step and each synchronisation.

    Returns:
        columns ``epoch``, ``seconds`` and ``slowest``, the client that decided (-1 where nothing was exchanged, which
        takes no time).

    Raises:
        SettingError: a number of round trips below 1, or a table with other columns or without a row for each client.
    """
    epochs, transfers, waiting = _without_stragglers(traffic, link, round_trips)
    if not epochs:
        return pd.DataFrame(columns=["epoch", "seconds", "slowest"])
    longest, slowest = _with_stragglers(epochs, transfers, link).max(1)
    slowest = torch.where(transfers.any(1), slowest, -1)
    return pd.DataFrame({"epoch": epochs, "seconds": longest + waiting, "slowest": slowest})


def mean_seconds(traffic: pd.DataFrame, link: Link, *, round_trips: int = 1, draws: int = 100) -> float:
    """Seconds of a whole run, the mean over draws of who is slow: over so many seeds from the link's own on.

    A single draw of a few rounds says little, and of one message as good as nothing. Arguments and errors are those of
    :func:`round_seconds`.
    """
    draws = checked("draws", draws, Count)
    epochs, transfers, waiting = _without_stragglers(traffic, link, round_trips)
    if not epochs:
        return 0.0
    seeds = range(link.seed, link.seed + (draws if link.straggling else 1))
    drawn = [_with_stragglers(epochs, transfers, link.changed(seed=seed)).amax(1).sum() for seed in seeds]
    return float(torch.stack(drawn).mean() + waiting.sum())


def _without_stragglers(traffic: pd.DataFrame, link: Link, round_trips: int) -> tuple[list[int], Tensor, Tensor]:
    """The epochs; what each client's transfers take in each, ``[epochs, clients]``; and the waiting ``[epochs]``."""
    round_trips = checked("round_trips", round_trips, Count)
    columns = {way: [f"{purpose}_{way}" for purpose in PURPOSES] for way in DIRECTIONS}
    missing = {"epoch", "client", *columns["up"], *columns["down"]} - set(traffic.columns)
    if missing:
        expected = f"a run's table 'traffic', which has {', '.join(sorted(missing))}, too"
        raise SettingError("traffic", list(traffic.columns), expected)
    table = traffic.sort_values(["epoch", "client"])
    by_epoch = {int(epoch): clients.tolist() for epoch, clients in table.groupby("epoch")["client"]}
    clients = max(map(len, by_epoch.values()), default=0)
    for epoch, numbers in by_epoch.items():
        if numbers != list(range(clients)):
            raise SettingError("traffic", numbers, f"a row for each client, numbered from 0, in epoch {epoch}")
    up, down = (
        torch.tensor(table[columns[way]].to_numpy(dtype=float).sum(1)).view(len(by_epoch), clients)
        for way in DIRECTIONS
    )
    transfers = 8 / MEGABIT * (up / link.up + down / link.down)
    return list(by_epoch), transfers, 2 * link.latency * round_trips * transfers.any(1).double()


def _with_stragglers(epochs: list[int], transfers: Tensor, link: Link) -> Tensor:
    """The same transfers, ``[epochs, clients]``, on links that are slower in some rounds."""
    return transfers * torch.stack([link.slow_downs(epoch, transfers.shape[1]) for epoch in epochs])
