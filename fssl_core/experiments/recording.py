"""Reference records: what a notebook gives with its defaults, kept with the project under ``figures``.

Nothing else writes there. A run with other parameters, or of a notebook that was changed since it was stored, cannot
become a record.
"""

from collections.abc import Sequence

import pandas as pd

from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import execute, find_notebooks, in_environment
from fssl_core.files import atomic_write
from fssl_core.papers.records import record_path
from fssl_core.paths import PROFILES, project_root
from fssl_core.settings import check_choice

SUFFIXES = (".png", ".csv", ".json")  # the last one says that the record is whole


def record(ids: Sequence[str], *, profile: str, jobs: int | None = None) -> pd.DataFrame:
    """Execute notebooks with their defaults, and put what they draw under ``figures`` when they succeed.

    Args:
        ids: which notebooks, as for :func:`~fssl_core.experiments.notebooks.find_notebooks`.
        profile: which one to record; ``smoke`` decides nothing and is not kept.
        jobs: how many notebooks at a time; default as of :func:`~fssl_core.experiments.notebooks.execute`.

    Returns:
        the table of :func:`~fssl_core.experiments.notebooks.execute`.

    Raises:
        SettingError: unknown ID or profile.
        FsslError: a notebook was changed since it was stored.
    """
    check_choice("profile", profile, PROFILES[1:])
    notebooks = [notebook for notebook in find_notebooks(ids) if notebook.as_stored()["parameters"]]
    for notebook in notebooks:
        if notebook.as_it_stands() != notebook.as_stored():
            raise FsslError(
                f"{notebook.id} was changed since it was stored, so its result would be no record of it. Undo the "
                f"change, or store the notebook with `fssl refresh {notebook.id}`."
            )
    if not notebooks:
        raise FsslError(f"Nothing to record: {', '.join(ids)} has no parameters.")
    folder = project_root() / "build" / "record"
    with in_environment({"FSSL_FIGURES": str(folder)}):
        table = execute([notebook.id for notebook in notebooks], profile=profile, jobs=jobs, folder=folder / profile)
        drawn = {*table.loc[table["figure"].notna(), "artifact"]}  # by this call, and without an error
        for notebook in notebooks:
            if notebook.id in drawn:
                path = record_path(notebook.id, profile)
                path.unlink(missing_ok=True)  # the last one: no record until all are new
                for suffix in SUFFIXES:
                    with atomic_write(path.with_suffix(suffix)) as file:
                        file.write(notebook.result_path(profile).with_suffix(suffix).read_bytes())
    return table
