"""Random numbers that depend on what they are for, never on what was drawn before."""

import hashlib
import operator

import torch

from fssl_core.errors import SettingError


def generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """A fresh CPU generator for one purpose, e.g. ``generator(seed, "order", epoch, client)``.

    The same arguments give the same numbers on every machine and for every device, whatever else was drawn:
    changing the order of clients, or resuming a run, changes nothing. Draw on the CPU and move the result.

    Args:
        seed: the run's seed.
        purpose: a word that keeps uses apart, such as ``"order"`` or ``"augment"``.
        keys: integers such as epoch and client.

    Raises:
        SettingError: the seed is no whole number.
    """
    try:
        whole = operator.index(seed)
    except TypeError:
        raise SettingError("seed", seed, "a whole number") from None
    text = "/".join([str(whole), purpose, *(str(int(key)) for key in keys)])
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return torch.Generator().manual_seed(number >> 1)  # 63 bits: every torch accepts them
