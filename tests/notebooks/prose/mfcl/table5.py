from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = rows(record("mfcl/table5"), protocol="linear evaluation")
    means = 100 * ours.groupby(["method", "xi"]).accuracy.mean()
    bn, gn, tn = (means[f"FedSimCLR({norm})"] for norm in ("BN", "GN", "TN"))
    printed = printed_cells("mfcl", "table5").set_index(["method", "xi"])["value"].xs(0.01, level="xi")
    milder = ours.xi.max()
    norm_first = printed["FedSimCLR(TN)"] - printed["FedSimCLR(BN)"]
    modular_first = printed["MFCL(BN)"] - printed["FedSimCLR(BN)"]
    return {
        "one at 0.1)": milder,
        "35.4 instead of 28.6 %": (gn[0.01], bn[0.01]),
        "36.9 instead of 34.0 at 0.1;": (gn[0.1], bn[0.1], milder),
        "14.3 and 13.9 %": [*tn],
        "table (15.3 %)": printed["MFCL(BN)"],
        "one at 0.1.": milder,
        "6.7 points": norm_first,
        "then 11.8": printed["MFCL(TN)"] - printed["FedSimCLR(TN)"],
        "-50.3 for": -modular_first,
        "then 68.8": printed["MFCL(TN)"] - printed["MFCL(BN)"],
        "add up to 18.5": printed["MFCL(TN)"] - printed["FedSimCLR(BN)"],
    }
