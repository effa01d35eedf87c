import numpy as np

from fssl_core.claims.estimation import LEVEL, Estimate
from tests.notebooks.prose.recorded import comparisons, record

NOT_RECORDED = {
    "to 0.54, 0.44 and 0.63": "the negatives developed, which the exercise does with reconstructions that are not kept",
    "to 0.43. The zeros": "mixtures of four, which the exercise runs",
}


def times(doublings: Estimate, level: float = LEVEL) -> list[float]:
    """The ratio of two errors, with its interval."""
    return [2**one for one in (doublings.value, *doublings.interval(level))]


def numbers():
    ours = record("mfcl/table8")
    means = ours.groupby(["part", "attack"])[["mse", "explained"]].mean()
    views = means.loc["views"]
    fitted = ours[(ours.part == "views") & (ours.attack == "C0D0 fitted")].set_index("seed").ssim
    order = comparisons("mfcl-table8-attacks")[2]  # doublings from C0D0 to C0D1, of images
    real = record("mfcl/table8", "workstation")
    found = real[real.part == "views"].groupby("attack")[["psnr", "explained"]].mean()
    doublings = np.log2(real[real.part == "views"].set_index("attack").mse).groupby("attack").mean()
    # From C1D0 to C1D1 and to C0D0, from C0D0 to C0D1, and that beside a grey image.
    mixed, unknown, both, _ = comparisons("mfcl-table8-attacks", profile="workstation")
    return {
        "back at 16.6 dB": found.psnr["C1D0"],
        "explain 60 % of": 100 * found.explained["C1D0"],
        "attacker at 33 %": 100 * found.explained["C1D1"],
        "mixtures has 60 %": 100 * found.explained["C1D1 unmixed"],
        "explains 14 %": 100 * found.explained["C0D0"],
        "pixels 37 %": 100 * found.explained["C0D0 fitted"],
        "2.8 times the squared error of the images, with an interval of 2.4 to 3.4": times(unknown),
        "1.22 times, with one of 1.07 to 1.39": times(mixed),
        "(of the views, 7.0 and 2.3 times)": [2 ** (doublings[one] - doublings["C1D0"]) for one in ("C0D0", "C1D1")],
        "0.98 times the error of the images, with an interval of 0.96 to 1.00 at the 98.75 %": [
            *times(both, 0.9875),
            98.75,
        ],
        "says 3 % for the random": 100 * views.explained["C0D0"],
        "43 % for the fitted": 100 * views.explained["C0D0 fitted"],
        "by 0.002 for views": views.mse["C0D0"] - views.mse["C0D1"],
        "0.96 times that for images, with an interval of 0.84 to 1.10": times(order),
        "from -0.26, -0.22 and -0.32": [*-fitted],
        "falls from 0.72": views.explained["C1D1 SA"],
    }
