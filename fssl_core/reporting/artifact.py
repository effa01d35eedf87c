"""One figure or table of a paper, as a notebook reproduces it: what it is called, what it saves, what is recorded.

What a notebook saves is yours and goes to ``build/figures``. The reference records under ``figures`` are written by
``fssl record`` alone, which runs the notebooks as they are stored; tables show them beside yours.
"""

import io
import json
import platform
import re
import time
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

import fssl_core
from fssl_core.claims.judge import check_claims
from fssl_core.claims.verdict import OURS, table
from fssl_core.devices import cpu_name
from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.notebooks import stored_notebook
from fssl_core.experiments.parameters import changed_parameters, given_beside_overrides, take_parameters
from fssl_core.experiments.provenance import git_state
from fssl_core.experiments.store import asked_keys, stored_run
from fssl_core.files import atomic_write
from fssl_core.papers.records import about_record
from fssl_core.papers.reference import WORKS
from fssl_core.paths import PROFILES, figures_root, shown_path
from fssl_core.reporting.tables import NOT_RUN
from fssl_core.settings import check_choice
from fssl_core.training.checkpoint import full_disk_explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_FILLED_IN = ("profile", "overrides")  # parameters in whose place no cell puts the profile's choice
ELSEWHERE = "set FSSL_FIGURES to another folder"
NOTHING = "–"  # where a record has no such row


class Artifact:
    """A notebook's result at one profile, saved as ``<key>/<artifact>.<profile>.{png,csv,json}``.

    Args:
        id: paper and artifact, e.g. ``"monacosfl/fig6"``.
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        changed: parameters that are not the notebook's defaults, which the figure's subtitle and the file name.

    Raises:
        SettingError: if the id or the profile cannot be used.
    """

    def __init__(self, id: str, profile: str, changed: Mapping[str, Any] | None = None) -> None:
        key, _, name = id.partition("/")
        if key not in WORKS or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise SettingError("id", id, f"<paper>/<artifact> with a paper of {', '.join(WORKS)}")
        check_choice("profile", profile, PROFILES)
        self.id, self.profile = id, profile
        self.changed = dict(changed or {})
        self._now: Mapping[str, Any] = {}  # what the parameters are now, where they can change
        self._taken: dict[str, Any] = {}  # what they were
        self._created = time.perf_counter()
        self._saved: dict[str, Any] = {}  # the JSON file as it stands
        self._beside: list[dict[str, Any]] = []  # rows of the tables beside the paper

    @classmethod
    def of_notebook(cls, id: str, namespace: MutableMapping[str, Any]) -> "Artifact":
        """The artifact of the notebook that is running, whose parameters are checked first.

        Args:
            id: as above.
            namespace: ``globals()`` of the notebook; literals given as text, as papermill passes lists, become values.

        Raises:
            SettingError, FsslError: as :func:`~fssl_core.experiments.parameters.take_parameters`.
        """
        notebook = stored_notebook(id)
        defaults = notebook.as_stored()["parameters"] if notebook else None
        values = take_parameters(id, namespace, defaults, given_beside_overrides(notebook.code() if notebook else ()))
        artifact = cls(id, values["profile"], changed_parameters(values, defaults or values))
        artifact._now = namespace
        artifact._taken = {name: values[name] for name in NOT_FILLED_IN if name in values}
        asked_keys.clear()
        return artifact

    def _check_current(self, *tables: pd.DataFrame | None) -> None:
        """What a notebook shows and saves would go by a name that is no longer its own.

        Args:
            tables: of what is shown; of runs, they have their keys.
        """
        keys = {key for table in tables if table is not None and "key" in table for key in table["key"].dropna()}
        if self._taken and not keys <= asked_keys:
            raise FsslError(
                "These are results of before the set-up, perhaps of another profile: run the cells of the sweep again, "
                "and all below them. Runs that are finished take no time."
            )
        for name, taken in self._taken.items():
            if (now := self._now.get(name, taken)) != taken:
                expected = f"{taken!r}, as it was at the set-up: run the cell below *Set-up* again, and all below it"
                raise SettingError(name, now, expected)

    def subtitle(self, *, data: str, seeds: Sequence[int] | Mapping[Any, Sequence[int]] = ()) -> str:
        """What made a figure, in a line: ``"profile laptop · scattered-digits · 3 seeds · changed: epochs=3"``.

        Args:
            data: name of the data.
            seeds: those behind every mean, or those behind each one: ``"1 to 3 seeds, see n"`` where means differ.
        """
        self._check_current()
        parts = [f"profile {self.profile}", data]
        each = [list(group) for group in (seeds.values() if isinstance(seeds, Mapping) else [seeds])]
        numbers, every = {len(group) for group in each}, list(dict.fromkeys(seed for group in each for seed in group))
        if len(numbers) > 1:
            parts.append(f"{min(numbers)} to {max(numbers)} seeds, see n")
        elif every:
            parts.append(f"seed {every[0]}" if len(every) == 1 else f"{len(every)} seeds")
        if self.changed:
            parts.append("changed: " + ", ".join(f"{name}={value}" for name, value in self.changed.items()))
        return " · ".join(parts).replace("$", r"\$")  # two of them would be read as a formula

    def check_claims(self, results: pd.DataFrame) -> pd.DataFrame:
        """The artifact's claims judged on ``results``, as :func:`fssl_core.claims.verdict.table` shows verdicts.

        They are judged as a record gives them back, rounded and with gaps for empty words: the verdict in a notebook
        is that on its record. Where parameters were changed, the profile is marked: the verdict is about another
        experiment than its own.
        """
        self._check_current(results)
        claims = table(check_claims(self.id, pd.read_csv(io.StringIO(_csv(results))), self.profile))
        return claims.assign(profile=f"{self.profile}, changed") if self.changed else claims

    def save(
        self,
        figure: "Figure",
        results: pd.DataFrame,
        *,
        data: str,
        seeds: Sequence[int] = (),
        runs: pd.DataFrame | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Write the figure, the numbers in it, and how they were made; each file appears whole or not at all.

        A line says where. The reference records are not touched.

        Args:
            figure: the matplotlib figure; its PNG has the same bytes whenever the same figure is drawn.
            results: the tidy results, as the claims' predicates read them.
            data: name of the data, e.g. ``"scattered-digits"``.
            seeds: the seeds behind the numbers; none for closed forms.
            runs: what ``run_all`` returned: settings, device, seconds of computation and commit come from the runs'
                own records, so a notebook whose runs were stored already does not record the moment it took to read
                them.
            settings: for a result without runs, what it was computed with. Its device is the CPU, and its seconds
                those since this object was made.
        """
        self._check_current(runs)
        keys = [] if runs is None else list(dict.fromkeys(runs["key"]))
        stored = [stored_run(key) for key in keys]
        if stored:
            settings = _by_name([values for values, _ in stored])
            devices = sorted({provenance["device"] for _, provenance in stored})
            seconds = sum(provenance["seconds"] for _, provenance in stored)
            commits = [*dict.fromkeys(provenance["commit"] for _, provenance in stored)]
            each = [provenance["modified"] for _, provenance in stored]
            modified = None if None in each and not any(each) else any(each)  # None: nobody knows
        else:
            devices, seconds, state = [cpu_name()], time.perf_counter() - self._created, git_state()
            commits, modified = [state["commit"]], state["modified"]
        verdicts = self.check_claims(results)["ours"].value_counts()
        record = {
            "artifact": self.id,
            "profile": self.profile,
            "data": data,
            "seeds": list(seeds),
            "settings": settings or {},
            "changed": self.changed,
            "runs": keys,
            "devices": devices,
            "seconds": round(seconds, 1),
            "claims": {verdict: int(verdicts.get(verdict, 0)) for verdict in OURS},
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "fssl_core": fssl_core.__version__,
            },
            "commits": commits,
            "modified": modified,
            "date": datetime.now(UTC).date().isoformat(),
        }
        json.dumps(record)  # before any file is touched
        with (  # both are written before either takes the place of what was there
            full_disk_explained(figures_root(), ELSEWHERE),
            atomic_write(self._path("png")) as picture,
            atomic_write(self._path("csv"), "w") as numbers,
        ):
            figure.savefig(picture, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
            numbers.write(_csv(results))
            picture.flush()
        self._saved = record
        self._write_record()
        print(f"Saved: {shown_path(self._path('png').with_suffix(''))}.{{png,csv,json}}")

    def beside(self, table: pd.DataFrame) -> pd.DataFrame:
        """Ours beside the reference record and the paper: a table of ``beside_paper`` or ``beside_cells``, completed.

        Args:
            table: with the columns ours, paper, difference and profile, and others that name the row.

        Returns:
            the table with a column for what is recorded, at this profile or else at the most faithful one that has a
            number for something that was run here, and without the columns difference and protocol where they are
            empty. What the column ours shows is kept with the record.
        """
        self._check_current()
        names = [name for name in table if name not in ("ours", "paper", "difference", "profile")]
        rows = [{"of": _plain(row[names].to_dict()), "ours": row["ours"]} for _, row in table.astype(object).iterrows()]
        added = [row["of"] for row in rows]
        self._beside = [row for row in self._beside if row["of"] not in added] + rows
        if self._saved:
            self._write_record()
        table = table.drop(
            columns=[name for name in ("difference", "protocol") if name in table and not any(table[name])]
        )
        for profile in (self.profile, *reversed(PROFILES)):
            recorded = (about_record(self.id, profile) or {}).get("beside", [])
            shown = [next((row["ours"] for row in recorded if row["of"] == key), NOTHING) for key in added]
            if any(map(_both_numbers, table["ours"], shown)):
                table.insert(table.columns.get_loc("ours") + 1, f"recorded at {profile}", shown)
                break
        return table

    def _path(self, suffix: str) -> Path:
        return figures_root() / f"{self.id}.{self.profile}.{suffix}"

    def _write_record(self) -> None:
        with full_disk_explained(figures_root(), ELSEWHERE), atomic_write(self._path("json"), "w") as file:
            json.dump(self._saved | {"beside": self._beside}, file, indent=1, ensure_ascii=False)
            file.write("\n")


def _both_numbers(ours: str, recorded: str) -> bool:
    """Whether something was run both times."""
    return recorded != NOTHING and not any(text.startswith(NOT_RUN) for text in (ours, recorded))


def _csv(results: pd.DataFrame) -> str:
    """Results as a record has them: seven digits, and nothing where a value is missing or an empty word."""
    return results.to_csv(index=False, lineterminator="\n", float_format="%.7g")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as they come back from JSON; what is missing as None."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    return {name: None if pd.isna(value) else value for name, value in plain.items()}


def _by_name(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of several runs, each value once; a list where runs differ."""
    merged = {}
    for name in dict.fromkeys(name for run in settings for name in run):  # runs may be of several engines
        values = list(dict.fromkeys(json.dumps(run[name]) for run in settings if name in run))
        merged[name] = json.loads(values[0]) if len(values) == 1 else [json.loads(value) for value in values]
    return merged
