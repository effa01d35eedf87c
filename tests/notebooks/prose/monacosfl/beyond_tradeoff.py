from tests.notebooks.prose.recorded import record

MIB = 2**20


def numbers():
    runs = record("monacosfl/beyond_tradeoff").set_index(["method", "cut_layer", "seed"]).sort_index()
    accuracy = 100 * runs.linear_probe_accuracy
    step = accuracy["MonAcoSFL", 5] - accuracy["MonAcoSFL", 1]
    mean = runs[["mse", "ssim"]].groupby(level=["method", "cut_layer"]).mean().loc["MonAcoSFL"]
    lead = (accuracy["MonAcoSFL", 5] - accuracy["MocoSFL", 5]).mean()
    behind = accuracy["MocoSFL", 5].mean() - accuracy["MocoSFL", 9].mean()

    sent = runs.bytes_per_client_epoch.groupby(level=["method", "cut_layer"]).first() / MIB
    models = sent["MonAcoSFL"] - sent["MocoSFL"]  # MonAcoSFL's second average moves as much as the only one of MocoSFL
    images = sent["MocoSFL"] - models
    often = images + 20 * models  # ten synchronisations of two models
    real = record("monacosfl/beyond_tradeoff", "workstation").groupby(["method", "cut_layer"])
    there = real[["linear_probe_accuracy", "bytes_per_client_epoch", "mse"]].mean()
    best, first, other = there.loc[("MonAcoSFL", 11)], there.loc[("MonAcoSFL", 1)], there.loc[("MocoSFL", 11)]
    return {
        "96.8 instead of 375.0 MiB": (best.bytes_per_client_epoch / MIB, first.bytes_per_client_epoch / MIB),
        "MSE is 2.5 times as large": best.mse / first.mse,
        "accuracy is 1.9 points lower": 100 * (first - best).linear_probe_accuracy,
        "(an MSE of 0.031 instead of 0.020), at 9.4 points less": (
            other.mse, best.mse, 100 * (best - other).linear_probe_accuracy,
        ),
        "(−0.9 ± 1.4 points)": (-step.mean(), step.std()),
        "MSE (0.025 at both)": mean.mse[5],
        "SSIM (0.77 and 0.44)": mean.ssim[[5, 9]].tolist(),
        "0.8 % less traffic": 100 * models[5] / sent["MonAcoSFL", 5],
        "at 12.5 points less accuracy": lead,
        "sends 7.03 MiB, of which 9.38 - 7.03 = 2.34 MiB": (
            sent["MocoSFL", 9], sent["MonAcoSFL", 9], sent["MocoSFL", 9], models[9],
        ),
        "and 4.69 are activations": images[9],
        "4.69 + 20 × 2.34 = 51.6 MiB": (images[9], models[9], often[9]),
        "cut 1 (37.5)": often[1],
        "18.75 + 20 × 0.15 = 21.7 MiB": (images[5], models[5], often[5]),
        "saves 0.15 MiB": models[5],
        "costs 12.5 points": lead,
        "11.9 MiB cheaper, 11.5 points worse": (sent["MocoSFL", 5] - sent["MocoSFL", 9], behind),
    }  # fmt: skip
