from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import record, verdict


def numbers():
    means = record("lwfedssl/fig6").groupby("method")[["distance", "per_weight"]].mean()
    real = record("lwfedssl/fig6", "workstation")
    by_method = real.groupby("method")[["distance", "per_weight", "accuracy"]].mean()
    layerwise, progressive, whole = (by_method.loc[name] for name in ("LW-FedSSL", "Prog-FedSSL", "FedSimCLR"))
    above = Cells(real.assign(above=100 * (real.accuracy - real.untrained)), "above", ["method"])
    above = above.mean(method="LW-FedSSL").estimate
    lead = verdict("lwfedssl-fig6-divergence", profile="workstation")
    one_block_of_twelve = (1 / 12) ** 0.5
    return {
        "1.01 layer by layer, 1.90 progressively and 2.53 end-to-end": [
            one.distance for one in (layerwise, progressive, whole)
        ],
        "0.63 with an interval of 0.61 to 0.66": (lead.estimate, lead.low, lead.high),
        "(31.9, 34.5 and 36.1 % beside 30.2)": [
            *(100 * one.accuracy for one in (layerwise, progressive, whole)),
            100 * real.untrained.mean(),
        ],
        "1.7 points (0.3 to 3.0)": (above.value, *above.interval()),
        "0.00308 end-to-end, 0.00302 layer by layer, 0.00310 progressively": [
            one.per_weight for one in (whole, layerwise, progressive)
        ],
        "0.71 layer by layer": means.distance["LW-FedSSL"],
        "0.83 progressively": means.distance["Prog-FedSSL"],
        "1.79 end-to-end": means.distance["FedSimCLR"],
        "0.0032 end-to-end": means.per_weight["FedSimCLR"],
        "0.0030 with both": means.per_weight["LW-FedSSL"],
        "0.0030 with both others": means.per_weight["Prog-FedSSL"],
        "from 0.29 to 1": one_block_of_twelve,
    }
