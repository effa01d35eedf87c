"""Runs that are computed, as one live display that ends as one line; and what Ctrl-C says."""

import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from fssl_core.errors import FsslError, Interrupted
from fssl_core.experiments.display import SHOWN, Running, State, View, duration, plural
from fssl_core.experiments.durations import Durations, is_seed
from fssl_core.experiments.schedule import Runnable
from fssl_core.notices import in_kernel, say, tell

DRAW_SECONDS = 0.25  # between two states that are shown
START_SECONDS = 0.1  # a run that starts is shown sooner: it may be long until it tells how far it is
ALONE = ("method", "dataset", "clients", "seed")  # by which a run is told that differs from no other


class Sweep:
    """Runs that are computed, here or in other processes, each perhaps after others that it builds on.

    One thread draws; any may tell what becomes of runs.

    Args:
        runs: all of them.
        rows: their settings, flat, in the same order.
        varying: names of the settings in which they differ.
        durations: what they will take.
        views: where they are shown.
    """

    def __init__(
        self,
        runs: Sequence[Runnable],
        rows: Sequence[Mapping[str, Any]],
        varying: Sequence[str],
        durations: Durations,
        views: Sequence[View],
    ) -> None:
        self.runs, self.durations, self.views = runs, durations, views
        self.names = telling(rows, varying)
        self.rows = {run.settings.key: row for run, row in zip(runs, rows, strict=True)}
        # By key, in order: those that are neither finished nor being computed.
        self.waiting = {run.settings.key: self.rows[run.settings.key] for run in runs if not finished(run)}
        self.expected = {key: durations.expected(row) for key, row in self.waiting.items()}  # seconds
        self.running: list[Current] = []
        self.began, self.drawn, self.computed = time.monotonic(), 0.0, 0
        self.interrupted: list[str] = []
        self.lines: dict[str, bool] = {}  # what other threads and processes have to say, and whether it was said
        self.lock = threading.RLock()

    @contextmanager
    def run(self, run: Runnable) -> Iterator[Callable[..., None]]:
        """Show a run while the block computes it; the block gets what engines call as ``progress``."""
        current = self.begin(run, inside=_computing.get())
        token = _computing.set(current)
        self.draw(starting=True)

        def progress(done: int, total: int, /, **figures: Any) -> None:
            current.tell(done, total, figures)
            self.draw()

        computed = False
        try:
            yield progress
            computed = True
        except KeyboardInterrupt:
            self.interrupt()
            raise
        finally:
            _computing.reset(token)
            self.end(current, computed=computed)

    def begin(self, run: Runnable, *, inside: "Current | None" = None) -> "Current":
        """A run is being computed; ``inside`` another one, which has asked for it, or by itself."""
        key = run.settings.key
        with self.lock:
            self.waiting.pop(key, None)
            title = self.title(run)
            if inside is not None:
                title, inside.waits = f"{inside.title} › {title}", True
            current = Current(run, title, self.expected.get(key), of_sweep=key in self.rows, inside=inside)
            self.running.append(current)
        return current

    def end(self, current: "Current", *, computed: bool) -> None:
        """It is computed, or not: it failed, or goes on elsewhere."""
        key = current.run.settings.key
        with self.lock:
            self.running.remove(current)
            if current.inside is not None:
                current.inside.waits = False
            if computed and current.of_sweep:
                self.computed += 1
                self.durations.add(self.rows[key], current.run.provenance["seconds"])
                self.expected = {key: self.durations.expected(row) for key, row in self.waiting.items()}

    def stored(self, run: Runnable) -> None:
        """A run is finished that was computed elsewhere."""
        with self.lock:
            self.waiting.pop(run.settings.key, None)

    def expected_seconds(self) -> float | None:
        """Of the runs that are neither finished nor being computed; ``None`` if unknown."""
        with self.lock:
            expected = [self.expected.get(key) for key in self.waiting]
            return None if None in expected else sum(expected)

    def title(self, run: Runnable) -> str:
        """A run in words."""
        row = self.rows.get(run.settings.key)
        words = (title_of(row, self.names) or title_of(row, ALONE)) if row else ""
        return words or repr(run)

    def say(self, line: str) -> None:
        """A line that another thread or process has for the user: at the next drawing, and once if it comes often."""
        with self.lock:
            self.lines.setdefault(line, False)

    def draw(self, *, starting: bool = False) -> None:
        """Show the state, unless one was shown a moment ago."""
        now = time.monotonic()
        if now - self.drawn >= (START_SECONDS if starting else DRAW_SECONDS):
            self.drawn = now
            self._say_lines()
            state = self.state(now)
            for view in self.views:
                view.draw(state)

    def state(self, now: float) -> State:
        """How far the runs are."""
        with self.lock:
            done = len(self.runs) - len(self.waiting) - sum(current.of_sweep for current in self.running)
            running = tuple(current.state(now) for current in self.running if not current.waits)
            outer = [current for current in self.running if current.inside is None]
            return State(len(self.runs), done, running, self._left(now, outer))

    def _left(self, now: float, outer: Sequence["Current"]) -> float | None:
        """Seconds for all runs, if so many go on being computed at a time; ``None`` if unknown."""
        expected = [self.expected.get(key) for key in self.waiting]
        seconds_left = {current: left for current in outer if (left := current.left(now)) is not None}
        if len(seconds_left) < len(outer) or (not outer and None in expected):
            return None
        whole = sum(now - current.began + left for current, left in seconds_left.items()) / max(1, len(seconds_left))
        waiting = sum(whole if seconds is None else seconds for seconds in expected)
        return max([*seconds_left.values(), (sum(seconds_left.values()) + waiting) / max(1, len(seconds_left))])

    def _say_lines(self) -> None:
        with self.lock:
            new = [line for line, printed in self.lines.items() if not printed]
            self.lines = dict.fromkeys(self.lines, True)
        for line in new:
            tell(line)

    def interrupt(self) -> None:
        """Remember, once, what will become of the runs that are being computed."""
        with self.lock:
            if not self.interrupted:
                self.interrupted = [current.after_interrupt() for current in self.running if not current.waits]

    def close(self) -> None:
        """Leave the one line that stays."""
        self._say_lines()
        for view in reversed(self.views):
            view.close(self.outcome())

    def outcome(self) -> str:
        """What became of the runs, in a line."""
        left = sum(not finished(run) for run in self.runs)
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
        more = f", and {len(self.interrupted) - SHOWN} more" if len(self.interrupted) > SHOWN else ""
        return f"{words} ({', '.join(self.interrupted[:SHOWN])}{more})" if self.interrupted else words


class Current:
    """A run that is being computed.

    Args:
        run: which one.
        title: of it, in words.
        expected: seconds in all, if that is known.
        of_sweep: whether it is one of those that were asked for.
        inside: the run that has asked for this one.
    """

    def __init__(
        self,
        run: Runnable,
        title: str,
        expected: float | None,
        *,
        of_sweep: bool = True,
        inside: "Current | None" = None,
    ) -> None:
        self.run, self.title, self.expected, self.of_sweep, self.inside = run, title, expected, of_sweep, inside
        self.unit = getattr(run.settings, "progress_unit", "step")
        self.waits = False  # for one inside it
        self.began = time.monotonic()
        self.first: tuple[int, float] | None = None  # step and moment when it told for the first time
        self.step, self.steps, self.figures = 0, 0, {}

    def tell(self, step: int, steps: int, figures: Mapping[str, Any]) -> None:
        """How far it is."""
        self.step, self.steps = step, steps
        self.figures = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        self.first = self.first or (step, time.monotonic())  # a resumed run does not begin at 0

    def state(self, now: float) -> Running:
        """The same in plain values."""
        return Running(self.title, self.unit, self.step, self.steps, self.figures, self.left(now), self.of_sweep)

    def after_interrupt(self) -> str:
        """What the next call makes of it, in words."""
        resumes = "resumes from its last checkpoint" if self.run.checkpoint.exists else "from its beginning"
        return f"{self.title} {resumes}"

    def left(self, now: float) -> float | None:
        """Seconds: first as expected; the nearer the end, by steps or by what was expected, the more as its own steps
        say."""
        start, since = self.first or (0, now)
        expected = by_steps = None
        if self.expected is not None:
            whole = self.expected * (1 - start / self.steps if self.steps else 1)  # what was left when it was resumed
            expected = max(0.0, whole - (now - self.began)) or None  # outrun, it tells nothing
        if self.step > start:
            by_steps = (now - since) / (self.step - start) * (self.steps - self.step)
        if expected is None or by_steps is None:
            return expected if by_steps is None else by_steps
        trust = max(self.step / self.steps, (now - since) / whole)
        return trust * by_steps + (1 - trust) * expected


_active: ContextVar[Sweep | None] = ContextVar("active", default=None)
_computing: ContextVar[Current | None] = ContextVar("computing", default=None)


def active() -> Sweep | None:
    """The display that this code computes a run for, if it does."""
    return _active.get()


@contextmanager
def watched(sweep: Sweep) -> Iterator[Sweep]:
    """Show the runs that the block computes.

    Raises:
        Interrupted: for a KeyboardInterrupt, in a Jupyter kernel; elsewhere it passes, and the advice goes to stderr.
    """
    token = _active.set(sweep)
    try:
        try:
            yield sweep
        finally:
            _active.reset(token)
            sweep.close()
    except KeyboardInterrupt as interrupt:
        sweep.interrupt()
        if in_kernel():
            raise Interrupted(sweep.advice()) from interrupt
        say(sweep.advice())
        raise


class _Teller:
    """A place of states that is another process."""

    def __init__(self, tell: Callable[[Running], None]) -> None:
        self.tell = tell

    def draw(self, state: State) -> None:
        for running in state.running[-1:]:
            self.tell(running)

    def close(self, outcome: str) -> None:
        pass


def watched_from_elsewhere(run: Runnable, tell: Callable[[Running], None]) -> AbstractContextManager[Sweep]:
    """The display of a run that is computed for another process, which ``tell`` tells how far it is."""
    return watched(Sweep([run], [{}], [], Durations([{}], [], []), [_Teller(tell)]))


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


def finished(run: Runnable) -> bool:
    """Whether it is; one that is damaged is not, until somebody has deleted it."""
    with suppress(FsslError):
        return run.finished
    return False
