"""When a run is saved: as often as its time allows, and while the training goes on.

A save costs the time in which the state is copied and, in a thread of its own, written. The next one waits until that
is a small share of the run's time (:class:`Pace`), yet not longer than some minutes. In between the newest state that
was cheap to copy is held in memory, and written when an interrupt or an error ends the run: Ctrl-C loses the work under
way, a kill at most that since the last save.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from fssl_core.errors import SettingError
from fssl_core.federation.rows import Settled
from fssl_core.resources import available_memory
from fssl_core.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Pace:
    """How often a state is saved.

    Args:
        share: of the run's time that saving may take: four fifths of it to write states, a fifth to hold copies.
        shortest, longest: seconds between two saves, whatever they cost.
        apart: write in a thread of its own, where there is memory for a copy of the state.
    """

    share: float = 0.02
    shortest: float = 10.0
    longest: float = 300.0
    apart: bool = True

    def wait(self, cost: float) -> float:
        """Seconds from one save that cost so many to the next."""
        return min(max(self.shortest, cost / (0.8 * self.share)), self.longest)

    def pause(self, copying: float) -> float:
        """Seconds from one copy that took so many to the next that is only held."""
        return copying / (0.2 * self.share)

    @classmethod
    def asked_for(cls) -> Self:
        """The default; ``$FSSL_SAVE_EVERY`` says after how many seconds at most, for machines that stop without notice.

        Raises:
            SettingError: the variable is no number of seconds.
        """
        text = os.environ.get("FSSL_SAVE_EVERY")
        if not text:
            return cls()
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not seconds >= 0:
            raise SettingError("FSSL_SAVE_EVERY", text, "a number of seconds, at least 0")
        return cls(shortest=min(cls.shortest, seconds), longest=seconds)


class Saver:
    """Saves what a training offers; use it as a context around the training and all that follows from its last state.

    Args:
        checkpoint: where states go.
        pace: how often; None: :meth:`Pace.asked_for`.
    """

    def __init__(self, checkpoint: Checkpoint, pace: Pace | None = None) -> None:
        self.checkpoint = checkpoint
        self.pace = pace or Pace.asked_for()
        self._cost = self._copying = 0.0  # seconds of the last save, and of the last copy
        self._saved = self._copied = time.monotonic()
        self._held: dict[str, Any] | None = None  # a copy that is newer than what was written
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._ends = threading.Event()  # what is being written is not needed any more

    def offer(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save this state if it is time, else hold a copy if that is cheap; for whenever a run could go on from here.

        Args:
            state: gives it, as :meth:`Checkpoint.save` wants it; not called if nothing is to be done.

        Raises:
            FsslError: this save, or the one before it, failed, for example because the disk is full.
        """
        self._raise_failure()
        now = time.monotonic()
        if now - self._saved >= self.pace.wait(self._cost) and not self._writing:
            self._save(state, now)
        elif self.pace.apart and now - self._copied >= self.pace.pause(self._copying):
            copy = self._copy(state())
            self._held = self._held if copy is None else copy  # an older one is better than none
            self._copied = time.monotonic()
            self._copying = self._copied - now

    def _save(self, state: Callable[[], dict[str, Any]], began: float) -> None:
        self._saved, values = began, state()
        copy = self._copy(values) if self.pace.apart else None
        if copy is None:
            self.checkpoint.save(values)
            self._cost = time.monotonic() - began
        else:
            self._copied = time.monotonic()
            self._copying = self._copied - began
            self._writer = threading.Thread(target=self._write, args=(copy, began), name="checkpoint", daemon=True)
            self._writer.start()
        self._held = None

    def _write(self, state: dict[str, Any], began: float) -> None:
        try:
            self.checkpoint.save(state, self._check)
        except _Ended:
            pass
        except BaseException as failure:
            self._failure = failure  # for the thread that trains
        self._cost = time.monotonic() - began

    def _check(self) -> None:
        if self._ends.is_set():
            raise _Ended

    def _copy(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """None where memory is too short for it."""
        return None if 2 * _unsettled_bytes(state) > available_memory() else _at_rest(state)

    @property
    def _writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def _raise_failure(self) -> None:
        if self._failure is not None and not self._writing:
            failure, self._failure, self._held = self._failure, None, None
            raise failure

    # ---------------------------------------------------------------- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if kind is None:
                self._ends.set()  # the run is about to be finished and needs no checkpoint
            self._join()
            if kind is not None and self._held is not None and self._failure is None:
                self.checkpoint.save(self._held, self._check)
        except KeyboardInterrupt:  # a second one: at once, which leaves the last save that was complete
            self._ends.set()
            self._join()
            raise
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._raise_failure()  # who stops a run wants to know that it was not saved

    def _join(self) -> None:
        if self._writer is not None:
            self._writer.join()


class _Ended(Exception):
    """What is being written is not needed."""


def _unsettled_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    entries = value.values() if isinstance(value, Mapping) else value
    nested = isinstance(value, Mapping | list | tuple) and not isinstance(value, Settled)
    return sum(map(_unsettled_bytes, entries)) if nested else 0


def _at_rest(value: Any, settled: bool = False) -> Any:
    """A copy that later training does not change: of containers, and of all tensors that are not settled."""
    settled = settled or isinstance(value, Settled)
    if isinstance(value, torch.Tensor):
        return value if settled else value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _at_rest(entry, settled) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_at_rest(entry, settled) for entry in value)
    return value
