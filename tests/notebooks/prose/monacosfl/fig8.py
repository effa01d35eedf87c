from fssl_core.privacy.inversion import InversionSettings
from tests.notebooks.prose.recorded import record


def numbers():
    ours = record("monacosfl/fig8")
    mean = ours.groupby("cut_layer")[["mse", "ssim"]].mean()
    by_method = ours.pivot_table("mse", "cut_layer", "method")
    guess = ours.groupby("seed").mean_image_mse.first().mean()
    untrained = ours[(ours.cut_layer == 1) & (ours.seed == 0)].untrained_mse
    return {
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
