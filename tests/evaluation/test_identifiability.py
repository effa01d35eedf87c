import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestCentroid
from torch import nn

from fssl_core.errors import DataError
from fssl_core.evaluation.identifiability import client_identifiability, own_and_common_identifiability
from fssl_core.federation.clients import ClientForward, ClientMatrix
from fssl_core.models import build_backbone, cut
from fssl_core.random import generator


def make_keys(clients, images, dim, signature, seed=0):
    """Unit keys of images with no structure, moved by a signature of this strength of their client."""
    rng = torch.Generator().manual_seed(seed)
    content = torch.randn(clients, images, dim, generator=rng)
    return F.normalize(content + signature * torch.randn(clients, 1, dim, generator=rng), dim=2)


def slow_identifiability(keys):
    means = [torch.stack([key for n, key in enumerate(client) if n % 2 == 0]).mean(0) for client in keys]
    right = total = 0
    for number, client in enumerate(keys):
        for n, key in enumerate(client):
            if n % 2 == 1:
                distances = [float((key - mean).norm()) for mean in means]
                right += distances.index(min(distances)) == number
                total += 1
    return right / total


@pytest.mark.parametrize(("images", "signature"), [(2, 0.0), (9, 0.5), (30, 1.0)])
def test_value_equals_a_slow_loop(images, signature):
    keys = make_keys(6, images, 12, signature)
    assert client_identifiability(keys) == pytest.approx(slow_identifiability(keys), abs=1e-12)


def test_value_equals_scikit_learns_nearest_centroid():
    keys = make_keys(5, 40, 8, 0.6)
    clients = torch.arange(5).repeat_interleave(20)
    oracle = NearestCentroid().fit(keys[:, 0::2].flatten(0, 1).numpy(), clients.numpy())
    expected = oracle.score(keys[:, 1::2].flatten(0, 1).numpy(), clients.numpy())
    assert client_identifiability(keys) == pytest.approx(expected, abs=1e-12)
    assert 0.3 < expected < 1


def test_separated_clients_are_always_told_apart():
    assert client_identifiability(make_keys(10, 20, 16, 20.0)) == 1.0


def test_clients_without_a_signature_are_at_chance_within_four_binomial_deviations():
    clients, images = 10, 400
    value = client_identifiability(make_keys(clients, images, 16, 0.0))
    chance = 1 / clients
    assert abs(value - chance) < 4 * (chance * (1 - chance) / (clients * images / 2)) ** 0.5


def test_identical_keys_are_exactly_at_chance():
    assert client_identifiability(torch.ones(8, 10, 4)) == 1 / 8


def test_order_of_clients_and_of_images_within_a_half_does_not_matter():
    keys = make_keys(6, 20, 12, 0.5)
    value = client_identifiability(keys)
    rng = torch.Generator().manual_seed(1)
    assert client_identifiability(keys[torch.randperm(6, generator=rng)]) == value
    even, odd = torch.randperm(10, generator=rng) * 2, torch.randperm(10, generator=rng) * 2 + 1
    order = torch.stack([even, odd], 1).flatten()  # even-numbered images stay even-numbered
    assert client_identifiability(keys[:, order]) == pytest.approx(value, abs=1e-12)


def test_too_few_clients_or_images_and_broken_keys_are_refused():
    with pytest.raises(DataError, match=r"at least 2 clients with 2 images, got \[1, 4, 3\]"):
        client_identifiability(torch.zeros(1, 4, 3))
    with pytest.raises(DataError, match=r"at least 2 clients with 2 images, got \[4, 1, 3\]"):
        client_identifiability(torch.zeros(4, 1, 3))
    with pytest.raises(DataError, match="finite keys: the model that made them has diverged"):
        client_identifiability(torch.full((4, 4, 3), float("inf")))


def momentum_models(seed_of_client):
    """Stacked clients whose filters come from the given seeds, and images of noise that tell nothing."""
    model = cut(build_backbone("resnet10", width=8, image_size=8, channels=1), 3)[0]
    matrix = ClientMatrix(model, len(seed_of_client))
    for row, seed in enumerate(seed_of_client):
        for block in matrix.parameter_blocks.values():
            block[row] = torch.randn(block.shape[1:], generator=generator(seed, "client"))
    images = torch.rand(len(seed_of_client), 40, 1, 8, 8, generator=generator(0, "images"))
    return matrix, ClientForward(matrix), nn.Sequential(nn.Flatten()), images


def test_different_models_give_their_clients_away_and_the_common_model_does_not():
    own, common = own_and_common_identifiability(*momentum_models([1, 2, 3, 4, 5]))
    assert own == 1.0
    assert common < 0.5


def test_equal_models_are_the_common_model():
    own, common = own_and_common_identifiability(*momentum_models([1] * 5))
    assert own == common < 0.5


@pytest.mark.parametrize("mode", [True, False])
def test_a_measurement_leaves_every_mode_as_it_was(mode):
    matrix, forward, server, images = momentum_models([1, 2])
    forward.train(mode)
    server.train(not mode)
    own_and_common_identifiability(matrix, forward, server, images)
    assert (forward.training, server.training, server[0].training) == (mode, not mode, not mode)


def test_keys_are_those_of_a_loop_over_clients():
    matrix, forward, server, images = momentum_models([1, 2, 1])
    keys = [
        F.normalize(server(module(batch)), dim=1) for module, batch in zip(matrix.row_modules(), images, strict=True)
    ]
    own, common = own_and_common_identifiability(matrix, forward, server, images)
    assert own == client_identifiability(torch.stack(keys))
    average = matrix.row_module(0)
    one = client_identifiability(torch.stack([F.normalize(server(average(batch)), dim=1) for batch in images]))
    average.load_state_dict({k: sum(matrix.state_dict(c)[k] for c in range(3)) / 3 for k in matrix.state_dict(0)})
    keys = torch.stack([F.normalize(server(average(batch)), dim=1) for batch in images])
    assert common == client_identifiability(keys) != one  # the common model is nobody's own
