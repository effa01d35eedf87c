from fssl_core.costs.modular import module_sizes
from fssl_core.models.client_module import client_module
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.mfcl.table2 import APART
from tests.notebooks.prose.recorded import ahead, record, rows, verdict


def numbers():
    ours = record("mfcl/table1")
    runs = rows(ours, protocol="linear evaluation", method=APART)
    apart = 100 * rows(ours, method=APART).groupby(["protocol", "cut"]).accuracy.mean()
    linear = apart["linear evaluation"]
    together = 100 * rows(ours, protocol="linear evaluation", method="MFCL(TN)").groupby("cut").accuracy.mean()
    deep, second = (
        ahead(runs, {"method": APART, "cut": one}, {"method": APART, "cut": other}) for one, other in ((3, 5), (2, 1))
    )
    judged = verdict("mfcl-table1-cut-layer", "views normalised apart")
    printed = paper_table("mfcl", "table1")
    value = printed.set_index(["dataset", "cut_layer"])["value"]
    products = module_sizes(client_module("resnet18", 2), 32).products
    return {
        "95 % intervals": 95,
        "64.8, 64.5 and 66.8 %": [*linear[[1, 2, 3]]],
        "54.6 for five, which is 12.2 points behind three (3.4 to 21.0)": (linear[5], *deep),
        "55.1, 53.9, 54.0, 44.3 %": [*apart["features"]],
        "within 9.1 points to": max(map(abs, second)),
        "most, 28.6 %": together.max(),
        "2.0 points ahead of one, from 6.8 behind to 10.9 ahead": (judged.estimate, -judged.low, judged.high),
        "is 0.01 at": ours.xi.unique().item(),
        "0.1 in the paper": printed.xi.unique().item(),
        "gains 25.4 points": value["CIFAR-10", 2] - value["CIFAR-10", 1],
        "37.7 million": (products - module_sizes(client_module("resnet18", 1), 32).products) / 1e6,
        "8.1 points": value["Tiny ImageNet", 4] - value["Tiny ImageNet", 1],
        "rate of 0.00001": 1e-5,  # of the exercise
    }
