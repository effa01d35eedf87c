"""Notebooks executed in batch, as a user sees it: what there is to do, how far each is, how long the rest will take."""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from fssl_core import resources
from fssl_core.experiments import display
from fssl_core.experiments.archive import recorded_keys
from fssl_core.experiments.display import BAR, State, duration, joined, plural, time_left
from fssl_core.experiments.speed import relative_speed
from fssl_core.experiments.store import recorded_choice
from fssl_core.notices import say, tell
from fssl_core.paths import runs_root

if TYPE_CHECKING:
    from fssl_core.experiments.notebooks import Outcome, Task

AROUND_SECONDS = 10.0  # of a notebook beside its runs: kernel, imports, figures
TRUST_SECONDS = 60.0  # so many seconds of work here count as much as the records do


class Batch:
    """Lines on stderr about notebooks that are executed, and in a terminal, below the lines, a bar for each.

    Args:
        tasks: to be executed.
        jobs: how many at a time.
        folder: where the notebooks tell how far they are.
    """

    def __init__(self, tasks: Sequence["Task"], jobs: int, folder: Path) -> None:
        self.tasks, self.jobs = {task.notebook.id: task for task in tasks}, jobs
        self.workers = max(1, len(resources.workers()) // jobs)  # runs of a notebook at a time
        self.files = {id: folder / f"{number}.json" for number, id in enumerate(self.tasks)}
        self.profile = next((task.parameters["profile"] for task in tasks if "profile" in task.parameters), "smoke")
        records = {id: task.notebook.record(self.profile) for id, task in self.tasks.items()}
        self.records = {id: record for id, record in records.items() if record and "seconds" in record}
        # Names of the runs behind a record; other settings have other runs.
        self.runs = {
            id: record["runs"]
            for id, record in self.records.items()
            if "runs" in record and set(self.tasks[id].parameters) <= {"profile"}
        }
        self.names = {name for runs in self.runs.values() for name in runs}
        self.stored = {name for name in self.names if (runs_root() / name / "summary.json").exists()}
        self.recorded = self.names & set().union(*recorded_keys().values()) if recorded_choice() == "1" else set()
        devices = dict.fromkeys(device for record in self.records.values() for device in record.get("devices", ()))
        self.speeds = {device: relative_speed(device) for device in devices}  # None: unknown
        self.expected = self._expected()
        self.began: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.logged = time.monotonic()
        self.bars = []
        say(self._plan())
        if sys.stderr.isatty():
            self.bars = [tqdm(position=row, **BAR) for row in range(1 + min(jobs, len(tasks)))]

    def environment(self, task: "Task") -> dict[str, str]:
        """By which its kernel knows where to tell how far it is."""
        return {"FSSL_PROGRESS": str(self.files[task.notebook.id])}

    def update(self, running: Iterable["Task"]) -> None:
        """Show how far these notebooks are; call it twice a second."""
        now = time.monotonic()
        for task in running:
            self.began.setdefault(task.notebook.id, now)
        shown = {id: display.reported(self.files[id]) for id in self.began if id not in self.took}
        if self.bars:
            words = f"{len(self.took)} of {plural(len(self.tasks), 'notebook')}"
            rows = [(len(self.took) / len(self.tasks), joined(words, time_left(self.left())))]
            rows += [
                (state.share() if state else 0.0, joined(id, _far(state, now - self.began[id])))
                for id, state in shown.items()
            ]
            for bar, (share, text) in zip(self.bars, rows + [(0.0, "")] * len(self.bars), strict=False):
                bar.total, bar.n = 1, share
                bar.set_description_str(text)
        elif now - self.logged >= display.LOG_SECONDS:
            self.logged = now
            for id, state in shown.items():
                say(f"{id}: {_far(state, now - self.began[id])}")

    def tell(self, outcome: "Outcome") -> None:
        """A notebook is done."""
        id = outcome.task.notebook.id
        self.took[id] = outcome.seconds
        status = "failed after" if outcome.error else "done in"
        line = f"[{len(self.took)}/{len(self.tasks)}] {id} {status} {duration(outcome.seconds)}"
        left = time_left(self.left()) if len(self.took) < len(self.tasks) else ""
        tell(", ".join(filter(None, [line, left])))
        if outcome.error:
            tell("  " + outcome.error.replace("\n", "\n  "))

    def left(self) -> float | None:
        """Seconds until all are done; ``None`` if nothing tells.

        The records say it, and the more is done, the more what it took here. A notebook without a record takes what
        others without one took.
        """
        now = time.monotonic()
        known = [id for id in self.took if id in self.expected]
        unknown = [seconds for id, seconds in self.took.items() if id not in self.expected]
        recorded = TRUST_SECONDS + sum(self.expected[id] for id in known)
        factor = (TRUST_SECONDS + sum(self.took[id] for id in known)) / recorded
        guess = sum(unknown) / len(unknown) if unknown else AROUND_SECONDS if self.expected else None
        rest = []
        for id in self.tasks.keys() - self.took.keys():
            seconds = self.expected[id] * factor if id in self.expected else guess
            if seconds is None:
                return None
            if id in self.began:
                state = display.reported(self.files[id])
                seconds = max(seconds - (now - self.began[id]), (state and state.left) or 0.0)
            rest.append(seconds)
        return max(sum(rest) / self.jobs, max(rest, default=0.0))

    def close(self) -> None:
        """Take the bars away."""
        for bar in reversed(self.bars):
            bar.close()

    def _expected(self) -> dict[str, float]:
        """Seconds by ID, of those with a record: of runs to be computed, each in the first notebook with it."""
        expected, seen = {}, self.stored | self.recorded
        for id, record in self.records.items():
            runs = self.runs.get(id)
            share = len(set(runs) - seen) / len(set(runs)) if runs else 1.0
            seen.update(runs or ())
            speeds = [self.speeds[device] or 1.0 for device in record.get("devices", ())]
            speed = sum(speeds) / len(speeds) if speeds else 1.0
            expected[id] = (record["seconds"] * share / self.workers + AROUND_SECONDS) / speed
        return expected

    def _plan(self) -> str:
        """What there is to do, in a line."""
        count, left = len(self.tasks), self.left()
        at_a_time = f", {self.jobs} at a time" if min(self.jobs, count) > 1 else ""
        words = [f"{plural(count, 'notebook')} at {self.profile}{at_a_time}"]
        if left is None:
            return f"{words[0]}; no records say how long they take"
        words.append(f"about {duration(left)}")
        for device, speed in self.speeds.items():
            words.append(
                f"as recorded on {device or 'an unknown device'}"
                if speed is None
                else f"this machine is {speed:.1f} times as fast as the records' {device}"
            )
        unnamed = sum("/" in id and id not in self.runs for id in self.tasks)  # the index has none
        if self.names:
            recorded = len(self.recorded - self.stored)
            words.append(f"{len(self.stored):,} of {plural(len(self.names), 'run')} are stored")
            words += [f"{recorded:,} are recorded"] if recorded else []
        if unnamed:
            words.append(f"stored runs unknown for {plural(unnamed, 'notebook')}")
        return "; ".join(words)


def _far(state: State | None, seconds: float) -> str:
    """How far a notebook is, in words."""
    if state is None:
        return f"running for {duration(seconds)}"
    return state.words(steps=True)
