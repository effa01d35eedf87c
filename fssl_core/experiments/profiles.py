"""Settings by profile: the same experiment at four sizes.

=======  ==================================================  =============================================
profile  data and model                                      for
=======  ==================================================  =============================================
smoke    embedded digits, width 8, a few steps               tests and first contact; decides no claim
laptop   embedded digits, ResNet-10 of width 16, 400 steps   the direction of a claim in minutes on a CPU
gpu      real data, full width, a short schedule             numbers near the paper's
paper    the paper's own settings                            reproduction
=======  ==================================================  =============================================
"""

from typing import Any

from fssl_core.federation.participation import auto_adjust
from fssl_core.paths import PROFILES
from fssl_core.settings import check_choice
from fssl_core.training.split import SplitSettings

# Found with small runs, not tuned for a claim: the server's loss is a mean over all clients' images, so a client's
# gradient carries 1 / clients. In 400 steps at the paper's client rate the clients hardly move and no method can
# differ from another; with the clients' rate scaled by their number they train about as fast as the server.
_LAPTOP: dict[str, Any] = {
    "dataset": "scattered-digits",
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 16,
    "projector_hidden": 128,
    "projector_dim": 64,
    "queue_size": 1000,
    "sync_every": 40,
    "epochs": 10,
    "learning_rate": 0.03,
    "knn_k": 20,
    "seed": 0,
}
_SMOKE: dict[str, Any] = _LAPTOP | {
    "train_images": 400,
    "width": 8,
    "sync_every": 2,
    "epochs": 2,
    "probe_epochs": 10,
}
_GPU: dict[str, Any] = {"epochs": 20, "precision": "bfloat16"}


def split_settings(profile: str, *, clients: int, **values: Any) -> SplitSettings:
    """Split federated training at a profile, with batch and sampling that suit the number of clients.

    The server's batch stays at 100 images (MocoSFL's automatic rule, :func:`auto_adjust`); at ``smoke`` and
    ``laptop`` the clients' learning rate is the server's times the number of clients in an epoch.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        clients: size of the federation, 1 to 1000.
        **values: settings that replace the profile's.

    Raises:
        SettingError: an unknown profile or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    rule = auto_adjust(clients)
    chosen = {"smoke": _SMOKE, "laptop": _LAPTOP, "gpu": _GPU, "paper": {}}[profile]
    settings = SplitSettings(clients=clients, client_batch=rule.client_batch, clients_per_epoch=rule.clients_per_epoch)
    settings = settings.changed(**chosen)
    # With a share of the clients in each epoch, more epochs let every client see its images as often.
    derived: dict[str, Any] = {"epochs": settings.epochs * clients // rule.clients_per_epoch}
    if profile in ("smoke", "laptop"):
        taking_part = values.get("clients_per_epoch") or rule.clients_per_epoch
        derived["client_learning_rate"] = values.get("learning_rate", settings.learning_rate) * taking_part
    else:  # ten synchronisations in an epoch of 50,000 images
        derived["sync_every"] = 50_000 // clients // rule.client_batch // 10
    return settings.changed(**(derived | values))
