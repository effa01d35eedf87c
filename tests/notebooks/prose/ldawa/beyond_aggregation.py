from scipy.stats import t

from fssl_core.experiments import ldawa_settings
from tests.notebooks.prose.ldawa.fig4 import layers
from tests.notebooks.prose.recorded import record, rows

AFTER = "L-DAWA after FedAvg"


def factor(seeds: int) -> float:
    """Of a standard error over so many seeds, for an interval of 95 %."""
    return t.ppf(0.975, seeds - 1)


def contrast(one: str, other: str, measure: str = "accuracy", *, interval: bool = False) -> tuple[float, float]:
    """Mean of a paired difference over the seeds of both, in points; standard error, or half of the 95 % interval."""
    ours = 100 * record("ldawa/beyond_aggregation").pivot(index="seed", columns="method", values=measure)
    difference = (ours[one] - ours[other]).dropna()
    return difference.mean(), difference.sem() * (factor(len(difference)) if interval else 1)


def size(values: tuple[float, float]) -> tuple[float, float]:
    """Without its sign, as the text has it."""
    return abs(values[0]), values[1]


def half(one: str, other: str, measure: str = "accuracy") -> tuple[float, float]:
    """Size of a difference, and half of its interval."""
    return size(contrast(one, other, measure, interval=True))


def numbers():
    ours = record("ldawa/beyond_aggregation").groupby("method")[["accuracy", "accuracy_renewed"]].mean() * 100
    renewed = "accuracy_renewed"
    stem = rows(layers(), layer="encoder.0.stem.0.weight", ssl_method="SimCLR")
    means = stem.groupby(["method", "round"])[["norm", "cosine"]].mean()
    after = stem[stem.method == "L-DAWA after FedAvg"].pivot(index="seed", columns="round", values="norm")
    zero = rows(stem, seed=0, round=10).set_index("method")
    settings = ldawa_settings("laptop", method="FedAvg", seed=0)
    model = settings.build_model(settings.load_data())
    first = model.state_dict()["encoder.0.stem.0.weight"].norm().item()
    models = (settings.changed(seed=seed).build_model(settings.load_data()) for seed in (0, 1, 2))
    untrained = [model.state_dict()["encoder.0.stem.0.weight"].norm().item() for model in models]
    shrunk = rows(stem, round=1, method="L-DAWA").sort_values("seed").norm
    rate = settings.learning_rate
    turned = stem[(stem["round"] == 4) & (stem.method == "L-DAWA after FedAvg")].cosine
    parameters, statistics, shrinking = "parameters only", "statistics only", "shrinking only"
    once_more = record("ldawa/beyond_aggregation").pivot_table("accuracy_renewed", "seed", "method")
    apart = 100 * (once_more["L-DAWA"] - once_more[parameters]).abs()
    apart = apart[apart > 1e-9]
    assert len(apart) == 3
    again = [("L-DAWA", "uniform"), (parameters, "uniform"), ("uniform", "FedAvg"), (AFTER, "L-DAWA")]
    return {
        "10.0 ± 1.3 points": size(contrast("L-DAWA", "FedAvg")),
        "6.7 ± 1.4 below": size(contrast("L-DAWA", "uniform")),
        "+0.4 ± 1.2. In": contrast("L-DAWA normalised", "uniform"),
        "7.7 ± 1.4 points": size(contrast(shrinking, "uniform")),
        "+0.1 ± 0.2 points": contrast(statistics, "uniform"),
        "10.1 ± 1.9 points with every seed, 3.4 ± 0.8 more": [
            *size(contrast(parameters, "uniform")),
            *contrast("L-DAWA", parameters),
        ],
        "56.3 to 59.5 %": [*ours.loc["L-DAWA"]],
        "52.8 to 59.3, shrinking": [*ours.loc[parameters]],
        "55.7 to 59.5 and": [*ours.loc[shrinking]],
        "61.6 to 64.6, while": [*ours.loc["M-DAWA"]],
        "0.1 to 2.0 points apart": (apart.min(), apart.max()),
        "3.8 ± 1.0 below": size(contrast("L-DAWA", "uniform", renewed)),
        "-3.6 ± 1.0 points": size(contrast("L-DAWA_FedAvg", "FedAvg", renewed)),
        "-2.6 ± 0.6 to": size(contrast("L-DAWA_FedU", "FedU", renewed)),
        "-3.0 ± 1.4 to": size(contrast("L-DAWA_Loss", "Loss", renewed)),
        "6.5 ± 1.4 points": contrast(AFTER, "L-DAWA"),
        "(-0.2 ± 0.8)": size(contrast(AFTER, "uniform")),
        "by 3.3 ± 0.9 points": size(contrast("uniform", "FedAvg")),
        "round 1 is 0.47": means.cosine["FedAvg", 1],
        "from 2.4 to 2.7": (means.norm["FedAvg", 1], means.norm["FedAvg", 10]),
        "cosine is 0.99 at": means.cosine["FedAvg", 10],
        "falls to 0.3 and the cosine to 0.4": (means.norm["L-DAWA", 10], means.cosine["L-DAWA", 10]),
        "give a 95 % interval": 95,
        "errors by 4.3 where": factor(3),
        "by 2.3 elsewhere": factor(10),
        "-7.7 ± 6.1 points": half(shrinking, "uniform"),
        "(-5.0 ± 5.4)": half(shrinking, "uniform", renewed),
        "+0.4 ± 5.0, may": half("L-DAWA normalised", "uniform"),
        "(-6.7 ± 3.1)": half("L-DAWA", "uniform"),
        "(-10.1 ± 4.3)": half(parameters, "uniform"),
        "(-3.3 ± 2.1)": half("uniform", "FedAvg"),
        "(+6.5 ± 3.1)": half(AFTER, "L-DAWA"),
        "(-3.8 ± 2.4, -4.0 ± 2.4, -3.4 ± 2.1 and +4.1 ± 1.6)": [
            value for one, other in again for value in half(one, other, renewed)
        ],
        "cosines are 0.32, 0.64 and 0.44": [*rows(stem, round=1, method="FedAvg").sort_values("seed").cosine],
        "of the norms before it, 1.31, 1.46 and 1.33, 0.64, 0.99 and 0.86 would be left": [*untrained, *shrunk],
        "cosines are 0.97 to 1.00": (turned.min(), turned.max()),
        "2.89 to 2.85, from 1.75 to 1.61 and from 2.72 to 2.66": [*after[[3, 10]].stack()],
        "1.31 and ends with 0.32": (first, zero.norm["L-DAWA"]),
        "ends with 3.04": zero.norm["FedAvg"],
        "rate is 0.03 for": rate,
        "rate of 0.5 the": rate * (first / zero.norm["L-DAWA"]) ** 2,
        "it was 0.33": zero.cosine["L-DAWA"],
    }
