from tests.notebooks.prose.recorded import comparisons, record, verdict


def numbers():
    runs = record("mocosfl/table2").set_index(["cut_layer", "partition", "clients"]).sort_index()
    accuracy = 100 * runs.linear_probe_accuracy

    real = record("mocosfl/table2", "workstation")
    by_cell = real.groupby(["partition", "clients"])
    probe, named = 100 * by_cell.linear_probe_accuracy.mean(), 100 * by_cell.identifiability.mean()
    (iid,), (fall,) = (
        comparisons(f"mocosfl-table2-{name}", profile="workstation") for name in ("iid-flat", "divergence-direction")
    )
    return {
        "45.0 % with 100 clients and 44.3 % with 1000, on non-IID data 44.9 and 43.7 %": [
            *probe["iid"],
            *probe["classes:2"],
        ],
        "an untrained encoder has 19.2": 100 * real.untrained.mean(),
        "0.7 behind on IID data (7.4 behind to 6.1 ahead)": [abs(value) for value in (iid.value, *iid.interval())],
        "1.2 behind on non-IID data (2.9 behind to 0.5 ahead)": [
            abs(value) for value in (fall.value, *reversed(fall.interval()))
        ],
        "of 1.0 to 2.2 % of the keys": (named.min(), named.max()),
        "from 60.7 to 62.6 % on IID": accuracy[1, "iid"].tolist(),
        "from 62.5 to 66.0 % on non-IID": accuracy[1, "classes:2"].tolist(),
        "from 57.2 to 54.5": accuracy[3, "iid"].tolist(),
        "from 60.2 to 53.1 %": accuracy[3, "classes:2"].tolist(),
        "a margin of 0.5 points": verdict("mocosfl-table2-iid-flat").below,
        "The 84 %": verdict("mocosfl-abs-1000-clients").printed,
        "a third of its 60.2 %": accuracy[3, "classes:2", 100],
        "with ten syncs 3 % do": 100 * runs.identifiability[3, "classes:2", 100],
    }
