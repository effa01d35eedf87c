from tests.notebooks.prose.recorded import record, verdict

CONTROL = "the control below the figure, which the record leaves out"
NOT_RECORDED = {
    "53 to 58 % of the cases": CONTROL,
    "49.6 to 50.1 %": "saliency of untrained networks, which the exercise takes",
}


def points(judged) -> tuple[float, float, float]:
    """By how much the first is behind, and how far the interval reaches to either side."""
    return -100 * judged.estimate, -100 * judged.low, 100 * judged.high


def numbers():
    ours = record("mfcl/fig4")
    share = 100 * ours.groupby(["method", "client"]).rare_half_share.mean()
    learn = 100 * ours[ours.method != "MFCL(TN)"].own_classifier_accuracy
    together, apart = (verdict("mfcl-fig4-saliency", f"views normalised {how}") for how in ("together", "apart"))
    return {
        "95 % intervals": 95,
        "49.9 and 50.5 %": [*share["MFCL(BN)"]],
        "51.7 and 48.5 with": [*share["MFCL(TN)"]],
        "47.5 and 52.6 with": [*share["MFCL(TN), views apart"]],
        "is 2.0 points behind batch norm at the second, from 4.6 behind to 0.7 ahead": points(together),
        "2.4 behind at the first, from 5.1 behind to 0.3 ahead": points(apart),
        "77 to 93 % of": learn.max(),
    }
