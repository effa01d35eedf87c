"""Where it is shown how far runs are: in a notebook, a terminal, a log, and to a process that executes notebooks."""

import dataclasses
import html
import json
import math
import os
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from fssl_core.files import write_json
from fssl_core.notices import TRANSIENT, in_kernel, say

REPORT_SECONDS = 0.5  # between two states that the process which executes notebooks may read
LOG_SECONDS = 60.0  # between two lines where stderr is a file
SHOWN = 8  # runs that are shown at a time
BAR = {"bar_format": "|{bar:16}| {desc}", "leave": False, "dynamic_ncols": True}  # a bar of tqdm, with our words
# A bar, and words that wrap beside it: only such styles as JupyterLab leaves in a notebook that it does not trust yet.
_LINE, _BAR = "padding-left: 13.5em; text-indent: -13em", "width: 12em; vertical-align: middle"


@dataclass(frozen=True)
class Running:
    """How far one run is, in plain values.

    Attributes:
        title: what tells it from others.
        unit: of its steps.
        step: the last one that is done.
        steps: how many in all; 0 until the run has told.
        figures: that it shows, by name.
        left: seconds; ``None`` if unknown.
        counted: whether it is one of the runs in all, not one that such a run needs first.
    """

    title: str
    unit: str = "step"
    step: int = 0
    steps: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    left: float | None = None
    counted: bool = True

    def words(self) -> str:
        """The run in a line; what comes last is what a narrow terminal cuts off."""
        figures = (f"{name} {_short(value)}" for name, value in self.figures.items())
        return joined(self.title, self.of_steps(), time_left(self.left), ", ".join(figures))

    def of_steps(self) -> str:
        """For example ``epoch 3 of 40``."""
        return f"{self.unit} {self.step} of {self.steps}" if self.steps else ""


@dataclass(frozen=True)
class State:
    """How far some runs are, in plain values.

    Attributes:
        runs: how many in all.
        done: of them, with those that were stored.
        running: those that are being computed.
        left: seconds for all runs; ``None`` if unknown.
    """

    runs: int
    done: int
    running: tuple[Running, ...] = ()
    left: float | None = None

    def words(self, *, steps: bool = False) -> str:
        """All runs in a line, if ``steps`` with how far the only one is that is being computed."""
        far = f"{len(self.running)} at a time" if len(self.running) > 1 else ""
        if steps and len(self.running) == 1:
            far = self.running[0].of_steps()
        return joined(f"{self.done} of {plural(self.runs, 'run')}", far, time_left(self.left))

    def share(self) -> float:
        """Of the work, what is done: 0 to 1."""
        begun = sum(run.step / run.steps for run in self.running if run.counted and run.steps)
        return (self.done + begun) / self.runs if self.runs else 0.0

    def lines(self) -> list[tuple[float, int, str]]:
        """What to show: of each line what is done, of how much, and the words; a run alone tells them itself."""
        done = round(self.runs * self.share(), 3)
        lines = [(done, self.runs, self.words())] if self.runs > 1 or not self.running else []
        lines += [(run.step, run.steps, run.words()) for run in self.running[:SHOWN]]
        if len(self.running) > SHOWN:
            lines.append((0, 0, f"and {len(self.running) - SHOWN} more"))
        return lines


class View(Protocol):
    """A place where states are shown."""

    def draw(self, state: State) -> None: ...

    def close(self, outcome: str) -> None: ...


def views(*, show: bool) -> list[View]:
    """Where this process shows how far it is."""
    chosen: list[View] = []
    if show:
        chosen.append(_Cell() if in_kernel() else _Terminal() if sys.stderr.isatty() else _Log())
    if path := os.environ.get("FSSL_PROGRESS"):
        chosen.append(_Report(Path(path)))
    return chosen


class _Cell:
    """One output of a notebook's cell."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.drawn = False

    def draw(self, state: State) -> None:
        lines = state.lines()
        markup = "".join(
            f'<div style="{_LINE}"><progress style="{_BAR}" {_value(done, total)}></progress> {html.escape(text)}</div>'
            for done, total, text in lines
        )
        self._display({"text/html": markup, "text/plain": "\n".join(text for *_, text in lines)})

    def close(self, outcome: str) -> None:
        self._display({"text/plain": outcome})

    def _display(self, data: dict[str, str]) -> None:
        from IPython.display import display

        display(data, raw=True, display_id=self.id, update=self.drawn, metadata=TRANSIENT)
        self.drawn = True


class _Terminal:
    """Bars, of all runs and of each that is being computed, which go in the end."""

    def __init__(self) -> None:
        self.bars: list[tqdm] = []

    def draw(self, state: State) -> None:
        lines = state.lines()
        while len(self.bars) > len(lines):
            self.bars.pop().close()
        for position, (done, total, text) in enumerate(lines):
            if position == len(self.bars):
                self.bars.append(tqdm(initial=done, total=total, desc=text, position=position, **BAR))
            bar = self.bars[position]
            bar.n, bar.total = done, total or None
            bar.set_description_str(text, refresh=True)

    def close(self, outcome: str) -> None:
        for bar in reversed(self.bars):
            bar.close()
        say(outcome)


class _Log:
    """Lines on stderr, few enough for a file."""

    def __init__(self) -> None:
        self.told = -math.inf

    def draw(self, state: State) -> None:
        if time.monotonic() - self.told >= LOG_SECONDS:
            self.told = time.monotonic()
            say(joined(*(text for *_, text in state.lines())))

    def close(self, outcome: str) -> None:
        say(outcome)


class _Report:
    """A file for the process that executes the notebook; there is none while nothing is computed."""

    def __init__(self, path: Path) -> None:
        self.path, self.told = path, -math.inf

    def draw(self, state: State) -> None:
        if time.monotonic() - self.told >= REPORT_SECONDS:
            self.told = time.monotonic()
            with suppress(OSError):  # no reason to stop a training
                write_json(self.path, dataclasses.asdict(state))

    def close(self, outcome: str) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def reported(path: Path) -> State | None:
    """What another process tells in its file; ``None`` while it computes nothing."""
    with suppress(OSError, ValueError, TypeError, KeyError):  # half a file
        state = json.loads(path.read_text(encoding="utf-8"))
        return State(**{**state, "running": tuple(Running(**run) for run in state["running"])})
    return None


def duration(seconds: float) -> str:
    """For readers: ``42 s``, ``12 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def time_left(seconds: float | None) -> str:
    """In words; nothing if it is unknown, or if what is left has no measure: the evaluation after the last step."""
    return "" if seconds is None or seconds < 0.5 else f"about {duration(seconds)} left"


def plural(count: int, word: str) -> str:
    """For example ``1 run``, ``3 runs``."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def joined(*words: str) -> str:
    """What there is of them, in a line."""
    return " · ".join(filter(None, words))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _value(done: float, total: int) -> str:
    return f'value="{done}" max="{total}"' if total else 'value="0"'
