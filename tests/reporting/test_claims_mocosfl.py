"""Each predicate of MocoSFL with results for which it holds, for which it fails, and that decide nothing."""

import pandas as pd
import pytest

from fssl_core.reporting import predicates
from fssl_core.reporting.claims import check_claims, judge
from fssl_core.reporting.predicate import PREDICATES
from fssl_core.reporting.reference import paper_claims, paper_table

CLAIMS = {claim.id.removeprefix("mocosfl-"): claim for claim in paper_claims("mocosfl")}


def verdict(claim, results, profile="laptop"):
    return judge(CLAIMS[claim], results, profile).verdict


def frame(columns, *rows, **constant):
    return pd.DataFrame(rows, columns=columns.split()).assign(**constant)


def test_every_claim_has_a_predicate():
    assert {claim.id for claim in CLAIMS.values()} <= set(PREDICATES)


# --------------------------------------------------------------------------------------------------------------- fig1


def by_batch(*accuracies):
    rows = [(batch, accuracy) for batch, accuracy in zip((8, 32, 128), accuracies, strict=True)]
    return frame("batch knn_accuracy", *rows, method="FL-BYOL", panel="a")


def test_fig1a_batch_size():
    claim = "fig1a-batch-size"
    good = by_batch(0.50, 0.495, 0.61)
    assert judge(CLAIMS[claim], good, "laptop").value == "FL-BYOL +11.0 points from batch 8 to 128"
    assert verdict(claim, good) == "holds"
    assert verdict(claim, by_batch(0.52, 0.55, 0.61)) == "fails"  # 9 points
    assert verdict(claim, by_batch(0.40, 0.63, 0.61)) == "fails"  # falls by 2
    assert verdict(claim, pd.concat([good, by_batch(0.6, 0.6, 0.6).assign(method="FL-MoCoV2")])) == "fails"
    assert verdict(claim, good[good["batch"] < 128]) == "not run"


def by_clients(*accuracies):
    rows = zip((5, 20, 100), (10_000, 2_500, 500), accuracies, strict=True)
    return frame("clients images_per_client knn_accuracy", *rows, method="FL-MoCoV2", panel="b")


def test_fig1b_client_count():
    claim = "fig1b-client-count"
    assert verdict(claim, by_clients(0.80, 0.60, 0.32)) == "holds"
    assert verdict(claim, by_clients(0.80, 0.60, 0.45)) == "fails"  # above 40
    assert verdict(claim, by_clients(0.60, 0.50, 0.35)) == "fails"  # 25 points
    assert verdict(claim, by_clients(0.80, 0.30, 0.32)) == "fails"  # rises
    assert verdict(claim, by_clients(0.80, 0.60, 0.32).query("clients > 5")) == "not run"


def test_fig1c_hard_negatives():
    claim = "fig1c-hard-negatives"
    rows = ("fresh", True, 0.6), ("aged", False, 0.5), ("random", False, 0.4)
    good = frame("negatives hard knn_accuracy", *rows, panel="c")
    assert verdict(claim, good) == "holds"
    assert verdict(claim, good.assign(knn_accuracy=[0.5, 0.55, 0.4])) == "fails"
    assert verdict(claim, good[good["hard"]]) == "not run"


def test_fig1_components_and_variants_are_judged_at_smoke():
    parts = ("concatenation", 100, 100), ("queue", 5, 5), ("sync", 0.0, 0.0)
    good = frame("component counted expected", *parts, panel="components")
    assert verdict("fig2-components", good, "smoke") == "holds"
    assert verdict("fig2-components", good.assign(counted=[100, 5, 1e-7]), "smoke") == "fails"
    assert verdict("fig2-components", good.iloc[:2], "smoke") == "not run"

    runs = ("SFL-V1", 5, 1.0), ("SFL-V2", 5, 5.0), ("SFL-V2", 20, 20.0)
    good = frame("variant clients server_updates_per_step", *runs, panel="variants")
    assert verdict("alg1-one-server-step", good, "smoke") == "holds"
    assert verdict("alg1-one-server-step", good.assign(server_updates_per_step=1.0), "smoke") == "fails"
    assert verdict("alg1-one-server-step", good.query("variant == 'SFL-V2'"), "smoke") == "not run"


# --------------------------------------------------------------------------------------------------------------- fig3


def diverging(cut1, cut3, whole):
    """Divergence with 1, 2, 5 and 10 syncs per epoch."""
    rows = [("MocoSFL", cut, syncs, value) for cut, values in ((1, cut1), (3, cut3))
            for syncs, value in zip((1, 2, 5, 10), values, strict=True)]  # fmt: skip
    return frame("scheme cut_layer syncs_per_epoch divergence", *rows, ("FL-SSL", None, None, whole))


def test_fig3a():
    small, frequency = "fig3a-small-client-model-small-divergence", "fig3a-frequency-lowers-divergence"
    good = diverging([0.4, 0.3, 0.2, 0.1], [0.8, 0.6, 0.4, 0.2], 2.0)
    assert [verdict(claim, good) for claim in (small, frequency)] == ["holds"] * 2
    assert verdict(small, diverging([0.4, 0.3, 0.2, 0.1], [0.8, 0.6, 0.4, 0.2], 0.7)) == "fails"
    assert verdict(small, diverging([0.4, 0.3, 0.2, 0.1], [0.8, 0.6, 0.4, 0.05], 2.0)) == "fails"  # cut 3 below cut 1
    assert verdict(frequency, diverging([0.4, 0.3, 0.2, 0.1], [0.8, 0.6, 0.7, 0.2], 2.0)) == "fails"
    assert verdict(small, good[good["scheme"] == "MocoSFL"]) == "not run"
    assert verdict(frequency, good[good["syncs_per_epoch"] != 5]) == "not run"


def costs(norm, client_macs, client_memory, whole_macs=569e6, whole_memory=1100):
    rows = (
        ("FL-SSL", None, 128, whole_macs, 1.0, whole_memory),
        *(
            ("MocoSFL", cut, batch, client_macs, client_macs / whole_macs, memory)
            for cut in (1, 3)
            for batch, memory in ((1, client_memory / 64), (128, client_memory))
        ),
    )
    columns = "scheme cut_layer batch forward_macs share_of_whole memory_bytes"
    return frame(columns, *rows, architecture="resnet18", image_size=32, norm=norm)


def test_fig3b():
    names = ("fig3b-flops-share", "fig3b-flops-absolute", "fig3b-memory-share", "fig3b-memory-288x")
    good = pd.concat([costs("group", 80.5e6, 227, 590e6), costs("batch", 80e6, 900, 590e6)])
    assert [verdict(claim, good, "smoke") for claim in names] == ["holds"] * 4
    bad = costs("group", 60e6, 500)
    assert [verdict(claim, bad, "smoke") for claim in names] == ["fails"] * 4
    assert [verdict(claim, good.assign(image_size=64), "smoke") for claim in names] == ["not run"] * 4
    flops = judge(CLAIMS["fig3b-flops-absolute"], bad, "smoke").value
    assert flops == "569.0 (group norm) million multiply-adds; paper 590.6"


# ----------------------------------------------------------------------------------------------------- hardness, fig4


def test_hardness():
    claim = "eq3-hardness"
    rows = (2, 6, 1.0), (3, 6, 1.2), (4, 6, 0.9), (2, 8, 1.1), (4, 8, 1.3)  # 4 does not divide 6
    good = frame("batch memory hardness", *rows, eta=1.0, gamma=0.5)
    good["summed_hardness"] = good["hardness"]
    assert verdict(claim, good, "smoke") == "holds"
    assert verdict(claim, good.assign(summed_hardness=good["hardness"] + 1e-6), "smoke") == "fails"
    for hardness in ([1.3, 1.2, 0.9, 1.4, 1.5], [1.0, 1.2, 1.4, 1.1, 1.3]):  # falls with the batch, with the memory
        assert verdict(claim, good.assign(hardness=hardness, summed_hardness=hardness), "smoke") == "fails"
    assert verdict(claim, good[good["memory"] == 6], "smoke") == "not run"


def test_fig4():
    claim = "fig4-sync-frequency"
    rows = [(cut, syncs, seed, accuracy + seed / 100) for seed in (0, 1)
            for cut, syncs, accuracy in ((1, 1, 0.60), (1, 10, 0.62), (3, 1, 0.50), (3, 10, 0.60))]  # fmt: skip
    good = frame("cut_layer syncs_per_epoch seed linear_probe_accuracy", *rows, partition="classes:2")
    expected = "cut 1: +2.0, cut 3: +10.0 points from 1 to 10 syncs per epoch"
    assert judge(CLAIMS[claim], good, "laptop").value == expected
    assert verdict(claim, good) == "holds"
    assert verdict(claim, good.assign(linear_probe_accuracy=0.6)) == "fails"
    assert verdict(claim, good[good["syncs_per_epoch"] == 10]) == "not run"
    assert verdict(claim, good.assign(partition="iid")) == "not run"
    assert verdict(claim, good, "smoke") == "not run"


# ------------------------------------------------------------------------------------------------------------- tables


PRINTED = {  # what the paper's own tables say of the paper's sentences
    "sec42-accuracy-gain": "fails",
    "table1-beats-fl-byol": "holds",
    "table1-cut1-above-cut3": "holds",
    "autoadjust-constant-steps": "holds",
    "table2-iid-flat": "holds",
    "table2-noniid-drop": "fails",
    "table2-divergence-direction": "holds",
    "table3-resnet50-gain": "holds",
    "table4-one-percent-gain": "holds",
    "table4-20-clients-dip": "holds",
}
ANY = pd.DataFrame({"dataset": ["scattered-digits"], "official_data": False, "clients": 5, "partition": "iid"})


def test_the_papers_tables_decide_at_every_profile():
    assert {claim: verdict(claim, ANY, "smoke") for claim in PRINTED} == PRINTED
    gains = judge(CLAIMS["table4-one-percent-gain"], ANY, "paper").value
    assert gains == "printed, above FL-BYOL: MocoSFL-1 +11.25, MocoSFL-3 +11.02 points"
    assert judge(CLAIMS["table3-resnet50-gain"], ANY, "smoke").value.endswith("in 12 pairs, mean +3.30")
    assert "-4.08 (CIFAR-100, 5)" in judge(CLAIMS["sec42-accuracy-gain"], ANY, "smoke").value


@pytest.mark.parametrize(
    ("claim", "cell", "value", "expected"),
    [
        ("sec42-accuracy-gain", "method == 'FL-BYOL' and dataset == 'CIFAR-100' and clients == 5", 54.0, "holds"),
        ("table1-beats-fl-byol", "method == 'MocoSFL-3' and dataset == 'CIFAR-10' and clients == 5", 83.0, "fails"),
        ("table1-beats-fl-byol", "method == 'MocoSFL-3' and dataset == 'CIFAR-100' and clients == 5", 62.0, "fails"),
        ("table1-cut1-above-cut3", "method == 'MocoSFL-3' and dataset == 'CIFAR-10' and clients == 5", 88.0, "fails"),
        ("table2-iid-flat", "method == 'MocoSFL-1' and partition == 'iid' and clients == 1000", 88.0, "fails"),
        ("table2-divergence-direction", "partition == 'non_iid_class' and clients == 1000", 87.2, "fails"),
        ("table3-resnet50-gain", "architecture == 'ResNet-50' and clients == 20", 95.0, "fails"),
        ("table4-one-percent-gain", "method == 'FL-BYOL' and label_fraction == 0.01", 80.0, "fails"),
        ("table4-20-clients-dip", "method == 'MocoSFL-1' and clients == 20", 86.0, "fails"),
    ],
)
def test_another_printed_number_would_change_the_verdict(monkeypatch, claim, cell, value, expected):
    def changed(key, table):
        cells = paper_table(key, table)
        cells.loc[cells.query(cell).index, "value"] = value
        return cells

    monkeypatch.setattr(predicates.mocosfl, "paper_table", changed)
    assert verdict(claim, ANY) == expected


def test_a_drop_of_about_one_point_rounds_to_one(monkeypatch):
    def flat(key, table):
        cells = paper_table(key, table)
        return cells.assign(value=90 - (cells["clients"] == 1000) * 1.4)

    monkeypatch.setattr(predicates.mocosfl, "paper_table", flat)
    assert verdict("table2-noniid-drop", ANY) == "holds"


def test_thousand_clients_need_the_papers_data():
    claim = "abs-1000-clients"
    good = frame("cut_layer linear_probe_accuracy", (1, 0.86), (3, 0.85)).assign(
        dataset="cifar10", official_data=True, clients=1000, partition="classes:2"
    )
    assert verdict(claim, good) == "holds"
    assert verdict(claim, good.assign(linear_probe_accuracy=[0.86, 0.83])) == "fails"
    for other in (
        {"dataset": "scattered-digits"},
        {"official_data": False},
        {"clients": 100},
        {"partition": "iid"},
    ):
        assert verdict(claim, good.assign(**other)) == "not run"


def test_the_tables_claims_of_an_artifact_come_together():
    table = check_claims("mocosfl/table2", ANY, "smoke").set_index("id")["verdict"]
    assert table.to_dict() == {
        "mocosfl-autoadjust-constant-steps": "holds",
        "mocosfl-abs-1000-clients": "not run",
        "mocosfl-table2-iid-flat": "holds",
        "mocosfl-table2-noniid-drop": "fails",
        "mocosfl-table2-divergence-direction": "holds",
    }
