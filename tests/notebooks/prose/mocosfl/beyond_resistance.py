from fssl_core.privacy.inversion import InversionSettings
from tests.notebooks.prose.recorded import ahead, record


def numbers():
    runs = record("mocosfl/beyond_resistance")
    arms = runs.groupby(["client_part", "frozen"])
    probe, similarity = 100 * arms.linear_probe_accuracy.mean(), arms.ssim.mean()
    attacked, freely = (("against an attacker", frozen) for frozen in (True, False))
    control, plain = ("control, no attacker", True), ("no pre-training", False)
    by_seed = arms.get_group(attacked).set_index("seed").ssim.sort_index().tolist()
    sides = [{"client_part": part, "frozen": frozen} for part, frozen in (control, attacked)]
    return {
        "three seeds, 95 % intervals": 95,
        "a linear probe of 10.0 %, which": probe[attacked],
        "its control has 75.3 % and a client part without pre-training 46.3": (probe[control], probe[plain]),
        "65.3 points less than the control (61.4 to 69.2)": ahead(runs, *sides, "linear_probe_accuracy"),
        "is 0.66, 0.31 and 0.68; in the control it is 0.90, and 0.22": (
            *by_seed, similarity[control], runs.mean_image_ssim.mean(),
        ),
        "falls by 0.35, with an interval of 0.13 to 0.57": [share / 100 for share in ahead(runs, *sides, "ssim")],
        "a probe of 11.9 %, at an SSIM of 0.54": (probe[freely], similarity[freely]),
        "where 1 % would be": 100 * runs["pretrained_client.attacker_share"].max(),
        "both have 1 %": 100 * InversionSettings.attacker_share,
        "an SSIM of 0.66, 0.31 and 0.68, in the mean 0.55": (*by_seed, similarity[attacked]),
    }  # fmt: skip


NOT_RECORDED = {
    "test images 74, 44 and 77 % of": "exercise 3, from the runs' models",
    "names 85, 92 and 79 % of the digits, the control's 98": "the pre-trainings' summaries",
    "SSIM is 0.89 with every seed": "pre-trainings with decoder_steps=1, computed for this sentence",
    "at last 0.38, 0.48 and 0.42": "the pre-trainings' tables",
    "74, 44 and 77 % for the three seeds": "exercise 3, from the runs' models",
}
