"""Runs on a Dask cluster: each unfinished run is a task, after those of the runs that it builds on.

A task has the name of its run, so that notebooks which want the same run share it. Its worker computes it in its own
store, as any process does: it resumes from a checkpoint that is there, and it waits while another process computes the
run. Where that store is not the notebook's, the files of finished runs travel, and are checked when they arrive.

https://distributed.dask.org: what of it is used is tasks with keys and resources, and events for the display.
"""

import hashlib
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import torch

from fssl_core.devices import default_device
from fssl_core.errors import FsslError, SettingError, first_line
from fssl_core.experiments.display import Running
from fssl_core.experiments.local import failed
from fssl_core.experiments.progress import DRAW_SECONDS, Current, Sweep, watched_from_elsewhere
from fssl_core.experiments.schedule import Schedule, one_line
from fssl_core.experiments.store import Run
from fssl_core.experiments.transfer import content, put, store_id
from fssl_core.notices import say
from fssl_core.settings import Settings, differences

try:
    import distributed
    from distributed.comm import addressing, registry
except ImportError as missing:
    raise FsslError('Computing on a Dask cluster needs dask.distributed: pip install -e ".[cluster]"') from missing

CONNECT_SECONDS = 30.0
EVENT_SECONDS = 1.0  # between two words of a worker on how far its run is
VISIBLE_SECONDS = 60.0  # until a shared folder shows here what another machine has written
_computing = threading.Lock()  # a worker computes one run at a time, however many threads it has


@dataclass(frozen=True)
class Job:
    """What a worker is told of a run: equal for all who want it, so that they share the task.

    Attributes:
        settings: of the run.
        identity: what decides its result where it is wanted, see :meth:`~fssl_core.experiments.store.Run.identity`.
        store: the folder of runs of whoever wants it.
    """

    settings: Settings
    identity: dict[str, Any]
    store: str

    @property
    def name(self) -> str:
        """Of the task, and of the events on how far it is."""
        text = json.dumps([self.identity, self.store], sort_keys=True)
        return f"fssl-{self.settings.key}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Result:
    """What comes back: whether the run was computed now, and its files where the stores are two."""

    settings: Settings
    computed: bool
    files: dict[str, bytes] | None


def _listen(host: str, port: int) -> None:
    """Raise :class:`OSError` unless who is there speaks first, as schedulers do; a client waits for others for ever."""
    with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
        try:
            said = connection.recv(1)
        except TimeoutError:
            said = b""
        if not said:
            raise ConnectionError("what listens there says nothing; is it the dashboard's port?")


class Cluster:
    """A Dask cluster; use it as a context.

    Args:
        address: of its scheduler, e.g. ``tcp://10.0.0.1:8786``, or ``tls://...`` with Dask's own configuration.

    Raises:
        FsslError: nobody answers there.
    """

    def __init__(self, address: str) -> None:
        say(f"connecting to the cluster {address}")  # which nobody may answer for half a minute
        try:
            scheme, location = addressing.parse_address(address)
            registry.get_backend(scheme)  # a client of another address goes on trying for a minute
            if scheme in ("tcp", "tls"):
                host_and_port = addressing.parse_host_port(location)
                if scheme == "tcp":
                    _listen(*host_and_port)
            self.client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:  # the last from a web server
            raise FsslError(
                f"No Dask scheduler answers at {address} ({first_line(error)}). Start it (dask scheduler), or unset "
                "DASK_SCHEDULER_ADDRESS to compute here."
            ) from error
        self.events: queue.SimpleQueue = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def compute(self, schedule: Schedule, sweep: Sweep) -> None:
        """As :class:`~fssl_core.experiments.local.Executor`."""
        dashboard = f"; dashboard: {self.client.dashboard_link}" if self.client.dashboard_link else ""
        say(f"computing on it{dashboard}")
        if not self._workers():
            say("no worker is there yet; waiting for one.")
        futures = self._submit(schedule)
        running: dict[str, Current] = {}
        try:
            while schedule.left:
                with suppress(queue.Empty):
                    self._hear(schedule, sweep, running, *self.events.get(timeout=DRAW_SECONDS))
                sweep.draw()
        finally:  # what nobody else wants stops at its next word
            self.client.cancel(list(futures.values()), reason="fssl: not wanted any more")

    def _submit(self, schedule: Schedule) -> dict[str, distributed.Future]:
        """A task for each run, by key."""
        store, resources, futures = store_id(), self._needed_resources(), {}
        given = {}  # by key, to runs that build on it: a task's result, or that of a run which is stored here alone
        # Those that come later, too: one that does not share it computes again what is stored here.
        shared = set(self.client.run(store_id).values()) <= {store}
        for key, run in schedule.left.items():  # what a run needs comes before it
            job = Job(run.settings, run.identity(), store)
            needed = run.settings.needs
            for other in needed:
                if not shared and other.key not in given:
                    result = Result(other, False, content(Run(other)))
                    given[other.key] = self.client.scatter(result, broadcast=True, hash=False)
            edges = [given[other.key] for other in needed if other.key in given]
            self.client.subscribe_topic(job.name, lambda event, key=key: self.events.put((key, event[1])))
            futures[key] = given[key] = self.client.submit(compute_run, job, *edges, key=job.name, resources=resources)
            futures[key].add_done_callback(lambda future, key=key: self.events.put((key, future)))
        return futures

    def _workers(self) -> list[dict[str, Any]]:
        return list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def _needed_resources(self) -> dict[str, float] | None:
        """What a run needs of a worker: what ``$FSSL_RESOURCES`` says; else a GPU where workers say that they have one.

        What no worker offers yet is said.
        """
        offered = [worker["resources"] for worker in self._workers()]
        text = os.environ.get("FSSL_RESOURCES")
        if text is None:
            return {"GPU": 1} if any("GPU" in resources for resources in offered) else None
        resources = parse_resources(text)
        for name, amount in resources.items():
            if offered and not any(resources.get(name, 0) >= amount for resources in offered):
                say(
                    f"no worker of the cluster offers {name}={amount:g} yet; waiting for one "
                    f'(dask worker --resources "{name}={amount:g}").'
                )
        return resources or None

    def _hear(self, schedule: Schedule, sweep: Sweep, running: dict[str, Current], key: str, event: Any) -> None:
        """What a worker says of its run, or the end of its task."""
        run = schedule.left.get(key)
        if run is None:  # done, or not wanted any more because of an error
            return
        if isinstance(event, Mapping):
            current = running.get(key) or running.setdefault(key, sweep.begin(run))
            current.unit = event["unit"]
            current.tell(event["step"], event["steps"], event["figures"])
            return
        computed, error = False, None
        try:
            result = event.result()
            self._check(run, result)
            computed = result.computed
        except distributed.KilledWorker as killed:
            tries = killed.allowed_failures + 1
            error = FsslError(f"{tries} workers died while they computed {sweep.title(run)}. Out of memory?")
        except distributed.client.FutureCancelledError as lost:
            error = FsslError(f"The cluster gave up {sweep.title(run)} ({lost.reason}). Run again to go on.")
        except Exception as other:
            error = other
        current = running.pop(key, None)
        if current is None and computed:
            current = sweep.begin(run)
        if current is not None:
            sweep.end(current, computed=computed)
        if error is not None:
            failed(run, error, schedule, sweep)
        else:
            sweep.stored(run)
            schedule.finished(run)

    def _check(self, run: Run, result: Result) -> None:
        """That the run is in this store."""
        if result.files is not None:
            put(run, result.files)
        began = time.monotonic()
        while not run.finished:
            if time.monotonic() - began > VISIBLE_SECONDS:
                raise FsslError(f"A worker has computed {run}, but {run.folder} does not show it: is it shared?")
            time.sleep(DRAW_SECONDS)


def parse_resources(text: str) -> dict[str, float]:
    """For example ``GPU=1,MEMORY=64e9``, as ``dask worker --resources`` takes it.

    Raises:
        SettingError: it is no such text.
    """
    try:
        pairs = [pair.split("=") for pair in text.replace(",", " ").split()]
        return {name: float(amount) for name, amount in pairs}
    except ValueError:
        raise SettingError("FSSL_RESOURCES", text, "resources of a worker, such as GPU=1,MEMORY=64e9") from None


class _NotWanted(BaseException):
    """Nobody wants the run any more; its checkpoint stays."""


def compute_run(job: Job, *needed: Result) -> Result:
    """The task: computes a run in the store of the worker that it is on.

    Args:
        job: which run.
        needed: runs that it builds on, put into this store where they come with files.
    """
    worker = distributed.get_worker()
    with _computing:
        for result in needed:
            if result.files is not None:
                put(Run(result.settings), result.files)
        run = Run(job.settings)
        if other := run.changes_since(job.identity):
            raise FsslError(
                f"The worker {worker.address} would compute another {run} than the one that is wanted, which {other} "
                f"({differences(job.identity, run.identity())}). Give it the same code and images."
            )
        offered = worker.state.total_resources.get("GPU") and not os.environ.get("FSSL_DEVICE")
        if offered and default_device().type == "cpu":
            raise FsslError(f"The worker {worker.address} offers a GPU, and torch finds none there. Stop it.")
        last_event = -EVENT_SECONDS

        def tell(running: Running) -> None:
            nonlocal last_event
            task = worker.state.tasks.get(job.name)
            if task is None or task.state not in ("executing", "long-running"):
                raise _NotWanted
            if time.monotonic() - last_event >= EVENT_SECONDS:
                last_event = time.monotonic()
                event = {"unit": running.unit, "step": running.step, "steps": running.steps, "figures": running.figures}
                worker.log_event(job.name, event)

        try:
            with watched_from_elsewhere(run, tell) as sweep:
                run.compute(sweep, wait=True)
        except _NotWanted:
            raise FsslError(f"{run} is not wanted any more.") from None
        except torch.AcceleratorError as error:  # nothing computes on the device in this process any more
            say(f"{run} failed: {one_line(error)} This worker ends, and another goes on.")
            os._exit(1)
        same_store = store_id() == job.store
        return Result(job.settings, sweep.computed > 0, None if same_store else content(run))
