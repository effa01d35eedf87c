"""Client and server of secure aggregation, and what each of them checks before it goes on.

The protocol and its threat model are in :mod:`fssl_core.privacy.secure_aggregation`.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from torch import Tensor

from fssl_core.errors import FsslError
from fssl_core.privacy.masks import (
    KEY,
    SEED,
    SIGNATURE,
    WORDS,
    agree,
    apply_masks,
    commit,
    encode,
    is_signed,
    join_secret,
    public_key,
    seal,
    sign,
    split_secret,
    unseal,
)  # fmt: skip
from fssl_core.privacy.secure_messages import (
    NUMBER,
    STEPS,
    Consistency,
    MaskedModel,
    Message,
    PublicKeys,
    SealedShares,
    SecureAggregation,
    Unmasking,
    statement,
)  # fmt: skip


class Client:
    """A client in one round. Its methods are the steps, in order, and each works once: keys that serve twice bare.

    Args:
        protocol: what all agreed on.
        number: the client's, from 0.
        signing: the client's own key for signatures, 32 secret bytes.
        registered: all clients' verification keys, by number; they must not come from the server.
        round_number: no two rounds with the same signing keys have the same.
        randomness: gives as many secret bytes as it is asked for. The operating system's, unless it is a simulation
            that is to repeat itself.

    All methods raise :class:`FsslError` where what the server passes on cannot be, and then reveal nothing.
    """

    def __init__(
        self,
        protocol: SecureAggregation,
        number: int,
        signing: bytes,
        registered: Mapping[int, bytes],
        round_number: int = 0,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.protocol, self.number, self.round_number = protocol, number, round_number
        self._signing, self._registered = signing, registered
        self._masking, self._messages, self._seed = randomness(KEY), randomness(KEY), randomness(SEED)
        self._others: dict[int, PublicKeys] = {}
        self._shares: dict[int, bytes] = {}  # that this client keeps, by whose secrets they are of: seed, masking key
        self._survivors: set[int] = set()
        self._steps = list(STEPS)

    def _check_due(self, step: str) -> None:
        expected = self._steps[0] if self._steps else "a new client with new keys"
        if expected != step:
            raise FsslError(f"Client {self.number} was asked for {step!r}, but what comes next is {expected!r}.")

    def public_keys(self) -> PublicKeys:
        self._check_due("public keys")
        keys = PublicKeys(
            self.number, public_key(self._masking), public_key(self._messages), commit(self._seed), signature=b""
        )
        self._steps.pop(0)
        return replace(keys, signature=sign(self._signing, keys.signed(self.round_number)))

    def sealed_shares(self, keys: Sequence[PublicKeys]) -> SealedShares:
        """To all other clients whose keys the server has passed on."""
        self._check_due("sealed shares")
        s = self.protocol
        s.require((message.client for message in keys), "public keys")
        for message in keys:
            if not is_signed(self._registered[message.client], message.signed(self.round_number), message.signature):
                raise FsslError(f"The keys of client {message.client} are not signed by it for this round.")
        if len({key for message in keys for key in (message.masking, message.messages)}) < 2 * len(keys):
            raise FsslError("Two clients have the same public key.")
        shares = split_secret(self._seed + self._masking, s.threshold, s.clients)
        self._others = {other.client: other for other in keys if other.client != self.number}
        self._shares[self.number] = shares[self.number]
        self._steps.pop(0)
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
            SettingError: the model or the share does not fit into the protocol's words.
        """
        s = self.protocol
        words = encode(model, share, s.bits, s.fraction_bits)
        self._check_due("masked model")
        s.require([self.number, *sealed], "sealed shares", among={self.number, *self._others})
        masks = [(self._seed, 1)]
        shares = {other: unseal(self._message_seed(other, self.number), message) for other, message in sealed.items()}
        for other in sealed:
            masks.append(common_mask(self._masking, self._others[other].masking, self.number, other))
        apply_masks(words, masks)
        self._shares |= shares
        self._steps.pop(0)
        return MaskedModel(self.number, words)

    def consistency(self, survivors: Collection[int]) -> Consistency:
        """Agree to those whose models the server has: this client will answer for no others."""
        self._check_due("consistency")
        self._survivors = self.protocol.require(survivors, "masked model", among=self._shares)
        if self.number not in survivors:
            raise FsslError(f"Client {self.number} sent a model; the server has those of {sorted(survivors)}.")
        self._steps.pop(0)
        return Consistency(self.number, sign(self._signing, self._agreed()))

    def _agreed(self) -> bytes:
        return statement("survivors", self.round_number, self._survivors)

    def unmasking(self, signatures: Mapping[int, bytes]) -> Unmasking:
        """What takes the masks away, once enough clients have signed the list of survivors that this one has.

        Args:
            signatures: under the list, by client.
        """
        self._check_due("unmasking")
        self.protocol.require(signatures, "consistency", among=self._survivors)
        for client, signature in signatures.items():
            if not is_signed(self._registered[client], self._agreed(), signature):
                raise FsslError(f"Client {client} has not signed the list {sorted(self._survivors)} of this round.")
        self._steps.pop(0)
        seeds, masking = {}, {}
        for client, share in self._shares.items():
            if client in self._survivors:
                seeds[client] = share[:SEED]
            else:
                masking[client] = share[SEED:]
        return Unmasking(self.number, seeds, masking)


def common_mask(private: bytes, public: bytes, number: int, other: int) -> tuple[bytes, int]:
    """Seed and sign of the mask that client ``number``, whose private key it is, has in common with another.

    The seed is of this pair alone: other bytes can be the same key for X25519, and with a copy of a third one's key the
    other would have the third one's mask, which could cancel it.
    """
    pair = sorted((number, other))
    return agree(private, public, f"mask of {pair}"), 1 if number > other else -1


class Server:
    """The server in one round. Its methods take the messages of a step and give what clients need for the next.

    All raise :class:`FsslError` where fewer than ``threshold`` clients sent a message, one sent two or not what is due.

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

    def _receive(self, step: str, messages: Sequence[Message], among: Collection[int] | None = None) -> None:
        self.protocol.require((message.client for message in messages), step, among)
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
        total = sum(message.size for message in keys)
        self._count("public keys", "down", {message.client: total - message.size for message in keys})
        return list(keys)

    def deliver(self, shares: Sequence[SealedShares]) -> dict[int, dict[int, bytes]]:
        """The shares by receiver and sender, of those that are still there."""
        self._receive("sealed shares", shares, self._keys)
        for message in shares:
            _require_for(message.client, message.sealed, self._keys.keys() - {message.client})
        self._shared = [message.client for message in shares]
        inboxes: dict[int, dict[int, bytes]] = {client: {} for client in self._shared}
        for message in shares:
            for receiver in inboxes.keys() - {message.client}:
                inboxes[receiver][message.client] = message.sealed[receiver]
        self._count("sealed shares", "down", {c: sum(map(len, inbox.values())) for c, inbox in inboxes.items()})
        return inboxes

    def survivors(self, models: Sequence[MaskedModel]) -> list[int]:
        """The clients over which the average will be."""
        self._receive("masked model", models, self._shared)
        word = WORDS[self.protocol.bits][0]
        sizes = {(message.words.dtype, message.words.shape) for message in models}
        if len(sizes) > 1 or next(iter(sizes))[0] != word:
            raise FsslError(f"Masked models are not all as long, of {word} words: {sorted(map(str, sizes))}.")
        self._masked = {message.client: message for message in models}
        self._count("masked model", "down", dict.fromkeys(self._masked, NUMBER * len(self._masked)))
        return list(self._masked)

    def confirm(self, agreed: Sequence[Consistency]) -> dict[int, bytes]:
        """The signatures under the list of survivors, by client, for each of those who signed."""
        self._receive("consistency", agreed, self._masked)
        self._count("consistency", "down", {message.client: SIGNATURE * (len(agreed) - 1) for message in agreed})
        return {message.client: message.signature for message in agreed}

    def total(self, answers: Sequence[Unmasking]) -> np.ndarray:
        """The sum of the survivors' encoded models, exactly; words ``[P]``.

        Raises:
            FsslError: also where shares give another secret than the one whose public part is known.
        """
        self._receive("unmasking", answers, self._masked)
        lost = set(self._shared) - self._masked.keys()
        for answer in answers:
            _require_for(answer.client, answer.seeds, self._masked.keys())
            _require_for(answer.client, answer.masking, lost)
        enough = answers[: self.protocol.threshold]
        masks = []
        for client in self._masked:
            seed = _join(client, {answer.client: answer.seeds[client] for answer in enough}, SEED)
            if commit(seed) != self._keys[client].commitment:
                raise _wrong_shares("seed", client, enough)
            masks.append((seed, -1))
        for client in lost:
            private = _join(client, {answer.client: answer.masking[client] for answer in enough}, KEY)
            if public_key(private) != self._keys[client].masking:
                raise _wrong_shares("masking key", client, enough)
            # The lost client would have sent these masks with the signs that make the survivors' vanish.
            masks += [common_mask(private, self._keys[other].masking, client, other) for other in self._masked]
        first, *others = (message.words for message in self._masked.values())
        total = first.copy()
        for words in others:
            total += words
        apply_masks(total, masks)
        return total

    @property
    def averaged(self) -> list[int]:
        """The clients whose models are in the sum."""
        return list(self._masked)

    def traffic(self) -> pd.DataFrame:
        """A row for each step, direction (up: client to server) and client: bytes."""
        return pd.DataFrame(self._traffic)


def _require_for(client: int, shares: Mapping[int, bytes], expected: Collection[int]) -> None:
    if shares.keys() != set(expected):
        raise FsslError(f"Client {client} sent shares for {sorted(shares)}; due are shares for {sorted(expected)}.")


def _join(client: int, shares: Mapping[int, bytes], length: int) -> bytes:
    if any(len(share) != length for share in shares.values()):
        raise FsslError(f"The shares of a secret of client {client} are not {length} bytes long. Repeat the round.")
    return join_secret(shares)


def _wrong_shares(secret: str, client: int, answers: Sequence[Unmasking]) -> FsslError:
    senders = [answer.client for answer in answers]
    return FsslError(
        f"The shares of {senders} do not give the {secret} of client {client}: one was changed, or the client shared "
        "another. Repeat the round."
    )
