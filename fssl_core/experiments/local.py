"""Runs on this machine: in this process, and side by side in worker processes where that pays.

Starting workers costs the seconds of an import, so short runs are computed here, one after the other. When the runs
that are left take longer than that, or the first ones have, a thread starts workers (:mod:`.worker`) beside this
process, which goes on computing: a worker for each further part of the machine.
"""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import ClassVar, Protocol

import torch

from fssl_core.errors import FsslError
from fssl_core.experiments.own_code import registered_here, with_nested
from fssl_core.experiments.progress import DRAW_SECONDS, Current, Sweep
from fssl_core.experiments.schedule import Runnable, Schedule, one_line
from fssl_core.experiments.warm import survives_fork
from fssl_core.notices import say

WORTH_SECONDS = 10.0  # of runs that are left: with more, workers pay
TRIAL_SECONDS = 2.0  # without workers, where nobody knows how long runs take


class Executor(Protocol):
    """Something that computes runs."""

    def compute(self, schedule: Schedule, sweep: Sweep) -> None:
        """Compute what can be computed; errors of runs are the schedule's."""


class Local:
    """This machine.

    Args:
        parts: variables that keep a process to its part of the machine, by part; the first is this process's own.
    """

    def __init__(self, parts: Sequence[Mapping[str, str]]) -> None:
        self.parts = parts

    def compute(self, schedule: Schedule, sweep: Sweep) -> None:
        """As :class:`Executor`; this process takes part."""
        waits = False
        with self._helped(schedule, sweep):
            while schedule.left:
                run = schedule.take()
                if run is not None:
                    self._compute_here(run, schedule, sweep)
                    continue
                held = schedule.waits_for()
                if held is not None and not waits:
                    say(f"Another process is computing {held}; waiting for it.")
                waits = held is not None
                schedule.wait(DRAW_SECONDS)
                sweep.draw()

    def _compute_here(self, run: Runnable, schedule: Schedule, sweep: Sweep) -> None:
        try:
            finished = run.compute(sweep, wait=False)
        except torch.AcceleratorError as error:
            raise FsslError(
                f"{sweep.title(run)} failed: {one_line(error)} After this nothing computes on the device in this "
                "process. Run again in another one (restart a notebook's kernel): what is finished is stored."
            ) from error
        except Exception as error:
            failed(run, error, schedule, sweep)
        else:
            schedule.finished(run) if finished else schedule.is_held(run)

    @contextmanager
    def _helped(self, schedule: Schedule, sweep: Sweep) -> Iterator[None]:
        if len(self.parts) == 1 or len(schedule.left) == 1:
            yield
            return
        helpers = Helpers(self.parts[1:], schedule, sweep)
        helpers.start()
        try:
            yield
        except KeyboardInterrupt:
            sweep.interrupt()  # before the helpers leave what they do
            raise
        finally:
            helpers.stop()


def failed(run: Runnable, error: Exception, schedule: Schedule, sweep: Sweep) -> None:
    """A run cannot be computed: the schedule raises it in the end; said now if others go on."""
    schedule.failed(run, error)
    if schedule.left:
        sweep.say(f"fssl: {sweep.title(run)} failed: {one_line(error)} Others go on.")


class Helpers(threading.Thread):
    """Serves worker processes: gives them runs, and tells schedule and display what they say.

    Args:
        parts: of the machine, one for each worker.
        schedule: what there is to do.
        sweep: the display.
    """

    def __init__(self, parts: Sequence[Mapping[str, str]], schedule: Schedule, sweep: Sweep) -> None:
        super().__init__(daemon=True)
        self.schedule, self.sweep = schedule, sweep
        self.free = [dict(part) for part in reversed(parts)]
        self.idle: list[Worker] = []
        self.busy: dict[Connection, Worker] = {}
        self.began, self.stopped = time.monotonic(), False

    def run(self) -> None:
        """What the thread does."""
        try:
            while not self.stopped and self.schedule.left:
                if self._pays():
                    if unknown := _unknown_elsewhere(self.schedule):
                        self._leave_all(unknown)
                        return
                    self._give_runs()
                if not self.busy:
                    self.schedule.wait(DRAW_SECONDS)
                for connection in wait([*self.busy], timeout=DRAW_SECONDS) if self.busy else ():
                    self._hear(self.busy[connection])
        finally:
            for worker in [*self.idle, *self.busy.values()]:
                worker.end()
            for worker in self.busy.values():  # if this thread failed, they are this process's again
                self.sweep.end(worker.current, computed=False)
                self.schedule.given_back(worker.job)

    def stop(self) -> None:
        """End the workers, whatever they do; runs keep their checkpoints."""
        self.stopped = True
        self.join()

    def _pays(self) -> bool:
        """Whether workers save time, or are there already."""
        if self.busy or self.idle:
            return True
        if not any(self.schedule.ready()):
            return False
        expected = self.sweep.expected_seconds()
        if expected is None:
            return time.monotonic() - self.began > TRIAL_SECONDS
        return expected > WORTH_SECONDS

    def _leave_all(self, unknown: str) -> None:
        self.stopped = True
        self.sweep.say(f"fssl: {unknown}: known to this process alone, so runs are computed one after the other.")

    def _give_runs(self) -> None:
        while (self.idle or self.free) and self.schedule.ready():
            worker = self.idle.pop() if self.idle else Worker(self.free.pop(), self.schedule)
            run = self.schedule.take()
            if run is None:
                self.idle.append(worker)
                return
            self.busy[worker.connection] = worker
            worker.compute(run, self.sweep.begin(run))

    def _hear(self, worker: "Worker") -> None:
        run, current = worker.job, worker.current
        try:
            kind, *values = worker.connection.recv()
        except (EOFError, OSError):
            kind, values = "died", ()
        if kind == "state":
            current.unit, *progress = values
            current.tell(*progress)
            return
        if kind == "line":
            self.sweep.say(*values)
            return
        del self.busy[worker.connection]
        self.sweep.end(current, computed=kind == "computed")
        if kind in ("died", "failed"):
            worker.end()  # after some errors of a GPU nothing computes in its process any more
            self.free.append(worker.part)
            advice = "Was it out of memory? Run again to go on from its last checkpoint."
            killed = f"The process that computed {self.sweep.title(run)} was killed. {advice}"
            failed(run, unpacked(*values) if kind == "failed" else FsslError(killed), self.schedule, self.sweep)
            return
        self.idle.append(worker)
        if kind == "held":
            self.schedule.is_held(run)
        elif kind == "unknown":
            self._leave_all(*values)
            self.schedule.given_back(run)
        else:
            self.sweep.stored(run)
            self.schedule.finished(run)


class Worker:
    """A worker process, kept to a part of the machine.

    Attributes:
        connection: over which it tells how far it is, and what became of its run.
        job: the run that it computes.
        current: its place in the display.
    """

    def __init__(self, part: dict[str, str], schedule: Schedule) -> None:
        self.part = part
        modules = sorted({type(run.settings).__module__ for run in [*schedule.left.values()]})
        self.process: subprocess.Popen | None = None  # where it is not forked
        if survives_fork():
            self.connection = _Server.current(modules).worker()
        else:
            self.connection, child_end = Pipe()
            self.process = _start(child_end)
        self.job: Runnable | None = None
        self.current: Current | None = None

    def compute(self, run: Runnable, current: Current) -> None:
        """Let it begin."""
        self.job, self.current = run, current
        environment = {**os.environ, **self.part}
        environment.pop("FSSL_PROGRESS", None)  # this process tells it
        with suppress(OSError):  # it has died: its connection tells
            self.connection.send((environment, os.getcwd(), pickle.dumps(run.settings)))

    def end(self) -> None:
        """It sees that and dies."""
        self.connection.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _start(end: socket.socket | Connection, *arguments: str) -> subprocess.Popen:
    """The program :mod:`.worker`, which gets this end of a connection."""
    command = [sys.executable, "-m", "fssl_core.experiments.worker", str(end.fileno()), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    environment.setdefault("OMP_NUM_THREADS", "1")  # a pool of more would not outlive a fork
    with end:
        return subprocess.Popen(command, env=environment, pass_fds=[end.fileno()], stdin=subprocess.DEVNULL, stdout=2)


class _Server:
    """The process that workers are forked from; there is one for this process, from its first worker on.

    It has imported what runs need and done nothing: forked from, it cannot hang as one would that has threads, such as
    a notebook's kernel or whoever has trained a model already.
    """

    _known: ClassVar[dict[int, "_Server"]] = {}  # by process: a forked one must not use its parent's

    def __init__(self, modules: Sequence[str]) -> None:
        self.socket, child_end = socket.socketpair()
        self.process = _start(child_end, json.dumps(modules))

    @classmethod
    def current(cls, modules: Sequence[str]) -> "_Server":
        """The one of this process; a new one if it has died."""
        server = cls._known.get(os.getpid())
        if server is None or server.process.poll() is not None:
            server = cls._known[os.getpid()] = cls(modules)
        return server

    def worker(self) -> Connection:
        """The connection to a new worker."""
        ours, child_end = Pipe()
        with child_end:
            socket.send_fds(self.socket, [b"w"], [child_end.fileno()])
        return ours


def packed(error: Exception) -> tuple[bytes | None, str]:
    """An error for another process: itself, where it comes back as what it was, and in a line."""
    try:
        content = pickle.dumps(error)
        same = type(pickle.loads(content)) is type(error) and str(pickle.loads(content)) == str(error)
    except Exception:  # whatever a foreign exception does when it is pickled
        same = False
    return content if same else None, one_line(error)


def unpacked(content: bytes | None, line: str, trace: str) -> Exception:
    """What :func:`packed` packed; where it was called is the cause."""
    error = pickle.loads(content) if content is not None else FsslError(line)
    error.__cause__ = _Elsewhere(f"\n\n{trace}")
    return error


class _Elsewhere(Exception):
    """The traceback of another process, as text."""


def _unknown_elsewhere(schedule: Schedule) -> str:
    """Classes and registered names that other processes cannot find: those of a script, or of a notebook's cell."""
    known = [part for run in [*schedule.left.values()] for part in with_nested(run.settings)]
    names = {type(part).__name__ for part in known if not _found(type(part))}
    return ", ".join(sorted(names | {name for part in known for name, _ in registered_here(part)}))


def _found(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ != "__main__" and getattr(module, kind.__qualname__, None) is kind
