"""What holds for every objective that is registered."""

import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone
from fssl_core.objectives import OBJECTIVES, MoCoV2, MoCoV3, SimCLR
from fssl_core.random import generator
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.split import SplitSettings
from tests.objectives.learners import Client, small, two_views

NAMES = list(OBJECTIVES)


@pytest.mark.parametrize("name", NAMES)
def test_an_objective_has_the_name_that_it_is_found_by(name):
    assert OBJECTIVES[name]().name == name  # and defaults that can be used
    with pytest.raises(SettingError, match="name='other'"):
        OBJECTIVES[name](name="other")


def test_stored_runs_keep_their_names():
    assert OBJECTIVES["byol"]().key == "2d0c9399a031c16e"
    assert OBJECTIVES["moco-v2"]().key == "cdae331433f6013d"


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_all_parts_of_the_online_model_and_none_of_the_target(name):
    client = Client(small(name))
    client.train([two_views(seed=1)], 0.01)  # MoCo's first step has no negatives
    target = None if client.target is None else client.target.weights.clone()
    loss, figures = client.loss(two_views())
    if name != "moco-v2":  # which moves its target first
        assert target is None or torch.equal(client.target.weights, target)
    loss.backward()
    assert all(not figure.requires_grad and figure.dim() == 0 for figure in figures.values())
    for part in ("encoder", "projector", "predictor"):
        gradients = [weight.grad.norm() for weight in getattr(client.learner.online, part).parameters()]
        assert all(gradient.isfinite() for gradient in gradients)
        assert sum(gradients) > 1e-6 or (part == "predictor" and not gradients)
    if client.target is not None:
        assert client.target.weights.grad is None
        assert not any(weight.requires_grad for weight in client.learner.target.parameters())


RATES = {"moco-v2": 0.05, "byol": 0.02, "simclr": 0.02, "barlow-twins": 0.002, "simsiam": 0.02, "moco-v3": 0.2}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "moco-v2"])  # whose loss rises with its queue
def test_training_lowers_the_loss_and_can_be_repeated_to_the_bit(name):
    batches = [two_views()] * 30
    losses = Client(small(name)).train(batches, RATES.get(name, 0.05))
    assert losses == Client(small(name)).train(batches, RATES.get(name, 0.05))
    assert losses[-1] < losses[0] - 0.3 * abs(losses[0])


@pytest.mark.parametrize("name", ["byol", "moco-v3", "orchestra"])
def test_target_follows_after_the_step_by_the_decay(name):
    client = Client(small(name, ema_decay=0.9))
    before = client.target.weights.clone()
    client.train([two_views()], 0.05)
    online = client.online.weights.detach()[: len(before)]
    torch.testing.assert_close(client.target.weights, 0.9 * before + 0.1 * online, rtol=0, atol=1e-12)
    assert not torch.equal(client.target.weights, before)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("supervised", "orchestra")])  # one, three
def test_views_go_through_the_model_one_at_a_time(name):
    """Batch norm's statistics are those of one view after the other, not of both together."""
    client, views = Client(small(name)), two_views()
    plain = client.model.train()
    for view in views[: 1 if name == "moco-v2" else 2]:
        plain(view)
    client.loss(views)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(client.online.blocks[key][0], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("byol", {"projector": ()}, r"projector=\(\) cannot be used: expected the width of at least one layer"),
        ("simsiam", {"predictor": (512, 1024)}, r"predictor=\(512, 1024\) cannot be used: .*projector=\(2048, "),
        (
            "moco-v3",
            {"output_norm": "layer"},
            "output_norm='layer' cannot be used: expected one of none, affine, plain",
        ),
        ("moco-v3", {"temperature": 0.0}, "temperature=0.0"),
        ("simclr", {"temperature": float("nan")}, "temperature=nan"),
        ("simclr", {"loss": "none"}, "loss='none' cannot be used: expected one of both-directions, one-direction"),
        ("barlow-twins", {"redundancy_weight": -1}, "redundancy_weight=-1"),
        ("supervised", {"classes": 1}, "classes=1"),
        ("supervised", {"projector": (8,)}, r"projector=\(8,\) cannot be used: expected \(\)"),
        ("supervised", {"predictor": (8,)}, r"predictor=\(8,\) cannot be used: expected \(\)"),
    ],
)
def test_a_wrong_setting_is_named(name, values, message):
    with pytest.raises(SettingError, match=message):
        OBJECTIVES[name](**values)


@pytest.mark.parametrize("objective", [SimCLR(projector=(4,)), MoCoV3(projector=(8, 4), predictor=(8, 4))])
def test_twin_norm_sees_both_views_in_one_batch(objective):
    backbone = build_backbone("resnet10", width=4, norm="twin", image_size=16, generator=generator(0, "twins"))
    model = objective.build_model(backbone, generator(0, "heads"))
    target = objective.build_target(model)
    learner = objective.learner(ClientMatrix(model, 1), None if target is None else ClientMatrix(target, 1))
    views = torch.randn(2, 3, 3, 16, 16, generator=generator(0, "views"))
    together = model(views.flatten(0, 1)).chunk(2)
    for ours, expected in zip(learner.outputs(views), together, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    assert torch.isfinite(learner.loss(views)[0])


@pytest.mark.parametrize(
    "settings",
    [
        AveragingSettings(objective=SimCLR()),
        LayerwiseSettings(objective=SimCLR(), scheme="end-to-end", architecture="resnet10", norm="batch"),
    ],
)
def test_twin_norm_is_refused_where_views_come_apart(settings):
    assert settings.changed(norm="twin").norm == "twin"
    with pytest.raises(SettingError, match="norm"):
        settings.changed(norm="twin", objective=MoCoV2())
    with pytest.raises(SettingError, match="norm"):
        SplitSettings(norm="twin")
    with pytest.raises(SettingError, match="norm"):
        LayerwiseSettings(objective=SimCLR(), architecture="resnet10", norm="twin")
