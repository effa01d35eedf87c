import pytest

from fssl_core.experiments import run_all
from fssl_core.experiments.profiles import ldawa_probe, ldawa_settings
from fssl_core.federation.client_updates import FedEMA
from fssl_core.reporting.cells import printed_cells, run_cells
from fssl_core.reporting.tables import beside_cells

ON = ["method", "ssl_method", "dataset", "partition", "label_fraction"]


@pytest.fixture(scope="module")
def results():
    quick = {"rounds": 1, "probe_epochs": 0, "probe_every": 0, "keep_every": 0, "train_images": 80, "clients": 2}
    federations = [
        ldawa_settings("smoke", method="L-DAWA_FedU", **quick),
        ldawa_settings("smoke", method="FedAvg", aggregation="uniform", seed=1, **quick),
        ldawa_settings("smoke", method="FedAvg", ssl_method="Barlow Twins", partition="iid", **quick),
        ldawa_settings("smoke", method="L-DAWA", client_update=FedEMA(), proximal=0.5, **quick),
    ]
    probes = [ldawa_probe("smoke", settings, epochs=1) for settings in federations]
    probes[1] = probes[1].changed(label_fraction=0.5)
    return run_all(probes, progress=False)


def test_runs_get_the_names_of_the_tables(results):
    cells = run_cells(results)
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
    shared = [name for name in run_cells(results).columns if name in cells.columns]
    assert set(ON) | {"eval_dataset", "alpha", "local_epochs", "rounds", "clients"} <= set(shared)
    assert cells.value.between(5, 100).all()  # percent


def test_aggregation_times_are_no_accuracies():
    cells = printed_cells("ldawa", "table1")
    assert set(cells.metric) == {"linear_probe_accuracy"}
    row = cells[(cells.method == "L-DAWA") & (cells.local_epochs == 10)]
    assert (row.value.item(), row.partition.item(), row.dataset.item()) == (69.34, "dirichlet:0.1", "CIFAR-10")


def test_runs_stand_beside_printed_cells_of_the_same_names(results):
    ours = run_cells(results).assign(dataset="cifar10", official_data=True)
    table = beside_cells(ours, printed_cells("ldawa", "table2"), on=ON, profile="smoke", value="accuracy")
    row = table[(table.method == "L-DAWA_FedU") & (table.ssl_method == "SimCLR") & (table.label_fraction == 1)]
    printed = row[row.dataset == "CIFAR-10"]
    assert len(printed) == 1
    assert printed.paper.item().startswith("76.23")
    assert f"{100 * ours.accuracy[0]:.2f}" in printed.ours.item()
