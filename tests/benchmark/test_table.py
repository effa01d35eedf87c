"""The columns of the benchmark against the ledger and by hand, and the answer on tables with a known one."""

import shutil

import numpy as np
import pandas as pd
import pytest

from fssl_core.benchmark import (
    MB,
    METHODS,
    Problem,
    choose,
    counted_needs,
    curves,
    load_of,
    overview,
    resources,
    within,
)
from fssl_core.benchmark.table import GB, LINKS
from fssl_core.errors import DataError, SettingError
from fssl_core.experiments.store import Run, run_all

SMOKE = Problem("smoke", "dirichlet-equal:0.1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One training of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSSL_RUNS", str(tmp_path_factory.mktemp("runs")))
        names = ("FedSimCLR", "MocoSFL, cut 1", "LW-FedSSL", "MFCL(GN)", "SimCLR, one client's images")
        settings = {name: METHODS[name].trainings(SMOKE)[0] for name in names}
        run_all([*settings.values()], progress=False, workers=1)
        yield settings


def test_an_averaged_client_by_hand(finished):
    settings = finished["FedSimCLR"]
    needs = resources(settings, load_of(settings))
    model = settings.build_model(settings.load_data())
    sent = 4 * sum(value.nbytes for value in model.state_dict().values())  # in each of four rounds
    assert needs["up_bytes"] == needs["down_bytes"] == sent
    assert needs["traffic_bytes"] == 2 * sent
    assert needs["rounds"] == 4
    for speed in (10, 100):
        assert needs[f"seconds_{speed}"] == pytest.approx(2 * 8 * sent / (speed * 1e6) + 4 * 2 * 0.05)
    link = LINKS["seconds_10_stragglers"]
    slowest = [
        link.changed(seed=seed).slow_downs(epoch, clients=5).max() for seed in range(100) for epoch in (1, 2, 3, 4)
    ]
    mean = float(sum(slowest)) / 100  # the sum over four rounds
    assert needs["seconds_10_stragglers"] == pytest.approx(mean * 2 * 8 * sent / 4 / 10e6 + 4 * 2 * 0.05)
    assert needs["passes"] == SMOKE.passes


def test_a_split_client_waits_at_every_step_and_average(finished):
    settings = finished["MocoSFL, cut 1"]
    needs = resources(settings, load_of(settings))
    steps, values = 4, 20 * 2 * 8 * 16 * 16  # both views of 20 images, 8 channels
    part = settings.build_model(settings.load_data())[0]
    model = sum(parameter.nbytes for parameter in part.parameters())
    assert needs["up_bytes"] == steps * (2 * 4 * values + model)  # online and momentum, and an average a step
    assert needs["down_bytes"] == steps * (4 * values + model)
    assert needs["rounds"] == 4
    assert needs["seconds_10"] == pytest.approx(8 * needs["traffic_bytes"] / 10e6 + 4 * 2 * 2 * 0.05)


def test_a_modular_client_needs_both_phases(finished):
    settings = finished["MFCL(GN)"]
    needs = resources(settings, load_of(settings))
    both = [
        Run(phase).table("traffic").filter(regex="_(up|down)$").to_numpy().sum()
        for phase in (settings.phase1, settings)
    ]
    assert min(both) > 0
    assert needs["traffic_bytes"] == sum(both) / 5
    assert needs["rounds"] == 2  # one average, one delivery


def test_a_phase_that_did_not_come_with_the_last_one_is_found(finished):
    """As when the last phase was taken from the project's records, which nobody had asked for the first."""
    settings = finished["MFCL(GN)"]
    load = load_of(settings)
    before = resources(settings, load)
    shutil.rmtree(Run(settings.phase1).folder)
    assert resources(settings, load) == before


def test_a_client_alone_sends_nothing_and_an_untrained_model_needs_nothing(finished):
    settings = finished["SimCLR, one client's images"]
    needs = resources(settings, load_of(settings))
    assert needs["traffic_bytes"] == needs["seconds_10"] == needs["rounds"] == 0
    assert needs["macs"] == resources(finished["FedSimCLR"], load_of(finished["FedSimCLR"]))["macs"] > 0
    (untrained,) = METHODS["untrained"].trainings(SMOKE)
    assert set(resources(untrained, load_of(untrained)).values()) == {0.0}
    assert curves(untrained, None).empty


def test_needs_that_are_counted_are_those_of_trainings(finished):
    counted = counted_needs(METHODS, SMOKE).set_index("method")
    assert set(counted.index) == {name for name, method in METHODS.items() if not method.reference}
    for name, settings in finished.items():
        if METHODS[name].reference:
            continue
        needs = resources(settings, load_of(settings))
        expected = [needs["memory_bytes"] / MB, needs["macs"] / 1e9, needs["traffic_bytes"] / MB]
        assert counted.loc[name].tolist() == pytest.approx(expected, rel=1e-12)


def test_a_curve_ends_with_all_that_was_spent(finished):
    for name, settings in finished.items():
        load = load_of(settings)
        curve, needs = curves(settings, load), resources(settings, load)
        last = curve.iloc[-1]
        assert last["passes"] == SMOKE.passes, name
        for column in ("macs", "traffic_bytes", "memory_bytes"):
            assert last[column] == pytest.approx(needs[column]), (name, column)
            assert curve[column].is_monotonic_increasing
        assert last["knn_accuracy"] == Run(settings).summary["knn_accuracy"]


def test_a_curve_of_stages_follows_their_needs(finished):
    settings = finished["LW-FedSSL"]
    load, curve = load_of(settings), curves(settings, load_of(settings))
    each = [20 * stage.image_macs for stage in load.stages]  # 20 images a client, a stage a round
    assert curve["macs"].tolist() == pytest.approx(np.cumsum(each).tolist())
    memory = [stage.memory.total_bytes for stage in load.stages]
    assert curve["memory_bytes"].tolist() == [max(memory[: n + 1]) for n in range(4)]


def test_a_budget_admits_the_rounds_that_it_pays_for():
    curve = pd.DataFrame({"epoch": [1, 2, 3], "macs": [10, 20, 30], "knn_accuracy": [0.1, 0.4, 0.3]})
    found = within(curve, "macs", [5, 10, 29, 30, 100])["knn_accuracy"].tolist()
    assert np.isnan(found[0])
    assert found[1:] == [0.1, 0.4, 0.3, 0.3]  # the last one, not the best
    unvalidated = curve.assign(knn_accuracy=[0.1, np.nan, 0.3])
    assert within(unvalidated, "macs", [29, 30])["knn_accuracy"].tolist() == [0.1, 0.3]
    with pytest.raises(SettingError, match="budget='euros' cannot be used: expected one of passes, macs"):
        within(curve, "euros", [1])


# ---------------------------------------------------------------- the answer


def table(**accuracies) -> pd.DataFrame:
    """Five seeds of each method: its mean, the same ups and downs for all, and noise of 0.2 points."""
    noise = np.random.default_rng(0)
    rows = [
        {
            "method": method,
            "reference": method == "labels",
            "partition": "iid",
            "seed": seed,
            "probe": mean + 0.05 * seed + noise.normal(0, 0.002),
            "memory_bytes": 200 * MB if method == "large" else 50 * MB,
            "traffic_bytes": 2 * GB if method == "talks" else 10 * MB,
            "explained": {"open": 0.9, "closed": 0.1}.get(method, np.nan),
        }
        for method, mean in accuracies.items()
        for seed in range(5)
    ]
    return pd.DataFrame(rows)


def without(frame: pd.DataFrame, method: str, *seeds: int) -> pd.DataFrame:
    return frame[~((frame.method == method) & frame.seed.isin(seeds))]


LIMITS = {"memory": 100 * MB, "traffic": GB, "private": True, "measure": "probe"}


def test_only_seeds_count_that_all_that_fit_have():
    """Later seeds are easier, and one method has these alone."""
    frame = table(closed=0.5, near=0.48)
    found = choose(without(frame, "near", 0, 1), **LIMITS)
    assert found.candidates["method"].tolist() == ["closed", "near"]
    later = frame[(frame.method == "closed") & (frame.seed >= 2)].probe.mean()
    assert found.candidates["accuracy"].iloc[0] == pytest.approx(later)
    with pytest.raises(DataError, match="closed, near have no seed in common: compute the same seeds of each"):
        choose(without(without(frame, "near", 0, 1), "closed", 2, 3, 4), **LIMITS)


def test_the_best_that_fits_is_the_answer():
    found = choose(table(labels=0.9, large=0.8, talks=0.7, open=0.6, closed=0.5, other=0.3), **LIMITS)
    assert found.candidates["method"].tolist() == ["closed", "other"]
    assert found.answer.startswith("closed: ")
    assert "not shown" not in found.answer  # it was attacked
    assert found.candidates["in the answer"].tolist() == [True, False]
    assert found.candidates["behind"].iloc[1] == pytest.approx(0.2, abs=0.005)


def test_what_limits_leave_open():
    frame = table(large=0.8, open=0.6, closed=0.5)
    assert choose(frame, **LIMITS | {"private": False}).candidates["method"].tolist() == ["open", "closed"]
    assert choose(frame, **LIMITS | {"memory": GB}).answer.startswith("large: ")
    assert choose(frame, **LIMITS | {"memory": MB}).answer == "No method of the table fits."


def test_methods_that_the_best_does_not_beat_are_named_with_it():
    found = choose(table(closed=0.5, near=0.499, far=0.3), **LIMITS)
    assert found.answer.startswith("Undecided between ")
    assert sorted(found.candidates["method"][found.candidates["in the answer"]]) == ["closed", "near"]
    assert "No attack was run on what near would send" in found.answer


@pytest.mark.parametrize(("start", "learned"), [(0.3, True), (0.5, False)])
def test_the_best_has_to_have_learned(start, learned):
    frame = table(closed=0.5, other=0.3)
    found = choose(frame.assign(untrained=start + 0.05 * frame.seed), **LIMITS)
    assert ("better than an untrained model is not shown" in found.answer) is not learned


def test_without_untrained_models_nothing_is_said_of_them():
    frame = table(closed=0.5, other=0.3).assign(untrained=np.nan)
    assert choose(frame, **LIMITS).answer == choose(frame.drop(columns="untrained"), **LIMITS).answer


def test_one_seed_decides_nothing():
    frame = table(closed=0.5, other=0.1)
    found = choose(frame[frame.seed == 0], **LIMITS)
    assert found.answer == "Undecided: one seed has no interval. The best mean of 2 methods is that of closed."
    assert found.candidates["memory, MB"].tolist() == [50, 50]


def test_other_tables_are_refused():
    frame = table(closed=0.5)
    with pytest.raises(DataError, match="The results have no column explained, memory_bytes"):
        choose(frame.drop(columns=["explained", "memory_bytes"]), **LIMITS)
    with pytest.raises(DataError, match="several divisions"):
        choose(pd.concat([frame, frame.assign(partition="classes:2")]), **LIMITS)


def test_the_overview_has_readers_units_and_is_sorted():
    frame = table(one=0.2, two=0.6)
    found = overview(frame, ["probe"], "probe")
    assert found["method"].tolist() == ["two", "one"]
    assert found["probe"].tolist() == pytest.approx([70, 30], abs=0.3)
    values = frame[frame.method == "two"]["probe"]
    half = 2.776445 * values.std() / 5**0.5  # Student's t, four degrees of freedom
    assert found["± probe"].iloc[0] == pytest.approx(100 * half, rel=1e-5)
    assert found["memory, MB"].tolist() == [50, 50]
    beside = overview(frame.assign(untrained=0.125), ["probe"], "probe")
    assert beside["untrained"].tolist() == [12.5, 12.5]
    assert beside.drop(columns="untrained").equals(found)
    assert overview(frame, ["probe"], "± probe")["± probe"].is_monotonic_increasing
    with pytest.raises(SettingError, match="sort_by='price' cannot be used"):
        overview(frame, ["probe"], "price")
