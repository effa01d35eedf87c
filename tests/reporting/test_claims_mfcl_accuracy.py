"""Each predicate of MFCL on the accuracies of its tables: results for which it holds, fails, or is not run."""

import pandas as pd
import pytest

from fssl_core.costs import modular
from fssl_core.errors import DataError
from fssl_core.reporting.accuracy_claims import printed_points
from fssl_core.reporting.claims import judge
from fssl_core.reporting.predicates import mfcl_accuracy
from fssl_core.reporting.reference import paper_claims, paper_table

CLAIMS = {claim.id.removeprefix("mfcl-"): claim for claim in paper_claims("mfcl")}
TRAINING = {
    name: claim.artifact
    for name, claim in CLAIMS.items()
    if claim.compute == "training" and claim.artifact.startswith("table") and name != "table8-attacks"
}
NOT_AT_01 = "table2-claim-at-01-does-not-hold"


def verdict(claim, results, profile="paper"):
    return judge(CLAIMS[claim], results, profile).verdict


def value(claim, results, profile="paper"):
    return judge(CLAIMS[claim], results, profile).value


def papers_runs(claim):
    """The printed accuracies as if they were runs."""
    cells = printed_points("mfcl", CLAIMS[claim].artifact).reset_index(drop=True)
    return cells.assign(accuracy=cells["points"] / 100, protocol="features").drop(columns="points")


def test_printed_names_tell_all_methods_apart():
    cells = printed_points("mfcl", "table2")
    assert sorted(cells["method"].unique()) == sorted(
        [*mfcl_accuracy.NORMS, *mfcl_accuracy.SUPERVISED, *mfcl_accuracy.SELF_SUPERVISED, "FSL"]
    )
    assert len(cells) == 12 * 9
    assert {"FedSimCLR(BN)", "FedSimCLR(GN)", "FedSimCLR(TN)"} < {*printed_points("mfcl", "table5")["method"]}


@pytest.mark.parametrize("claim", TRAINING)
def test_the_papers_own_numbers_make_every_claim_on_accuracy_hold(claim):
    runs = papers_runs(claim)
    assert verdict(claim, runs) == "holds"
    assert verdict(claim, runs, "smoke") == "not run"
    ours, _, printed = value(claim, runs).partition("; printed: holds, ")
    assert ours == f"features: holds, {printed}"


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("headline-84", "84.10 percent"),
        ("table1-cut-layer", "best cut 2, 36.90 points lost at 7 (ResNet-18); best cut 4, 5.40 points lost at 7 (ResN"),
        ("table2-best-at-001", "+0.80 (CIFAR-10, FeatARC), +1.90 (CIFAR-100, FeatARC), +1.50 (Tiny ImageNet, FeatARC)"),
        ("table2-norm-order", "MFCL(TN) above MFCL(GN) by +4.80 (CIFAR-10, 0.01), +4.80 (CIFAR-10, 0.1), +2.90 (CIF"),
        ("table2-bn-recovers", "Tiny ImageNet: MFCL(TN) 42.20, MFCL(GN) 38.30, MFCL(BN) 29.50"),
        ("table2-supervised-wins-homogeneous", "+6.80 (CIFAR-10), +12.70 (CIFAR-100), +7.30 (Tiny ImageNet)"),
        ("table2-stability", "CIFAR-100: MFCL(TN) 3.40, FedAvg 23.80, FedProx 30.10, MOON 30.40"),
        ("table14-monotone", "9 of 9 curves rise"),
        ("table4-tradeoff", "MFCL(TN) above +34.80 (HeteroFL), +33.40 (Split-Mix), +22.40 (FedPAC)"),
        ("table5-tn-in-fedsimclr", "CIFAR-10, 0.1: FedSimCLR(BN) 72.10, FedSimCLR(GN) 74.70, FedSimCLR(TN) 78.20, M"),
        ("table15-vgg", "by +17.10 (xi=0.01), +2.20 (xi=200); counted alpha of FedSimCLR 2.13e+13 bits"),
        ("table6-privacy-cost", "points lost: SA 0.00, DM 1.70, SA+DM 1.70"),
        ("table7-fedema-setting", "above FedEMA by +2.30 (CIFAR-10), +0.20 (CIFAR-100)"),
        ("table16-batch-size", "range 0.20 points over K = 8, 16, 32, 64"),
        ("table17-group-size", "TN above GN by +3.90 to +5.00, with 2 against 4 by +3.70; TN is best at 8, 16"),
    ],
)
def test_values_are_the_numbers_of_the_tables(claim, text):
    assert value(claim, papers_runs(claim)).startswith(text) or f" {text}" in value(claim, papers_runs(claim))


FAILING = [  # another accuracy, in points
    ("headline-84", "method == 'MFCL(TN)' and dataset == 'CIFAR-10' and xi == 0.01", 84.4),
    ("table1-cut-layer", "architecture == 'ResNet-18' and cut == 3", 84.6),
    ("table1-cut-layer", "architecture == 'ResNet-18' and cut == 6", 62.0),  # not monotone
    ("table1-cut-layer", "architecture == 'ResNet-50' and cut == 7", 29.0),  # less than 5 points
    ("table2-best-at-001", "method == 'FeatARC' and dataset == 'CIFAR-100' and xi == 0.01", 44.5),
    ("table2-norm-order", "method == 'MFCL(GN)' and dataset == 'CIFAR-100' and xi == 0.1", 45.6),
    ("table2-norm-order", "method == 'MFCL(BN)' and dataset == 'CIFAR-10' and xi == 0.01", 21.0),
    ("table2-bn-recovers", "method == 'MFCL(BN)' and dataset == 'CIFAR-10' and xi == 200", 85.0),
    ("table2-bn-recovers", "method == 'MFCL(BN)' and dataset == 'Tiny ImageNet' and xi == 200", 43.0),
    ("table2-supervised-wins-homogeneous", "method == 'MOON' and dataset == 'CIFAR-10' and xi == 200", 85.0),
    ("table2-stability", "method == 'MFCL(TN)' and dataset == 'CIFAR-10' and xi == 200", 87.0),
    ("table2-stability", "method == 'FedProx' and dataset == 'CIFAR-10' and xi == 0.01", 92.5),
    ("table14-monotone", "method == 'MFCL(TN)' and dataset == 'CIFAR-10' and xi == 0.5", 84.4),
    ("table4-tradeoff", "method == 'HeteroFL' and xi == 0.01", 60.0),
    ("table5-tn-in-fedsimclr", "method == 'FedSimCLR(GN)' and xi == 0.1", 72.0),
    ("table5-tn-in-fedsimclr", "method == 'FedSimCLR(TN)' and xi == 0.01", 84.2),
    ("table15-vgg", "method == 'FedSimCLR' and xi == 200", 84.0),
    ("table6-privacy-cost", "secure_aggregation == 1 and datamix == 0", 82.0),
    ("table6-privacy-cost", "secure_aggregation == 0 and datamix == 1", 84.0),
    ("table7-fedema-setting", "method == 'FedEMA' and dataset == 'CIFAR-10'", 86.0),
    ("table7-fedema-setting", "method == 'FedEMA' and dataset == 'CIFAR-100'", 60.0),
    ("table16-batch-size", "K == 16", 83.8),
    ("table17-group-size", "method == 'MFCL(GN)' and channels_per_group == 64", 83.9),
    ("table17-group-size", "method == 'MFCL(TN)' and channels_per_group == 2", 79.7),
    ("table17-group-size", "method == 'MFCL(TN)' and channels_per_group == 32", 84.6),
]


@pytest.mark.parametrize(("claim", "cell", "points"), FAILING)
def test_another_accuracy_would_change_the_verdict(claim, cell, points):
    runs = papers_runs(claim)
    runs.loc[runs.query(cell).index, "accuracy"] = points / 100
    assert verdict(claim, runs) == "fails"
    assert "; printed: holds, " in value(claim, runs)  # which stay


NOT_RUN = [  # rows that are kept
    ("headline-84", "dataset != 'CIFAR-10'"),
    ("headline-84", "clients == 100"),
    ("table1-cut-layer", "cut > 2 and architecture == 'ResNet-18'"),
    ("table1-cut-layer", "cut < 5 and architecture == 'ResNet-50'"),
    ("table2-best-at-001", "method not in ['FedAvg', 'FedProx', 'MOON']"),
    ("table2-best-at-001", "method in ['FedAvg', 'FSL', 'MFCL(TN)']"),
    ("table2-best-at-001", "method != 'MFCL(TN)'"),
    ("table2-best-at-001", "xi > 0.01"),
    ("table2-norm-order", "xi != 0.1"),
    ("table2-norm-order", "method != 'MFCL(GN)'"),
    ("table2-bn-recovers", "xi < 200"),
    ("table2-supervised-wins-homogeneous", "method != 'MOON'"),
    ("table2-stability", "xi != 0.01"),
    ("table2-stability", "method == 'MFCL(TN)'"),
    ("table14-monotone", "xi != 0.5"),
    ("table4-tradeoff", "method != 'FedPAC'"),
    ("table5-tn-in-fedsimclr", "xi == 0.1"),
    ("table15-vgg", "xi == 200"),
    ("table6-privacy-cost", "secure_aggregation == 1 or datamix == 1"),
    ("table7-fedema-setting", "method == 'FedEMA'"),
    ("table16-batch-size", "K == 8"),
    ("table17-group-size", "channels_per_group != 4"),
    ("table17-group-size", "channels_per_group not in [8, 16]"),
]


@pytest.mark.parametrize(("claim", "kept"), NOT_RUN)
def test_missing_rows_decide_nothing(claim, kept):
    assert verdict(claim, papers_runs(claim).query(kept)) == "not run"


def test_each_claim_is_seen_to_fail_and_not_to_run():
    assert {claim for claim, *_ in FAILING} == {claim for claim, _ in NOT_RUN} == set(TRAINING)


def test_the_claim_on_the_table_alone_is_decided_by_the_table():
    runs = papers_runs(NOT_AT_01)
    for profile in ("smoke", "paper"):
        assert verdict(NOT_AT_01, runs, profile) == verdict(NOT_AT_01, pd.DataFrame({"x": [1]}), profile) == "holds"
    gains = "FeatARC +0.00 (CIFAR-10), +9.10 (CIFAR-100); the least of FedAvg, FedProx, MOON +2.70 (CIFAR-100), +2.70"
    assert value(NOT_AT_01, runs).startswith(f"printed: {gains}")
    assert f"; ours, features: holds, {gains}" in value(NOT_AT_01, runs)
    assert value(NOT_AT_01, runs, "smoke").endswith("; ours: not run")
    runs.loc[runs.query("method == 'FeatARC' and xi == 0.1").index, "accuracy"] = 0.1
    assert verdict(NOT_AT_01, runs) == "holds"
    assert "; ours, features: fails, FeatARC -74.60 (CIFAR-10)" in value(NOT_AT_01, runs)
    assert value(NOT_AT_01, runs.query("dataset != 'CIFAR-100'")).endswith("; ours: not run")


def test_stand_ins_for_the_data_are_judged_without_what_is_said_of_the_papers():
    digits = {"CIFAR-10": "scattered-digits"}
    for claim in ("table2-norm-order", "table2-bn-recovers", "table2-stability", "table2-best-at-001"):
        runs = papers_runs(claim).query("dataset == 'CIFAR-10'").replace({"dataset": digits})
        assert verdict(claim, runs, "laptop") == "holds"
    raised = papers_runs("table2-norm-order").query("dataset == 'CIFAR-10'").reset_index(drop=True)
    raised.loc[raised.query("method == 'MFCL(BN)'").index, "accuracy"] = 0.3
    assert verdict("table2-norm-order", raised) == "fails"
    assert verdict("table2-norm-order", raised.replace({"dataset": digits})) == "holds"
    resnet10 = papers_runs("table1-cut-layer").query("architecture == 'ResNet-18' and cut < 5")
    assert verdict("table1-cut-layer", resnet10.assign(architecture="resnet10")) == "holds"
    assert "best cut 2, 10.20 points lost at 4 (ResNet-10)" in value(
        "table1-cut-layer", resnet10.assign(architecture="resnet10")
    )


def test_our_names_count_as_the_printed_ones():
    runs = papers_runs("headline-84").replace({"dataset": {"CIFAR-10": "cifar10"}})
    assert verdict("headline-84", runs) == "holds"
    assert verdict("headline-84", runs.assign(official_data=False)) == "not run"


def test_seeds_are_averaged_and_protocols_are_not():
    good = papers_runs("table7-fedema-setting")
    twin = 0.05 * (good["method"] == "MFCL(TN)")
    low, high = good.assign(accuracy=good["accuracy"] - twin), good.assign(accuracy=good["accuracy"] + twin)
    assert verdict("table7-fedema-setting", pd.concat([low, high])) == "holds"  # as two seeds
    both = pd.concat([good.assign(protocol="linear probe"), low.assign(protocol="k-NN")])
    assert verdict("table7-fedema-setting", both) == "fails"
    text = value("table7-fedema-setting", both)
    assert text.startswith("linear probe: holds, above FedEMA by +2.30 (CIFAR-10), +0.20 (CIFAR-100); k-NN: fails, ")


def test_verdicts_on_costs_follow_the_counts(monkeypatch):
    runs = papers_runs("table15-vgg")
    monkeypatch.setattr(mfcl_accuracy, "same_client_costs", lambda: False)
    assert verdict("table15-vgg", runs) == "fails"
    monkeypatch.undo()
    monkeypatch.setitem(modular.ROUNDS, "FedSimCLR", 900)
    assert verdict("table15-vgg", runs) == "fails"


def test_three_cells_differ_between_tables_that_both_print_them():
    """Table 14 repeats Table 2, but for two cells; Table 4 has another accuracy of MFCL at xi = 200."""
    keys = ["method", "dataset", "xi"]
    second, fourteenth = (printed_points("mfcl", table).set_index(keys)["points"] for table in ("table2", "table14"))
    apart = (second - fourteenth.reindex(second.index)).round(2)
    assert apart[apart != 0].to_dict() == {
        ("FedProx", "Tiny ImageNet", 200.0): 0.1,
        ("MFCL(TN)", "CIFAR-10", 0.1): 0.1,
    }
    fourth = paper_table("mfcl", "table4").query("method == 'MFCL' and xi == 200")["value"]
    assert float(fourth.item()) == 84.5 != second["MFCL(TN)", "CIFAR-10", 200.0] == 85.3


def test_missing_columns_are_named():
    with pytest.raises(DataError, match=r"lack \(K\)"):
        verdict("table16-batch-size", papers_runs("table16-batch-size").drop(columns="K"))
