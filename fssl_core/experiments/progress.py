"""Runs that are computed, as one live display that ends as one line; and what Ctrl-C says."""

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol

from fssl_core.errors import FsslError, Interrupted
from fssl_core.experiments.display import State, View, duration, plural
from fssl_core.experiments.durations import Durations, is_seed
from fssl_core.notices import in_kernel, say

DRAW_SECONDS = 0.25  # between two states that are shown
START_SECONDS = 0.1  # a run that starts is shown sooner: it may be long until it tells how far it is


class Watched(Protocol):
    """What is shown of a :class:`~fssl_core.experiments.store.Run`."""

    settings: Any
    checkpoint: Any
    finished: bool
    provenance: dict[str, Any] | None


class Sweep:
    """Runs that are computed one after the other, each perhaps with others first that it builds on.

    Args:
        runs: all of them.
        rows: their settings, flat, in the same order.
        varying: names of the settings in which they differ.
        durations: what they will take.
        views: where they are shown.
    """

    def __init__(
        self,
        runs: Sequence[Watched],
        rows: Sequence[Mapping[str, Any]],
        varying: Sequence[str],
        durations: Durations,
        views: Sequence[View],
    ) -> None:
        self.runs, self.durations, self.views = runs, durations, views
        self.names = telling(rows, varying)
        # By key, in order: those that are neither finished nor being computed.
        self.waiting = {run.settings.key: row for run, row in zip(runs, rows, strict=True) if not run.finished}
        self.expected = {key: durations.expected(row) for key, row in self.waiting.items()}  # seconds
        self.current: list[_Current] = []  # the run that is being computed, then one that it waits for, ...
        self.began, self.drawn, self.computed = time.monotonic(), 0.0, 0
        self.interrupted = ""

    @contextmanager
    def run(self, run: Watched) -> Iterator[Callable[..., None]]:
        """Show a run while the block computes it; the block gets what engines call as ``progress``."""
        key, row = run.settings.key, self.waiting.get(run.settings.key)
        if not self.current and row is not None:  # another process has finished those before it
            for other in [*self.waiting][: [*self.waiting].index(key)]:
                del self.waiting[other]
        self.waiting.pop(key, None)
        title = (title_of(row, self.names) if row else "") or repr(run)
        unit = getattr(run.settings, "progress_unit", "step")
        self.current.append(_Current(title, unit, self.expected.get(key), of_sweep=row is not None))
        self.draw(starting=True)
        try:
            yield self._progress
        except KeyboardInterrupt:
            resumes = "resumes from its last checkpoint" if run.checkpoint.path.exists() else "starts again"
            self.interrupted = self.interrupted or f"{title} {resumes}"  # the innermost
            raise
        finally:
            self.current.pop()
        if row is not None:
            self.computed += 1
            self.durations.add(row, run.provenance["seconds"])
            self.expected = {key: self.durations.expected(row) for key, row in self.waiting.items()}

    def draw(self, *, starting: bool = False) -> None:
        """Show the state, unless one was shown a moment ago."""
        now = time.monotonic()
        if now - self.drawn >= (START_SECONDS if starting else DRAW_SECONDS):
            self.drawn = now
            state = self.state(now)
            for view in self.views:
                view.draw(state)

    def state(self, now: float) -> State:
        """How far the runs are."""
        done = len(self.runs) - len(self.waiting) - sum(current.of_sweep for current in self.current)
        expected = [self.expected[key] for key in self.waiting]
        if not self.current:
            return State(len(self.runs), done, left=None if None in expected else sum(expected))
        outer, inner = self.current[0], self.current[-1]
        left, run_left = outer.left(now), inner.left(now)
        if left is not None:
            whole = now - outer.began + left
            left += sum(whole if seconds is None else seconds for seconds in expected)
        title = " › ".join(current.title for current in self.current)
        return State(len(self.runs), done, title, inner.unit, inner.step, inner.steps, inner.figures, left, run_left)

    def close(self) -> None:
        """Leave the one line that stays."""
        for view in reversed(self.views):
            view.close(self.outcome())

    def outcome(self) -> str:
        """What became of the runs, in a line."""
        left = sum(not _finished(run) for run in self.runs)
        stored, took = len(self.runs) - self.computed - left, duration(time.monotonic() - self.began)
        runs = plural(len(self.runs), "run")
        if stored == len(self.runs):
            return f"{runs}, stored already"
        if self.computed == len(self.runs):
            return f"{runs} computed in {took}"
        words = [
            f"{self.computed} computed in {took}" if self.computed else "",
            f"{stored} {'was' if stored == 1 else 'were'} stored" if stored else "",
            f"{left} {'is' if left == 1 else 'are'} left" if left else "",
        ]
        return f"{runs}: {', '.join(filter(None, words))}"

    def advice(self) -> str:
        """What to do after Ctrl-C."""
        words = "interrupted; run again to continue"
        return f"{words} ({self.interrupted})" if self.interrupted else words

    def _progress(self, done: int, total: int, /, **figures: Any) -> None:
        self.current[-1].tell(done, total, figures)
        self.draw()


class _Current:
    """A run that is being computed; ``expected`` seconds in all, if that is known."""

    def __init__(self, title: str, unit: str, expected: float | None, *, of_sweep: bool) -> None:
        self.title, self.unit, self.expected, self.of_sweep = title, unit, expected, of_sweep
        self.began = time.monotonic()
        self.first: tuple[int, float] | None = None  # step and moment when it told for the first time
        self.step, self.steps, self.figures = 0, 0, {}

    def tell(self, step: int, steps: int, figures: Mapping[str, Any]) -> None:
        self.step, self.steps = step, steps
        self.figures = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        self.first = self.first or (step, time.monotonic())  # a resumed run does not begin at 0

    def left(self, now: float) -> float | None:
        """Seconds: first as expected, at the end as its own steps say."""
        start, since = self.first or (0, now)
        expected = own = None
        if self.expected is not None:
            share = 1 - start / self.steps if self.steps else 1  # what was left when it was resumed
            expected = max(0.0, self.expected * share - (now - self.began))
        if self.step > start:
            own = (now - since) / (self.step - start) * (self.steps - self.step)
        if expected is None or own is None:
            return expected if own is None else own
        done = self.step / self.steps
        return done * own + (1 - done) * expected


_active: ContextVar[Sweep | None] = ContextVar("active", default=None)


@contextmanager
def watched(make: Callable[[], Sweep]) -> Iterator[Sweep]:
    """The display of the runs that the block computes: a new one, or within a run that of this run.

    Raises:
        Interrupted: for a KeyboardInterrupt, in a Jupyter kernel; elsewhere it passes, and the advice goes to stderr.
    """
    if (outer := _active.get()) is not None:
        yield outer
        return
    sweep = make()
    token = _active.set(sweep)
    try:
        try:
            yield sweep
        finally:
            _active.reset(token)
            sweep.close()
    except KeyboardInterrupt as interrupt:
        if in_kernel():
            raise Interrupted(sweep.advice()) from interrupt
        say(sweep.advice())
        raise


def telling(rows: Sequence[Mapping[str, Any]], varying: Sequence[str]) -> list[str]:
    """The settings that tell these runs apart, seeds last: one that follows from those before it says nothing."""
    names: list[str] = []
    for name in sorted(varying, key=is_seed):
        if name == "kind" or any(len(str(row.get(name))) > 40 for row in rows):  # the settings of other runs are long
            continue
        with_it, without = (len({str([row.get(n) for n in each]) for row in rows}) for each in ([*names, name], names))
        names += [name] if with_it > without else []
    return names


def title_of(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """A run by the settings in which it differs: ``method MonAcoSFL, cut_layer 5, seed 0``."""
    last = [name.rpartition(".")[2] for name in names]
    shown = (name if last.count(short) > 1 else short for name, short in zip(names, last, strict=True))
    words = [f"{label} {row[name]}" for label, name in zip(shown, names, strict=True) if row.get(name) is not None]
    return textwrap.shorten(", ".join(words), 80, placeholder=" ...")


def _finished(run: Watched) -> bool:
    with suppress(FsslError):  # what is damaged is told elsewhere
        return run.finished
    return False
