from tests.notebooks.prose.recorded import record


def numbers():
    ours = record("mfcl/fig7")
    severe = ours[ours.xi == 0.01]
    return {
        "52 % of the clients hold one": 100 * (severe.classes == 1).mean(),
        "falls, 1.42 in the mean": severe.groupby("seed").classes.median().mean(),
        "client has 1.64": severe.classes.mean(),
    }
