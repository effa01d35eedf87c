"""The registry of predicates, which function checks which claim, and how their deciding values are written."""

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

Outcome = tuple[bool, str]  # whether it holds, and the deciding value as short text
Predicate = Callable[[pd.DataFrame], Outcome | None]

PREDICATES: dict[str, Predicate] = {}


def predicate(claim_id: str) -> Callable[[Predicate], Predicate]:
    """Register the decorated function as the check of one claim.

    The function gets the artifact's results and returns whether the claim holds with the deciding value as short
    text, e.g. ``(True, "11 (505.0 MiB)")``, or ``None`` when rows it needs are missing.

    Raises:
        ValueError: if the claim already has a predicate.
    """

    def register(function: Predicate) -> Predicate:
        if claim_id in PREDICATES:
            raise ValueError(f"claim {claim_id!r} has two predicates: {PREDICATES[claim_id]} and {function}")
        PREDICATES[claim_id] = function
        return function

    return register


def signed(points: float, digits: int = 2) -> str:
    """``"+1.20"``."""
    return f"{points:+.{digits}f}"


def span(values: Iterable[float], form: str) -> str:
    """``"1.2"`` for one value, ``"1.2 to 3.4"`` for several."""
    low, high = (format(bound, form) for bound in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def listed(values: pd.Series | Mapping, form: str = "+.2f") -> str:
    """``"+4.47 (CIFAR-10, 5), ..."``: each value with the names of its row."""
    parts = ((value, name if isinstance(name, tuple) else (name,)) for name, value in values.items())
    return ", ".join(f"{value:{form}} ({', '.join(map(str, names))})" for value, names in parts)


def in_words(values: pd.Series | Mapping, form: str = ".2f") -> str:
    """``"FedAvg 71.02, L-DAWA 73.90"``."""
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


def stated(name: str, outcome: Outcome) -> str:
    """``"printed: holds, +4.47 (CIFAR-10, 5)"``."""
    holds, value = outcome
    return f"{name}: {'holds' if holds else 'fails'}, {value}"
