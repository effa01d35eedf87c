"""From results to verdicts: both answers, readings, and what is left open."""

import json
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from fssl_core.claims import judge
from fssl_core.claims.estimation import Cells
from fssl_core.claims.rules import agreed, ahead, fact, within
from fssl_core.claims.verdict import AS_PRINTED, OURS, counts, in_words, paper_in_words, shown, table
from fssl_core.errors import DataError, FsslError
from fssl_core.papers.records import about_record, recorded_profiles, recorded_results
from fssl_core.papers.reference import PAPERS, Claim, paper_claims

CLAIM = Claim("ldawa-test", "table9", "A is ahead.", "acc(A) > acc(FedAvg)", {}, "training")


def cells(frame):
    return Cells(frame, "points", ["method"], accuracy="accuracy")


def printed():
    return Cells(pd.DataFrame({"method": ["L-DAWA", "FedAvg"], "points": [3.0, 1.0]}), "points", ["method"], exact=True)


def runs(**points):
    """Three seeds, which differ alike in all methods but for a little; all have learned."""
    return pd.DataFrame(
        {"method": name.replace("_", " "), "seed": seed, "points": value + 5 * seed + 0.1 * (seed * len(name) % 2)}
        | {"accuracy": 0.6 + 0.01 * seed, "untrained": 0.3, "chance": 0.1}
        for name, value in points.items()
        for seed in range(3)
    ).replace({"method": {"LDAWA": "L-DAWA", "LDAWA after FedAvg": "L-DAWA after FedAvg"}})


@pytest.fixture
def check(monkeypatch):
    """Registers a rule for the claim above."""

    def check(rule=lambda part: ahead(part, "L-DAWA", "FedAvg"), ours=cells, printed=printed, scale=False):
        monkeypatch.setitem(judge.CHECKS, CLAIM.id, judge.Check(rule, ours, printed, scale))

    check()
    return check


def verdicts(results, profile="laptop", claim=CLAIM):
    return judge.judge(claim, "ldawa", results, profile, "digits")


@pytest.mark.parametrize(("ahead_by", "ours"), [(4.0, "reproduced"), (-4.0, "contradicted"), (0.02, "inconclusive")])
def test_the_two_answers_are_apart(check, ahead_by, ours):
    (verdict,) = verdicts(runs(LDAWA=50 + ahead_by, FedAvg=50.0))
    assert (verdict.ours, verdict.paper_consistent, verdict.printed) == (ours, True, 2.0)
    assert (verdict.evidence, verdict.profile, verdict.data, verdict.seeds) == ("trained", "laptop", "digits", 3)
    assert verdict.low < verdict.estimate < verdict.high
    assert verdict.quantity == "L-DAWA − FedAvg"
    assert verdict.reading == AS_PRINTED


def test_each_reading_is_judged_as_if_there_were_no_other(check):
    first, second = verdicts(runs(LDAWA=46.0, LDAWA_after_FedAvg=54.0, FedAvg=50.0))
    assert (first.ours, second.ours) == ("contradicted", "reproduced")
    assert first.reading != second.reading
    assert {first.paper_consistent, second.paper_consistent} == {True}


def test_a_claim_on_other_methods_has_one_reading(check):
    check(lambda part: ahead(part, "FedU", "FedAvg"))
    (verdict,) = verdicts(runs(LDAWA=46.0, LDAWA_after_FedAvg=54.0, FedAvg=50.0, FedU=60.0))
    assert (verdict.ours, verdict.reading) == ("reproduced", AS_PRINTED)


def test_exact_evidence_has_one_reading_and_is_judged_at_smoke(check):
    check(lambda frame: fact("rows", len(frame), 6, 6), lambda frame: frame, None)
    claim = replace(CLAIM, compute="toy")
    (verdict,) = verdicts(runs(LDAWA=1, LDAWA_after_FedAvg=2), "smoke", claim)
    assert (verdict.ours, verdict.evidence, verdict.paper_consistent) == ("reproduced", "exact", None)


def test_a_benchmark_is_not_judged_on_the_tiny_models_of_smoke(check, monkeypatch):
    claim = replace(CLAIM, compute="toy")
    rule = judge.Check(lambda frame: fact("rows", len(frame), 6, 6), lambda frame: frame, None, smoke=False)
    monkeypatch.setitem(judge.CHECKS, CLAIM.id, rule)
    found = [verdicts(runs(LDAWA=1, FedAvg=2), profile, claim)[0] for profile in ("smoke", "laptop")]
    assert [verdict.ours for verdict in found] == ["not run", "reproduced"]
    assert found[0].reason == "needs a real model: laptop or above"


@pytest.mark.parametrize(
    ("leads", "reason"),
    [((0, 2), "what can be meant disagrees: L-DAWA − FedAvg is +1.03 points"), ((0, 1), "both answers are possible")],
)
def test_what_is_sure_by_each_measure_and_not_by_all_is_told_from_what_is_not_sure(check, leads, reason):
    check(lambda part: agreed(ahead(part, "L-DAWA", "FedAvg", by=lead) for lead in leads))
    (verdict,) = verdicts(runs(LDAWA=51.0, FedAvg=50.0))
    assert (verdict.ours, verdict.reason) == ("inconclusive", reason)


@pytest.mark.parametrize(
    ("profile", "scale", "results", "reason"),
    [
        ("smoke", False, runs(LDAWA=1, FedAvg=2), "needs training"),
        ("", False, pd.DataFrame(), "nothing recorded"),
        ("laptop", True, runs(LDAWA=1, FedAvg=2), "at full scale"),
        ("laptop", False, runs(LDAWA=1), "needs L-DAWA and FedAvg side by side"),
        ("laptop", False, pd.DataFrame(), "no results"),
    ],
)
def test_what_is_not_run_says_why(check, profile, scale, results, reason):
    check(scale=scale)
    (verdict,) = verdicts(results, profile)
    assert verdict.ours == "not run"
    assert reason in verdict.reason
    assert verdict.paper_consistent is True  # whatever we have
    assert (verdict.estimate, verdict.printed) == (None, 2.0)


def test_models_that_did_not_learn_decide_nothing(check):
    (verdict,) = verdicts(runs(LDAWA=40.0, FedAvg=50.0).assign(untrained=0.9))
    assert (verdict.ours, verdict.reason) == ("inconclusive", "L-DAWA is not shown to have learned")
    assert verdict.estimate == pytest.approx(-10, abs=1)  # and still shown


def test_every_protocol_counts_and_one_is_enough_to_be_judged(check):
    check(ours=lambda frame: {name: cells(rows) for name, rows in frame.groupby("protocol")})
    both = pd.concat([runs(LDAWA=54, FedAvg=50).assign(protocol="a"), runs(LDAWA=46, FedAvg=50).assign(protocol="b")])
    assert verdicts(both)[0].ours == "contradicted"
    assert verdicts(both[both.protocol == "a"])[0].ours == "reproduced"
    alone = pd.concat([runs(LDAWA=54, FedAvg=50).assign(protocol="a"), runs(LDAWA=46).assign(protocol="b")])
    assert verdicts(alone)[0].ours == "reproduced"


def test_seeds_that_hardly_overlap_give_no_interval_and_are_not_called_one_seed(check):
    frame = runs(LDAWA=54.0, FedAvg=50.0)
    frame.loc[frame.method == "FedAvg", "seed"] += 2
    (verdict,) = verdicts(frame)
    assert (verdict.ours, verdict.reason) == ("inconclusive", "too few seeds in common, no interval")


def test_a_number_on_the_edge_of_its_last_digit_is_shown_alike_on_every_machine():
    assert {shown(value, "points") for value in (3.7650000000000006, 3.7649999999999864)} == {"+3.77 points"}


def test_a_ratio_to_nothing_can_be_shown():
    assert (shown(float("inf"), ""), shown(float("inf"), "points")) == ("inf", "+inf points")


def test_a_column_that_is_missing_is_named(check):
    check(lambda frame: fact("x", frame["nothing"].max()), lambda frame: frame, None)
    with pytest.raises(DataError, match=r"ldawa-test reads a column that the results lack \(nothing\)"):
        verdicts(runs(LDAWA=1, FedAvg=2))


def test_a_claim_has_one_check(check):
    with pytest.raises(FsslError, match=r"Claim ldawa-none has no check: .*@claim\('ldawa-none'\) in fssl_core"):
        judge.judge(replace(CLAIM, id="ldawa-none"), "ldawa", runs(LDAWA=1, FedAvg=2), "laptop")
    with pytest.raises(ValueError, match="two checks"):
        judge.claim(CLAIM.id)(lambda _: None)


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_has_a_check_and_no_check_lacks_a_claim(key):
    known = {claim.id for claim in paper_claims(key)}
    assert {id for id in judge._checks(key) if id.startswith(f"{key}-")} == known


@pytest.mark.parametrize(
    ("region", "claimed"),
    [
        ({"low": 0.0, "strict": True}, ""),
        ({"low": -0.4}, "claimed: -0.4 or more; "),
        ({"high": 0.0}, "claimed: 0 or less; "),
        ({"low": -3, "high": 3}, "claimed: -3 to 3; "),
        ({"low": 0, "high": 1.5}, "claimed: 0 to 1.5; "),
        ({"low": 38976, "high": 38976}, "claimed: 38976; "),
    ],
)
def test_what_is_claimed_is_said_where_it_is_not_just_above_zero(check, region, claimed):
    check(lambda part: within(part, part.mean(method="L-DAWA") - part.mean(method="FedAvg"), "lead", **region))
    (verdict,) = verdicts(runs(LDAWA=54.0, FedAvg=50.0).assign(untrained=0.9))
    assert in_words(verdict).endswith(f"], 3 seeds; {claimed}L-DAWA is not shown to have learned")


def test_words_and_data(check):
    verdict = verdicts(runs(LDAWA=54.0, FedAvg=50.0))[0]
    assert in_words(verdict).startswith("L-DAWA − FedAvg: +4.")
    assert in_words(verdict).endswith("], 3 seeds")
    assert paper_in_words(verdict) == "consistent: +2.00 points"
    record = json.loads(json.dumps(verdict.record(), allow_nan=False))
    assert (record["paper"], record["below"], record["above"]) == ("ldawa", None, 0.0)
    assert table([verdict])["ours"].tolist() == ["reproduced"]
    more = [verdict, *verdicts(pd.DataFrame(), "")]
    assert counts(more) == "1 claim: trained 1 reproduced, 1 not run (digits) · paper consistent 1 of 1"
    assert {one.ours for one in more} <= set(OURS)


def test_a_claim_is_judged_on_the_most_faithful_record_that_has_what_it_speaks_of(tmp_path, monkeypatch):
    """At ``workstation`` the first table lacks one local epoch, of which the second claim speaks."""
    monkeypatch.setattr("fssl_core.papers.records.records_root", lambda: tmp_path)
    cells = [
        {"local_epochs": epochs, "method": method, "seed": seed, "accuracy": 0.4 + lead + seed / 1000}
        for epochs in (1, 5, 10)
        for method, lead in (("FedAvg", 0.0), ("M-DAWA", 0.1), ("L-DAWA", 0.2 if epochs != 5 else 0.05))
        for seed in range(3)
    ]
    common = {"dataset": "cifar10", "ssl_method": "SimCLR", "label_fraction": 1.0, "protocol": "linear"}
    rows = pd.DataFrame(cells).assign(**common, untrained=0.2, chance=0.1)
    (tmp_path / "ldawa").mkdir()
    for profile, part in (("laptop", rows), ("workstation", rows[rows.local_epochs != 1])):
        part.to_csv(tmp_path / f"ldawa/table1.{profile}.csv", index=False)
        (tmp_path / f"ldawa/table1.{profile}.json").write_text(json.dumps({"data": profile}))
    verdicts = {one.id: one for one in judge.all_verdicts("ldawa") if one.artifact == "ldawa/table1"}
    both, best = (verdicts[f"ldawa-table1-{name}"] for name in ("both-beat-fedavg", "ldawa-best-e1-e10"))
    assert (both.profile, both.data, both.ours) == ("workstation", "workstation", "reproduced")
    assert (best.profile, best.data, best.ours) == ("laptop", "laptop", "reproduced")
    unrun = verdicts["ldawa-table1-time-ratios"]
    assert (unrun.profile, unrun.ours) == ("workstation", "not run")


@pytest.mark.parametrize("artifact", sorted({f"{key}/{one.artifact}" for key in PAPERS for one in paper_claims(key)}))
def test_a_record_counts_its_claims_as_they_are_judged_now(artifact):
    for profile in recorded_profiles(artifact):
        found = Counter(one.ours for one in judge.check_claims(artifact, recorded_results(artifact, profile), profile))
        assert about_record(artifact, profile)["claims"] == {answer: found[answer] for answer in OURS}
