"""Runs as values, the folder they are kept in, their settings by profile, and notebooks executed in batch."""

from fssl_core.experiments.profiles import averaging_settings, split_settings
from fssl_core.experiments.profiles_ldawa import ldawa_probe, ldawa_settings
from fssl_core.experiments.profiles_lwfedssl import lwfedssl_evaluation, lwfedssl_settings
from fssl_core.experiments.profiles_mfcl import mfcl_rival_settings, mfcl_settings
from fssl_core.experiments.store import Run, run, run_all, runs_table, stored_run

__all__ = [
    "Run",
    "averaging_settings",
    "ldawa_probe",
    "ldawa_settings",
    "lwfedssl_evaluation",
    "lwfedssl_settings",
    "mfcl_rival_settings",
    "mfcl_settings",
    "run",
    "run_all",
    "runs_table",
    "split_settings",
    "stored_run",
]
