"""Claims on the accuracies of a paper's tables: one rule for our runs and for the printed cells.

A rule is a predicate on rows with the columns of :mod:`fssl_core.reporting.cells` and points, the accuracy in percent;
names are those of the tables. It returns None where rows that it needs are missing. Our runs are judged by each
protocol for itself, and a claim holds if it does by all; what the same rule finds on the other side stands beside the
verdict: ``"linear probe: fails, +1.30 (CIFAR-10); printed: holds, +5.21 (CIFAR-10)"``.
"""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from fssl_core.reporting.cells import printed_cells
from fssl_core.reporting.predicate import Outcome, Predicate, predicate, stated
from fssl_core.reporting.tables import as_printed


def training_claim(claim_id: str, *tables: str, by: Sequence[str] = ("protocol",)) -> Callable[[Predicate], Predicate]:
    """Register a rule as the check of a claim on these tables that our runs decide.

    Args:
        claim_id: starts with the paper's key.
        tables: of the paper; for example ``"table2"``.
        by: columns; each combination of their values is judged for itself.
    """

    def register(rule: Predicate) -> Predicate:
        def check(results: pd.DataFrame) -> Outcome | None:
            found = _on_runs(rule, results, by)
            if not found:
                return None
            printed = {"printed": rule(printed_points(claim_id, *tables))}
            return all(holds for holds, _ in found.values()), _joined(found | printed)

        predicate(claim_id)(check)
        return rule

    return register


def table_claim(claim_id: str, *tables: str) -> Callable[[Predicate], Predicate]:
    """Register a rule as the check of a claim that the printed cells of these tables decide.

    Arguments as those of :func:`training_claim`. The value: ``"printed: +5.21 (CIFAR-10); ours, linear probe: fails,
    +1.30 (CIFAR-10)"``, or ``"...; ours: not run"``.
    """

    def register(rule: Predicate) -> Predicate:
        def check(results: pd.DataFrame) -> Outcome:
            holds, value = rule(printed_points(claim_id, *tables))
            found = _on_runs(rule, results, ["protocol"]) if "accuracy" in results else {}
            ours = {f"ours, {protocol}": outcome for protocol, outcome in found.items()}
            return holds, f"printed: {value}; {_joined(ours) or 'ours: not run'}"

        predicate(claim_id)(check)
        return rule

    return register


def printed_points(paper: str, *tables: str) -> pd.DataFrame:
    """Accuracies that a paper prints in its tables; of ``paper`` counts what stands before the first hyphen."""
    key = paper.partition("-")[0]
    return pd.concat([printed_cells(key, table) for table in tables]).rename(columns={"value": "points"})


def run_points(results: pd.DataFrame) -> pd.DataFrame:
    """Runs that have an accuracy (a fraction), under printed names."""
    runs = as_printed(results.dropna(subset="accuracy"))
    return runs.assign(points=100 * runs["accuracy"])


def _on_runs(rule: Predicate, results: pd.DataFrame, by: Sequence[str]) -> dict[str, Outcome]:
    """What a rule finds on our runs, by the names of those that are judged together."""
    groups = run_points(results).groupby([*by], sort=False)
    outcomes = {", ".join(names): rule(rows) for names, rows in groups}
    return {names: outcome for names, outcome in outcomes.items() if outcome is not None}


def _joined(outcomes: Mapping[str, Outcome]) -> str:
    return "; ".join(stated(name, outcome) for name, outcome in outcomes.items())
