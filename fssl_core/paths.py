"""Where data, runs and figures are kept, and the profiles that figures are named after."""

import os
from pathlib import Path

PROFILES = ("smoke", "laptop", "gpu", "paper")  # from the least to the most faithful


def project_root() -> Path:
    """The nearest folder, from the current one upwards, with ``notebooks`` and ``pyproject.toml``.

    Where there is none, for example when a notebook is executed from somewhere else, the current folder.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "notebooks").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    return here


def data_root() -> Path:
    """``$FSSL_DATA`` if set, else ``data`` in the project: the image sets, in torchvision's layouts."""
    return _chosen("FSSL_DATA") or project_root() / "data"


def runs_root() -> Path:
    """``$FSSL_RUNS`` if set, else ``runs`` in the project: one folder for each run."""
    return _chosen("FSSL_RUNS") or project_root() / "runs"


def figures_root() -> Path:
    """``$FSSL_FIGURES`` if set, else ``figures`` in the project: what the notebooks drew, by paper."""
    return _chosen("FSSL_FIGURES") or project_root() / "figures"


def _chosen(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None
