from fssl_core.papers.reference import paper_table, printed_cells
from tests.notebooks.prose.mfcl.table2 import APART
from tests.notebooks.prose.recorded import ahead, record, rows

IMAGES = 10_000  # in CIFAR's test sets


def error(percent: float) -> float:
    """Standard error of an accuracy, in points."""
    return (percent * (100 - percent) / IMAGES) ** 0.5


def numbers():
    ours = rows(record("mfcl/table7"), protocol="linear evaluation")
    accuracy, untrained = (100 * ours.groupby("method")[column].mean() for column in ("accuracy", "untrained"))
    table7 = printed_cells("mfcl", "table7").pivot(index="method", columns="dataset", values="value")
    ema, mfcl = table7.loc["FedEMA"], table7.loc["MFCL(TN)"]
    lead = mfcl - ema
    table2 = rows(printed_cells("mfcl", "table2"), dataset="CIFAR-100").set_index(["method", "xi"])
    even = table2["value"].xs(200, level="xi")
    quoted = rows(paper_table("mocosfl", "table1"), method="FL-BYOL", clients=5).set_index("dataset")["value"]
    return {
        "lead 10.2": even["MFCL(TN)"] - even["FedEMA"],
        "95 % intervals": 95,
        "has 11.7 %, FedEMA 23.1, FedSimCLR 32.6": [*accuracy[["MFCL(TN)", "FedEMA", "FedSimCLR"]]],
        "MFCL has 62.9 %": accuracy[APART],
        "30.3 points more than FedSimCLR (28.3 to 32.3)": ahead(ours, {"method": APART}, {"method": "FedSimCLR"}),
        "(22.3 and 16.2 %)": [*untrained[["FedEMA", "MFCL(TN)"]]],
        "a lead of 0.2": lead["CIFAR-100"],
        "ahead by 0.2": lead["CIFAR-100"],
        "is 0.49 points": error(mfcl["CIFAR-100"]),
        "0.69. The": error(mfcl["CIFAR-100"]) * 2**0.5,
        "up to 0.2 points for": table2["std"].xs("MFCL(TN)").max(),
        "2.3 points on": lead["CIFAR-10"],
        "error of 0.5": error(mfcl["CIFAR-10"]) * 2**0.5,
        "83.34 and 61.78 %": [*quoted[["CIFAR-10", "CIFAR-100"]]],
        "83.3 and 61.7": [*ema[["CIFAR-10", "CIFAR-100"]]],
        "with 61.78 cut": quoted["CIFAR-100"],
        "stays at 0.8": 1 - 2 / 10,  # of a client with two of ten classes
    }
