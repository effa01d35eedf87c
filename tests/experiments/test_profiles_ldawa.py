import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.experiments import ldawa_probe, ldawa_settings, run
from fssl_core.paths import PROFILES
from fssl_core.training.averaging import METHODS


def test_ldawas_paper_profile_is_the_papers_setting():
    """Section 4.2; what the paper leaves open is the code's."""
    s = ldawa_settings("paper", method="L-DAWA")
    assert (s.architecture, s.width, s.norm, s.dataset) == ("resnet18", 64, "batch", "cifar10")
    assert (s.rounds, s.local_epochs, s.clients, s.clients_per_round, s.batch) == (200, 10, 10, None, 256)
    assert s.incomplete_batch == "kept"  # its loader has no drop_last
    assert (s.learning_rate, s.momentum, s.weight_decay, s.schedule) == (0.03, 0.9, 1e-4, "constant")
    assert (s.partition.rpartition(":")[0], s.aggregation, s.selection) == ("dirichlet:0.1", "l-dawa", "last")
    assert (s.objective.projector, s.objective.temperature, s.objective.loss) == ((128,), 0.07, "both-directions")
    assert ldawa_settings("paper", method="L-DAWA", ssl_method="Barlow Twins").objective.redundancy_weight == 0.005
    probe = ldawa_probe("paper", s)
    assert (probe.epochs, probe.protocol, probe.features, probe.label_fraction) == (100, "sgd-steps", "unpooled", 1.0)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_code_reads_the_paper_with_another_loss_and_other_first_rounds(profile):
    """Its loss has one direction with self-similarity, and its server averages in the first three rounds."""
    first = 1 if profile == "smoke" else 3  # of two rounds there
    own = ldawa_settings(profile, method="FedAvg", aggregation="l-dawa-loss", reading="code")
    assert own.fedavg_rounds == first
    for method in METHODS:
        for ssl_method in ("SimCLR", "Barlow Twins"):
            paper, code = (
                ldawa_settings(profile, method=method, ssl_method=ssl_method, reading=reading)
                for reading in ("paper", "code")
            )
            assert paper == ldawa_settings(profile, method=method, ssl_method=ssl_method)
            loss = "one-direction" if ssl_method == "SimCLR" else None
            assert getattr(code.objective, "loss", None) == loss
            if method != "L-DAWA after FedAvg":  # where they are the method's own
                assert paper.fedavg_rounds == 0
                assert code.fedavg_rounds == (first if "DAWA" in method else 0)
            same = {"objective": paper.objective, "fedavg_rounds": paper.fedavg_rounds}
            assert code.changed(**same) == paper
    with pytest.raises(SettingError, match=r"reading='mine' .*paper, code"):
        ldawa_settings(profile, method="FedAvg", reading="mine")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("ssl_method", ["SimCLR", "Barlow Twins"])
def test_methods_differ_in_what_they_set_only(profile, ssl_method):
    made = {name: ldawa_settings(profile, method=name, ssl_method=ssl_method) for name in METHODS}
    assert {name: settings.method for name, settings in made.items()} == {name: name for name in METHODS}
    plain = {"aggregation": "fedavg", "client_update": made["FedAvg"].client_update, "proximal": 0.0}
    plain |= {"fedavg_rounds": 0}
    assert all(settings.changed(**plain) == made["FedAvg"] for settings in made.values())
    assert len({settings.key for settings in made.values()}) == len(METHODS)


def test_values_replace_those_of_ldawas_profile_and_wrong_names_say_so():
    own = {"objective": {"temperature": 0.5}, "aggregation": "uniform", "seed": 3, "clients": 5}
    settings = ldawa_settings("laptop", method="FedAvg", **own)
    assert (settings.objective.name, settings.objective.temperature, settings.objective.projector) == (
        "simclr",
        0.5,
        (64,),
    )
    assert (settings.method, settings.clients, ldawa_probe("laptop", settings).seed) == ("uniform", 5, 3)
    assert ldawa_probe("smoke", settings).epochs < ldawa_probe("laptop", settings, label_fraction=0.1).epochs
    for values, message in (
        ({"method": "LDAWA"}, r"method='LDAWA' .*FedAvg, .*L-DAWA_Loss"),
        ({"method": "FedAvg", "ssl_method": "simclr"}, "ssl_method='simclr' .*SimCLR, Barlow Twins"),
        ({"method": "FedAvg", "round": 3}, "round=3 .*rounds"),
    ):
        with pytest.raises(SettingError, match=message):
            ldawa_settings("smoke", **values)
    with pytest.raises(SettingError, match="profile='tiny'"):
        ldawa_settings("tiny", method="FedAvg")


def test_a_run_keeps_the_models_on_its_way(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    settings = ldawa_settings("smoke", method="L-DAWA", probe_epochs=1)
    stored = run(settings, progress=False)
    models, best = stored.tensors("models"), stored.tensors("best")
    untrained = settings.build_model(settings.load_data()).state_dict()
    assert models.keys() == best.keys() == untrained.keys()
    for name, values in models.items():
        assert len(values) == 3  # two rounds
        assert torch.equal(values[0], untrained[name])
        assert torch.equal(values[2], best[name])  # selection="last"
    assert not torch.equal(models["encoder.0.stem.0.weight"][1], models["encoder.0.stem.0.weight"][2])
    layers = stored.table("layers")
    assert layers.groupby("round").layer.apply(set).tolist() == [set(models)] * 2
