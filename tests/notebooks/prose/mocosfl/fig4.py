from fssl_core.costs.traffic import engine_traffic
from fssl_core.models import build_backbone
from tests.notebooks.prose.recorded import comparisons, record

MIB, GIB = 2**20, 2**30


def traffic(cut: int, syncs: int) -> tuple[int, int]:
    """Bytes of models and of everything that a client of the paper's exchanges in an epoch."""
    backbone = build_backbone("resnet18", values=False)
    sent = engine_traffic(backbone, cut, images=10_000, syncs=syncs, momentum_sync=False, symmetric=False)
    return sum(one.bytes for one in sent if one.purpose == "parameters"), sum(one.bytes for one in sent)


def numbers():
    ours = record("mocosfl/fig4")
    mean = ours.groupby(["cut_layer", "syncs_per_epoch"])[["linear_probe_accuracy", "identifiability"]].mean() * 100
    runs = ours.set_index(["seed", "cut_layer", "syncs_per_epoch"]).sort_index().linear_probe_accuracy * 100
    measures = ["linear_probe_accuracy", "identifiability", "identifiability_common", "mean_divergence"]
    photographs = record("mocosfl/fig4", "workstation")
    real = photographs.groupby(["cut_layer", "syncs_per_epoch"])[measures].mean()
    one, three = comparisons("mocosfl-fig4-sync-frequency", profile="workstation")
    twice = record("mocosfl/table1", "workstation").query("clients == 5")
    twice = 100 * twice.groupby("cut_layer").linear_probe_accuracy.mean()
    (models_1, all_1), (models_3, all_3) = traffic(1, 10), traffic(3, 10)
    every_step = [100 * models / total for models, total in (traffic(1, 500), traffic(3, 500))]
    return {
        "gains 3.2 points with an interval of 0.5 to 5.8": (one.value, *one.interval()),
        "(41.3 to 44.5 %)": [*100 * real.linear_probe_accuracy[1]],
        "gains 5.9 with one of 2.9 to 9.0": (three.value, *three.interval()),
        "(37.4 to 43.4 %)": [*100 * real.linear_probe_accuracy[3]],
        "encoder has 19.9 %": 100 * photographs.untrained_linear_probe_accuracy.mean(),
        "from 0.70 to 0.26 at cut 1": [*real.mean_divergence[1]],
        "from 1.79 to 0.77 at cut 3": [*real.mean_divergence[3]],
        "client in 92 % of cases and those of MocoSFL-3 in 99 %": [
            100 * real.identifiability[cut, 1] for cut in (1, 3)
        ],
        "with ten in 52 % and 70 %": [100 * real.identifiability[cut, 10] for cut in (1, 3)],
        "guessing has 20 % and the same images through one common model tell 41.5 to 43.5 %": (
            100 / 5,
            100 * real.identifiability_common.min(),
            100 * real.identifiability_common.max(),
        ),
        "42.9 % with one layer and 37.5 % with three": [*twice],
        "(53.4, 63.2, 63.9, 66.5 %": mean.linear_probe_accuracy[3].tolist(),
        "(65.0, 66.2, 65.8, 66.1 %": mean.linear_probe_accuracy[1].tolist(),
        "17.5 and 12.5 % of cases": mean.identifiability[3][[5, 10]].tolist(),
        "MocoSFL-1 in 19 %": mean.identifiability[1].max(),
        "0.14 MiB of 7.3 GiB at cut 1 (0.002 %)": (models_1 / MIB, all_1 / GIB, 100 * models_1 / all_1),
        "5.8 MiB at cut 3 (0.08 %)": (models_3 / MIB, 100 * models_3 / all_3),
        "would take 0.09 % and 3.7 %": every_step,
        "from 51.1 to 65.6 %": runs[0, 3][[1, 10]].tolist(),
    }
