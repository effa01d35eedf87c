"""Secure aggregation: the server learns the average of the clients' models, but no single one of them.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, the protocol of
Fig. 4 against parties that are honest but curious. MFCL (Section 5.6.1) puts it on the averaging of its phase 1.

A client hides its model, as whole numbers modulo 2^bits, under masks: one that it has in common with each other
client, which one of the two adds and the other subtracts, and one of its own. Every client sends four messages:

1. its *public keys*, one for masks and one for messages to other clients,
2. *sealed shares*: to each other client a Shamir share of the seed of its own mask, and one of its masking key,
3. its *masked model*; whoever does not has dropped out, and left masks in the sum that nobody subtracts,
4. for *unmasking*, its shares of the seeds of those who sent a model, and of the masking keys of those who dropped
   out. Never both of one client: together they would bare its model.

The server passes keys and shares on, adds up, and takes away the masks of the first and the second kind that it can
compute from ``threshold`` shares of a secret. Sums are of whole numbers, so nothing is lost but the rounding of models.

Differs from Bonawitz et al.: no signatures and no consistency check, which guard against a server that lies. From
MFCL, which has the "basic form", masks that cancel in the sum: there, one lost client spoils the sum.

A rule that looks at clients' models one by one cannot be combined with this: of those in
:mod:`fssl_core.federation.aggregation`, ``fedavg``, ``uniform`` and ``loss`` can, where weights are no secret.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fssl_core.errors import FsslError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.privacy.masks import (
    KEY,
    SEED,
    WORDS,
    agree,
    apply_masks,
    decode,
    encode,
    join_secret,
    largest_value,
    public_key,
    seal,
    split_secret,
    unseal,
)
from fssl_core.random import generator
from fssl_core.settings import Settings, check_choice, check_range

NUMBER = 4  # bytes of a client's number
STEPS = ("public keys", "sealed shares", "masked model", "unmasking")


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Settings):
    """What all parties agree on before a round.

    A model's numbers become multiples of ``2 ** -fraction_bits``: by default the resolution of float32 for values
    around 1, in words as long as a float32, so that a masked model is as large as a plain one.
    """

    clients: int
    threshold: int  # how many clients have to last to the end; as many can find out any client's secrets
    bits: int = 32  # of a word: 32 or 64
    fraction_bits: int = 24

    def check(self) -> None:
        check_range("clients", self.clients, 2)
        check_range("threshold", self.threshold, 2, self.clients)  # the average over one client is its model
        check_choice("bits", self.bits, WORDS)
        check_range("fraction_bits", self.fraction_bits, 0, self.bits - 2)

    @property
    def largest_value(self) -> float:
        """A model may have no larger number."""
        return largest_value(self.bits, self.fraction_bits)

    def require(self, clients: int, step: str) -> None:
        """Raise :class:`FsslError` where fewer than ``threshold`` clients have taken a step."""
        if clients < self.threshold:
            expected = f"threshold={self.threshold} have to, or nobody can take the masks away"
            raise FsslError(
                f"{clients} of {self.clients} clients took the step {step!r}: {expected}. Repeat the round."
            )


# ---------------------------------------------------------------- what a client sends


@dataclass(frozen=True, eq=False)
class PublicKeys:
    """Two keys of 32 bytes."""

    client: int
    masking: bytes
    messages: bytes

    @property
    def size(self) -> int:
        """Bytes, as of the other messages: of the content, without who sent it and what frames it."""
        return 2 * KEY


@dataclass(frozen=True, eq=False)
class SealedShares:
    """By receiver, what only that client can read: 48 bytes in 64."""

    client: int
    sealed: Mapping[int, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.sealed.values()))


@dataclass(frozen=True, eq=False)
class MaskedModel:
    """Words ``[P]``, unsigned."""

    client: int
    words: np.ndarray

    @property
    def size(self) -> int:
        return self.words.nbytes


@dataclass(frozen=True, eq=False)
class Unmasking:
    """By the client whose secret it is, a share of its seed (16 bytes) or of its masking key (32 bytes)."""

    client: int
    seeds: Mapping[int, bytes]
    masking: Mapping[int, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, [*self.seeds.values(), *self.masking.values()]))


Message = PublicKeys | SealedShares | MaskedModel | Unmasking


# ---------------------------------------------------------------- the parties


class Client:
    """A client in one round. Its methods are the steps, in order, and each works once: keys that serve twice bare.

    Args:
        protocol: what all agreed on.
        number: the client's, from 0.
        randomness: gives as many secret bytes as it is asked for. The operating system's, unless it is a simulation
            that is to repeat itself.
    """

    def __init__(
        self, protocol: SecureAggregation, number: int, randomness: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.protocol, self.number = protocol, number
        self._masking, self._messages, self._seed = randomness(KEY), randomness(KEY), randomness(SEED)
        self._others: dict[int, PublicKeys] = {}
        self._shares: dict[int, bytes] = {}  # that this client keeps, by whose secrets they are of: seed, masking key
        self._steps = list(STEPS)

    def _take(self, step: str) -> None:
        due = self._steps[0] if self._steps else "a new client with new keys"
        if due != step:
            raise FsslError(f"Client {self.number} was asked for {step!r}, but what comes next is {due!r}.")
        self._steps.pop(0)

    def public_keys(self) -> PublicKeys:
        self._take("public keys")
        return PublicKeys(self.number, public_key(self._masking), public_key(self._messages))

    def sealed_shares(self, keys: Sequence[PublicKeys]) -> SealedShares:
        """To all other clients whose keys the server has passed on."""
        self._take("sealed shares")
        s = self.protocol
        s.require(len(keys), "public keys")
        shares = split_secret(self._seed + self._masking, s.threshold, s.clients)
        self._others = {other.client: other for other in keys if other.client != self.number}
        self._shares[self.number] = shares[self.number]
        return SealedShares(
            self.number,
            {number: seal(self._message_seed(self.number, number), shares[number]) for number in self._others},
        )

    def _message_seed(self, sender: int, receiver: int) -> bytes:
        other = self._others[receiver if sender == self.number else sender]
        return agree(self._messages, other.messages, f"shares from {sender} to {receiver}")

    def masked_model(self, model: Tensor, share: float, sealed: Mapping[int, bytes]) -> MaskedModel:
        """Hide a model under the own mask and those in common with all whose shares have come.

        Args:
            model: ``[P]``.
            share: this client's part of the weight of all clients; they add up to 1.
            sealed: the shares, by sender.

        Raises:
            SettingError: the model does not fit into the protocol's words.
        """
        s = self.protocol
        words = encode(model, share, s.bits, s.fraction_bits)
        self._take("masked model")
        s.require(1 + len(sealed), "sealed shares")
        masks = [(self._seed, 1)]
        for other, message in sealed.items():
            self._shares[other] = unseal(self._message_seed(other, self.number), message)
            masks.append(common_mask(self._masking, self._others[other].masking, self.number, other))
        apply_masks(words, masks)
        return MaskedModel(self.number, words)

    def unmasking(self, survivors: Collection[int]) -> Unmasking:
        """What takes the masks away, once it is known whose models the server has."""
        self._take("unmasking")
        self.protocol.require(len(survivors), "masked model")
        if not {self.number} <= set(survivors) <= set(self._shares):
            known = sorted(self._shares)
            raise FsslError(f"Client {self.number} has masks in common with {known}; the server has {survivors}.")
        seeds, masking = {}, {}
        for client, share in self._shares.items():
            if client in survivors:
                seeds[client] = share[:SEED]
            else:
                masking[client] = share[SEED:]
        return Unmasking(self.number, seeds, masking)


def common_mask(private: bytes, public: bytes, number: int, other: int) -> tuple[bytes, int]:
    """Seed and sign of the mask that client ``number``, whose private key it is, has in common with another."""
    return agree(private, public, "mask"), 1 if number > other else -1


class Server:
    """The server in one round. Its methods take the messages of a step and give what clients need for the next.

    Attributes:
        received: every message of a client, in the order they came: all that the server sees.
    """

    def __init__(self, protocol: SecureAggregation) -> None:
        self.protocol = protocol
        self.received: list[Message] = []
        self._keys: dict[int, PublicKeys] = {}
        self._shared: list[int] = []  # clients whose masks are in the others' models
        self._masked: dict[int, MaskedModel] = {}
        self._traffic: list[dict[str, int | str]] = []

    def _receive(self, step: str, messages: Sequence[Message]) -> None:
        self.protocol.require(len(messages), step)
        self.received += messages
        self._count(step, "up", {message.client: message.size for message in messages})

    def _count(self, step: str, direction: str, sizes: Mapping[int, int]) -> None:
        self._traffic += [
            {"step": step, "direction": direction, "client": client, "bytes": size} for client, size in sizes.items()
        ]

    def publish(self, keys: Sequence[PublicKeys]) -> list[PublicKeys]:
        """The keys of all clients, for each of them."""
        self._receive("public keys", keys)
        self._keys = {message.client: message for message in keys}
        everyone = sum(message.size for message in keys)
        self._count("public keys", "down", {message.client: everyone - message.size for message in keys})
        return list(keys)

    def deliver(self, shares: Sequence[SealedShares]) -> dict[int, dict[int, bytes]]:
        """The shares by receiver and sender, of those that are still there."""
        self._receive("sealed shares", shares)
        self._shared = [message.client for message in shares]
        inboxes: dict[int, dict[int, bytes]] = {client: {} for client in self._shared}
        for message in shares:
            for receiver in inboxes.keys() - {message.client}:
                inboxes[receiver][message.client] = message.sealed[receiver]
        self._count("sealed shares", "down", {c: sum(map(len, inbox.values())) for c, inbox in inboxes.items()})
        return inboxes

    def survivors(self, models: Sequence[MaskedModel]) -> list[int]:
        """The clients over which the average will be."""
        self._receive("masked model", models)
        self._masked = {message.client: message for message in models}
        self._count("masked model", "down", dict.fromkeys(self._masked, NUMBER * len(self._masked)))
        return list(self._masked)

    def total(self, answers: Sequence[Unmasking]) -> np.ndarray:
        """The sum of the survivors' encoded models, exactly; words ``[P]``."""
        self._receive("unmasking", answers)
        enough = answers[: self.protocol.threshold]
        masks = []
        for client in self._masked:
            masks.append((join_secret({answer.client: answer.seeds[client] for answer in enough}), -1))
        for lost in set(self._shared) - self._masked.keys():
            private = join_secret({answer.client: answer.masking[lost] for answer in enough})
            # The lost client would have sent these masks with the signs that make the survivors' vanish.
            masks += [common_mask(private, self._keys[other].masking, lost, other) for other in self._masked]
        first, *others = (message.words for message in self._masked.values())
        total = first.copy()
        for words in others:
            total += words
        apply_masks(total, masks)
        return total

    def traffic(self) -> pd.DataFrame:
        """A row for each step, direction (up: client to server) and client: bytes."""
        return pd.DataFrame(self._traffic)


# ---------------------------------------------------------------- a whole round


def seeded_bytes(seed: int, number: int, client: int) -> Callable[[int], bytes]:
    """A client's randomness in a simulated round ``number``: it repeats, and is no secret to who knows the seed."""
    draws = generator(seed, "secure aggregation", number, client)
    return lambda count: torch.randint(256, (count,), generator=draws, dtype=torch.uint8).numpy().tobytes()


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
        weights: ``[clients]``, such as numbers of images; known to all.
        dropped: clients that are lost when masks are agreed on.
        seed: of the run, and
        number: of the round in it: they give all keys.

    Returns:
        the average ``[P]``, of the models' type and on their device, and the server, with what it saw.

    Raises:
        FsslError: fewer than ``threshold`` clients are left.
        SettingError: a model does not fit into the protocol's words, or weights or dropped fit no client.
    """
    if weights.shape != (protocol.clients,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise SettingError("weights", weights.tolist(), f"{protocol.clients} numbers from 0, not all 0")
    everyone = range(protocol.clients)
    if not set(dropped) <= set(everyone):
        raise SettingError("dropped", dropped, f"clients from 0 to {protocol.clients - 1}")
    shares = (weights.double() / weights.double().sum()).tolist()
    clients = [Client(protocol, client, seeded_bytes(seed, number, client)) for client in everyone]
    server = Server(protocol)
    keys = server.publish([client.public_keys() for client in clients])
    inboxes = server.deliver([client.sealed_shares(keys) for client in clients])
    masked = []
    for client, model, share in zip(clients, models, shares, strict=True):
        if client.number not in dropped:
            masked.append(client.masked_model(model, share, inboxes[client.number]))
    survivors = server.survivors(masked)
    total = server.total([clients[survivor].unmasking(survivors) for survivor in survivors])
    average = decode(total, sum(shares[survivor] for survivor in survivors), protocol.fraction_bits)
    return average.to(model), server


@torch.no_grad()
def combine_securely(
    received: ClientMatrix, weights: Tensor, into: ClientMatrix, protocol: SecureAggregation, **options
) -> Server:
    """Write :func:`secure_average` of all clients' states, buffers included, into a matrix of one row.

    Args:
        received: a row a client.
        weights, protocol, options: see :func:`secure_average`.
        into: where the new global model goes.
    """
    states = (
        torch.cat([block[row].flatten() for block in received.blocks.values()]) for row in range(received.clients)
    )
    average, server = secure_average(states, weights, protocol, **options)
    sizes = [block.numel() for block in into.blocks.values()]
    for block, part in zip(into.blocks.values(), average.split(sizes), strict=True):
        block.copy_(part.view_as(block))
    return server
