from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record


def numbers():
    ours = record("mfcl/table6").set_index(["method", "protocol", "protection"]).accuracy.sort_index() * 100
    linear, features = (ours["MFCL(TN), views apart", name] for name in ("linear evaluation", "features"))
    together = ours["MFCL(TN)", "linear evaluation"]
    printed = paper_table("mfcl", "table6").query("secure_aggregation == 0").set_index("datamix")["value"]
    return {
        "costs 8.3 points": linear["none"] - linear["DM"],
        "64.8 to 56.5 %": (linear["none"], linear["DM"]),
        "55.3 to 47.0": (features["none"], features["DM"]),
        "the paper says 1.7": printed[0] - printed[1],
        "costs (56.3 %)": linear["SA+DM"],
        "shows 67.3 % in the place of 64.8": (linear["SA"], linear["none"]),
        "2.5 points": linear["SA"] - linear["none"],
        "14 to 16 %": together.max(),
        "0.75 with two and 0.61 with three": ((1 + 1 / 2) / 2, (1 + 1 / 2 + 1 / 3) / 3),
    }
