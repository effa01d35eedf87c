from math import log10

from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record, rows

NOT_RECORDED = {
    "21.9 without": "HeteroFL without its mask",
    "93.1 for own classifiers": "FedPAC by its clients' own classifiers, which the record leaves out",
}
APART = "MFCL(TN), views apart"


def numbers():
    cells = record("mfcl/table4").groupby(["protocol", "method", "xi"]).accuracy
    mean, std = 100 * cells.mean(), 100 * cells.std()
    linear = mean["linear evaluation"]
    uneven, even = linear.xs(0.01, level="xi"), linear.xs(200, level="xi")
    spread = std["linear evaluation", APART]
    printed = printed_cells("mfcl", "table4").query("dataset == 'CIFAR-10'")
    printed = printed.pivot(index="method", columns="xi", values="value")
    hetero, mfcl = (printed.loc[name, 200] - printed.loc[name, 0.01] for name in ("HeteroFL", "MFCL(TN)"))
    lead = printed.loc["MFCL(TN)", 0.01] - printed.loc["HeteroFL", 0.01]
    decades = log10(200 / 0.01)
    avg = rows(printed_cells("mfcl", "table14"), method="FedAvg", dataset="CIFAR-10").set_index("xi")["value"]
    twin = rows(printed_cells("mfcl", "table14"), method="MFCL(TN)", dataset="CIFAR-10").set_index("xi")["value"]
    early = [(avg[xi] - avg[0.01]) / (avg[200] - avg[0.01]) for xi in (0.1, 0.5)]
    return {
        "64.5 ± 0.8 %": (uneven[APART], spread[0.01]),
        "HeteroFL 10.0, Split-Mix 16.9, FedPAC 16.3": [*uneven[["HeteroFL", "Split-Mix", "FedPAC"]]],
        "whole models, 17.6": uneven["FedAvg"],
        "72.2 and HeteroFL 68.3 %, Split-Mix 48.5 and FedAvg 58.5": [
            *even[["FedPAC", "HeteroFL", "Split-Mix", "FedAvg"]]
        ],
        "65.8 ± 2.9 %": (even[APART], spread[200]),
        "55.9 by the features": mean["features", APART, 200],
        "chance, 10 %": 100 * record("mfcl/table4").chance.max(),
        "15.3 and 14.1 %": [*linear["MFCL(TN)"]],
        "has 10.0 % with": uneven["HeteroFL"],
        "that is 16.3 %": uneven["FedPAC"],
        "From 0.01 to 200 are 4.3": (0.01, decades),
        "and 0.5, too": 0.5,
        "gains 39.3 points in 4.3 decades, MFCL 0.4": (hetero, decades, mfcl),
        "lead of 34.8": lead,
        "of 29.8 points": avg[200] - avg[0.01],
        "57 % at 0.1 and 73 % at 0.5": (100 * early[0], 0.1, 100 * early[1], 0.5),
        "71.6 and 78.2": [printed.loc["HeteroFL", 0.01] + share * hetero for share in early],
        "by 6 at 0.5": 0.5,
        "the 85.3 that": twin[200],
    }
