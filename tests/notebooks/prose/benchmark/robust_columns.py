from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import record, settings

HONEST, FAULTS = "nobody is faulty", ["sign-flip", "constant", "noise"]


def cells(test: str) -> Cells:
    results = record("benchmark/robust_columns")
    rows = results[results.test == test]
    return Cells(rows.assign(percent=100 * rows.accuracy), "percent", ["method", "condition"])


def difference(test: str, one: tuple[str, str], other: tuple[str, str]) -> list[float]:
    """By how much a method under a condition is ahead of another, with the interval."""
    of = cells(test)
    first, second = (of.mean(method=method, condition=condition) for method, condition in (one, other))
    estimate = (first - second).estimate
    return [estimate.value, *estimate.interval()]


def loss(rule: str, condition: str) -> list[float]:
    """What a condition costs a rule."""
    return difference("faults", (rule, HONEST), (rule, condition))


def ahead_of_mean(rule: str, condition: str) -> list[float]:
    return difference("faults", (rule, condition), ("FedAvg", condition))


def fall(method: str) -> list[float]:
    """From equal shares to one class a client."""
    return difference("heterogeneity", (method, "iid"), (method, "classes:1"))


def magnitudes(values: list[float]) -> list[float]:
    """Of a loss whose interval has zero in it: the loss, by how much it may be a gain, and the largest loss."""
    value, low, high = values
    assert low < 0 < high
    return [value, -low, high]


def numbers():
    results = record("benchmark/robust_columns")
    percent = 100 * results.groupby(["test", "method", "condition"]).accuracy.mean()
    fedavg = percent["faults", "FedAvg"]
    faults = results[results.test == "faults"]
    robust = {rule: [loss(rule, fault) for fault in FAULTS] for rule in ("median", "trimmed mean")}
    assert all(low < 0 < high for losses in robust.values() for _, low, high in losses)
    krum = faults[(faults.method == "Krum") & faults.condition.isin(FAULTS)].groupby("seed").accuracy
    assert (krum.nunique() == 1).all()
    missing = [loss(rule, "dropping out") for rule in ("FedAvg", "L-DAWA", "median")]
    before = [difference("heterogeneity", ("MonAcoSFL, middle cut", "iid"), ("MonAcoSFL, middle cut", one))
              for one in ("dirichlet-equal:1", "dirichlet-equal:0.1", "classes:2")]  # fmt: skip
    assert all(low < 0 < high for _, low, high in before)
    one_class = difference("heterogeneity", ("MFCL(GN)", "classes:1"), ("FedSimCLR", "classes:1"))
    return {
        "95 % intervals": 95,
        "leaves 0.8 of the mean update": 1 - 2 / settings("benchmark/robust_columns")["clients"],
        "from 55.3 % to 25.7": (fedavg[HONEST], fedavg["sign-flip"]),
        "to 43.9 with a constant one, and to 49.3 with noise": (fedavg["constant"], fedavg["noise"]),
        "an untrained model has 20.0": 100 * faults.untrained.mean(),
        "29.6 points less (21.0 to 38.2)": loss("FedAvg", "sign-flip"),
        "11.4 (7.8 to 15.0)": loss("FedAvg", "constant"),
        "6.0 (2.3 to 9.7)": loss("FedAvg", "noise"),
        "the median is 0.2, 0.5 and 1.4": [one[0] for one in robust["median"]],
        "the trimmed mean 0.4, 2.2 and 1.8": [one[0] for one in robust["trimmed mean"]],
        "reach 7.6 and 5.4": [robust[rule][0][2] for rule in ("median", "trimmed mean")],
        "0.4 behind FedAvg, from 1.5 ahead to 2.3 behind": magnitudes(
            difference("faults", ("FedAvg", HONEST), ("median", HONEST))
        ),
        "5.4 points behind FedAvg where nobody is faulty (2.8 to 8.0)": difference(
            "faults", ("FedAvg", HONEST), ("Krum", HONEST)
        ),
        "19.3 points ahead of FedAvg (7.9 to 30.7)": ahead_of_mean("L-DAWA", "sign-flip"),
        "8.1 (3.2 to 12.9)": ahead_of_mean("L-DAWA", "noise"),
        "4.0 (1.0 to 6.9)": ahead_of_mean("L-DAWA", "constant"),
        "10.2 (3.2 to 17.3)": loss("L-DAWA", "sign-flip"),
        "7.4 (4.1 to 10.6)": loss("L-DAWA", "constant"),
        "the largest change is 0.5": max(abs(one[0]) for one in missing),
        "further than 3.2": max(abs(end) for one in missing for end in one[1:]),
        "18.1 points (14.7 to 21.5)": fall("FedSimCLR"),
        "11.7 (7.8 to 15.6)": fall("LW-FedSSL"),
        "4.9, from 0.1 more to 10.0": magnitudes(fall("MonAcoSFL, middle cut")),
        "1.9, from 0.8 more to 4.7": magnitudes(fall("MFCL(GN)")),
        "12.5 points behind FedSimCLR on equal shares (8.0 to 16.9)": difference(
            "heterogeneity", ("FedSimCLR", "iid"), ("MFCL(GN)", "iid")
        ),
        "3.7 ahead on one class each (0.7 to 6.7)": one_class,
    }
