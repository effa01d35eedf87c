"""What server and clients have to share: settings, the version of the code, the images.

A run's configuration (``[tool.flwr.app.config]``, and what ``flwr run --run-config`` replaces in it) holds the
arguments of :func:`~fssl_core.experiments.ldawa_settings`, so every process makes the settings itself. They
can differ all the same: a profile changes from one version of the package to the next. So the server tells its terms
first, and a client that has others says which.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import fssl_core
from fssl_core.data.datasets import Dataset, digest
from fssl_core.errors import SettingError
from fssl_core.experiments.profiles_ldawa import ldawa_settings
from fssl_core.settings import flat
from fssl_core.training.averaging import AveragingSettings

SERVER_ONLY = {"wait": 300.0, "timeout": 3600.0}  # seconds unless given; no settings: see the server


def run_settings(config: Mapping[str, Any]) -> AveragingSettings:
    """The settings of a run. Names may have hyphens, and a dot before a setting of the objective.

    Raises:
        SettingError: an unknown name, a value that cannot be used, or a method that a Flower app cannot have.
    """
    values: dict[str, Any] = {}
    for name, value in config.items():
        outer, _, inner = name.replace("-", "_").partition(".")
        if inner:
            values.setdefault(outer, {})[inner] = value
        elif outer not in SERVER_ONLY:
            values[outer] = value
    settings = ldawa_settings(values.pop("profile", "smoke"), method=values.pop("method", "L-DAWA"), **values)
    if settings.client_update.name == "euc":
        expected = "another rule: a Flower app sends every layer in every round, and EUC is there to send fewer"
        raise SettingError("client_update", "euc", expected)
    if settings.objective.shares:
        expected = "an objective that exchanges models only: a Flower app sends nothing else"
        raise SettingError("objective.name", settings.objective.name, expected)
    return settings


def terms(settings: AveragingSettings, data: Dataset) -> dict[str, Any]:
    """What has to be equal on both sides, by name: plain values as JSON knows them."""
    shared: dict[str, Any] = {
        "fssl_core": fssl_core.__version__,
        "engine": settings.version,
        "byte order": sys.byteorder,
        "image shape": data.train.images.shape[1:],
        "training images": digest(data),
    }
    return json.loads(json.dumps(shared | flat(settings.as_dict())))
