from fssl_core.experiments import split_settings
from tests.notebooks.prose.recorded import ahead, record, rows, verdict


def numbers():
    ours = record("mocosfl/fig1")
    by_batch, by_clients, by_negatives = (rows(ours, panel=panel) for panel in "abc")
    kinds = ["fresh", "aged", "random"]
    negatives = 100 * by_negatives.groupby("objective.negatives").knn_accuracy.mean()[kinds]
    of_seed_0 = 100 * rows(by_negatives, seed=0).set_index("objective.negatives").knn_accuracy[kinds]
    fresh, _, random = ({"objective.negatives": kind} for kind in kinds)
    few, many = ({"method": "FL-MoCoV2", "clients": clients} for clients in (5, 100))
    batch, clients, hard = (
        verdict(f"mocosfl-fig1{name}") for name in ("a-batch-size", "b-client-count", "c-hard-negatives")
    )
    accuracy = {
        (method, axis): (100 * rows(panel, method=method).groupby(axis).knn_accuracy.mean()).tolist()
        for panel, axis in ((by_batch, "batch"), (by_clients, "clients"))
        for method in panel.method.unique()
    }
    return {
        "95 % intervals": 95,
        "50.0, 45.5 and 38.3 with": accuracy["FL-BYOL", "batch"],
        "by 11.8 points from the first to the last (5.1 to 18.5 at the 98.75 %": (
            *(-batch.estimate, -batch.high, -batch.low),
            100 * batch.level,
        ),
        "44.9, 49.0 and 47.6": accuracy["FL-MoCoV2", "batch"],
        "49.0, 45.0 and 30.2": accuracy["FL-MoCoV2", "clients"],
        "loses 18.8 points (12.4 to 25.2)": ahead(rows(by_clients, method="FL-MoCoV2"), few, many, "knn_accuracy"),
        "4.0 points from 5 to 20": clients.estimate,
        "54.6, 52.3 and 54.0": accuracy["MocoSFL", "clients"],
        "give 49.0, aged ones 46.5, random ones 42.4": negatives.tolist(),
        "are 6.6 points ahead of random ones (1.0 to 12.2": ahead(by_negatives, fresh, random, "knn_accuracy"),
        "2.5 ahead of aged ones, from 3.1 behind to 8.1 ahead": (hard.estimate, -hard.low, hard.high),
        "group norm gives 46.7, 44.4 and 40.3 %": of_seed_0.tolist(),
        "the paper's 20 %": 100 * split_settings("paper", method="MocoSFL", clients=5).validation_share,
        "a loss of 0.13": by_negatives.groupby("objective.negatives").loss.mean()["random"],
    }


NOT_RECORDED = {"about 30 % with any": "runs of an exercise"}
