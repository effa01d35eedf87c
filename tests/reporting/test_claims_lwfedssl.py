"""Each predicate of LW-FedSSL with results for which it holds, for which it fails, and that decide nothing."""

from itertools import product

import pandas as pd
import pytest

from fssl_core.costs.activations import client_memory
from fssl_core.errors import DataError
from fssl_core.federation.schedule import Stage, schedule
from fssl_core.reporting import reference
from fssl_core.reporting.accuracy_claims import printed_points
from fssl_core.reporting.claims import judge
from fssl_core.reporting.predicate import PREDICATES
from fssl_core.reporting.predicates import lwfedssl, lwfedssl_accuracy, lwfedssl_figures  # noqa: F401
from fssl_core.reporting.reference import paper_claims, paper_table

CLAIMS = {claim.id.removeprefix("lwfedssl-"): claim for claim in paper_claims("lwfedssl")}
FULL, LAYERWISE, PROGRESSIVE = ALL_THREE = ["FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"]
ANY = pd.DataFrame({"anything": [1]})


def verdict(claim, results, profile="laptop"):
    return judge(CLAIMS[claim], results, profile).verdict


def value(claim, results):
    return judge(CLAIMS[claim], results, "laptop").value


def frame(columns, *rows, **constant):
    return pd.DataFrame(rows, columns=columns.split()).assign(**constant)


def test_every_claim_has_a_predicate():
    assert {claim.id for claim in CLAIMS.values()} <= set(PREDICATES)


# --------------------------------------------------------------------------------------- resources: no result is needed

RESOURCES = {
    "headline-memory": "printed: 3.341",
    "headline-gflops": "4.202, of the printed cells 4.22",
    "headline-communication": "5.070, of the printed cells 5.06",
    "headline-prog-savings": "GFLOPs 1.840, traffic 1.666; printed memory 0.997",
    "table1-layer-management": "150 sets of units compared",
    "table2-fedca-heaviest": "traffic 3.820, GFLOPs 1.111; printed memory 1.138",
    "table5-worst-case": "3.35 GB, 0.399 of end-to-end",
    "table10-medical-resources": "GFLOPs 0.237, traffic 0.196; printed memory 0.270",
    "fig5b-flops": "LW-FedSSL 0.09 to 0.42, Prog-FedSSL 0.09 to 1.08, FedMoCoV3 1.08",
    "fig5c-communication": "LW-FedSSL 9.27, then 9.19, Prog-FedSSL 9.36 to 46.65, FedMoCoV3 46.65",
}


def test_claims_on_resources_hold_at_every_profile():
    assert {n for n, claim in CLAIMS.items() if claim.compute in ("analytic", "table_arithmetic")} == set(RESOURCES)
    for claim, deciding in RESOURCES.items():
        for profile in ("smoke", "paper"):
            assert verdict(claim, ANY, profile) == "holds"
        assert deciding in value(claim, ANY)


@pytest.mark.parametrize(
    ("claim", "cell", "number"),
    [
        ("headline-memory", "method == 'LW-FedSSL' and metric == 'peak_memory'", 2.63),
        ("headline-prog-savings", "method == 'Prog-FedSSL' and metric == 'peak_memory'", 8.6),
        ("table1-layer-management", "method == 'LW-FedSSL' and metric == 'upload_layers'", "L1..Ls"),
        ("table1-layer-management", "method == 'Prog-FedSSL' and metric == 'number_of_stages'", "none"),
        ("table2-fedca-heaviest", "method == 'FedCA' and metric == 'peak_memory'", 16.0),
        ("table10-medical-resources", "method == 'Prog-FedSSL' and metric == 'flops'", 1467),
        ("table10-medical-resources", "method == 'LW-FedSSL' and metric == 'communication'", 1.65),
    ],
)
def test_another_printed_number_would_change_the_verdict(monkeypatch, claim, cell, number):
    def changed(key, table):
        cells = paper_table(key, table)
        cells.loc[cells.query(cell).index, "value"] = number
        return cells

    for module in (lwfedssl, reference):
        monkeypatch.setattr(module, "paper_table", changed)
    assert verdict(claim, ANY) == "fails"


def test_another_schedule_would_change_the_verdict(monkeypatch):
    """If a layer-wise client sent all that it has."""
    monkeypatch.setattr(Stage, "exchanged_up", property(lambda stage: stage.present))
    for claim in ("table1-layer-management", "fig5c-communication"):
        assert verdict(claim, ANY) == "fails"
    monkeypatch.setattr(Stage, "frozen", property(lambda stage: range(0)))
    assert verdict("fig5b-flops", ANY) == "fails"
    for name in ("headline-gflops", "headline-communication", "table5-worst-case", "table2-fedca-heaviest"):
        claim = CLAIMS[name].id
        lwfedssl.cost.cache_clear()
        assert PREDICATES[claim](ANY)[0] == (name == "table2-fedca-heaviest")
    lwfedssl.cost.cache_clear()


# --------------------------------------------------------------------------------------------------- the paper's tables

TRAINING = {name: claim for name, claim in CLAIMS.items() if claim.compute == "training" and "table" in name}


def papers_runs(*tables):
    """The printed accuracies as if they were runs."""
    cells = printed_points("lwfedssl", *tables)
    return cells.assign(accuracy=cells["points"] / 100, protocol="fine-tuning").drop(columns="points")


@pytest.mark.parametrize("name", TRAINING)
def test_the_papers_own_numbers_make_every_claim_on_accuracy_hold(name):
    tables = ["table7", "table8"] if name == "table7-8-robust" else [TRAINING[name].artifact]
    runs = papers_runs(*tables)
    assert verdict(name, runs, "paper") == "holds"
    assert verdict(name, runs, "smoke") == "not run"
    ours, _, printed = value(name, runs).partition("; printed: ")
    assert ours.startswith("fine-tuning: holds, " if "table2" in name else "MoCoV3, fine-tuning: holds, ")
    assert printed.startswith("holds, ")


def test_another_ssl_method_is_judged_against_its_own_end_to_end_training():
    runs = papers_runs("table12").replace({"MoCoV3": "SimCLR", "FedMoCoV3": "FedSimCLR"})
    assert verdict("table12-batch-size", runs, "paper") == "holds"
    assert value("table12-batch-size", runs).startswith("SimCLR, fine-tuning: holds, ")
    strangers = pd.concat([runs[runs.method != "FedSimCLR"], papers_runs("table12").query("method == 'FedMoCoV3'")])
    assert verdict("table12-batch-size", strangers, "paper") == "not run"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table2-lw-comparable", "+2.44 (MoCoV3), +2.26 (BYOL), +1.94 (SimCLR); on Caltech-101 by 5.20 to 6.27"),
        ("table2-prog-better", "ahead on 3 of 4, 4 of 4, 3 of 4 data sets"),
        ("table2-pretraining-helps", "+20.01 to +27.46 points above Scratch, 15 rows"),
        ("table2-centralized-upper", "above Prog-FedSSL by 0.48 to 0.99"),
        ("table3-crossing", "-2.44 (k=1), +0.05 (k=2), +1.00 (k=3), +1.46 (k=4), +3.78 (k=6)"),
        ("table6-depth-dropout", "+0.14 (LW-FedSSL), +0.55 (Prog-FedSSL) points; GFLOPs x 0.8 and x 0.73"),
        ("table7-8-robust", "end-to-end 0.78, LW-FedSSL 0.58, Prog-FedSSL 0.48 points between 4 settings"),
        ("table12-batch-size", "range end-to-end 1.52, LW-FedSSL 1.19, Prog-FedSSL 1.06"),
        ("table13-heterogeneity", "range end-to-end 1.32, LW-FedSSL 0.43, Prog-FedSSL 0.90"),
    ],
)
def test_values_are_the_numbers_of_the_tables(name, text):
    assert text in value(name, papers_runs(*["table7", "table8"] if "7-8" in name else [TRAINING[name].artifact]))


@pytest.mark.parametrize(
    ("name", "cell", "points"),
    [
        ("table2-lw-comparable", "method == 'LW-FedSSL' and eval_dataset == 'CIFAR-10' and ssl_method == 'BYOL'", 81.0),
        ("table2-lw-comparable", "method == 'LW-FedSSL' and eval_dataset == 'CIFAR-10' and ssl_method == 'BYOL'", 94.0),
        ("table2-lw-comparable", "method == 'LW-FedSSL' and eval_dataset == 'Caltech-101'", 49.9),
        ("table2-prog-better", "method == 'Prog-FedSSL' and eval_dataset == 'CIFAR-10'", 83.0),
        ("table2-prog-better", "method == 'Prog-FedSSL' and ssl_method == 'BYOL'", 60.0),
        ("table2-pretraining-helps", "method == 'FedEMA' and eval_dataset == 'CIFAR-10'", 81.0),
        ("table2-centralized-upper", "method == 'FedU' and eval_dataset == 'Caltech-101'", 75.0),
        ("table2-centralized-upper", "method == 'SimCLR' and eval_dataset == 'CIFAR-10'", 88.2),
        ("table3-depth-tradeoff", "method == 'LW-FedSSL' and layers_per_stage == 4", 60.0),
        ("table3-depth-tradeoff", "method == 'Prog-FedSSL' and layers_per_stage == 1", 70.0),
        ("table3-crossing", "method == 'LW-FedSSL' and layers_per_stage == 2", 60.7),
        ("table3-crossing", "method == 'LW-FedSSL' and layers_per_stage == 1", 60.8),
        ("table4-resnet", "method == 'FedMoCoV3' and eval_dataset == 'CIFAR-10'", 88.0),
        ("table4-resnet", "method == 'Prog-FedSSL' and eval_dataset == 'CIFAR-10'", 83.0),
        ("table6-depth-dropout", "method == 'LW-FedSSL' and add_on == 'depth dropout'", 59.0),
        ("table6-alignment", "method == 'LW-FedSSL' and add_on == 'proximal alignment'", 59.0),
        ("table6-alignment", "method == 'Prog-FedSSL' and add_on == 'representation alignment'", 63.0),
        ("table7-partial-participation", "method == 'LW-FedSSL' and participating == 50", 57.6),
        ("table7-partial-participation", "method == 'Prog-FedSSL' and participating == 25", 57.0),
        ("table8-client-dropout", "method == 'FedMoCoV3' and dropout_probability == 0.5", 48.7),
        ("table7-8-robust", "method == 'LW-FedSSL' and dropout_probability == 0.5", 58.5),
        ("table9-medical", "method == 'LW-FedSSL' and eval_dataset == 'OrganAMNIST'", 74.0),
        ("table9-medical", "method == 'Prog-FedSSL' and eval_dataset == 'DermaMNIST'", 28.0),
        ("table11-input-size", "method == 'LW-FedSSL' and image_size == 128", 94.0),
        ("table12-batch-size", "method == 'FedMoCoV3' and batch_size == 512", 89.9),
        ("table13-heterogeneity", "method == 'LW-FedSSL' and beta == 5", 93.7),
    ],
)
def test_another_accuracy_would_change_the_verdict(name, cell, points):
    runs = papers_runs(*["table7", "table8"] if "7-8" in name else [TRAINING[name].artifact])
    runs = runs.reset_index(drop=True)
    runs.loc[runs.query(cell).index, "accuracy"] = points / 100
    assert verdict(name, runs, "paper") == "fails"
    assert "; printed: holds" in value(name, runs)  # which stay


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("table2-lw-comparable", "eval_dataset != 'Caltech-101'"),
        ("table2-prog-better", "method != 'Prog-FedSSL'"),
        ("table2-pretraining-helps", "method != 'Scratch'"),
        ("table2-centralized-upper", "method not in ['MoCoV3', 'BYOL', 'SimCLR']"),
        ("table3-depth-tradeoff", "layers_per_stage in [1, 2] or method == 'LW-FedSSL'"),
        ("table3-crossing", "layers_per_stage != 1"),
        ("table3-crossing", "method != 'FedMoCoV3'"),
        ("table4-resnet", "method != 'LW-FedSSL'"),
        ("table4-resnet", "architecture == 'ViT-Tiny'"),
        ("table6-depth-dropout", "add_on != 'none'"),
        ("table6-alignment", "method == 'LW-FedSSL'"),
        ("table7-partial-participation", "participating == 25"),
        ("table8-client-dropout", "method != 'LW-FedSSL'"),
        ("table7-8-robust", "participating != participating"),
        ("table9-medical", "eval_dataset != 'DermaMNIST'"),
        ("table11-input-size", "image_size == 64"),
        ("table12-batch-size", "batch_size == 512"),
        ("table13-heterogeneity", "method != 'Prog-FedSSL'"),
    ],
)
def test_missing_rows_decide_nothing(name, kept):
    runs = papers_runs(*["table7", "table8"] if "7-8" in name else [TRAINING[name].artifact])
    assert verdict(name, runs.query(kept), "paper") == "not run"


def test_fewer_levels_methods_and_data_sets_are_judged():
    runs = papers_runs("table2")
    assert verdict("table2-prog-better", runs.query("ssl_method == 'BYOL'")) == "holds"
    assert verdict("table2-lw-comparable", runs.query("ssl_method == 'BYOL'")) == "holds"
    assert "ahead on 1 of 1 data sets" in value(
        "table2-prog-better", runs.query("ssl_method == 'BYOL' and eval_dataset == 'CIFAR-10'")
    )
    assert verdict("table12-batch-size", papers_runs("table12").query("batch_size < 200")) == "holds"
    assert verdict("table3-crossing", papers_runs("table3").query("not layers_per_stage in [2, 3, 6]")) == "holds"


def test_seeds_are_averaged_and_protocols_are_not():
    good = papers_runs("table4")
    shifted = good.assign(accuracy=good["accuracy"] - 0.1 * (good["method"] == LAYERWISE))
    lifted = good.assign(accuracy=good["accuracy"] + 0.1 * (good["method"] == LAYERWISE))
    assert verdict("table4-resnet", pd.concat([shifted, lifted])) == "holds"  # as two seeds
    both = pd.concat([good, shifted.assign(protocol="linear probe")])
    assert verdict("table4-resnet", both) == "fails"
    assert value("table4-resnet", both).startswith("MoCoV3, fine-tuning: holds, ")
    assert "; MoCoV3, linear probe: fails, " in value("table4-resnet", both)


def test_missing_columns_are_named():
    with pytest.raises(DataError, match="participating"):
        verdict("table7-partial-participation", papers_runs("table7").drop(columns="participating"))


# ------------------------------------------------------------------------------------- table1: algorithms, step by step


def test_weighted_average_and_target_branch():
    rows = ("weighted average", 3e-7), ("target predictor parameters", 0), ("target parameters with gradient", 0)
    good = frame("property value", *rows, ("momentum update", 6e-8))
    assert [verdict(claim, good, "smoke") for claim in ("fig1-fl-round", "fig2-mocov3")] == ["holds", "holds"]
    assert verdict("fig1-fl-round", good.replace(3e-7, 1e-3)) == "fails"
    assert verdict("fig2-mocov3", good.replace(6e-8, 1e-3)) == "fails"
    for number in (1, 2):
        bad = good.copy()
        bad.loc[number, "value"] = 5
        assert verdict("fig2-mocov3", bad) == "fails"
    assert verdict("fig1-fl-round", good.iloc[1:]) == "not run"
    assert verdict("fig2-mocov3", good.iloc[:3]) == "not run"


def changes(method, each=1, stages=3):
    """A unit's largest change: what is trained moves by 0.1."""
    rows = [(stage, unit) for stage in range(1, stages + 1) for unit in range(1, stage * each + 1)]
    first = {LAYERWISE: lambda stage: (stage - 1) * each + 1, PROGRESSIVE: lambda stage: 1}[method]
    sizes = [(stage, unit, 0.1 * (unit >= first(stage))) for stage, unit in rows]
    return frame("stage unit largest_change", *sizes, method=method)


@pytest.mark.parametrize("each", [1, 2])
def test_which_units_change(each):
    layerwise, progressive = changes(LAYERWISE, each), changes(PROGRESSIVE, each)
    both = pd.concat([layerwise, progressive], ignore_index=True)
    assert [verdict(claim, both, "smoke") for claim in ("fig3-layerwise", "fig9-progressive")] == ["holds", "holds"]
    moved, stuck = layerwise.copy(), progressive.copy()
    moved.loc[moved.query("stage == 3 and unit == 1").index, "largest_change"] = 1e-12
    assert verdict("fig3-layerwise", moved) == "fails"
    assert verdict("fig3-layerwise", layerwise.assign(largest_change=0.0)) == "fails"
    stuck.loc[stuck.query("stage == 2 and unit == 1").index, "largest_change"] = 0.0
    assert verdict("fig9-progressive", stuck) == "fails"
    assert verdict("fig3-layerwise", progressive) == "not run"
    assert verdict("fig3-layerwise", layerwise.query("stage != 2")) == "not run"
    assert verdict("fig9-progressive", progressive.query("stage < 3 or unit > 1")) == "not run"


def test_how_many_units_are_trained():
    rows = [("LW-FedSSL", s, 1) for s in (1, 2, 3)] + [("Prog-FedSSL", s, s) for s in (1, 2, 3)]
    good = frame("method stage trained_units", ("FedSSL", 1, 3), *rows)
    assert verdict("fig4-three-schemes", good, "smoke") == "holds"
    assert value("fig4-three-schemes", good) == "of 3: end-to-end 3, layer-wise 1, progressive 1 to 3"
    for row, count in ((0, 2), (2, 2), (5, 1)):
        bad = good.copy()
        bad.loc[row, "trained_units"] = count
        assert verdict("fig4-three-schemes", bad) == "fails"
    assert verdict("fig4-three-schemes", good.iloc[1:]) == "not run"
    assert verdict("fig4-three-schemes", good.query("method != 'Prog-FedSSL'")) == "not run"


# ------------------------------------------------------------------------------------------------------ figures: memory


def counted_memory(**settings):
    kinds = dict(zip(ALL_THREE, ("end-to-end", "layer-wise", "progressive"), strict=True))
    rows = [
        (method, stage.number, client_memory(stage, **settings).total_bytes)
        for method, kind in kinds.items()
        for stage in schedule(kind, 12, rounds=12 if kind != "end-to-end" else 1)
    ]
    return frame("method stage memory_bytes", *rows)


def test_memory_by_stage():
    claim, good = "fig5a-memory", counted_memory()
    assert verdict(claim, good, "smoke") == "holds"
    assert value(claim, good).startswith("from the first stage to the last: LW-FedSSL x 1.0")
    shift = good.assign(memory_bytes=good["memory_bytes"] + 2 * 10**9)  # a device's constant
    assert verdict(claim, shift) == "holds"

    def scaled(where, factor):
        bad = good.astype({"memory_bytes": float})
        bad.loc[bad.query(where).index, "memory_bytes"] *= factor
        return bad

    assert verdict(claim, scaled("method == 'Prog-FedSSL' and stage == 5", 0.5)) == "fails"
    assert verdict(claim, scaled("method == 'FedMoCoV3'", 1.02)) == "fails"
    assert verdict(claim, scaled("method == 'LW-FedSSL' and stage == 12", 8)) == "fails"
    assert verdict(claim, good.query("method != 'FedMoCoV3'")) == "not run"
    assert verdict(claim, good.query("stage == 1")) == "not run"


def test_memory_by_batch_size():
    claim = "fig8-memory-vs-batch"
    settings = {"image_size": 64, "depth": 12}
    good = pd.concat([counted_memory(batch_size=b, **settings).assign(batch_size=b) for b in (64, 128)])
    assert verdict(claim, good, "smoke") == "holds"
    assert "batches 64, 128: FedMoCoV3 grows 11" in value(claim, good)
    assert verdict(claim, good.query("batch_size == 64")) == "not run"
    assert verdict(claim, good.query("method != 'LW-FedSSL'")) == "not run"
    assert verdict(claim, good.query("method != 'Prog-FedSSL' or stage < 12")) == "fails"
    same = good.query("method == 'FedMoCoV3'")
    assert verdict(claim, pd.concat([same.assign(method=method) for method in ALL_THREE])) == "fails"


# ----------------------------------------------------------------------------------------- figures: divergence and data


def test_divergence():
    claim = "fig6-divergence"
    rows = [(m, seed, r, d + r) for (m, d), seed, r in product(zip(ALL_THREE, (3, 1, 2), strict=True), (0, 1), (1, 2))]
    good = frame("method seed round distance", *rows)
    assert value(claim, good) == "mean L2 distance: FedMoCoV3 4.5, LW-FedSSL 2.5, Prog-FedSSL 3.5"
    assert verdict(claim, good) == "holds"
    assert verdict(claim, good, "smoke") == "not run"
    assert verdict(claim, good.replace("FedMoCoV3", "x").replace("Prog-FedSSL", "FedMoCoV3")) == "not run"
    swapped = good.replace({"method": {FULL: PROGRESSIVE, PROGRESSIVE: FULL}})
    assert verdict(claim, swapped) == "fails"


def test_medical_samples():
    claim = "fig7-medmnist-samples"
    good = frame("dataset samples", ("pathmnist", 4), ("BloodMNIST", 4), ("dermamnist", 4), ("organamnist", 4))
    assert verdict(claim, good, "smoke") == "holds"
    assert verdict(claim, good.assign(samples=[4, 4, 0, 4])) == "fails"
    assert verdict(claim, good.replace("dermamnist", "scattered-digits")) == "not run"


def test_partitions():
    claim = "fig10-partitions"
    good = frame("beta total_variation", (50, 0.05), (5, 0.2), (5, 0.1), (0.5, 0.4))
    assert verdict(claim, good, "smoke") == "holds"
    assert value(claim, good) == "total variation 0.050 (beta 50), 0.150 (beta 5), 0.400 (beta 0.5)"
    assert verdict(claim, good.replace(0.4, 0.1)) == "fails"
    assert verdict(claim, good.iloc[1:]) == "not run"
