import pytest

from fssl_core.errors import SettingError
from fssl_core.experiments import lwfedssl_evaluation, lwfedssl_evaluations, lwfedssl_settings
from fssl_core.experiments.profiles_lwfedssl import PROTOCOLS
from fssl_core.objectives import SimSiam
from fssl_core.paths import PROFILES


def settings(profile="paper", method="LW-FedSSL", ssl_method="MoCoV3", **values):
    return lwfedssl_settings(profile, method=method, ssl_method=ssl_method, **values)


@pytest.mark.parametrize("profile", PROFILES)
def test_schemes_and_places_differ_in_what_they_set_only(profile):
    whole = settings(profile, "FedMoCoV3")
    assert settings(profile).changed(scheme="end-to-end") == whole
    assert settings(profile, "MoCoV3").changed(clients=whole.clients) == whole
    assert len({settings(profile, method).key for method in ("LW-FedSSL", "Prog-FedSSL", "FedMoCoV3", "MoCoV3")}) == 4


def test_the_learning_rate_is_proportional_to_the_batch():
    usual = settings()
    half = settings(batch=usual.batch // 2)
    assert half.learning_rate == pytest.approx(usual.learning_rate / 2)
    assert settings(batch=usual.batch // 2, learning_rate=0.1).learning_rate == 0.1


def test_a_method_has_its_own_ssl_method():
    for method, ssl_method, needed in (("FedBYOL", "SimCLR", "BYOL"), ("FedCA", "BYOL", "SimCLR")):
        with pytest.raises(SettingError, match=f"ssl_method='{ssl_method}' .*'{needed}' for {method}"):
            settings(method=method, ssl_method=ssl_method)


def test_a_wrong_batch_is_named_and_not_the_rate_that_follows_from_it():
    with pytest.raises(SettingError, match="batch=-3"):
        lwfedssl_settings("smoke", method="LW-FedSSL", ssl_method="SimCLR", batch=-3)


def test_another_objective_has_no_settings_of_the_ssl_method():
    own = settings("laptop", ssl_method="SimCLR", objective={"name": "simsiam", "predictor": (8, 2048)})
    assert own.objective == SimSiam(predictor=(8, 2048))


def test_a_protocol_is_one_of_those_there_are():
    with pytest.raises(SettingError, match="fine-tuning"):
        lwfedssl_evaluation("smoke", settings("smoke", "BYOL", "BYOL"), protocol="knn")
    assert set(PROTOCOLS) == {"fine-tuning", "linear probe"}


def test_a_federation_named_with_its_own_data_set_is_evaluated_as_without():
    """LW-FedSSL's Table 6 once named it, and would have fine-tuned on other images than the tables beside it."""
    federations = [settings("smoke", method, "SimCLR") for method in ("LW-FedSSL", "FedSimCLR")]
    own = [lwfedssl_evaluation("smoke", run, protocol=protocol) for run in federations for protocol in PROTOCOLS]
    assert lwfedssl_evaluations("smoke", federations, [*PROTOCOLS]) == own
    assert lwfedssl_evaluations("smoke", federations, [*PROTOCOLS], [federations[0].dataset]) == own

    sets, scratch = [federations[0].dataset, "digits"], {"scratch": True}
    both = lwfedssl_evaluations("smoke", federations, ["fine-tuning"], sets, **scratch)
    assert [(one.pretraining, one.dataset) for one in both] == [
        (run, name) for run in federations for name in (None, "digits")
    ]
    assert all(one.scratch for one in both)
