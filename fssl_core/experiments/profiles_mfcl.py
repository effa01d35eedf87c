"""MFCL and the methods of its Table 2 by profile; what a profile is: :mod:`fssl_core.experiments.profiles`."""

from typing import Annotated, Any

from fssl_core.data.partitions import Scheme
from fssl_core.experiments.profiles import HEADS, REAL, SMALL, TINY, of_part
from fssl_core.objectives import BYOL, Objective, Orchestra, SimCLR, Supervised
from fssl_core.objectives.moon import Moon
from fssl_core.paths import PROFILES
from fssl_core.settings import Range, check_choice, check_types, checked
from fssl_core.training.averaging import METHODS, AveragingSettings
from fssl_core.training.featarc import FeatArcSettings
from fssl_core.training.fedpac import FedPacSettings
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.settings import FederationSettings
from fssl_core.training.split_learning import SplitLearningSettings
from fssl_core.training.split_mix import SplitMixSettings

MFCL_METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # by name: the clients' norm, phases 1 and 2
    "MFCL(BN)": ("batch", {}, {}),
    "MFCL(BN), own statistics": ("batch", {}, {"statistics": "own"}),  # as in the first author's public code
    "MFCL(GN)": ("group", {}, {}),
    "MFCL(TN)": ("twin", {}, {}),
    # Readings of twin norm (fssl_core/models/twin_norm.py), of which the paper names none.
    "MFCL(TN), equation": ("twin", {"variance": "equation"}, {}),
    "MFCL(TN), listing": ("twin", {"variance": "mean"}, {}),
    "MFCL(TN), views apart": ("twin", {}, {"twins": False}),  # what is sent is normalised as a test image is
}
_DIGITS: dict[str, Any] = {
    "dataset": "scattered-digits",
    "augmentation": "digits",
    "architecture": "resnet10",
    "train_images": 2000,
    "width": 16,
    "rounds": 3,
    "batch": 16,
    "learning_rate": 0.01,
    "knn_k": 20,
}
_MFCL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # phase 1, phase 2
    "smoke": (
        _DIGITS | {"clients": 4, "train_images": 160, "width": 8, "rounds": 2, "batch": 8},
        {
            "pairs": 2,
            "epochs": 2,
            "warmup_epochs": 1,
            "batch": 40,
            "temperature": 0.1,
            "knn_k": 20,
            "probe_epochs": 5,
        },
    ),
    "laptop": (
        _DIGITS,
        {
            "epochs": 20,
            "warmup_epochs": 1,
            "batch": 50,
            "temperature": 0.1,
            "validate_every": 5,
            "knn_k": 20,
            "probe_epochs": 30,
        },
    ),
    "workstation": (
        {name: REAL[name] for name in ("train_images", "width")} | {"rounds": 5},
        {"epochs": 150, "warmup_epochs": 5, "validate_every": 30, "precision": REAL["precision"]},
    ),
    "gpu": ({"rounds": 5}, {"epochs": 30, "warmup_epochs": 2, "validate_every": 10, "precision": "bfloat16"}),
    "paper": ({}, {"validate_every": 10}),
}
# Section 5.1, Tables 12 and 13: of phase 1, and of phase 2
_SETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cifar10": ({"dataset": "cifar10"}, {}),
    "cifar100": ({"dataset": "cifar100", "clients": 100}, {}),
    "tiny-imagenet-200": (
        {
            "dataset": "tiny-imagenet-200",
            "clients": 100,
            "architecture": "resnet50",
            "cut": 4,
            "augmentation": "simclr",
            "learning_rate": 0.001,
        },
        {"epochs": 200},
    ),
}


def _partition(profile: str, xi: float) -> str:
    """Dirichlet's, with equally many images a client; at ``smoke`` and ``laptop`` with a batch for the smallest one."""
    xi = checked("xi", xi, Annotated[float, Range(1e-9)])
    least = {"smoke": 8, "laptop": 32}.get(profile)
    return str(Scheme("dirichlet", xi, least) if least else Scheme("dirichlet-equal", xi))


def mfcl_settings(
    profile: str,
    *,
    method: str = "MFCL(TN)",
    dataset: str = "cifar10",
    xi: float = 0.1,
    phase1: dict[str, Any] | None = None,
    **values: Any,
) -> ModularSettings:
    """A cell of MFCL's Table 2 that is MFCL: phase 2, with the phase 1 that it builds on.

    Args:
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        method: a key of ``MFCL_METHODS``.
        dataset: ``"cifar10"``, ``"cifar100"`` or ``"tiny-imagenet-200"``; digits at ``smoke`` and ``laptop``.
        xi: concentration of the Dirichlet distribution, above 0.
        phase1: settings of the first phase that replace the profile's.
        **values: the same of the second one; ``seed`` is that of both.

    Raises:
        SettingError: an unknown profile, method, data set or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    check_choice("method", method, MFCL_METHODS)
    check_choice("dataset", dataset, _SETS)
    norm, reading, sending = MFCL_METHODS[method]
    first, second = _MFCL[profile]
    if profile not in ("smoke", "laptop"):
        dataset_settings = _SETS[dataset]
        first, second = dataset_settings[0] | first, (dataset_settings[1] if profile == "paper" else {}) | second
    seed = {"seed": values.get("seed", 0)}
    own = of_part("phase1", phase1 or {})
    first = first | seed | {"norm": norm, "partition": _partition(profile, xi)} | reading | own
    return ModularSettings(phase1=AutoencoderSettings().changed(**first)).changed(**(second | sending | seed | values))


# ------------------------------------------------------------------------------------------------------------ rivals

# By the name in MFCL's tables: the kind of settings, the objective, and what the method sets. Hyper-parameters are
# those of the methods' own papers where known; the text says no more.
_SUPERVISED: dict[str, Any] = {  # Li et al., "MOON", Section 4.1, which compares the three federated ones under it
    "rounds": 100,
    "local_epochs": 10,
    "batch": 64,
    "learning_rate": 0.01,
    "weight_decay": 1e-5,
    "schedule": "constant",
}
_CONTRASTIVE: dict[str, Any] = {"augmentation": "simclr-cifar"}  # the rest: those of Zhuang et al., the engine's own
RIVALS: dict[str, tuple[type[FederationSettings], Objective | None, dict[str, Any]]] = {
    "FedAvg": (AveragingSettings, Supervised(), _SUPERVISED),
    "FedProx": (AveragingSettings, Supervised(), _SUPERVISED | METHODS["FedProx"]),
    "MOON": (MoonSettings, Moon(), _SUPERVISED),
    "FSL": (SplitLearningSettings, None, _SUPERVISED),
    "FedSimCLR": (AveragingSettings, SimCLR(projector=(512, 128), temperature=0.5), _CONTRASTIVE | {"rounds": 800}),
    "Orchestra": (AveragingSettings, Orchestra(), _CONTRASTIVE),
    "FedEMA": (AveragingSettings, BYOL(), _CONTRASTIVE | METHODS["FedEMA"]),
    "FedU": (AveragingSettings, BYOL(), _CONTRASTIVE | METHODS["FedU"]),
    "FeatARC": (FeatArcSettings, SimCLR(projector=(512, 128), temperature=0.5), _CONTRASTIVE),
    # of Table 4, with what their own papers set
    "HeteroFL": (HeteroFLSettings, Supervised(), _SUPERVISED),
    "Split-Mix": (SplitMixSettings, Supervised(), _SUPERVISED),
    "FedPAC": (FedPacSettings, Supervised(), _SUPERVISED),
}
_NARROW: dict[str, dict[str, dict[str, Any]]] = {  # at least four channels are left of the small networks
    "smoke": {"HeteroFL": {"shares": (1.0, 0.5)}, "Split-Mix": {"shares": (0.5, 1.0), "bases": 2}},
    "laptop": {"HeteroFL": {"shares": (1.0, 0.5, 0.25)}, "Split-Mix": {"shares": (0.25, 0.5, 1.0), "bases": 4}},
}
_NARROW["workstation"] = _NARROW["laptop"]  # both have 16 channels
_CLASSES = {"cifar10": 10, "cifar100": 100, "tiny-imagenet-200": 200, "scattered-digits": 10}
_OWN_HEADS = {"moon": {"projector": (64, 32)}, "simclr": {"projector": (128, 64)}}
_RIVAL_HEADS = HEADS | {profile: HEADS[profile] | _OWN_HEADS for profile in ("smoke", "laptop")}
_RIVAL_PROFILES: dict[str, dict[str, Any]] = {
    "smoke": TINY | {"clients": 4, "train_images": 160, "rounds": 2, "local_epochs": 1, "batch": 16},
    "laptop": SMALL | {"clients": 10, "train_images": 2000, "rounds": 10, "local_epochs": 2, "batch": 32},
    "workstation": REAL | {"rounds": 30, "local_epochs": 5},
    "gpu": {"rounds": 6, "local_epochs": 5, "precision": "bfloat16"},
    "paper": {},
}


def mfcl_rival_settings(
    profile: str, *, method: str, dataset: str = "cifar10", xi: float = 0.1, **values: Any
) -> FederationSettings:
    """A cell of MFCL's Tables 2 and 4 that is not MFCL: a federated method by its name there, at a profile.

    At ``gpu`` there are six rounds of five local epochs, at ``workstation`` thirty: as many passes over the images as
    in MFCL's second phase.

    Args:
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        method: ``"FedAvg"``, ``"FedProx"``, ``"MOON"``, ``"FSL"``, ``"HeteroFL"``, ``"Split-Mix"`` or ``"FedPAC"``,
            which train with labels; ``"FedSimCLR"``, ``"Orchestra"``, ``"FedEMA"``, ``"FedU"`` or ``"FeatARC"``.
        dataset: ``"cifar10"``, ``"cifar100"`` or ``"tiny-imagenet-200"``; digits at ``smoke`` and ``laptop``.
        xi: concentration of the Dirichlet distribution, above 0.
        **values: settings that replace the profile's; ``objective`` may be a dict of the objective's own settings.

    Raises:
        SettingError: an unknown profile, method, data set or setting, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    check_choice("method", method, RIVALS)
    check_choice("dataset", dataset, _SETS)
    kind, objective, rival_settings = RIVALS[method]
    own = {} if objective is None else of_part("objective", values.pop("objective", {}))
    check_types(kind, values)
    one = {"clients": 10, "architecture": "resnet18"} | _SETS[dataset][0]
    chosen = {name: one[name] for name in ("dataset", "clients", "architecture")} | {"norm": "batch"} | rival_settings
    if kind is not SplitLearningSettings:  # which always has the last
        chosen |= {"selection": "last"}
    chosen |= _RIVAL_PROFILES[profile] | _NARROW.get(profile, {}).get(method, {})
    chosen["partition"] = _partition(profile, xi)
    if kind is FeatArcSettings:  # groups from a tenth of the rounds on
        chosen["group_from"] = max(1, (chosen | values).get("rounds", 100) // 10)
    required: dict[str, Any] = {}
    if objective is not None:
        needed = {"classes": _CLASSES[chosen["dataset"]]} if objective.supervised else {}
        if method == "MOON" and dataset != "cifar10":
            needed |= {"contrast_weight": 1.0}  # Section 4.1
        heads = _RIVAL_HEADS.get(profile, {}).get(objective.name, {})
        required = {"objective": objective.changed(**(heads | needed | own))}
    return kind(**required).changed(**(chosen | values))
