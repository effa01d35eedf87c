from tests.notebooks.prose.recorded import percent, record, rows


def numbers():
    ours = record("lwfedssl/table3")
    one, two = (
        {
            protocol: rows(ours, method="LW-FedSSL", layers_per_stage=k, protocol=protocol).set_index("seed").accuracy
            for protocol in ("fine-tuning", "linear probe")
        }
        for k in (1, 2)
    )
    return {
        "worth 7.0 points by fine-tuning": 100 * (two["fine-tuning"] - one["fine-tuning"]).mean(),
        "59.0 ± 2.7 to 66.0 ± 1.0 %": (*percent(one["fine-tuning"]), *percent(two["fine-tuning"])),
        "11.6 by the linear probe": 100 * (two["linear probe"] - one["linear probe"]).mean(),
        "35.1 ± 2.4 to 46.7 ± 2.9 %": (*percent(one["linear probe"]), *percent(two["linear probe"])),
    }
