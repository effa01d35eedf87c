import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.data.augment import augmentation
from fssl_core.data.datasets import load_dataset
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.landscape import circle_loss_increase, held_out_loss, loss_surface
from fssl_core.evaluation.trajectory import pca_plane
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import build_backbone
from fssl_core.objectives import BYOL, FedCA
from fssl_core.objectives.barlow_twins import BarlowTwins
from fssl_core.objectives.simclr import SimCLR
from fssl_core.random import generator

SETTINGS = {"images": 32, "batch": 16, "seed": 3}


def quadratic_plane(filter_normalise=False):
    """A plane of random models, and a loss whose surface is known: half the squared distance to the final one."""
    models = {"weight": torch.randn(7, 5, 4, generator=generator(0, "models"), dtype=torch.float64)}
    plane = pca_plane(models, filter_normalise=filter_normalise)
    return plane, lambda state: 0.5 * (state["weight"] - models["weight"][-1]).square().sum().item() + 2.0


@pytest.mark.parametrize("filter_normalise", [False, True])
def test_surface_of_a_quadratic_loss_is_its_closed_form(filter_normalise):
    plane, loss = quadratic_plane(filter_normalise)
    x, y, surface = loss_surface(plane, loss, ((-1, 3), (-2, 1)), points=4)
    assert x.tolist() == pytest.approx([-1, 1 / 3, 5 / 3, 3])
    assert y.tolist() == pytest.approx([-2, -1, 0, 1])
    a, b, c = plane.metric[0, 0], plane.metric[0, 1], plane.metric[1, 1]
    for row in range(4):
        for column in range(4):
            expected = 2 + 0.5 * (a * x[column] ** 2 + 2 * b * x[column] * y[row] + c * y[row] ** 2)
            assert surface[row, column] == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize("filter_normalise", [False, True])
def test_increase_on_a_circle_of_a_quadratic_loss_is_half_the_squared_radius(filter_normalise):
    plane, loss = quadratic_plane(filter_normalise)
    assert circle_loss_increase(plane, loss, 0.6, points=5) == pytest.approx(0.18)


def test_a_loss_that_is_linear_in_the_plane_does_not_rise_on_average():
    plane, _ = quadratic_plane(True)
    assert circle_loss_increase(plane, lambda state: state["weight"].sum().item(), 2.0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("values", "message"), [({"radius": 0.0}, "radius=0.0"), ({"points": 2}, "points=2")])
def test_a_wrong_circle_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        circle_loss_increase(*quadratic_plane(), **{"radius": 1.0} | values)


# -------------------------------------------------------------------- the loss of an objective


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", image_size=16)


def model_of(objective, data, seed=0):
    init = generator(seed, "initialise")
    backbone = build_backbone(
        "resnet10", width=4, norm="batch", image_size=data.image_size, channels=data.channels, generator=init
    )
    return objective.build_model(backbone, init).double()


def parameters(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def loss_of(objective, data, **values):
    model = model_of(objective, data)
    return held_out_loss(objective, model, data, augmentation("digits", 16), **SETTINGS | values)


def test_loss_is_the_objectives_own_on_the_drawn_views(data):
    objective = SimCLR(projector=(8,), temperature=0.5)
    model, augment = model_of(objective, data), augmentation("digits", 16)
    chosen = torch.randperm(len(data.test), generator=generator(3, "landscape images"))[:32]
    draws = augment.draw(64, generator(3, "landscape augmentations")).view(32, 2, -1)
    losses = []
    for rows in torch.arange(32).split(16):
        images = data.test.images[chosen[rows]]
        views = [data.normalise(augment(images, draws[rows, view]), torch.float64) for view in (0, 1)]
        z = F.normalize(torch.cat([model.train()(view) for view in views]), dim=1)
        similarity = (z @ z.T / 0.5).tolist()
        for i in range(32):  # Eq. 1, a term at a time
            others = sum(math.exp(similarity[i][j]) for j in range(32) if j != i)
            losses.append(-math.log(math.exp(similarity[i][(i + 16) % 32]) / others))
    # Views are float32, here made one at a time.
    assert loss_of(objective, data)(parameters(model)) == pytest.approx(sum(losses) / 64, rel=1e-5)


@pytest.mark.parametrize("objective", [SimCLR(projector=(8,)), BarlowTwins(projector=(8,))])
def test_loss_depends_on_the_parameters_and_nothing_else(data, objective):
    evaluate = loss_of(objective, data)
    here, there = (parameters(model_of(objective, data, seed)) for seed in (1, 2))
    first = [evaluate(here), evaluate(there)]
    assert first[0] != first[1]
    assert [evaluate(there), evaluate(here)] == first[::-1]  # no trace of other points, as running statistics are

    unlike = model_of(objective, data, seed=5).eval()  # only the form of the model counts
    for name, buffer in unlike.named_buffers():
        buffer.fill_(7.0 if "var" in name else -3.0)
    assert held_out_loss(objective, unlike, data, augmentation("digits", 16), **SETTINGS)(here) == first[0]
    assert loss_of(objective, data, seed=4)(here) != first[0]


def test_surface_of_a_run_has_the_final_models_loss_in_its_centre_whatever_the_scale_of_normalised_filters(data):
    objective = SimCLR(projector=(8,))
    rows = ClientMatrix(model_of(objective, data), 4)
    for row in range(4):
        for name, values in parameters(model_of(objective, data, seed=row)).items():
            rows.blocks[name][row] = values
    plane, evaluate = pca_plane(rows.parameter_blocks, filter_normalise=True), loss_of(objective, data)
    final = rows.state_dict(3)
    _, _, surface = loss_surface(plane, evaluate, ((-0.5, 0.5), (-0.5, 0.5)), points=3)
    assert surface[1, 1] == evaluate({name: final[name] for name in rows.parameter_blocks})
    assert surface.isfinite().all()
    assert surface.unique().numel() == 9

    scaled = {name: values * (10 if values.dim() == 4 else 1) for name, values in plane.state(0, 0).items()}
    assert evaluate(scaled) == pytest.approx(surface[1, 1].item(), rel=1e-3)  # but for batch norm's epsilon


def test_states_and_objectives_that_do_not_fit_are_errors(data):
    objective = SimCLR(projector=(8,))
    state = parameters(model_of(objective, data))
    removed = next(iter(state))
    with pytest.raises(DataError, match=f"all parameters .* look at {removed}"):
        loss_of(objective, data)({name: values for name, values in state.items() if name != removed})
    for other in (BYOL(), FedCA()):  # without the entries of other clients FedCA's loss was SimCLR's
        with pytest.raises(SettingError, match=rf"objective='{other.name}' .*without target branch"):
            held_out_loss(other, torch.nn.Identity(), data, augmentation("digits", 16))
    for values in ({"images": 40}, {"images": 480}, {"images": 0}):
        with pytest.raises(SettingError, match=f"images={values['images']} .*multiple of batch=16, up to 450"):
            loss_of(objective, data, **values)


def test_bfloat16_comes_close(data):
    objective = SimCLR(projector=(8,), temperature=0.5)
    model = model_of(objective, data).float()
    losses = [
        held_out_loss(objective, model, data, augmentation("digits", 16), **SETTINGS, precision=precision)(
            parameters(model)
        )
        for precision in ("float32", "bfloat16")
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)
