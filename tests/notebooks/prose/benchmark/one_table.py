from scipy.stats import t

from fssl_core.benchmark import MB
from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import record

UNTRAINED, ALONE = "untrained", "SimCLR, one client's images"
BYOL = ["FedBYOL", "FedU", "FedEMA"]


def probes() -> Cells:
    results = record("benchmark/one_table")
    return Cells(results.assign(percent=100 * results["linear probe"]), "percent", ["method"])


def with_half(method: str) -> tuple[float, float]:
    """Mean, and half of its interval."""
    mean = probes().mean(method=method).estimate
    return mean.value, mean.value - mean.interval()[0]


def ahead(one: str, other: str) -> tuple[float, float, float]:
    difference = (probes().mean(method=one) - probes().mean(method=other)).estimate
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
    return {
        "is 2.2: more than twice as wide": factor,
        "95 % intervals": 95,
        "67.4 ± 0.7 %": with_half("MocoSFL, cut 1"),
        "66.3 ± 4.9": with_half("MonAcoSFL, cut 1"),
        "66.4 ± 8.6": with_half("FedAvg"),
        "(56.5, 56.2 and 55.7 %)": [*probe[["L-DAWA, after FedAvg", "L-DAWA", "FedSimCLR"]]],
        "the untrained ResNet has 20.0": probe[UNTRAINED],
        "in one place 81.2": probe["SimCLR"],
        "26.0 points ahead of it, with an interval of 23.7 to 28.2": ahead("MocoSFL, cut 1", "FL-MoCoV2"),
        "6.5 points ahead, 2.4 to 10.6": ahead("MonAcoSFL, middle cut", "MocoSFL, middle cut"),
        "0.7 MB of memory and 2.2 billion": (split.memory_bytes / MB, split.macs / 1e9),
        "18.9 MB and 117.9": (averaged.memory_bytes / MB, averaged.macs / 1e9),
        "471.9 MB instead of 30.3": (split.traffic_bytes / MB, averaged.traffic_bytes / MB),
        "explains 1.00 of": needs.explained[["MocoSFL, cut 1", "MocoSFL, middle cut", "MonAcoSFL, middle cut"]].min(),
        "with no traffic at all, is 50.2 %": probe[ALONE],
        "5.5 points ahead of that, from 2.1 behind to 13.2 ahead": ahead("FedSimCLR", ALONE),
        "MFCL(GN), at 51.7 %": probe["MFCL(GN)"],
        "near it, 48.9 %, with 12.1 MB": (probe["LW-FedSSL"], needs.traffic_bytes["LW-FedSSL"] / MB),
        "by 5.0 points (1.0 behind to 10.9 ahead)": ahead("LW-FedSSL", "FedMoCoV3"),
        "9.5 behind (7.4 to 11.6)": ahead("FedMoCoV3", "Prog-FedSSL"),
        "5.1 billion multiply-adds": needs.macs["MFCL(GN)"] / 1e9,
        "4.0 points behind FedSimCLR, from 0.6 ahead to 8.6 behind": ahead("FedSimCLR", "MFCL(GN)"),
        "has 38.2 %, apart 49.6": [*probe[["MFCL(TN)", "MFCL(TN), views apart"]]],
        "11.5 points less, 3.8 to 19.2": ahead("MFCL(TN), views apart", "MFCL(TN)"),
        "44 % of the trained rows chose": 100 * at_an_edge.mean(),
        "6.8 to 8.2 points": (min(gained), max(gained)),
    }
