"""Runs and printed cells under one set of columns, so that they can be matched, judged and drawn together.

For papers whose tables compare federated methods by what a probe, or fine-tuning, finds on their models.
"""

import pandas as pd

from fssl_core.data.partitions import DIRICHLET, Scheme, parsed
from fssl_core.experiments.profiles_ldawa import SSL_METHODS
from fssl_core.federation.schedule import KINDS
from fssl_core.models.vit import VITS
from fssl_core.training.averaging import method_name

_SSL_NAMES = {name: printed for printed, name in SSL_METHODS.items()}


def _pretraining(results: pd.DataFrame) -> pd.DataFrame:
    """Settings of the pre-training that an evaluation stands on."""
    return results.filter(like="pretraining.").rename(columns=lambda name: name.removeprefix("pretraining."))


def _concentration(partition: pd.Series) -> pd.Series:
    """0.1 of ``"dirichlet:0.1:8"``; missing of other partitions."""
    schemes = map(parsed, partition)
    return pd.Series([of.number if of.kind in DIRICHLET else None for of in schemes], partition.index, dtype=float)


def _without_least(partition: str) -> str:
    """``"dirichlet:0.1"`` of ``"dirichlet:0.10:8"``, as :func:`printed_cells` writes it."""
    scheme = parsed(partition)
    return str(Scheme(scheme.kind, scheme.number)) if scheme.kind in DIRICHLET else partition


def _column(results: pd.DataFrame, name: str) -> pd.Series:
    """Missing values where there is no such column."""
    return results.get(name, pd.Series(index=results.index, dtype=float))


def averaging_cells(results: pd.DataFrame) -> pd.DataFrame:
    """Linear probes of federated averaging, a row each.

    Args:
        results: what ``run_all`` or ``run_beside_untrained`` gave for ``ProbeSettings`` on top of
            ``AveragingSettings``.

    Returns:
        The columns method and ssl_method (as the tables print them), dataset (of the pre-training), eval_dataset,
        partition, alpha (None where it is not Dirichlet's), local_epochs, rounds, clients, label_fraction, seed,
        protocol, accuracy, untrained and chance (fractions; the last two missing without ``run_beside_untrained``),
        official_data and key.
    """
    pretraining = _pretraining(results)
    alpha = _concentration(pretraining["partition"])
    rules = pretraining[["aggregation", "client_update.name", "proximal", "fedavg_rounds"]].itertuples(
        index=False, name=None
    )
    return pd.DataFrame(
        {
            "method": [method_name(*rule) for rule in rules],
            "ssl_method": pretraining["objective.name"].replace(_SSL_NAMES),
            "dataset": pretraining["dataset"],
            "eval_dataset": results["dataset"].fillna(pretraining["dataset"]),
            "partition": [_without_least(scheme) for scheme in pretraining["partition"]],
            "alpha": alpha,
            **pretraining[["local_epochs", "rounds", "clients"]],
            "label_fraction": results["label_fraction"],
            "seed": pretraining["seed"],
            "protocol": "linear probe, " + results["features"],
            "accuracy": results["linear_probe_accuracy"],
            "untrained": _column(results, "untrained_linear_probe_accuracy"),
            "chance": _column(results, "chance"),
            **results[["official_data", "key"]],
        }
    )


# ------------------------------------------------------------------------------------------------------- LW-FedSSL

_LAYERWISE_SSL = {"moco-v3": "MoCoV3", "byol": "BYOL", "simclr": "SimCLR", "fedca": "SimCLR"}
_STAGED = dict(zip(KINDS[1:], ("LW-FedSSL", "Prog-FedSSL"), strict=True))
RESNET_LAYERS = 4
PER_CLASS = "medmnist/|caltech"  # data sets whose accuracy the paper averages over classes


def layerwise_cells(results: pd.DataFrame) -> pd.DataFrame:
    """Fine-tuning and linear probes of layer-wise, progressive and end-to-end training, a row each.

    Args:
        results: what ``run_all`` or ``run_beside_untrained`` gave for ``FineTuneSettings`` and ``ProbeSettings`` on
            top of ``LayerwiseSettings``.

    Returns:
        The columns method and ssl_method (as the tables print them: centralised training has its SSL method's name),
        dataset (of the pre-training), eval_dataset, protocol, label_fraction, accuracy (a fraction; by fine-tuning on
        MedMNIST and Caltech-101 the mean over classes), untrained (measured in the same way) and chance (both missing
        without ``run_beside_untrained``; from scratch, chance is all that there is to beat), precision, recall and f1
        (of fine-tuning: means over test batches, see :mod:`fssl_core.evaluation.metrics`), architecture,
        layers_per_stage, add_on, clients, participating, dropout_probability, image_size, batch_size, partition, beta,
        rounds, seed, official_data and key. What does not apply is missing.
    """
    pretraining = _pretraining(results)
    missing = pd.Series(pd.NA, index=results.index)
    tuned = results.get("fine_tune_accuracy", missing).notna()
    scratch = results.get("scratch", missing).fillna(False).astype(bool)
    eval_dataset = results["dataset"].fillna(pretraining["dataset"])
    per_class = eval_dataset.str.contains(PER_CLASS)

    def measured(prefix: str) -> pd.Series:
        probed, whole, by_class = (_column(results, prefix + name) for name in _LAYERWISE_MEASURES)
        return probed.where(~tuned, whole.where(~per_class, by_class)).astype(float)

    chance = _column(results, "chance")
    staged = pretraining["scheme"] != KINDS[0]
    layers = pretraining["architecture"].map(VITS).fillna(RESNET_LAYERS)
    plain = pd.DataFrame(
        {
            "method": pretraining.apply(_layerwise_method, axis=1).where(~scratch, "Scratch"),
            "ssl_method": pretraining["objective.name"].map(_LAYERWISE_SSL).where(~scratch, "none"),
            "dataset": pretraining["dataset"].where(~scratch),
            "eval_dataset": eval_dataset,
            "protocol": tuned.map({True: "fine-tuning", False: "linear probe"}),
            "label_fraction": results["label_fraction"],
            "accuracy": measured(""),
            "untrained": measured("untrained_").mask(scratch, chance),
            "chance": chance,
            **{name: results.get(f"fine_tune_batch_{name}", missing) for name in ("precision", "recall", "f1")},
            "architecture": pretraining["architecture"],
            "layers_per_stage": (layers / pretraining["stages"].fillna(layers)).where(staged),
            "add_on": pretraining.apply(_add_on, axis=1),
            "clients": pretraining["clients"],
            "participating": pretraining["clients_per_round"],
            "dropout_probability": pretraining["client_dropout"].where(pretraining["client_dropout"] > 0),
            "image_size": pd.to_numeric(pretraining["image_size"]),
            "batch_size": pretraining["batch"],
            "partition": pretraining["partition"],
            "beta": _concentration(pretraining["partition"]),
            **pretraining[["rounds", "seed"]],
            **results[["official_data", "key"]],
        }
    )
    return plain.infer_objects()


_LAYERWISE_MEASURES = ("linear_probe_accuracy", "fine_tune_accuracy", "fine_tune_mean_per_class_accuracy")


def _layerwise_method(settings: pd.Series) -> str:
    ssl_method = _LAYERWISE_SSL[settings["objective.name"]]
    if settings["scheme"] in _STAGED:
        return _STAGED[settings["scheme"]]
    if settings["clients"] == 1:
        return ssl_method
    if settings["objective.name"] == "fedca":
        return "FedCA"
    rule = method_name(settings["aggregation"], settings["client_update.name"])
    return f"Fed{ssl_method}" if rule == "FedAvg" else rule


def _add_on(settings: pd.Series) -> str:
    used = {
        "depth dropout": pd.notna(settings["most_layers"]),
        "proximal alignment": settings["proximal"] > 0,
        "representation alignment": settings["representation_alignment"] > 0,
    }
    return ", ".join(name for name, on in used.items() if on) or "none"


# ------------------------------------------------------------------------------------------------------------ MFCL


def modular_cells(results: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """Runs of MFCL's tables, a row each and protocol.

    Args:
        results: what ``run_all`` or ``run_beside_untrained`` gave for ``ModularSettings`` and for the settings of
            rivals.
        methods: the printed name of each row, such as ``"MFCL(TN)"`` or ``"FedAvg"``.

    Returns:
        The columns method, dataset, xi, partition, clients, architecture, cut, K, channels_per_group, missing, twins,
        datamix (1: mixtures are sent), protocol, accuracy, untrained and chance (fractions; the last two missing
        without ``run_beside_untrained``), seed, official_data and key. MFCL has two rows
        a run: ``"linear evaluation"`` stands on the projection layers, as in the paper, ``"features"`` on what goes
        into them, as a rival's linear probe does. A supervised method's accuracy is that of its own classifier, and
        stands under both protocols.
    """
    first = "phase1."
    missing = pd.Series(pd.NA, index=results.index)

    def either(name: str) -> pd.Series:
        return results.get(first + name, missing).fillna(results.get(name, missing))

    of_mfcl = results.get(first + "cut", missing).notna()
    plain = pd.DataFrame(
        {
            "method": methods,
            "dataset": either("dataset"),
            "xi": _concentration(either("partition")),
            "partition": either("partition"),
            "clients": either("clients"),
            "architecture": either("architecture"),
            "cut": results.get(first + "cut", missing),
            "K": either("batch"),
            "channels_per_group": results.get(first + "channels_per_group", missing),
            "missing": results.get("missing", missing).where(of_mfcl),
            "twins": results.get("twins", missing).where(of_mfcl),
            "datamix": (results.get("datamix", missing) > 1).where(of_mfcl).astype("Float64"),
            "chance": _column(results, "chance"),
            "seed": results["seed"],
            **results[["official_data", "key"]],
        }
    )

    def measured(prefix: str, of_modular: str) -> pd.Series:
        names = ("test_accuracy", "linear_probe_accuracy", of_modular)
        tested, linear, values = (_column(results, prefix + name) for name in names)
        return tested.fillna(values.where(of_mfcl, linear))

    protocols = {"linear evaluation": "linear_probe_accuracy", "features": "features_probe_accuracy"}
    rows = [
        plain.assign(protocol=protocol, accuracy=measured("", name), untrained=measured("untrained_", name))
        for protocol, name in protocols.items()
    ]
    table = pd.concat(rows, ignore_index=True).infer_objects()
    return table.astype({"accuracy": float, "K": "Int64", "clients": "Int64"}).dropna(subset="accuracy")
