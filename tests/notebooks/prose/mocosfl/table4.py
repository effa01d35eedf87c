from fssl_core.claims.estimation import Cells
from tests.notebooks.prose.recorded import comparisons, kept, record, rows, verdict


def numbers():
    ours = record("mocosfl/table4")
    mean = 100 * ours.groupby(["cut_layer", "label_fraction", "clients"]).semi_supervised_accuracy.mean()
    one = mean[1]
    untrained = 100 * rows(ours, cut_layer=1, clients=5).groupby("label_fraction").untrained.mean()
    often = 100 * rows(record("mocosfl/table1"), cut_layer=3).identifiability  # the same settings
    least = 100 * ours.label_fraction.min()
    real = record("mocosfl/table4", "workstation").assign(percent=lambda runs: 100 * runs.semi_supervised_accuracy)
    by_cell = real.groupby(["label_fraction", "cut_layer", "clients"]).percent.mean().unstack("clients")
    start = 100 * real.groupby("label_fraction").untrained.mean()
    cells = Cells(real[real.label_fraction == 0.1], "percent", ["cut_layer", "clients"])
    deep = (cells.mean(cut_layer=3, clients=100) - cells.mean(cut_layer=3, clients=5)).estimate
    ahead = {
        n: (cells.mean(cut_layer=1, clients=n) - cells.mean(cut_layer=3, clients=n)).estimate for n in (5, 20, 100)
    }
    low, high = ahead[100].interval()
    pairs = comparisons("mocosfl-table4-20-clients-dip", profile="workstation")
    (decided,) = [pair for pair in pairs if pair.interval()[0] > 0 or pair.interval()[1] < 0]
    dip = verdict("mocosfl-table4-20-clients-dip", profile="workstation")
    named = kept("mocosfl", "SplitSettings", "summary", "workstation").query("sync_every == 50")
    named = 100 * named.groupby(["cut_layer", "clients"]).identifiability.mean()
    return {
        "so 1 % is 100 labels": 100 * real.label_fraction.min(),
        "100 labels give 28 to 31 % and 1,000 give 38 to 40 %": by_cell.xs(1, level="cut_layer").max(axis=1).tolist(),
        "has 12.1 and 15.6": start.tolist(),
        "by 1.3 to 2.8 points, and 100 ahead of 20, by 0.6 to 2.2": [
            value for a, b in ((20, 5), (100, 20)) for value in (by_cell[a] - by_cell[b]).agg(["min", "max"])
        ],
        "about 8 points below 5 with 1 % of the labels and 2 to 3 below with 10 %": [
            100 * fraction for fraction in (0.01, 0.1)
        ],
        "by 2.8 points (0.8 to 4.8)": [abs(value) for value in (decided.value, *reversed(decided.interval()))],
        "(there 6.6 ahead to 1.0 behind)": [abs(end) for end in decided.interval(dip.level)],
        "by 5.0 points, with an interval of 1.1 to 8.9": (deep.value, *deep.interval()),
        "by 4.4 points with 5 clients and 1,000 labels (2.2 to 6.5)": (ahead[5].value, *ahead[5].interval()),
        "by 2.9 with 20 (0.9 to 4.9)": (ahead[20].value, *ahead[20].interval()),
        "(1.3, from 3.3 behind to 0.7 ahead)": (ahead[100].value, high, -low),
        "(in 20, 5 and 1 % of cases)": 100 / 100,
        "of 57 % with 20 and of 4 % with 100": [named[3, 20], named[3, 100]],
        "of 75, 19 and 3 %": named[1, 100],
        "identifiability of 1.00": named[3, 5] / 100,
        "so 1 % is 40 labels": least,
        "40 labels give 33 to 35 %, 400 give 60 to 61 % and all give 78 %": (
            one[0.01].max(), one[0.1].max(), one[1.0].mean(),
        ),
        "instead of 17.5 % at most": often.max(),
        "where 1 % of the labels": least,
        "at 1, 10 and 100 % of the labels": 100 * ours.label_fraction.max(),
        "13, 15 and 24 % remain, against 35, 61 and 78 %": (untrained[1.0], one[1.0, 5]),
        "with 10 % of the labels": 100 * sorted(ours.label_fraction.unique())[1],
        "points from its 60.1 %": 100 * rows(ours, label_fraction=0.1).semi_supervised_accuracy.mean(),
    }  # fmt: skip


NOT_RECORDED = {
    "keys 26 % do": "runs of an exercise",
    "guessing has 20 %": "of 5 clients",
    "falls by 1.5": "runs of an exercise",
    "is 2.5 points with 40 labels": "runs of an exercise",
    "and 1.7 with 400": "runs of an exercise",
}
