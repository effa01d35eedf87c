from fssl_core.experiments import split_settings
from fssl_core.models import build_backbone, client_elements
from fssl_core.papers.reference import paper_settings
from tests.notebooks.prose.recorded import comparisons, kept_behind, record


def share(architecture: str, cut: int) -> float:
    """Percent of the backbone's values that a client holds."""
    backbone = build_backbone(architecture, values=False)
    return 100 * client_elements(backbone, cut) / client_elements(backbone, 17)


def real() -> dict[str, float | list[float]]:
    """The numbers of ``workstation``."""
    ours = record("monacosfl/fig7", "workstation")
    known = 100 * ours.set_index(["method", "cut_layer"]).identifiability.sort_index()
    shallow, averaged = known.loc["MocoSFL", 1:9], known.loc["MonAcoSFL"]
    signed = (ours.method == "MocoSFL") & (ours.cut_layer == 13)
    epochs = kept_behind("monacosfl/fig7", "SplitSettings", "workstation")
    second = epochs[epochs.epoch == 2].set_index(["method", "cut_layer"]).loss.sort_index()
    means = 100 * ours.groupby(["cut_layer", "method"]).linear_probe_accuracy.mean().unstack()
    untrained = 100 * ours.untrained_linear_probe_accuracy.mean()
    at_cut_1 = comparisons("monacosfl-fig7-every-depth", profile="workstation")[0]
    assert known["MocoSFL", 13].eq(100).all()
    assert (means.MocoSFL - means.MonAcoSFL).abs().max() < 0.55
    return {
        "give at most 12.5 % of them away": 100 * ours[signed].identifiability_common.max(),
        "falls to 10.6 in the second": second["MocoSFL", 13].mean(),
        "stays at 13.1 or above": second["MonAcoSFL", 13].min(),
        "give 8 to 26 % away": shallow.max(),
        "11 to 18 % at every cut": averaged.max(),
        "21.6 and 21.1 % at cut 1": [*means.loc[1]],
        "18.0 and 17.6 at cut 9": [*means.loc[9]],
        "16.6 and 16.9 at cut 13": [*means.loc[13]],
        "from 3.0 points behind to 1.9 ahead": [abs(end) for end in at_cut_1.interval()],
        "untrained network is at 12.4 %": untrained,
        "best mean is 9.2 points": means.max().max() - untrained,
        "is 4.2 points above the untrained one": means.MocoSFL[13] - untrained,
        "MonAcoSFL's with 4.5": means.MonAcoSFL[13] - untrained,
    }


def numbers():
    ours = record("monacosfl/fig7")
    signed = (ours.method == "MocoSFL") & (ours.cut_layer >= 9)
    last = (ours.method == "MonAcoSFL") & (ours.cut_layer == 13)
    paper = split_settings("paper", paper="monacosfl", method="MonAcoSFL", architecture="mobilenetv2", clients=20)
    return real() | {
        "10 to 19 % of linear-probe accuracy": 100 * ours.linear_probe_accuracy.max(),
        "94 to 100 %": 100 * ours[signed].identifiability.max(),
        "(4.7 to 5.2 instead of 6.0 to 6.5)": [
            end for loss in (ours[signed].loss, ours[~signed].loss) for end in (loss.min(), loss.max())
        ],
        "it finds 7 to 14 %": 100 * ours[~signed & ~last].identifiability.max(),
        "at cut 13 it finds 13 to 36 %": 100 * ours[last].identifiability.max(),
        "use 0.06": paper.learning_rate,
        "code had 0.03": paper_settings("mocosfl")["official_code"]["mobilenet_script"]["learning_rate"],
        "0.2 % and 82 % of the values": (share("mobilenetv2", 3), share("mobilenetv2", 15)),
        "0.7 % and 58 % of the values": (share("resnet18", 3), share("resnet18", 15)),
    }
