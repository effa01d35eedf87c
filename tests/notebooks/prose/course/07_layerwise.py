from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record, rows


def memory_ratio(table: str) -> float:
    """Peak memory that the paper prints of layer-wise training, beside that of end-to-end training."""
    memory = rows(paper_table("lwfedssl", table), metric="peak_memory", ssl_method="MoCoV3").set_index("method").value
    return memory["LW-FedSSL"] / memory["FedMoCoV3"]


def numbers():
    real = rows(record("lwfedssl/table2", "workstation"), protocol="fine-tuning")
    mean = 100 * real.groupby("method").accuracy.mean()
    return {
        "a ratio of 0.87 at the peak": memory_ratio("table4"),
        "beside the 0.30 that it prints for the transformer": memory_ratio("table2"),
        "has 39.5 %, progressive 38.2, layer-wise 35.1 and *Scratch* 31.3": [
            *mean[["FedSimCLR", "Prog-FedSSL", "LW-FedSSL", "Scratch"]]
        ],
    }
