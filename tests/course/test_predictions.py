"""Every prediction in a paper's notebook: what is right is found, and a guess gets the message that belongs to it."""

import math
import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

from fssl_core.course import predictions
from fssl_core.course.checking import _shown, predicted, right_value
from fssl_core.course.exercise import Prediction, find_exercise, place_of
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.papers.records import recorded_results

MODULES = [import_module(f"{predictions.__name__}.{found.name}") for found in iter_modules(predictions.__path__)]
RIGHT: dict[str, float] = {}  # by ID: some take seconds to count
ALL = [known for module in MODULES for known in vars(module).values() if isinstance(known, Prediction)]


def right_once(known: Prediction) -> float:
    if known.id not in RIGHT:
        RIGHT[known.id] = right_value(known)
    return RIGHT[known.id]


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.id)
def test_a_close_guess_passes_and_one_further_off_gets_its_hint(known, monkeypatch):
    right = right_once(known)
    monkeypatch.setattr("fssl_core.course.checking.right_value", right_once)
    assert math.isfinite(right)
    step = known.within or 1
    for off, status, hint in [
        (0, "right", None),
        (0.99 * known.within, "right", None),
        (-0.99 * known.within, "right", None),
        (1.5 * step, "not yet", "too_high"),
        (-1.5 * step, "not yet", "too_low"),
    ]:
        found = predicted(known, right + off)
        assert (found.status, found.hint) == (status, hint), found.line
        assert hint is None or known.hints[hint] in found.text
    assert predicted(known, ...).status == "unanswered"


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.id)
def test_hints_are_sentences_and_do_not_give_the_number_away(known):
    assert known.hints["too_low"] != known.hints["too_high"]
    for text in known.hints.values():
        assert text[0].isupper()
        assert text.endswith((".", "?"))
        assert not re.search(rf"(?<![\d.,]){re.escape(_shown(right_once(known), 3))}(?![\d,]|\.\d)", text), text


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.id)
def test_a_prediction_is_about_the_record_of_its_own_notebook_or_a_table_of_its_paper(known):
    place = place_of(known.id)
    assert find_exercise(known.id) is known
    assert place in [notebook.id for notebook in find_notebooks()]
    assert known.record in ((), (place, "laptop"))
    assert known.table[:1] in ((), (place.partition("/")[0],))
    assert not (known.record and known.table)


def test_the_number_comes_from_the_record_as_it_is_now(tmp_path, monkeypatch):
    """Of a record that was made anew, too."""
    known = find_exercise("monacosfl/fig6/loss")
    record = recorded_results(*known.record)
    record.loc[record.method == "MocoSFL", "loss"] -= 3
    path = tmp_path / "monacosfl" / "fig6.laptop.csv"
    path.parent.mkdir()
    record.to_csv(path)
    before = right_value(known)
    monkeypatch.setattr("fssl_core.papers.records.records_root", lambda: tmp_path)
    assert right_value(known) == pytest.approx(before + 3)


def test_the_message_says_where_the_number_is_from():
    assert "the record monacosfl/fig6.laptop has" in predicted(find_exercise("monacosfl/fig6/loss"), 1).text
    assert "the paper's ldawa/table4 has 4 steps: 1 too low." in predicted(find_exercise("ldawa/table4/down"), 3).text
    assert "; it is 1170 pairs: exactly." in predicted(find_exercise("lwfedssl/table1/pairs"), 1170).text
