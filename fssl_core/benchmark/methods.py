"""The methods of the benchmark: a table from names to trainings, all of one :class:`Problem`.

A problem is a division of images among clients, and a size. On it all methods have the same images, clients, first
values of one backbone with one norm, and number of passes over the images; each has the objective, heads, optimiser and
base learning rate of its own recipe in :mod:`fssl_core.experiments`. The model of the last round counts. Only a factor
on the learning rate is tuned, see :func:`chosen_rates`.

What cannot be equal: of MFCL, the client module has the norm that its name says and no shortcuts, so it starts from
another untrained model; its passes are shared out between the two phases; a factor on the rate is one on that of the
second. In layer-wise training a pass goes through the layers of its stage. Averaged methods take a batch from each
client, split ones a batch of all.

A method of your own is a line in :data:`METHODS`, see :func:`averaged` and ``docs/how_to.md``.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from fssl_core.costs.client_load import images_seen
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.evaluation.downstream import TransferSettings
from fssl_core.evaluation.probe_runs import KnnSettings, ProbeSettings
from fssl_core.evaluation.untrained import UntrainedSettings, untrained
from fssl_core.experiments import dry_run
from fssl_core.experiments.profiles import REAL, averaging_settings, split_settings
from fssl_core.experiments.profiles_lwfedssl import lwfedssl_evaluation, lwfedssl_settings
from fssl_core.experiments.profiles_mfcl import mfcl_rival_settings, mfcl_settings
from fssl_core.experiments.store import Run
from fssl_core.paths import PROFILES
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.settings import check_choice
from fssl_core.training.averaging import METHODS as AVERAGING
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.modular import ModularSettings
from fssl_core.training.settings import TrainingSettings
from fssl_core.training.split import SplitSettings


@dataclass(frozen=True, kw_only=True)
class Size:
    """A profile's own: whole batches for every client, and rounds for the four layers of layer-wise training."""

    images: dict[str, Any]
    clients: int
    rounds: int
    tuning_rounds: int  # while rates are tuned
    local_epochs: int
    batch: int  # of a client that trains alone
    client_batch: int  # of one that shares a batch with all others
    middle_cut: int
    first_phase: int  # MFCL: passes over the images
    first_batch: int
    second_batch: int
    alone: int  # clients of whom each trains alone, for comparison
    probe_epochs: int
    neighbours: int  # of kNN
    decoder: dict[str, Any] = field(default_factory=dict)  # the attacks, where not as their settings have it
    search: dict[str, Any] = field(default_factory=dict)


_DIGITS = {"dataset": "scattered-digits", "augmentation": "digits", "architecture": "resnet10"}
_CIFAR = {"dataset": "cifar10", "augmentation": "simclr-cifar", "architecture": "resnet18", "width": 64}
_GPU = Size(
    images=_CIFAR, clients=10, rounds=4, tuning_rounds=4, local_epochs=1, batch=100, client_batch=10, middle_cut=9,
    first_phase=1, first_batch=50, second_batch=250, alone=2, probe_epochs=100, neighbours=200,
)  # fmt: skip
SIZES = {
    "smoke": Size(
        images=_DIGITS | {"train_images": 100, "width": 8},
        clients=5, rounds=4, tuning_rounds=4, local_epochs=1, batch=20, client_batch=20, middle_cut=5,
        first_phase=1, first_batch=20, second_batch=50, alone=1, probe_epochs=10, neighbours=20,
        decoder={"attacker_images": 40, "decoder": "res_normN0C8", "epochs": 2, "test_images": 8},
        search={"iterations": 10},
    ),
    "laptop": Size(
        images=_DIGITS | {"train_images": 2000, "width": 16},
        clients=10, rounds=12, tuning_rounds=12, local_epochs=2, batch=40, client_batch=10, middle_cut=5,
        first_phase=3, first_batch=20, second_batch=50, alone=4, probe_epochs=50, neighbours=20,
        decoder={"attacker_images": 40},
    ),
    "workstation": replace(
        _GPU,
        images=_CIFAR | {name: REAL[name] for name in ("train_images", "width")} | {"architecture": "resnet10"},
        rounds=12, batch=50, middle_cut=5, first_phase=2,
    ),
    "gpu": _GPU,
    "paper": replace(_GPU, rounds=40, tuning_rounds=40, local_epochs=5, first_phase=15),
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """What every method gets.

    Args:
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        partition: of the images, one that gives all clients equally many: ``"dirichlet-equal:0.1"``, ``"classes:2"``.
        seed: of the division, the first values and the training.
        rate: factor on each method's base learning rate.
        tuning: whether the rate is being tuned, over the profile's rounds for that.
    """

    profile: str
    partition: str
    seed: int = 0
    rate: float = 1.0
    tuning: bool = False

    def __post_init__(self) -> None:
        check_choice("profile", self.profile, PROFILES)

    @property
    def size(self) -> Size:
        return SIZES[self.profile]

    @property
    def rounds(self) -> int:
        return self.size.tuning_rounds if self.tuning else self.size.rounds

    @property
    def passes(self) -> int:
        """Over each image, by every method."""
        return self.rounds * self.size.local_epochs

    @property
    def common(self) -> dict[str, Any]:
        """Settings of all engines."""
        own = {"clients": self.size.clients, "partition": self.partition, "seed": self.seed, "image_size": None}
        return self.size.images | own | {"norm": "group", "probe_epochs": 0, "selection": "last"}

    @property
    def in_rounds(self) -> dict[str, Any]:
        """Those of the engines that average whole models or layers."""
        s = self.size
        return self.common | {"rounds": self.rounds, "local_epochs": s.local_epochs, "batch": s.batch}

    def at_rate(self, settings: TrainingSettings) -> TrainingSettings:
        """The same training with its learning rates times :attr:`rate`."""
        rates = {name: getattr(settings, name, None) for name in ("learning_rate", "client_learning_rate")}
        return settings.changed(**{name: self.rate * value for name, value in rates.items() if value is not None})


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Args:
        make: the trainings whose mean is the method's result, at the base rate: one, or one for each client alone.
        reference: no choice for a federation without labels: it needs labels, or all images in one place, or none.
    """

    make: Callable[[Problem], Sequence[TrainingSettings]]
    reference: bool = False

    def trainings(self, problem: Problem) -> list[TrainingSettings]:
        return [problem.at_rate(settings) for settings in self.make(problem)]


def averaged(objective: str | dict[str, Any], *, reference: bool = False, **values: Any) -> Method:
    """Federated averaging with a self-supervised objective; ``values`` are its other settings."""
    return Method(
        lambda p: [averaging_settings(p.profile, objective=objective, **(p.in_rounds | values))], reference=reference
    )


def _after_fedavg(p: Problem) -> list[AveragingSettings]:
    """Three rounds of FedAvg first; while its rate is tuned in fewer rounds, as large a share of them."""
    own = AVERAGING["L-DAWA after FedAvg"]
    first = -(-own["fedavg_rounds"] * p.rounds // p.size.rounds)
    return averaged("simclr", **(own | {"fedavg_rounds": first})).make(p)


def _split(method: str, *, middle: bool) -> Method:
    def make(p: Problem) -> list[SplitSettings]:
        own = {"epochs": p.passes, "client_batch": p.size.client_batch, "cut_layer": p.size.middle_cut if middle else 1}
        # MonAcoSFL's experiments have both methods, under one loss.
        return [split_settings(p.profile, method=method, paper="monacosfl", **(p.common | own))]

    return Method(make)


def _layerwise(method: str) -> Method:
    return Method(lambda p: [lwfedssl_settings(p.profile, method=method, ssl_method="MoCoV3", **p.in_rounds)])


def _modular(method: str) -> Method:
    def make(p: Problem) -> list[ModularSettings]:
        s, first = p.size, {name: value for name, value in p.common.items() if name != "norm"}
        first |= {"rounds": s.first_phase, "local_epochs": 1, "batch": s.first_batch}
        second = {name: p.common[name] for name in ("seed", "norm", "probe_epochs")}
        second |= {"batch": s.second_batch, "validate_every": 1}
        settings, epochs = mfcl_settings(p.profile, method=method, phase1=first, **second), p.passes - s.first_phase
        # The profile's warm-up is for its own, longer phase: here it must not be all of a phase that tunes the rate.
        return [settings.changed(epochs=epochs, warmup_epochs=min(settings.warmup_epochs, max(1, epochs // 4)))]

    return Method(make)


def _supervised(method: str) -> Method:
    def make(p: Problem) -> list[TrainingSettings]:
        own = {name: value for name, value in p.in_rounds.items() if name != "dataset"}  # which the profile knows
        return [mfcl_rival_settings(p.profile, method=method, **own)]

    return Method(make, reference=True)


def _alone(p: Problem) -> list[AveragingSettings]:
    parts = [f"part:{client}/{p.size.clients}:{p.partition}" for client in range(p.size.alone)]
    one = p.in_rounds | {"clients": 1}
    return [averaging_settings(p.profile, objective="simclr", **(one | {"partition": part})) for part in parts]


METHODS: dict[str, Method] = {
    "MocoSFL, cut 1": _split("MocoSFL", middle=False),
    "MocoSFL, middle cut": _split("MocoSFL", middle=True),
    "MonAcoSFL, cut 1": _split("MonAcoSFL", middle=False),
    "MonAcoSFL, middle cut": _split("MonAcoSFL", middle=True),
    "FedSimCLR": averaged("simclr"),
    "FL-MoCoV2": averaged("moco-v2"),
    "FedBYOL": averaged("byol"),
    "FedU": averaged("byol", **AVERAGING["FedU"]),
    "FedEMA": averaged("byol", **AVERAGING["FedEMA"]),
    "L-DAWA": averaged("simclr", **AVERAGING["L-DAWA"]),
    "L-DAWA, after FedAvg": Method(_after_fedavg),
    "Orchestra": averaged("orchestra"),
    "FedCA": averaged("fedca"),
    "FedMoCoV3": _layerwise("FedMoCoV3"),
    "LW-FedSSL": _layerwise("LW-FedSSL"),
    "Prog-FedSSL": _layerwise("Prog-FedSSL"),
    "MFCL(BN)": _modular("MFCL(BN)"),
    "MFCL(GN)": _modular("MFCL(GN)"),
    "MFCL(TN)": _modular("MFCL(TN)"),
    "MFCL(TN), views apart": _modular("MFCL(TN), views apart"),
    "untrained": Method(lambda p: [untrained(s) for s in METHODS["FedSimCLR"].make(p)], reference=True),
    "SimCLR": averaged("simclr", clients=1, partition="iid", reference=True),
    "SimCLR, one client's images": Method(_alone, reference=True),
    "FedAvg": _supervised("FedAvg"),
    "FedProx": _supervised("FedProx"),
    "MOON": _supervised("MOON"),
}

_BUILT_IN = dict(METHODS)  # which a file of yours may not replace


def methods_of(names: Sequence[str] = (), own: str | Path = "") -> dict[str, Method]:
    """Rows of the table: those that are named, or all; with ``own``, among those that a file of yours adds, too.

    Raises:
        SettingError: there is no method of that name.
        FsslError: as :func:`add_methods`.
    """
    table = add_methods(own) if own else METHODS
    for name in names:
        check_choice("methods", name, table)
    return {name: table[name] for name in names or table}


def add_methods(path: str | Path) -> dict[str, Method]:
    """Execute a Python file of yours, which puts methods into :data:`METHODS`; again, where it was executed before.

    What it registers is known to this process alone: give ``run_all`` one worker.

    Returns:
        all methods.

    Raises:
        FsslError: there is no such file, it adds no method, or it replaces one of this project.
        Exception: whatever the file raises; :data:`METHODS` is then as it was before, as it is after each error.
    """
    if not Path(path).is_file():
        raise FsslError(f"There is no file {path}: give the Python file that adds your method to METHODS.")
    before = dict(METHODS)
    _become(_BUILT_IN)  # what the file adds is told from these, whatever was added before
    whole = Path(path).absolute()
    name = f"<{whole}>"
    earlier, own = sys.modules.get(name), ModuleType(name)
    sys.modules[name] = own  # it stays: annotations are looked up there
    own.__file__, folder = str(whole), str(whole.parent)
    sys.path.insert(0, folder)  # as `python FILE` has it: the file may import what is beside it
    try:
        exec(compile(whole.read_bytes(), own.__file__, "exec", dont_inherit=True), vars(own))
        added = _added(path)
    except BaseException:
        _become(before)
        sys.modules.pop(name)
        if earlier:
            sys.modules[name] = earlier
        raise
    finally:
        sys.path.remove(folder)
    _become(before | added)
    return METHODS


def _become(methods: dict[str, Method]) -> None:
    METHODS.clear()
    METHODS.update(methods)


def _added(path: str | Path) -> dict[str, Method]:
    """What a file has put into :data:`METHODS`, which held the built-in ones."""
    if replaced := [name for name in _BUILT_IN if METHODS.get(name) is not _BUILT_IN[name]]:
        raise FsslError(f"{path} replaces {', '.join(replaced)}: give your method a name of its own.")
    added = {name: method for name, method in METHODS.items() if name not in _BUILT_IN}
    if strangers := [name for name, method in added.items() if not isinstance(method, Method)]:
        raise FsslError(f"{path}: METHODS[{strangers[0]!r}] is no method: it has to be a Method(...) or averaged(...).")
    if not added:
        raise FsslError(f"{path} adds no method: it has to put one into METHODS of fssl_core.benchmark, by a new name.")
    return added


def passes_over(settings: TrainingSettings) -> float:
    """How often a training sees each of its images; an untrained model sees none.

    Raises:
        SettingError: clients have unequally many images, of which engines leave out more or fewer; or another engine.
    """
    if isinstance(settings, UntrainedSettings):
        return 0.0
    data, first = settings.load_data(), getattr(settings, "phase1", settings)
    sizes = [len(part) for part in first.divide(data)]
    if min(sizes) < max(sizes):
        expected = f"one with equally many images for every client, such as 'dirichlet-equal:0.1', not {min(sizes):,}"
        raise SettingError("partition", first.partition, f"{expected} to {max(sizes):,}")
    return images_seen(settings, data) / sum(sizes)


# ---------------------------------------------------------------- tuning and evaluation

RATES = [1 / 3, 1.0, 3.0]  # the grid, for every method
TUNED_ON = {"partition": "dirichlet-equal:0.3", "seed": 1000, "tuning": True}  # another division, other first values


def chosen_rates(tuning: pd.DataFrame) -> dict[str, float]:
    """The factor of each method whose trainings have the best mean kNN accuracy; of equal ones the smallest.

    Args:
        tuning: a row a training: method, rate, training, and ``knn_accuracy``, the engine's own, on the validation
            share of the test images; not needed where there is one rate. Without it, that of the stored runs is taken.

    Raises:
        DataError: a training is not finished.
    """
    if tuning["rate"].nunique() > 1 and "knn_accuracy" not in tuning:
        runs = [Run(training) for training in tuning["training"]]
        if all(run.finished for run in runs):
            tuning = tuning.assign(knn_accuracy=[run.summary["knn_accuracy"] for run in runs])
        elif not dry_run.estimating():
            raise DataError("The rates are not tuned yet: compute the trainings of the table `tuning` first.")
    if "knn_accuracy" not in tuning:  # there is one rate, or the table is planned: it takes as long at any
        return dict.fromkeys(tuning["method"], tuning["rate"].iloc[0])
    means = tuning.groupby(["method", "rate"])["knn_accuracy"].mean()
    return {method: means[method].idxmax() for method in dict.fromkeys(tuning["method"])}


EVALUATIONS = ("linear probe", "few labels", "kNN", "fine-tuning")


def evaluation(problem: Problem, training: TrainingSettings, name: str) -> TransferSettings:
    """One of :data:`EVALUATIONS` of a training's backbone, all on the same features and on all test images.

    Probes are of standardised features: else a method is ahead because its features are large, and a probe of given
    steps gets further with them. Few labels: a twentieth of each class; fine-tuning as :func:`lwfedssl_evaluation` has
    it, at ``smoke`` and ``laptop`` with a tenth.
    """
    check_choice("evaluation", name, EVALUATIONS)
    if isinstance(training, UntrainedSettings):
        return untrained(evaluation(problem, training.of, name))
    if name == "fine-tuning":
        return lwfedssl_evaluation(problem.profile, training, protocol=name, seed=problem.seed)
    if name == "kNN":
        return KnnSettings(pretraining=training, seed=problem.seed, k=problem.size.neighbours)
    share = 0.05 if name == "few labels" else 1.0
    return ProbeSettings(
        pretraining=training,
        seed=problem.seed,
        epochs=problem.size.probe_epochs,
        label_fraction=share,
        standardised=True,
    )


def attacks(problem: Problem, training: TrainingSettings) -> list[InversionSettings | ReconstructionSettings]:
    """A trained decoder and a search, by a server that has the client's layers, on what clients send of test images.

    None where clients send models only: no attack on those is among this project's.
    """
    target, s = getattr(training, "phase1", training), problem.size
    if not hasattr(target, "client_model"):
        return []
    seed = {"seed": problem.seed}
    return [
        InversionSettings(targets=(target,), **s.decoder | seed),
        ReconstructionSettings(target=target, **s.search | seed),
    ]
