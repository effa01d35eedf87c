from fssl_core.costs.client_load import client_load
from fssl_core.costs.traffic import engine_traffic
from fssl_core.experiments import lwfedssl_settings
from fssl_core.papers.reference import paper_value
from fssl_core.random import generator
from tests.notebooks.prose.recorded import accuracies, record, rows, spread

MIB = 2**20


def numbers():
    ours = record("lwfedssl/beyond_frontier")
    choices = {
        "end": {"method": "FedSimCLR"},
        **{f"lw{k}": {"method": "LW-FedSSL", "choice": f"k = {k}"} for k in (1, 2)},
        **{f"prog{k}": {"method": "Prog-FedSSL", "choice": f"k = {k}"} for k in (1, 2)},
        **{f"cut{c}": {"method": "MonAcoSFL", "choice": f"cut {c}"} for c in (1, 5, 9)},
    }
    probe, tuned = (
        {name: accuracies(ours, protocol=protocol, **where) for name, where in choices.items()}
        for protocol in ("linear probe", "fine-tuning")
    )
    needs = {name: rows(ours, **where).mean(numeric_only=True) for name, where in choices.items()}
    ratios = {name: need / needs["end"] for name, need in needs.items()}
    printed = {
        metric: paper_value("lwfedssl", "table4", f"{metric}_ratio", "LW-FedSSL")
        for metric in ("peak_memory", "flops", "communication")
    }

    end = lwfedssl_settings("laptop", method="FedSimCLR", ssl_method="SimCLR")
    data = end.load_data()

    def memory(method, batch, **stages):
        run = lwfedssl_settings("laptop", method=method, ssl_method="SimCLR", batch=batch, **stages)
        return client_load(run, data).memory_bytes / MIB

    backbone = end.changed(norm="group").build_backbone(data, generator(0, "sizes"))
    sent = {cut: engine_traffic(backbone, cut, images=1, syncs=1, momentum_sync=True) for cut in (1, 9)}
    models, image = (
        {
            cut: end.rounds * end.local_epochs / MIB * sum(one.bytes for one in parts if one.purpose in purposes)
            for cut, parts in sent.items()
        }
        for purposes in (
            ("parameters", "momentum_parameters"),
            ("activations", "momentum_activations", "gradients"),
        )
    )
    small_batch = accuracies(record("lwfedssl/table12"), method="LW-FedSSL", batch_size=25, protocol="fine-tuning")

    return {
        "63.6 ± 3.9 %": spread(probe["cut1"]),
        "75.8 ± 4.7": spread(tuned["cut1"]),
        "(1.3 MiB)": needs["cut1"].memory_bytes / MIB,
        "(4.4 billion": needs["cut1"].macs / 1e9,
        "10.2 MiB and 91 billion": needs["lw1"].memory_bytes / MIB,
        "at 35.1 and 59.0 %": (probe["lw1"].mean(), tuned["lw1"].mean()),
        "57 % of the traffic": 100 * ratios["prog2"].traffic_bytes,
        "8.7 ± 4.5": spread(probe["cut9"] - probe["end"]),
        "7.9 ± 0.9": spread(tuned["cut9"] - tuned["end"]),
        "6.2 ± 5.9": spread(probe["cut1"] - probe["cut9"]),
        "2.1 ± 3.6": spread(tuned["cut1"] - tuned["cut9"]),
        "8 % of the images of an epoch": 100 * (5000 % 512) / 5000,
        "0.87 for what is 0.47 here": (printed["peak_memory"], ratios["lw1"].memory_bytes),
        "(0.40 and 0.39)": (printed["flops"], ratios["lw1"].macs),
        "(0.31 and 0.33)": (printed["communication"], ratios["lw1"].traffic_bytes),
        "4.8 MiB for": memory("LW-FedSSL", 20),
        ", 6.4 for": memory("LW-FedSSL", 20, stages=2),
        ", 11.7 end-to-end": memory("FedSimCLR", 20),
        "10.2, 14.4 and 21.7": [needs[name].memory_bytes / MIB for name in ("lw1", "lw2", "end")],
        "cut 5 (5.7)": needs["cut5"].memory_bytes / MIB,
        "cut 9 (12.5)": needs["cut9"].memory_bytes / MIB,
        "0.06 MiB at cut 1 and 112.5 at cut 9": (models[1], models[9]),
        "2.25 MiB": image[1],
        "30.6 MiB": needs["end"].traffic_bytes / MIB,
        "LW-FedSSL's 10.0 with 4": needs["lw1"].traffic_bytes / MIB,
        "5.4 MiB": memory("LW-FedSSL", 25),
        "13.4 MiB": memory("Prog-FedSSL", 25),
        "about 55 %": small_batch.mean(),
    }
