"""One figure or table of a paper, as a notebook reproduces it: what it is called, what it saves, what is recorded."""

import json
import platform
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

import fssl_core
from fssl_core.errors import SettingError
from fssl_core.experiments.provenance import cpu_name, git_state
from fssl_core.experiments.store import stored_run
from fssl_core.files import atomic_write
from fssl_core.paths import PROFILES, figures_root
from fssl_core.reporting.claims import VERDICTS, check_claims
from fssl_core.reporting.reference import PAPERS, Paper
from fssl_core.settings import check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Artifact:
    """A notebook's result at one profile, saved as ``figures/<key>/<artifact>.<profile>.{png,csv,json}``.

    Args:
        id: paper and artifact, e.g. ``"monacosfl/fig6"``.
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.

    Raises:
        SettingError: if either cannot be used.
    """

    def __init__(self, id: str, profile: str) -> None:
        key, _, name = id.partition("/")
        if key not in PAPERS or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise SettingError("id", id, f"<paper>/<artifact> with a paper of {', '.join(PAPERS)}")
        check_choice("profile", profile, PROFILES)
        self.id, self.profile, self.key, self.name = id, profile, key, name
        self._created = time.perf_counter()

    @property
    def paper(self) -> Paper:
        """Title, venue and short citation of the artifact's paper."""
        return PAPERS[self.key]

    def subtitle(self, *, data: str, seeds: Sequence[int] | Mapping[Any, Sequence[int]] = ()) -> str:
        """What made a figure, in a line: ``"profile laptop · scattered-digits · 3 seeds"``.

        Args:
            data: name of the data.
            seeds: those behind every mean, or those behind each one: ``"1 to 3 seeds, see n"`` where means differ.
        """
        parts = [f"profile {self.profile}", data]
        each = [list(own) for own in (seeds.values() if isinstance(seeds, Mapping) else [seeds])]
        numbers, every = {len(own) for own in each}, list(dict.fromkeys(seed for own in each for seed in own))
        if len(numbers) > 1:
            parts.append(f"{min(numbers)} to {max(numbers)} seeds, see n")
        elif every:
            parts.append(f"seed {every[0]}" if len(every) == 1 else f"{len(every)} seeds")
        return " · ".join(parts)

    def check_claims(self, results: pd.DataFrame) -> pd.DataFrame:
        """The artifact's claims judged on ``results``: columns id, claim, check, verdict, value, profile."""
        return check_claims(self.id, results, self.profile)

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
        stored = [] if runs is None else [stored_run(key) for key in dict.fromkeys(runs["key"])]
        if stored:
            settings = _by_name([values for values, _ in stored])
            device = ", ".join(dict.fromkeys(made["device"] for _, made in stored))
            seconds = sum(made["seconds"] for _, made in stored)
            commits = ", ".join(dict.fromkeys(made["commit"] for _, made in stored))
            code = {"commit": commits, "modified": any(made["modified"] for _, made in stored)}
        else:
            device, seconds, code = cpu_name(), time.perf_counter() - self._created, git_state()
        verdicts = self.check_claims(results)["verdict"].value_counts()
        record = {
            "artifact": self.id,
            "profile": self.profile,
            "data": data,
            "seeds": list(seeds),
            "settings": settings or {},
            "device": device,
            "seconds": round(seconds, 1),
            "claims": {verdict: int(verdicts.get(verdict, 0)) for verdict in VERDICTS},
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "fssl_core": fssl_core.__version__,
            },
            **code,
            "date": datetime.now(UTC).date().isoformat(),
        }
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"  # before any file is touched
        with atomic_write(self._path("png")) as file:
            figure.savefig(file, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        with atomic_write(self._path("csv"), "w") as file:
            results.to_csv(file, index=False, lineterminator="\n", float_format="%.7g")
        with atomic_write(self._path("json"), "w") as file:
            file.write(text)

    def recorded(self) -> pd.DataFrame:
        """What is recorded of this artifact: a row per profile with data, seeds, device, seconds and claim counts."""
        rows = []
        for profile in PROFILES:
            path = self._path("json", profile)
            if path.exists():
                record = json.loads(path.read_text(encoding="utf-8"))
                names = ("profile", "data", "device", "seconds", "date")
                rows.append({name: record[name] for name in names} | {"seeds": len(record["seeds"])} | record["claims"])
        return pd.DataFrame(rows, columns=["profile", "data", "seeds", "device", "seconds", *VERDICTS, "date"])

    def _path(self, suffix: str, profile: str | None = None) -> Path:
        return figures_root() / self.key / f"{self.name}.{profile or self.profile}.{suffix}"


def _by_name(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of several runs, each value once; a list where runs differ."""
    merged = {}
    for name in dict.fromkeys(name for run in settings for name in run):  # runs may be of several engines
        values = list(dict.fromkeys(json.dumps(run[name]) for run in settings if name in run))
        merged[name] = json.loads(values[0]) if len(values) == 1 else [json.loads(value) for value in values]
    return merged
