from fssl_core.privacy.inversion import InversionSettings
from tests.notebooks.prose.recorded import record


def numbers():
    arms = record("mocosfl/beyond_resistance").set_index(["client_part", "frozen"])
    attacked, freely = (arms.loc["against an attacker", frozen] for frozen in (True, False))
    control, plain = arms.loc["control, no attacker", True], arms.loc["no pre-training", False]
    return {
        "from 0.90, its control's, to 0.51": (control.ssim, attacked.ssim),
        "without any pre-training it is 0.91": plain.ssim,
        "mean image gives 0.22": attacked.mean_image_ssim,
        "falls to 28.5 %, from 76 % in the control and 52 %": [
            100 * arm.linear_probe_accuracy for arm in (attacked, control, plain)
        ],
        "SSIM 0.67, for a linear probe of 34 %": (freely.ssim, 100 * freely.linear_probe_accuracy),
        "where 1 % would be": 100 * attacked["pretrained_client.attacker_share"],
        "both have 1 %": 100 * InversionSettings.attacker_share,
        "an SSIM of 0.51, more": attacked.ssim,
    }
