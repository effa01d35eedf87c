import torch

from fssl_core.evaluation import clusters
from fssl_core.experiments import mfcl_settings
from fssl_core.random import generator
from tests.notebooks.prose.recorded import record, verdict

STARTS = "t-SNE at three perplexities from four starts, which the exercise runs"
NOT_RECORDED = {"23 % with a perplexity of 5, 21 % with 30 and 16 % with 100": STARTS}


def pixels() -> float:
    """Purity in the pixels of the pictured images."""
    data = mfcl_settings("laptop", method="MFCL(GN)").load_data()
    labels = data.train.labels
    pictured = torch.randperm(len(labels), generator=generator(0, "points"))[:1000]
    return clusters.cluster_measures(data.train.images[pictured].flatten(1) / 255, labels[pictured]).purity


def numbers():
    purity = 100 * record("mfcl/fig9").groupby("method").purity.mean()
    judged = verdict("mfcl-fig9-tsne", "views normalised apart")
    rule = 100 * clusters.SEPARATED
    return {
        "95 % intervals": 95,
        "from 21 to 38 and 50 %": purity["MFCL(GN)"],
        "single client's raw images is 56 %": purity["raw, one client"],
        "It is 21 % for all clients": purity["raw, all clients"],
        "has 43 %": purity["MFCL(TN), views apart"],
        "(purity of 80 %)": rule,
        "is 0.05 below group norm, from 0.16 below to 0.06 above": (-judged.estimate, -judged.low, judged.high),
        "a purity of 11 %, chance": purity["MFCL(TN)"],
        "Purity of 80 % is": rule,
        "have a purity of 25 %": 100 * pixels(),
        "a purity of about 75 %": 100 / (1 + 1 / 3),
    }
