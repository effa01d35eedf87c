"""Where data, runs, figures and records are kept, and the profiles that they are named after."""

import os
from pathlib import Path

from fssl_core.errors import SettingError

PROFILES = ("smoke", "laptop", "workstation", "gpu", "paper")  # from the least to the most faithful


def project_root() -> Path:
    """The clone that is worked in: the nearest folder, from the current one upwards, with a project in it.

    From anywhere else, the clone that this package was installed from; where there is none either, the current folder.
    """
    here = Path.cwd()
    package = Path(__file__).resolve().parents[1]
    return next((folder for folder in (here, *here.parents, package) if _is_project(folder)), here)


def data_root() -> Path:
    """``$FSSL_DATA`` if set, else ``data`` in the project: the image sets, in torchvision's layouts."""
    return _chosen("FSSL_DATA") or project_root() / "data"


def runs_root() -> Path:
    """``$FSSL_RUNS`` if set, else ``runs`` in the project: one folder for each run."""
    return _chosen("FSSL_RUNS") or project_root() / "runs"


def figures_root() -> Path:
    """``$FSSL_FIGURES`` if set, else ``build/figures`` in the project: what your runs drew, by paper."""
    return _chosen("FSSL_FIGURES") or project_root() / "build" / "figures"


def records_root() -> Path:
    """``figures`` in the project: the reference results, which only ``fssl record`` writes."""
    return project_root() / "figures"


def cache_root() -> Path:
    """``$FSSL_CACHE`` if set, else ``fssl_core`` in the user's folder of caches: what was measured on this machine."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return _chosen("FSSL_CACHE") or (Path(caches) if caches else Path.home() / ".cache") / "fssl_core"


def shown_path(path: Path) -> str:
    """A path as a reader writes it who is in the project's folder; from anywhere else it is whole."""
    root = project_root()
    return str(path.relative_to(root)) if path.is_relative_to(root) and Path.cwd().is_relative_to(root) else str(path)


def _is_project(folder: Path) -> bool:
    return (folder / "notebooks").is_dir() and (folder / "pyproject.toml").is_file()


def _chosen(variable: str) -> Path | None:
    value = os.environ.get(variable)
    try:
        return Path(value).expanduser().absolute() if value else None
    except RuntimeError as error:
        raise SettingError(variable, value, "a folder; there is no such user") from error
