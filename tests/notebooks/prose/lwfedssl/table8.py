from math import sqrt

import pandas as pd

from fssl_core.claims.estimation import Cells
from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import comparisons, record, rows, verdict

METHODS = ["FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"]
STAGED = METHODS[1:]
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

    real = record("lwfedssl/table8", "workstation")
    rare, often = sorted(100 * real.dropout_probability.dropna().unique())
    setting = real.setting.str.partition("\n")[0]
    by_setting = 100 * real.pivot_table("accuracy", ["protocol", setting], "method")
    tuned, probe = by_setting.loc["fine-tuning"], by_setting.loc["linear probe"]
    behind = -tuned[STAGED].sub(tuned.FedSimCLR, axis=0)
    untrained = 100 * real.groupby("protocol").untrained.mean()
    ahead = verdict("lwfedssl-table8-client-dropout", profile="workstation")
    intervals = [one.interval() for one in comparisons("lwfedssl-table7-8-robust", profile="workstation")]
    real_halves = (tuned.loc["10 of 20"] - tuned.loc["50 %"]).abs()
    learned = rows(real, protocol="fine-tuning").dropna(subset="dropout_probability")
    learned = learned.assign(above=100 * (learned.accuracy - learned.untrained))
    learned = Cells(learned, "above", ["method", "dropout_probability"])
    learned = learned.mean(method="LW-FedSSL", dropout_probability=rare / 100).estimate
    return {
        "3.5 points behind end-to-end training where 25 %": (behind["LW-FedSSL"]["25 %"], rare),
        "an interval of 2.7 to 4.2": (-ahead.high, -ahead.low),
        "and 3.4 where 50 %": (behind["LW-FedSSL"]["50 %"], often),
        "progressive training is 0.5 and 0.4 behind": behind["Prog-FedSSL"][["25 %", "50 %"]].tolist(),
        "36.3, 34.9 and 32.0 % where 25 %": [
            *probe.loc["25 %", ["FedSimCLR", "Prog-FedSSL", "LW-FedSSL"]],
            rare,
        ],
        "where 25 % drop out it is 2.3 points above": (rare, learned.value),
        "has 30.9 %, with an interval of 0.4 to 4.1": (untrained["fine-tuning"], *learned.interval()),
        "untrained encoder has 30.2": untrained["linear probe"],
        "has 3.9 and 3.6 points": behind["LW-FedSSL"][["5 of 20", "10 of 20"]].tolist(),
        "by 0.3 to 0.4 points by fine-tuning": (tuned.agg(reach).min(), tuned.agg(reach).max()),
        "differ by 0.5 to 0.8. The two": (ranges.min(), ranges.max()),
        "are 0.0 to 0.2 points apart": (real_halves.min(), real_halves.max()),
        "reaches 1.3 points": max(abs(bound) for interval in intervals for bound in interval),
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
