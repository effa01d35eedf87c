"""Every engine, objective, rule and attack at a tiny size: 24 images that a small network can tell apart."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from fssl_core.data.datasets import Dataset, ImageSet, Pixels
from fssl_core.federation.client_updates import EUC, FedEMA, FedU
from fssl_core.objectives import BYOL, BarlowTwins, FedCA, MoCoV2, MoCoV3, Orchestra, SimCLR, SimSiam, Supervised
from fssl_core.objectives.moon import Moon
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.featarc import FeatArcSettings
from fssl_core.training.fedpac import FedPacSettings
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings, ModularTrainer
from fssl_core.training.moon import MoonSettings
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_mix import SplitMixSettings
from fssl_core.training.trainer import Trainer
from tests.training import test_averaging, test_layerwise, test_modular, test_split, test_split_learning

HEADS: dict[str, Any] = {"projector": (16, 8)}
PREDICTING: dict[str, Any] = HEADS | {"predictor": (16, 8)}
OBJECTIVES = {
    "MoCo-v2": MoCoV2(**HEADS, queue_size=20),
    "MoCo-v2, symmetric, aged": MoCoV2(**HEADS, queue_size=20, symmetric=True, negatives="aged", age=1),
    "BYOL": BYOL(**PREDICTING),
    "SimCLR": SimCLR(projector=(8,)),
    "SimCLR, one direction": SimCLR(projector=(8,), loss="one-direction"),
    "Barlow Twins": BarlowTwins(projector=(8,)),
    "SimSiam": SimSiam(**PREDICTING),
    "MoCo-v3": MoCoV3(**PREDICTING),
    "FedCA": FedCA(projector=(8,)),
    "Orchestra": Orchestra(**HEADS, local_clusters=3, global_clusters=5, memory_size=12),
    "supervised": Supervised(classes=4),
}


def patterns(train: int = 24, test: int = 8, size: int = 8) -> Dataset:
    """Four patterns with a little noise, in turn."""
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    shapes = torch.stack([row < size // 2, column < size // 2, (row + column) % 2 > 0, (row // 2) % 2 > 0]).float()

    def images(count: int, seed: int) -> ImageSet:
        labels = torch.arange(count) % len(shapes)
        noise = torch.randn(count, 1, size, size, generator=torch.Generator().manual_seed(seed))
        pixels = (60 + 120 * shapes[labels][:, None] + 10 * noise).clamp(0, 255)
        return ImageSet(pixels.to(torch.uint8), labels)

    return Dataset("tiny", images(train, 1), images(test, 2), ("a", "b", "c", "d"), official=False)


def split(**values: Any) -> SplitSettings:
    return test_split.tiny(
        **{"clients": 2, "client_batch": 6, "client_learning_rate": values.get("learning_rate", 0.05)} | values
    )


def averaging(objective: Any, **values: Any) -> AveragingSettings:
    return test_averaging.tiny(**{"objective": objective, "clients": 2, "local_epochs": 1, "batch": 12} | values)


def layerwise(**values: Any) -> LayerwiseSettings:
    return test_layerwise.tiny(**{"objective": MoCoV3(**PREDICTING), "clients": 2, "rounds": 4, "batch": 12} | values)


def autoencoder(**values: Any) -> AutoencoderSettings:
    return test_modular.phase1(**{"clients": 2, "partition": "iid", "batch": 12} | values)


def of_averaging(kind: type[AveragingSettings], objective: Any, **values: Any) -> AveragingSettings:
    given = averaging(objective)
    alike = {field.name: getattr(given, field.name) for field in dataclasses.fields(given) if field.name != "objective"}
    return kind(**alike | {"objective": objective, "selection": "last"} | values)


ENGINES: dict[str, Callable[..., Any]] = {
    "split, MonAcoSFL": split,
    "split, MocoSFL, batch norm": lambda **v: split(method="MocoSFL", norm="batch", swap_at="server", **v),
    "split, one server update a client": lambda **v: split(variant="SFL-V2", swap_at="server-sum", **v),
    "split, a sample of the clients, in a loop": lambda **v: split(
        clients=3, client_batch=4, clients_per_epoch=2, backend="loop", **v
    ),
    "split, measured at every step": lambda **v: split(log_steps=True, **v),
    "split, clients frozen": lambda **v: split(freeze_client=True, **v),
    "split, MobileNetV2": lambda **v: split(architecture="mobilenetv2", cut_layer=5, **v),
    **{name: lambda o=objective, **v: averaging(o, **v) for name, objective in OBJECTIVES.items()},
    "averaging, group norm": lambda **v: averaging(SimCLR(projector=(8,)), norm="group", **v),
    "averaging, L-DAWA by modules": lambda **v: averaging(SimCLR(), aggregation="l-dawa", layers="module", **v),
    "averaging, M-DAWA": lambda **v: averaging(SimCLR(), aggregation="m-dawa", **v),
    "averaging, by loss": lambda **v: averaging(SimCLR(), aggregation="loss", **v),
    "averaging, FedProx": lambda **v: averaging(SimCLR(), proximal=0.1, clients=3, batch=8, clients_per_round=2, **v),
    "averaging, FedU": lambda **v: averaging(BYOL(**PREDICTING), client_update=FedU(), **v),
    "averaging, FedEMA": lambda **v: averaging(BYOL(**PREDICTING), client_update=FedEMA(), **v),
    "averaging, EUC": lambda **v: averaging(SimCLR(), client_update=EUC(), keep_every=1, probe_every=1, **v),
    "averaging, velocity kept": lambda **v: averaging(MoCoV2(**HEADS), keep_velocity=True, **v),
    "averaging, a faulty client": lambda **v: averaging(
        SimCLR(), clients=3, batch=8, faulty_share=0.34, fault="noise", aggregation="median", **v
    ),
    "MOON": lambda **v: of_averaging(MoonSettings, Moon(**HEADS, classes=4), **v),
    "FeatArc": lambda **v: of_averaging(
        FeatArcSettings, SimCLR(projector=(8,)), alignment=1.0, groups=2, group_from=1, **v
    ),
    "HeteroFL": lambda **v: of_averaging(HeteroFLSettings, Supervised(classes=4), shares=(1.0, 0.5), **v),
    "Split-Mix": lambda **v: of_averaging(SplitMixSettings, Supervised(classes=4), shares=(1.0, 0.5), bases=2, **v),
    "FedPAC": lambda **v: of_averaging(FedPacSettings, Supervised(classes=4), **v),
    "layer-wise, transformer": layerwise,
    "layer-wise, ResNet": lambda **v: layerwise(architecture="resnet10", norm="batch", width=8, **v),
    "progressive": lambda **v: layerwise(scheme="progressive", most_layers=1, client_dropout=0.2, **v),
    "end-to-end": lambda **v: layerwise(scheme="end-to-end", optimizer="sgd", **v),
    "layer-wise, aligned": lambda **v: layerwise(representation_alignment=0.5, **v),
    "split learning, local losses": lambda **v: test_split_learning.tiny(clients=2, **v),
    "split learning, the server's": lambda **v: test_split_learning.tiny(
        clients=2, gradients="server", variant="SFL-V2", **v
    ),
    "autoencoder, twin norm": lambda **v: autoencoder(norm="twin", **v),
    "autoencoder, batch norm": lambda **v: autoencoder(norm="batch", **v),
    "modular": lambda **v: test_modular.phase2(autoencoder(norm="twin", **v), epochs=2, pairs=2, **v),
    "modular, DataMix": lambda **v: test_modular.phase2(autoencoder(norm="group", **v), epochs=2, datamix=2, **v),
}


def trainer(name: str, device: torch.device | None = None, **values: Any) -> Trainer:
    """What trains an engine of ``ENGINES`` on :func:`patterns`."""
    settings, data = ENGINES[name](**values), patterns()
    if isinstance(settings, AutoencoderSettings | ModularSettings):
        data = Pixels.of(data)
    if device is not None:
        data = dataclasses.replace(data, train=data.train.to(device), test=data.test.to(device))
    if isinstance(settings, ModularSettings):
        return ModularTrainer(settings, data, settings.phase1.build_model(data).client_module)
    return settings.trainer(data, None)


def train(ours: Trainer) -> None:
    """To the end."""
    while ours.finished < ours.total:
        ours.advance()
