from itertools import combinations

from fssl_core.models import build_backbone
from fssl_core.papers.reference import paper_table, paper_value
from tests.notebooks.prose.ldawa.fig4 import STEM, layers
from tests.notebooks.prose.recorded import ahead, behind_by, comparisons, record, rows, verdict

RULES = ["FedAvg", "M-DAWA", "L-DAWA", "L-DAWA after FedAvg"]


def numbers():
    ours = record("ldawa/table1")
    times = ours.dropna(subset="plain").set_index("method").plain
    means = 100 * ours.groupby(["local_epochs", "method"])[["accuracy", "accuracy_renewed"]].mean()
    one, two, four = (means.accuracy[epochs][RULES] for epochs in (1, 2, 4))
    anew, longest = means.accuracy_renewed[2], means.accuracy_renewed[4]
    spread = 100 * rows(ours, local_epochs=4, method="M-DAWA").accuracy
    late = verdict("ldawa-table1-both-beat-fedavg", "the authors")
    printed = paper_table("ldawa", "table1").query("metric != 'aggregation_time'")
    gaps = printed.pivot(index=["pretrain_dataset", "local_epochs"], columns="method", values="value")
    gaps = [gaps[one] - gaps[other] for one, other in combinations(gaps, 2)]
    seconds = paper_value("ldawa", "table1", "aggregation_time", "M-DAWA")
    model = build_backbone("resnet18", width=64, norm="batch").state_dict()
    size = sum(values.numel() for values in model.values() if values.is_floating_point())
    cosine = 1 / (1 + 0.1**2) ** 0.5
    length = (1 + 0.1**2 / 10) ** 0.5
    turned = rows(layers(), layer=STEM, ssl_method="SimCLR", method="L-DAWA", seed=0, round=1)
    kept = turned.cosine.item()
    real = 100 * record("ldawa/table1", "workstation").groupby("method").mean(numeric_only=True)
    curves = record("ldawa/fig5", "workstation")
    pooled = 100 * curves[curves["round"] == 10].groupby("method").mean(numeric_only=True)
    m_dawa, l_dawa = comparisons("ldawa-table1-both-beat-fedavg", "the paper", "workstation")
    real_after, *_ = comparisons("ldawa-table1-both-beat-fedavg", "the authors", "workstation")
    real_level = verdict("ldawa-table1-both-beat-fedavg", "the paper", "workstation").level
    pairs = real.loc[["M-DAWA", "L-DAWA", "FedAvg"], ["accuracy_renewed", "accuracy"]]
    return {
        "M-DAWA has 49.7 % and FedAvg 47.2 %": [*real.accuracy[["M-DAWA", "FedAvg"]]],
        "difference of 2.5 points with an interval of 0.6 to 4.4": (m_dawa.value, *m_dawa.interval()),
        "L-DAWA has 45.8 %": real.accuracy["L-DAWA"],
        "1.4 points behind, with an interval of 0.7 to 2.1": behind_by(l_dawa),
        "of 0.5 to 2.3 at the level": behind_by(l_dawa, real_level)[1:],
        "L-DAWA after FedAvg has 46.5 %": real.accuracy["L-DAWA after FedAvg"],
        "0.75 points less than FedAvg, from 0.86 ahead to 2.36 behind": [abs(part) for part in behind_by(real_after)],
        "untrained encoder has 41.2 %": real.untrained.mean(),
        "pooled features it has 28.9 %": pooled.untrained.mean(),
        "with 44.4 % beside FedAvg's 46.4 %": [*pooled.accuracy[["M-DAWA", "FedAvg"]]],
        "by 2.0 points with an interval of 0.7 to 3.2": ahead(
            rows(curves, round=10), {"method": "FedAvg"}, {"method": "M-DAWA"}
        ),
        "48.8 instead of 49.7 %, L-DAWA 45.9 instead of 45.8 % and FedAvg 47.1 instead of 47.2 %": [*pairs.stack()],
        "FedAvg has 66.5 %, M-DAWA 61.6 %, L-DAWA 57.6 % and L-DAWA after FedAvg 62.8 %": [*two],
        "56.8, 54.7, 49.4 and 54.2 % at 1": [*one],
        "76.3, 51.2, 66.2 and 72.1 % at 4": [*four],
        "between 26.0 and 67.8 %": (spread.min(), spread.max()),
        "it is 4.2 points behind, 0.4 to 8.0": (-late.estimate, -late.high, -late.low),
        "66.5 to 66.9 %": (two["FedAvg"], anew["FedAvg"]),
        "gains 3.0 points, to 64.6 %": (anew["M-DAWA"] - two["M-DAWA"], anew["M-DAWA"]),
        "3.3, to 60.9 %": (anew["L-DAWA"] - two["L-DAWA"], anew["L-DAWA"]),
        "gains 9.8 points, from 51.2 to 61.0 %": (
            longest["M-DAWA"] - four["M-DAWA"],
            four["M-DAWA"],
            longest["M-DAWA"],
        ),
        "0.1 to 2 points": min(gap.abs().min() for gap in gaps),
        "has 11.2 million": size / 1e6,
        "with 22.65 s": seconds,
        "takes 0.02 to 0.1 s": (10 * size * 4 / 20e9, 10 * size * 4 / 5e9),
        "took 0.5 s": times["M-DAWA"],
        "3.5 times as long": times["M-DAWA"] / times["L-DAWA"],
        "22.65 s are not": seconds,
        "cosine is 0.995": cosine,
        "0.995 that is 0.9955": (cosine, cosine * length),
        "rounds 0.41 of": (cosine * length) ** 200,
        "cosine of 0.32": kept,
        "0.10 times the variance": kept**2,
    }
