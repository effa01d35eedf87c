"""Runs as values, the folder they are kept in, and notebooks executed in batch."""

from fssl_core.experiments.paths import project_root
from fssl_core.experiments.store import Run, run, run_all, runs_table

__all__ = ["Run", "project_root", "run", "run_all", "runs_table"]
