"""The registry of predicates: which function checks which claim."""

from collections.abc import Callable

import pandas as pd

Predicate = Callable[[pd.DataFrame], tuple[bool, str] | None]

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
