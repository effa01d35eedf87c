import pandas as pd
from scipy.stats import t

from fssl_core.benchmark import MB
from fssl_core.claims.estimation import Cells, Estimate
from tests.notebooks.prose.recorded import record

UNTRAINED, ALONE = "untrained", "SimCLR, one client's images"
BYOL = ["FedBYOL", "FedU", "FedEMA"]
MFCL = ["MFCL(BN)", "MFCL(GN)", "MFCL(TN), views apart"]


def cells(measure: str = "linear probe") -> Cells:
    results = record("benchmark/one_table")
    return Cells(results.assign(percent=100 * results[measure]), "percent", ["method"])


def with_half(method: str) -> tuple[float, float]:
    """Mean, and half of its interval."""
    mean = cells().mean(method=method).estimate
    return mean.value, mean.value - mean.interval()[0]


def gap(one: str, other: str) -> Estimate:
    return (cells().mean(method=one) - cells().mean(method=other)).estimate


def ahead(one: str, other: str) -> tuple[float, float, float]:
    difference = gap(one, other)
    low, high = difference.interval()
    return difference.value, abs(low), abs(high)


def means() -> pd.DataFrame:
    return record("benchmark/one_table").groupby("method").mean(numeric_only=True)


def numbers():
    comparisons, degrees_of_freedom = 14, 4
    factor = t.ppf(1 - 0.05 / 2 / comparisons, degrees_of_freedom) / t.ppf(1 - 0.05 / 2, degrees_of_freedom)
    needs, accuracy = means(), 100 * means()
    probe, knn, tuned = (accuracy[name] for name in ("linear probe", "kNN", "fine-tuning"))
    split, averaged = (needs.loc[name] for name in ("MocoSFL, cut 1", "FedSimCLR"))
    gained = [probe[name] - probe[UNTRAINED] for name in BYOL]
    return {
        "is 2.2: more than twice as wide": factor,
        "95 % intervals": 95,
        "62.3 ± 1.4 %": with_half("MocoSFL, cut 1"),
        "61.4 ± 4.8": with_half("MonAcoSFL, cut 1"),
        "61.2 ± 7.9": with_half("FedAvg"),
        "48.3 ± 4.4": with_half("L-DAWA"),
        "an untrained model 18.2": probe[UNTRAINED],
        "in one place 77.0": probe["SimCLR"],
        "28.0 points ahead of it, with an interval of 26.0 to 30.1": ahead("MocoSFL, cut 1", "FL-MoCoV2"),
        "8.6 points ahead, 2.1 to 15.0": ahead("MonAcoSFL, middle cut", "MocoSFL, middle cut"),
        "0.7 MB of memory and 2.2 billion": (split.memory_bytes / MB, split.macs / 1e9),
        "18.9 MB and 117.9": (averaged.memory_bytes / MB, averaged.macs / 1e9),
        "471.9 MB instead of 30.3": (split.traffic_bytes / MB, averaged.traffic_bytes / MB),
        "explains 1.00 of": needs.explained[["MocoSFL, cut 1", "MocoSFL, middle cut", "MonAcoSFL, middle cut"]].min(),
        "(48.3, 47.5 and 46.4 %)": [*probe[["L-DAWA", "L-DAWA, after FedAvg", "FedSimCLR"]]],
        "with no traffic at all, is 41.4 %": probe[ALONE],
        "5.1 points ahead of that, from 2.8 behind to 13.0 ahead": ahead("FedSimCLR", ALONE),
        "near it, 40.6 %, with 12.1 MB": (probe["LW-FedSSL"], needs.traffic_bytes["LW-FedSSL"] / MB),
        "by 5.7 points (0.3 behind to 11.7 ahead)": ahead("LW-FedSSL", "FedMoCoV3"),
        "5.0 behind (2.2 to 7.7)": ahead("FedMoCoV3", "Prog-FedSSL"),
        "4.7 to 5.9 points": (min(gained), max(gained)),
        "(51.8 to 53.5 %, it has 52.4)": (knn[MFCL].min(), knn[MFCL].max(), knn["FedSimCLR"]),
        "(31.0 to 41.5 %, it has 44.9)": (
            tuned[[*MFCL, "MFCL(TN)"]].min(),
            tuned[[*MFCL, "MFCL(TN)"]].max(),
            tuned[UNTRAINED],
        ),
        "25.1 % of the probe where apart it has 34.7": [*probe[["MFCL(TN)", "MFCL(TN), views apart"]]],
        "9.6 points, 1.1 to 18.1": ahead("MFCL(TN), views apart", "MFCL(TN)"),
    }
