"""MocoSFL's claims on made-up results that reproduce, contradict and do not decide them, and on printed numbers."""

import numpy as np
import pandas as pd
import pytest

from fssl_core.claims import mocosfl
from fssl_core.claims.judge import judge
from fssl_core.claims.verdict import Verdict
from fssl_core.federation.participation import AutoAdjusted
from fssl_core.papers.reference import paper_claims

CLAIMS = {claim.id.removeprefix("mocosfl-"): claim for claim in paper_claims("mocosfl")}
CIFAR = {"dataset": "cifar10", "architecture": "resnet18", "official_data": True}
NOISE = 0.002  # of a value, relative


def runs(value: str, cells: list[dict], noise: float = NOISE, seeds: int = 3, untrained: float = 0.1) -> pd.DataFrame:
    """``seeds`` runs of each cell, whose ``value`` is the mean; models learned unless ``untrained`` is high."""
    rng = np.random.default_rng(0)
    rows = [
        cell | {"seed": seed, value: cell[value] * (1 + noise * rng.standard_normal())}
        for cell in cells
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows).assign(untrained=untrained, chance=0.1)


def verdict(id: str, results: pd.DataFrame, profile: str = "gpu") -> Verdict:
    (only,) = judge(CLAIMS[id], "mocosfl", results, profile)
    return only


def panel_a(small: float) -> list[dict]:
    steps = zip((8, 32, 128), (small, 0.62, 0.64), strict=True)
    rows = [{"batch": batch, "knn_accuracy": accuracy} for batch, accuracy in steps]
    return [row | {"panel": "a", "method": name} for name in ("FL-BYOL", "FL-MoCoV2") for row in rows]


def panel_b(few: float, dataset: str = "digits") -> list[dict]:
    common = {"panel": "b", "method": "FL-MoCoV2", "dataset": dataset}
    steps = {500: few, 2500: 0.66, 10_000: 0.69}
    return [common | {"images_per_client": count, "knn_accuracy": accuracy} for count, accuracy in steps.items()]


def panel_c(aged: float) -> list[dict]:
    kinds = {"fresh": (0.7, True), "aged": (aged, False), "random": (0.66, False)}
    common = {"panel": "c", "method": "FL-MoCoV2"}
    return [common | {"negatives": name, "knn_accuracy": a, "hard": hard} for name, (a, hard) in kinds.items()]


def divergences(whole: float, at_three: float, slope: float) -> list[dict]:
    cells = [{"scheme": "FL-SSL", "cut_layer": None, "syncs_per_epoch": 1, "divergence": whole}]
    cells += [
        {"scheme": "MocoSFL", "cut_layer": cut, "syncs_per_epoch": syncs, "divergence": mean * syncs**slope}
        for cut, mean in ((1, 1.0), (3, at_three), (5, 1.2 * at_three))
        for syncs in (1, 2, 5, 10)
    ]
    return [cell | {"knn_accuracy": 0.5, "method": cell["scheme"]} for cell in cells]


def probes(table: dict[str, list[float]], column: str, levels: list, **more) -> list[dict]:
    """Linear probes: a row of the table for each method, its values along the levels of a column."""
    cells = []
    for name, values in table.items():
        method, _, cut = name.partition("-") if name.startswith("MocoSFL") else (name, "", None)
        for level, accuracy in zip(levels, values, strict=True):
            cell = {"method": method, "cut_layer": cut and int(cut), "clients": 5, "partition": "classes:2"}
            cells.append(CIFAR | cell | more | {column: level, "linear_probe_accuracy": accuracy})
    return cells


def few_labels(table: dict[str, list[float]], clients: list[int], label_fraction: float = 0.01) -> list[dict]:
    cells = probes(table, "clients", clients, label_fraction=label_fraction)
    return [cell | {"semi_supervised_accuracy": cell.pop("linear_probe_accuracy")} for cell in cells]


def both_cuts(*values: float) -> dict[str, list[float]]:
    return {"MocoSFL-1": [*values], "MocoSFL-3": [*values]}


def silo(split: float, three: float, exception: float) -> list[dict]:
    cells = probes({"FL-BYOL": [0.6], "MocoSFL-1": [split], "MocoSFL-3": [three]}, "clients", [20])
    hard = {"FL-BYOL": [0.6], "MocoSFL-1": [exception], "MocoSFL-3": [exception]}
    return cells + probes(hard, "clients", [5], dataset="cifar100")


def networks(gain: float) -> list[dict]:
    smaller, larger = both_cuts(0.8), both_cuts(0.8 + gain)
    return probes(smaller, "clients", [5]) + probes(larger, "clients", [5], architecture="resnet50")


TRAINED = {  # claim: value, cells that reproduce it, cells that contradict it
    "fig1a-batch-size": ("knn_accuracy", panel_a(0.52), panel_a(0.6)),
    "fig1b-client-count": ("knn_accuracy", panel_b(0.65), panel_b(0.75)),
    "fig1c-hard-negatives": ("knn_accuracy", panel_c(0.67), panel_c(0.75)),
    "fig3a-small-client-model-small-divergence": ("divergence", divergences(3, 1.3, -0.1), divergences(3, 1.8, -0.1)),
    "fig3a-frequency-lowers-divergence": ("divergence", divergences(3, 1.3, -0.1), divergences(3, 1.3, 0.1)),
    "fig4-sync-frequency": (
        "linear_probe_accuracy",
        probes(both_cuts(0.7, 0.72), "syncs_per_epoch", [1, 10]),
        probes({"MocoSFL-1": [0.7, 0.75], "MocoSFL-3": [0.7, 0.68]}, "syncs_per_epoch", [1, 10]),
    ),
    "sec42-accuracy-gain": ("linear_probe_accuracy", silo(0.65, 0.64, 0.55), silo(0.65, 0.72, 0.55)),
    "table1-beats-fl-byol": ("linear_probe_accuracy", silo(0.64, 0.63, 0.57), silo(0.64, 0.63, 0.64)),
    "table1-cut1-above-cut3": ("linear_probe_accuracy", silo(0.66, 0.64, 0.57)[1:3], silo(0.64, 0.66, 0.57)[1:3]),
    "abs-1000-clients": (
        "linear_probe_accuracy",
        probes(both_cuts(0.86), "clients", [1000]),
        probes({"MocoSFL-1": [0.86], "MocoSFL-3": [0.82]}, "clients", [1000]),
    ),
    "table2-iid-flat": (
        "linear_probe_accuracy",
        probes(both_cuts(0.7, 0.7), "clients", [100, 1000], partition="iid"),
        probes(both_cuts(0.7, 0.72), "clients", [100, 1000], partition="iid"),
    ),
    "table2-noniid-drop": (
        "linear_probe_accuracy",
        probes(both_cuts(0.7, 0.69), "clients", [100, 1000]),
        probes(both_cuts(0.7, 0.67), "clients", [100, 1000]),
    ),
    "table2-divergence-direction": (
        "linear_probe_accuracy",
        probes(both_cuts(0.7, 0.68), "clients", [100, 1000]),
        probes(both_cuts(0.7, 0.72), "clients", [100, 1000]),
    ),
    "table3-resnet50-gain": ("linear_probe_accuracy", networks(0.03), networks(0.06)),
    "table4-one-percent-gain": (
        "semi_supervised_accuracy",
        few_labels({"FL-BYOL": [0.6], "MocoSFL-1": [0.7], "MocoSFL-3": [0.7]}, [5]),
        few_labels({"FL-BYOL": [0.6], "MocoSFL-1": [0.7], "MocoSFL-3": [0.65]}, [5]),
    ),
    "table4-20-clients-dip": (
        "semi_supervised_accuracy",
        few_labels(both_cuts(0.7, 0.65, 0.68), [5, 20, 100]),
        few_labels(both_cuts(0.7, 0.69, 0.66), [5, 20, 100]),
    ),
}


@pytest.mark.parametrize("id", TRAINED)
def test_training_reproduces_or_contradicts_a_claim(id):
    value, good, bad = TRAINED[id]
    assert verdict(id, runs(value, good)).ours == "reproduced"
    assert verdict(id, runs(value, bad)).ours == "contradicted"


@pytest.mark.parametrize("id", TRAINED)
def test_noise_one_seed_and_models_that_did_not_learn_decide_nothing(id):
    value, good, bad = TRAINED[id]
    assert verdict(id, runs(value, good, noise=0.15, untrained=0.0)).ours == "inconclusive"
    assert verdict(id, runs(value, good, seeds=1)).ours == "inconclusive"
    for cells in (good, bad):
        found = verdict(id, runs(value, cells, untrained=0.9))
        assert (found.ours, found.reason.endswith("is not shown to have learned")) == ("inconclusive", True)


SCALE = ["sec42-accuracy-gain", "abs-1000-clients", "table2-noniid-drop", "table3-resnet50-gain"]


@pytest.mark.parametrize("id", [*SCALE, "table4-one-percent-gain"])
def test_a_stated_size_is_not_judged_on_a_small_model(id):
    value, good, _ = TRAINED[id]
    assert verdict(id, runs(value, good), "laptop").ours == "not run"


@pytest.mark.parametrize(
    ("id", "consistent", "printed"),
    [
        ("sec42-accuracy-gain", True, 9.55),
        ("table1-beats-fl-byol", True, 3.0),
        ("table1-cut1-above-cut3", True, 0.28),
        ("abs-1000-clients", True, 84.09),
        ("table2-iid-flat", True, 0.39),
        ("table2-noniid-drop", False, -3.01),
        ("table2-divergence-direction", True, 0.96),
        ("table3-resnet50-gain", True, 3.295),
        ("table4-one-percent-gain", True, 11.25),
        ("table4-20-clients-dip", True, 1.6),
    ],
)
def test_the_papers_own_numbers(id, consistent, printed):
    found = verdict(id, pd.DataFrame(), "")
    assert (found.paper_consistent, found.printed) == (consistent, pytest.approx(printed, abs=0.006))


def test_the_other_claims_have_no_printed_numbers():
    without = [id for id in CLAIMS if verdict(id, pd.DataFrame(), "").paper_consistent is None]
    assert len(without) == len(CLAIMS) - 10


def test_the_stated_accuracies_count_where_clients_have_as_many_images_of_cifar10():
    steep = [cell | {"knn_accuracy": a} for cell, a in zip(panel_b(0, "cifar10"), (0.3, 0.5, 0.7), strict=True)]
    assert verdict("fig1b-client-count", runs("knn_accuracy", steep)).ours == "reproduced"
    assert verdict("fig1b-client-count", runs("knn_accuracy", panel_b(0.65, "cifar10"))).ours == "contradicted"


def test_a_weak_side_may_fail_but_not_the_strong_one():
    frame = runs("knn_accuracy", panel_c(0.67))
    weak, strong = (frame.assign(untrained=np.where(frame["hard"] == kind, 0.9, 0.1)) for kind in (False, True))
    assert verdict("fig1c-hard-negatives", weak).ours == "reproduced"
    assert verdict("fig1c-hard-negatives", strong).ours == "inconclusive"


def test_what_was_not_run_is_named():
    rows = few_labels(both_cuts(0.7, 0.65), [5, 20])
    found = verdict("table4-20-clients-dip", runs("semi_supervised_accuracy", rows))
    assert (found.ours, found.reason) == ("not run", "needs clients 100")
    one_cut = [cell for cell in probes(both_cuts(0.7, 0.68), "clients", [100, 1000]) if cell["cut_layer"] == 1]
    found = verdict("table2-divergence-direction", runs("linear_probe_accuracy", one_cut))
    assert (found.ours, found.reason) == ("inconclusive", "needs MocoSFL-3")


# ------------------------------------------------------------------------------------------------------ exact evidence


def components(queue: float) -> pd.DataFrame:
    counts = {"concatenation": (100, 100), "queue": (queue, 5), "sync": (0, 0)}
    return pd.DataFrame([("components", name, *pair) for name, pair in counts.items()]).set_axis(
        ["panel", "component", "counted", "expected"], axis=1
    )


def variants(updates: float) -> pd.DataFrame:
    rows = [("variants", "SFL-V1", 5, 1), ("variants", "SFL-V2", 5, updates)]
    return pd.DataFrame(rows, columns=["panel", "variant", "clients", "server_updates_per_step"])


def costs(
    macs: float = 590e6, share: float = 0.137, memory: float = 200.0, one: float = 3.0, whole: float = 1000.0
) -> pd.DataFrame:
    rows = [
        ("FL-SSL", np.nan, 128, macs, 1.0, whole),
        ("MocoSFL", 3, 128, share * macs, share, memory),
        ("MocoSFL", 3, 1, share * macs, share, one),
    ]
    names = ["scheme", "cut_layer", "batch", "forward_macs", "share_of_whole", "memory_bytes"]
    return pd.DataFrame(rows, columns=names).assign(architecture="resnet18", image_size=32, norm="group")


def hardness(error: float = 0.0, power: float = 1.0) -> pd.DataFrame:
    rows = [(batch, memory, 1.0, 0.9, batch**power + memory) for memory in (600, 1200) for batch in (1, 2, 3, 600)]
    frame = pd.DataFrame(rows, columns=["batch", "memory", "eta", "gamma", "hardness"])
    return frame.assign(summed_hardness=frame["hardness"] + error)


EXACT = {
    "fig2-components": (components(5), components(4)),
    "alg1-one-server-step": (variants(5), variants(1)),
    "fig3b-flops-share": (costs(), costs(share=0.15)),
    "fig3b-flops-absolute": (costs(), costs(macs=567e6)),
    "fig3b-memory-share": (costs(), costs(memory=400)),
    "fig3b-memory-288x": (costs(), costs(one=6)),
    "eq3-hardness": (hardness(), hardness(power=-1)),
}


def test_a_lower_bound_contradicts_no_memory_that_is_larger():
    more, less = (verdict("fig3b-memory-absolute", costs(whole=whole), "laptop") for whole in (1.2e9, 1e9))
    assert (more.ours, less.ours, less.estimate) == ("reproduced", "inconclusive", 1000)
    assert less.reason == "the count is a lower bound of the peak"


@pytest.mark.parametrize("id", EXACT)
def test_counts_and_closed_forms(id):
    good, bad = (verdict(id, frame, "laptop") for frame in EXACT[id])
    assert (good.ours, bad.ours) == ("reproduced", "contradicted")
    assert good.evidence == bad.evidence == "exact"


def test_a_closed_form_that_is_not_the_sum_contradicts():
    assert verdict("eq3-hardness", hardness(error=1e-3), "laptop").ours == "contradicted"


def test_the_engines_rule_keeps_the_steps_between_syncs(monkeypatch):
    frame = pd.DataFrame({"seed": [0]})
    assert verdict("autoadjust-constant-steps", frame, "laptop").ours == "reproduced"
    monkeypatch.setattr(mocosfl, "auto_adjust", lambda clients: AutoAdjusted(1, 100, 5))
    assert verdict("autoadjust-constant-steps", frame, "laptop").ours == "contradicted"


def test_every_claim_is_tested_here():
    assert set(CLAIMS) == {*TRAINED, *EXACT, "autoadjust-constant-steps", "fig3b-memory-absolute"}
