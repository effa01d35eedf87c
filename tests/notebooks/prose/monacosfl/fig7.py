from fssl_core.experiments import split_settings
from fssl_core.models import build_backbone, client_elements
from fssl_core.papers.reference import paper_settings
from tests.notebooks.prose.recorded import record


def share(architecture: str, cut: int) -> float:
    """Percent of the backbone's values that a client holds."""
    backbone = build_backbone(architecture, values=False)
    return 100 * client_elements(backbone, cut) / client_elements(backbone, 17)


def numbers():
    ours = record("monacosfl/fig7")
    signed = (ours.method == "MocoSFL") & (ours.cut_layer >= 9)
    last = (ours.method == "MonAcoSFL") & (ours.cut_layer == 13)
    paper = split_settings("paper", paper="monacosfl", method="MonAcoSFL", architecture="mobilenetv2", clients=20)
    return {
        "10 to 19 % of linear-probe accuracy": 100 * ours.linear_probe_accuracy.max(),
        "94 to 100 %": 100 * ours[signed].identifiability.max(),
        "(4.7 to 5.2 instead of 6.0 to 6.5)": [
            end for loss in (ours[signed].loss, ours[~signed].loss) for end in (loss.min(), loss.max())
        ],
        "it finds 7 to 14 %": 100 * ours[~signed & ~last].identifiability.max(),
        "at cut 13 13 to 36 %": 100 * ours[last].identifiability.max(),
        "use 0.06": paper.learning_rate,
        "code had 0.03": paper_settings("mocosfl")["official_code"]["mobilenet_script"]["learning_rate"],
        "0.2 % and 82 % of the values": (share("mobilenetv2", 3), share("mobilenetv2", 15)),
        "0.7 % and 58 % of the values": (share("resnet18", 3), share("resnet18", 15)),
    }
