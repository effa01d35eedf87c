from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import ahead, record, rows


def numbers():
    ours = rows(record("mfcl/table5"), protocol="linear evaluation")
    means = 100 * ours.groupby(["method", "xi"]).accuracy.mean()
    bn, gn, tn = (means[f"FedSimCLR({norm})"] for norm in ("BN", "GN", "TN"))
    printed = printed_cells("mfcl", "table5").set_index(["method", "xi"])["value"].xs(0.01, level="xi")
    gained = {
        xi: ahead(ours, {"method": "FedSimCLR(GN)", "xi": xi}, {"method": "FedSimCLR(BN)", "xi": xi})
        for xi in (0.01, 0.1)
    }
    norm_first = printed["FedSimCLR(TN)"] - printed["FedSimCLR(BN)"]
    modular_first = printed["MFCL(BN)"] - printed["FedSimCLR(BN)"]
    return {
        "95 % intervals": 95,
        "36.3 instead of 28.4 %": (gn[0.01], bn[0.01]),
        "7.9 points more (3.8 to 11.9)": gained[0.01],
        "38.2 instead of 32.5 at 0.1, 5.8 more (1.7 to 9.8)": (gn[0.1], bn[0.1], ours.xi.max(), *gained[0.1]),
        "14.6 and 14.9 %": [*tn],
        "untrained self (22.3)": 100 * rows(ours, method="FedSimCLR(TN)").untrained.mean(),
        "table (15.3 %)": printed["MFCL(BN)"],
        "6.7 points": norm_first,
        "then 11.8": printed["MFCL(TN)"] - printed["FedSimCLR(TN)"],
        "-50.3 for": -modular_first,
        "then 68.8": printed["MFCL(TN)"] - printed["MFCL(BN)"],
        "add up to 18.5": printed["MFCL(TN)"] - printed["FedSimCLR(BN)"],
    }
