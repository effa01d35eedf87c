from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import ahead, record, rows


def numbers():
    runs = rows(record("mfcl/table14"), protocol="linear evaluation")
    ours = 100 * runs.pivot_table("accuracy", "method", "xi")
    _, low, high = ahead(runs, {"method": "MFCL(GN)", "xi": 0.5}, {"method": "MFCL(GN)", "xi": 0.1})
    learn = ours.drop(index="MFCL(TN)")
    steps = list(ours.columns)
    printed = printed_cells("mfcl", "table14").pivot_table("value", ["method", "dataset"], "xi")
    batch = printed.loc[("MFCL(BN)", "CIFAR-10")]
    falls = -printed.loc["Orchestra"][[0.5, 200]].diff(axis=1)[200]
    ema = printed.loc[("FedEMA", "CIFAR-100")]
    spreads = rows(printed_cells("mfcl", "table2"), method="FedEMA", dataset="CIFAR-100")["std"]
    return {
        "has 40 % of them at 0.5": (100 * (batch[0.5] - batch[0.1]) / (batch[200] - batch[0.1]), steps[1]),
        "over 0.5 to 200 no": steps[1],
        "95 % intervals": 95,
        "67.0, 66.7, 68.4 %": [*ours.loc["MFCL(GN)"]],
        "62.7, 61.8, 65.4 and": [*ours.loc["MFCL(BN)"]],
        "66.4, 66.0, 65.8": [*ours.loc["MFCL(TN), views apart"]],
        "3.9 points to either side": (high - low) / 2,
        "15 % or less": ours.loc["MFCL(TN)"].max(),
        "61.8 to 68.4 %": (learn.min(axis=None), learn.max(axis=None)),
        "down to 0.01 FedAvg": record("mfcl/table2").xi.min(),
        "at 0.01 gives": record("mfcl/table2").xi.min(),
        "rise from 0.1 over 0.5 to": steps[:2],
        "by 0.3 to 0.4 points less at 200 than at 0.5": (falls.min(), falls.max(), steps[1]),
        "40.3, 40.9 and 37.6": [*ema[steps]],
        "cells of rivals at 0.5": steps[1],
        "below 0.1.": spreads.max(),
    }
