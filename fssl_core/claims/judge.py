"""Claims judged on results: the registry of checks, and the verdicts of an artifact, a paper or all of them.

A check is a rule with what it is applied to. The same rule answers for the paper, on its printed cells, and for us,
on our runs. A verdict is about the results that it was given: at the laptop profile it speaks of a small model on
small data, and says so. Three things are decided here and nowhere else:

- A claim about training is never judged at ``smoke``: a few steps on toy data decide nothing.
- A claim about scale, a stated number of points, is judged on the paper's data at the profiles that train the paper's
  models (:data:`FULL_SCALE`), not on a stand-in.
- Where a paper leaves two readings, each is judged, as if the other did not exist.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from math import isnan
from typing import Any

import pandas as pd

from fssl_core.claims.estimation import LEVEL, NotRun
from fssl_core.claims.rules import Outcome, every, opposite, weakest
from fssl_core.claims.verdict import AS_PRINTED, BY_ANSWER, Verdict, shown
from fssl_core.errors import DataError, FsslError
from fssl_core.papers.records import about_record, recorded_profiles, recorded_results
from fssl_core.papers.reference import PAPERS, Claim, paper_claims
from fssl_core.paths import PROFILES
from fssl_core.settings import check_choice

FULL_SCALE = ("gpu", "paper")
COSINE_RULES = ("L-DAWA", "M-DAWA", "L-DAWA_FedAvg", "L-DAWA_Loss", "L-DAWA_FedU")
READINGS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    # paper: reading: the methods that stand for those of the claims
    "ldawa": {
        "the paper's rule from round 1": {name: name for name in COSINE_RULES},
        "the authors' code: FedAvg for three rounds": {name: f"{name} after FedAvg" for name in COSINE_RULES},
    },
    "mfcl": {
        "views normalised together": {"MFCL(TN)": "MFCL(TN)"},
        "views normalised apart": {"MFCL(TN)": "MFCL(TN), views apart"},
    },
}

Rule = Callable[[Any], Outcome]


@dataclass(frozen=True)
class Check:
    """A rule, and what makes of results, or of the paper's tables, what the rule reads.

    Args:
        rule: gets what ``ours`` or ``printed`` returns, each of its values where that is a mapping, and answers.
        ours: of the results of an artifact, which are read as they are unless it says more; None where the paper's own
            table alone can show the claim.
        printed: None where the paper prints no number of it.
        scale: whether the claim states a number of points.
        smoke: whether exact evidence counts at ``smoke``, too, where models are tiny.
    """

    rule: Rule
    ours: Callable[[pd.DataFrame], Any] | None = lambda results: results
    printed: Callable[[], Any] | None = None
    scale: bool = False
    smoke: bool = True


CHECKS: dict[str, Check] = {}


def claim(id: str, **options: Any) -> Callable[[Rule], Rule]:
    """Register the decorated rule as the check of a claim; ``options`` are what else a :class:`Check` has.

    Raises:
        ValueError: the claim has a check already.
    """

    def register(rule: Rule) -> Rule:
        if id in CHECKS:
            raise ValueError(f"claim {id!r} has two checks: {CHECKS[id].rule} and {rule}")
        CHECKS[id] = Check(rule, **options)
        return rule

    return register


def judge(claim: Claim, key: str, results: pd.DataFrame, profile: str, data: str = "") -> list[Verdict]:
    """The verdicts of one claim on the results of its artifact at one profile, one a reading.

    Args:
        claim: of the paper ``key``.
        results: as the notebook records them; without rows if there are none.
        profile: of the results; empty if there are none.
        data: name of the data.

    Raises:
        FsslError: the claim has no check.
        DataError: the results lack a column that the check reads.
    """
    checks = _checks(key)
    if claim.id not in checks:
        raise FsslError(f"Claim {claim.id} has no check: write one with @claim({claim.id!r}) in {__package__}.{key}.")
    check = checks[claim.id]
    trained = claim.compute in ("training", "table_arithmetic")
    of_paper = _answer(check.rule, check.printed) if check.printed else ""
    printed = None if isinstance(of_paper, str) else of_paper
    common = {
        "id": claim.id,
        "artifact": f"{key}/{claim.artifact}",
        "claim": claim.claim,
        "check": claim.check,
        "paper_consistent": None if printed is None else printed.answer(),
        "evidence": "trained" if trained else "exact",
        "profile": profile,
        "data": data,
    }
    verdicts = []
    for reading, rows in _readings(key, results) if trained else [(AS_PRINTED, results)]:
        outcome = _why_not(check, trained, rows, profile)
        if not outcome:
            try:
                outcome = _answer(check.rule, partial(check.ours, rows))
            except (KeyError, pd.errors.UndefinedVariableError) as error:
                raise DataError(
                    f"Claim {claim.id} reads a column that the results lack ({error.args[0]}); they have "
                    f"{', '.join(map(str, results.columns))}. Record them again by running the notebook at {profile}."
                ) from error
        verdicts.append(Verdict(**common, reading=reading, **_found(outcome, printed)))
    answers = {(v.ours, v.quantity, v.reason, v.estimate and round(v.estimate, 9)) for v in verdicts}
    # Readings that do not differ here are about other methods.
    return verdicts if len(answers) > 1 else [replace(verdicts[0], reading=AS_PRINTED)]


def check_claims(artifact_id: str, results: pd.DataFrame, profile: str) -> list[Verdict]:
    """The verdicts on all claims of one artifact, e.g. ``"monacosfl/fig3"``, on its results."""
    check_choice("profile", profile, PROFILES)
    key, _, artifact = artifact_id.partition("/")
    claims = [claim for claim in paper_claims(key) if claim.artifact == artifact]
    return [verdict for claim in claims for verdict in judge(claim, key, results, profile)]


def all_verdicts(
    about: str | None = None, profile: str | None = None, among: Sequence[str] = PROFILES
) -> list[Verdict]:
    """Every claim judged on the recorded results under ``figures/``.

    Args:
        about: a paper or an artifact, ``"mfcl"`` or ``"mfcl/table2"``: only its claims.
        profile: judge the results of this profile; without it each claim on the most faithful record that has what
            the claim speaks of.
        among: profiles that this one is of, from the least faithful to the most.
    """
    if profile is not None:
        check_choice("profile", profile, PROFILES)
    paper, _, artifact = (about or "").partition("/")
    if paper:
        check_choice("paper", paper, PAPERS)  # another work, such as the benchmark, claims nothing
    verdicts = []
    for key in (paper,) if paper else PAPERS:
        read = cache(partial(_recorded, key))  # once an artifact and profile
        claims = paper_claims(key)
        if artifact:
            check_choice("notebook", about, dict.fromkeys(f"{key}/{claim.artifact}" for claim in claims))
            claims = [claim for claim in claims if claim.artifact == artifact]
        for claim in claims:
            profiles = recorded_profiles(f"{key}/{claim.artifact}", among if profile is None else (profile,)) or [""]
            judged = (judge(claim, key, *read(claim.artifact, name)) for name in profiles)  # each when it is asked for
            first = next(judged)
            verdicts += first if _any_run(first) else next(filter(_any_run, judged), first)
    return verdicts


def _any_run(verdicts: list[Verdict]) -> bool:
    return any(verdict.ours != "not run" for verdict in verdicts)


def _checks(key: str) -> dict[str, Check]:
    import_module(f"fssl_core.claims.{key}")  # registers them
    return CHECKS


def _why_not(check: Check, trained: bool, results: pd.DataFrame, profile: str) -> str:
    if not profile:
        return "nothing recorded"
    if check.ours is None:
        return "only the paper's own table can show it"
    if profile == "smoke" and (trained or not check.smoke):
        return f"needs {'training' if trained else 'a real model'}: laptop or above"
    if trained and results.empty:
        return "no results"
    if trained and check.scale and profile not in FULL_SCALE:
        return "a stated size is judged at full scale, on the paper's data"
    return ""


def _readings(key: str, results: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """The results as each reading has them; one alone where no second is in the results."""
    readings = READINGS.get(key, {})
    methods = set(results["method"]) if "method" in results else set()
    extra = {ours for names in readings.values() for base, ours in names.items() if ours != base}
    if not extra & methods:
        yield AS_PRINTED, results
        return
    for reading, names in readings.items():
        others = (extra | set(names)) - set(names.values())  # rows of other readings
        rows = results[~results["method"].isin(others)]
        yield reading, rows.replace({"method": {ours: base for base, ours in names.items()}})


def _answer(rule: Rule, cells_of: Callable[[], Any]) -> Outcome | str:
    """What a rule finds, for each part of what it is applied to; or why it finds nothing."""
    try:
        cells = cells_of()
        if not isinstance(cells, Mapping):
            return rule(cells)
    except NotRun as lacking:
        return str(lacking)
    outcomes, reasons = [], []
    for part in cells.values():
        try:
            outcomes.append(rule(part))
        except NotRun as lacking:
            reasons.append(str(lacking))
    return every(outcomes) if outcomes else reasons[0] if reasons else "no results"


def _found(outcome: Outcome | str, printed: Outcome | None) -> dict[str, Any]:
    """What a verdict says of our evidence, with the printed value of the same quantity."""
    same = printed.deciding()[0] if printed else None
    if isinstance(outcome, str):
        of_paper = {"printed": same.estimate.value, "printed_quantity": same.name, "unit": same.unit} if same else {}
        return {"ours": "not run", "reason": outcome, **of_paper}
    deciding, level = outcome.deciding()
    doubt = deciding.doubt
    if level > deciding.learned:
        doubt = doubt or "beside so many comparisons its models are not shown to have learned"
    known = [leaf for leaf in outcome.leaves() if not isnan(leaf.estimate.value)]
    if isnan(deciding.estimate.value) and known:  # what was not run is the reason, what was run is shown
        deciding, level = weakest(known), LEVEL
    low, high = deciding.estimate.interval(level)
    if printed:
        same = {leaf.name: leaf for leaf in printed.leaves()}.get(deciding.name, same)
    if same and same.unit != deciding.unit:
        same = None
    alike = same and (same.name, same.low, same.high) == (deciding.name, deciding.low, deciding.high)
    answer = outcome.answer()
    reason = ""
    if answer is None:
        few = "one seed" if deciding.estimate.seeds == 1 else "too few seeds in common"
        open_answer = "both answers are possible"
        if deciding.answer(level) is not None:
            open_answer = "what can be meant disagrees"
            if other := opposite(outcome, deciding):
                open_answer += f": {other.name} is {shown(other.estimate.value, other.unit)}"
        reason = doubt or (f"{few}, no interval" if isnan(low) else open_answer)
    return {
        "ours": BY_ANSWER[answer],
        "seeds": deciding.estimate.seeds,
        "quantity": f"{deciding.name} ({deciding.label})" if deciding.label else deciding.name,
        "estimate": None if isnan(deciding.estimate.value) else deciding.estimate.value,  # unknown
        "low": low,
        "high": high,
        "level": level,
        "unit": deciding.unit,
        "above": deciding.low,
        "below": deciding.high,
        "printed": same.estimate.value if same else None,
        "printed_quantity": "" if alike or not same else same.name,
        "reason": reason,
    }


def _recorded(key: str, artifact: str, profile: str) -> tuple[pd.DataFrame, str, str]:
    """Results, profile and data of a record; empty without a profile."""
    id = f"{key}/{artifact}"
    if not profile:
        return pd.DataFrame(), "", ""
    return recorded_results(id, profile), profile, about_record(id, profile).get("data", "")
