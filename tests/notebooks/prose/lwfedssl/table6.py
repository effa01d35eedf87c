from math import log

from fssl_core.costs.layerwise import GB, GFLOP, build_encoder, communication_bytes, resources
from fssl_core.costs.parts import build_model
from fssl_core.federation.schedule import schedule
from fssl_core.papers.reference import paper_value
from tests.notebooks.prose.recorded import accuracies, comparisons, kept_behind, record, rows, settings, verdict

STAGED = ("LW-FedSSL", "Prog-FedSSL")


def numbers():
    ours = record("lwfedssl/table6")

    def accuracy(method, protocol, add_on, data):
        return accuracies(ours, method=method, protocol=protocol, add_on=add_on, dataset=data)

    fine_tuning, probe = "fine-tuning", "linear probe"
    alignments = {
        (method, protocol, add_on): accuracy(method, protocol, f"{add_on} alignment", "scattered-digits")
        - accuracy(method, protocol, "none", "scattered-digits")
        for method in STAGED
        for protocol in (fine_tuning, probe)
        for add_on in ("proximal", "representation")
    }
    whole, dropped = (
        {
            (method, protocol): accuracy(method, protocol, add_on, "digits").mean()
            for method in STAGED
            for protocol in (fine_tuning, probe)
        }
        for add_on in ("none", "depth dropout")
    )
    depth, aligned_here = (verdict(f"lwfedssl-table6-{name}") for name in ("depth-dropout", "alignment"))
    runs = settings("lwfedssl/table6")

    most, least = (paper_value("lwfedssl", "table6", "peak_memory", name, add_on="none") for name in STAGED[::-1])
    real = record("lwfedssl/table6", "workstation")
    real_probe = {
        (method, add_on): accuracies(real, method=method, protocol=probe, add_on=add_on).mean()
        for method in STAGED
        for add_on in ("none", "depth dropout", "proximal alignment", "representation alignment")
    }
    layerwise_probe = [value for (method, _), value in real_probe.items() if method == "LW-FedSSL"]
    lost = {add_on: real_probe["Prog-FedSSL", "none"] - real_probe["Prog-FedSSL", add_on] for _, add_on in real_probe}
    dropped_lw, dropped_prog = comparisons("lwfedssl-table6-depth-dropout", profile="workstation")[:2]
    aligned = comparisons("lwfedssl-table6-alignment", profile="workstation")[:4]
    low, high = aligned[0].interval()
    real_rounds = kept_behind("lwfedssl/table6", "LayerwiseSettings", "workstation")
    by_weights = real_rounds.fillna({"most_layers": 0}).groupby(
        ["scheme", "most_layers", "proximal", "representation_alignment"]
    )
    distance = by_weights.weight_distance.mean().unstack([1, 2, 3])
    closer = {weights: 100 * (1 - distance[weights] / distance[0, 0, 0]) for weights in ((0, 0.01, 0), (0, 0, 1))}
    alignment = rows(real_rounds, epoch=12, representation_alignment=1).groupby("scheme").alignment.mean()

    share = sum(range(1, 7)) / sum(range(12))  # of earlier layers that are left out where six are used at most
    last_stage = 1 + 11 * (1 - share)

    model = build_model(build_encoder("ViT-Tiny"), "MoCoV3")
    layer = model.encoder.units[0].macs
    plain = resources("LW-FedSSL", "MoCoV3").macs
    one_layer = [
        communication_bytes(schedule(kind, 12, rounds=180, most_units=1), model) / GB
        for kind in ("layer-wise", "progressive")
    ]
    return {
        "from 1.5 points below to 1.6 above": (-dropped_lw.interval()[0], dropped_lw.interval()[1]),
        "takes 0.9 points from progressive training (2.4 below to 0.7 above)": (
            -dropped_prog.value,
            -dropped_prog.interval()[0],
            dropped_prog.interval()[1],
        ),
        "the 0.6 points that count": depth.below,
        "by −0.1 and −0.2 points": (-aligned[0].value, -aligned[2].value),
        "by −0.5 and +0.1": (-aligned[1].value, aligned[3].value),
        "each with 1.2 points to either side": (high - low) / 2,
        "at 32.9 or 33.0 %": (min(layerwise_probe), max(layerwise_probe)),
        "loses 1.4 points with depth dropout and at most 0.3": (
            lost["depth dropout"],
            max(lost["proximal alignment"], lost["representation alignment"]),
        ),
        "local models are 2 % closer": closer[0, 0.01, 0].mean(),
        "with the alignment of representations 1 % or less": closer[0, 0, 1].max(),
        "falls from 0.69 to 0.51 and 0.47": (log(2), *alignment[["layer-wise", "progressive"]]),
        "21/66, 0.32,": share,
        "the last stage has 8.5 layers": last_stage,
        "and 6.8 GB": most - (12 - last_stage) * (most - least) / 11,
        "A peak of 5.24": paper_value("lwfedssl", "table6", "peak_memory", "Prog-FedSSL", add_on="depth dropout"),
        "by −3.7 to +3.0 points": (-min(map(min, alignments.values())), max(map(max, alignments.values()))),
        "+0.05 points by fine-tuning": alignments["LW-FedSSL", fine_tuning, "proximal"].mean(),
        "+0.2 by the probe": alignments["LW-FedSSL", probe, "proximal"].mean(),
        "by −2.9 and −0.8": [
            -alignments["Prog-FedSSL", protocol, "representation"].mean() for protocol in (fine_tuning, probe)
        ],
        "are 2.0 points wide": (aligned_here.high - aligned_here.low) / 2,
        "So that −2.9": -aligned_here.estimate,
        "falls from 0.69 to": log(2),
        "85.8 to 85.6 %": (whole["LW-FedSSL", fine_tuning], dropped["LW-FedSSL", fine_tuning]),
        "74.2 to 75.8": (whole["LW-FedSSL", probe], dropped["LW-FedSSL", probe]),
        "down by 2.6 points": whole["Prog-FedSSL", fine_tuning] - dropped["Prog-FedSSL", fine_tuning],
        "(89.7 to 87.1)": (whole["Prog-FedSSL", fine_tuning], dropped["Prog-FedSSL", fine_tuning]),
        "and 5.3 by the probe": whole["Prog-FedSSL", probe] - dropped["Prog-FedSSL", probe],
        "(82.9 to 77.6)": (whole["Prog-FedSSL", probe], dropped["Prog-FedSSL", probe]),
        "by fine-tuning, 0.5 to 4.6, begins": (-depth.high, -depth.low),
        "the margin of 0.6": depth.below,
        "a learning rate of 0.003": max(runs["learning_rate"]),
        "one layer is 0.030 GFLOPs": layer / GFLOP,
        "1.23 times the row": (plain + 3 * 180 * 2 * layer) / plain,
        "instead of 2.29 times": paper_value(
            "lwfedssl", "table6", "flops_ratio", "LW-FedSSL", add_on="representation alignment"
        ),
        "a weight of 0.01?": max(runs["proximal"]),
        "at 0.01, 1 and 100": max(runs["proximal"]),
        "0.003 here": max(runs["learning_rate"]),
        "1.66 GB in layer-wise": one_layer[0],
        "and 1.68 in progressive": one_layer[1],
    }


NOT_RECORDED = {
    "are 1 % closer": "distances between local models, of runs whose tables are not kept",
    "0.53 and 0.47.": "losses of runs whose tables are not kept",
    "At 0.01 the distance falls by 2 %, at 1 by 18 %, at 100 by 81 %": "an exercise at smoke with other weights",
}
