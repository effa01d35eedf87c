"""The models of a federation in bytes: against the matrices and rows of the engines, and at the papers' sizes."""

import pytest
import torch

from fssl_core.costs.federation_memory import federation_memory
from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.errors import SettingError
from fssl_core.experiments import split_settings
from fssl_core.experiments.profiles_mfcl import mfcl_rival_settings
from fssl_core.federation.client_updates import FedEMA
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.rows import Rows
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.modular import ModularSettings
from fssl_core.training.split import SplitTrainer
from tests.training import test_averaging, test_split
from tests.training.test_split import tiny_data

BLANK = ImageSet(torch.zeros(10, 3, 32, 32, dtype=torch.uint8), torch.arange(10))
CIFAR = Dataset("blank", BLANK, BLANK, tuple("abcdefghij"), official=False)
GIB = 2**30


def held(thing) -> tuple[int, int]:
    """Bytes of all client models that an object has, and of those that wait."""
    models = {id(value): value for value in vars(thing).values() if isinstance(value, ClientMatrix | Rows)}.values()
    matrices = [model for model in models if isinstance(model, ClientMatrix)]
    rows = [model for model in models if isinstance(model, Rows)]
    values = [value for model in matrices for value in model.blocks.values()]
    gradients = [model.weights.grad for model in matrices if model.weights.grad is not None]
    waiting = sum(model.clients * model.all_rows()["rows"][0].nbytes for model in rows)
    return sum(value.nbytes for value in [*values, *gradients]) + waiting, waiting


@pytest.mark.parametrize("values", [{}, {"clients_per_epoch": 3}, {"freeze_client": True}])
def test_what_a_split_federation_holds(values):
    settings = test_split.tiny(**values)
    frame = federation_memory(settings, tiny_data())
    total, waiting = held(SplitTrainer(settings, tiny_data()).clients)
    assert frame["bytes"].sum() == total
    assert frame.loc[frame["waits"], "bytes"].sum() == waiting
    assert (waiting > 0) == ("clients_per_epoch" in values)


@pytest.mark.parametrize(
    "values",
    [{}, {"client_update": FedEMA(), "clients_per_round": 2}, {"keep_velocity": True}, {"target_at_start": "copied"}],
)
def test_what_averaging_holds(values):
    settings = test_averaging.tiny("byol", **values)
    frame = federation_memory(settings, tiny_data())
    total, waiting = held(AveragingTrainer(settings, tiny_data()))
    extra = frame.loc[frame["models"] == "models of a round", "bytes"].sum() // settings.sampled
    drift = extra if settings.client_update.follows_training else 0  # FedEMA also has where training began
    assert frame["bytes"].sum() == total - drift
    assert frame.loc[frame["waits"], "bytes"].sum() == waiting


def test_the_largest_federations_of_the_papers_are_as_the_documentation_says():
    def gib(settings, waits):
        frame = federation_memory(settings, CIFAR)
        return frame.loc[frame["waits"] == waits, "bytes"].sum() / GIB

    thousand = split_settings("paper", clients=1000, method="MocoSFL", cut_layer=13)
    deep = split_settings("paper", clients=200, cut_layer=17)
    resnets = mfcl_rival_settings("paper", method="FedEMA").changed(clients=100, architecture="resnet50")
    cases = {thousand: (4.1, 31.0), deep: (16.6, 25.0), resnets: (22.3, 36.3)}
    for settings, (device, waits) in cases.items():
        assert gib(settings, False) == pytest.approx(device, abs=0.05)
        assert gib(settings, True) == pytest.approx(waits, abs=0.05)
    assert gib(resnets.changed(keep_velocity=True), True) == pytest.approx(57.6, abs=0.05)


def test_other_settings_are_refused():
    with pytest.raises(SettingError, match="settings='ModularSettings' cannot be used"):
        federation_memory(ModularSettings(), CIFAR)
