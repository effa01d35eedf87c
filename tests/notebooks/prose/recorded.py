"""What the files beside this one compute with: records, verdicts, means over seeds."""

from functools import cache

import pandas as pd

from fssl_core.claims.judge import all_verdicts
from fssl_core.claims.verdict import Verdict
from fssl_core.paths import records_root


@cache
def record(artifact: str, profile: str = "laptop") -> pd.DataFrame:
    """The recorded results of an artifact, a row each as its notebook has them."""
    return pd.read_csv(records_root() / f"{artifact}.{profile}.csv")


@cache
def verdict(id: str, reading: str | None = None) -> Verdict:
    """What is known of a claim from its `laptop` record; of the reading whose name begins so, where there are two."""
    found = [
        one
        for one in all_verdicts(id.partition("-")[0], "laptop")
        if one.id == id and one.reading.startswith(reading or "")
    ]
    assert len(found) == 1, f"{id} has {len(found)} verdicts"
    return found[0]


def percent(values: pd.Series) -> tuple[float, float]:
    """Mean and standard deviation over seeds of shares, in percent."""
    return 100 * values.mean(), 100 * values.std()


def rows(table: pd.DataFrame, **where) -> pd.DataFrame:
    """Rows in which columns have these values; None stands for an empty one."""
    for column, value in where.items():
        table = table[table[column].isna() if value is None else table[column] == value]
    assert len(table), f"no rows with {where}"
    return table
