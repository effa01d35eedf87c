"""How hard the negative keys in a memory are, in total: MocoSFL (Li et al., 2023), Section 4.3, Eq. 2 and 3.

An ideal case. Each step adds ``B`` keys; a query's similarity to the newest batch of keys is ``eta * gamma``, and
every model update multiplies it by another ``gamma``. Hardness is the sum of these similarities: similar negatives are
the hard ones here, although Section 2.1 of the paper says that a smaller similarity is the better hardness.

Differs from the paper: its sum has ``floor(M / B)`` whole batches, while a first-in-first-out memory of ``M`` keys also
holds a part of the next batch. :func:`queue_hardness` counts the keys that such a memory has. The three agree where
``B`` divides ``M``; elsewhere only the last never falls when ``B`` grows.
"""

from fssl_core.errors import SettingError
from fssl_core.settings import check_range


def summed_hardness(batch: int, memory: int, eta: float, gamma: float) -> float:
    """Eq. 2: the batches in the memory one by one, ``B eta gamma + B eta gamma^2 + ...``, ``floor(M / B)`` terms.

    Args:
        batch: keys added per step, B >= 1; with a symmetric loss, twice the images of the server's batch.
        memory: keys in the memory, M >= 0. Below B the sum has no term.
        eta: similarity of a query and a fresh key, above 0.
        gamma: what a step leaves of the similarity, above 0 and below 1.

    Returns:
        the sum over all keys of their similarity to a query.

    Raises:
        SettingError: a value out of these ranges.
    """
    _check(batch, memory, eta, gamma)
    return sum(batch * eta * gamma**age for age in range(1, memory // batch + 1))


def hardness(batch: int, memory: int, eta: float, gamma: float) -> float:
    """Eq. 3: :func:`summed_hardness` in closed form, ``B eta gamma (1 - gamma^floor(M / B)) / (1 - gamma)``."""
    _check(batch, memory, eta, gamma)
    return batch * eta * gamma * (1 - gamma ** (memory // batch)) / (1 - gamma)


def queue_hardness(batch: int, memory: int, eta: float, gamma: float) -> float:
    """:func:`hardness` and the ``M mod B`` newest keys of the batch that the memory holds in part.

    The k-th newest key is ``ceil(k / B)`` steps old, so the sum over keys ``eta * gamma^ceil(k / B)`` cannot fall when
    B or M grows.
    """
    whole = hardness(batch, memory, eta, gamma)
    return whole + memory % batch * eta * gamma ** (memory // batch + 1)


def _check(batch: int, memory: int, eta: float, gamma: float) -> None:
    check_range("batch", batch, low=1)
    check_range("memory", memory, low=0)
    if not eta > 0:
        raise SettingError("eta", eta, "a number above 0")
    if not 0 < gamma < 1:
        raise SettingError("gamma", gamma, "a number above 0 and below 1")
