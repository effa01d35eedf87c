from fssl_core.experiments import split_settings
from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = record("mocosfl/fig1")
    by_batch, by_clients, by_negatives = (rows(ours, panel=panel) for panel in "abc")
    negatives = (100 * by_negatives.set_index("objective.negatives").knn_accuracy)[["fresh", "aged", "random"]]
    accuracy = {
        (method, axis): (100 * rows(panel, method=method).sort_values(axis).knn_accuracy).tolist()
        for panel, axis in ((by_batch, "batch"), (by_clients, "clients"))
        for method in panel.method.unique()
    }
    return {
        "44.3, 46.7 and 48.4": accuracy["FL-MoCoV2", "batch"],
        "46.0, 40.5 and 38.7": accuracy["FL-BYOL", "batch"],
        "46.7, 43.1 and 29.8": accuracy["FL-MoCoV2", "clients"],
        "55.5, 50.6 and 53.0": accuracy["MocoSFL", "clients"],
        "give 46.7, aged ones 44.4, random ones 40.3": negatives.tolist(),
        "group norm gives 46.7, 44.4 and 40.3 %": negatives.tolist(),
        "the paper's 20 %": 100 * split_settings("paper", method="MocoSFL", clients=5).validation_share,
        "a loss of 0.13": by_negatives.set_index("objective.negatives").loss["random"],
    }


NOT_RECORDED = {"about 30 % with any": "runs of an exercise"}
