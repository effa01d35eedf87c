"""Memory for the models of a simulated federation: what lies on the device, and what may wait in the host's memory.

No paper counts this: a real client holds its own model. The simulation holds those of all clients, and a paper's
federation can need more than a GPU has. Rows that wait (:mod:`fssl_core.federation.rows`) go to the host where they do
not fit, and equal ones are one, so that the figures here are bounds from above. Activations, images and queues of keys
come on top.
"""

import pandas as pd
from torch import nn

from fssl_core.costs.compute import nbytes
from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.split import SplitSettings


def federation_memory(settings: SplitSettings | AveragingSettings, data: Dataset) -> pd.DataFrame:
    """Bytes for the models of all clients, by what they are.

    Args:
        settings: of a run.
        data: its images, of which shape and classes count.

    Returns:
        columns models, copies, bytes (of all of them) and waits: whether clients that do not train have them, which can
        lie in host memory.

    Raises:
        SettingError: settings of another kind.
    """
    if isinstance(settings, SplitSettings):
        rows = _split(settings, settings.build_model(data)[0])
    elif isinstance(settings, AveragingSettings):
        rows = _averaging(settings, settings.build_model(data))
    else:
        raise SettingError("settings", type(settings).__name__, "SplitSettings or AveragingSettings")
    frame = pd.DataFrame(rows, columns=["models", "copies", "bytes", "waits"])
    return frame.assign(bytes=frame["copies"] * frame["bytes"])


def _split(s: SplitSettings, client: nn.Module) -> list[tuple[str, int, int, bool]]:
    size, partial = nbytes(client.state_dict().values()), s.sampled < s.clients
    kinds = ("online", "momentum", "velocity")
    waiting = [(f"{kind}, waiting", s.clients, size, True) for kind in kinds if partial]
    gradients = [] if s.freeze_client else [("gradients", s.sampled, nbytes(client.parameters()), False)]
    return [*waiting, *((kind, s.sampled, size, False) for kind in kinds), *gradients]


def _averaging(s: AveragingSettings, model: nn.Module) -> list[tuple[str, int, int, bool]]:
    size, target = nbytes(model.state_dict().values()), s.objective.build_target(model)
    keeps = s.client_update.keeps or (isinstance(s, MoonSettings) and bool(s.objective.contrast_weight))
    kept = target is not None and s.target_at_start == "kept"
    waiting = [
        ("last models", s.clients if keeps else 0, size),
        ("target branches", s.clients if kept else 0, 0 if target is None else nbytes(target.state_dict().values())),
        ("velocities", s.clients if s.keep_velocity else 0, size),
    ]
    return [
        *((name, copies, each, True) for name, copies, each in waiting if copies),
        ("models of a round", s.sampled, size, False),
        ("global, in training, velocity", 3, size, False),
        ("gradients", 1, nbytes(model.parameters()), False),
        *([("target in training", 1, nbytes(target.state_dict().values()), False)] if target is not None else []),
    ]
