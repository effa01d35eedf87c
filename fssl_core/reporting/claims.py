"""The papers' claims judged on results: a claim holds, fails, or was not run.

A predicate is a small function from an artifact's results to a verdict. It lives in ``predicates/<key>.py`` under
the claim's id and restates the claim's ``check`` text and nothing else. A verdict is about the results it was given:
at the laptop profile it speaks of a small model on small data, so every table shows the profile beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

import fssl_core.reporting.predicates  # noqa: F401  (registers them)
from fssl_core.errors import DataError
from fssl_core.paths import PROFILES, records_root
from fssl_core.reporting.predicate import PREDICATES
from fssl_core.reporting.reference import PAPERS, Claim, paper_claims
from fssl_core.settings import check_choice

VERDICTS = ("holds", "fails", "not run")


@dataclass(frozen=True)
class Verdict:
    """``verdict`` is one of :data:`VERDICTS`; ``value`` the deciding number, or why the claim was not run."""

    verdict: str
    value: str


def judge(claim: Claim, results: pd.DataFrame, profile: str) -> Verdict:
    """The verdict of one claim on the results of its artifact at one profile.

    A claim about training is never judged at ``smoke``: a few steps on toy data decide nothing. One about a table of
    the paper is judged on the printed numbers at every profile; what runs say of it beside them is left out at smoke.

    Raises:
        DataError: if the results lack a column that the predicate reads.
    """
    if claim.id not in PREDICATES:
        return Verdict("not run", "no check written yet")
    if claim.compute == "training" and profile == "smoke":
        return Verdict("not run", "needs training: laptop or above")
    if results.empty:
        return Verdict("not run", "no results")
    if claim.compute == "table_arithmetic" and profile == "smoke":
        results = results.iloc[:0]
    try:
        outcome = PREDICATES[claim.id](results)
    except (KeyError, pd.errors.UndefinedVariableError) as error:
        raise DataError(
            f"Claim {claim.id} reads a column that the results lack ({error.args[0]}); they have "
            f"{', '.join(map(str, results.columns))}. Record them again by running the notebook at {profile}."
        ) from error
    if outcome is None:
        return Verdict("not run", "needs results beyond these")
    holds, value = outcome
    return Verdict("holds" if holds else "fails", value)


def check_claims(artifact_id: str, results: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Judge every claim of one artifact.

    Args:
        artifact_id: e.g. ``"monacosfl/fig3"``.
        results: the tidy results the notebook records.
        profile: one of :data:`PROFILES`.

    Returns:
        One row per claim with the columns id, claim, check, verdict, value, profile.
    """
    check_choice("profile", profile, PROFILES)
    key, _, artifact = artifact_id.partition("/")
    rows = [
        {"id": claim.id, "claim": claim.claim, "check": claim.check, **vars(judge(claim, results, profile))}
        for claim in paper_claims(key)
        if claim.artifact == artifact
    ]
    table = pd.DataFrame(rows, columns=["id", "claim", "check", "verdict", "value"])
    return table.assign(profile=profile)


def claims_table(paper: str | None = None, profile: str | None = None, among: Sequence[str] = PROFILES) -> pd.DataFrame:
    """Every claim with its verdict on the recorded results under ``figures/``.

    Args:
        paper: only this paper's claims.
        profile: judge the results of this profile; without it each artifact's most faithful recorded one.
        among: profiles that this one is of, from the least faithful to the most.

    Returns:
        One row per claim with the columns id, artifact (``"monacosfl/fig6"``), claim, verdict, value, profile
        (empty where nothing is recorded).
    """
    if profile is not None:
        check_choice("profile", profile, PROFILES)
    rows = []
    for key in PAPERS if paper is None else (paper,):
        recorded: dict[str, tuple[pd.DataFrame, str]] = {}  # one read per artifact
        for claim in paper_claims(key):
            if claim.artifact not in recorded:
                recorded[claim.artifact] = _recorded(key, claim.artifact, among if profile is None else (profile,))
            results, used = recorded[claim.artifact]
            verdict = judge(claim, results, used) if used else Verdict("not run", "nothing recorded")
            rows.append(
                {"id": claim.id, "artifact": f"{key}/{claim.artifact}", "claim": claim.claim}
                | {**vars(verdict), "profile": used}
            )
    return pd.DataFrame(rows, columns=["id", "artifact", "claim", "verdict", "value", "profile"])


def _recorded(key: str, artifact: str, profiles: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """The recorded results of the last of the profiles that has any, and that profile ("" if there is none)."""
    for candidate in reversed(profiles):
        path = records_root() / key / f"{artifact}.{candidate}.csv"
        if path.exists():
            return pd.read_csv(path), candidate
    return pd.DataFrame(), ""
