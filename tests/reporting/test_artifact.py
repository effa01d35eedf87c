import errno
import json
import os

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fssl_core.claims.judge import check_claims
from fssl_core.devices import cpu_name
from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.store import asked_keys
from fssl_core.papers.records import recorded_results
from fssl_core.reporting.artifact import Artifact
from fssl_core.reporting.tables import Quantity, beside_paper

RESULTS = pd.DataFrame({"layer": [1, 5, 9, 13, 17], "similarity": [0.9, 0.7, 0.6, 0.4, 0.3]} | {"seed": 0})
RESULTS = pd.concat([RESULTS, RESULTS.assign(seed=1)], ignore_index=True).assign(norm="group", photograph="china")
RESULTS["similarity_other"] = 0.2


@pytest.fixture
def figures(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_FIGURES", str(tmp_path))
    return tmp_path / "monacosfl"


def drawing() -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    return figure


def save(profile="smoke", **changes):
    artifact = Artifact("monacosfl/fig2", profile)
    settings = {"data": "china.jpg", "seeds": [0, 1, 2], "settings": {"width": 64}}
    artifact.save(drawing(), RESULTS, **settings | changes)
    return artifact


def test_save_writes_figure_numbers_and_how_they_were_made(figures):
    save()
    assert sorted(path.name for path in figures.iterdir()) == [f"fig2.smoke.{kind}" for kind in ("csv", "json", "png")]
    pd.testing.assert_frame_equal(pd.read_csv(figures / "fig2.smoke.csv"), RESULTS)
    record = json.loads((figures / "fig2.smoke.json").read_text())
    expected = {
        "artifact": "monacosfl/fig2",
        "profile": "smoke",
        "data": "china.jpg",
        "seeds": [0, 1, 2],
        "settings": {"width": 64},
        "devices": [cpu_name()],
        "claims": {"reproduced": 1, "contradicted": 0, "inconclusive": 0, "not run": 0},
    }
    assert {name: record[name] for name in expected} == expected
    assert set(record["versions"]) == {"python", "torch", "fssl_core"}
    assert {"commits", "modified", "date"} <= set(record)


def test_save_says_where_and_leaves_the_records_alone(tmp_path, monkeypatch, capsys):
    """A run with other settings once overwrote the reference results without a word."""
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    record = tmp_path / "figures" / "monacosfl" / "fig2.laptop.csv"
    record.parent.mkdir(parents=True)
    record.write_text("the reference")
    monkeypatch.chdir(tmp_path)
    save("laptop")
    assert record.read_text() == "the reference"
    assert [path.name for path in record.parent.iterdir()] == ["fig2.laptop.csv"]
    assert capsys.readouterr().out == "Saved: build/figures/monacosfl/fig2.laptop.{png,csv,json}\n"
    assert pd.read_csv(tmp_path / "build" / "figures" / "monacosfl" / "fig2.laptop.csv").shape == RESULTS.shape


def test_the_same_figure_gives_the_same_bytes(figures):
    save()
    first = (figures / "fig2.smoke.png").read_bytes()
    save()
    assert (figures / "fig2.smoke.png").read_bytes() == first
    assert first.startswith(b"\x89PNG")


def test_without_runs_the_time_since_creation_counts(figures):
    save()
    assert 0 <= json.loads((figures / "fig2.smoke.json").read_text())["seconds"] < 60


def test_settings_device_and_seconds_come_from_the_runs(figures, monkeypatch):
    stored = {
        "a": ({"width": 64, "seed": 0}, {"device": "H200", "seconds": 40.0, "commit": "abc", "modified": False}),
        "b": ({"width": 64, "seed": 1}, {"device": "H200", "seconds": 2.04, "commit": "abc", "modified": True}),
    }
    monkeypatch.setattr("fssl_core.reporting.artifact.stored_run", stored.__getitem__)
    save(runs=pd.DataFrame({"key": ["a", "b", "a"]}))
    record = json.loads((figures / "fig2.smoke.json").read_text())
    assert record["settings"] == {"width": 64, "seed": [0, 1]}
    assert (record["devices"], record["seconds"]) == (["H200"], 42.0)
    assert (record["commits"], record["modified"]) == (["abc"], True)
    stored["b"][1]["modified"] = None  # computed by an installed copy
    save(runs=pd.DataFrame({"key": ["a", "b"]}))
    assert json.loads((figures / "fig2.smoke.json").read_text())["modified"] is None


def test_settings_that_json_cannot_hold_leave_nothing_behind(figures):
    with pytest.raises(TypeError, match="not JSON serializable"):
        save(settings={"width": object()})
    assert not figures.exists()


def test_a_full_disk_leaves_picture_and_numbers_of_one_run(figures, monkeypatch):
    save()
    (figures / "fig2.smoke.png").write_bytes(b"that of a run before")
    before = {path.name: path.read_bytes() for path in figures.iterdir()}
    replace = os.replace

    def full(source, target):
        if str(target).endswith(".csv"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr("fssl_core.files.os.replace", full)
    with pytest.raises(FsslError, match="What was stored there before is untouched"):
        save()
    assert {path.name: path.read_bytes() for path in figures.iterdir()} == before


def test_a_full_disk_is_explained_to_a_table_beside_the_paper_too(figures, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    artifact = save()
    monkeypatch.setattr("fssl_core.files.os.fsync", full)
    with pytest.raises(FsslError, match=r"No space left for .*set FSSL_FIGURES to another folder"):
        artifact.beside(beside_paper([Quantity("a", 0.5)], profile="smoke"))


def test_subtitle_says_profile_data_and_seeds():
    artifact = Artifact("monacosfl/fig6", "laptop")
    assert artifact.subtitle(data="scattered-digits", seeds=[0, 1, 2]) == "profile laptop · scattered-digits · 3 seeds"
    assert artifact.subtitle(data="scattered-digits", seeds=[7]) == "profile laptop · scattered-digits · seed 7"
    assert artifact.subtitle(data="closed form") == "profile laptop · closed form"
    assert artifact.subtitle(data=r"my$\set$") == r"profile laptop · my\$\set\$"  # no formula, of which this is none
    assert artifact.subtitle(data="d", seeds={"a": [0, 1], "b": [0, 1]}) == "profile laptop · d · 2 seeds"
    assert artifact.subtitle(data="d", seeds={"a": [0, 1, 2], "b": [0]}) == "profile laptop · d · 1 to 3 seeds, see n"
    changed = Artifact("monacosfl/fig6", "laptop", {"cut_layers": [1], "epochs": 3})
    assert changed.subtitle(data="digits") == "profile laptop · digits · changed: cut_layers=[1], epochs=3"


def test_check_claims_is_that_of_the_artifact_and_profile():
    table = Artifact("monacosfl/fig2", "smoke").check_claims(RESULTS)
    assert table["ours"].tolist() == ["reproduced"]
    assert table["profile"].tolist() == ["smoke"]
    changed = Artifact("monacosfl/fig2", "smoke", {"layers": [1]}).check_claims(RESULTS)
    assert changed["profile"].tolist() == ["smoke, changed"]  # a claim judged on 200 images was once reported as `gpu`


def test_a_notebook_has_the_verdicts_of_its_record():
    """An empty word is a gap in a file: a notebook once said "not run" where its record has an answer."""
    recorded = recorded_results("lwfedssl/table3", "laptop")
    in_a_notebook = recorded.fillna({"same_run_as": ""})
    table = Artifact("lwfedssl/table3", "laptop").check_claims(in_a_notebook)
    assert table["ours"].tolist() == [verdict.ours for verdict in check_claims("lwfedssl/table3", recorded, "laptop")]
    assert "not run" not in table["ours"].tolist()


@pytest.mark.parametrize("id", ["fig6", "monaco/fig6", "monacosfl/", "monacosfl/../x", "monacosfl/Fig6"])
def test_an_unusable_id_is_refused(id):
    with pytest.raises(
        SettingError, match=r"id='.*' cannot be used: expected <paper>/<artifact> with a paper of mocosfl"
    ):
        Artifact(id, "smoke")


def test_an_unknown_profile_is_refused():
    with pytest.raises(SettingError, match=r"profile='quick' cannot be used: expected one of smoke, .*gpu, paper"):
        Artifact("monacosfl/fig6", "quick")


# ---------------------------------------------------------------------------------------- ours, recorded, the paper's


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project without notebooks, with a record of figure 2 at ``laptop`` that has one row beside the paper."""
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    record(tmp_path, "laptop", "0.72")
    return tmp_path


def record(project, profile, *ours):
    path = project / "figures" / "monacosfl" / f"fig2.{profile}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"of": {"quantity": "similarity", "layer": layer, "cut": None, "protocol": ""}, "ours": text}
        for layer, text in zip((1, 5), ours, strict=False)
    ]
    path.write_text(json.dumps({"beside": rows}))


def table(**ours) -> pd.DataFrame:
    rows = [("similarity", layer, float("nan"), ours[f"layer{layer}"], "0.70", "", "", "smoke") for layer in (1, 5)]
    names = ["quantity", "layer", "cut", "ours", "paper", "difference", "protocol", "profile"]
    return pd.DataFrame(rows, columns=names)


def test_ours_stands_beside_the_record_and_the_paper(project):
    artifact = Artifact("monacosfl/fig2", "smoke")
    shown = artifact.beside(table(layer1="0.65", layer5="0.4"))
    assert list(shown) == ["quantity", "layer", "cut", "ours", "recorded at laptop", "paper", "profile"]
    assert shown["recorded at laptop"].tolist() == ["0.72", "–"]


def test_the_record_of_the_same_profile_comes_before_a_more_faithful_one(project):
    record(project, "paper", "0.99")
    for profile, reference in (("laptop", "laptop"), ("gpu", "paper")):
        shown = Artifact("monacosfl/fig2", profile).beside(table(layer1="1", layer5="2"))
        assert list(shown)[4] == f"recorded at {reference}"


def test_a_more_faithful_record_stands_back_that_has_nothing_of_what_was_run_here(project):
    artifact, ours = Artifact("monacosfl/fig2", "smoke"), table(layer1="0.65", layer5="not run")
    record(project, "paper", "not run", "0.99")
    assert artifact.beside(ours)["recorded at laptop"].tolist() == ["0.72", "–"]
    record(project, "paper", "0.98", "0.99")
    assert artifact.beside(ours)["recorded at paper"].tolist() == ["0.98", "0.99"]


def test_without_a_record_there_is_no_such_column(project):
    shown = Artifact("monacosfl/fig6", "smoke").beside(table(layer1="0.65", layer5="0.4"))
    assert list(shown) == ["quantity", "layer", "cut", "ours", "paper", "profile"]


def test_what_is_shown_as_ours_is_kept_once_however_often_the_cell_is_run(project):
    artifact = save("laptop")
    for again in ("0.5", "0.6"):
        artifact.beside(table(layer1=again, layer5="0.4"))
    artifact.beside(pd.DataFrame({"other": [np.int64(3)], "ours": ["7"], "paper": ["8"], "profile": ["laptop"]}))
    kept = json.loads((project / "build" / "figures" / "monacosfl" / "fig2.laptop.json").read_text())["beside"]
    assert [(row["of"].get("layer"), row["ours"]) for row in kept] == [(1, "0.6"), (5, "0.4"), (None, "7")]
    assert kept[2]["of"] == {"other": 3}


# -------------------------------------------------------------------------------------------------- from a notebook


def test_a_notebook_gives_its_parameters_and_the_artifact_knows_what_was_changed(project):
    cell = 'profile: str = "smoke"\nseeds: list = []\noverrides: dict = {}'
    injected = "# Parameters\nprofile = 'laptop'\nseeds = '[0, 1]'\n"
    namespace = {"In": ["", cell, injected]}
    for source in (cell, injected):
        exec(source, namespace)
    path = project / "notebooks" / "monacosfl" / "fig6_accuracy_by_cut.ipynb"
    path.parent.mkdir()
    stored = {"parameters": {"profile": "smoke", "seeds": [], "overrides": {}}, "code": ""}
    path.write_text(json.dumps({"cells": [], "metadata": {"fssl": stored}}))

    artifact = Artifact.of_notebook("monacosfl/fig6", namespace)
    assert (artifact.profile, artifact.changed) == ("laptop", {"seeds": [0, 1]})
    assert namespace["seeds"] == [0, 1]
    assert artifact.subtitle(data="digits").startswith("profile laptop")
    for changed in ({"profile": "smoke"}, {"overrides": {"epochs": 3}}):
        before = {name: namespace[name] for name in changed}
        namespace |= changed
        ((name, value),) = changed.items()
        for use in (lambda: artifact.subtitle(data="digits"), lambda: artifact.check_claims(pd.DataFrame({"x": [1]}))):
            with pytest.raises(SettingError, match=rf"{name}={value!r} cannot be used: expected .* run the cell below"):
                use()
        namespace |= before
    before_set_up = RESULTS.assign(key="of another profile")
    for use in (
        lambda table: artifact.check_claims(table),
        lambda table: artifact.save(drawing(), RESULTS, data="digits", runs=table),
    ):
        with pytest.raises(FsslError, match="These are results of before the set-up"):
            use(before_set_up)
    asked_keys.add("of another profile")  # as run_all does
    artifact._check_current(before_set_up)
    with pytest.raises(SettingError, match=r"profile='fast' cannot be used: expected one of smoke, laptop"):
        Artifact.of_notebook("monacosfl/fig6", namespace | {"profile": "fast"})
    del namespace["overrides"]
    with pytest.raises(FsslError, match=r"The parameter overrides of monacosfl/fig6 has no value"):
        Artifact.of_notebook("monacosfl/fig6", namespace)
