from tests.notebooks.prose.recorded import comparisons, record

NOT_RECORDED = {
    "to 0.54, 0.44 and 0.63": "the negatives developed, which the exercise does with reconstructions that are not kept",
    "to 0.43. The zeros": "mixtures of four, which the exercise runs",
}


def numbers():
    ours = record("mfcl/table8")
    means = ours.groupby(["part", "attack"])[["mse", "explained"]].mean()
    views, images = means.loc["views"], means.loc["images"]
    fitted = ours[(ours.part == "views") & (ours.attack == "C0D0 fitted")].set_index("seed").ssim
    order = comparisons("mfcl-table8-attacks")[2]  # C1D0 < C1D1 < C0D0 < C0D1
    real = record("mfcl/table8", "workstation")
    found = real[real.part == "views"].groupby("attack")[["psnr", "explained"]].mean()
    mixed, unknown, *_ = comparisons("mfcl-table8-attacks", profile="workstation")  # C1D0 < C1D1, C1D0 < C0D0
    return {
        "back at 17.1 dB": found.psnr["C1D0"],
        "explain 58 % of": 100 * found.explained["C1D0"],
        "attacker at 34 %": 100 * found.explained["C1D1"],
        "mixtures has 58 %": 100 * found.explained["C1D1 unmixed"],
        "explains 11 %": 100 * found.explained["C0D0"],
        "pixels 34 %": 100 * found.explained["C0D0 fitted"],
        "0.12 of squared error, with an interval of 0.05 to 0.19": (unknown.value, *unknown.interval()),
        "0.014, with one of -0.058 to 0.086": (mixed.value, -mixed.interval()[0], mixed.interval()[1]),
        "says 3 % for the random": 100 * views.explained["C0D0"],
        "43 % for the fitted": 100 * views.explained["C0D0 fitted"],
        "by 0.0005 for views": views.mse["C0D0"] - views.mse["C0D1"],
        "by 0.004 for images": images.mse["C0D0"] - images.mse["C0D1"],
        "0.013 to either side": order.interval()[1] - order.value,
        "from -0.26, -0.22 and -0.32": [*-fitted],
        "falls from 0.72": views.explained["C1D1 SA"],
    }
