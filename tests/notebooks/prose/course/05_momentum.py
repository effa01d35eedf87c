from tests.notebooks.prose.recorded import record, rows


def numbers():
    real = rows(record("monacosfl/fig6", "workstation"), cut_layer=11)
    mean = 100 * real.groupby("method").linear_probe_accuracy.mean()
    return {"it is 9.0 points behind": mean["MonAcoSFL"] - mean["MocoSFL"]}
