"""The two answers to a claim: whether the paper agrees with itself, and what our evidence says."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any

import pandas as pd

from fssl_core.claims.estimation import LEVEL, rounded

BY_ANSWER = {True: "reproduced", False: "contradicted", None: "inconclusive"}
OURS = (*BY_ANSWER.values(), "not run")
EVIDENCE = ("exact", "trained")
AS_PRINTED = "as printed"  # the reading of a claim whose words leave only one


@dataclass(frozen=True)
class Verdict:
    """What is known of one claim, in one reading of it.

    Args:
        id, artifact, claim, check: of the claim; artifact with its paper, as ``"ldawa/table1"``.
        paper_consistent: whether the paper's printed numbers satisfy the claim; None where it prints none.
        ours: one of :data:`OURS`.
        evidence: ``"exact"`` (closed forms, counts, times, toys, untrained models) or ``"trained"``.
        profile, data: of the results; empty where nothing is recorded.
        seeds: the fewest behind a mean of the deciding quantity; 0 where nothing is repeated.
        quantity, estimate, low, high, unit: the deciding quantity with its interval, which is the number itself where
            evidence is exact; None without one.
        level: of the interval: 0.95, or more where the quantity is one of several and each could decide.
        above, below: where the claim wants the quantity.
        printed: the same quantity, or the deciding one, on the paper's printed numbers; None where it prints none.
        printed_quantity: what ``printed`` is of; empty for the same quantity, of which the same is claimed.
        reading: how the paper is read, where its words leave two ways.
        reason: why it is inconclusive or not run.
    """

    id: str
    artifact: str
    claim: str
    check: str
    paper_consistent: bool | None
    ours: str
    evidence: str
    profile: str = ""
    data: str = ""
    seeds: int = 0
    quantity: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    unit: str = ""
    above: float = -inf
    below: float = inf
    printed: float | None = None
    printed_quantity: str = ""
    reading: str = AS_PRINTED
    reason: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.artifact.partition("/")[0]

    def record(self) -> dict[str, Any]:
        """All of it as JSON has it: what is not finite is None."""
        values = {"id": self.id, "paper": self.paper} | asdict(self)
        return {
            name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()
        }


def shown(value: float, unit: str) -> str:
    """A number for readers: ``"+1.20 points"``, ``"11"``, ``"3.1e+08 bytes"``."""
    value = rounded(value)
    if unit == "points":
        return f"{value:+.2f} points"
    text = f"{value:.0f}" if abs(value) < 1e6 and value == round(value) else f"{value:.4g}"
    return f"{text} {unit}".strip()


def number_with_interval(verdict: Verdict) -> str:
    """``"+1.20 points [+0.40, +2.00]"``, the level where it is not 95 %; the number alone without an interval."""
    text, low, high = shown(verdict.estimate, verdict.unit), verdict.low, verdict.high
    if low is not None and high is not None and isfinite(low) and low < high:
        form = "+.2f" if verdict.unit == "points" else ".4g"
        level = "" if verdict.level == LEVEL else f" at {100 * verdict.level:.4g} %"
        text += f" [{rounded(low):{form}}, {rounded(high):{form}}{level}]"
    return text


def in_words(verdict: Verdict) -> str:
    """What decides a verdict: ``"L-DAWA − FedAvg: +1.20 points [+0.40, +2.00], 3 seeds"``, or why nothing does.

    What is claimed of the quantity is said, too, where that is not just that it is above zero.
    """
    if verdict.estimate is None:
        return verdict.reason
    text = f"{verdict.quantity}: {number_with_interval(verdict)}"
    if verdict.seeds:
        text += f", {verdict.seeds} seed{'s' * (verdict.seeds > 1)}"
    return "; ".join(filter(None, (text, _claimed(verdict.above, verdict.below), verdict.reason)))


def _claimed(low: float, high: float) -> str:
    """``"claimed: 1.5 to 2.5"``, ``"claimed: -0.4 or more"``; empty for what is above zero, and where nothing is."""
    lowest, highest = shown(low, ""), shown(high, "")
    if low == high:
        return f"claimed: {lowest}"
    if isfinite(high):
        return f"claimed: {lowest} to {highest}" if isfinite(low) else f"claimed: {highest} or less"
    return f"claimed: {lowest} or more" if isfinite(low) and low else ""


def paper_in_words(verdict: Verdict) -> str:
    """``"consistent: +5.21 points"``, ``"inconsistent: …"`` or ``"prints none"``; what it is of where ours is not."""
    if verdict.paper_consistent is None:
        return "prints none"
    word = "consistent" if verdict.paper_consistent else "inconsistent"
    if verdict.printed is None:
        return word
    return ": ".join(filter(None, (word, verdict.printed_quantity, shown(verdict.printed, verdict.unit))))


def counts(verdicts: Sequence[Verdict]) -> str:
    """``"30 claims: exact 8 of 9 reproduced · trained 2 reproduced, 3 not run (digits) · paper consistent 4 of 5"``."""
    parts = []
    exact = [verdict.ours for verdict in verdicts if verdict.evidence == "exact"]
    if exact:
        parts.append(f"exact {exact.count('reproduced')} of {len(exact)} reproduced")
    trained = [verdict for verdict in verdicts if verdict.evidence == "trained"]
    if trained:
        found = Counter(verdict.ours for verdict in trained)
        data = sorted({verdict.data for verdict in trained if verdict.data and verdict.ours != "not run"})
        words = ", ".join(f"{found[word]} {word}" for word in OURS if found[word])
        parts.append(f"trained {words}" + (f" ({', '.join(data)})" if data else ""))
    printed = {verdict.id: verdict.paper_consistent for verdict in verdicts if verdict.paper_consistent is not None}
    if printed:
        parts.append(f"paper consistent {sum(printed.values())} of {len(printed)}")
    claims = len({verdict.id for verdict in verdicts})
    return f"{claims} claim{'s' * (claims != 1)}" + (f": {' · '.join(parts)}" if parts else "")


def table(verdicts: Iterable[Verdict]) -> pd.DataFrame:
    """For readers, a row each: id, artifact, claim, check, reading, paper, ours, deciding, evidence, profile, data.

    The claim says how it is read, where there are two ways.
    """
    names = ["id", "artifact", "claim", "check", "reading", "paper", "ours", "deciding", "evidence", "profile", "data"]
    rows = [vars(verdict) | {"paper": paper_in_words(verdict), "deciding": in_words(verdict)} for verdict in verdicts]
    return pd.DataFrame(rows, columns=names)
