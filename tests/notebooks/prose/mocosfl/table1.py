from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record


def numbers():
    ours = 100 * record("mocosfl/table1").groupby(["cut_layer", "clients"]).linear_probe_accuracy.mean()
    paper = paper_table("mocosfl", "table1").pivot(index=["dataset", "clients"], columns="method", values="value")
    cuts = paper["MocoSFL-1"] - paper["MocoSFL-3"]
    gain = paper["MocoSFL-3"] - paper["FL-BYOL"]
    return {
        "67.4 % with 5 clients and 65.6 % with 20": ours[1].tolist(),
        "MocoSFL-3 64.3 and 62.0 %": ours[3].tolist(),
        "the paper's 0.3 to 1.1": (cuts.min(), cuts.max()),
        "0.28 to 1.08 points": (cuts.min(), cuts.max()),
        "+3.95, +9.55 and +4.74 points": gain[gain > 0].tolist(),
        "FL-BYOL is 4.08 points better": -gain["CIFAR-100", 5],
    }
