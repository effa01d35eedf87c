from fssl_core.evaluation.landscape_runs import LandscapeSettings
from tests.notebooks.prose.recorded import comparisons, record, verdict

PLANE = "landscapes in the filter-normalised plane, which the record leaves out"
NOT_RECORDED = {
    "gone: 0.06 and 0.06": PLANE,
    "0.20 and 0.08, lower": PLANE,
    "0.34 for SimCLR and 0.51 for Barlow Twins": "models of the stored runs, which the exercise takes",
}
METHODS = ["FedAvg", "L-DAWA", "L-DAWA after FedAvg"]


def numbers():
    ours = record("ldawa/fig2").groupby(["ssl_method", "method"])
    rise, path, loss, norm = (
        ours[name].mean() for name in ("circle_loss_increase", "path_ratio", "final_loss", "final_norm")
    )
    simclr, barlow = rise["SimCLR"], rise["Barlow Twins"]
    wider = verdict("ldawa-fig2-wider-basin", "the paper")
    radius = 100 * LandscapeSettings.radii[0]
    larger = 100 * (norm.xs("FedAvg", level="method") / norm.xs("L-DAWA", level="method") - 1)
    real = record("ldawa/fig2", "workstation").groupby(["ssl_method", "method"])
    real_rise, real_path = (real[name].mean()["SimCLR"] for name in ("circle_loss_increase", "path_ratio"))
    real_loss = real.final_loss.mean()["SimCLR"]
    readings = ("the paper", "the authors")
    wider_there = [verdict("ldawa-fig2-wider-basin", reading, "workstation") for reading in readings]
    (in_plane, whole), (after_in_plane, after_whole) = (
        comparisons("ldawa-fig2-shorter-path-simclr", reading, "workstation") for reading in readings
    )
    after_low, after_high = after_in_plane.interval()
    return {
        "0.15 at FedAvg, by 0.20 at L-DAWA and by 0.20 at": [*real_rise[METHODS]],
        "path is 1.26 times the distance of its ends, FedAvg's 1.28": [*real_path[["L-DAWA", "FedAvg"]]],
        "L-DAWA after FedAvg 1.31": real_path["L-DAWA after FedAvg"],
        "between -0.08 and -0.02": (-wider_there[0].low, -wider_there[0].high),
        "between -0.08 and -0.01, at the 97.5 %": (
            *(-wider_there[1].low, -wider_there[1].high),
            100 * wider_there[1].level,
        ),
        "is 0.021, with an interval of 0.007 to 0.035": (in_plane.value, *in_plane.interval()),
        "is -0.033, with one of -0.041 to -0.026": (-after_in_plane.value, -after_low, -after_high),
        "are 0.099, with an interval of 0.049 to 0.150": (whole.value, *whole.interval()),
        "and 0.039, with one from just below zero to 0.078": (after_whole.value, after_whole.interval()[1]),
        "loss of 1.97, FedAvg's at 1.75": [*real_loss[["L-DAWA", "FedAvg"]]],
        "by 0.11 at FedAvg, by 0.21 at L-DAWA and by 0.15 at": [*simclr[METHODS]],
        "between -0.18 and -0.02, again at 97.5 %": (-wider.low, -wider.high, 100 * wider.level),
        "0.41 and 0.65 on": [*barlow[METHODS[:2]]],
        "1.27 against 1.38 times": (path["SimCLR", "L-DAWA"], path["SimCLR", "FedAvg"]),
        "with every seed, 1.43": path["SimCLR", "L-DAWA after FedAvg"],
        "2.07 against 1.74": (loss["SimCLR", "L-DAWA"], loss["SimCLR", "FedAvg"]),
        "5 % in the claim": radius,
        "at 5 % of the norm": radius,
        "37.6 and 35.3 (SimCLR)": [*norm["SimCLR"][METHODS[:2]]],
        "38.2 and 32.4 (Barlow Twins)": [*norm["Barlow Twins"][METHODS[:2]]],
        "18 % larger": larger["Barlow Twins"],
    }
