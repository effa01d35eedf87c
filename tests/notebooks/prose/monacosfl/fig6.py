from tests.notebooks.prose.recorded import behind_by, comparisons, record, rows


def numbers():
    ours = record("monacosfl/fig6")
    mean = 100 * ours.groupby(["method", "cut_layer"]).linear_probe_accuracy.mean()
    lead = mean["MonAcoSFL"] - mean["MocoSFL"]
    deep = rows(ours, method="MonAcoSFL", cut_layer=9, seed=0)
    real = record("monacosfl/fig6", "workstation")
    of_cut = real.groupby(["method", "cut_layer"])[["linear_probe_accuracy", "identifiability"]].mean()
    probe, seen = 100 * of_cut.linear_probe_accuracy, of_cut.identifiability
    ahead, traffic = comparisons("monacosfl-abs-state-of-the-art", profile="workstation")
    lost = comparisons("monacosfl-fig6-monacosfl-holds", profile="workstation")[-1]
    falls, hardly_falls, _ = comparisons("monacosfl-fig6-both-decline", profile="workstation")
    return {
        "42.7 and 43.8 %": [probe["MocoSFL", 1], probe["MonAcoSFL", 1]],
        "MocoSFL has 33.8 % and MonAcoSFL 42.1 %": [probe["MocoSFL", 9], probe["MonAcoSFL", 9]],
        "32.4 and 41.9 %": [probe["MocoSFL", 11], probe["MonAcoSFL", 11]],
        "9.4 points apart, with an interval of 6.8 to 12.0": (ahead.value, *ahead.interval()),
        "encoder has 19.2 %": 100 * real.untrained.mean(),
        "it has lost 1.9 points, with an interval from 0.7 gained to 4.5 lost": (
            lost.value,
            -lost.interval()[0],
            lost.interval()[1],
        ),
        "9.4 points ahead, with 26 % of": (ahead.value, 100 * traffic.value),
        "0.20 points a layer, with an interval from 0.44 to none": behind_by(hardly_falls)[::2],
        "loses 1.05 points a layer": -falls.value,
        "identifiability of 1.00 at": seen["MocoSFL"][[9, 11]].mean(),
        "with 0.19 and 0.20": [*seen["MonAcoSFL"][[9, 11]]],
        "by 12.5 points at cut 5": lead[5],
        "Its 3.2 points of the linear probe at cut 9": lead[9],
        "instead of 34 % of kNN accuracy": 100 * deep.knn_accuracy.item(),
    }
