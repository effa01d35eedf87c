"""What there is to do before anything starts: all runs of notebooks at a profile, what they need and what they take.

Nothing is trained, and no data set has to be there. Each run counts once, in the first notebook that asks for it or for
one that builds on it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fssl_core.data.missing import missing_datasets
from fssl_core.data.outlines import outlines_only
from fssl_core.errors import FsslError
from fssl_core.experiments.archive import recorded_keys
from fssl_core.experiments.asked import asked
from fssl_core.experiments.display import plural
from fssl_core.experiments.dry_run import with_needed
from fssl_core.experiments.progress import finished
from fssl_core.experiments.store import Run, digests_of
from fssl_core.planning import evaluations  # noqa: F401  (it registers what it counts)
from fssl_core.planning.machines import A100, H200, MEMORY_USE, PRODUCTS_USE, Machine, this_machine
from fssl_core.planning.work import Work, work_of
from fssl_core.settings import Settings

HOUR, GIB = 3600.0, 2**30


@dataclass(frozen=True)
class PlannedRun:
    """One run.

    Args:
        settings: of it.
        notebooks: IDs of those that ask for it, or for one that builds on it; it counts in the first.
        stored: whether its results are here.
        recorded: whether they are kept with the project, see :func:`~fssl_core.experiments.archive.take_recorded`.
        missing: names of data sets that it reads and that are not here.
        work: counted; None where it cannot be.
        hours: by machine, of those whose memory is large enough.
    """

    settings: Settings
    notebooks: tuple[str, ...]
    stored: bool
    recorded: bool
    missing: tuple[str, ...]
    work: Work | None
    hours: dict[str, float]


@dataclass(frozen=True)
class Plan:
    """All runs of notebooks at a profile.

    Args:
        profile: their size.
        notebooks: IDs, in reading order.
        runs: by key.
        missing: of data sets that are not here, where they were looked for and how to get them.
        unknown: by notebook, statements whose runs depend on results, and what is not counted.
    """

    profile: str
    notebooks: tuple[str, ...]
    runs: dict[str, PlannedRun]
    missing: dict[str, str]
    unknown: dict[str, list[str]]

    def of(self, notebook: str | None = None) -> list[PlannedRun]:
        """The runs that a notebook needs; without one, all."""
        return [run for run in self.runs.values() if notebook is None or notebook in run.notebooks]

    def table(self) -> pd.DataFrame:
        """A row for each notebook, for all its runs whether others need them too, and the total, each run once."""
        rows = [_row(notebook, self.of(notebook)) for notebook in self.notebooks if self.of(notebook)]
        return pd.DataFrame([*rows, _row("all, each run once", self.of())])

    def explained(self) -> str:
        """What the columns of the table mean."""
        return (
            "Hours, memory and disk are of runs that are not stored: hours of a core here, by counted FLOPs and a "
            f"benchmark of a second, and of a GPU at {PRODUCTS_USE:.0%} of its dense peak and {MEMORY_USE:.0%} of its "
            "memory's bandwidth. Memory is that of the largest run on its device, the clients' models a part of it. A "
            "notebook's row has all runs that it needs; the last row has each run once. Recorded are runs that are not "
            "stored and come with the project: JupyterLab takes them where your images are those of the records, other "
            "commands with FSSL_RECORDED=1 or after `fssl runs import`; else they are computed."
        )

    def as_json(self) -> str:
        """All that is known, for other programs."""
        runs = [
            {
                "key": key,
                "kind": type(run.settings).__name__,
                "settings": run.settings.identity(),
                "needs": [needed.key for needed in run.settings.needs],
                "notebooks": run.notebooks,
                "stored": run.stored,
                "recorded": run.recorded,
                "missing_data": run.missing,
                "work": run.work and asdict(run.work),
                "hours": run.hours,
            }
            for key, run in self.runs.items()
        ]
        found = {"profile": self.profile, "missing_data": self.missing, "unknown": self.unknown, "runs": runs}
        return json.dumps(found, indent=2)


def plan(
    ids: Sequence[str] = (),
    *,
    profile: str = "smoke",
    parameters: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
) -> Plan:
    """Plan notebooks at a profile.

    Args:
        ids: which, as for :func:`~fssl_core.experiments.notebooks.find_notebooks`.
        profile: one of ``PROFILES``.
        parameters: values for the notebooks' parameters; each must have them.
        machine: this one; None: measured.

    Raises:
        SettingError: an unknown ID, profile or parameter, or a value that cannot be used.
    """
    by_notebook = asked(ids, profile, parameters, estimate=True)
    machines = (machine or this_machine(), H200, A100)
    wanted: dict[str, dict[str, None]] = {}  # by key, the notebooks
    settings: dict[str, Settings] = {}
    unknown: dict[str, list[str]] = {}
    for id, one in by_notebook.items():
        if one.unknown:
            unknown[id] = [f"depends on results: {line}" for line in one.unknown]
        for key, needed in with_needed(one.settings).items():
            settings.setdefault(key, needed)
            wanted.setdefault(key, {})[id] = None
    digests = digests_of(settings.values())
    missing = missing_datasets([*digests])
    recorded = set().union(*recorded_keys().values())
    runs = {}
    for key, one in settings.items():
        work, why = _work(one)
        if work is None:
            lines = unknown.setdefault(next(iter(wanted[key])), [])
            if why not in lines:
                lines.append(why)
        able = [own for own in machines if work and work.device_bytes <= own.memory]
        runs[key] = PlannedRun(
            settings=one,
            notebooks=tuple(wanted[key]),
            stored=finished(Run(one, digests)),
            recorded=key in recorded,
            missing=tuple(sorted(one.data_sets & missing.keys())),
            work=work,
            hours={own.name: own.seconds(work) / HOUR for own in able},
        )
    found = Plan(profile, tuple(by_notebook), runs, missing, unknown)
    for id in by_notebook:
        counted = [run for run in found.of(id) if run.work and not run.stored]
        for own in machines:
            if sizes := [run.work.device_bytes for run in counted if own.name not in run.hours]:
                runs_there = f"{plural(len(sizes), 'run')} on {own.name}"
                unknown.setdefault(id, []).append(f"hours of {runs_there}, where {max(sizes) / GIB:.0f} GiB do not fit")
    return found


def _work(settings: Settings) -> tuple[Work | None, str]:
    """What a run computes; or None, and why that is not known."""
    try:
        with outlines_only():
            return work_of(settings), ""
    except NotImplementedError:
        return None, f"not counted: {type(settings).__name__} {settings.key}"
    except FsslError as error:
        return None, f"not counted: {error}"


def _row(name: str, runs: Sequence[PlannedRun]) -> dict[str, Any]:
    open_runs = [run for run in runs if not run.stored]
    works = [run.work for run in open_runs if run.work]
    missing = sorted({name for run in open_runs for name in run.missing})
    row = {
        "notebook": name,
        "runs": len(runs),
        "stored": len(runs) - len(open_runs),
        "recorded": sum(run.recorded for run in open_runs),
        "missing data": ", ".join(missing) if len(missing) <= 3 else f"{len(missing)} sets",
        "PFLOP": sum(work.training + work.evaluation for work in works) / 1e15,
    }
    for machine in ("here", H200.name, A100.name):
        row[f"h {machine}"] = sum(run.hours.get(machine, 0.0) for run in open_runs)
    return row | {
        "memory GiB": max((work.device_bytes for work in works), default=0.0) / GIB,
        "clients GiB": max((work.clients_bytes for work in works), default=0.0) / GIB,
        "results GiB": sum(work.result_bytes for work in works) / GIB,
        "checkpoint GiB": max((work.checkpoint_bytes for work in works), default=0.0) / GIB,
    }
