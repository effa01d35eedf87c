import json

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fssl_core.errors import SettingError
from fssl_core.experiments.provenance import cpu_name
from fssl_core.reporting.artifact import Artifact

RESULTS = pd.DataFrame({"layer": [1, 5, 9, 13, 17], "similarity": [0.9, 0.7, 0.6, 0.4, 0.3]})


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
        "device": cpu_name(),
        "claims": {"holds": 1, "fails": 0, "not run": 0},
    }
    assert {name: record[name] for name in expected} == expected
    assert set(record["versions"]) == {"python", "torch", "fssl_core"}
    assert {"commit", "date"} <= set(record)


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
    assert (record["device"], record["seconds"]) == ("H200", 42.0)
    assert (record["commit"], record["modified"]) == ("abc", True)


def test_settings_that_json_cannot_hold_leave_nothing_behind(figures):
    with pytest.raises(TypeError, match="not JSON serializable"):
        save(settings={"width": object()})
    assert not figures.exists()


def test_recorded_lists_the_profiles_from_smoke_to_paper(figures):
    assert Artifact("monacosfl/fig2", "smoke").recorded().empty
    save("gpu")
    recorded = save("smoke").recorded()
    assert recorded["profile"].tolist() == ["smoke", "gpu"]
    assert recorded["device"].tolist() == [cpu_name()] * 2
    assert recorded["seeds"].tolist() == [3, 3]
    assert recorded["holds"].tolist() == [1, 1]


def test_subtitle_says_profile_data_and_seeds():
    artifact = Artifact("monacosfl/fig6", "laptop")
    assert artifact.subtitle(data="scattered-digits", seeds=[0, 1, 2]) == "profile laptop · scattered-digits · 3 seeds"
    assert artifact.subtitle(data="scattered-digits", seeds=[7]) == "profile laptop · scattered-digits · seed 7"
    assert artifact.subtitle(data="closed form") == "profile laptop · closed form"
    assert artifact.subtitle(data="d", seeds={"a": [0, 1], "b": [0, 1]}) == "profile laptop · d · 2 seeds"
    assert artifact.subtitle(data="d", seeds={"a": [0, 1, 2], "b": [0]}) == "profile laptop · d · 1 to 3 seeds, see n"
    assert artifact.paper.venue == "ECML PKDD 2024"


def test_check_claims_is_that_of_the_artifact_and_profile():
    table = Artifact("monacosfl/fig2", "smoke").check_claims(RESULTS)
    assert table["verdict"].tolist() == ["holds"]
    assert table["profile"].tolist() == ["smoke"]


@pytest.mark.parametrize("id", ["fig6", "monaco/fig6", "monacosfl/", "monacosfl/../x", "monacosfl/Fig6"])
def test_an_unusable_id_is_refused(id):
    with pytest.raises(
        SettingError, match=r"id='.*' cannot be used: expected <paper>/<artifact> with a paper of mocosfl"
    ):
        Artifact(id, "smoke")


def test_an_unknown_profile_is_refused():
    with pytest.raises(SettingError, match="profile='quick' cannot be used: expected one of smoke, laptop, gpu, paper"):
        Artifact("monacosfl/fig6", "quick")
