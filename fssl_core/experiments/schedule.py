"""Which run is computed next: each after those that it builds on, whoever computes them.

What builds on others goes first as soon as it can, such as the evaluations of a model that has been trained: whoever is
interrupted then has a part of the results whole, in place of models that nobody has looked at.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from fssl_core.errors import FsslError, RunsFailedError, SettingError

PAUSE_SECONDS = 0.5  # until a run that another process has is asked for again


class Runnable(Protocol):
    """What is asked of a :class:`~fssl_core.experiments.store.Run` by what computes and shows runs."""

    settings: Any
    checkpoint: Any
    finished: bool
    provenance: dict[str, Any] | None


class Schedule:
    """Runs that are not finished, with those that they build on; threads may share it.

    Args:
        asked: the runs that are wanted.
        find: makes the run of some settings.
        ahead: what a run builds on is computed before it, perhaps elsewhere; else by itself, once it has found out
            whether it can be computed at all.
    """

    def __init__(self, asked: Iterable[Runnable], find: Callable[[Any], Runnable], *, ahead: bool = True) -> None:
        self.left: dict[str, Runnable] = {}  # by key: neither finished nor failed; in order, what a run needs before it
        self.needs: dict[str, set[str]] = {}  # by key: those that it builds on, finished or not
        self.taken: set[str] = set()
        self.held: dict[str, float] = {}  # by key: computed by another process; when to ask again
        self.errors: list[tuple[Runnable, Exception]] = []
        self.skipped = 0
        self._find, self._ahead, self._changed = find, ahead, threading.Condition()
        known: set[str] = set()
        for run in asked:
            self._add(run, known)

    def _add(self, run: Runnable, known: set[str]) -> None:
        key = run.settings.key
        if key in known:
            return
        known.add(key)
        try:
            finished = run.finished
        except FsslError as error:  # damaged: the others are computed all the same
            self.errors.append((run, error))
            return
        if not finished:
            needed = [self._find(settings) for settings in run.settings.needs] if self._ahead else []
            for other in needed:
                self._add(other, known)
            self.needs[key] = {other.settings.key for other in needed}
            self.left[key] = run

    def ready(self) -> list[Runnable]:
        """The runs that could be computed now and that nobody computes: those that build on others, then the rest."""
        with self._changed:
            now = time.monotonic()
            found = {
                key: run
                for key, run in self.left.items()
                if key not in self.taken and not self.needs[key] & self.left.keys() and self.held.get(key, 0) <= now
            }
            return [found[key] for key in sorted(found, key=lambda key: not self.needs[key])]

    def take(self) -> Runnable | None:
        """The next run, which the caller then computes; ``None`` if there is none just now."""
        with self._changed:
            run = next(iter(self.ready()), None)
            if run is not None:
                self.taken.add(run.settings.key)
            return run

    def finished(self, run: Runnable) -> None:
        """A run is computed."""
        with self._changed:
            del self.left[run.settings.key]
            self.given_back(run)

    def failed(self, run: Runnable, error: Exception) -> None:
        """A run cannot be computed, nor can those that build on it."""
        with self._changed:
            self.errors.append((run, error))
            failed_keys = {run.settings.key}
            for key in self.left:  # in order, so that one pass finds all
                if self.needs[key] & failed_keys:
                    failed_keys.add(key)
            self.skipped += len(failed_keys) - 1
            self.left = {key: other for key, other in self.left.items() if key not in failed_keys}
            self.given_back(run)

    def is_held(self, run: Runnable) -> None:
        """Another process computes it: others first, then it is asked for again."""
        with self._changed:
            self.held[run.settings.key] = time.monotonic() + PAUSE_SECONDS
            self.given_back(run)

    def given_back(self, run: Runnable) -> None:
        """A run that was taken is not being computed any more by who took it."""
        with self._changed:
            self.taken.discard(run.settings.key)
            if run.settings.key not in self.left:
                self.held.pop(run.settings.key, None)
            self._changed.notify_all()

    def waits_for(self) -> Runnable | None:
        """A run of another process, if nothing is left to do here but to wait for such."""
        with self._changed:
            return self.left[min(self.held)] if self.held and not self.taken else None

    def wait(self, seconds: float) -> None:
        """Until another thread has changed something, or so many seconds."""
        with self._changed:
            self._changed.wait(seconds)

    def raise_errors(self, title: Callable[[Runnable], str]) -> None:
        """Raise what went wrong: a single error as it is, several as one that names them.

        Args:
            title: what a user knows a run by.
        """
        errors = self.errors
        if len(errors) == 1:
            raise errors[0][1]
        if errors:
            lines = [f"{title(run)}: {one_line(error)}" for run, error in errors]
            more = f" {self.skipped} more build on these." if self.skipped else ""
            advice = "Those that are finished are stored; run again to compute the others."
            if all(isinstance(error, SettingError) for _, error in errors):
                advice = "Those that are finished are stored; change the setting to compute the others."
            raise RunsFailedError(f"{len(errors)} runs failed.{more} {advice}\n" + "\n".join(lines)) from errors[0][1]


def one_line(error: Exception) -> str:
    """An error in a line, with its kind where the message was not written for users."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, FsslError) else f"{type(error).__name__}: {text}"
