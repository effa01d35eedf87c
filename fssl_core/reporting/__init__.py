"""What a reader sees: the papers' numbers and claims, tables, figures, and the record of an artifact."""

from fssl_core.reporting.artifact import Artifact
from fssl_core.reporting.tables import Quantity, beside_paper, show

__all__ = ["Artifact", "Quantity", "beside_paper", "show"]
