"""What a reader sees: tables, figures, and the record of an artifact; the papers' numbers and claims come with it."""

from fssl_core.claims import judge, verdict
from fssl_core.papers import reference
from fssl_core.reporting import cells
from fssl_core.reporting.artifact import Artifact
from fssl_core.reporting.tables import Quantity, beside_paper, show

__all__ = ["Artifact", "Quantity", "beside_paper", "cells", "judge", "reference", "show", "verdict"]
