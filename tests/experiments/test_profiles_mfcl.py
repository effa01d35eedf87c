import pytest

from fssl_core.errors import SettingError
from fssl_core.experiments import mfcl_rival_settings, mfcl_settings, run_all
from fssl_core.experiments.profiles_mfcl import MFCL_METHODS, RIVALS
from fssl_core.paths import PROFILES

XIS = [
    (make, method, xi)
    for make, method in ((mfcl_settings, "MFCL(TN)"), (mfcl_rival_settings, "MOON"))
    for xi in (-1.0, 0.0, float("nan"), "0.1")
]


@pytest.mark.parametrize("method", MFCL_METHODS)
def test_mfcl_trains_at_smoke(method):
    summary = run_all([mfcl_settings("smoke", method=method, xi=0.01)], progress=False).iloc[0]
    assert 0 <= summary.linear_probe_accuracy <= 1
    assert summary["phase1.norm"] == MFCL_METHODS[method][0]
    assert summary["twins"] == ("views apart" not in method)


@pytest.mark.parametrize("method", RIVALS)
def test_every_rival_trains_at_smoke(method):
    summary = run_all([mfcl_rival_settings("smoke", method=method)], progress=False).iloc[0]
    supervised = method in ("FedAvg", "FedProx", "MOON", "FSL", "HeteroFL", "Split-Mix", "FedPAC")
    assert 0 <= summary["test_accuracy" if supervised else "linear_probe_accuracy"] <= 1


@pytest.mark.parametrize("profile", PROFILES)
def test_methods_divide_the_images_alike(profile):
    mfcl = mfcl_settings(profile, xi=0.01).phase1
    for method in RIVALS:
        rival = mfcl_rival_settings(profile, method=method, xi=0.01)
        assert (rival.partition, rival.clients, rival.dataset) == (mfcl.partition, mfcl.clients, mfcl.dataset)


@pytest.mark.parametrize("profile", PROFILES)
def test_concentrations_are_told_apart_and_written_as_they_were_recorded(profile):
    of = [mfcl_settings(profile, xi=xi).phase1.partition.split(":")[1] for xi in (0.1, 200, 200.0, 0.01, 0.1234567)]
    assert of == ["0.1", "200", "200", "0.01", "0.1234567"]


def test_the_paper_profile_is_the_papers_setting():
    settings = mfcl_settings("paper")  # Tables 9 and 12, Section 5.1
    first = settings.phase1
    assert (first.architecture, first.cut, first.norm, first.channels_per_group) == ("resnet18", 2, "twin", None)
    assert (first.rounds, first.batch, first.learning_rate, first.clients) == (15, 64, 0.05, 10)
    assert (settings.epochs, settings.learning_rate, settings.pairs) == (150, 1.0, 8)
    tiny = mfcl_settings("paper", dataset="tiny-imagenet-200")
    assert (tiny.phase1.architecture, tiny.phase1.cut, tiny.phase1.clients) == ("resnet50", 4, 100)
    assert (tiny.phase1.learning_rate, tiny.epochs) == (0.001, 200)
    assert mfcl_rival_settings("paper", method="FedSimCLR").rounds == 800  # Table 3


def test_a_narrow_network_has_narrow_heads():
    narrow, wide = (mfcl_rival_settings(profile, method="FedEMA") for profile in ("workstation", "paper"))
    for head in ("projector", "predictor"):
        sizes, full = getattr(narrow.objective, head), getattr(wide.objective, head)
        assert [size * wide.width // narrow.width for size in sizes] == [*full]


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (mfcl_settings, {"method": "TN"}, "method"),
        (mfcl_settings, {"dataset": "digits"}, "dataset"),
        (mfcl_settings, {"phase1": {"rouds": 3}}, "rouds"),
        (mfcl_rival_settings, {"method": "MFCL"}, "method"),
        (mfcl_rival_settings, {"method": "MOON", "epochs": 3}, "epochs"),
        *((make, {"method": method, "xi": xi}, f"xi={xi!r} cannot be used") for make, method, xi in XIS),
    ],
)
def test_wrong_names_say_so(make, values, message):
    with pytest.raises(SettingError, match=message):
        make("smoke", **values)
