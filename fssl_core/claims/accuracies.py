"""The accuracies of a paper's tables as cells: those of our runs, each protocol for itself, and the printed ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from fssl_core.claims.estimation import Cells, NotRun
from fssl_core.claims.judge import Rule, claim
from fssl_core.papers.names import as_printed
from fssl_core.papers.reference import printed_cells


def table_claims(by: Sequence[str], protocol: str | None = None) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator for claims on accuracies, whose cells these columns tell apart.

    Our runs are rows with the columns ``by``, seed, protocol, accuracy (a fraction), untrained and chance, under the
    names that the tables print; both sides are compared in points. ``protocol`` is the paper's, where ours has others
    beside it: those decide nothing.
    """

    def table_claim(id: str, *tables: str, scale: bool = False, failing: Iterable[str] = ()) -> Callable[[Rule], Rule]:
        """Register a rule as the check of a claim on these tables; ``failing`` as :class:`Cells` has it."""
        key = id.partition("-")[0]

        def printed() -> Cells:
            cells = pd.concat([printed_cells(key, table) for table in tables])
            return Cells(cells, "value", by, exact=True)

        def ours(results: pd.DataFrame) -> dict[str, Cells]:
            if "accuracy" not in results:
                raise NotRun("no accuracy is recorded")
            rows = results if protocol is None else results[results["protocol"] == protocol]
            # Rows without a seed are quoted: no runs of ours.
            runs = as_printed(rows.dropna(subset=[name for name in ("accuracy", "seed") if name in rows]))
            groups = runs.groupby("protocol", sort=False)
            return {name: in_points(part, by, label=name, failing=failing) for name, part in groups}

        return claim(id, ours=ours, printed=printed if tables else None, scale=scale)

    return table_claim


def in_points(runs: pd.DataFrame, by: Sequence[str], accuracy: str = "accuracy", **more: Any) -> Cells:
    """The cells of an accuracy (a fraction), in points; ``more`` is for :class:`Cells`."""
    # A task is data, their division and an objective.
    strata = ("dataset", "partition", "alpha", "beta", "xi", "ssl_method")
    apart = {"strata": strata, "evaluations": ("eval_dataset", "label_fraction")}
    return Cells(runs.assign(points=100 * runs[accuracy]), "points", by, accuracy=accuracy, **apart, **more)
