from scipy.integrate import quad
from scipy.stats import norm

from fssl_core.experiments import ldawa_settings
from fssl_core.models import build_backbone
from tests.notebooks.prose.recorded import comparisons, record, rows

A, B = (30, 50, 60, 61), (40, 48, 52, 65)  # of the exercise


def numbers():
    ours = record("ldawa/fig6")
    last = 100 * rows(ours, round=10).groupby(["method", "ssl_method"]).accuracy.mean()
    common = (100 * ours.groupby(["ssl_method", "method", "round"]).accuracy.mean()).groupby(level=[0, 1]).max()
    simclr, _ = comparisons("ldawa-fig6-fewer-rounds", "the paper")
    model = build_backbone("resnet18", width=64, norm="batch").state_dict()
    projector = ldawa_settings("paper", method="FedAvg").objective.projector[-1]
    size = sum(values.numel() for values in model.values() if values.is_floating_point()) + 512 * projector
    best_of_20, _ = quad(lambda x: 20 * x * norm.pdf(x) * norm.cdf(x) ** 19, -9, 9)
    return {
        "(SimCLR, 39.8 %)": min(common["SimCLR"][["FedAvg", "L-DAWA"]]),
        "(Barlow Twins, 19.2 %)": min(common["Barlow Twins"][["FedAvg", "L-DAWA"]]),
        "ends at 49.5 and 25.7 %": (last["FedAvg", "SimCLR"], last["FedAvg", "Barlow Twins"]),
        "3.3 rounds more, with an interval of 0.5 to 6.2": (
            -simclr.value,
            -simclr.interval()[1],
            -simclr.interval()[0],
        ),
        "ends at 45.4 and 23.9 %": (
            last["L-DAWA after FedAvg", "SimCLR"],
            last["L-DAWA after FedAvg", "Barlow Twins"],
        ),
        "16.3 % that an untrained": 100 * rows(ours, ssl_method="Barlow Twins").untrained.mean(),
        "learning rate of 0.003": ldawa_settings("laptop", method="FedAvg", ssl_method="Barlow Twins").learning_rate,
        "61 % in four rounds": A[-1],
        "65 %. Which": B[-1],
        "rounds to 45 %, to 60 %": (45, 60),
        "To 45 % both": 45,
        "to 60 % A": 60,
        "61 %: four rounds": min(max(A), max(B)),
        "by 1.87": best_of_20,
        "11.24 million": size / 1e6,
    }
