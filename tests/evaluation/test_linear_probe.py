import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression

from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.linear_probe import PROTOCOLS, linear_probe
from fssl_core.random import generator


def blobs(count, seed, classes=5, dim=8, spread=0.6):
    """Features around one centre per class, and their labels."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(7))
    labels = torch.randint(0, classes, (count,), generator=rng)
    return centres[labels] + spread * torch.randn(count, dim, generator=rng), labels


def adam(parameters):
    return torch.optim.Adam(parameters, foreach=False, fused=False)


def sgd(parameters):
    return torch.optim.SGD(parameters, momentum=0.9, nesterov=True, foreach=False, fused=False)


def cosine(epoch, epochs):
    return (1 + torch.cos(torch.tensor(torch.pi * epoch / epochs, dtype=torch.float64)).item()) / 2


def steps(epoch, epochs):
    return 0.1 ** (10 * epoch >= 6 * epochs) * 0.1 ** (10 * epoch >= 8 * epochs)


def slow_probe(train_x, train_y, start, optimizer, factor, *, classes, epochs, batch, learning_rate, seed):
    """The same training as a textbook loop: nn.Linear, DataLoader-like batches, plain optimiser, rate set by hand."""
    model = torch.nn.Linear(train_x.shape[1], classes)
    with torch.no_grad():
        model.weight.copy_(start.weight)
        model.bias.copy_(start.bias)
    optimizer = optimizer(model.parameters())
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = learning_rate * factor(epoch, epochs)
        order = torch.randperm(len(train_x), generator=generator(seed, "probe", epoch))
        for first in range(0, len(train_x), batch):
            rows = order[first : first + batch]
            optimizer.zero_grad()
            F.cross_entropy(model(train_x[rows]), train_y[rows]).backward()
            optimizer.step()
    return model


@pytest.mark.parametrize(
    ("protocol", "optimizer", "factor", "rate"), [("adam-cosine", adam, cosine, 0.001), ("sgd-steps", sgd, steps, 0.01)]
)
@pytest.mark.parametrize("faster", [None, 10])
def test_training_equals_a_plain_loop_of_linear_and_the_protocols_optimiser(protocol, optimizer, factor, rate, faster):
    train, test = blobs(150, seed=1), blobs(40, seed=2)
    settings = {"classes": 5, "epochs": 10, "batch": 32, "seed": 3}
    start = linear_probe(*train, *test, **(settings | {"epochs": 1, "learning_rate": 0.0}))  # never moves
    given = {} if faster is None else {"learning_rate": faster * rate}  # else the protocol's own
    expected = slow_probe(*train, start, optimizer, factor, **(settings | {"learning_rate": rate} | given))
    result = linear_probe(*train, *test, protocol=protocol, **settings, **given)
    torch.testing.assert_close(result.weight, expected.weight.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(result.bias, expected.bias.detach(), rtol=0, atol=1e-5)
    assert result.accuracy == (expected(test[0]).argmax(1) == test[1]).double().mean().item()
    assert (result.weight - start.weight).abs().max() > 0.02


def test_without_a_protocol_it_is_that_of_mocosfl():
    train, test = blobs(60, seed=1), blobs(30, seed=2)
    default, named = (
        linear_probe(*train, *test, classes=5, epochs=3, **given)
        for given in ({}, {"protocol": "adam-cosine", "batch": 128, "learning_rate": 1e-3})
    )
    assert torch.equal(default.weight, named.weight)


def test_initial_weights_are_those_of_a_linear_layer():
    x, y = torch.randn(20, 400, generator=torch.Generator().manual_seed(0)), torch.zeros(20, dtype=torch.int64)
    start = linear_probe(x, y, x, y, classes=300, epochs=1, learning_rate=0.0)
    bound = 400**-0.5  # nn.Linear: uniform within 1 / sqrt(inputs)
    for values in (start.weight, start.bias):
        assert values.abs().max() <= bound
        assert values.std() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert start.weight.shape == (300, 400)
    assert start.bias.shape == (300,)


@pytest.mark.parametrize(("protocol", "learning_rate"), [("adam-cosine", 0.03), ("sgd-steps", 0.1)])
def test_accuracy_is_near_scikit_learns_logistic_regression(protocol, learning_rate):
    train, test = blobs(1000, seed=1), blobs(500, seed=2)
    oracle = LogisticRegression(C=1e4, max_iter=2000).fit(train[0].numpy(), train[1].numpy())
    expected = oracle.score(test[0].numpy(), test[1].numpy())
    result = linear_probe(*train, *test, classes=5, protocol=protocol, epochs=60, learning_rate=learning_rate)
    assert result.accuracy == pytest.approx(expected, abs=0.01)
    assert 0.8 < expected < 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_equal_arguments_give_equal_bits_and_another_seed_does_not(protocol):
    train, test = blobs(100, seed=1), blobs(50, seed=2)
    first, again, other = (
        linear_probe(*train, *test, classes=5, protocol=protocol, epochs=3, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.bias, again.bias)
    assert first.accuracy_per_epoch == again.accuracy_per_epoch
    assert not torch.equal(first.weight, other.weight)


def test_global_random_state_is_neither_used_nor_changed():
    train, test = blobs(100, seed=1), blobs(50, seed=2)
    state = torch.get_rng_state()
    linear_probe(*train, *test, classes=5, epochs=2)
    assert torch.equal(state, torch.get_rng_state())


def test_last_epoch_is_reported_and_the_best_given_beside_it():
    train, test = blobs(60, seed=1, spread=3.0), blobs(60, seed=2, spread=3.0)
    result = linear_probe(*train, *test, classes=5, epochs=40, learning_rate=0.1)
    assert len(result.accuracy_per_epoch) == 40
    assert result.accuracy == result.accuracy_per_epoch[-1]
    assert result.best_accuracy == max(result.accuracy_per_epoch) > result.accuracy


def test_features_with_a_graph_and_in_half_precision_are_accepted_and_left_alone():
    (x, y), test = blobs(60, seed=1), blobs(30, seed=2)
    source = x.bfloat16().requires_grad_()
    result = linear_probe(source, y, *test, classes=5, epochs=2)
    assert source.grad is None
    assert result.weight.dtype == torch.float32
    assert not result.weight.requires_grad


def test_inside_autocast_it_learns_as_outside():
    """With bfloat16 as the profile's precision every probe once stood at chance, behind a stale cast of its weights."""
    labels = torch.arange(300) % 10
    features = 4 * F.one_hot(labels).float() + 0.5 * torch.randn(300, 10, generator=generator(0, "test"))
    halves = features[:200], labels[:200], features[200:], labels[200:]
    plain = linear_probe(*halves, classes=10, epochs=20, learning_rate=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        inside = linear_probe(*halves, classes=10, epochs=20, learning_rate=0.05)
    assert torch.equal(inside.weight, plain.weight)
    assert inside.accuracy_per_epoch == plain.accuracy_per_epoch
    assert plain.accuracy_per_epoch[-1] > 0.9


def test_wrong_settings_labels_and_features_are_refused():
    (x, y), test = blobs(60, seed=1), blobs(30, seed=2)
    with pytest.raises(SettingError, match="protocol='adam' cannot be used: expected one of adam-cosine, sgd-steps"):
        linear_probe(x, y, *test, classes=5, protocol="adam")
    with pytest.raises(SettingError, match="epochs=0 cannot be used: expected at least 1"):
        linear_probe(x, y, *test, classes=5, epochs=0)
    with pytest.raises(SettingError, match="batch=0 cannot be used: expected at least 1"):
        linear_probe(x, y, *test, classes=5, batch=0)
    with pytest.raises(SettingError, match="learning_rate=-1 cannot be used: expected at least 0"):
        linear_probe(x, y, *test, classes=5, learning_rate=-1)
    with pytest.raises(DataError, match="Labels of the training set span 0 to 4: expected 0 to 3"):
        linear_probe(x, y, *test, classes=4)
    with pytest.raises(DataError, match="features of the test set are not all finite"):
        linear_probe(x, y, test[0] / 0, test[1], classes=5)


@pytest.mark.gpu
def test_cuda_trains_the_same_probe():
    tensors = (*blobs(200, seed=1), *blobs(100, seed=2))
    on_cpu = linear_probe(*tensors, classes=5, epochs=5)
    on_cuda = linear_probe(*(tensor.cuda() for tensor in tensors), classes=5, epochs=5)
    torch.testing.assert_close(on_cuda.weight.cpu(), on_cpu.weight, rtol=0, atol=1e-4)
