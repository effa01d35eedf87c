from fssl_core.experiments import mfcl_settings
from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.mfcl.table2 import APART, pairs_found
from tests.notebooks.prose.recorded import accuracies, ahead, kept_behind, record, rows, spread

EQUAL, OWN = "MFCL(GN), groups of TN", "MFCL(BN), own statistics"


def sent(profile):
    """Means over federations of what is sent, by xi and method; and of how many twin norm has the smallest lead."""
    ours = record("mfcl/beyond_normalisation", profile).dropna(subset="sent_by")
    ours["lead"] = ours.cosine_of_twins - ours.cosine_of_others
    lead = ours.pivot(index=["xi", "seed"], columns="sent_by", values="lead")
    smallest = (lead["MFCL(TN)"] < lead[[APART, "MFCL(GN)"]].min(axis=1)).sum()
    return ours.groupby(["xi", "sent_by"]).mean(numeric_only=True), smallest, len(lead)


def sent_photographs():
    means, smallest, federations = sent("workstation")
    means = means.loc[0.01]
    assert smallest == federations == 5, "with every seed"
    twins, others, lead = means.cosine_of_twins, means.cosine_of_others, means.lead
    return {
        "-0.81 behind twin norm, and with the views apart with +0.62": (
            -means.correlation["MFCL(TN)"],
            means.correlation[APART],
        ),
        "what it sends correlates with +0.59": means.correlation["MFCL(GN)"],
        "What it sends correlates with +0.39": means.correlation["MFCL(BN)"],
        "is 0.719 behind twin norm and 0.668 behind group": twins[["MFCL(TN)", "MFCL(GN)"]].tolist(),
        "0.644 beside 0.569": others[["MFCL(TN)", "MFCL(GN)"]].tolist(),
        "by 0.075 and not by 0.098": lead[["MFCL(TN)", "MFCL(GN)"]].tolist(),
        "than together, 0.730, and lead by 0.078": (twins[APART], lead[APART]),
    }


def sent_digits():
    means, smallest, federations = sent("laptop")
    assert smallest == federations == 10, "in each of the ten federations"
    otherwise = means.correlation.unstack()[["MFCL(BN)", OWN, "MFCL(GN)", EQUAL, APART]].stack()
    three = ["MFCL(TN)", APART, "MFCL(GN)"]
    return {
        "-0.73 behind twin norm, and with +0.50 to +0.60 behind": (
            -means.correlation[0.01, "MFCL(TN)"],
            otherwise.min(),
            otherwise.max(),
        ),
        "0.160 behind twin norm, by 0.174 with the views apart and by 0.199": means.lead[0.01][three].tolist(),
        "by 0.151, 0.173 and 0.183": means.lead[200][three].tolist(),
    }


def on_photographs():
    ours = record("mfcl/beyond_normalisation", "workstation")
    twin, apart, group, batch = (
        {protocol: accuracies(ours, method=method, protocol=protocol) for protocol in ("linear evaluation", "features")}
        for method in ("MFCL(TN)", APART, "MFCL(GN)", "MFCL(BN)")
    )
    linear = rows(ours, protocol="linear evaluation")
    kept = kept_behind("mfcl/beyond_normalisation", "ModularSettings", "workstation")
    found, knn = (
        100 * kept.pivot(index="epoch", columns=["phase1.norm", "twins", "seed"], values=value)
        for value in ("contrastive_accuracy", "knn_accuracy")
    )
    of_group, of_batch = found["group"].loc[150], found["batch"].loc[150]
    found, knn = found["twin"], knn["twin"]

    def course(twins):
        return [part[twins].loc[epoch].mean() for part in (found, knn) for epoch in (30, 150)]

    learned = linear[linear.method != "MFCL(TN)"]
    lead, low, high = ahead(learned, {"method": APART}, {"method": "MFCL(GN)"})
    lead_of_batch, low_of_batch, high_of_batch = ahead(learned, {"method": "MFCL(BN)"}, {"method": "MFCL(GN)"})
    fallen = knn[True].loc[30] - knn[True].loc[150]
    untrained = 100 * rows(ours, method="MFCL(TN)").groupby("protocol").untrained.mean()
    printed = rows(printed_cells("mfcl", "table2"), dataset="CIFAR-10", xi=0.01).set_index("method").value
    return {
        "71.5 to 94.6 % of the pairs": (found[True].loc[150].min(), found[True].loc[150].max()),
        "reaches 21.3 ± 3.3 %": spread(twin["linear evaluation"]),
        "55.8 to 57.2 % are found": (found[False].loc[150].min(), found[False].loc[150].max()),
        "reaches 51.5 ± 0.1": spread(apart["linear evaluation"]),
        "30.2 points more, with an interval of 27.0 to 33.4": ahead(linear, {"method": APART}, {"method": "MFCL(TN)"}),
        "it is 54.0 beside 30.9 %": (apart["features"].mean(), twin["features"].mean()),
        "untrained has 24.8 and 28.2 %": untrained[["linear evaluation", "features"]].tolist(),
        "goes from 46.8 to 86.4 % of the pairs and from 22.9 to 20.8 %": course(twins=True),
        "by 0.8 to 3.5 points": (fallen.min(), fallen.max()),
        "goes from 31.4 to 56.3 % of the pairs, and from 45.1 to 51.9 %": course(twins=False),
        "The paper has 84.1 %": printed["MFCL(TN)"],
        "finds 55.0 to 55.5 % of the pairs": (of_group.min(), of_group.max()),
        "linear evaluation reaches 51.1 ± 1.2 %": spread(group["linear evaluation"]),
        "by the features 53.8": group["features"].mean(),
        "0.5 points ahead, from 1.4 behind to 2.3 ahead": (lead, -low, high),
        "the paper's 4.8 points": printed["MFCL(TN)"] - printed["MFCL(GN)"],
        "finds 56.6 to 57.8 % of the pairs": (of_batch.min(), of_batch.max()),
        "reaches 52.1 ± 0.8 %, by the features 55.5": (*spread(batch["linear evaluation"]), batch["features"].mean()),
        "the paper has 15.3.": printed["MFCL(BN)"],
        "1.0 points ahead of group norm, from 0.8 behind to 2.9 ahead": (lead_of_batch, -low_of_batch, high_of_batch),
    }


def numbers():
    ours = rows(record("mfcl/beyond_normalisation"), protocol="linear evaluation").groupby(["method", "xi"]).accuracy
    mean, std = 100 * ours.mean(), 100 * ours.std()
    both = {method: (mean[method, 0.01], std[method, 0.01]) for method in mean.index.unique("method")}
    gain = {name: mean[f"{name}(GN)", 0.01] - mean[f"{name}(BN)", 0.01] for name in ("MFCL", "FedSimCLR", "MonAcoSFL")}
    return (
        on_photographs()
        | sent_photographs()
        | sent_digits()
        | {
            "finds 92 % of": pairs_found()["MFCL(TN)"],
            "15.3 ± 2.4 %": both["MFCL(TN)"],
            "reaches 14.6 ± 2.8": both["FedSimCLR(TN)"],
            "64.5 ± 0.8 %": both[APART],
            "68.1 ± 1.8": both[EQUAL],
            "66.5 ± 4.4": both["MFCL(GN)"],
            "reaches 62.1 ± 0.9 % at": both[OWN],
            "and 65.0 at 200, with": mean[OWN, 200],
            "averaged ones 61.5 ± 3.2 and 65.4": (*both["MFCL(BN)"], mean["MFCL(BN)", 200]),
            "65.8, 65.7 and 68.4": [mean[method, 200] for method in (APART, EQUAL, "MFCL(GN)")],
            "5.0 points in MFCL, 7.9 in FedSimCLR and 7.9 in MonAcoSFL": [*gain.values()],
            "at 16.1 ± 1.8 %": both["MFCL(TN), listing"],
            "40.2 ± 2.9 % are reached, 41.4 at": (*both["MFCL(TN), equation"], mean["MFCL(TN), equation", 200]),
            "24.4 points less than with the views apart": mean[APART, 0.01] - mean["MFCL(TN), equation", 0.01],
            "is 0.1 at": mfcl_settings("laptop", method="MFCL(TN)").temperature,
            "elsewhere 0.3, from": mfcl_settings("paper", method="MFCL(TN)").temperature,
        }
    )
