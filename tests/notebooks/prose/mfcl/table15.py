import pandas as pd

from fssl_core.costs.modular import backbone_sizes
from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record, rows

APART = "MFCL(TN), views apart"
DENSE = 25088 * 4096 + 4096**2 + 4096 * 1000  # weights and multiply-adds of the three dense layers


def printed(table: str) -> pd.Series:
    cells = rows(printed_cells("mfcl", table), dataset="CIFAR-10")
    return cells[cells.method.isin(["FedSimCLR", "MFCL(TN)"])].set_index(["method", "xi"])["value"]


def numbers():
    ours = rows(record("mfcl/table15"), protocol="linear evaluation")
    ours = 100 * ours.set_index(["method", "xi"]).accuracy.sort_index()
    resnet = rows(record("mfcl/table2"), protocol="linear evaluation", method=APART).groupby("xi").accuracy.mean()
    change = (printed("table15") - printed("table2")).dropna().unstack("xi")
    simclr, mfcl = change.loc["FedSimCLR"], change.loc["MFCL(TN)"]
    sizes = backbone_sizes("VGG-16-BN")
    parameters, products = 100 * DENSE / sizes.parameters, 100 * DENSE / sizes.products
    return {
        "33.5 against 18.6 %": [ours[method, 0.01] for method in (APART, "FedSimCLR")],
        "32.7 against 22.5": [ours[method, 200] for method in (APART, "FedSimCLR")],
        "14.6 and 16.7": [*ours["MFCL(TN)"]],
        "64.5 and 65.8 %": [*100 * resnet[[0.01, 200]]],
        "FedSimCLR +0.1 at": simclr[0.01],
        "-0.6 at 200": -simclr[200],
        "MFCL(TN) -1.3 and -1.8": [*-mfcl],
        "89 % of the parameters make 28 %": (parameters, products),
        "other 11 %, make 72 %": (100 - parameters, 100 - products),
        "at most 0.6 points": -simclr[200],
        "up to 1.8;": -mfcl.min(),
    }
