"""Settings by profile: the same experiment at five sizes. Here those of the engines; papers have files of their own.

===========  ===============================================  ==========================================
profile      data and model                                   for
===========  ===============================================  ==========================================
smoke        embedded digits, width 8, a few steps            tests and first contact; decides no claim
laptop       embedded digits, ResNet-10 of width 16, 400      the direction of a claim on digits, in
             steps                                            minutes on a CPU
workstation  10,000 real images, the paper's network with a   the direction of a claim on real images, in
             quarter of its channels, 8 to 150 epochs         an hour of a CPU's core or minutes of a GPU
gpu          all images, full width, a short schedule         numbers near the paper's
paper        the paper's own settings                         reproduction
===========  ===============================================  ==========================================
"""

from collections.abc import Mapping
from typing import Any

from fssl_core.errors import SettingError
from fssl_core.federation.participation import auto_adjust
from fssl_core.objectives import OBJECTIVES
from fssl_core.paths import PROFILES
from fssl_core.settings import Count, check_choice, check_types, checked
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.split import METHODS, SplitSettings

# What laptop and smoke have in common. Found with small runs, not tuned for a claim.
SMALL: dict[str, Any] = {
    "dataset": "scattered-digits",
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 16,
    "learning_rate": 0.03,
    "knn_k": 20,
    "seed": 0,
}
TINY: dict[str, Any] = SMALL | {"train_images": 400, "width": 8, "probe_epochs": 10}
# What `workstation` has of real data and of a paper's network. The arithmetic is bfloat16 on every machine, so a run is
# the same run wherever it is computed.
REAL: dict[str, Any] = {"train_images": 10_000, "width": 16, "precision": "bfloat16", "seed": 0}
QUARTER_HEADS: dict[str, dict[str, Any]] = {  # by objective; at full size they take half of the time at this width
    "moco-v2": {"projector": (1024, 512)},
    "byol": {"projector": (1024, 512), "predictor": (1024, 512)},
}
SMALL_HEADS: dict[str, dict[str, Any]] = {  # by objective
    "moco-v2": {"projector": (128, 64), "queue_size": 1000},
    "byol": {"projector": (128, 64), "predictor": (128, 64)},
    "simclr": {"projector": (64,)},
    "fedca": {"projector": (64,)},
    "orchestra": {
        "projector": (128, 64),
        "local_clusters": 8,
        "global_clusters": 16,
        "memory_size": 64,
    },
    "barlow-twins": {"projector": (64,)},
    "simsiam": {"projector": (128, 64), "predictor": (32, 64)},
    "moco-v3": {"projector": (128, 64), "predictor": (128, 64)},
    "supervised": {},
}
HEADS = {"smoke": SMALL_HEADS, "laptop": SMALL_HEADS, "workstation": QUARTER_HEADS}  # by profile; else the paper's
_LAPTOP: dict[str, Any] = SMALL | {
    "cut_layer": 5,  # half of a ResNet-10
    "projector_hidden": 128,
    "projector_dim": 64,
    "queue_size": 1000,
    "sync_every": 40,
    "epochs": 10,
}
_SMOKE: dict[str, Any] = _LAPTOP | TINY | {"sync_every": 2, "epochs": 2}
# Between two synchronisations lie 50 steps, as in the papers, whose epochs are five times as long. The clients' rate is
# the papers', the server's own. Piloted at cut 11 with ten clients and seed 100, which no record has: after four epochs
# MonAcoSFL is at 36.0 % of kNN and MocoSFL at 28.2 %, with three times the rate at 35.5 and 22.0 %. MobileNetV2 alike
# at cut 9, untrained 12.5 %: 25.0 and 17.0 % with its own rate of 0.06, 17.0 % both with a third of it.
_WORKSTATION: dict[str, Any] = REAL | {"epochs": 8, "sync_every": 50}
_PAPERS = {"MocoSFL": "mocosfl", "MonAcoSFL": "monacosfl"}  # by method
_GPU: dict[str, Any] = {"epochs": 20, "precision": "bfloat16"}


def of_part(name: str, value: Any) -> dict[str, Any]:
    """A dict of settings of a part of an experiment, such as its objective; :class:`SettingError` for anything else."""
    if not isinstance(value, Mapping):
        raise SettingError(name, value, "a dict of its settings")
    return dict(value)


def split_settings(
    profile: str,
    *,
    clients: int,
    method: str = "MonAcoSFL",
    paper: str | None = None,
    syncs_per_epoch: int | None = None,
    **values: Any,
) -> SplitSettings:
    """Split federated training at a profile, with batch and sampling that suit the number of clients.

    The server's batch stays at 100 images (MocoSFL's automatic rule, :func:`auto_adjust`); at ``smoke`` and
    ``laptop`` the clients' learning rate is the server's times the number of clients in an epoch. With fewer clients in
    an epoch there are more epochs, so that every image is seen as often. At ``gpu`` and ``paper`` data and architecture
    decide what else the paper sets.

    Args:
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        clients: size of the federation, 1 to 1000.
        method: ``"MocoSFL"`` or ``"MonAcoSFL"``.
        paper: ``"mocosfl"`` or ``"monacosfl"``, whose settings the larger profiles have: MonAcoSFL's experiments
            have MocoSFL, too, with settings of their own. None: that of the method's own paper.
        syncs_per_epoch: how often clients are synchronised in an epoch, evenly, at most after every step. The data set
            must be there, because its size decides how many steps an epoch has. None: the profile's ``sync_every``.
        **values: settings that replace the profile's.

    Raises:
        SettingError: an unknown profile or setting, or a value that cannot be used.
        DataError: ``syncs_per_epoch`` is given and the data set is missing.
    """
    check_choice("profile", profile, PROFILES)
    check_choice("method", method, METHODS)
    check_choice("paper", paper or _PAPERS[method], _PAPERS.values())
    values = {"method": method} | values
    check_types(SplitSettings, {"clients": clients, **values})
    checked("syncs_per_epoch", syncs_per_epoch, Count | None)
    rule = auto_adjust(clients)
    chosen = {"smoke": _SMOKE, "laptop": _LAPTOP, "workstation": _WORKSTATION, "gpu": _GPU, "paper": {}}[profile]
    settings = SplitSettings(clients=clients, client_batch=rule.client_batch, clients_per_epoch=rule.clients_per_epoch)
    settings = settings.changed(**chosen)
    if "clients_per_epoch" in values:
        settings = settings.changed(clients_per_epoch=values["clients_per_epoch"])
    # With a share of the clients in each epoch, more epochs let every client see its images as often.
    derived: dict[str, Any] = {"epochs": settings.epochs * clients // settings.sampled}
    if profile in ("smoke", "laptop"):
        # The server's loss is a mean over all clients' images, so a client's gradient carries 1 / clients. In 400 steps
        # at the paper's client rate the clients hardly move and no method can differ from another; with the clients'
        # rate scaled by their number they train about as fast as the server.
        derived["client_learning_rate"] = values.get("learning_rate", settings.learning_rate) * settings.sampled
    else:
        steps = 50_000 // clients // rule.client_batch  # of an epoch of CIFAR
        derived |= _papers_own(paper or _PAPERS[method], steps, values)
        if profile == "workstation":
            derived |= {name: chosen[name] for name in ("sync_every", "seed")}
        # Of 1,000 clients a tenth takes part in an epoch; kNN on all images costs more than that trains. By the rule,
        # whatever number takes part: so runs with a number of their own are recorded.
        derived["validate_every"] = clients // rule.clients_per_epoch
    settings = settings.changed(**(derived | values))
    if syncs_per_epoch is None:
        return settings
    if "sync_every" in values:
        raise SettingError("syncs_per_epoch", syncs_per_epoch, "None where sync_every is given")
    steps = min(map(len, settings.divide(settings.load_data()))) // settings.client_batch
    return settings.changed(sync_every=max(1, steps // syncs_per_epoch))


def _papers_own(paper: str, steps: int, values: dict[str, Any]) -> dict[str, Any]:
    """What a paper sets for these data and this architecture, where it is not a field's default.

    Args:
        paper: its key.
        steps: of a client in an epoch of 50,000 images.
        values: what is asked for.
    """
    dataset, architecture = values.get("dataset"), values.get("architecture")
    settings: dict[str, Any] = {"partition": "classes:20" if dataset == "cifar100" else "classes:2"}
    if dataset == "imagenet12":
        settings["image_size"] = 224
    if architecture == "resnet50":  # the hidden layer is four times as wide, as the features are
        settings["projector_hidden"] = 4096
    if paper == "mocosfl":  # Section 5.1: so many steps for any number of clients; A.1: a mean of two losses
        return settings | {"sync_every": 50, "swap_at": "server", "seed": 1234}
    # Section 5.1: ten synchronisations an epoch. The script for MobileNetV2 is the only one with the other loss.
    return settings | {
        "sync_every": steps // 10,
        "swap_at": "server-sum" if architecture == "mobilenetv2" else "client",
    }


def averaging_settings(profile: str, *, objective: str | dict[str, Any], **values: Any) -> AveragingSettings:
    """Federated averaging at a profile.

    At ``smoke`` and ``laptop`` an image is seen as often as by :func:`split_settings`, in small batches and with
    small heads; at ``gpu`` the paper's rounds are cut to a tenth.

    Args:
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        objective: a key of ``OBJECTIVES``, or a dict with it as ``"name"`` and settings of the objective.
        **values: settings that replace the profile's.

    Raises:
        SettingError: an unknown profile, objective or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    objective_settings = dict(objective) if isinstance(objective, Mapping) else {"name": objective}
    check_choice("objective", objective_settings.get("name"), OBJECTIVES)
    chosen: dict[str, dict[str, Any]] = {
        "smoke": TINY | {"rounds": 2, "local_epochs": 1, "batch": 20},
        "laptop": SMALL | {"rounds": 5, "local_epochs": 2, "batch": 50},
        "workstation": REAL | {"rounds": 20, "local_epochs": 2, "batch": 64},
        "gpu": {"rounds": 10, "precision": "bfloat16"},
        "paper": {},
    }
    name = objective_settings["name"]
    method = OBJECTIVES[name]().changed(**(HEADS.get(profile, {}).get(name, {}) | objective_settings))
    return AveragingSettings(objective=method).changed(**(chosen[profile] | values))
