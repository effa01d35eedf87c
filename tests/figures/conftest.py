import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.text import Text

from fssl_core.figures import style

EXPLAINED = ("±\u00a01 sample standard deviation", "least to largest", "least and largest", "intervals over seeds")


@pytest.fixture(autouse=True)
def _no_pyplot_state():
    before = dict(matplotlib.rcParams)
    yield
    left = plt.get_fignums()
    plt.close("all")
    assert not left, "a figure would be shown twice"
    assert dict(matplotlib.rcParams) == before, "the style leaks"


@pytest.fixture(autouse=True)
def _spreads_are_explained(monkeypatch):
    """Whatever a test draws: a figure with error bars or bands says what they are."""
    original = style.finish

    def finish(*args, **kwargs):
        figure = original(*args, **kwargs)
        words = " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")
        assert any(name in words for name in EXPLAINED) or not has_spreads(figure), "error bars of what?"
        return figure

    monkeypatch.setattr(style, "finish", finish)


def has_spreads(figure) -> bool:
    """Whether there is an error bar with a length, or an area between two lines."""
    containers = [bars for axes in figure.axes for bars in axes.containers if isinstance(bars, ErrorbarContainer)]
    paths = [segment for bars in containers for lines in bars.lines[2] for segment in lines.get_segments()]
    for axes in figure.axes:  # seaborn's bars have lines without markers
        if any(isinstance(bars, BarContainer) and len(bars) for bars in axes.containers):
            paths += [
                line.get_xydata() for line in axes.lines if line.get_linestyle() == "-" and line.get_marker() == "None"
            ]
    return any(np.nan_to_num(np.ptp(path, axis=0)).any() for path in paths if len(path)) or bool(
        figure.findobj(PolyCollection)
    )
