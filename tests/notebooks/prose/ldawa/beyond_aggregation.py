from scipy.stats import t

from fssl_core.experiments import ldawa_settings
from tests.notebooks.prose.ldawa.fig4 import layers
from tests.notebooks.prose.recorded import record, rows

SEEDS = 3
FACTOR = t.ppf(0.975, SEEDS - 1)  # of a standard error, for an interval of 95 %
AFTER = "L-DAWA from round 4"


def contrast(one: str, other: str, measure: str = "accuracy") -> tuple[float, float]:
    """Mean and standard error over seeds of a paired difference, in points."""
    ours = 100 * record("ldawa/beyond_aggregation").pivot(index="seed", columns="method", values=measure)
    difference = ours[one] - ours[other]
    return difference.mean(), difference.std() / len(difference) ** 0.5


def size(values: tuple[float, float], factor: float = 1) -> tuple[float, float]:
    """Without its sign, as the text has it; the error times a factor."""
    return abs(values[0]), factor * values[1]


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
    rate = settings.learning_rate
    turned = stem[(stem["round"] == 4) & (stem.method == "L-DAWA after FedAvg")].cosine
    preference = [contrast("L-DAWA normalised", "uniform", measure) for measure in ("accuracy", renewed)]
    return {
        "13.6 ± 2.8 points": size(contrast("L-DAWA", "FedAvg")),
        "10.5 ± 2.0 below": size(contrast("L-DAWA", "uniform")),
        "+0.2 ± 1.5. In": preference[0],
        "7.1 ± 3.2 points": size(contrast("shrinking only", "uniform")),
        "52.2 to 58.8 %": [*ours.loc["L-DAWA"]],
        "55.6 to 61.0": [*ours.loc["shrinking only"]],
        "62.1 to 65.1": [*ours.loc["M-DAWA"]],
        "-0.5 ± 0.8 points": size(contrast("L-DAWA_FedAvg", "FedAvg", renewed)),
        "-0.2 ± 0.9 to": size(contrast("L-DAWA_FedU", "FedU", renewed)),
        "-0.1 ± 0.8 to": size(contrast("L-DAWA_Loss", "Loss", renewed)),
        "4.8 ± 1.2 below": size(contrast("L-DAWA", "uniform", renewed)),
        "95 % interval is 4.3 times": (95, FACTOR),
        "10.7 ± 2.9 points": contrast(AFTER, "L-DAWA"),
        "(+0.2 ± 2.1)": contrast(AFTER, "uniform"),
        "round 1 is 0.47": means.cosine["FedAvg", 1],
        "from 2.4 to 2.7": (means.norm["FedAvg", 1], means.norm["FedAvg", 10]),
        "cosine is 0.99 at": means.cosine["FedAvg", 10],
        "falls to 0.3 and the cosine to 0.4": (means.norm["L-DAWA", 10], means.cosine["L-DAWA", 10]),
        "give a 95 % interval": 95,
        "errors by 4.3": FACTOR,
        "-10.5 ± 8.4 points": size(contrast("L-DAWA", "uniform"), FACTOR),
        "-7.1 ± 14": abs(contrast("shrinking only", "uniform")[0]),
        "(-4.6 ± 3.4)": size(contrast("L-DAWA", "L-DAWA normalised", renewed), FACTOR),
        "(-2.3 ± 1.5)": size(contrast("uniform", "FedAvg", renewed), FACTOR),
        "(+5.8 ± 1.5)": size(contrast(AFTER, "L-DAWA", renewed), FACTOR),
        "(-4.8 ± 5.3)": size(contrast("L-DAWA", "uniform", renewed), FACTOR),
        "cosines are 0.32, 0.64 and 0.44": [*rows(stem, round=1, method="FedAvg").sort_values("seed").cosine],
        "cosines are 0.97 to 1.00": (turned.min(), turned.max()),
        "2.89 to 2.85, from 1.75 to 1.61 and from 2.72 to 2.66": [*after[[3, 10]].stack()],
        "1.31 and ends with 0.32": (first, zero.norm["L-DAWA"]),
        "ends with 3.04": zero.norm["FedAvg"],
        "rate is 0.03 for": rate,
        "rate of 0.5 the": rate * (first / zero.norm["L-DAWA"]) ** 2,
        "it was 0.33": zero.cosine["L-DAWA"],
    }
