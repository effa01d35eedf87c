"""Runs beside their untrained models: the columns, the plan that counts them, and the cells that they reach."""

import pytest

from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.untrained import UntrainedSettings, untrained
from fssl_core.experiments import (
    ldawa_probe,
    ldawa_settings,
    lwfedssl_evaluation,
    lwfedssl_settings,
    mfcl_rival_settings,
    mfcl_settings,
    run,
    run_all,
    run_beside_untrained,
    split_settings,
)
from fssl_core.experiments.dry_run import asked_by, with_needed
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.planning.machines import this_machine
from fssl_core.planning.plan import plan
from fssl_core.reporting.cells import averaging_cells, layerwise_cells, modular_cells

QUICK = {"rounds": 1, "train_images": 80, "clients": 2}
GATE = ["accuracy", "untrained", "chance"]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    monkeypatch.setenv("FSSL_DEVICE", "cpu")


def test_untrained_models_stand_beside_the_runs_row_by_row():
    probed = ldawa_settings("smoke", method="FedAvg", **QUICK, probe_every=0, keep_every=0)
    unprobed = split_settings("smoke", clients=5, cut_layer=1, epochs=1, train_images=100, probe_epochs=0)
    tuned = FineTuneSettings(pretraining=probed, epochs=1, warmup_epochs=0)
    settings = [probed, unprobed, tuned.changed(scratch=True), tuned, probed.changed(aggregation="l-dawa")]
    frame = run_beside_untrained(settings, progress=False)
    plain = run_all(settings, progress=False)
    assert frame[[*plain.columns.drop("chance")]].equals(plain.drop(columns="chance"))
    assert frame.key.tolist() == [one.key for one in settings]

    measures = ["linear_probe_accuracy", "knn_accuracy", None, "fine_tune_accuracy", "linear_probe_accuracy"]
    for place, (one, measure) in enumerate(zip(settings, measures, strict=True)):
        row = frame.loc[place]
        if measure is None:  # from scratch: an untrained model itself
            assert row.accuracy == row.fine_tune_accuracy
            assert row[["untrained", "untrained_fine_tune_accuracy", "untrained_knn_accuracy"]].isna().all()
        else:
            beside = run(untrained(one), progress=False).summary
            assert row.accuracy == row[measure]
            assert row.untrained == row[f"untrained_{measure}"] == beside[measure]
            assert row.chance == beside["chance"]
    assert frame.chance.tolist() == [0.1] * 5
    assert frame.untrained_linear_probe_accuracy.isna().tolist() == [False, True, True, True, False]
    assert frame.untrained[0] == frame.untrained[4]
    assert not [name for name in frame if name.startswith(("untrained_best", "of."))]
    assert run_beside_untrained(iter(settings), progress=False).untrained.equals(frame.untrained)


def test_a_dry_run_takes_the_untrained_models_down_once():
    cells = ['profile: str = "smoke"\n', "from fssl_core.experiments import ldawa_settings, run_beside_untrained\n"]
    cells[1] += "sweep = [ldawa_settings(profile, method=method) for method in ('FedAvg', 'L-DAWA')]"
    cells += ["results = run_beside_untrained(sweep)", "later = run_beside_untrained(sweep[:len(results) - 1])"]
    asked = asked_by(cells, {"profile": "smoke"})
    assert [type(one).__name__ for one in asked.settings] == ["AveragingSettings"] * 2 + ["UntrainedSettings"]
    assert with_needed(asked.settings).keys() == {one.key for one in asked.settings}  # it needs no training
    assert not asked.unknown


@pytest.mark.parametrize("id", ["mocosfl/table4", "ldawa/fig2", "mfcl/table5", "lwfedssl/table6", "monacosfl/fig8"])
def test_the_plan_counts_them(id):
    (notebook,) = find_notebooks([id])
    found = plan([notebook.id], profile="laptop", machine=this_machine(speed=680.0))
    assert not found.unknown
    baselines = [one for one in found.runs.values() if isinstance(one.settings, UntrainedSettings)]
    assert 0 < len(baselines) < len(found.runs) / 2
    assert all(one.work.evaluation > 0 and one.work.training == 0 for one in baselines)


def test_the_cells_of_all_papers_have_them_by_the_measure_of_their_accuracy():
    federation = ldawa_settings("smoke", method="L-DAWA", **QUICK, probe_every=0, probe_epochs=0, keep_every=0)
    frame = run_beside_untrained([ldawa_probe("smoke", federation, epochs=1)], progress=False)
    cells = averaging_cells(frame)
    assert cells[GATE].equals(frame[GATE])
    assert averaging_cells(frame.drop(columns=frame.filter(like="untrained").columns)).untrained.isna().all()

    layers = {"ssl_method": "MoCoV3", "probe_epochs": 1} | QUICK | {"rounds": 4}
    layers = lwfedssl_settings("smoke", method="LW-FedSSL", **layers)
    kinds = [("linear probe", {}), ("fine-tuning", {}), ("fine-tuning", {"scratch": True})]
    evaluations = [lwfedssl_evaluation("smoke", layers, protocol=protocol, **more) for protocol, more in kinds]
    frame = run_beside_untrained(evaluations, progress=False)
    cells = layerwise_cells(frame)
    assert cells.untrained.tolist() == [*frame.untrained[:2], 0.1]
    assert frame.untrained[:2].tolist() == [
        frame.untrained_linear_probe_accuracy[0],
        frame.untrained_fine_tune_accuracy[1],
    ]

    modular = mfcl_settings("smoke", method="MFCL(TN)", epochs=1, warmup_epochs=0)
    rivals = [mfcl_rival_settings("smoke", method=name, rounds=1) for name in ("FedAvg", "FedSimCLR")]
    frame = run_beside_untrained([modular, *rivals], progress=False)
    cells = modular_cells(frame, ["MFCL(TN)", "FedAvg", "FedSimCLR"]).set_index(["method", "protocol"])
    for protocol, name in (("linear evaluation", "linear_probe"), ("features", "features_probe")):
        assert cells.untrained["MFCL(TN)", protocol] == frame[f"untrained_{name}_accuracy"][0]
        assert cells.untrained["FedAvg", protocol] == frame.untrained_test_accuracy[1]
        assert cells.untrained["FedSimCLR", protocol] == frame.untrained_linear_probe_accuracy[2]
    assert cells.chance.tolist() == [0.1] * 6
