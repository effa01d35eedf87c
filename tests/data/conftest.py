import pytest

from fssl_core import notices


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data root that no test has used, so that nothing kept can answer for it; runs go beside it."""
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(notices, "_seen", set())
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
