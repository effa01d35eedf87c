"""The program behind worker processes: ``python -m fssl_core.experiments.worker SOCKET MODULES``.

It imports what runs need, once, and forks a worker for each connection that comes over the socket; it starts no
thread, so that forking is safe. Where no fork is, ``... worker CONNECTION`` is one worker. A worker computes the runs
that come over its connection, one after the other, and ends with whoever gave them: an interrupted or killed process
leaves none behind. Both ends are one user's processes on one machine, so what they send is trusted.
"""

import contextlib
import importlib
import json
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from fssl_core.experiments.display import Running
from fssl_core.experiments.local import packed
from fssl_core.experiments.progress import watched_from_elsewhere
from fssl_core.experiments.store import Run
from fssl_core.notices import send_lines


def serve(server: socket.socket, modules: Sequence[str]) -> None:
    """Fork workers until nobody wants any more."""
    for name in modules:
        with contextlib.suppress(ImportError):  # a run of it says so
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks what became of a worker but by its connection
    while True:
        message, descriptors, *_ = socket.recv_fds(server, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            try:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                work(Connection(descriptors[0]))
            finally:
                os._exit(1)
        os.close(descriptors[0])


def work(connection: Connection) -> None:
    """Compute runs until the other end is closed; does not return."""
    jobs: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()

    def send(*message: Any) -> None:
        try:
            connection.send(message)
        except OSError:
            os._exit(1)

    send_lines(lambda line: send("line", line))
    warnings.showwarning = lambda message, category, *_: send("line", f"fssl: {category.__name__}: {message}")
    while True:
        send(*_outcome(*jobs.get(), send))


def _receive(connection: Connection, jobs: queue.SimpleQueue) -> None:
    while True:
        try:
            jobs.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)  # at any point: what is on disk is whole


def _outcome(environment: dict[str, str], folder: str, settings: bytes, send: Callable[..., None]) -> tuple[Any, ...]:
    """What became of a run, computed with these variables in this folder."""

    def tell(running: Running) -> None:
        send("state", running.unit, running.step, running.steps, running.figures)

    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        try:
            run = Run(pickle.loads(settings))
        except (ImportError, AttributeError) as error:
            return "unknown", str(error)
        with watched_from_elsewhere(run, tell) as sweep:
            finished = run.compute(sweep, wait=False)
        return ("computed" if sweep.computed else "stored",) if finished else ("held",)
    except Exception as error:
        return "failed", *packed(error), traceback.format_exc()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    number, *listed = sys.argv[1:]
    if not listed:
        work(Connection(int(number)))
    with socket.socket(fileno=int(number)) as server_socket:
        serve(server_socket, json.loads(listed[0]))
