"""What the parties of secure aggregation agree on, and what they send each other.

The protocol and its threat model are in :mod:`fssl_core.privacy.secure_aggregation`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fssl_core.errors import FsslError
from fssl_core.privacy.masks import FINEST, WORDS
from fssl_core.settings import Settings, check_choice, check_range

NUMBER = 4  # bytes of a client's number
STEPS = ("public keys", "sealed shares", "masked model", "consistency", "unmasking")


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Settings):
    """What all parties agree on before a round.

    A model's numbers become multiples of ``2 ** -fraction_bits``: by default the resolution of float32 for values
    around 1, in words as long as a float32, so that a masked model is as large as a plain one.
    """

    clients: int
    threshold: int  # how many clients have to last to the end, more than half; as many can find out any one's secrets
    bits: int = 32  # of a word: 32 or 64
    fraction_bits: int = 24

    def check(self) -> None:
        check_range("clients", self.clients, 2)
        check_range("threshold", self.threshold, self.clients // 2 + 1, self.clients)
        check_choice("bits", self.bits, WORDS)
        check_range("fraction_bits", self.fraction_bits, FINEST.bit_length() - 1, self.bits - 2)
        check_range("clients", self.clients, 2, 2**self.fraction_bits // FINEST)  # see encode: each has its part

    @property
    def colluding(self) -> int:
        """With so many clients on its side a lying server learns no more than a sum over ``threshold`` clients.

        It needs two lists of survivors that ``threshold`` clients sign each; those on its side sign both.
        """
        return 2 * self.threshold - self.clients - 1

    def require(self, senders: Iterable[int], step: str, among: Collection[int] | None = None) -> set[int]:
        """The clients that took a step.

        Raises:
            FsslError: one is there twice or is none of ``among`` (None: of all), or there are fewer than ``threshold``.
        """
        count, among = Counter(iter(senders)), range(self.clients) if among is None else among
        if wrong := sorted(sender for sender in count if sender not in among or count[sender] > 1):
            raise FsslError(f"Clients {wrong} are there twice or not expected in the step {step!r}. Repeat the round.")
        if len(count) < self.threshold:
            raise FsslError(
                f"{len(count)} of {self.clients} clients took the step {step!r}: threshold={self.threshold} have to, "
                "or nobody can take the masks away. Repeat the round."
            )
        return set(count)


# ---------------------------------------------------------------- messages


def statement(kind: str, round_number: int, clients: Iterable[int]) -> bytes:
    """The beginning of what is signed: no two kinds, rounds or lists of clients give the same."""
    return f"secure aggregation, {kind}, round {round_number}, clients {sorted(clients)}:".encode()


@dataclass(frozen=True, eq=False)
class Message:
    """What a client sends in a step."""

    client: int

    @property
    def size(self) -> int:
        """Bytes of the content, without who sent it and what frames it."""
        return sum(_size(value) for name, value in vars(self).items() if name != "client")


def _size(content: bytes | np.ndarray | Mapping[int, bytes]) -> int:
    if isinstance(content, Mapping):
        return sum(map(len, content.values()))
    return memoryview(content).nbytes


@dataclass(frozen=True, eq=False)
class PublicKeys(Message):
    """Two keys, the commitment to a seed, and a signature under all that."""

    masking: bytes
    messages: bytes
    commitment: bytes
    signature: bytes

    def signed(self, round_number: int) -> bytes:
        """What the signature is under."""
        return statement("keys", round_number, [self.client]) + self.masking + self.messages + self.commitment


@dataclass(frozen=True, eq=False)
class SealedShares(Message):
    """By receiver, what only that client can read: 48 bytes in 64."""

    sealed: Mapping[int, bytes]


@dataclass(frozen=True, eq=False)
class MaskedModel(Message):
    """Words ``[P]``, unsigned."""

    words: np.ndarray


@dataclass(frozen=True, eq=False)
class Consistency(Message):
    """A signature under the list of survivors."""

    signature: bytes


@dataclass(frozen=True, eq=False)
class Unmasking(Message):
    """By the client whose secret it is, a share of its seed (16 bytes) or of its masking key (32 bytes)."""

    seeds: Mapping[int, bytes]
    masking: Mapping[int, bytes]
