import matplotlib
import matplotlib.pyplot as plt
import pytest

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _no_pyplot_state():
    before = dict(matplotlib.rcParams)
    yield
    assert not plt.get_fignums(), "a figure would be shown twice"
    assert dict(matplotlib.rcParams) == before, "the style leaks"
