import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.objectives.moon import Moon, moon_loss
from tests.objectives.learners import Client, embeddings, two_views


def moon(**values) -> Moon:
    return Moon(**{"projector": (16, 8), "classes": 4} | values)


def with_references(objective: Moon, seeds: tuple[int, int] = (1, 2)) -> Client:
    """A client whose global and last model are its own with noise."""
    client = Client(objective)
    references = []
    for seed in seeds:
        model = client.online.row_module(0).requires_grad_(False).eval()
        noise = torch.Generator().manual_seed(seed)
        state = {
            k: v + 0.1 * torch.randn(v.shape, generator=noise, dtype=v.dtype) for k, v in model.state_dict().items()
        }
        fresh = Client(objective).model.eval()
        fresh.load_state_dict({k: v.abs() if k.endswith("running_var") else v for k, v in state.items()})
        references.append(fresh)
    client.learner.references = tuple(references)
    return client


def test_the_contrast_is_eq_3_image_by_image():
    z, near, far = (embeddings(seed=seed) for seed in (0, 1, 2))
    terms = []
    for a, g, p in zip(z.tolist(), near.tolist(), far.tolist(), strict=True):
        exponentials = []
        for other in (g, p):
            product = sum(x * y for x, y in zip(a, other, strict=True))
            exponentials.append(math.exp(product / math.hypot(*a) / math.hypot(*other) / 0.5))
        terms.append(-math.log(exponentials[0] / sum(exponentials)))
    assert moon_loss(z, near, far, 0.5).item() == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_only_the_model_in_training_gets_a_gradient_and_none_where_the_others_are_one():
    z, near, far = (embeddings(seed=seed).requires_grad_() for seed in (0, 1, 2))
    moon_loss(z, near, far, 0.5).backward()
    assert z.grad.norm() > 0.01
    assert near.grad is None
    assert far.grad is None
    z.grad = None
    loss = moon_loss(z, near, near, 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2), abs=1e-15)
    assert z.grad.abs().max() < 1e-15


def test_a_step_along_the_contrast_goes_to_the_global_model_and_away_from_the_last_one():
    z, near, far = (embeddings(seed=seed) for seed in (0, 1, 2))
    z.requires_grad_()
    moon_loss(z, near, far, 0.5).backward()
    moved = (z - 0.1 * z.grad).detach()
    cosines = [
        F.cosine_similarity(torch.stack([z.detach(), moved]), other[None], dim=2).mean(1) for other in (near, far)
    ]
    assert cosines[0][1] > cosines[0][0]
    assert cosines[1][1] < cosines[1][0]


def test_the_loss_is_cross_entropy_and_mu_times_the_contrast_of_the_first_view():
    views, labels = two_views(batch=6), torch.tensor([0, 3, 1, 1, 2, 0])
    client = with_references(moon(contrast_weight=3.0, temperature=0.2))
    model = client.online.row_module(0).train()  # a view of the matrix: its statistics move, its output is the batch's
    with torch.no_grad():
        z = model.projector(model.encoder(views[0]))
        others = [other.projector(other.encoder(views[0])) for other in client.learner.references]
        expected = F.cross_entropy(model.predictor(z), labels) + 3 * moon_loss(z, *others, 0.2)
    loss, figures = client.learner.loss(views, labels)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert figures["contrast"].item() == pytest.approx(moon_loss(z, *others, 0.2).item(), abs=1e-12)
    assert 0 <= figures["train_accuracy"].item() <= 1


def test_references_stay_as_they_are_and_gradients_reach_every_part():
    client = with_references(moon())
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in client.learner.references]
    client.learner.loss(two_views(), torch.arange(8) % 4)[0].backward()
    for model, state in zip(client.learner.references, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
    for part in ("encoder", "projector", "predictor"):
        assert sum(w.grad.norm() for w in getattr(client.learner.online, part).parameters()) > 1e-6


def test_the_head_has_two_layers_without_batch_norm_and_the_output_layer_reads_its_embedding():
    model = Client(moon()).model
    assert [list(w.shape) for w in model.projector.parameters()] == [[16, 64], [16], [8, 16], [8]]
    assert [list(w.shape) for w in model.predictor.parameters()] == [[4, 8], [4]]


def test_training_lowers_the_loss():
    losses = with_references(moon()).train([two_views()] * 20, 0.02)
    assert losses[-1] < 0.7 * losses[0]


def test_without_models_to_contrast_with_there_is_no_loss():
    views, labels = two_views(), torch.arange(8) % 4
    with pytest.raises(SettingError, match=r"objective='moon' .*MoonSettings"):
        Client(moon()).learner.loss(views, labels)
    assert Client(moon(contrast_weight=0.0)).learner.loss(views, labels)[0] > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "simclr"}, "name='simclr'"),
        ({"predictor": (8,)}, r"predictor=\(8,\) cannot be used: expected \(\)"),
        ({"projector": ()}, r"projector=\(\) .*at least one layer"),
        ({"classes": 1}, "classes=1"),
        ({"contrast_weight": -1}, "contrast_weight=-1"),
        ({"temperature": 0.0}, "temperature=0.0"),
    ],
)
def test_a_wrong_setting_is_named(values, message):
    with pytest.raises(SettingError, match=message):
        moon(**values)
