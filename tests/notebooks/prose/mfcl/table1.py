from fssl_core.costs.modular import module_sizes
from fssl_core.models.client_module import client_module
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = record("mfcl/table1")
    apart = rows(ours, method="MFCL(TN), views apart").set_index(["protocol", "cut"]).accuracy * 100
    linear = apart["linear evaluation"]
    together = 100 * rows(ours, method="MFCL(TN)", protocol="linear evaluation").set_index("cut").accuracy
    printed = paper_table("mfcl", "table1")
    value = printed.set_index(["dataset", "cut_layer"])["value"]
    products = module_sizes(client_module("resnet18", 2), 32).products
    return {
        "65.9, 64.8 and 64.7 %": [*linear[[1, 2, 3]]],
        "50.1 for five": linear[5],
        "55.1, 55.3, 48.0, 39.4 %": [*apart["features"]],
        "most, 22.8 %": together.max(),
        "is 0.01 at": ours.xi.unique().item(),
        "0.1 in the paper": printed.xi.unique().item(),
        "gains 25.4 points": value["CIFAR-10", 2] - value["CIFAR-10", 1],
        "37.7 million": (products - module_sizes(client_module("resnet18", 1), 32).products) / 1e6,
        "8.1 points": value["Tiny ImageNet", 4] - value["Tiny ImageNet", 1],
        "rate of 0.00001": 1e-5,  # of the exercise
    }
