"""A loss that compares the images of a batch says nothing of one image: such a batch is refused, not trained on."""

import pytest
import torch

from fssl_core.errors import DataError, SettingError
from fssl_core.objectives import BYOL, OBJECTIVES, BarlowTwins, FedCA, MoCoV2, MoCoV3, SimCLR, Supervised
from fssl_core.objectives.moco_v3 import in_batch_info_nce
from fssl_core.objectives.simclr import nt_xent
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.modular import ModularSettings
from fssl_core.training.split import SplitTrainer
from fssl_core.training.split_learning import SplitLearningTrainer
from tests.training import test_split, test_split_learning
from tests.training.test_averaging import tiny
from tests.training.test_split import tiny_data

COMPARING = (
    SimCLR(projector=(8,)),
    SimCLR(projector=(8,), loss="one-direction"),
    BarlowTwins(projector=(8,)),
    FedCA(projector=(8,)),
    MoCoV3(projector=(8, 8), predictor=(8, 8)),
)
NORMALISING = (MoCoV2(projector=(8, 8)), BYOL(projector=(8, 8), predictor=(8, 8)))  # batch norm in the heads


@pytest.mark.parametrize("objective", [*COMPARING, *NORMALISING])
def test_a_batch_of_one_is_refused(objective):
    with pytest.raises(SettingError, match="batch=1 cannot be used: expected at least 2"):
        tiny(objective=objective, batch=1)


@pytest.mark.parametrize("objective", [*COMPARING, *NORMALISING])
def test_a_client_with_one_image_is_refused(objective):
    settings = tiny(objective=objective, partition="iid", clients=48)
    with pytest.raises(SettingError, match=r"partition='iid' .*every client 2 images .* not 1"):
        AveragingTrainer(settings, tiny_data())


@pytest.mark.parametrize("objective", [Supervised(classes=4), BYOL(projector=(8,), predictor=(8,), head_norm=False)])
def test_one_image_is_enough_where_nothing_is_compared(objective):
    settings = tiny(objective=objective, partition="iid", clients=48, batch=1, norm="group")
    trainer = AveragingTrainer(settings, tiny_data())
    trainer.advance()
    assert trainer.rows[0]["loss"] > 0


def test_a_batch_of_one_is_refused_where_batch_norm_ends_in_maps_of_one_pixel():
    settings = tiny(objective=Supervised(classes=4), batch=1, norm="batch")
    with pytest.raises(SettingError, match="batch=1 cannot be used: expected at least 2"):
        AveragingTrainer(settings, tiny_data())


@pytest.mark.parametrize("values", [{"cut_layer": 9}, {"variant": "SFL-V2"}, {"clients": 1}])
def test_split_training_refuses_it_of_a_client_and_where_the_server_has_one_of_each(values):
    values = {"norm": "batch", "client_batch": 1, "symmetric": False} | values
    with pytest.raises(SettingError, match="client_batch=1 cannot be used: expected at least 2"):
        SplitTrainer(test_split.tiny(**values), tiny_data())
    for more in ({"symmetric": True}, {"norm": "group"}, {"cut_layer": 3, "variant": "SFL-V1", "clients": 2}):
        trainer = SplitTrainer(test_split.tiny(**values | more | {"epochs": 1}), tiny_data(train=12))
        trainer.advance()


@pytest.mark.parametrize(
    "values", [{"cut_layer": 9}, {"variant": "SFL-V2"}, {"clients": 1}, {"clients_per_round": 1}, {"clients": 5}]
)
def test_split_learning_refuses_it_too(values):
    values = {"norm": "batch", "batch": 1} | values
    with pytest.raises(SettingError, match="batch=1 cannot be used: expected at least 2"):
        SplitLearningTrainer(test_split_learning.tiny(**values), tiny_data())
    for more in ({"norm": "group"}, {"cut_layer": 3, "variant": "SFL-V1", "clients": 3, "clients_per_round": None}):
        SplitLearningTrainer(test_split_learning.tiny(**values | more), tiny_data(train=12)).advance()
    with pytest.raises(SettingError, match=r"partition='iid' .* gives every client 2 images, not 1"):
        SplitLearningTrainer(test_split_learning.tiny(**values | {"batch": 2, "clients": 7}), tiny_data(train=8))


def test_losses_refuse_a_single_image():
    one = torch.randn(1, 4)
    for loss in (
        lambda: nt_xent(one, one, 0.5),
        lambda: nt_xent(one, one, 0.5, "one-direction"),
        lambda: in_batch_info_nce(one, one, 0.5),
        lambda: nt_xent(one, one, 0.5, dictionary=torch.empty(0, 4)),
    ):
        with pytest.raises(DataError, match="at least 2 images in a batch, got 1: choose a larger batch"):
            loss()
    assert nt_xent(one, one, 0.5, dictionary=torch.randn(3, 4))[0] > 0  # the dictionary has others
    with pytest.raises(SettingError, match="batch=1"):
        ModularSettings(batch=1)


def test_every_objective_says_how_many_images_a_step_needs():
    needed = {name: kind().smallest_batch for name, kind in OBJECTIVES.items()}
    assert {name for name, count in needed.items() if count == 1} <= {"supervised", "reconstruction", "moon"}
