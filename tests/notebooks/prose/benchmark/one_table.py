from scipy.stats import t

from fssl_core.benchmark import MB, METHODS, Problem, counted_needs
from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import record

UNTRAINED, ALONE = "untrained", "SimCLR, one client's images"
BYOL = ["FedBYOL", "FedU", "FedEMA"]


def percents(evaluation: str) -> Cells:
    results = record("benchmark/one_table")
    return Cells(results.assign(percent=100 * results[evaluation]), "percent", ["method"])


def with_half(method: str) -> tuple[float, float]:
    """Mean, and half of its interval."""
    mean = percents("linear probe").mean(method=method).estimate
    return mean.value, mean.value - mean.interval()[0]


def ahead(one: str, other: str, evaluation: str = "linear probe") -> tuple[float, float, float]:
    """By how much, and how far the interval reaches to either side, without signs."""
    cells = percents(evaluation)
    difference = (cells.mean(method=one) - cells.mean(method=other)).estimate
    low, high = difference.interval()
    return difference.value, abs(low), abs(high)


def numbers():
    comparisons, degrees_of_freedom = 14, 4
    factor = t.ppf(1 - 0.05 / 2 / comparisons, degrees_of_freedom) / t.ppf(1 - 0.05 / 2, degrees_of_freedom)
    needs = record("benchmark/one_table").groupby("method").mean(numeric_only=True)
    probe = 100 * needs["linear probe"]
    split, averaged = (needs.loc[name] for name in ("MocoSFL, cut 1", "FedSimCLR"))
    tried = needs.filter(like="tuning_").drop(UNTRAINED)
    at_an_edge = tried.idxmax(axis=1).isin([tried.columns[0], tried.columns[-1]])
    gained = [probe[name] - probe[UNTRAINED] for name in BYOL]
    best = probe[["L-DAWA, after FedAvg", "L-DAWA", "FedSimCLR"]]
    choosable = needs[~needs.reference.astype(bool)]
    modular = [name for name in needs.index if name.startswith("MFCL")]
    tuned = 100 * needs["fine-tuning"]
    named = 100 * needs.identifiability
    full = counted_needs(METHODS, Problem("paper", "dirichlet-equal:0.1")).set_index("method")
    memory, traffic = full["memory, MB"], full["traffic, MB"] / 1000  # GB
    split_rows = full.index.str.contains("Moco|Monaco", case=False) & full.index.str.contains("cut")
    whole = ~split_rows & ~full.index.str.contains("MFCL|LW|Prog")
    cut_1, middle = ["MocoSFL, cut 1", "MonAcoSFL, cut 1"], ["MocoSFL, middle cut", "MonAcoSFL, middle cut"]
    return {
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
        "within 2.4 points": max(ahead(middle[1], middle[0], "fine-tuning")[1:]),
        "0.7 MB of memory and 2.2 billion": (split.memory_bytes / MB, split.macs / 1e9),
        "18.9 MB and 117.9": (averaged.memory_bytes / MB, averaged.macs / 1e9),
        "471.9 MB instead of 30.3": (split.traffic_bytes / MB, averaged.traffic_bytes / MB),
        "explains 1.00 of": needs.explained[["MocoSFL, cut 1", "MocoSFL, middle cut", "MonAcoSFL, middle cut"]].min(),
        "99 % of MocoSFL's and 30 % of MonAcoSFL's": [*named[middle]],
        "at cut 1 37 % and 32 %": [*named[cut_1]],
        "more than 23.6 MB or 471.9 MB": (choosable.memory_bytes.max() / MB, choosable.traffic_bytes.max() / MB),
        "at least 0.99 of the variance of what they send": choosable.explained.min(),
        "within 0.8 points": best.max() - best.min(),
        "12.6 points behind (5.6 to 19.6 by itself)": ahead("L-DAWA, after FedAvg", "FedMoCoV3"),
        "LW-FedSSL, 7.6 behind": ahead("L-DAWA, after FedAvg", "LW-FedSSL")[0],
        "with 10.8 at cut 1 and 89.8 at the middle cut": (memory[cut_1].mean(), memory[middle].mean()),
        "moves 0.80 to 1.57 TB": [f(traffic[cut_1 + middle]) / 1000 for f in (min, max)],
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
        "untrained ResNet's 44.9": tuned[UNTRAINED],
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
