"""What a client allows a server: the images that it trains on, and memory.

A server chooses the settings of a run and with them what its clients load and build. So a client says itself which data
set it trains on, and counts what settings would take before anything of it is made.
"""

import torch

from fssl_core.costs.compute import saved_bytes
from fssl_core.data.datasets import EMBEDDED, Dataset, load_dataset
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.models import build_backbone, cut
from fssl_core.notices import printable
from fssl_core.training.split import SplitSettings

MEMORY = 4.0  # GiB; MonAcoSFL's own settings take 0.4 with CIFAR-10
GIB = 1 << 30
RESIZED = 4096  # images of which there are float copies at a time


def own_settings(settings: SplitSettings, data: str | None) -> SplitSettings:
    """The server's settings with this client's data set in place of the server's.

    Args:
        settings: from the server.
        data: the set that this client trains on, as for :func:`~fssl_core.data.datasets.load_dataset`; None: the
            server's, if it is embedded in this package, so that nothing of this machine is read.

    Raises:
        DataError: the server's is not embedded.
    """
    if data is not None:
        return settings.changed(dataset=data)
    if settings.dataset not in EMBEDDED:
        raise DataError(
            f"The server trains on {printable(settings.dataset)!r}, and this client has not said on which images it "
            "does. Say so, e.g. --data cifar10."
        )
    return settings


def load_own(settings: SplitSettings, memory: float, device: torch.device) -> Dataset:
    """The images of these settings, once they and everything else have been found to fit.

    Args:
        settings: with this client's data set.
        memory: GiB that the client may use for images, models and activations.

    Raises:
        FsslError: they take more.
        SettingError: settings that no client can have.
        DataError: the set is missing or cannot be read.
    """
    needed = bytes_needed(settings, load_dataset(settings.dataset)) / GIB
    if needed > memory:
        raise FsslError(
            f"The server's settings take {needed:.3g} GiB here, and {memory:g} are allowed: refused. Allow more with "
            "--memory if this machine has it."
        )
    return settings.load_data(device)


def bytes_needed(settings: SplitSettings, data: Dataset) -> float:
    """Memory of one client: an estimate from shapes, of which nothing is allocated.

    Args:
        settings: of the run.
        data: the set in its own size.

    Raises:
        SettingError: settings that no client can have.
    """
    s, count = settings, len(data.train) + len(data.test)
    if s.clients * s.client_batch > len(data.train):
        raise SettingError("clients", s.clients, f"a batch of {s.client_batch} for each from {len(data.train)} images")
    side = s.image_size or data.image_size
    pixels = float(data.channels) * side**2
    images = pixels * count + (0 if s.image_size is None else 2 * 4 * pixels * min(count, RESIZED))
    bytes_of_one = s.dtype.itemsize
    try:
        backbone = build_backbone(
            s.architecture, width=s.width, norm=s.norm, image_size=side, channels=data.channels, values=False
        )
        whole = sum(value.numel() for value in backbone.state_dict().values())
        head = float(s.projector_hidden) * (backbone.feature_dim + s.projector_dim + 1) + s.projector_dim
        client = cut(backbone, s.cut_layer)[0].to(s.dtype)
        own = sum(value.numel() for value in client.state_dict().values())
        views = s.client_batch * (2 if s.both_views else 1)
        activations = saved_bytes(client, (data.channels, side, side), views)
    except (RuntimeError, OverflowError, TypeError) as error:  # numbers that PyTorch cannot even count with
        raise SettingError("architecture", s.architecture, f"a model that can be built, not width={s.width}") from error
    # The whole model is made for its first values. Of the client's part there are the online and the momentum model,
    # gradients, the optimiser's state, and a message under way. Either model has activations, views are made in float.
    return images + bytes_of_one * (2 * (whole + head) + 5 * own) + 2 * activations + 4 * views * 4 * pixels
