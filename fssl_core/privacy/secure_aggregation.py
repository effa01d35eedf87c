"""Secure aggregation: the server learns the average of the clients' models, but no single one of them.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, the protocol of
Fig. 4 with the parts that guard against active adversaries: signed keys and a consistency check. MFCL (Section 5.6.1)
puts secure aggregation on the averaging of its phase 1.

A client hides its model, as whole numbers modulo 2^bits, under masks: one that it has in common with each other
client, which one of the two adds and the other subtracts, and one of its own. Every client sends five messages:

1. its *public keys*, one for masks and one for messages to other clients, and a commitment to its own mask's seed, all
   signed,
2. *sealed shares*: to each other client a Shamir share of the seed of its own mask, and one of its masking key,
3. its *masked model*; whoever does not has dropped out, and left masks in the sum that nobody subtracts,
4. for *consistency*, its signature under the list of those whose models the server says it has,
5. for *unmasking*, once ``threshold`` clients have signed the same list, its shares of the seeds of those who are on
   it, and of the masking keys of those who dropped out. Never both of one client: together they would bare its model.

The server passes keys, shares and signatures on, adds up, and takes away the masks of the first and the second kind
that it can compute from ``threshold`` shares of a secret. Sums are of whole numbers, so nothing is lost but the
rounding of models.

**Threat model.** Of n clients, t are the ``threshold``. The server is malicious: it may lie, withhold, change, repeat
and make up messages, and up to 2t - n - 1 clients may be on its side, about n/3 with the usual t > 2n/3
(:attr:`~fssl_core.privacy.secure_messages.SecureAggregation.colluding`). All that they learn of the other clients'
models is then one sum, over the models of at least t clients, their own among them. With t of n/2 or less two halves
of the clients could be told two lists of survivors, and a model be bared: such a threshold is refused. It is assumed
that

- everybody has everybody's verification key beforehand, from somewhere else than this server (a public key
  infrastructure): whoever hands these keys out could take the place of any client;
- rounds have numbers of their own; signatures hold for one round;
- cryptography holds: X25519, Ed25519, AES, SHA-256.

Not promised: that the average is right, or that there is one. A malicious server can announce any model and end any
round, a malicious client can send any numbers as its model. What honest parties do notice, and end the round at, is a
changed share or a wrong secret: what is put together from shares must fit the public key or the commitment. A model
that is changed on its way is not noticed here; that is what the connection (TLS) is for. And an average is no secret:
what it tells about few clients, about one that outweighs the others, or together with the next round's, it still tells.

Flower's SecAgg+ (``flwr.server.workflow.SecAggPlusWorkflow``; Bell et al., CCS 2020) is not used: it holds against an
honest but curious server only, clips models to a range and rounds at random, and needs Flower's own server and clients
where the engines here have none. What it has beside this is masks with some neighbours in place of all clients, which
pays with thousands of them.

From MFCL differs: there, the "basic form", masks that cancel in the sum; one lost client spoils the sum.

A rule that looks at clients' models one by one cannot be combined with this: of those in
:mod:`fssl_core.federation.aggregation`, ``fedavg``, ``uniform`` and ``loss`` can, where weights are no secret.
"""

import os
from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.privacy.masks import KEY, decode, verification_key
from fssl_core.privacy.secure_messages import SecureAggregation
from fssl_core.privacy.secure_parties import Client, Server
from fssl_core.random import generator

COUNT = "num_batches_tracked"  # batch norm's buffer


def seeded_bytes(seed: int, number: int, client: int) -> Callable[[int], bytes]:
    """A client's randomness in a simulated round ``number``: it repeats, and is no secret to who knows the seed."""
    draws = generator(seed, "secure aggregation", number, client)
    return lambda count: torch.randint(256, (count,), generator=draws, dtype=torch.uint8).numpy().tobytes()


def simulated_clients(
    protocol: SecureAggregation, number: int = 0, randomness: Callable[[int], Callable[[int], bytes]] | None = None
) -> list[Client]:
    """All clients of round ``number``, who know each other's verification keys.

    Args:
        protocol: what they agreed on.
        number: of the round.
        randomness: of each client, by its number, see :class:`Client`; None: the operating system's.
    """
    draws = [randomness(client) if randomness else os.urandom for client in range(protocol.clients)]
    signing = [draw(KEY) for draw in draws]
    registered = {client: verification_key(key) for client, key in enumerate(signing)}
    return [Client(protocol, client, signing[client], registered, number, draw) for client, draw in enumerate(draws)]


def secure_average(
    models: Iterable[Tensor],
    weights: Tensor,
    protocol: SecureAggregation,
    *,
    dropped: Collection[int] = (),
    seed: int = 0,
    number: int = 0,
) -> tuple[Tensor, Server]:
    """Simulate a round: the weighted average over the clients that do not drop out before they send a model.

    Args:
        models: ``[clients, P]``, or as many vectors ``[P]``.
        weights: ``[clients]``, positive, such as numbers of images; known to all. Who has none takes no part.
        dropped: clients that are lost when masks are agreed on.
        seed: of the run, and
        number: of the round in it: they give all keys.

    Returns:
        the average ``[P]``, of the models' type and on their device, and the server, with what it saw.

    Raises:
        FsslError: fewer than ``threshold`` clients are left.
        SettingError: a model does not fit into the protocol's words, or weights or dropped fit no client.
    """
    weights = weights.double()
    if weights.shape != (protocol.clients,) or not ((weights > 0) & weights.isfinite()).all():
        raise SettingError("weights", weights.tolist(), f"{protocol.clients} finite numbers above 0")
    all_clients = range(protocol.clients)
    if not set(dropped) <= set(all_clients):
        raise SettingError("dropped", dropped, f"clients from 0 to {protocol.clients - 1}")
    shares = (weights / weights.sum()).tolist()
    clients = simulated_clients(protocol, number, lambda client: seeded_bytes(seed, number, client))
    server = Server(protocol)
    keys = server.publish([client.public_keys() for client in clients])
    inboxes = server.deliver([client.sealed_shares(keys) for client in clients])
    masked = []
    for client, model, share in zip(clients, models, shares, strict=True):
        if client.number not in dropped:
            masked.append(client.masked_model(model, share, inboxes[client.number]))
    survivors = server.survivors(masked)
    signatures = server.confirm([clients[survivor].consistency(survivors) for survivor in survivors])
    total = server.total([clients[survivor].unmasking(signatures) for survivor in survivors])
    average = decode(total, sum(shares[survivor] for survivor in survivors), protocol.fraction_bits)
    return average.to(model), server


@torch.no_grad()
def combine_securely(
    received: ClientMatrix, weights: Tensor, into: ClientMatrix, protocol: SecureAggregation, **options
) -> Server:
    """Write :func:`secure_average` of all clients' states into a matrix of one row.

    Batch norm's counts of batches are averaged in the open: they grow without bound, which fixed-point words cannot,
    and follow from the numbers of images, which all know.

    Args:
        received: a row a client.
        weights, protocol, options: see :func:`secure_average`.
        into: where the new global model goes.
    """
    counts = [name for name in received.blocks if name.endswith(COUNT)]
    hidden = [name for name in received.blocks if name not in counts]
    states = (torch.cat([received.blocks[name][row].flatten() for name in hidden]) for row in range(received.clients))
    average, server = secure_average(states, weights, protocol, **options)
    sizes = [into.blocks[name].numel() for name in hidden]
    for name, part in zip(hidden, average.split(sizes), strict=True):
        into.blocks[name].copy_(part.view_as(into.blocks[name]))
    survivors = server.averaged
    shares = weights[survivors].double() / weights[survivors].double().sum()
    for name in counts:
        into.blocks[name].copy_(shares.to(into.weights.device) @ received.blocks[name][survivors].double())
    return server
