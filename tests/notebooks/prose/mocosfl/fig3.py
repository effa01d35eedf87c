from fssl_core.costs.compute import compute_table
from fssl_core.experiments import averaging_settings
from fssl_core.models import build_backbone, cut
from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = record("mocosfl/fig3").dropna(subset="divergence")
    split = rows(ours, method="MocoSFL").groupby(["syncs_per_epoch", "cut_layer"]).divergence.mean()
    whole = rows(ours, method="FedAvg").divergence.mean()

    settings = averaging_settings("laptop", objective="moco-v2", norm="group", partition="classes:2")
    model = settings.build_model(settings.load_data())
    client, _ = cut(build_backbone("resnet10", width=16, norm="group", image_size=16), 5)
    tensors_of_whole, tensors_of_client = (len(list(part.parameters())) for part in (model, client))

    memory = compute_table(["resnet18"], [5, 7]).set_index(["cut_layer", "batch"])
    of_whole = rows(memory, scheme="FL-SSL").memory_bytes.item()
    fifth, seventh = memory.loc[(5, 1)], memory.loc[(7, 1)]
    return {
        "0.6, 3.6 and 7.1 at cuts 1, 3 and 5": split[1].tolist(),
        "0.09, 0.43 and 0.83": split[10].tolist(),
        "it has 20.5": whole,
        "1.3 times as far": (whole / tensors_of_whole) / (split[1, 5] / tensors_of_client),
        "952.4 MiB": of_whole / 2**20,
        "5.38 MiB": fifth.memory_bytes / 2**20,
        "10.4 MiB": seventh.memory_bytes / 2**20,
    }


NOT_RECORDED = {"a factor of 1.33, and 1.43 with four epochs": "runs of an exercise"}
