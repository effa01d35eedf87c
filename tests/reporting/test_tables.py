import pandas as pd
import pytest

from fssl_core.errors import SettingError
from fssl_core.reporting.tables import Quantity, beside_paper, show


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
