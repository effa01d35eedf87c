"""How tests have runs saved."""

from fssl_core.training.saver import Pace

EACH = Pace(shortest=0.0, longest=0.0, apart=False)  # every state, before the training goes on
