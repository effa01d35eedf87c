"""Two clients in the plane: what a synchronisation does to online and to momentum models.

Przewięźlikowski et al., "A deep cut into Split Federated Self-supervised Learning", ECML PKDD 2024, Section 4.2. Their
Figure 5 is a sketch; this simulates it. Client ``i`` has two parameters ``phi_i`` and a quadratic loss of its own,

    L_i(phi) = 1/2 sum_j h_ij (phi_j - o_ij)^2.

A step is that of :meth:`fssl_core.training.split.SplitTrainer.step`: the momentum models move towards the online
models (EMA), then the online models take a step of SGD, here with noisy gradients. At a synchronisation the average
over the clients that took part overwrites the online models of all clients, in MonAcoSFL the momentum models, too.

Differs from the engine: the loss does not depend on the momentum models (in MoCo they make the keys), so the online
models of both methods take the same path; there is no server; and SGD has no momentum of its own.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.participation import sample_clients
from fssl_core.random import generator
from fssl_core.settings import check_choice, check_range
from fssl_core.training.split import METHODS

Pairs = Sequence[Sequence[float]]

OPTIMA: Pairs = ((1.0, 3.0), (3.0, 1.0))  # o: of client 0, of client 1
CURVATURES: Pairs = ((0.3, 1.0), (1.0, 0.3))  # h
POSITIONS = ["online_x", "online_y", "momentum_x", "momentum_y"]


class Point(nn.Module):
    """A model with one parameter: a point in the plane, at the origin."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(2, dtype=torch.float64))


def two_clients(
    method: str,
    *,
    steps: int,
    sync_every: int,
    learning_rate: float,
    decay: float = 0.99,
    noise: float = 0.0,
    seed: int = 0,
    clients_per_window: int = 2,
    optima: Pairs = OPTIMA,
    curvatures: Pairs = CURVATURES,
) -> pd.DataFrame:
    """The paths of the two clients' online and momentum models, from a common start at the origin.

    Args:
        method: ``"MocoSFL"`` or ``"MonAcoSFL"``.
        steps: of SGD, in all.
        sync_every: steps in a window, at whose end clients are synchronised.
        learning_rate: of SGD; times the largest curvature below 2, or the clients diverge.
        decay: of the EMA, in [0, 1).
        noise: standard deviation of the normal noise on each component of a gradient; every client has its own.
        seed: of the noise, and of the choice of clients.
        clients_per_window: 2, or 1: in each window one client, drawn at random, trains; the other one rests.
        optima, curvatures: ``o`` and ``h``, a pair for each client.

    Returns:
        two rows, one a client, for the start, for each step and again for each synchronisation, in order of time;
        columns method, seed, client, step, synced (this is the position right after a synchronisation), online_x,
        online_y, momentum_x, momentum_y.

    Raises:
        SettingError: a value out of its range.
    """
    check_choice("method", method, METHODS)
    if clients_per_window not in (1, 2):
        raise SettingError("clients_per_window", clients_per_window, "1 or 2")
    for name, value in (("steps", steps), ("sync_every", sync_every)):
        check_range(name, value, 1)
    check_range("noise", noise, 0)
    if not 0 <= decay < 1:
        raise SettingError("decay", decay, "at least 0 and below 1: with 1 the momentum models would never move")
    optimum, curvature = (torch.tensor(pairs, dtype=torch.float64) for pairs in (optima, curvatures))  # [clients, 2]
    steepest = curvature.max().item()
    if not 0 < learning_rate * steepest < 2:
        expected = f"above 0 and below {2 / steepest:g}, where SGD would diverge"
        raise SettingError("learning_rate", learning_rate, expected)
    draws = [generator(seed, "gradient noise", client) for client in range(2)]  # of each client its own
    normal = [torch.randn(steps, 2, generator=draw, dtype=torch.float64) for draw in draws]
    gradient_noise = noise * torch.stack(normal, dim=1)  # [steps, clients, 2]

    online, momentum = ClientMatrix(Point(), 2), ClientMatrix(Point(), 2)
    active_online, active_momentum = (ClientMatrix(Point(), clients_per_window) for _ in range(2))
    path = [_row(0, False, online, momentum)]
    for step in range(1, steps + 1):
        done = step - 1
        if done % sync_every == 0:
            sampled = sample_clients(2, clients_per_window, seed, done // sync_every)
            active_online.take(online, sampled)
            active_momentum.take(momentum, sampled)

        active_momentum.average_towards_(active_online, decay)
        position = active_online.blocks["position"]  # [clients, 2]
        gradient = curvature[sampled] * (position - optimum[sampled]) + gradient_noise[done, sampled]
        position -= learning_rate * gradient

        active_online.put(online, sampled)
        active_momentum.put(momentum, sampled)
        path.append(_row(step, False, online, momentum))
        if step % sync_every == 0:
            online.load_state_dict(active_online.state_dict())  # without a client, a state is the average
            if method == "MonAcoSFL":  # the difference between the two methods
                momentum.load_state_dict(active_momentum.state_dict())
            path.append(_row(step, True, online, momentum))
    return _frame(path, method, seed)


def at_syncs(paths: pd.DataFrame, decay: float) -> pd.DataFrame:
    """What every synchronisation did to the distance between online and momentum models.

    Args:
        paths: of :func:`two_clients`, of any number of methods and seeds.
        decay: that they were made with.

    Returns:
        a row for each method, seed and synchronisation with the columns method, seed, sync (1, 2, ...),
        distance_before and distance_after (Euclidean, mean over the clients), followed (how much of the clients' drift
        from their average their momentum models have followed; NaN where clients did not drift) and ema_gap (the
        largest difference up to here between a component of the average of the EMA models and of the EMA of the
        average online model).
    """
    rows = []
    for (method, seed), path in paths.groupby(["method", "seed"], sort=False):
        values = path[POSITIONS].to_numpy().reshape(-1, path["client"].nunique(), 4)
        online, momentum = values[..., :2], values[..., 2:]  # [moments, clients, 2]
        after = np.flatnonzero(path["synced"].to_numpy().reshape(values.shape[:2])[:, 0])
        before = after - 1
        distance = np.linalg.norm(online - momentum, axis=2).mean(1)  # [moments]
        drift, momentum_drift = (model[before] - model[before].mean(1, keepdims=True) for model in (online, momentum))
        with np.errstate(invalid="ignore"):  # 0 / 0
            followed = (drift * momentum_drift).sum((1, 2)) / (drift**2).sum((1, 2))

        ends = np.delete(np.arange(len(values)), before)  # of each step, after its synchronisation if there is one
        average = pd.DataFrame(online[ends].mean(1))  # [steps + 1, 2]; the momentum models of step t know t - 1
        ema = average.ewm(alpha=1 - decay, adjust=False).mean().to_numpy()[:-1]
        gap = np.abs(momentum[ends[1:]].mean(1) - ema).max(1)  # [steps]
        step = path["step"].to_numpy().reshape(values.shape[:2])[after, 0]
        columns = {"distance_before": distance[before], "distance_after": distance[after], "followed": followed}
        columns["ema_gap"] = np.maximum.accumulate(gap)[step - 1]
        rows.append(pd.DataFrame({"method": method, "seed": seed, "sync": np.arange(len(after)) + 1, **columns}))
    return pd.concat(rows, ignore_index=True)


def share_followed(window: int, decay: float, *, first: bool) -> float:
    """How much of their own drift the momentum models of MocoSFL have followed when clients are synchronised.

    For clients that drift apart by the same vector ``v`` in each of ``window`` = K steps. Online models start a window
    together and end it ``K v`` from their average; momentum models then are ``share * K v`` from theirs. With the
    EMA's time constant ``T = 1 / (1 - decay)`` the share is ``1 - T (1 - decay^K) / K`` in the first window, in which
    momentum models start together as well, and ``1 / (1 - decay^K) - T / K`` in a late one, in which they start where
    they end.

    Args:
        window: steps between two synchronisations, at least 1.
        decay: of the EMA, in [0, 1).
        first: the first window, or a late one.

    Returns:
        a number in [0, 1). Above 1/2 a synchronisation of the online models alone takes them away from their momentum
        models; below, it brings them closer.
    """
    time_constant, kept = 1 / (1 - decay), decay**window
    return 1 - time_constant * (1 - kept) / window if first else 1 / (1 - kept) - time_constant / window


def _row(step: int, synced: bool, online: ClientMatrix, momentum: ClientMatrix) -> tuple[int, bool, Tensor]:
    return step, synced, torch.cat([online.blocks["position"], momentum.blocks["position"]], dim=1)  # [clients, 4]


def _frame(path: list[tuple[int, bool, Tensor]], method: str, seed: int) -> pd.DataFrame:
    steps, synced, positions = zip(*path, strict=True)
    clients = len(positions[0])
    frame = pd.DataFrame({"method": method, "seed": seed, "client": list(range(clients)) * len(path)})
    frame["step"], frame["synced"] = np.repeat(steps, clients), np.repeat(synced, clients)
    frame[POSITIONS] = torch.cat(positions).numpy()
    return frame
