import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.text import Text

from fssl_core.reporting import plots_style

matplotlib.use("Agg")
EXPLAINED = ("±\u00a01 sample standard deviation", "least to largest", "least and largest")


@pytest.fixture(autouse=True)
def _no_pyplot_state():
    before = dict(matplotlib.rcParams)
    yield
    assert not plt.get_fignums(), "a figure would be shown twice"
    assert dict(matplotlib.rcParams) == before, "the style leaks"


@pytest.fixture(autouse=True)
def _spreads_are_explained(monkeypatch):
    """Whatever a test draws: a figure with error bars or bands says what they are."""

    def finish(*args, **kwargs):
        figure = plots_style.finish(*args, **kwargs)
        words = " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")
        assert any(name in words for name in EXPLAINED) or not has_spreads(figure), "error bars of what?"
        return figure

    for name, module in list(sys.modules.items()):
        if name.startswith("fssl_core.reporting.plots") and module is not plots_style and hasattr(module, "finish"):
            monkeypatch.setattr(module, "finish", finish)


def has_spreads(figure) -> bool:
    """Whether there is an error bar with a length, or an area between two lines."""
    containers = [container for axes in figure.axes for container in axes.containers]
    drawn = [bars.errorbar for bars in containers if isinstance(bars, BarContainer) and bars.errorbar is not None]
    drawn += [bars for bars in containers if isinstance(bars, ErrorbarContainer)]
    segments = [segment for bars in drawn for lines in bars.lines[2] for segment in lines.get_segments()]
    return any(np.ptp(segment, axis=0).any() for segment in segments) or bool(figure.findobj(PolyCollection))
