from fssl_core.costs.traffic import engine_traffic
from fssl_core.models import build_backbone
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record

MIB, GIB = 2**20, 2**30


def traffic(architecture: str, cut: int) -> tuple[int, int]:
    """Bytes of everything, and of models, that a client of the paper's exchanges in an epoch."""
    backbone = build_backbone(architecture, values=False)
    sent = engine_traffic(backbone, cut, images=10_000, syncs=10, momentum_sync=False, symmetric=False)
    return sum(one.bytes for one in sent), sum(one.bytes for one in sent if one.purpose == "parameters")


def numbers():
    ours = 100 * record("mocosfl/table3").set_index(["cut_layer", "architecture"]).linear_probe_accuracy
    one, three = ours[1][["resnet50", "resnet18"]], ours[3][["resnet50", "resnet18"]]
    pairs = paper_table("mocosfl", "table3").pivot(
        index=["method", "clients", "partition"], columns="architecture", values="value"
    )
    gain = pairs["ResNet-50"] - pairs["ResNet-18"]
    gain_1, gain_3 = gain["MocoSFL-1"], gain["MocoSFL-3"]
    by_partition = gain.groupby("partition").mean()
    all_50, models_50 = traffic("resnet50", 3)
    all_18, models_18 = traffic("resnet18", 3)
    return {
        "0.5 points at one layer (42.7 and 42.2 %)": (one.resnet50 - one.resnet18, *one),
        "by 1.1 at three (39.7 and 38.6 %)": (three.resnet50 - three.resnet18, *three),
        "non-IID (+4.51)": gain_3[20, "non_iid_class"],
        "non-IID (+2.48)": gain_1[5, "non_iid_class"],
        "(3.38 to 4.51, mean 3.73)": (gain_3.min(), gain_3.max(), gain_3.mean()),
        "(2.48 to 3.16, mean 2.86)": (gain_1.min(), gain_1.max(), gain_1.mean()),
        "3.29 points IID, 3.30 non-IID": by_partition[["iid", "non_iid_class"]].tolist(),
        "29.3 GiB against 7.3 GiB": (all_50 / GIB, all_18 / GIB),
        "ten syncs are 5.9 and 5.8 MiB": (models_50 / MIB, models_18 / MIB),
        "both take 7.3 GiB": traffic("resnet50", 1)[0] / GIB,
    }
