"""Where runs and figures are kept."""

from pathlib import Path

import pytest

import fssl_core.paths
from fssl_core.errors import SettingError
from fssl_core.paths import figures_root, project_root, records_root, runs_root


def make_project(folder):
    (folder / "notebooks" / "paper").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    return folder


def test_the_project_is_found_from_inside(tmp_path, monkeypatch):
    monkeypatch.delenv("FSSL_RUNS", raising=False)
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    project = make_project(tmp_path / "project")
    monkeypatch.chdir(project / "notebooks" / "paper")
    assert project_root() == project
    assert runs_root() == project / "runs"
    assert figures_root() == project / "build" / "figures"
    assert records_root() == project / "figures"


def test_from_elsewhere_the_clone_that_the_package_is_of_serves(tmp_path, monkeypatch):
    """papermill, called from another folder, once wrote figures and runs into that folder."""
    (tmp_path / "notebooks").mkdir()  # without pyproject.toml it is no project
    monkeypatch.chdir(tmp_path)
    assert project_root() == Path(__file__).parents[1]


def test_without_any_project_the_current_folder_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(fssl_core.paths, "__file__", str(tmp_path / "site-packages" / "fssl_core" / "paths.py"))
    monkeypatch.chdir(tmp_path)
    assert project_root() == tmp_path


def test_the_environment_has_the_last_word(tmp_path, monkeypatch):
    monkeypatch.chdir(make_project(tmp_path / "project"))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("FSSL_FIGURES", "drawn")
    assert runs_root() == tmp_path / "elsewhere"
    assert figures_root() == tmp_path / "project" / "drawn"


def test_the_home_of_nobody_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", "~nobody-of-this-name/runs")
    with pytest.raises(SettingError, match=r"FSSL_RUNS='~nobody-of-this-name/runs' cannot be used: .*no such user"):
        runs_root()
