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
        "2.90 with FedAvg, 3.28 with M-DAWA and 3.15 with L-DAWA": [*real_later[order]],
        "0.38 behind FedAvg, with an interval of 0.25 to 0.52": behind_by(m_dawa),
        "0.25, with one of 0.11 to 0.39": behind_by(l_dawa),
        "*L-DAWA after FedAvg* has 3.00": real_later["L-DAWA after FedAvg"],
        "0.09 behind FedAvg with an interval of 0.05 to 0.13": behind_by(real_after),
        "2.18, 2.60, 2.47 and 2.37": [*real_last.local_loss[[*order, "L-DAWA after FedAvg"]]],
        "norm is 29.5, where FedAvg's is 49.8": [*real_last.model_norm[["M-DAWA", "FedAvg"]]],
        "L-DAWA keeps 47.5": real_last.model_norm["L-DAWA"],
        "FedAvg has 46.4 %, M-DAWA 44.4 %, L-DAWA 45.7 % and L-DAWA after FedAvg 46.3 %": [
            *probe[[*order, "L-DAWA after FedAvg"]]
        ],
        "untrained encoder has 28.9 %": 100 * real_last.untrained.mean(),
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
