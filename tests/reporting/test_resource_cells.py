import pytest

from fssl_core.costs.layerwise import resources
from fssl_core.papers.reference import paper_table
from fssl_core.reporting.resource_cells import MEMORY, beside_resources


def test_a_row_for_each_federation_with_the_printed_cell_in_brackets():
    table = beside_resources("table2")
    assert len(table) == 12
    row = table.set_index(["method", "ssl_method"]).loc[("LW-FedSSL", "MoCoV3")]
    ours = resources("LW-FedSSL", "MoCoV3")
    assert row["GFLOPs"] == f"{ours.gflops:.2f} (139)"
    assert row["traffic, GB"] == f"{ours.communication_gb:.4f} (1.66)"
    assert row[MEMORY] == "2.61"


@pytest.mark.parametrize(
    ("table", "unlike"), [("table2", 1), ("table3", 0), ("table4", 0), ("table6", 0), ("table11", 1)]
)
def test_cells_that_do_not_come_out_are_marked(table, unlike):
    """Those of Section "What does not come out" of costs/layerwise.py."""
    marked = beside_resources(table).apply(lambda column: column.astype(str).str.contains("!=")).sum().sum()
    assert marked == unlike


def test_rows_are_told_apart_by_what_they_differ_in():
    assert list(beside_resources("table3").columns[:2]) == ["method", "layers_per_stage"]
    table = beside_resources("table6")
    assert not table.duplicated(["method", "add_on"]).any()
    printed = paper_table("lwfedssl", "table6").query("metric == 'flops'")
    assert len(table) == len(printed)
