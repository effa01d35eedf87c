import pandas as pd
import pytest

from fssl_core.reporting import predicate
from fssl_core.reporting.accuracy_claims import printed_points, table_claim, training_claim


def above_30(cells):
    """Made-up rule: needs two rows."""
    return (bool((cells["points"] > 30).all()), f"{len(cells)} cells") if len(cells) > 1 else None


RUNS = pd.DataFrame(
    {
        "ssl_method": ["SimCLR", "SimCLR", "SimCLR", "SimCLR", "BYOL", "SimCLR"],
        "protocol": ["k-NN", "k-NN", "linear probe", "linear probe", "linear probe", "fine-tuning"],
        "accuracy": [0.5, 0.4, 0.5, 0.1, 0.6, 0.1],
    }
)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    registry = {}
    monkeypatch.setattr(predicate, "PREDICATES", registry)
    return registry


def test_a_claim_on_training_holds_if_it_does_by_every_protocol_that_has_what_it_needs(registry):
    training_claim("ldawa-made-up", "table4")(above_30)
    check = registry["ldawa-made-up"]
    assert printed_points("ldawa", "table4").points.min() > 30
    assert check(RUNS) == (False, "k-NN: holds, 2 cells; linear probe: fails, 3 cells; printed: holds, 16 cells")
    assert check(RUNS[:2]) == (True, "k-NN: holds, 2 cells; printed: holds, 16 cells")
    assert check(RUNS[5:]) is None


def test_columns_say_which_rows_are_judged_together(registry):
    training_claim("ldawa-made-up", "table4", "table3", by=["ssl_method", "protocol"])(above_30)
    _, value = registry["ldawa-made-up"](RUNS)
    assert value.startswith("SimCLR, k-NN: holds, 2 cells; SimCLR, linear probe: fails, 2 cells; printed: ")
    assert value.endswith("40 cells")


def test_the_printed_cells_decide_a_claim_on_a_table_and_ours_stand_beside(registry):
    table_claim("ldawa-made-up", "table4")(above_30)
    check = registry["ldawa-made-up"]
    ours = "ours, k-NN: holds, 2 cells; ours, linear probe: fails, 3 cells"
    assert check(RUNS) == (True, f"printed: 16 cells; {ours}")
    for nothing in (RUNS[5:], RUNS[:0], pd.DataFrame({"anything": [1]})):
        assert check(nothing) == (True, "printed: 16 cells; ours: not run")
