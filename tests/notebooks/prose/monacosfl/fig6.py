from tests.notebooks.prose.recorded import behind_by, comparisons, record, rows


def numbers():
    ours = record("monacosfl/fig6")
    mean = 100 * ours.groupby(["method", "cut_layer"]).linear_probe_accuracy.mean()
    lead = mean["MonAcoSFL"] - mean["MocoSFL"]
    loss = rows(ours, cut_layer=9).groupby("method").loss.mean()
    deep = rows(ours, method="MonAcoSFL", cut_layer=9, seed=0)
    real = record("monacosfl/fig6", "workstation")
    of_cut = real.groupby(["method", "cut_layer"])[["linear_probe_accuracy", "identifiability"]].mean()
    probe, seen = 100 * of_cut.linear_probe_accuracy, of_cut.identifiability
    gap = probe["MonAcoSFL"] - probe["MocoSFL"]
    *over, traffic = comparisons("monacosfl-abs-state-of-the-art", profile="workstation")
    over = dict(zip(sorted({*real.cut_layer}), over, strict=True))  # of MonAcoSFL at cut 11, over MocoSFL at each cut
    ahead, (behind, least, most) = over[11], behind_by(over[1])
    margins = comparisons("monacosfl-fig6-monacosfl-holds", profile="workstation")  # of a third and a sixth, by cut
    kept, sixth = margins[-2:]
    assert all(margin.interval()[0] > 0 for margin in margins[::2]), "never more than a third"
    falls, falls_too, _ = comparisons("monacosfl-fig6-both-decline", profile="workstation")
    return {
        "42.7 and 44.2 %": [probe["MocoSFL", 1], probe["MonAcoSFL", 1]],
        "by 7.0 points there, by 8.0 at cut 9 (34.1 and 42.1 %) and by 9.0 at cut 11 (32.3 and 41.3 %)": [
            *(gap[7], gap[9], probe["MocoSFL", 9], probe["MonAcoSFL", 9]),
            *(gap[11], probe["MocoSFL", 11], probe["MonAcoSFL", 11]),
        ],
        "with an interval of 6.7 to 11.3": ahead.interval(),
        "7.6 points at cut 15, 5.4 at cut 17 (31.6 and 37.0 %)": [
            *(gap[15], gap[17], probe["MocoSFL", 17], probe["MonAcoSFL", 17]),
        ],
        "encoder has 19.9 %": 100 * real.untrained.mean(),
        "loses 2.8 points to cut 11 and 7.2 to cut 17, of the 24.3": (
            *(probe["MonAcoSFL", 1] - probe["MonAcoSFL"][[11, 17]]),
            probe["MonAcoSFL", 1] - 100 * real.untrained.mean(),
        ),
        "at cut 17 it is 0.9 points less, with an interval of 0.6 to 1.3": (kept.value, *kept.interval()),
        "by 3.1 points, with one of 2.5 to 3.7": behind_by(sixth),
        "MocoSFL loses 6.5 to cut 7 and 8.6 to cut 9": [*(probe["MocoSFL", 1] - probe["MocoSFL"][[7, 9]])],
        "with 26 % of the traffic": 100 * traffic.value,
        "it is 9.0 points ahead of MocoSFL with the same cut": ahead.value,
        "1.3 points behind that, from 3.6 behind to 1.0 ahead": (
            behind,
            most,
            -least,
        ),
        "by 0.71 points a layer, MonAcoSFL by 0.44": (-falls.value, -falls_too.value),
        "identifiability of 1.00 at": seen["MocoSFL"].loc[7:].min(),
        "with 0.20 to 0.24": (seen["MonAcoSFL"].loc[7:].min(), seen["MonAcoSFL"].max()),
        "by 14.4 points at cut 5": lead[5],
        "Its 3.6 points of the linear probe at cut 9": lead[9],
        "instead of 36 % of kNN accuracy": 100 * deep.knn_accuracy.item(),
        "lower, by 1.07 nats": loss["MonAcoSFL"] - loss["MocoSFL"],
    }
