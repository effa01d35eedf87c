"""What is read off a figure."""

import numpy as np


def drawn(figure):
    """The figure, once it could be drawn; warnings (say of missing glyphs or layout) are errors."""
    figure.canvas.draw()
    return figure


def key(figure):
    """The labels of the legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes, marker=None):
    """The lines that have data, with this marker if one is given."""
    return [line for line in axes.lines if len(line.get_xdata()) and marker in (None, line.get_marker())]


def line_of(axes, colour):
    """The line of a method, which has markers."""
    return next(line for line in lines(axes) if line.get_color() == colour and line.get_marker() != "None")


def bars(axes):
    """Place -> height of the bars."""
    drawn = [bar for container in axes.containers for bar in getattr(container, "patches", [])]
    return {
        round(bar.get_x() + bar.get_width() / 2, 2): round(bar.get_height(), 9) for bar in drawn if bar.get_height()
    }


def diamonds(axes):
    """The paper's values."""
    drawn = [place for line in lines(axes, "D") for place in line.get_xydata()]
    drawn += [place for dots in axes.collections if dots.get_zorder() == 4 for place in dots.get_offsets()]
    return {(round(x, 2), round(y, 9)) for x, y in drawn if np.isfinite([x, y]).all()}


def spreads(axes):
    """Lower and upper end of each error bar along y."""
    containers = [container for container in axes.containers if hasattr(container, "has_yerr") and container.has_yerr]
    segments = [np.array(segment) for container in containers for segment in container.lines[2][-1].get_segments()]
    return [segment[:, 1].tolist() for segment in segments if segment.ndim == 2 and np.isfinite(segment).all()]


def written(axes):
    """Texts, without empty ones."""
    return [text.get_text() for text in axes.texts if text.get_text()]
