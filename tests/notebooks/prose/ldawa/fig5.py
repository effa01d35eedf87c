from tests.notebooks.prose.recorded import comparisons, record

FACTOR = 0.7  # of the exercise


def numbers():
    ours = record("ldawa/fig5")
    order = ["FedAvg", "M-DAWA", "L-DAWA"]
    later = ours[ours["round"] >= 2].groupby("method").local_loss.mean()
    last = ours[ours["round"] == 10].groupby("method")[["local_loss", "knn_accuracy"]].mean()
    loss, knn = last.local_loss, 100 * last.knn_accuracy
    _, after = comparisons("ldawa-fig5-faster-loss", "the authors")
    behind, least = -after.value, -after.interval()[1]
    first = ours[(ours["round"] == 1) & (ours.method == "M-DAWA")].cosine
    ranked = ["FedAvg", "L-DAWA after FedAvg", "M-DAWA", "L-DAWA"]
    return {
        "2.47 with FedAvg, 2.66 with M-DAWA and 2.69 with L-DAWA": [*later[order]],
        "in the last round 2.01, 2.24 and 2.34": [*loss[order]],
        "2.14 in the last round, 2.52 over": (loss["L-DAWA after FedAvg"], later["L-DAWA after FedAvg"]),
        "0.06 behind FedAvg, with an interval of 0.03 to 0.09": (behind, least, -after.interval()[0]),
        "add up to 0.67 to 0.88": (first.min(), first.max()),
        "A model that is 0.7 times": FACTOR,
        "of a model by 0.7 change": FACTOR,
        "is 0.7 times what it was": FACTOR,
        "multiplies by 0.7 again": FACTOR,
        "losses of 2.01, 2.14, 2.24 and 2.34": [*loss[ranked]],
        "49.5, 46.0, 43.2 and 42.8 %": [*knn[ranked]],
        "0.11 in loss": loss["L-DAWA"] - loss["M-DAWA"],
        "standard error of 3.5 points": (knn["L-DAWA"] * (100 - knn["L-DAWA"]) / 200) ** 0.5,
    }
