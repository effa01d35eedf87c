import torch

from fssl_core.evaluation import clusters
from fssl_core.experiments import mfcl_settings
from fssl_core.random import generator
from tests.notebooks.prose.recorded import record

FOUR = ["MFCL(BN)", "MFCL(GN)", "MFCL(TN)", "MFCL(TN), views apart"]
STARTS = "t-SNE at three perplexities from four starts, which the exercise runs"
NOT_RECORDED = {"23 % with a perplexity of 5, 21 % with 30 and 16 % with 100": STARTS}


def pixels() -> float:
    """Purity in the pixels of the pictured images."""
    data = mfcl_settings("laptop", method="MFCL(GN)").load_data()
    labels = data.train.labels
    pictured = torch.randperm(len(labels), generator=generator(0, "points"))[:1000]
    return clusters.cluster_measures(data.train.images[pictured].flatten(1) / 255, labels[pictured]).purity


def numbers():
    plane = record("mfcl/fig9").set_index("method")
    purity, silhouette = 100 * plane.purity, plane.cluster_quality[FOUR]
    rule = 100 * clusters.SEPARATED
    return {
        "from 20 to 36 and 45 %": [*purity[["MFCL(BN)", "MFCL(GN)"]]][-1],
        "single client's raw images is 56 %": purity["raw, one client"],
        "has 44 %": purity["MFCL(TN), views apart"],
        "(purity of 80 %)": rule,
        "between -0.08 and -0.05": (-silhouette.min(), -silhouette.max()),
        "a purity of 11 %, chance": purity["MFCL(TN)"],
        "Purity of 80 % is": rule,
        "have a purity of 25 %": 100 * pixels(),
        "a purity of about 75 %": 100 / (1 + 1 / 3),
    }
