"""How tests have runs saved."""

import math

from fssl_core.training.saver import Pace

EACH = Pace(shortest=0.0, longest=0.0, apart=False)  # every state, before the training goes on
NEVER = Pace(shortest=math.inf, longest=math.inf, apart=False)


def save_each(monkeypatch) -> None:
    """Runs are saved after every step of an engine, not only where that costs a small share of the time."""
    monkeypatch.setattr(Pace, "asked_for", lambda: EACH)
