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

from fssl_core.errors import SettingError
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.transfer import TransferSettings
from fssl_core.federation.participation import auto_adjust
from fssl_core.objectives import OBJECTIVES
from fssl_core.paths import PROFILES
from fssl_core.settings import check_choice, check_range
from fssl_core.training.averaging import METHODS, AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.split import SplitSettings

# Found with small runs, not tuned for a claim: the server's loss is a mean over all clients' images, so a client's
# gradient carries 1 / clients. In 400 steps at the paper's client rate the clients hardly move and no method can
# differ from another; with the clients' rate scaled by their number they train about as fast as the server.
_SMALL: dict[str, Any] = {
    "dataset": "scattered-digits",
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 16,
    "learning_rate": 0.03,
    "knn_k": 20,
    "seed": 0,
}
_TINY: dict[str, Any] = _SMALL | {"train_images": 400, "width": 8, "probe_epochs": 10}
_LAPTOP: dict[str, Any] = _SMALL | {
    "projector_hidden": 128,
    "projector_dim": 64,
    "queue_size": 1000,
    "sync_every": 40,
    "epochs": 10,
}
_SMOKE: dict[str, Any] = _LAPTOP | _TINY | {"sync_every": 2, "epochs": 2}
_GPU: dict[str, Any] = {"epochs": 20, "precision": "bfloat16"}


def split_settings(profile: str, *, clients: int, syncs_per_epoch: int | None = None, **values: Any) -> SplitSettings:
    """Split federated training at a profile, with batch and sampling that suit the number of clients.

    The server's batch stays at 100 images (MocoSFL's automatic rule, :func:`auto_adjust`); at ``smoke`` and
    ``laptop`` the clients' learning rate is the server's times the number of clients in an epoch.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        clients: size of the federation, 1 to 1000.
        syncs_per_epoch: how often clients are synchronised in an epoch, evenly, at most after every step. The data
            set must be there, because its size decides how many steps an epoch has. None: the profile's
            ``sync_every``.
        **values: settings that replace the profile's.

    Raises:
        SettingError: an unknown profile or setting, or a value that cannot be used.
        DataError: ``syncs_per_epoch`` is given and the data set is missing.
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
    settings = settings.changed(**(derived | values))
    if syncs_per_epoch is None:
        return settings
    check_range("syncs_per_epoch", syncs_per_epoch, low=1)
    if "sync_every" in values:
        raise SettingError("syncs_per_epoch", syncs_per_epoch, "None where sync_every is given")
    steps = min(map(len, settings.divide(settings.load_data()))) // settings.client_batch
    return settings.changed(sync_every=max(1, steps // syncs_per_epoch))


_SMALL_HEADS: dict[str, dict[str, Any]] = {
    "moco-v2": {"projector": (128, 64), "queue_size": 1000},
    "byol": {"projector": (128, 64), "predictor": (128, 64)},
    "simclr": {"projector": (64,)},
    "fedca": {"projector": (64,)},
    "orchestra": {"projector": (128, 64), "local_clusters": 8, "global_clusters": 16, "memory_size": 64},
    "barlow-twins": {"projector": (64,)},
    "simsiam": {"projector": (128, 64), "predictor": (32, 64)},
    "moco-v3": {"projector": (128, 64), "predictor": (128, 64)},
    "supervised": {},
}


def averaging_settings(profile: str, *, objective: str | dict[str, Any], **values: Any) -> AveragingSettings:
    """Federated averaging at a profile.

    At ``smoke`` and ``laptop`` an image is seen as often as by :func:`split_settings`, in small batches and with
    small heads; at ``gpu`` the paper's rounds are cut to a tenth.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        objective: a key of ``OBJECTIVES``, or a dict with it as ``"name"`` and settings of the objective.
        **values: settings that replace the profile's.

    Raises:
        SettingError: an unknown profile, objective or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    wanted = {"name": objective} if isinstance(objective, str) else dict(objective)
    check_choice("objective", wanted.get("name"), OBJECTIVES)
    small = profile in ("smoke", "laptop")
    chosen: dict[str, dict[str, Any]] = {
        "smoke": _TINY | {"rounds": 2, "local_epochs": 1, "batch": 20},
        "laptop": _SMALL | {"rounds": 5, "local_epochs": 2, "batch": 50},
        "gpu": {"rounds": 10, "precision": "bfloat16"},
        "paper": {},
    }
    method = OBJECTIVES[wanted["name"]]().changed(**(_SMALL_HEADS[wanted["name"]] if small else {}) | wanted)
    return AveragingSettings(objective=method).changed(**(chosen[profile] | values))


SSL_METHODS = {"SimCLR": "simclr", "Barlow Twins": "barlow-twins"}  # by their names in L-DAWA's tables

# L-DAWA, Section 4.2, and what its code adds; see reference/ldawa_settings.yaml.
_LDAWA: dict[str, Any] = {
    "clients": 10,
    "rounds": 200,
    "local_epochs": 10,
    "batch": 256,
    "learning_rate": 0.03,
    "weight_decay": 1e-4,
    "schedule": "constant",
    "augmentation": "viewmaker",
    "partition": "dirichlet:0.1:32",
    "selection": "last",
    "probe_every": 10,
    "keep_every": 10,
}
_LDAWA_DIGITS: dict[str, Any] = {
    "dataset": "scattered-digits",
    "augmentation": "digits",
    "probe_every": 1,
    "keep_every": 1,
}
_LDAWA_SMALL: dict[str, dict[str, Any]] = {
    "smoke": _LDAWA_DIGITS
    | {"clients": 4, "train_images": 160, "rounds": 2, "local_epochs": 1, "batch": 16, "partition": "dirichlet:0.1:8"},
    "laptop": _LDAWA_DIGITS | {"rounds": 10, "local_epochs": 2, "batch": 32, "train_images": 2000, "probe_epochs": 30},
}


def ldawa_settings(profile: str, *, method: str, ssl_method: str = "SimCLR", **values: Any) -> AveragingSettings:
    """One cell of L-DAWA's tables: a federated method by its name there, at a profile.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        method: a key of ``METHODS``, such as ``"FedAvg"`` or ``"L-DAWA_Loss"``.
        ssl_method: ``"SimCLR"`` or ``"Barlow Twins"``.
        **values: settings that replace the profile's; ``objective`` may be a dict of the SSL method's own settings.

    Raises:
        SettingError: an unknown profile, method or setting, or a value that cannot be used.
    """
    check_choice("method", method, METHODS)
    check_choice("ssl_method", ssl_method, SSL_METHODS)
    check_choice("profile", profile, PROFILES)
    small = _LDAWA_SMALL.get(profile, {})
    chosen = _LDAWA | (
        {"rounds": 20, "local_epochs": 1, "probe_every": 2, "keep_every": 2} if profile == "gpu" else small
    )
    own: dict[str, Any] = {}
    if small and ssl_method == "Barlow Twins":
        # A client has 200 images. At the paper's values features become worse than an untrained encoder's; with a
        # lower rate and a larger lambda (64 dimensions have few pairs to decorrelate) they are at least held.
        chosen, own = chosen | {"learning_rate": 0.003}, {"redundancy_weight": 0.1}
    objective = {"name": SSL_METHODS[ssl_method]} | own | values.pop("objective", {})
    return averaging_settings(profile, objective=objective, **(chosen | METHODS[method] | values))


def ldawa_probe(profile: str, pretraining: AveragingSettings, **values: Any) -> ProbeSettings:
    """L-DAWA's evaluation of a federation (Section 4.3): SGD, 100 epochs, on un-pooled features as its code has them.

    Args:
        profile: ``"smoke"``, where the probe is shorter, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        pretraining: the federation.
        **values: settings of the probe that replace these, such as ``label_fraction`` or ``dataset``.
    """
    check_choice("profile", profile, PROFILES)
    settings = ProbeSettings(pretraining=pretraining, protocol="sgd-steps", features="unpooled", seed=pretraining.seed)
    return settings.changed(**({"epochs": 10} if profile == "smoke" else {}) | values)


_LWFEDSSL_HEADS: dict[str, dict[str, Any]] = {  # Section 4.1; normalisation: reference/accounting_conventions.md
    "MoCoV3": {"name": "moco-v3"},
    "BYOL": {
        "name": "byol",
        "projector": (512, 512, 256),
        "predictor": (512, 256),
        "output_norm": "plain",
        "output_bias": False,
    },
    "SimCLR": {"name": "simclr", "projector": (512, 512, 256), "output_norm": "plain", "temperature": 0.05},
}
_LWFEDSSL_METHODS: dict[str, dict[str, Any]] = {  # by the name in the tables, what it sets
    "LW-FedSSL": {"scheme": "layer-wise"},
    "Prog-FedSSL": {"scheme": "progressive"},
    **{f"Fed{name}": {"scheme": "end-to-end"} for name in _LWFEDSSL_HEADS},
    "FedU": {"scheme": "end-to-end", **METHODS["FedU"]},
    "FedEMA": {"scheme": "end-to-end", **METHODS["FedEMA"]},
    "FedCA": {"scheme": "end-to-end"},  # SimCLR with a dictionary
    **{name: {"scheme": "end-to-end", "clients": 1} for name in _LWFEDSSL_HEADS},  # all images in one place
}
# Small transformers learn nothing from these images in minutes, whatever the objective; a ResNet does, with SimCLR
# best, at a temperature that suits its small batches.
_LWFEDSSL_DIGITS: dict[str, Any] = {
    "dataset": "scattered-digits",
    "image_size": None,
    "augmentation": "digits",
    "architecture": "resnet10",
    "norm": "batch",
    "learning_rate": 1e-3,
    "knn_k": 20,
    "seed": 0,
}
_LWFEDSSL_SMALL: dict[str, dict[str, Any]] = {
    "smoke": _LWFEDSSL_DIGITS
    | {"clients": 4, "train_images": 160, "width": 8, "rounds": 4, "local_epochs": 1, "batch": 16, "probe_epochs": 10},
    "laptop": _LWFEDSSL_DIGITS
    | {
        "clients": 5,
        "train_images": 2000,
        "width": 16,
        "rounds": 12,
        "local_epochs": 2,
        "batch": 50,
        "probe_epochs": 30,
    },
}


def lwfedssl_settings(profile: str, *, method: str, ssl_method: str, **values: Any) -> LayerwiseSettings:
    """A federation of LW-FedSSL's tables by its name there, at a profile.

    At ``smoke`` and ``laptop`` the encoder is a ResNet-10, whose four stages are the layers; at ``gpu`` the rounds are
    cut to a fifth.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        method: ``"LW-FedSSL"``, ``"Prog-FedSSL"``, ``"FedMoCoV3"``, ``"FedBYOL"``, ``"FedSimCLR"``, ``"FedU"``,
            ``"FedEMA"``, ``"FedCA"``; or the name of an SSL method: trained on all images in one place.
        ssl_method: ``"MoCoV3"``, ``"BYOL"`` or ``"SimCLR"``.
        **values: settings that replace the profile's; ``objective`` may be a dict of the SSL method's own settings.

    Raises:
        SettingError: an unknown profile, method or setting, a method of another SSL method, or a value that cannot
            be used.
    """
    check_choice("profile", profile, PROFILES)
    check_choice("method", method, _LWFEDSSL_METHODS)
    check_choice("ssl_method", ssl_method, _LWFEDSSL_HEADS)
    needed = "SimCLR" if method == "FedCA" else method.removeprefix("Fed")
    if needed in _LWFEDSSL_HEADS and needed != ssl_method:
        raise SettingError("ssl_method", ssl_method, f"{needed!r} for {method}")
    own, chosen = _LWFEDSSL_HEADS[ssl_method], {"dataset": "coco"}
    if profile in _LWFEDSSL_SMALL:
        chosen = _LWFEDSSL_SMALL[profile]
        own = own | _SMALL_HEADS[own["name"]] | ({} if ssl_method == "BYOL" else {"temperature": 0.2})
        own |= {"projector": (128, 64)}
        if ssl_method != "SimCLR":  # few steps: a target branch has to follow faster
            own, chosen = own | {"ema_decay": 0.9}, chosen | {"learning_rate": 3e-3}
    elif profile == "gpu":
        chosen |= {"rounds": 36, "precision": "bfloat16"}
    if "batch" in values:  # the rate is proportional to it (Section 4.1)
        batch, rate = (chosen.get(name, getattr(LayerwiseSettings, name)) for name in ("batch", "learning_rate"))
        chosen = chosen | {"learning_rate": rate * values["batch"] / batch}
    if method == "FedCA":
        own = own | {"name": "fedca", "temperature": 0.05}  # at a higher one it runs away from its dictionary
    wanted = own | values.pop("objective", {})
    objective = OBJECTIVES[wanted["name"]]().changed(**wanted)
    return LayerwiseSettings(objective=objective).changed(**(chosen | _LWFEDSSL_METHODS[method] | values))


PROTOCOLS = {"fine-tuning": FineTuneSettings, "linear probe": ProbeSettings}


def lwfedssl_evaluation(
    profile: str, pretraining: LayerwiseSettings, *, protocol: str, **values: Any
) -> TransferSettings:
    """LW-FedSSL's evaluation of a federation: fine-tuning as in Section 4.1, or a linear probe, which it has not.

    Digits are too easy to tell encoders apart with all labels: at ``smoke`` and ``laptop`` fine-tuning sees few.

    Args:
        profile: ``"smoke"``, ``"laptop"``, ``"gpu"`` or ``"paper"``.
        pretraining: the federation.
        protocol: a key of ``PROTOCOLS``.
        **values: settings of the evaluation that replace these, such as ``dataset`` or ``scratch``.

    Raises:
        SettingError: an unknown profile, protocol or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    check_choice("protocol", protocol, PROTOCOLS)
    chosen: dict[str, Any] = {"precision": pretraining.precision} if protocol == "fine-tuning" else {}
    if profile in _LWFEDSSL_SMALL and protocol == "fine-tuning":
        short = {"epochs": 4, "warmup_epochs": 1} if profile == "smoke" else {}
        chosen |= {"label_fraction": 0.1, "batch": 50, "base_learning_rate": 5e-3} | short
    elif profile in _LWFEDSSL_SMALL:
        chosen |= {"epochs": pretraining.probe_epochs}
    return PROTOCOLS[protocol](pretraining=pretraining, seed=pretraining.seed).changed(**(chosen | values))
