from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = record("mocosfl/table4")
    mean = 100 * ours.groupby(["cut_layer", "label_fraction", "clients"]).semi_supervised_accuracy.mean()
    one = mean[1]
    untrained = 100 * rows(ours, cut_layer=1, clients=5).groupby("label_fraction").untrained.mean()
    often = 100 * rows(record("mocosfl/table1"), cut_layer=3).identifiability  # the same pre-trainings
    once = 100 * rows(record("mocosfl/fig4"), cut_layer=1, syncs_per_epoch=1).identifiability
    least = 100 * ours.label_fraction.min()
    return {
        "so 1 % is 40 labels": least,
        "40 labels give 34 %, 400 give 60 to 63 % and all give 78 to 79 %": (
            one[0.01].mean(), one[0.1].max(), one[1.0].max(),
        ),
        "instead of 6 to 20 %": often.max(),
        "where 1 % of the labels": least,
        "at 1, 10 and 100 % of the labels": 100 * ours.label_fraction.max(),
        "13, 15 and 24 % remain, against 34, 63 and 78 %": (untrained[1.0], one[1.0, 5]),
        "with 10 % of the labels": 100 * sorted(ours.label_fraction.unique())[1],
        "nearly two points from its 60.2 %": 100 * rows(ours, label_fraction=0.1).semi_supervised_accuracy.mean(),
        "of 5 clients' keys 20 % do": once.mean(),
    }  # fmt: skip


NOT_RECORDED = {"is 3.4 points with 40 labels": "runs of an exercise", "and 1.2 with 400": "runs of an exercise"}
