from tests.notebooks.prose.recorded import record

CONTROL = "the control below the figure, which the record leaves out"
NOT_RECORDED = {
    "59 % of the cases": CONTROL,
    "49.6 to 50.1 %": "saliency of untrained networks, which the exercise takes",
}


def numbers():
    ours = record("mfcl/fig4").set_index(["method", "client"])
    share = 100 * ours.rare_half_share
    learn = 100 * ours.own_classifier_accuracy.drop("MFCL(TN)")
    return {
        "51.1 and 50.0 %": [*share["MFCL(BN)"]],
        "50.3 and 50.8 with": [*share["MFCL(TN)"]],
        "45.4 and 54.9 with": [*share["MFCL(TN), views apart"]],
        "77 to 93 % of": learn.max(),
    }
