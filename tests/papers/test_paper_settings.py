"""What the papers state is what the profile ``paper`` runs: the numbers of ``*_settings.yaml`` beside notebooks' runs.

The runs are those that a notebook asks for, found without computing any, so nothing between the settings file and the
engine can say something else.
"""

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from fssl_core.experiments.asked import runs_of
from fssl_core.papers.reference import PAPERS, paper_settings
from fssl_core.settings import Settings

Check = tuple[str, str, Callable[[Any], Any]]  # notebook, kind of settings, what of them a paper states


def of(artifact: str, kind: str, field: str) -> Check:
    """The values of a setting over the runs of a notebook; ``objective.temperature`` is one of settings inside."""
    return artifact, kind, attrgetter(field)


def where(check: Check, **values: Any) -> Check:
    """The same over some of the runs; ``objective__name`` is that of settings inside."""
    artifact, kind, value = check
    wanted = {attrgetter(name.replace("__", ".")): one for name, one in values.items()}

    def chosen(settings: Any) -> Any:
        return value(settings) if all(field(settings) == one for field, one in wanted.items()) else None

    return artifact, kind, chosen


def number_of(artifact: str, kind: str) -> Check:
    """The number in a partition such as ``dirichlet:0.1:32``."""
    return artifact, kind, lambda settings: float(settings.partition.split(":")[1])


SPLIT, AVERAGING, LAYERWISE = "SplitSettings", "AveragingSettings", "LayerwiseSettings"
FINE, PROBE, FIRST, SECOND = "FineTuneSettings", "ProbeSettings", "AutoencoderSettings", "ModularSettings"
STAGED = "lwfedssl/table2", LAYERWISE

STATED: dict[str, dict[str, Check]] = {
    "mocosfl": {
        "data/classes_per_client/CIFAR-10": where(number_of("mocosfl/table1", SPLIT), dataset="cifar10"),
        "data/classes_per_client/CIFAR-100": where(number_of("mocosfl/table1", SPLIT), dataset="cifar100"),
        "data/classes_per_client/ImageNet-12": where(
            number_of("mocosfl/table2", SPLIT), dataset="imagenet12", partition="classes:2"
        ),
        "ssl/memory/size": of("mocosfl/table1", SPLIT, "queue_size"),
        "federation/cross_silo/clients": of("mocosfl/table1", SPLIT, "clients"),
        "federation/cross_client/clients": of("mocosfl/table2", SPLIT, "clients"),
        "federation/cross_client/client_batch": of("mocosfl/table2", SPLIT, "client_batch"),
        "federation/cross_client/steps_between_syncs": where(
            of("mocosfl/table2", SPLIT, "sync_every"), dataset="cifar10"
        ),
        "optimisation/epochs": where(of("mocosfl/table1", SPLIT, "epochs"), clients=5),
        "optimisation/learning_rate": of("mocosfl/table1", SPLIT, "learning_rate"),
        "optimisation/momentum": of("mocosfl/table1", SPLIT, "momentum"),
        "optimisation/weight_decay": of("mocosfl/table1", SPLIT, "weight_decay"),
        "evaluation/linear_probe/epochs": of("mocosfl/table1", SPLIT, "probe_epochs"),
        "evaluation/semi_supervised/labels": of("mocosfl/table4", "SemiSupervisedSettings", "label_fraction"),
    },
    "monacosfl": {
        "data/classes_per_client/CIFAR-10": where(number_of("monacosfl/fig6", SPLIT), dataset="cifar10"),
        "data/classes_per_client/CIFAR-100": where(number_of("monacosfl/fig6", SPLIT), dataset="cifar100"),
        "ssl/projector/hidden_size": of("monacosfl/fig6", SPLIT, "projector_hidden"),
        "ssl/memory_size": of("monacosfl/fig6", SPLIT, "queue_size"),
        "federation/client_batch_size/5": where(of("monacosfl/fig6", SPLIT, "client_batch"), clients=5),
        "federation/client_batch_size/200": where(of("monacosfl/fig6", SPLIT, "client_batch"), clients=200),
        "federation/clients_per_epoch/5": where(of("monacosfl/fig6", SPLIT, "clients_per_epoch"), clients=5),
        "federation/clients_per_epoch/200": where(of("monacosfl/fig6", SPLIT, "clients_per_epoch"), clients=200),
        **{
            f"federation/images_between_syncs_per_client/{clients}": where(
                ("monacosfl/fig6", SPLIT, lambda s: s.client_batch * s.sync_every), clients=clients
            )
            for clients in (5, 20, 200)
        },
        "optimisation/epochs": where(of("monacosfl/fig6", SPLIT, "epochs"), clients=5),
        "optimisation/learning_rate": of("monacosfl/fig6", SPLIT, "learning_rate"),
        "optimisation/momentum": of("monacosfl/fig6", SPLIT, "momentum"),
        "optimisation/weight_decay": of("monacosfl/fig6", SPLIT, "weight_decay"),
        "evaluation/linear_probe/epochs": of("monacosfl/fig6", SPLIT, "probe_epochs"),
        "attack/learning_rate": of("monacosfl/fig8", "InversionSettings", "learning_rate"),
        "attack/epochs": of("monacosfl/fig8", "InversionSettings", "epochs"),
        "attack/batch_size": of("monacosfl/fig8", "InversionSettings", "batch"),
        "alignment_metric/figure_setting/clients": of("monacosfl/fig9", SPLIT, "clients"),
        "alignment_metric/figure_setting/cut_layer": of("monacosfl/fig9", SPLIT, "cut_layer"),
        "alignment_metric/figure_setting/steps_between_syncs": (
            "monacosfl/fig9",
            SPLIT,
            lambda s: s.sync_every if s.sync_every != 25 else None,  # ours beside the paper's
        ),
    },
    "ldawa": {
        "data/alpha_main": number_of("ldawa/table2", AVERAGING),
        "data/alpha_sweep": number_of("ldawa/table4", AVERAGING),
        "data/shards/cross_silo": of("ldawa/table2", AVERAGING, "clients"),
        "data/shards/cross_device": of("ldawa/table6", AVERAGING, "clients"),
        "local_training/batch_size": of("ldawa/table2", AVERAGING, "batch"),
        "local_training/learning_rate": of("ldawa/table2", AVERAGING, "learning_rate"),
        "local_training/weight_decay": of("ldawa/table2", AVERAGING, "weight_decay"),
        "local_training/momentum": of("ldawa/table2", AVERAGING, "momentum"),
        "local_training/local_epochs_default": of("ldawa/table2", AVERAGING, "local_epochs"),
        "local_training/local_epochs_tested": of("ldawa/table1", AVERAGING, "local_epochs"),
        "federation/cross_silo/clients": of("ldawa/table2", AVERAGING, "clients"),
        "federation/cross_silo/clients_per_round": (
            "ldawa/table2",
            AVERAGING,
            lambda s: s.clients_per_round or s.clients,
        ),
        "federation/cross_silo/rounds": of("ldawa/table2", AVERAGING, "rounds"),
        "federation/cross_device/clients": of("ldawa/table6", AVERAGING, "clients"),
        "federation/cross_device/clients_per_round": of("ldawa/table6", AVERAGING, "clients_per_round"),
        "federation/cross_device/rounds": of("ldawa/table6", AVERAGING, "rounds"),
        "federation/ablation_table1/clients": of("ldawa/table1", AVERAGING, "clients"),
        "federation/ablation_table1/rounds": of("ldawa/table1", AVERAGING, "rounds"),
        "federation/ablation_table1/alpha": number_of("ldawa/table1", AVERAGING),
        "evaluation/linear_probe/epochs": of("ldawa/table2", PROBE, "epochs"),
        "evaluation/semi_supervised/label_fractions": (
            "ldawa/table2",
            PROBE,
            lambda s: s.label_fraction if s.label_fraction < 1 else None,
        ),
    },
    "lwfedssl": {
        "model/projection_head/hidden": (
            *STAGED,
            lambda s: s.objective.projector[0] if s.objective.name == "moco-v3" else None,
        ),
        "model/projection_head/layers": (*STAGED, lambda s: len(s.objective.projector)),
        "model/projection_head/output": (*STAGED, lambda s: s.objective.projector[-1]),
        "model/prediction_head/layers": (*STAGED, lambda s: len(s.objective.predictor) or None),
        "model/prediction_head/hidden": (*STAGED, lambda s: (s.objective.predictor or (None,))[0]),
        "model/prediction_head/output": (*STAGED, lambda s: (s.objective.predictor or (None,))[-1]),
        "ssl/temperature": (*STAGED, lambda s: getattr(s.objective, "temperature", None)),
        "ssl/momentum": (*STAGED, lambda s: s.objective.ema_decay if s.objective.predictor else None),
        "federation/clients_default": where(of(*STAGED, "clients"), scheme="layer-wise"),
        "federation/rounds": of(*STAGED, "rounds"),
        "federation/rounds_resnet/total": where(
            of("lwfedssl/table4", LAYERWISE, "rounds"), scheme="progressive", dataset="coco"
        ),
        "federation/local_epochs": of(*STAGED, "local_epochs"),
        "federation/partial_participation/table7/clients": (
            "lwfedssl/table7",
            LAYERWISE,
            lambda s: s.clients if s.clients_per_round else None,
        ),
        "federation/partial_participation/table7/selected_per_round": of(
            "lwfedssl/table7", LAYERWISE, "clients_per_round"
        ),
        "federation/partial_participation/table8/clients": of("lwfedssl/table8", LAYERWISE, "clients"),
        "federation/partial_participation/table8/client_dropout_probability": (
            "lwfedssl/table8",
            LAYERWISE,
            lambda s: s.client_dropout or None,
        ),
        "optimisation/effective_learning_rate_batch_512": of(*STAGED, "learning_rate"),
        "optimisation/effective_learning_rate_batch_128": of("lwfedssl/table9", LAYERWISE, "learning_rate"),
        "optimisation/weight_decay": of(*STAGED, "weight_decay"),
        "optimisation/batch_size": of(*STAGED, "batch"),
        "data/pretraining/image_size": of(*STAGED, "image_size"),
        "data/medical/image_size": of("lwfedssl/table9", LAYERWISE, "image_size"),
        "data/medical/batch_size": of("lwfedssl/table9", LAYERWISE, "batch"),
        "data/medical/beta": number_of("lwfedssl/table9", LAYERWISE),
        "data/heterogeneity_ablation/beta": number_of("lwfedssl/table13", LAYERWISE),
        "data/batch_size_ablation/batch_sizes": of("lwfedssl/table12", LAYERWISE, "batch"),
        "evaluation/epochs": of("lwfedssl/table2", FINE, "epochs"),
        "evaluation/warmup_epochs": of("lwfedssl/table2", FINE, "warmup_epochs"),
        "evaluation/batch_size": of("lwfedssl/table2", FINE, "batch"),
        "evaluation/base_learning_rate": of("lwfedssl/table2", FINE, "base_learning_rate"),
        "evaluation/weight_decay": of("lwfedssl/table2", FINE, "weight_decay"),
    },
    "mfcl": {
        "data/clients/CIFAR-10": where(of("mfcl/table2", FIRST, "clients"), dataset="cifar10"),
        "data/clients/CIFAR-100": where(of("mfcl/table2", FIRST, "clients"), dataset="cifar100"),
        "data/clients/Tiny ImageNet": where(of("mfcl/table2", FIRST, "clients"), dataset="tiny-imagenet-200"),
        "data/xi_main": number_of("mfcl/table2", FIRST),
        "data/fedema_setting/clients": of("mfcl/table7", FIRST, "clients"),
        "data/saliency_setting/clients": of("mfcl/fig4", FIRST, "clients"),
        "data/tsne_setting/clients": of("mfcl/fig9", FIRST, "clients"),
        "data/tsne_setting/classes_per_client": number_of("mfcl/fig9", FIRST),
        "phase1/client_batch_size_k": of("mfcl/table2", FIRST, "batch"),
        "phase1/batch_ablation_k": of("mfcl/table16", FIRST, "batch"),
        "phase1/learning_rate/CIFAR": where(of("mfcl/table2", FIRST, "learning_rate"), dataset="cifar10"),
        "phase1/learning_rate/Tiny ImageNet": where(
            of("mfcl/table2", FIRST, "learning_rate"), dataset="tiny-imagenet-200"
        ),
        "phase1/rounds": of("mfcl/table2", FIRST, "rounds"),
        "phase2/epochs/CIFAR": where(of("mfcl/table2", SECOND, "epochs"), phase1__dataset="cifar10"),
        "phase2/epochs/Tiny ImageNet": where(of("mfcl/table2", SECOND, "epochs"), phase1__dataset="tiny-imagenet-200"),
        "twin_norm/channels_per_group_ablation": of("mfcl/table17", FIRST, "channels_per_group"),
        "baselines/rounds/FedEMA": where(of("mfcl/table2", AVERAGING, "rounds"), client_update__name="fedema"),
        "baselines/rounds/FedSimCLR": where(of("mfcl/table2", AVERAGING, "rounds"), objective__name="simclr"),
        "baselines/rounds/MFCL": of("mfcl/table2", FIRST, "rounds"),
    },
}
ELSEWHERE = {  # numbers that are no setting of a run, by where they are tested or what they follow from
    "mocosfl": {
        "federation/cross_silo/sync_per_epoch": "a profile's 50 steps, of 10,000 or 2,500 images a client",
        "evaluation/linear_probe/batch_size": "constants of the probe (tests/evaluation)",
        "evaluation/linear_probe/learning_rate": "constants of the probe (tests/evaluation)",
        "analysis/quoted_costs": "costs (tests/costs, mocosfl/fig3)",
    },
    "monacosfl": {
        "ssl/projector/layers": "the projector has a hidden layer, so two (tests/models)",
        "federation/client_counts": "the clients of the fields below",
        "federation/sync_per_epoch": "images between syncs, of 10,000, 2,500 and 250 a client",
        "evaluation/linear_probe/batch_size": "constants of the probe (tests/evaluation)",
        "evaluation/linear_probe/learning_rate": "constants of the probe (tests/evaluation)",
        "overhead_figure": "costs (tests/costs, monacosfl/fig3)",
        "alignment_metric/figure_setting/steps_shown": "the figure's axis; ours has 12 epochs of 125 steps",
    },
    "ldawa": {
        "evaluation/linear_probe/batch_size": "constants of the probe (tests/evaluation)",
        "evaluation/linear_probe/momentum": "constants of the probe (tests/evaluation)",
        "evaluation/linear_probe/learning_rate": "constants of the probe (tests/evaluation)",
    },
    "lwfedssl": {
        "model/encoder/blocks": "of vit-tiny (tests/models)",
        "model/encoder_alternative/stages": "of a ResNet (tests/models)",
        "staged_training": "stages of one layer unless a run says otherwise (tests/federation)",
        "federation/rounds_per_stage": "180 rounds of 12 stages",
        "federation/rounds_resnet/per_stage": "120 rounds of 4 stages",
        "federation/rounds_resnet/stages": "of a ResNet (tests/models)",
        "optimisation/base_learning_rate": "the rate at a batch of 256, as the effective ones follow from it",
        "data/pretraining/patch_size": "of vit-tiny at 32 pixels (tests/models)",
        "data/downstream_image_size": "transfers have the pre-training's size (tests/evaluation)",
        "data/medical/patch_size": "of vit-tiny at 64 pixels (tests/models)",
        "data/input_ablation": "patches of the sizes in lwfedssl/table11 (tests/models)",
    },
    "mfcl": {
        "data/samples_per_client": "50,000 and 100,000 images over equal clients (tests/data)",
        "data/xi_appendix": "mfcl/table14 has those that mfcl/table2 has not",
        "data/saliency_setting/samples": "a partition's share of 5,000 images (tests/data)",
        "phase1/views_per_sample": "of the objective (tests/training)",
        "resources": "costs (tests/costs)",
    },
}


def numbers(tree: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, Any]]:
    """The numbers in a tree of settings, and lists of such, by path."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from numbers(value, (*path, str(name)))
    elif any(type(value) in (int, float) for value in (tree if isinstance(tree, list) else [tree])):
        yield "/".join(path), tree


@cache
def asked(artifact: str) -> tuple[Settings, ...]:
    return tuple(runs_of([artifact], "paper").values())


CASES = [(paper, path) for paper, checks in STATED.items() for path in checks]


@pytest.mark.parametrize(("paper", "path"), CASES, ids=["/".join(case) for case in CASES])
def test_the_paper_profile_runs_what_the_paper_states(paper, path):
    artifact, kind, value = STATED[paper][path]
    stated = dict(numbers(paper_settings(paper)["stated"]))[path]
    runs = [run for run in asked(artifact) if type(run).__name__ == kind and own_data(run)]
    found = {value(run) for run in runs} - {None}
    assert found == set(stated if isinstance(stated, list) else [stated])


def own_data(run: Settings) -> bool:
    """Not a demonstration on digits that a notebook shows at every profile."""
    return not any("digits" in name for name in run.data_sets)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_number_that_a_paper_states_is_compared(paper):
    known = {*STATED[paper], *ELSEWHERE[paper]}
    stated = [path for path, _ in numbers(paper_settings(paper)["stated"])]
    missing = [path for path in stated if not any(path == one or path.startswith(f"{one}/") for one in known)]
    assert not missing
    assert not [one for one in known if not any(path == one or path.startswith(f"{one}/") for path in stated)]
