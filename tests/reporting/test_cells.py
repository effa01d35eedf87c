import pytest

from fssl_core.errors import SettingError
from fssl_core.experiments import (
    ldawa_probe,
    ldawa_settings,
    lwfedssl_evaluation,
    lwfedssl_settings,
    mfcl_rival_settings,
    mfcl_settings,
    run_all,
)
from fssl_core.federation.client_updates import FedEMA
from fssl_core.papers.reference import printed_cells
from fssl_core.reporting.cells import averaging_cells, layerwise_cells, modular_cells
from fssl_core.reporting.tables import beside_cells

ON = ["method", "ssl_method", "dataset", "partition", "label_fraction"]


@pytest.fixture(scope="module")
def results():
    quick = {"rounds": 1, "probe_epochs": 0, "probe_every": 0, "keep_every": 0, "train_images": 80, "clients": 2}
    federations = [
        ldawa_settings("smoke", method="L-DAWA_FedU", **quick),
        ldawa_settings("smoke", method="FedAvg", aggregation="uniform", seed=1, partition="dirichlet:0.10:4", **quick),
        ldawa_settings("smoke", method="FedAvg", ssl_method="Barlow Twins", partition="iid", **quick),
        ldawa_settings("smoke", method="L-DAWA", client_update=FedEMA(), proximal=0.5, **quick),
    ]
    probes = [ldawa_probe("smoke", settings, epochs=1) for settings in federations]
    probes[1] = probes[1].changed(label_fraction=0.5)
    return run_all(probes, progress=False)


def test_runs_get_the_names_of_the_tables(results):
    cells = averaging_cells(results)
    assert cells.method.tolist() == ["L-DAWA_FedU", "uniform", "FedAvg", "l-dawa fedema proximal"]
    assert cells.ssl_method.tolist() == ["SimCLR", "SimCLR", "Barlow Twins", "SimCLR"]
    assert cells.partition.tolist() == ["dirichlet:0.1", "dirichlet:0.1", "iid", "dirichlet:0.1"]
    assert cells.alpha.fillna(0).tolist() == [0.1, 0.1, 0, 0.1]
    assert cells.dataset.tolist() == cells.eval_dataset.tolist() == ["scattered-digits"] * 4
    assert cells.label_fraction.tolist() == [1, 0.5, 1, 1]
    assert cells.seed.tolist() == [0, 1, 0, 0]
    assert [cells[name].unique().tolist() for name in ("rounds", "local_epochs", "clients")] == [[1], [1], [2]]
    assert cells.protocol.unique().tolist() == ["linear probe, unpooled"]
    assert cells.accuracy.tolist() == results.linear_probe_accuracy.tolist()
    assert cells.accuracy.between(0, 1).all()
    assert not cells.official_data.any()
    assert cells.key.tolist() == results.key.tolist()


@pytest.mark.parametrize(("table", "partitions"), [("table2", {"dirichlet:0.1"}), ("table4", None), ("table3", None)])
def test_printed_cells_are_the_papers_accuracies_under_the_runs_columns(table, partitions, results):
    cells = printed_cells("ldawa", table)
    expected = {"table3": {"one-class", "dirichlet:0.1"}, "table4": {f"dirichlet:0.{i}" for i in (1, 2, 4, 6)}}
    assert set(cells.partition) == (partitions or expected[table])
    shared = [name for name in averaging_cells(results).columns if name in cells.columns]
    assert set(ON) | {"eval_dataset", "alpha", "local_epochs", "rounds", "clients"} <= set(shared)
    assert cells.value.between(5, 100).all()  # percent


def test_aggregation_times_are_no_accuracies():
    cells = printed_cells("ldawa", "table1")
    assert set(cells.metric) == {"linear_probe_accuracy"}
    row = cells[(cells.method == "L-DAWA") & (cells.local_epochs == 10)]
    assert (row.value.item(), row.partition.item(), row.dataset.item()) == (69.34, "dirichlet:0.1", "CIFAR-10")


def test_other_metrics_than_accuracy_are_there_on_demand():
    cells = printed_cells("lwfedssl", "table2", ["flops", "peak_memory"])
    assert set(cells.metric) == {"flops", "peak_memory"}
    assert cells.eval_dataset.isna().all()
    with pytest.raises(SettingError, match="paper='mocosfl'"):
        printed_cells("mocosfl", "table1")


def test_runs_stand_beside_printed_cells_of_the_same_names(results):
    ours = averaging_cells(results).assign(dataset="cifar10", official_data=True)
    table = beside_cells(ours, printed_cells("ldawa", "table2"), on=ON, profile="smoke", value="accuracy")
    row = table[(table.method == "L-DAWA_FedU") & (table.ssl_method == "SimCLR") & (table.label_fraction == 1)]
    printed = row[row.dataset == "CIFAR-10"]
    assert len(printed) == 1
    assert printed.paper.item().startswith("76.23")
    assert f"{100 * ours.accuracy[0]:.2f}" in printed.ours.item()


# ------------------------------------------------------------------------------------------------------------ LW-FedSSL


@pytest.fixture(scope="module")
def layerwise():
    quick = {"rounds": 2, "probe_epochs": 1, "train_images": 80, "clients": 2, "batch": 8, "ssl_method": "SimCLR"}
    staged = quick | {"stages": 2}
    federations = [
        lwfedssl_settings("smoke", method="FedSimCLR", **quick),
        lwfedssl_settings("smoke", method="LW-FedSSL", proximal=0.1, **staged),
        lwfedssl_settings("smoke", method="Prog-FedSSL", partition="dirichlet:5", clients_per_round=1, **staged),
        lwfedssl_settings("smoke", method="SimCLR", client_dropout=0.25, **(quick | {"clients": 1})),
        lwfedssl_settings("smoke", method="FedEMA", **(quick | {"ssl_method": "BYOL"})),
    ]
    probes = [lwfedssl_evaluation("smoke", settings, protocol="linear probe") for settings in federations]
    tuned = lwfedssl_evaluation("smoke", federations[1], protocol="fine-tuning", epochs=1)
    return run_all([*probes, tuned, tuned.changed(scratch=True)], progress=False)


def test_layerwise_runs_get_the_names_of_the_tables(layerwise):
    cells = layerwise_cells(layerwise)
    methods = ["FedSimCLR", "LW-FedSSL", "Prog-FedSSL", "SimCLR", "FedEMA", "LW-FedSSL", "Scratch"]
    assert cells.method.tolist() == methods
    assert cells.ssl_method.tolist() == ["SimCLR"] * 4 + ["BYOL", "SimCLR", "none"]
    assert cells.protocol.tolist() == ["linear probe"] * 5 + ["fine-tuning"] * 2
    assert cells.layers_per_stage.fillna(0).tolist() == [0, 2, 2, 0, 0, 2, 2]
    assert cells.add_on.tolist() == ["none", "proximal alignment", "none", "none", "none"] + ["proximal alignment"] * 2
    assert cells.beta.fillna(0).tolist() == [0, 0, 5, 0, 0, 0, 0]
    assert cells.participating.fillna(0).tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert cells.dropout_probability.fillna(0).tolist() == [0, 0, 0, 0.25, 0, 0, 0]
    assert cells.dataset.isna().tolist() == [False] * 6 + [True]  # from scratch there is no pre-training
    measured = layerwise.linear_probe_accuracy.tolist()[:5] + layerwise.fine_tune_accuracy.tolist()[5:]
    assert cells.accuracy.tolist() == measured
    assert cells.recall.isna().tolist() == [True] * 5 + [False] * 2


def test_accuracy_on_medical_images_is_the_mean_over_classes(layerwise):
    medical = layerwise.assign(dataset="medmnist/bloodmnist", fine_tune_mean_per_class_accuracy=0.25)
    assert layerwise_cells(medical).accuracy.tolist()[5:] == [0.25, 0.25]
    assert layerwise_cells(medical).accuracy.tolist()[:5] == layerwise.linear_probe_accuracy.tolist()[:5]


@pytest.mark.parametrize("table", ["table2", "table3", "table4", "table6", "table7", "table8", "table11", "table13"])
def test_printed_cells_of_lwfedssl_have_the_columns_of_the_runs(table, layerwise):
    cells = printed_cells("lwfedssl", table)
    assert {"method", "ssl_method", "eval_dataset", "batch_size", "image_size"} <= {*cells} & {
        *layerwise_cells(layerwise)
    }
    assert cells.value.between(5, 100).all()
    assert "average" not in set(cells.eval_dataset)


# ---------------------------------------------------------------------------------------------------------------- MFCL


def test_modular_runs_and_rivals_stand_in_one_table():
    runs = [
        mfcl_settings("smoke", method="MFCL(TN)", xi=0.01, twins=False, epochs=1, datamix=2),
        mfcl_rival_settings("smoke", method="FedSimCLR", xi=200, rounds=1),
        mfcl_rival_settings("smoke", method="FedAvg", xi=200, rounds=1),
    ]
    results = run_all(runs, progress=False)
    cells = modular_cells(results, ["MFCL(TN)", "FedSimCLR", "FedAvg"])
    assert cells.groupby("protocol", sort=False).size().to_dict() == {"linear evaluation": 3, "features": 3}
    mfcl = cells[cells.method == "MFCL(TN)"]
    expected = results.loc[0, ["linear_probe_accuracy", "features_probe_accuracy"]].tolist()
    assert mfcl.accuracy.tolist() == expected
    assert mfcl[["xi", "K", "cut", "datamix", "missing"]].iloc[0].tolist() == [0.01, 8, 2, 1, 0]
    assert not mfcl.twins.any()
    rivals = cells[cells.method != "MFCL(TN)"].groupby("method").accuracy.unique()
    assert rivals["FedSimCLR"].tolist() == [results.linear_probe_accuracy[1]]
    assert rivals["FedAvg"].tolist() == [results.test_accuracy[2]]
    assert set(cells.xi) == {0.01, 200}


@pytest.mark.parametrize("table", ["table1", "table2", "table5", "table6", "table7", "table14", "table16", "table17"])
def test_printed_cells_of_mfcl_are_named_as_runs(table):
    cells = printed_cells("mfcl", table)
    assert cells.value.between(5, 100).all()
    assert set(cells.method[cells.method.str.startswith("MFCL")]) <= {"MFCL(BN)", "MFCL(GN)", "MFCL(TN)", "MFCL"}
