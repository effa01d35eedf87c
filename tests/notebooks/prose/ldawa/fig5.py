from tests.notebooks.prose.recorded import behind_by, comparisons, record

FACTOR = 0.7  # of the exercise


def numbers():
    ours = record("ldawa/fig5")
    order = ["FedAvg", "M-DAWA", "L-DAWA"]
    later = ours[ours["round"] >= 2].groupby("method").local_loss.mean()
    last = ours[ours["round"] == 10].groupby("method")[["local_loss", "knn_accuracy"]].mean()
    loss, knn = last.local_loss, 100 * last.knn_accuracy
    after, _ = comparisons("ldawa-fig5-faster-loss", "the authors")
    first = ours[(ours["round"] == 1) & (ours.method == "M-DAWA")].cosine
    ranked = ["FedAvg", "L-DAWA after FedAvg", "M-DAWA", "L-DAWA"]
    real = record("ldawa/fig5", "workstation")
    real_later = real[real["round"] >= 2].groupby("method").local_loss.mean()
    real_last = real[real["round"] == 10].groupby("method").mean(numeric_only=True)
    probe = 100 * real_last.accuracy
    m_dawa, l_dawa = comparisons("ldawa-fig5-faster-loss", "the paper", "workstation")
    real_after, _ = comparisons("ldawa-fig5-faster-loss", "the authors", "workstation")
    return {
        "2.92 with FedAvg, 3.25 with M-DAWA and 3.13 with L-DAWA": [*real_later[order]],
        "0.33 behind FedAvg, with an interval of 0.26 to 0.40": behind_by(m_dawa),
        "0.20, with one of 0.13 to 0.27": behind_by(l_dawa),
        "*L-DAWA after FedAvg* has 3.00": real_later["L-DAWA after FedAvg"],
        "0.08 behind FedAvg with an interval of 0.03 to 0.13": behind_by(real_after),
        "2.19, 2.56, 2.43 and 2.37": [*real_last.local_loss[[*order, "L-DAWA after FedAvg"]]],
        "norm is 30.0, where FedAvg's is 49.7": [*real_last.model_norm[["M-DAWA", "FedAvg"]]],
        "L-DAWA keeps 47.5": real_last.model_norm["L-DAWA"],
        "FedAvg has 46.1 %, M-DAWA 44.9 %, L-DAWA 45.4 % and L-DAWA after FedAvg 46.2 %": [
            *probe[[*order, "L-DAWA after FedAvg"]]
        ],
        "untrained encoder has 28.1 %": 100 * real_last.untrained.mean(),
        "2.47 with FedAvg, 2.66 with M-DAWA and 2.69 with L-DAWA": [*later[order]],
        "in the last round 2.01, 2.24 and 2.34": [*loss[order]],
        "2.14 in the last round, 2.52 over": (loss["L-DAWA after FedAvg"], later["L-DAWA after FedAvg"]),
        "0.06 behind FedAvg, with an interval of 0.05 to 0.06": behind_by(after),
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
