"""What the files beside this one compute with: records, verdicts, runs that are kept, means over seeds."""

import json
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pandas as pd

from fssl_core.claims import judge
from fssl_core.claims.estimation import LEVEL, Cells, Estimate
from fssl_core.claims.verdict import Verdict
from fssl_core.experiments.archive import opened
from fssl_core.papers.records import about_record, recorded_results
from fssl_core.paths import records_root
from fssl_core.settings import flat


@cache
def record(artifact: str, profile: str = "laptop") -> pd.DataFrame:
    """The recorded results of an artifact, a row each as its notebook has them."""
    return recorded_results(artifact, profile)


@cache
def settings(artifact: str, profile: str = "laptop") -> dict[str, Any]:
    """Settings of the runs behind an artifact's record: a value, or those that occur, in a list."""
    return about_record(artifact, profile)["settings"]


@cache
def verdicts(paper: str, profile: str = "laptop") -> list[Verdict]:
    """All verdicts on a paper's records at a profile."""
    return judge.all_verdicts(paper, profile)


def verdict(id: str, reading: str | None = None, profile: str = "laptop") -> Verdict:
    """What is known of a claim from its record; of the reading whose name begins so, where there are two."""
    all_of_paper = verdicts(id.partition("-")[0], profile)
    found = [one for one in all_of_paper if one.id == id and one.reading.startswith(reading or "")]
    assert len(found) == 1, f"{id} has {len(found)} verdicts"
    return found[0]


@cache
def comparisons(id: str, reading: str | None = None, profile: str = "laptop") -> list[Estimate]:
    """The estimates that a claim joins, in its order, each with ``interval()``: see :func:`verdict`."""
    judged = verdict(id, reading, profile)
    readings = dict(judge._readings(judged.paper, record(judged.artifact, profile)))
    results = readings.get(judged.reading, next(iter(readings.values())))
    outcome = judge._answer(judge.CHECKS[id].rule, lambda: judge.CHECKS[id].ours(results))
    return [one.estimate for one in outcome.leaves()]


def behind_by(difference: Estimate, level: float = LEVEL) -> tuple[float, float, float]:
    """By how much the first of two compared is behind the second, with the interval."""
    low, high = difference.interval(level)
    return -difference.value, -high, -low


@cache
def kept(paper: str, kind: str, table: str = "metrics", profile: str = "laptop") -> pd.DataFrame:
    """A table of all runs of a kind that are kept with a paper's records, with key and settings of the run in each row.

    ``table`` is one that runs write, or what they have once, ``summary`` or ``provenance``, as a row each. A setting
    within settings is a column such as ``objective.name``; a column of the table hides a setting of the same name. Runs
    that are kept without the table are left out.
    """
    tables = []
    with opened(records_root() / paper / f"runs.{profile}.zip", Path(gettempdir())) as archive:
        files = set(archive.namelist())
        for key in sorted({file.partition("/")[0] for file in files}):
            stored = json.loads(archive.read(f"{key}/settings.json"))
            if stored["kind"] != kind:
                continue
            if f"{key}/{table}.csv" in files:
                with archive.open(f"{key}/{table}.csv") as file:
                    own = pd.read_csv(file)
            elif f"{key}/{table}.json" in files:
                own = pd.json_normalize(json.loads(archive.read(f"{key}/{table}.json")))
            else:
                continue
            made_by = pd.DataFrame([{"key": key} | flat(stored["settings"])] * len(own))
            tables.append(own.join(made_by[made_by.columns.difference(own.columns, sort=False)]))
    return pd.concat(tables, ignore_index=True)


def kept_behind(artifact: str, kind: str, profile: str = "laptop") -> pd.DataFrame:
    """The metrics of those runs alone that an artifact's record was made of: other artifacts' runs do not mix in."""
    metrics = kept(artifact.partition("/")[0], kind, profile=profile)
    return metrics[metrics.key.isin(about_record(artifact, profile)["runs"])]


def ahead(
    table: pd.DataFrame, one: dict[str, Any], other: dict[str, Any], column: str = "accuracy"
) -> tuple[float, float, float]:
    """By how many points a setting of a table is ahead of another, and the interval over seeds: mean, low, high."""
    cells = Cells(table.assign(points=100 * table[column]), "points", list(dict.fromkeys([*one, *other])))
    difference = (cells.mean(**one) - cells.mean(**other)).estimate
    return difference.value, *difference.interval()


def percent(values: pd.Series) -> tuple[float, float]:
    """Mean and standard deviation over seeds of shares, in percent."""
    return 100 * values.mean(), 100 * values.std()


def rows(table: pd.DataFrame, **where) -> pd.DataFrame:
    """Rows in which columns have these values; None stands for an empty one."""
    for column, value in where.items():
        table = table[table[column].isna() if value is None else table[column] == value]
    assert len(table), f"no rows with {where}"
    return table


def accuracies(table: pd.DataFrame, **where) -> pd.Series:
    """The accuracies of these rows, in percent, by seed."""
    found = 100 * rows(table, **where).set_index("seed").accuracy
    assert found.index.is_unique, f"several rows a seed with {where}"
    return found


def spread(values: pd.Series) -> tuple[float, float]:
    """Mean and standard deviation."""
    return values.mean(), values.std()
