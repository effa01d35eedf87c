from tests.notebooks.prose.recorded import behind_by, comparisons, record, rows


def numbers():
    ours = record("monacosfl/fig6")
    mean = 100 * ours.groupby(["method", "cut_layer"]).linear_probe_accuracy.mean()
    lead = mean["MonAcoSFL"] - mean["MocoSFL"]
    deep = rows(ours, method="MonAcoSFL", cut_layer=9, seed=0)
    real = record("monacosfl/fig6", "workstation")
    of_cut = real.groupby(["method", "cut_layer"])[["linear_probe_accuracy", "identifiability"]].mean()
    probe, seen = 100 * of_cut.linear_probe_accuracy, of_cut.identifiability
    gap = probe["MonAcoSFL"] - probe["MocoSFL"]
    *over, traffic = comparisons("monacosfl-abs-state-of-the-art", profile="workstation")
    over = dict(zip(sorted({*real.cut_layer}), over, strict=True))  # of MonAcoSFL at cut 11, over MocoSFL at each cut
    ahead, (behind, least, most) = over[11], behind_by(over[1])
    *shallower, kept = comparisons("monacosfl-fig6-monacosfl-holds", profile="workstation")
    assert all(margin.interval()[0] > 0 for margin in shallower), "down to cut 15 it keeps to that"
    falls, falls_too, _ = comparisons("monacosfl-fig6-both-decline", profile="workstation")
    return {
        "42.7 and 43.8 %": [probe["MocoSFL", 1], probe["MonAcoSFL", 1]],
        "by 7.7 points there, by 8.4 at cut 9 (33.8 and 42.1 %) and by 9.4 at cut 11 (32.4 and 41.9 %)": [
            *(gap[7], gap[9], probe["MocoSFL", 9], probe["MonAcoSFL", 9]),
            *(gap[11], probe["MocoSFL", 11], probe["MonAcoSFL", 11]),
        ],
        "with an interval of 7.3 to 11.5": ahead.interval(),
        "6.7 points at cut 15, 4.2 at cut 17 (32.2 and 36.5 %)": [
            *(gap[15], gap[17], probe["MocoSFL", 17], probe["MonAcoSFL", 17]),
        ],
        "encoder has 19.2 %": 100 * real.untrained.mean(),
        "loses 1.9 points to cut 11 and 7.3 to cut 17, of the 24.6": (
            *(probe["MonAcoSFL", 1] - probe["MonAcoSFL"][[11, 17]]),
            probe["MonAcoSFL", 1] - 100 * real.untrained.mean(),
        ),
        "0.9 points more than it loses to cut 17, from 0.9 less to 2.7": [
            abs(part) for part in (kept.value, *kept.interval())
        ],
        "MocoSFL loses 6.6 to cut 7 and 8.9 to cut 9": [*(probe["MocoSFL", 1] - probe["MocoSFL"][[7, 9]])],
        "with 26 % of the traffic": 100 * traffic.value,
        "it is 9.4 points ahead of MocoSFL with the same cut": ahead.value,
        "0.8 points behind that, from 2.9 behind to 1.3 ahead": (
            behind,
            most,
            -least,
        ),
        "by 0.67 points a layer, MonAcoSFL by 0.46": (-falls.value, -falls_too.value),
        "identifiability of 1.00 at": seen["MocoSFL"].loc[7:].min(),
        "with 0.19 to 0.24": (seen["MonAcoSFL"].loc[7:].min(), seen["MonAcoSFL"].max()),
        "by 12.5 points at cut 5": lead[5],
        "Its 3.2 points of the linear probe at cut 9": lead[9],
        "instead of 34 % of kNN accuracy": 100 * deep.knn_accuracy.item(),
    }
