"""Reference records: what the notebooks of the project found at a profile, in ``figures/`` of a clone.

Of an artifact such as ``"monacosfl/fig6"`` there are its results, ``figures/monacosfl/fig6.laptop.csv``, and beside
them what they are of: data, seeds, settings, devices, in a file of JSON.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fssl_core.errors import FsslError, first_line
from fssl_core.paths import PROFILES, records_root

if TYPE_CHECKING:
    import pandas as pd


def record_path(artifact: str, profile: str) -> Path:
    """The file that says what a record is of; its results have ``.csv`` in place of ``.json``."""
    return records_root() / f"{artifact}.{profile}.json"


def recorded_profiles(artifact: str, among: Sequence[str] = PROFILES) -> list[str]:
    """At which of some profiles, in the order of ``PROFILES``, there is a record; the most faithful one first."""
    return [profile for profile in reversed(among) if record_path(artifact, profile).exists()]


def about_record(artifact: str, profile: str) -> dict[str, Any] | None:
    """What a record is of; None where there is no record."""
    path = record_path(artifact, profile)
    if not path.exists():
        return None
    with _explained(path):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def seeds_in_words(seeds: Sequence[int]) -> str:
    """``"0, 1, 2"``; of more than five that follow each other ``"0 to 9"``."""
    if len(seeds) > 5 and [*seeds] == [*range(seeds[0], seeds[0] + len(seeds))]:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def recorded_results(artifact: str, profile: str) -> "pd.DataFrame":
    """The results of a record, in rows as its notebook has them.

    Raises:
        FsslError: there are none, as outside of a clone of the project.
    """
    import pandas as pd

    path = record_path(artifact, profile).with_suffix(".csv")
    if not path.exists():
        raise FsslError(
            f"figures/{artifact}.{profile}.csv is missing: open the notebook in a clone, which has figures/."
        )
    with _explained(path):
        return pd.read_csv(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Name the record that cannot be read."""
    try:
        yield
    except (ValueError, TypeError) as error:  # of json, of another form, of pandas
        raise FsslError(
            f"{path} is no record any more ({first_line(error)}); `git checkout -- {path}` brings it "
            "back, or `fssl record` computes it."
        ) from error
