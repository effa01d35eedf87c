"""The schedule against Table 1 of LW-FedSSL, read as it is printed, and its rules for rounds and sub-models."""

import pytest

from fssl_core.errors import SettingError
from fssl_core.federation.schedule import KINDS, by_round, schedule
from fssl_core.papers.reference import paper_table

NAMES = {"FedSSL": "end-to-end", "LW-FedSSL": "layer-wise", "Prog-FedSSL": "progressive"}
COLUMNS = {  # metric of the table: what the stage says
    "stage_encoder_layers": "present",
    "new_layer": "new",
    "frozen_layers": "frozen",
    "trainable_layers": "active",
    "download_layers": "exchanged_down",
    "upload_layers": "exchanged_up",
}


def printed_units(text, number, stages):
    """Units of ``"L1..L(s-1)"`` at stage s: L_1 is unit 0."""
    if text == "none":
        return []
    values = {"1": 1, "s": number, "(s-1)": number - 1, "S": stages}
    first, _, last = text.partition("..")
    first, last = (values[name.removeprefix("L")] for name in (first, last or first))
    return list(range(first - 1, last))


@pytest.mark.parametrize("method", NAMES)
def test_table1_is_the_schedule(method):
    cells = paper_table("lwfedssl", "table1").set_index(["method", "metric"])["value"][method]
    stages = schedule(NAMES[method], 12, rounds=180)
    assert cells["training"] == NAMES[method]
    assert len(stages) == {"none": 1, "S": 12}[cells["number_of_stages"]]
    for stage in stages:
        for metric, name in COLUMNS.items():
            assert list(getattr(stage, name)) == printed_units(cells[metric], stage.number, 12), (stage, metric)
    # an encoder that starts empty has no layer before the first stage adds one
    assert printed_units(cells["initial_encoder_layers"], 0, 12) == list(
        stages[0].present if stages[0].new == range(0) else []
    )


@pytest.mark.parametrize(("each", "stages", "rounds"), [(1, 12, 15), (2, 6, 30), (3, 4, 45), (4, 3, 60), (6, 2, 90)])
def test_table3_stages_and_rounds(each, stages, rounds):
    """The printed settings: layers added in each stage, stages, rounds of a stage."""
    for kind in ("layer-wise", "progressive"):
        result = schedule(kind, 12, rounds=180, stages=stages)
        assert [len(stage.new) for stage in result] == [each] * stages
        assert {stage.rounds for stage in result} == {rounds}
        assert [unit for stage in result for unit in stage.new] == list(range(12))
        assert [stage.number for stage in by_round(result)] == [1 + done // rounds for done in range(180)]


def test_every_unit_is_frozen_or_active_and_only_layerwise_freezes():
    for kind in KINDS:
        for stage in schedule(kind, 6, rounds=6, stages=1 if kind == "end-to-end" else 3):
            assert [*stage.frozen, *stage.active] == list(stage.present)
            assert bool(stage.frozen) == (kind == "layer-wise" and stage.number > 1)


def test_worst_case_changes_what_layerwise_training_downloads_and_nothing_else():
    usual, worst = (schedule("layer-wise", 4, rounds=4, worst_case=case) for case in (False, True))
    assert [stage.exchanged_down for stage in worst] == [stage.present for stage in usual]
    assert [stage.exchanged_up for stage in worst] == [stage.active for stage in usual]
    for kind in ("end-to-end", "progressive"):
        assert schedule(kind, 4, rounds=4, worst_case=True) == schedule(kind, 4, rounds=4)


def test_depth_dropout_drops_what_exceeds_the_limit_from_earlier_stages():
    for kind in ("layer-wise", "progressive"):
        dropped = [stage.dropped for stage in schedule(kind, 12, rounds=12, most_units=6)]
        assert dropped == [0] * 6 + [1, 2, 3, 4, 5, 6]
        assert sum(dropped) == 21  # what Table 6 leaves room for
    assert all(
        stage.dropped <= len(stage.earlier) for stage in schedule("progressive", 12, rounds=6, stages=6, most_units=2)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "greedy"}, r"kind='greedy' cannot be used: expected one of end-to-end, layer-wise, progressive\."),
        ({"stages": 5}, r"stages=5 cannot be used: expected a divisor of units=12\."),
        ({"rounds": 100}, r"rounds=100 cannot be used: expected a positive multiple of stages=12\."),
        ({"rounds": 0}, r"rounds=0 cannot be used"),
        ({"kind": "end-to-end", "stages": 12}, r"stages=12 cannot be used: expected 1, or nothing, for end-to-end"),
        ({"stages": 3, "most_units": 3}, r"most_units=3 cannot be used: .* at least 4, the new units\."),
        ({"kind": "end-to-end", "most_units": 6}, r"most_units=6 cannot be used"),
        ({"units": 0}, r"units=0 cannot be used: expected at least 1\."),
    ],
)
def test_bad_settings(settings, message):
    settings = {"kind": "layer-wise", "units": 12, "rounds": 180, **settings}
    with pytest.raises(SettingError, match=message):
        schedule(**settings)
