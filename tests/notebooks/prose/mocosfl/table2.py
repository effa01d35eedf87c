from tests.notebooks.prose.recorded import record, verdict


def numbers():
    runs = record("mocosfl/table2").set_index(["cut_layer", "partition", "clients"]).sort_index()
    accuracy = 100 * runs.linear_probe_accuracy
    return {
        "from 60.7 to 62.6 % on IID": accuracy[1, "iid"].tolist(),
        "from 62.5 to 66.0 % on non-IID": accuracy[1, "classes:2"].tolist(),
        "from 57.2 to 54.5": accuracy[3, "iid"].tolist(),
        "from 60.2 to 53.1 %": accuracy[3, "classes:2"].tolist(),
        "a margin of 0.5 points": verdict("mocosfl-table2-iid-flat").below,
        "The 84 %": verdict("mocosfl-abs-1000-clients").printed,
        "a third of its 60.2 %": accuracy[3, "classes:2", 100],
        "with ten syncs 3 % do": 100 * runs.identifiability[3, "classes:2", 100],
    }
