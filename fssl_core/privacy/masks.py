"""What secure aggregation is made of: fixed-point words, masks that look like noise, signatures, secrets in shares.

The cryptography is that of libraries: X25519, Ed25519, HKDF-SHA256 and AES of ``cryptography``, Shamir's shares of
``pycryptodome`` (whose AES takes five times as long). :mod:`fssl_core.privacy.secure_aggregation` is the protocol.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fssl_core.errors import FsslError, SettingError

try:
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise FsslError(
        "Secure aggregation needs cryptography and pycryptodome: pip install 'fssl-core[privacy]'."
    ) from error

KEY = 32  # bytes of an X25519 or Ed25519 key
SIGNATURE = 64  # bytes of an Ed25519 signature
SEED = 16  # bytes of a seed, which is a key of AES-128, and of a share of one
PIECE = 2**16  # words at a time: mask and sum stay in the processor's cache
FINEST = 2**8  # steps that a client's part of a value of 1 has at least: below, rounding takes too much of the client
WORDS = {32: (np.dtype("<u4"), np.dtype("<i4")), 64: (np.dtype("<u8"), np.dtype("<i8"))}  # by bits


# ---------------------------------------------------------------- fixed point


def largest_value(bits: int, fraction_bits: int) -> float:
    """Half of the numbers that words have room for; the other half takes up what rounding adds to a sum."""
    return 2.0 ** (bits - 2 - fraction_bits)


def encode(values: Tensor, share: float, bits: int, fraction_bits: int) -> np.ndarray:
    """``share * values`` in whole multiples of ``2 ** -fraction_bits``, where negative numbers wrap round.

    Args:
        values: ``[P]``, float32 or float64.
        share: a client's part of the weight of all clients, up to 1: a sum over clients is then no larger than a value.
        bits: of a word: a key of ``WORDS``.
        fraction_bits: of them after the point.

    Returns:
        ``[P]``, unsigned.

    Raises:
        SettingError: a value is not a number, or larger than :func:`largest_value`; or the share is above 1, or so
            small that rounding leaves nothing of a client.
    """
    unsigned, signed = WORDS[bits]
    if not FINEST <= share * 2.0**fraction_bits <= 2.0**fraction_bits:
        finest = FINEST * 2.0**-fraction_bits
        expected = f"a part of all weight from {finest:.1e} to 1; more fraction_bits than {fraction_bits} go lower"
        raise SettingError("share", share, expected)
    limit = largest_value(bits, fraction_bits)
    numbers = values.detach().cpu().numpy()
    words = np.empty(len(numbers), unsigned)
    for start in range(0, len(numbers), PIECE):
        piece = numbers[start : start + PIECE]
        largest = max(-piece.min(), piece.max())  # NaN where a number is
        if not largest <= limit:
            expected = f"numbers up to {limit:g}; lower fraction_bits={fraction_bits}, or use 64 bits"
            raise SettingError("values", float(largest), expected)
        scaled = np.multiply(piece, share * 2.0**fraction_bits, dtype=np.float64)
        words[start : start + PIECE].view(signed)[:] = np.rint(scaled, out=scaled)
    return words


def decode(words: np.ndarray, share: float, fraction_bits: int) -> Tensor:
    """The average of values whose words add up to these and whose shares add up to ``share``: ``[P]`` float64."""
    signed = torch.from_numpy(words.view(WORDS[8 * words.itemsize][1]))
    return signed.double().mul_(2.0**-fraction_bits / share)


# ---------------------------------------------------------------- keys and masks


def public_key(private: bytes) -> bytes:
    """What others may know of a private key, which is any 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, purpose: str) -> bytes:
    """The seed that two parties share for a purpose: each computes it from its own and the other's key.

    Raises:
        FsslError: the other's key is none, or one of the few with which the secret is the same for all.
    """
    try:
        secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise FsslError(f"{public.hex()} is no public key that a secret can be agreed on with.") from error
    return HKDF(SHA256(), SEED, salt=None, info=purpose.encode()).derive(secret)


def seal(seed: bytes, message: bytes) -> bytes:
    """Encrypted and authenticated with AES-GCM, 16 bytes longer. A seed is for one message: the nonce is constant."""
    return AESGCM(seed).encrypt(bytes(12), message, None)


def unseal(seed: bytes, sealed: bytes) -> bytes:
    """The message. Raises :class:`FsslError` where it is not as it was sealed."""
    try:
        return AESGCM(seed).decrypt(bytes(12), sealed, None)
    except InvalidTag as error:
        raise FsslError("A sealed message was changed on its way, or sealed for somebody else.") from error


def verification_key(signing: bytes) -> bytes:
    """What others check a party's signatures with. Its signing key is any 32 random bytes."""
    return Ed25519PrivateKey.from_private_bytes(signing).public_key().public_bytes_raw()


def sign(signing: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(signing).sign(message)


def is_signed(verification: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of a verification key has signed this message."""
    try:
        Ed25519PublicKey.from_public_bytes(verification).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def commit(seed: bytes) -> bytes:
    """What shows later that a seed is the one that was meant, and does not show the seed."""
    return hashlib.sha256(b"commitment to a seed" + seed).digest()


def apply_masks(words: np.ndarray, masks: Sequence[tuple[bytes, int]]) -> None:
    """Add (sign 1) or subtract (sign -1) the masks of some ``(seed, sign)``, in place, modulo the words' range.

    A mask is AES-128 in counter mode. Added to a number that is not itself uniform it gives one that is.
    """
    zeros, buffer = memoryview(bytes(PIECE * words.itemsize)), np.empty(PIECE, words.dtype)
    streams = [
        (Cipher(AES(seed), CTR(bytes(SEED))).encryptor(), np.add if sign > 0 else np.subtract) for seed, sign in masks
    ]
    for start in range(0, len(words), PIECE):
        piece = words[start : start + PIECE]
        mask = buffer[: len(piece)]
        for stream, combine in streams:
            stream.update_into(zeros[: mask.nbytes], mask.view(np.uint8))
            combine(piece, mask, out=piece)


# ---------------------------------------------------------------- secrets in shares


def split_secret(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Shamir's shares of a secret, one for each holder and as long as the secret; any ``threshold`` of them give it.

    The library draws its polynomials from the operating system: the same secret has other shares every time.

    Args:
        secret: a multiple of 16 bytes, shared block by block.
    """
    blocks = [secret[start : start + SEED] for start in range(0, len(secret), SEED)]
    return [
        b"".join(share for _, share in of_holder)
        for of_holder in zip(*(Shamir.split(threshold, holders, block) for block in blocks), strict=True)
    ]


def join_secret(shares: Mapping[int, bytes]) -> bytes:
    """The secret of which some holders, by their place, gave their shares. Too few give something else."""
    length = len(next(iter(shares.values())))
    return b"".join(
        Shamir.combine([(holder + 1, share[start : start + SEED]) for holder, share in shares.items()])
        for start in range(0, length, SEED)
    )
