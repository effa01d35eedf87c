import numpy as np
import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.papers.names import as_printed
from fssl_core.papers.reference import paper_table
from fssl_core.reporting.tables import Quantity, beside_cells, beside_paper, show


def row(quantity):
    return beside_paper([quantity], profile="laptop").iloc[0].to_dict()


def test_several_seeds_give_mean_standard_deviation_and_points():
    assert row(Quantity("accuracy", [0.70, 0.72, 0.74], 0.75, "%", "linear probe")) == {
        "quantity": "accuracy",
        "ours": "72.0 ± 2.0 % (n=3)",
        "paper": "75.0 %",
        "difference": "-3.0 points",
        "protocol": "linear probe",
        "profile": "laptop",
    }


def test_a_single_value_has_no_spread():
    shown = row(Quantity("traffic", 1531.2, 1500, "MiB", digits=1))
    assert (shown["ours"], shown["paper"], shown["difference"]) == ("1,531.2 MiB", "1,500.0 MiB", "+31.2 MiB")
    assert row(Quantity("cheapest cut", 11, 11, digits=0))["difference"] == "+0"


@pytest.mark.parametrize("ours", [None, [], [float("nan")]])
def test_what_was_not_run_is_never_filled(ours):
    shown = row(Quantity("accuracy", ours, 0.75, "%"))
    assert (shown["ours"], shown["paper"], shown["difference"]) == ("not run", "75.0 %", "")


def test_what_the_paper_does_not_state_has_no_difference():
    shown = row(Quantity("accuracy", [0.5, float("nan")], None, "%"))
    assert (shown["ours"], shown["paper"], shown["difference"]) == ("50.0 %", "not stated", "")


def test_show_hides_the_index_keeps_whole_texts_and_escapes():
    text = "a < b " + "and a long explanation " * 10
    table = show(pd.DataFrame({"claim": [text], "verdict": ["holds"]}, index=["an index"]))
    html = table._repr_html_()
    assert "a &lt; b" in html
    assert text.split("<")[1].strip() in html
    assert "an index" not in html + repr(table)
    assert "white-space: normal" in html
    assert repr(table) == repr(show(table.frame))  # no address in a stored output


def test_show_selects_columns():
    frame = pd.DataFrame({"a": [1], "b": [2]})
    assert list(show(frame, ["b"]).frame.columns) == ["b"]
    with pytest.raises(SettingError, match="column='c' cannot be used: expected one of a, b"):
        show(frame, ["c"])


CELL = ["method", "dataset", "partition", "clients"]
RUNS = pd.DataFrame(
    {
        "method": "MocoSFL",
        "cut_layer": [3, 1, 1],
        "dataset": ["scattered-digits", "cifar10", "cifar10"],
        "partition": "classes:2",
        "clients": [5, 20, 20],
        "linear_probe_accuracy": [0.5, 0.8, 0.9],
    }
)


def test_runs_and_printed_cells_get_the_same_names():
    run = as_printed(RUNS).iloc[1][CELL].tolist()
    cells = as_printed(paper_table("mocosfl", "table1"))
    assert run == ["MocoSFL-1", "CIFAR-10", "non-IID", 20]
    assert (cells[CELL] == run).all(axis=1).sum() == 1
    assert as_printed(pd.DataFrame({"architecture": ["resnet50", "my-net"]}))["architecture"].tolist() == [
        "ResNet-50",
        "my-net",
    ]
    assert as_printed(as_printed(RUNS)).equals(as_printed(RUNS))
    assert set(RUNS["method"]) == {"MocoSFL"}  # the argument is left alone


def test_every_printed_cell_has_a_row_and_a_stand_in_has_its_own():
    cells = paper_table("mocosfl", "table1")
    missing = RUNS.iloc[[0]].assign(dataset="cifar100", reason="no such folder")
    table = beside_cells(RUNS, cells, on=CELL, profile="laptop", missing=missing)
    assert len(table) == 1 + len(cells)
    assert list(table.columns) == [*CELL, "ours", "paper", "difference", "protocol", "profile"]
    shown = {tuple(row[:4]): tuple(row[4:7]) for row in table.itertuples(index=False)}
    assert table.iloc[0].tolist()[:7] == ["MocoSFL-3", "scattered-digits", "non-IID", 5, "50.00 %", "not stated", ""]
    assert shown["MocoSFL-1", "CIFAR-10", "non-IID", 20] == ("85.00 ± 7.07 % (n=2)", "85.84 %", "-0.84 points")
    assert shown["MocoSFL-3", "CIFAR-10", "non-IID", 5] == ("not run", "87.29 %", "")
    assert shown["MocoSFL-3", "CIFAR-100", "non-IID", 5] == ("not run: no such folder", "57.70 %", "")
    assert shown["MocoSFL-1", "CIFAR-100", "non-IID", 5] == ("not run", "58.78 %", "")
    assert shown["FL-BYOL", "CIFAR-10", "non-IID", 5] == ("not run", "83.34 % (quoted)", "")


def test_a_subset_under_the_name_of_cifar_is_not_compared():
    table = beside_cells(
        RUNS.assign(official_data=[False, True, False]),
        paper_table("mocosfl", "table1"),
        on=CELL,
        profile="gpu",
        missing=pd.DataFrame(),
    )
    assert table["dataset"].iloc[:2].tolist() == ["scattered-digits", "CIFAR-10 subset"]
    assert table["difference"].iloc[:2].tolist() == ["", ""]
    row = table[(table[CELL] == ["MocoSFL-1", "CIFAR-10", "non-IID", 20]).all(axis=1)].iloc[0]
    assert (row["ours"], row["difference"]) == ("80.00 %", "-5.84 points")


def test_that_goes_for_the_images_of_an_evaluation_too():
    one = {"dataset": "coco", "method": "LW-FedSSL", "accuracy": 0.8}
    runs = pd.DataFrame([one | {"eval_dataset": "cifar10", "official_data": official} for official in (True, False)])
    cells = pd.DataFrame([one | {"eval_dataset": "CIFAR-10", "value": 85.0}])
    on = ["eval_dataset", "method"]
    table = beside_cells(runs, cells, on=on, profile="gpu", value="accuracy").set_index("eval_dataset")
    assert table["difference"].to_dict() == {"CIFAR-10 subset": "", "CIFAR-10": "-5.00 points"}


def test_a_setting_that_some_lack_and_a_single_column_name_cells_too():
    runs = pd.DataFrame({"method": ["FedAvg", "MocoSFL"], "cut": [np.nan, 1.0], "dataset": "x", "accuracy": [0.5, 0.6]})
    cells = pd.DataFrame({"method": ["FedAvg", "MocoSFL"], "cut": [np.nan, 1.0], "dataset": "x", "value": [50.0, 61.0]})
    for on in (["method", "cut"], ["method"]):
        table = beside_cells(runs, cells, on=on, profile="gpu", value="accuracy")
        assert table["ours"].tolist() == ["50.00 %", "60.00 %"]
        assert table["difference"].tolist() == ["+0.00 points", "-1.00 points"]


def test_cells_that_cannot_be_told_apart_are_an_error():
    with pytest.raises(SettingError, match=r"on=\['method', 'dataset'\] cannot be used"):
        beside_cells(RUNS, paper_table("mocosfl", "table1"), on=["method", "dataset"], profile="laptop")
