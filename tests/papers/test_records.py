import json

import pandas as pd
import pytest

from fssl_core.errors import FsslError
from fssl_core.papers import records


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "records_root", lambda: tmp_path)
    (tmp_path / "ldawa").mkdir()
    return tmp_path


def test_a_record_is_its_results_and_what_they_are_of(folder):
    results = pd.DataFrame({"seed": [0, 1], "accuracy": [0.25, 0.5]})
    results.to_csv(folder / "ldawa" / "fig1.laptop.csv", index=False)
    (folder / "ldawa" / "fig1.laptop.json").write_text(json.dumps({"data": "digits"}))
    assert records.about_record("ldawa/fig1", "laptop") == {"data": "digits"}
    assert records.recorded_results("ldawa/fig1", "laptop").equals(results)


def test_the_most_faithful_of_the_recorded_profiles_comes_first(folder):
    assert records.recorded_profiles("ldawa/fig1") == []
    assert records.about_record("ldawa/fig1", "laptop") is None
    for profile in ("gpu", "laptop"):
        (folder / "ldawa" / f"fig1.{profile}.json").write_text("{}")
    assert records.recorded_profiles("ldawa/fig1") == ["gpu", "laptop"]
    assert records.recorded_profiles("ldawa/fig1", ["smoke", "laptop", "workstation"]) == ["laptop"]


def test_a_record_of_another_form_is_named(folder):
    (folder / "ldawa" / "fig1.laptop.json").write_text("[1]")
    with pytest.raises(FsslError, match=r"fig1\.laptop\.json"):
        records.about_record("ldawa/fig1", "laptop")


def test_results_that_are_not_there_are_named(folder):
    with pytest.raises(FsslError, match=r"figures/ldawa/fig1\.laptop\.csv is missing: open the notebook in a clone"):
        records.recorded_results("ldawa/fig1", "laptop")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([], ""),
        ([42], "42"),
        ([0, 1, 2, 3, 4], "0, 1, 2, 3, 4"),
        ([3, 4, 5, 6, 7, 8], "3 to 8"),
        ([0, 1, 2, 3, 4, 6], "0, 1, 2, 3, 4, 6"),
    ],
)
def test_many_seeds_in_a_row_are_named_by_the_first_and_the_last(seeds, words):
    assert records.seeds_in_words(seeds) == words
