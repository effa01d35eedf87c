from fssl_core.costs.traffic import engine_traffic
from fssl_core.models import build_backbone, cut_layers
from tests.notebooks.prose.recorded import comparisons, record

MIB = 2**20


def traffic(syncs: int, momentum_sync: bool) -> dict[int, float]:
    """MiB that a client of `laptop` exchanges in an epoch of 400 images, by cut."""
    backbone = build_backbone("resnet10", width=16, norm="group", image_size=16, channels=1, values=False)
    counted = {"images": 400, "syncs": syncs, "momentum_sync": momentum_sync}
    return {
        cut: sum(one.bytes for one in engine_traffic(backbone, cut, **counted)) / MIB for cut in cut_layers(backbone)
    }


def numbers():
    ours = record("monacosfl/fig1")
    mean = ours.groupby(["method", "cut_layer"])[["bytes_per_client_epoch", "linear_probe_accuracy"]].mean()
    accuracy, sent = 100 * mean.linear_probe_accuracy, mean.bytes_per_client_epoch
    formula = ours[ours.rule == "two-way"].set_index("cut_layer")
    eight, four = ((formula.activation_bytes * bits / 32 + formula.sync_bytes) / MIB for bits in (8, 4))
    often = traffic(10, True)
    _, loses, *_ = comparisons("monacosfl-fig1-accuracy-gap-at-optimum", profile="workstation")
    runs = record("monacosfl/fig1", "workstation")
    untrained, runs = 100 * runs.untrained.mean(), runs.groupby(["method", "cut_layer"])
    real, probe = runs.bytes_per_client_epoch.mean() / MIB, 100 * runs.linear_probe_accuracy.mean()
    return {
        "from 375.0 to 96.8 MiB": [*real["MonAcoSFL"][[1, 11]]],
        "pays 10.3 points of accuracy for it, of the 22.8": (
            probe["MocoSFL", 1] - probe["MocoSFL", 11],
            probe["MocoSFL", 1] - untrained,
        ),
        "by 2.7 points, from 0.1 less to 5.6 more": [abs(part) for part in (loses.value, *loses.interval())],
        "MonAcoSFL 2.8. MonAcoSFL is 9.0 points ahead": (
            probe["MonAcoSFL", 1] - probe["MonAcoSFL", 11],
            probe["MonAcoSFL", 11] - probe["MocoSFL", 11],
        ),
        "for 1.6 % more traffic": 100 * (real["MonAcoSFL", 11] / real["MocoSFL", 11] - 1),
        "59.2 MiB for MonAcoSFL, 53.1 for MocoSFL": (real["MonAcoSFL"].min(), real["MocoSFL"].min()),
        "7.6 points ahead there, 5.2 below its own": (
            probe["MonAcoSFL", 15] - probe["MocoSFL", 15],
            probe["MonAcoSFL", 1] - probe["MonAcoSFL", 15],
        ),
        "for 11.6 % more traffic": 100 * (real["MonAcoSFL", 15] / real["MocoSFL", 15] - 1),
        "from 37.5 to 19 MiB": sent["MonAcoSFL", 1] / MIB,
        "(64.1 and 62.4 %)": accuracy["MonAcoSFL"][[1, 5]].tolist(),
        "pays 0.8 % more traffic": 100 * (sent["MonAcoSFL", 5] / sent["MocoSFL", 5] - 1),
        "217.9 MiB at layer 11, 221.0 at layer 7": eight[[11, 7]].tolist(),
        "125.3 against 170.1 MiB": four[[7, 11]].tolist(),
        "Layer 7, with 21.1 MiB, just before layer 5 with 21.7": (often[7], often[5]),
        "with 9.4 MiB, now costs 51.6": (traffic(1, True)[9], often[9]),
        "at layer 7 needs 15.3 MiB": traffic(10, False)[7],
    }
