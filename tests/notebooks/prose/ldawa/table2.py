from fssl_core.experiments import ldawa_settings
from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.ldawa.fig4 import STEM, layers
from tests.notebooks.prose.recorded import comparisons, record, rows, verdict

AFTER = "L-DAWA after FedAvg"
BASES = ["FedU", "FedAvg", "Loss"]
VARIANTS = [f"L-DAWA_{base}" for base in BASES]


def numbers():
    ours = rows(record("ldawa/table2"), label_fraction=1.0)
    means = 100 * ours.pivot_table("accuracy", "method", "ssl_method")
    simclr, barlow = means["SimCLR"], means["Barlow Twins"]
    seeds = 100 * rows(ours, ssl_method="SimCLR").pivot(index="method", columns="seed", values="accuracy")
    behind = [simclr[base] - simclr[variant] for base, variant in zip(BASES, VARIANTS, strict=True)]
    deviations = 100 * rows(ours, ssl_method="Barlow Twins").groupby("method").accuracy.std()
    lead = comparisons("ldawa-table2-ssl-agnostic", "the paper")[0]
    tenth = verdict("ldawa-table2-all-settings", "the authors")
    stem = rows(layers(), layer=STEM, ssl_method="SimCLR")
    few = 100 * rows(record("ldawa/table2"), label_fraction=0.01, ssl_method="SimCLR").accuracy
    stated = ldawa_settings("laptop", method="FedAvg", ssl_method="Barlow Twins")
    printed = printed_cells("ldawa", "table2")
    cell = rows(printed, ssl_method="SimCLR", dataset="CIFAR-100", label_fraction=0.01).set_index("method")["value"]
    best = cell[cell.index.str.startswith("L-DAWA")].max()
    whole = printed[printed.method.str.startswith("L-DAWA") & (printed.label_fraction == 1)]
    apart = (
        rows(whole, dataset="CIFAR-10").groupby("ssl_method")["value"].agg(lambda values: values.max() - values.min())
    )
    return {
        "FedU has 67.1, FedAvg 66.5, EUC 64.7 and Loss 60.9 %": [*simclr[["FedU", "FedAvg", "EUC", "Loss"]]],
        "L-DAWA has 57.6 %": simclr["L-DAWA"],
        "has 62.8 %": simclr[AFTER],
        "by 4.2 points, L-DAWA_FedAvg by 5.0, L-DAWA_Loss by 6.8": behind,
        "is 2.8 points behind": -lead.value,
        "from 5.8 behind to 0.3 ahead": (-lead.interval()[0], lead.interval()[1]),
        "5.0 points behind FedU, with an interval of 0.6 to 9.4": (-tenth.estimate, -tenth.high, -tenth.low),
        "35.9, L-DAWA after FedAvg 48.8 and FedAvg 49.2 %": [*barlow[["L-DAWA", AFTER, "FedAvg"]]],
        "by 9.5 and 8.0 points, that of Loss is 1.3 ahead": (
            *(barlow[base] - barlow[f"L-DAWA_{base}"] for base in ("FedU", "FedAvg")),
            barlow["L-DAWA_Loss"] - barlow["Loss"],
        ),
        "by 3.1 to 8.3 (standard": (deviations.min(), deviations.max()),
        "24 to 29 %": 100 * ours.untrained.max(),
        "With 1 % of the labels, two": 1,
        "17 and 26 %": few.max(),
        "3.7 points to FedAvg remain instead of 8.9": (
            simclr["FedAvg"] - simclr[AFTER],
            simclr["FedAvg"] - simclr["L-DAWA"],
        ),
        "ratio between 0.3": 0.3,
        "1 % of the labels EUC is ahead, 21.96 to 21.53": (1, cell["EUC"], cell["L-DAWA"]),
        "below it (21.87)": best,
        "gain of 0.52 that": best - cell.drop("EUC")[~cell.drop("EUC").index.str.startswith("L-DAWA")].max(),
        "And with 1 % of the labels": 1,
        "rate (0.003)": stated.learning_rate,
        "(0.1) than in": stated.objective.redundancy_weight,
        "gain of 0.52 points for": best - cell["FedAvg"],
        "with 1 % of the labels. Compute": 1,
        "with 21.87 %": best,
        "with 21.35 %, a gain of 0.52": (cell["FedAvg"], best - cell["FedAvg"]),
        "(21.96 %) it is -0.09": (cell["EUC"], cell["EUC"] - best),
        "0.95 points": apart["SimCLR"],
        "within 0.36 for": apart["Barlow Twins"],
        "near 70 %": 70,
        "within 0.36 points is": apart["Barlow Twins"],
        "62.1, 65.6 and 60.8 %": [*seeds.loc[AFTER]],
        "57.6, 56.5 and 58.8": [*seeds.loc["L-DAWA"]],
        "65.9, 66.7 and 67.0": [*seeds.loc["FedAvg"]],
        "is 0.47 in the mean": rows(stem, round=1, method=AFTER).cosine.mean(),
        "at least 0.97": rows(stem, round=4, method=AFTER).cosine.min(),
    }
