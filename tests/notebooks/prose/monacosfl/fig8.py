from fssl_core.claims.estimation import Cells
from fssl_core.privacy.inversion import InversionSettings
from tests.notebooks.prose.recorded import comparisons, record


def numbers():
    ours = record("monacosfl/fig8")
    mean = ours.groupby("cut_layer")[["mse", "ssim"]].mean()
    by_method = ours.pivot_table("mse", "cut_layer", "method")
    guess = ours.groupby("seed").mean_image_mse.first().mean()
    untrained = ours[(ours.cut_layer == 1) & (ours.seed == 0)].untrained_mse
    real = record("monacosfl/fig8", "workstation")
    at = real.groupby(["method", "cut_layer"])[["mse", "ssim"]].mean()
    falls = comparisons("monacosfl-fig8a-reconstructions", profile="workstation")
    cells = Cells(real, "ssim", ["method", "cut_layer"])
    more = (cells.mean(method="MonAcoSFL", cut_layer=11) - cells.mean(method="MocoSFL", cut_layer=11)).estimate
    return {
        "SSIM falls by 0.46 with MocoSFL and by 0.35 with MonAcoSFL": [fall.value for fall in falls],
        "an interval of 0.04 to either side": max(fall.interval()[1] - fall.value for fall in falls),
        "as good as copied (0.87)": real[real.cut_layer == 1].ssim.mean(),
        "an MSE of 0.031 and 0.020": [at.mse["MocoSFL", 11], at.mse["MonAcoSFL", 11]],
        "the mean image has 0.063": real.mean_image_mse.mean(),
        "is 0.11 higher, with an interval of 0.07 to 0.15": (more.value, *more.interval()),
        "from 0.89 to 0.43": mean.ssim[[1, 9]].tolist(),
        "rises from 0.009 to 0.025": mean.mse[[1, 9]].tolist(),
        "against 0.038 for the mean image": guess,
        "by 0.0006 of MSE": (by_method.MonAcoSFL - by_method.MocoSFL).abs().max(),
        "at 0.025, while": mean.mse[5],
        "1 % of CIFAR": 100 * InversionSettings.attacker_share,
        "variance of a pixel, 0.038 for": guess,
        '"1 % of the data"': 100 * InversionSettings.attacker_share,
        "it is 0.08 for the paper's decoder": untrained.mean(),
    }
