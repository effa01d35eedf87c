from math import sqrt

import pandas as pd

from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record, verdict

METHODS = ["FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"]
EXPECTED_RANGE = 2.06  # of four normal values, in standard deviations


def reach(values):
    return values.max() - values.min()


def numbers():
    ours = record("lwfedssl/table8")
    of_setting = ours.groupby(["protocol", "method", "setting"]).accuracy.agg(["mean", reach]) * 100
    of_method = of_setting.groupby(["protocol", "method"])
    means, seeds = of_method["mean"].agg(reach), of_method["reach"].max()

    printed = pd.concat([printed_cells("lwfedssl", "table7"), printed_cells("lwfedssl", "table8")])
    printed = printed.fillna({"participating": 0, "dropout_probability": 0})
    averages = printed.pivot_table("value", ["participating", "dropout_probability"], "method")[METHODS]
    ranges = averages.agg(reach)
    halves = averages.loc[50, 0] - averages.loc[0, 0.5]
    late = 0.5
    return {
        "by 0.5 to 2.2 points": (means.min(), means.max()),
        "by up to 3.0 to 5.9 points": (seeds.min(), seeds.max()),
        "printed ranges of 0.5 to 0.8 points": (ranges.min(), ranges.max()),
        "0.78, 0.57 and 0.48 points": ranges.tolist(),
        "= 0.38, 0.28 and 0.23": (ranges / EXPECTED_RANGE).tolist(),
        "0.3 to 0.5; the": [sqrt(2) * sigma / EXPECTED_RANGE for sigma in (ranges.min(), ranges.max())],
        "by 0.12, 0.36 and 0.48": halves.abs().tolist(),
        "1.5 times the traffic": (1 + (1 - late)) / (2 * (1 - late)),
        "4.2 times the computation": verdict("lwfedssl-headline-gflops").estimate,
        "5.1 times its traffic": verdict("lwfedssl-headline-communication").estimate,
    }
