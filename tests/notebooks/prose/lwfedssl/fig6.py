from tests.notebooks.prose.recorded import record


def numbers():
    means = record("lwfedssl/fig6").groupby("method")[["distance", "per_weight"]].mean()
    one_block_of_twelve = (1 / 12) ** 0.5
    return {
        "0.72 layer by layer": means.distance["LW-FedSSL"],
        "0.82 progressively": means.distance["Prog-FedSSL"],
        "1.79 end-to-end": means.distance["FedSimCLR"],
        "0.0032 end-to-end": means.per_weight["FedSimCLR"],
        "0.0030 with both": means.per_weight["LW-FedSSL"],
        "0.0030 with both others": means.per_weight["Prog-FedSSL"],
        "from 0.29 to 1": one_block_of_twelve,
    }
