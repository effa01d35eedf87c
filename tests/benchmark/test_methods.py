"""The methods of the benchmark: the same images, seen equally often; one evaluation; rates tuned alike; a new row."""

import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch

from fssl_core.benchmark import (
    EVALUATIONS,
    METHODS,
    SIZES,
    TUNED_ON,
    Method,
    Problem,
    attacks,
    averaged,
    chosen_rates,
    evaluation,
    methods_of,
    passes_over,
)
from fssl_core.benchmark import methods as module
from fssl_core.benchmark.methods import add_methods
from fssl_core.costs.client_load import images_seen
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.evaluation.untrained import UntrainedSettings
from fssl_core.evaluation.untrained import untrained as baseline
from fssl_core.experiments import run_all
from fssl_core.experiments.asked import asked
from fssl_core.federation.aggregation import RULES
from fssl_core.training.modular import ModularSettings, ModularTrainer
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_learning import SplitLearningSettings

PARTITIONS = ("dirichlet-equal:0.1", "classes:2")
SMOKE = Problem("smoke", PARTITIONS[0])
KINDS = ["MonAcoSFL, cut 1", "FedSimCLR", "Orchestra", "Prog-FedSSL", "MFCL(BN)", "SimCLR, one client's images", "MOON"]


def trainings(problem: Problem) -> dict[str, list]:
    return {name: method.trainings(problem) for name, method in METHODS.items() if name != "untrained"}


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_method_sees_each_image_equally_often(profile, partition):
    problem = Problem(profile, partition)
    for name, settings in trainings(problem).items():
        for one in settings:
            data = one.load_data()
            held = sum(map(len, getattr(one, "phase1", one).divide(data)))
            assert images_seen(one, data) == problem.passes * held, name


def counted(settings, run=None) -> int:
    """Images in the batches that the engine makes, one after the other; nothing is trained."""
    data = settings.load_data()
    if isinstance(settings, ModularSettings):
        trainer = ModularTrainer(settings, data, settings.phase1.build_model(data).client_module)
        second = sum(len(places) for epoch in range(settings.epochs) for places in trainer.order(epoch))
        return counted(settings.phase1) + second
    trainer = settings.trainer(data, run)
    if isinstance(settings, SplitSettings):
        return sum(trainer.clients.start_epoch(epoch)[0].numel() for epoch in range(settings.epochs))
    passes = settings.rounds * settings.local_epochs
    return sum(
        len(rows) for client in range(settings.clients) for number in range(passes)
        for rows, _ in trainer.batches(client, number)
    )  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_images_seen_are_those_of_the_engines_batches(name):
    (settings, *_) = METHODS[name].trainings(SMOKE)
    assert images_seen(settings, settings.load_data()) == counted(settings)


def test_images_that_make_no_full_batch_do_not_count():
    (averaging,), (split,) = (METHODS[name].trainings(SMOKE) for name in ("FedSimCLR", "MocoSFL, cut 1"))
    for settings in (averaging.changed(batch=7), split.changed(client_batch=7)):
        assert images_seen(settings, settings.load_data()) == 4 * 5 * 14 == counted(settings)
    (modular,) = METHODS["MFCL(GN)"].trainings(SMOKE)
    for settings in (modular.changed(batch=5000), modular.changed(missing=0.5), modular.changed(batch=7)):
        assert images_seen(settings, settings.load_data()) == counted(settings)
    with pytest.raises(SettingError, match="settings='SplitLearningSettings' cannot be used"):
        images_seen(SplitLearningSettings(dataset="digits", clients=2), averaging.load_data())


def test_a_division_into_unequal_parts_is_refused():
    for name in ("FedSimCLR", "MocoSFL, cut 1", "MFCL(GN)"):
        (settings,) = METHODS[name].trainings(replace(SMOKE, partition="dirichlet:0.3:8"))
        with pytest.raises(SettingError, match=r"partition='dirichlet:0.3:8' .* equally many images for every client"):
            passes_over(settings)
    assert passes_over(METHODS["untrained"].trainings(SMOKE)[0]) == 0


def test_both_split_methods_have_one_loss():
    for profile in SIZES:
        split = [METHODS[f"{name}, middle cut"].make(Problem(profile, "iid"))[0] for name in ("MocoSFL", "MonAcoSFL")]
        assert split[0] == split[1].changed(method="MocoSFL")


def test_warming_up_is_a_small_part_of_the_phase_that_tunes():
    for profile in SIZES:
        for tuning in (False, True):
            (settings,) = METHODS["MFCL(GN)"].make(Problem(profile, "iid", tuning=tuning))
            assert 1 <= settings.warmup_epochs <= max(1, settings.epochs / 4)


def test_all_start_from_one_backbone():
    first = {}
    for name in ("FedSimCLR", "FedBYOL", "MonAcoSFL, middle cut", "FedMoCoV3", "FedAvg", "SimCLR"):
        (settings,) = METHODS[name].trainings(SMOKE)
        data = settings.load_data()
        first[name] = settings.backbone(settings.build_model(data)).eval()(data.normalise(data.test.images[:4]))
    assert all(torch.equal(features, first["FedSimCLR"]) for features in first.values())


def test_equal_problems_make_equal_runs_and_each_of_its_values_another():
    keys = {name: [one.key for one in settings] for name, settings in trainings(SMOKE).items()}
    assert keys == {name: [one.key for one in settings] for name, settings in trainings(SMOKE).items()}
    assert len({key for some in keys.values() for key in some}) == sum(map(len, keys.values()))
    for changed in ({"partition": "classes:2"}, {"seed": 1}, {"rate": 2.0}):
        other = replace(SMOKE, **changed)
        for name, settings in trainings(other).items():
            same_data = name == "SimCLR" and other.partition != SMOKE.partition  # all images in one place
            assert (keys[name] == [one.key for one in settings]) == same_data, name
    with pytest.raises(SettingError, match="profile='small' cannot be used"):
        Problem("small", "iid")


def test_a_factor_multiplies_every_rate_of_a_training():
    for name, settings in trainings(Problem("smoke", "iid", rate=3.0)).items():
        for fast, base in zip(settings, METHODS[name].make(Problem("smoke", "iid")), strict=True):
            assert fast.learning_rate == pytest.approx(3 * base.learning_rate)
            if isinstance(fast, SplitSettings):
                assert fast.client_learning_rate == pytest.approx(3 * base.client_learning_rate)


def test_the_last_model_counts_everywhere():
    for problem in (SMOKE, Problem("paper", "classes:2")):
        assert {one.selection for settings in trainings(problem).values() for one in settings} == {"last"}
    assert all(size.rounds % 4 == size.tuning_rounds % 4 == 0 for size in SIZES.values())  # stages are equally long


# ---------------------------------------------------------------- tuning and evaluation


def test_the_rate_with_the_best_mean_is_chosen_for_each_method():
    rows = [("a", 1.0, 0.5), ("a", 1.0, 0.7), ("a", 3.0, 0.6), ("a", 3.0, 0.61), ("b", 1.0, 0.2), ("b", 3.0, 0.3)]
    tuning = pd.DataFrame(rows, columns=["method", "rate", "knn_accuracy"])
    assert chosen_rates(tuning) == {"a": 3.0, "b": 3.0}
    assert chosen_rates(tuning[tuning.rate == 1.0].drop(columns="knn_accuracy")) == {"a": 1.0, "b": 1.0}


def test_runs_at_a_chosen_rate_are_asked_for_once_the_rates_are_tuned(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    id, parameters = "benchmark/one_table", {"methods": ["untrained", "SimCLR"], "evaluations": ["kNN"]}
    parameters["rates"] = [1.0, 3.0]
    tuned = [METHODS["SimCLR"].trainings(Problem("smoke", rate=rate, **TUNED_ON))[0] for rate in parameters["rates"]]

    first = asked([id], "smoke", parameters)[id]
    assert {one.key for one in tuned} < {one.key for one in first.settings}
    assert first.unknown
    planned = asked([id], "smoke", parameters, estimate=True)[id]
    assert len(planned.settings) > len(first.settings)
    assert not planned.unknown

    tuning = run_all(list(first.settings))
    best = tuning.set_index("key").knn_accuracy.loc[[one.key for one in tuned]]
    (chosen,) = METHODS["SimCLR"].trainings(replace(SMOKE, rate=parameters["rates"][best.argmax()]))
    for estimate in (False, True):
        then = asked([id], "smoke", parameters, estimate=estimate)[id]
        keys = {one.key for one in then.settings}
        assert chosen.key in keys
        assert len(keys) == len(planned.settings)
        assert not then.unknown


def test_rates_are_tuned_in_whole_trainings_of_fewer_rounds(monkeypatch):
    monkeypatch.setitem(SIZES, "smoke", replace(SIZES["smoke"], rounds=8, tuning_rounds=4))
    tuned, longer = Problem("smoke", **TUNED_ON), replace(SMOKE, **TUNED_ON | {"tuning": False})
    assert tuned.passes == longer.passes / 2 == 4
    for name in KINDS:
        for short, long in zip(METHODS[name].trainings(tuned), METHODS[name].trainings(longer), strict=True):
            data = short.load_data()
            assert images_seen(short, data) == images_seen(long, data) / 2
    short, long = (METHODS["L-DAWA, after FedAvg"].trainings(problem)[0] for problem in (tuned, longer))
    assert (short.fedavg_rounds, long.fedavg_rounds) == (2, 3)  # of 4, of 8


def test_rates_that_are_not_tuned_are_an_error():
    tuning = pd.DataFrame({"method": "FedSimCLR", "rate": [1.0, 3.0]})
    tuning["training"] = [METHODS["FedSimCLR"].trainings(replace(SMOKE, rate=rate))[0] for rate in tuning.rate]
    with pytest.raises(DataError, match="not tuned yet"):
        chosen_rates(tuning)


@pytest.mark.parametrize("name", EVALUATIONS)
def test_an_evaluation_is_of_the_trained_model_or_of_the_untrained_one(name):
    (settings,) = METHODS["FedSimCLR"].trainings(SMOKE)
    assert evaluation(SMOKE, settings, name).pretraining == settings
    (start,) = METHODS["untrained"].trainings(SMOKE)
    untrained = evaluation(SMOKE, start, name)
    assert isinstance(untrained.pretraining, UntrainedSettings)
    assert untrained.changed(pretraining=settings) == evaluation(SMOKE, settings, name)
    assert baseline(untrained) == untrained
    assert baseline(evaluation(SMOKE, METHODS["MFCL(GN)"].trainings(SMOKE)[0], name)) != untrained  # another model


def test_an_unknown_evaluation_is_refused():
    with pytest.raises(SettingError, match="evaluation='probe' cannot be used: expected one of linear probe, few"):
        evaluation(SMOKE, METHODS["FedSimCLR"].trainings(SMOKE)[0], "probe")


def test_what_is_made_of_single_images_is_attacked_and_models_are_not():
    attacked = {name for name, settings in trainings(SMOKE).items() for one in settings if attacks(SMOKE, one)}
    assert attacked == {name for name in METHODS if name.startswith(("Moco", "MonAco", "MFCL"))}


# ---------------------------------------------------------------- your own


@pytest.fixture
def registries(monkeypatch):
    monkeypatch.setattr(module, "METHODS", dict(METHODS))
    monkeypatch.setitem(RULES, "squared", None)
    return module.METHODS


def test_a_method_of_your_own_is_a_row(registries, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from beside_mine import squared\n"
        "from fssl_core.benchmark.methods import METHODS, averaged\n"
        "from fssl_core.federation.aggregation import RULES\n"
        "RULES['squared'] = squared\n"
        "METHODS['mine'] = averaged('simclr', aggregation='squared')\n"
    )
    (tmp_path / "beside_mine.py").write_text("squared = lambda r: r.cosines.square() / r.cosines.square().sum(0)\n")
    known = add_methods(path)
    assert str(tmp_path) not in sys.path
    assert [*known] == [*METHODS, "mine"]
    (settings,) = known["mine"].trainings(SMOKE)
    assert settings == METHODS["FedSimCLR"].trainings(SMOKE)[0].changed(aggregation="squared")
    assert images_seen(settings, settings.load_data()) == 4 * 100


def test_a_file_may_postpone_its_annotations(registries, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from fssl_core.benchmark.methods import METHODS, Method\n"
        "from fssl_core.objectives import SimCLR\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(SimCLR):\n"
        "    name: str = 'mine'\n"
        "    least: Least = 1\n"
        "Least = int\n"
        "METHODS['mine'] = Method(lambda p: [s.changed(objective=Mine()) for s in METHODS['FedSimCLR'].trainings(p)])\n"
    )
    (settings,) = add_methods(path)["mine"].trainings(SMOKE)
    assert settings.objective.least == 1


def test_rows_are_those_that_are_named_and_a_method_of_this_project_keeps_its_name(registries, tmp_path):
    assert [*methods_of(["MOON", "FedU"])] == ["MOON", "FedU"]
    assert methods_of() == METHODS
    with pytest.raises(SettingError, match="methods='FedSIMCLR' cannot be used: expected one of 'MocoSFL, cut 1'"):
        methods_of(["FedSIMCLR"])
    path = tmp_path / "mine.py"
    path.write_text("from fssl_core.benchmark.methods import METHODS, averaged\nMETHODS['mine'] = averaged('byol')\n")
    assert [*methods_of(["mine"], path)] == ["mine"]
    assert [*methods_of(["mine"], path)] == ["mine"]  # a cell that is executed again
    path.write_text(path.read_text().replace("mine", "FedSimCLR"))
    with pytest.raises(FsslError, match="replaces FedSimCLR: give your method a name of its own"):
        add_methods(path)
    assert registries["FedSimCLR"] is METHODS["FedSimCLR"]


def test_a_file_is_executed_again_although_what_it_imports_is_not(registries, tmp_path):
    (tmp_path / "made_beside_mine.py").write_text(
        "from fssl_core.benchmark.methods import averaged\nmethod = averaged('byol')\n"
    )
    path = tmp_path / "mine.py"
    path.write_text(
        "from fssl_core.benchmark.methods import METHODS\nfrom made_beside_mine import method\n"
        "METHODS['mine'] = method\n"
    )
    first = dict(add_methods(path))
    assert add_methods(path) == first
    (tmp_path / "other.py").write_text(path.read_text().replace("mine'", "other'"))
    assert [*add_methods(tmp_path / "other.py")] == [*METHODS, "mine", "other"]


def test_a_file_that_fails_half_way_leaves_nothing_behind(registries, tmp_path):
    path, modules = tmp_path / "mine.py", set(sys.modules)
    works = "from fssl_core.benchmark.methods import METHODS, averaged\nMETHODS['mine'] = averaged('byol')\n"
    path.write_text(works + "METHODS['x']()\n")
    with pytest.raises(KeyError, match="x"):
        add_methods(path)
    assert registries == METHODS
    assert set(sys.modules) == modules
    path.write_text(works)
    first = dict(add_methods(path))
    (added,) = set(sys.modules) - modules
    of_first = sys.modules[added]
    path.write_text(works + "METHODS['x']()\n")
    with pytest.raises(KeyError, match="x"):
        add_methods(path)
    assert registries == first
    assert sys.modules[added] is of_first


def test_a_file_without_a_method_is_refused(registries, tmp_path):
    with pytest.raises(FsslError, match="There is no file"):
        add_methods(tmp_path / "mine.py")
    (tmp_path / "mine.py").write_text("x = 1\n")
    with pytest.raises(FsslError, match="adds no method"):
        add_methods(tmp_path / "mine.py")
    (tmp_path / "mine.py").write_text("from fssl_core.benchmark.methods import METHODS\nMETHODS['mine'] = 1\n")
    with pytest.raises(FsslError, match=r"METHODS\['mine'\] is no method: it has to be a Method\(...\) or averaged"):
        add_methods(tmp_path / "mine.py")
    assert "mine" not in registries


def test_a_method_says_what_it_trains():
    own = Method(lambda p: averaged("byol", rounds=2).make(p) * 2, reference=True)
    first, second = own.trainings(Problem("smoke", "iid", rate=0.5))
    assert first == second
    assert (first.rounds, first.learning_rate) == (2, 0.015)
