import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import ImageSet
from fssl_core.errors import SettingError
from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.federation.client_updates import FedU
from fssl_core.models.layers import BatchNorm2d, Conv2d
from fssl_core.objectives import SimCLR, Supervised
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.heterofl import HeteroFLSettings, HeteroFLTrainer
from fssl_core.training.split_mix import SplitMixSettings
from tests.training.test_averaging import a_round, assert_same_model, tiny_data, trained
from tests.training.test_averaging import tiny as tiny_averaging

PLAIN = {"shares": (1.0,), "static_batch_norm": False, "mask_classes": False}


def common(**values):
    """Fields of a federation that trains in milliseconds: 48 images of 8 px."""
    fields = {field.name: getattr(tiny_averaging(), field.name) for field in dataclasses.fields(AveragingSettings)}
    fields |= {"objective": Supervised(classes=4), "local_epochs": 1, "selection": "last", "aggregation": "uniform"}
    return fields | {"partition": "dirichlet:0.5:4", "norm": "batch", "probe_epochs": 0} | values


def tiny(**values) -> HeteroFLSettings:
    return HeteroFLSettings(**common(**{"shares": (1.0, 0.5)} | values))


# ---------------------------------------------------------------- the paper's algorithm


def first_channels(value: Tensor, like: Tensor) -> Tensor:
    for dimension, size in enumerate(like.shape):
        value = value.narrow(dimension, 0, size)
    return value


class Scaled(nn.Module):
    """A convolution whose output is divided by the share of the width."""

    def __init__(self, convolution: nn.Module, share: float) -> None:
        super().__init__()
        self.convolution, self.share = convolution, share

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x) / self.share


def with_scalers(model: nn.Module, share: float) -> nn.Module:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Conv2d):
                setattr(parent, name, Scaled(child, share))
    return model


def plain_round(trainer: HeteroFLTrainer, shared: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """Algorithm 1 with modules and a sum over entries: every client in turn, then the average of who holds an entry."""
    s, data = trainer.settings, trainer.data
    models = {share: s.narrowed(share).build_model(data).requires_grad_() for share in s.shares}
    total = {name: torch.zeros_like(value) for name, value in shared.items()}
    count = {name: torch.zeros_like(value) for name, value in shared.items()}
    for client in s.taking_part(number).tolist():
        share = s.share_of(client)
        model = copy.deepcopy(models[share]).train()
        model.load_state_dict({k: first_channels(shared[k], v) for k, v in model.state_dict().items()})
        names = [name for name, _ in model.named_parameters()]
        running = with_scalers(model, share)
        optimizer = torch.optim.SGD(running.parameters(), lr=s.rate(number), momentum=0.9, weight_decay=5e-4)
        classes = data.train.labels[trainer.parts[client]].unique()
        for rows, draws in trainer.batches(client, number):
            view = data.normalise(trainer.augment(data.train.images[rows], draws[:, 0]), torch.float64)
            mask = torch.zeros(4, dtype=torch.float64).index_fill(0, classes, 1)
            optimizer.zero_grad()
            F.cross_entropy(running(view) * mask, data.train.labels[rows]).backward()
            optimizer.step()
        for name, value in zip(names, running.parameters(), strict=True):
            rows = classes if name.startswith("projector") else torch.arange(len(value))
            where = (rows, *(torch.arange(size) for size in value.shape[1:]))
            at = torch.meshgrid(*where, indexing="ij")
            total[name][at] += value.detach()[rows]
            count[name][at] += 1
    return {k: torch.where(count[k] > 0, total[k] / count[k].clamp(min=1), shared[k]) for k in shared}


@pytest.mark.parametrize("values", [{}, {"clients_per_round": 2, "shares": (0.5, 1.0)}])
def test_rounds_are_those_of_the_algorithm(values):
    """Unlike widths, classes that some clients lack, entries that nobody held in a round."""
    trainer = HeteroFLTrainer(tiny(**values), tiny_data())
    assert not trainer.present.all()
    shared = trainer.global_model().state_dict()
    for number in range(2):
        shared = plain_round(trainer, shared, number)
        a_round(trainer)
        for name, value in trainer.global_model().named_parameters():
            torch.testing.assert_close(value, shared[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def test_the_scaler_changes_only_what_epsilon_leaves_of_it():
    on, off = (trained(tiny(rounds=1, scaler=scaler)) for scaler in (True, False))
    assert on.metrics[0]["loss"] != off.metrics[0]["loss"]
    assert on.metrics[0]["loss"] == pytest.approx(off.metrics[0]["loss"], rel=1e-3)


@pytest.mark.parametrize("partition", ["dirichlet:0.5:4", "majority:1.0"])
def test_static_statistics_are_those_of_all_images_of_clients_by_the_global_model(partition):
    trainer = trained(tiny(partition=partition, clients=2))
    model = trainer.global_model()
    theirs = torch.cat(list(trainer.parts)).unique()
    assert (len(theirs) < len(trainer.data.train)) == (partition == "majority:1.0")
    train = ImageSet(trainer.data.train.images[theirs], trainer.data.train.labels[theirs])
    wanted = with_statistics_of(model, train, trainer.data.normalise)
    for layer, other in zip(model.modules(), wanted.modules(), strict=True):
        if isinstance(layer, BatchNorm2d):
            torch.testing.assert_close(layer.running_mean, other.running_mean, rtol=0, atol=1e-12)
            torch.testing.assert_close(layer.running_var, other.running_var, rtol=0, atol=1e-12)
            assert layer.running_var.ne(1).all()


@pytest.mark.parametrize("values", [{}, {"clients": 1, "partition": "iid"}, {"aggregation": "fedavg"}])
def test_with_whole_models_it_is_fedavg_to_rounding(values):
    """Slices are summed in another way than whole tensors, so on some processors their last bits differ."""
    values |= {"rounds": 3}
    fedavg, ours = trained(AveragingSettings(**common(**values))), trained(tiny(**PLAIN, **values))
    assert_same_model(fedavg, ours, tolerance=1e-10)
    assert [*map(pytest.approx, ours.metrics)] == fedavg.metrics
    assert ours.ledger.table().equals(fedavg.ledger.table())


def test_a_client_sends_what_it_holds_and_no_statistics():
    trainer = trained(tiny(rounds=1, precision="float32"))
    table = trainer.ledger.table()
    for client in range(4):
        model = trainer.settings.narrowed(trainer.settings.share_of(client)).build_model(trainer.data)
        size = 4 * sum(value.numel() for value in model.parameters())
        assert table.loc[table.client == client, ["parameters_up", "parameters_down"]].to_numpy().tolist() == [
            [size] * 2
        ]
    assert table.parameters_up.nunique() == 2
    kept = trained(tiny(rounds=1, precision="float32", static_batch_norm=False)).ledger.table()
    assert (kept.parameters_up > table.parameters_up).all()


def test_the_last_channels_are_the_average_of_the_clients_that_have_them():
    trainer = trained(tiny(rounds=1, aggregation="uniform", mask_classes=False))
    wide = [trainer.trained.state_dict(place) for place in (0, 1)]
    for name, value in trainer.shared.parameter_blocks.items():
        if value.dim() == 5 and value.shape[2] > 1:  # convolutions
            half = value.shape[1] // 2
            expected = (wide[0][name][half:] + wide[1][name][half:]) / 2
            torch.testing.assert_close(value[0, half:], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": SimCLR()}, r"objective='simclr' .*Supervised\(\)"),
        ({"shares": (1.0, 0.3)}, r"shares=\(1.0, 0.3\) .*width=64 a multiple of 4 channels"),
        ({"shares": (0.0,)}, "shares=0.0 "),
        ({"shares": ()}, r"shares=\(\) .*at least one share"),
        ({"architecture": "vgg16"}, "architecture='vgg16' .*resnet18"),
        ({"aggregation": "l-dawa"}, "aggregation='l-dawa' .*fedavg, uniform"),
        ({"proximal": 0.1}, "proximal=0.1 "),
        ({"keep_velocity": True}, "keep_velocity=True "),
        ({"client_update": FedU()}, "client_update='fedu' .*replace"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        HeteroFLSettings(**values)


def test_shares_are_not_refused_for_how_numbers_are_rounded():
    for width, share in ((100, 0.28), (200, 0.58)):
        assert HeteroFLSettings(width=width, shares=(1.0, share)).narrowed(share).width == round(width * share)
    SplitMixSettings(width=100, bases=25, shares=(1.0, 0.28))
