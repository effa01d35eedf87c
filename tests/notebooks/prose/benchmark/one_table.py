from functools import partial

import pandas as pd
from scipy.stats import t

from fssl_core.benchmark import EVALUATIONS, MB, METHODS, Problem, choose, counted_needs
from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import record, rows

UNTRAINED, ALONE = "untrained", "SimCLR, one client's images"
BYOL = ["FedBYOL", "FedU", "FedEMA"]
DIRICHLET, CLASSES = "dirichlet-equal:0.1", "classes:2"
L_DAWAS = ["L-DAWA, after FedAvg", "L-DAWA"]
CUT_1, MIDDLE = (["MocoSFL, " + cut, "MonAcoSFL, " + cut] for cut in ("cut 1", "middle cut"))


def of(profile: str, partition: str = DIRICHLET) -> pd.DataFrame:
    """The record's rows of one division."""
    return rows(record("benchmark/one_table", profile), partition=partition)


def with_half(method: str) -> tuple[float, float]:
    """Mean, and half of its interval."""
    mean = percents(of("laptop"), "linear probe").mean(method=method).estimate
    return mean.value, mean.value - mean.interval()[0]


def percents(results: pd.DataFrame, evaluation: str) -> Cells:
    return Cells(results.assign(percent=100 * results[evaluation]), "percent", ["method"])


def ahead(
    one: str, other: str, evaluation: str = "linear probe", profile: str = "laptop", partition: str = DIRICHLET
) -> tuple[float, float, float]:
    """By how much, and how far the interval reaches to either side, without signs."""
    cells = percents(of(profile, partition), evaluation)
    difference = (cells.mean(method=one) - cells.mean(method=other)).estimate
    low, high = difference.interval()
    return difference.value, abs(low), abs(high)


def fallen(profile: str, but: str = "") -> tuple[float, float]:
    """Least and most by which fine-tuning MFCL's rows is behind their untrained stacks, surely with all ``but`` one."""
    results = of(profile)
    results = results[results.method.str.startswith("MFCL")]
    both = {"trained": results["fine-tuning"], "untrained": results["untrained, fine-tuning"]}
    points = pd.concat([results.assign(model=name, points=100 * values) for name, values in both.items()])
    cells = Cells(points, "points", ["method", "model"])
    losses = {
        name: (cells.mean(method=name, model="untrained") - cells.mean(method=name, model="trained")).estimate
        for name in cells.levels("method")
    }
    assert {name for name, loss in losses.items() if loss.interval()[0] <= 0} == {*filter(None, [but])}
    return min(loss.value for loss in losses.values()), max(loss.value for loss in losses.values())


def real() -> dict[str, float | list[float]]:
    """The numbers of ``workstation``."""
    results = of("workstation")
    needs = results.groupby("method").mean(numeric_only=True)
    probe, own = 100 * needs["linear probe"], 100 * needs["untrained"]
    over = partial(ahead, profile="workstation")
    cells = percents(results, "linear probe")
    half = max(cells.mean(method=name).estimate.interval()[1] - probe[name] for name in (CUT_1[1], MIDDLE[1]))
    memory, traffic = needs.memory_bytes / MB, needs.traffic_bytes / MB
    modular = [name for name in needs.index if name.startswith("MFCL")]
    assert memory[BYOL].min() > 100, "FedBYOL, FedU and FedEMA need more than 100 MB"
    for evaluation in EVALUATIONS:
        candidates = choose(results, memory=100 * MB, traffic=1000 * MB, private=True, measure=evaluation).candidates
        chosen = candidates[candidates["in the answer"]]
        assert {*chosen.method} == {"FedSimCLR", *L_DAWAS}, evaluation
        assert len(candidates) - len(chosen) == 6
    others = candidates[~candidates["in the answer"]].method
    may = choose(results, memory=100 * MB, traffic=5000 * MB, private=False, measure="linear probe").candidates
    assert {*may[may["in the answer"]].method} == {*CUT_1, MIDDLE[1]}
    assert probe[[*CUT_1, MIDDLE[1]]].idxmax() == CUT_1[1]
    best = probe[["FedSimCLR", *L_DAWAS]]
    tried = needs.filter(like="tuning_").drop(UNTRAINED)
    at_an_edge = tried.idxmax(axis=1).isin([tried.columns[0], tried.columns[-1]])
    assert probe["FedU"] == probe["FedBYOL"]
    named = 100 * needs.identifiability
    return {
        "reaches 51.5 % at cut 1 and 50.2 at the middle cut, each ± 1.5": (probe[CUT_1[1]], probe[MIDDLE[1]], half),
        "the untrained ResNet has 25.4": probe[UNTRAINED],
        "in one place 55.3": probe["SimCLR"],
        "2.5 points ahead of MocoSFL at cut 1 (0.6 to 4.5)": over(*CUT_1[::-1]),
        "and 6.1 at the middle cut (4.1 to 8.0)": over(*MIDDLE[::-1]),
        "3.5 and 2.2 points ahead of FedSimCLR (1.6 to 5.5 and 0.3 to 4.2)": [
            value
            for place in (slice(1), slice(1, None))
            for method in (CUT_1[1], MIDDLE[1])
            for value in over(method, "FedSimCLR")[place]
        ],
        "FedSimCLR with 48.0 %, L-DAWA with 47.9 after FedAvg and 47.6": [*best],
        "FedAvg has 43.7 %, 4.3 points less than FedSimCLR (2.3 to 6.2)": [probe.FedAvg, *over("FedSimCLR", "FedAvg")],
        "moves 2.4 GB and more, MFCL 1.05": (traffic[CUT_1 + MIDDLE].min() / 1000, traffic[modular].min() / 1000),
        "within 0.4 points": best.max() - best.min(),
        "behind by 4.1 points or more": best.max() - probe[others].max(),
        "with 2.9 MB and 50 billion multiply-adds instead of FedSimCLR's 74.6": [*memory[[CUT_1[1], "FedSimCLR"]]],
        "explains 1.00 of the variance of what is sent at cut 1, and 0.81 and 0.85": [
            needs.explained[CUT_1].min(),
            *needs.explained[MIDDLE],
        ],
        "75 % of them at cut 1": named[CUT_1[0]],
        "MonAcoSFL's, 26 % and 25 %": [named[CUT_1[1]], named[MIDDLE[1]]],
        "reaches alone is 43.6 %": probe[ALONE],
        "4.4 points ahead of that (2.4 to 6.3), which": over("FedSimCLR", ALONE),
        "3.0 behind FedMoCoV3 (1.0 to 4.9)": over("FedMoCoV3", "LW-FedSSL"),
        "from 2.9 behind to 1.0 ahead": over("Prog-FedSSL", "FedMoCoV3")[1:],
        "3.3 points behind a client alone (1.3 to 5.3)": over(ALONE, "MFCL(GN)"),
        "end 7.7 points above": probe["MFCL(GN)"] - own["MFCL(GN)"],
        "is 2.0 behind a client alone, from 3.9 behind to level": over(ALONE, "MFCL(BN)")[::2],
        "below their own untrained stacks, by 5.0 to 14.3": fallen("workstation"),
        "37.2 % with views together and 39.2 apart, 2.0 more (0.0 to 3.9)": [
            *probe[["MFCL(TN)", "MFCL(TN), views apart"]],
            *over("MFCL(TN), views apart", "MFCL(TN)"),
        ],
        "group norm, 40.3": probe["MFCL(GN)"],
        "from 0.8 behind to 3.1 ahead": over("MFCL(GN)", "MFCL(TN), views apart")[1:],
        "5.0 points above the untrained": probe["FedBYOL"] - own["FedBYOL"],
        "3.3 ahead of it (1.4 to 5.3)": over("FedEMA", "FedBYOL"),
        "from 2.3 points behind to 1.6 ahead": over("L-DAWA", "FedSimCLR")[1:],
        "10.8 points behind FedSimCLR, 8.9 to 12.8": over("FedSimCLR", "MFCL(TN)"),
        "64 %. The accuracy that chooses": 100 * at_an_edge.mean(),
    }


def numbers():
    comparisons, degrees_of_freedom = 14, 4
    factor = t.ppf(1 - 0.05 / 2 / comparisons, degrees_of_freedom) / t.ppf(1 - 0.05 / 2, degrees_of_freedom)
    needs, own = of("laptop").groupby("method").mean(numeric_only=True), partial(ahead, partition=CLASSES)
    by_classes = 100 * of("laptop", CLASSES).groupby("method")["linear probe"].mean()
    probe = 100 * needs["linear probe"]
    split, averaged = (needs.loc[name] for name in ("MocoSFL, cut 1", "FedSimCLR"))
    tried = needs.filter(like="tuning_").drop(UNTRAINED)
    at_an_edge = tried.idxmax(axis=1).isin([tried.columns[0], tried.columns[-1]])
    gained = [probe[name] - probe[UNTRAINED] for name in BYOL]
    best = probe[["L-DAWA, after FedAvg", "L-DAWA", "FedSimCLR"]]
    choosable = needs[~needs.reference.astype(bool)]
    modular = [name for name in needs.index if name.startswith("MFCL")]
    tuned = 100 * needs["fine-tuning"]
    named, common = 100 * needs.identifiability, 100 * needs.identifiability_common
    full = counted_needs(METHODS, Problem("paper", "dirichlet-equal:0.1")).set_index("method")
    memory, traffic = full["memory, MB"], full["traffic, MB"] / 1000  # GB
    split_rows = full.index.str.contains("Moco|Monaco", case=False) & full.index.str.contains("cut")
    whole = ~split_rows & ~full.index.str.contains("MFCL|LW|Prog")
    stacks = 100 * needs.untrained[modular]
    return real() | {
        "stacks have 27.8 to 29.8 %": (stacks.min(), stacks.max()),
        "with 68.6 %, by 3.1 points (1.1 to 5.2), and by 8.1 at the middle cut (4.3 to 11.8)": [
            by_classes[CUT_1[1]],
            *own(*CUT_1[::-1]),
            *own(*MIDDLE[::-1]),
        ],
        "54.1, 55.6 and 54.7 %": [*by_classes[["FedSimCLR", *L_DAWAS[::-1]]]],
        "a client alone, 50.5": by_classes[ALONE],
        "3.7 points ahead (0.1 to 7.3)": own("FedSimCLR", ALONE),
        "MOON, 62.0 instead of 51.0 %": (by_classes.MOON, probe.MOON),
        "is 2.2: more than twice as wide": factor,
        "95 % intervals": 95,
        "67.4 ± 0.7 %": with_half("MocoSFL, cut 1"),
        "66.3 ± 4.9": with_half("MonAcoSFL, cut 1"),
        "66.4 ± 8.6": with_half("FedAvg"),
        "1.1 points ahead of it, from 8.1 behind to 10.2 ahead": ahead("MocoSFL, cut 1", "FedAvg"),
        "(56.5, 56.2 and 55.7 %)": [*best],
        "the untrained ResNet has 20.0": probe[UNTRAINED],
        "in one place 81.2": probe["SimCLR"],
        "26.0 points ahead of it, with an interval of 23.7 to 28.2": ahead("MocoSFL, cut 1", "FL-MoCoV2"),
        "6.5 points ahead, 2.4 to 10.6": ahead("MonAcoSFL, middle cut", "MocoSFL, middle cut"),
        "within 2.4 points": max(ahead(MIDDLE[1], MIDDLE[0], "fine-tuning")[1:]),
        "0.7 MB of memory and 2.2 billion": (split.memory_bytes / MB, split.macs / 1e9),
        "0.7 and 3.2 MB, and MFCL, 3.7": (needs.memory_bytes[[CUT_1[0], MIDDLE[0], "MFCL(GN)"]] / MB).tolist(),
        "12.1 MB to FedCA's 36.5": (needs.traffic_bytes[["LW-FedSSL", "FedCA"]] / MB).tolist(),
        "18.9 MB and 117.9": (averaged.memory_bytes / MB, averaged.macs / 1e9),
        "471.9 MB instead of 30.3": (split.traffic_bytes / MB, averaged.traffic_bytes / MB),
        "explains 1.00 of": needs.explained[["MocoSFL, cut 1", "MocoSFL, middle cut", "MonAcoSFL, middle cut"]].min(),
        "at the middle cut 99 % give their client away, where the images by themselves give away 23 %": [
            named[MIDDLE[0]],
            common[MIDDLE[0]],
        ],
        "at cut 1 it is 37 %, hardly more than the images' 33 %": [named[CUT_1[0]], common[CUT_1[0]]],
        "MonAcoSFL's, 30 % and 32 %": [named[MIDDLE[1]], named[CUT_1[1]]],
        "more than 23.6 MB or 471.9 MB": (choosable.memory_bytes.max() / MB, choosable.traffic_bytes.max() / MB),
        "at least 0.99 of the variance of what they send": choosable.explained.min(),
        "within 0.8 points": best.max() - best.min(),
        "12.6 points behind (5.6 to 19.6 by itself)": ahead("L-DAWA, after FedAvg", "FedMoCoV3"),
        "LW-FedSSL, 7.6 behind": ahead("L-DAWA, after FedAvg", "LW-FedSSL")[0],
        "with 10.8 at cut 1 and 89.8 at the middle cut": (memory[CUT_1].mean(), memory[MIDDLE].mean()),
        "moves 0.80 to 1.57 TB": [f(traffic[CUT_1 + MIDDLE]) / 1000 for f in (min, max)],
        "MFCL needs 143.8 MB and 21.0 GB": (memory["MFCL(TN)"], traffic["MFCL(TN)"]),
        "LW-FedSSL 553.0 MB and 1.2 GB": (memory["LW-FedSSL"], traffic["LW-FedSSL"]),
        "at least 914.9 MB, and 3.6 GB or more": (memory[whole].min(), traffic[whole].min()),
        "with no traffic at all, is 50.2 %": probe[ALONE],
        "L-DAWA is 6.1 points ahead of that, 0.1 to 12.0": ahead("L-DAWA", ALONE),
        "6.4, from 1.2 behind to 13.9 ahead": ahead("L-DAWA, after FedAvg", ALONE),
        "5.5, from 2.1 behind to 13.2 ahead": ahead("FedSimCLR", ALONE),
        "MFCL(GN), at 51.7 %": probe["MFCL(GN)"],
        "near it, 48.9 %, with 12.1 MB": (probe["LW-FedSSL"], needs.traffic_bytes["LW-FedSSL"] / MB),
        "by 5.0 points (1.0 behind to 10.9 ahead)": ahead("LW-FedSSL", "FedMoCoV3"),
        "9.5 behind (7.4 to 11.6)": ahead("FedMoCoV3", "Prog-FedSSL"),
        "3.7 MB and 5.1 billion multiply-adds": (needs.memory_bytes["MFCL(GN)"] / MB, needs.macs["MFCL(GN)"] / 1e9),
        "moves more, 52.6 MB": needs.traffic_bytes[modular].max() / MB,
        "at least 0.99 of the variance of these images": needs.explained[modular].min(),
        "it is 29.0 behind, 16.1 to 41.9": ahead("FedSimCLR", "MFCL(GN)", "fine-tuning"),
        "31.0 to 41.5 %": (tuned[modular].min(), tuned[modular].max()),
        "below their own untrained stacks, by 7.6 to 26.3": fallen("laptop", but="MFCL(BN)"),
        "4.0 points behind FedSimCLR, from 0.6 ahead to 8.6 behind": ahead("FedSimCLR", "MFCL(GN)"),
        "has 38.2 % by the linear probe, apart 49.6": [*probe[["MFCL(TN)", "MFCL(TN), views apart"]]],
        "11.5 points less, 3.8 to 19.2": ahead("MFCL(TN), views apart", "MFCL(TN)"),
        "from 2.8 points behind to 3.9 ahead": ahead("L-DAWA", "FedSimCLR")[1:],
        "from 3.3 behind to 1.3 ahead": ahead("FedEMA", "FedBYOL")[1:],
        "Prog-FedSSL is 9.5 points behind": ahead("FedMoCoV3", "Prog-FedSSL")[0],
        "17.5 behind FedSimCLR, 5.3 to 29.7": ahead("FedSimCLR", "MFCL(TN)"),
        "44 % of the trained rows chose": 100 * at_an_edge.mean(),
        "6.8 to 8.2 points": (min(gained), max(gained)),
    }
