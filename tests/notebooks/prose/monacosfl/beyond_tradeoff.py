from fssl_core.claims.estimation import Cells
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
    real = record("monacosfl/beyond_tradeoff", "workstation")
    there = real.groupby(["method", "cut_layer"])[["linear_probe_accuracy", "bytes_per_client_epoch", "mse"]].mean()
    mona, moco = there.loc["MonAcoSFL"], there.loc["MocoSFL"]
    mib, times = mona.bytes_per_client_epoch / MIB, mona.mse / mona.mse[1]
    lower = 100 * (mona.linear_probe_accuracy[1] - mona.linear_probe_accuracy)
    cells = Cells(real, "linear_probe_accuracy", ["method", "cut_layer"])
    low, high = {}, {}
    for cut in (7, 11):
        falls = cells.mean(method="MonAcoSFL", cut_layer=1) - cells.mean(method="MonAcoSFL", cut_layer=cut)
        low[cut], high[cut] = (100 * bound for bound in falls.estimate.interval())
    return {
        "1.5 times the attack's MSE for 1.0 point of accuracy": (times[7], lower[7]),
        "not tell from nothing (−0.8 to 2.8)": (-low[7], high[7]),
        "2.8 points lower (1.0 to 4.7)": (lower[11], low[11], high[11]),
        "96.8 instead of 375.0 MiB": (mib[11], mib[1]),
        "MSE is 2.6 times as large": times[11],
        "(59.2 MiB), with 4.2 times the MSE for 5.2 points": (mib.min(), times[15], lower[15]),
        "(68.2 MiB) and costs 7.2 points": (mib[17], lower[17]),
        "alone, 5.1 times the MSE": times[17],
        "(an MSE of 0.046 and 0.050), with 31.4 and 31.6 %": (
            *moco.mse[[15, 17]], *(100 * moco.linear_probe_accuracy[[15, 17]]),
        ),
        "attack's MSE by 2.5, at": mean.mse[5] / mean.mse[1],
        "(−1.7 ± 2.1 points)": (-step.mean(), step.std()),
        "MSE (0.025 at both)": mean.mse[5],
        "SSIM (0.77 and 0.43)": mean.ssim[[5, 9]].tolist(),
        "0.8 % less traffic": 100 * models[5] / sent["MonAcoSFL", 5],
        "at 14.4 points less accuracy": lead,
        "sends 7.03 MiB, of which 9.38 - 7.03 = 2.34 MiB": (
            sent["MocoSFL", 9], sent["MonAcoSFL", 9], sent["MocoSFL", 9], models[9],
        ),
        "and 4.69 are activations": images[9],
        "4.69 + 20 × 2.34 = 51.6 MiB": (images[9], models[9], often[9]),
        "cut 1 (37.5)": often[1],
        "18.75 + 20 × 0.15 = 21.7 MiB": (images[5], models[5], often[5]),
        "saves 0.15 MiB": models[5],
        "costs 14.4 points": lead,
        "11.9 MiB cheaper, 9.9 points worse": (sent["MocoSFL", 5] - sent["MocoSFL", 9], behind),
    }  # fmt: skip
