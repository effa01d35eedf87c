"""Runs as values, the folder they are kept in, their settings by profile, and notebooks executed in batch.

A name is imported when it is first used: who lists the notebooks needs no torch, and who trains one engine not the
others.
"""

from importlib import import_module
from typing import Any

_MODULES = {  # of each name
    "Run": "store",
    "averaging_settings": "profiles",
    "ldawa_probe": "profiles_ldawa",
    "ldawa_settings": "profiles_ldawa",
    "lwfedssl_evaluation": "profiles_lwfedssl",
    "lwfedssl_evaluations": "profiles_lwfedssl",
    "lwfedssl_settings": "profiles_lwfedssl",
    "mfcl_rival_settings": "profiles_mfcl",
    "mfcl_settings": "profiles_mfcl",
    "run": "store",
    "run_all": "store",
    "run_beside_untrained": "baselines",
    "runs_table": "store",
    "split_settings": "profiles",
    "stored_run": "store",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
