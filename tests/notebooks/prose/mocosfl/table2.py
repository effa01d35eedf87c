from tests.notebooks.prose.recorded import comparisons, kept_behind, record, verdict


def numbers():
    runs = record("mocosfl/table2").set_index(["cut_layer", "partition", "clients"]).sort_index()
    accuracy = 100 * runs.linear_probe_accuracy

    real = record("mocosfl/table2", "workstation")
    by_cell = real.groupby(["cut_layer", "partition", "clients"])
    probe, named = 100 * by_cell.linear_probe_accuracy.mean(), 100 * by_cell.identifiability.mean()
    metrics = kept_behind("mocosfl/table2", "SplitSettings", "workstation")
    apart = metrics.groupby(["cut_layer", "partition", "clients"]).divergence.mean()
    (iid,), (fall, deeper) = (
        comparisons(f"mocosfl-table2-{name}", profile="workstation") for name in ("iid-flat", "divergence-direction")
    )
    return {
        "44.7 % with 100 clients and 44.0 % with 1000, on non-IID data 45.0 and 43.8 %": [
            *(probe[1, "iid"] - 1e-9),  # of 44.75, which the figure rounds down
            *probe[1, "classes:2"],
        ],
        "MocoSFL-3 there 44.4 and 44.5 %": [*probe[3, "classes:2"]],
        "an untrained encoder has 19.9 and 19.2": [*100 * real.groupby("cut_layer").untrained.mean()],
        "they are 0.1 ahead, from 0.8 behind to 1.0 ahead": [
            -deeper.value,
            deeper.interval()[1],
            -deeper.interval()[0],
        ],
        "they are 0.7 behind, from 3.2 behind to 1.8 ahead": [abs(value) for value in (iid.value, *iid.interval())],
        "are 1.2 points behind with one layer (0.6 to 1.9)": (fall.value, *fall.interval()),
        "is 0.028 with 100 clients and 0.019 with 1000 at one layer, 0.103 and 0.071 at three": [
            *(apart[1, "classes:2"]),
            *(apart[3, "classes:2"]),
        ],
        "of 1.0 to 2.4 % of the keys": (named.min(), named.max()),
        "from 60.7 to 62.6 % on IID": accuracy[1, "iid"].tolist(),
        "from 62.5 to 66.0 % on non-IID": accuracy[1, "classes:2"].tolist(),
        "from 57.2 to 54.5": accuracy[3, "iid"].tolist(),
        "from 60.2 to 53.1 %": accuracy[3, "classes:2"].tolist(),
        "a margin of 0.5 points": verdict("mocosfl-table2-iid-flat").below,
        "The 84 %": verdict("mocosfl-abs-1000-clients").printed,
        "a third of its 60.2 %": accuracy[3, "classes:2", 100],
        "with ten syncs 3 % do": 100 * runs.identifiability[3, "classes:2", 100],
    }
