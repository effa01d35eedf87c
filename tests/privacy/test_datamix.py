import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression

from fssl_core.errors import SettingError
from fssl_core.privacy.datamix import datamix, demix, mixing_coefficients
from fssl_core.random import generator


def secret(examples: int, together: int = 2, seed: int = 0) -> torch.Tensor:
    return mixing_coefficients(examples, generator(seed, "datamix"), together)


def some_maps(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 4, 5, generator=generator(seed, "maps"), dtype=torch.float64)


@pytest.mark.parametrize(("examples", "together"), [(64, 2), (7, 2), (2, 2), (13, 4), (5, 5), (6, 1)])
def test_coefficients_add_up_to_one_and_the_own_one_is_the_largest(examples, together):
    coefficients = secret(examples, together)
    torch.testing.assert_close(coefficients.sum(1), torch.ones(examples, dtype=torch.float64), rtol=0, atol=1e-14)
    assert (coefficients >= 0).all()
    assert (coefficients.argmax(1) == torch.arange(examples)).all()
    in_mixture = (coefficients > 0).sum(1)
    assert in_mixture.min() == together
    assert in_mixture.max() < 2 * together
    assert (in_mixture > together).sum() in (0, together + examples % together)
    assert torch.equal(coefficients > 0, coefficients.T > 0)  # groups


def test_two_coefficients_are_uniform_as_in_mixup():
    largest = secret(4000).diagonal()
    assert largest.min() >= 0.5
    quantiles = torch.quantile(largest, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))
    torch.testing.assert_close(quantiles, torch.tensor([0.55, 0.75, 0.95], dtype=torch.float64), rtol=0, atol=0.02)


def test_mixtures_are_the_papers_sum_view_by_view():
    """Eight views of six examples in the layout of a batch: all first views, then all second ones."""
    examples, views = 6, 8
    coefficients, maps = secret(examples, 3), some_maps(examples * views)
    mixed = datamix(maps, coefficients)
    for view in range(views):
        for i in range(examples):
            expected = sum(coefficients[i, j] * maps[view * examples + j] for j in range(examples))
            torch.testing.assert_close(mixed[view * examples + i], expected, rtol=0, atol=1e-12)


def test_views_of_a_pair_that_are_equal_stay_equal_and_their_difference_is_mixed_like_them():
    coefficients, maps = secret(10), some_maps(10)
    first, second = datamix(torch.cat([maps, maps]), coefficients).chunk(2)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    other = maps + 0.1 * some_maps(10, seed=1)
    first, second = datamix(torch.cat([maps, other]), coefficients).chunk(2)
    torch.testing.assert_close(second - first, datamix(0.1 * some_maps(10, seed=1), coefficients))


def test_mixing_is_linear():
    coefficients, one, other = secret(10), some_maps(20), some_maps(20, seed=1)
    together = datamix(2 * one - 3 * other, coefficients)
    torch.testing.assert_close(together, 2 * datamix(one, coefficients) - 3 * datamix(other, coefficients))


@pytest.mark.parametrize("together", [2, 3, 64])
def test_with_the_secret_examples_are_recovered_also_behind_a_linear_map(together):
    coefficients, maps = secret(64, together), some_maps(128)
    mixed = datamix(maps, coefficients)
    assert (mixed - maps).abs().mean() > 0.2
    torch.testing.assert_close(demix(mixed, coefficients), maps, rtol=0, atol=1e-10)
    linear = torch.randn(60, 7, generator=generator(0, "map"), dtype=torch.float64)
    torch.testing.assert_close(demix(mixed.flatten(1) @ linear, coefficients), maps.flatten(1) @ linear)
    wrong = demix(mixed, secret(64, together, seed=1))
    assert (wrong - maps).abs().mean() > 0.2


def test_the_same_generator_mixes_alike_and_another_does_not():
    assert torch.equal(secret(10), secret(10))
    assert not torch.equal(secret(10) > 0, secret(10, seed=1) > 0)
    assert torch.equal(secret(10, together=1), torch.eye(10, dtype=torch.float64))


def test_type_and_shape_of_representations_are_kept():
    maps = some_maps(12).float().to(memory_format=torch.channels_last)
    mixed = datamix(maps, secret(6))
    assert (mixed.dtype, mixed.shape) == (torch.float32, maps.shape)
    torch.testing.assert_close(mixed, datamix(maps.double(), secret(6)).float())


def test_a_decoder_of_plain_representations_reads_mixtures_much_worse():
    """The best linear decoder, trained on other images, from random filters back to pixels."""
    images = load_digits().data / 16
    filters = np.random.default_rng(0).normal(size=(64, 256)) / 8
    maps = images @ filters + 0.02 * np.random.default_rng(1).normal(size=(len(images), 256))
    decoder = LinearRegression().fit(maps[:1000], images[:1000])
    attacked, plain = images[1000:1640], torch.from_numpy(maps[1000:1640])

    def error(representations) -> float:
        return float(np.square(decoder.predict(representations) - attacked).mean())

    two, eight = (datamix(plain, secret(640, together)) for together in (2, 8))
    assert error(two) > 5 * error(plain)
    assert error(eight) > 1.5 * error(two)


@pytest.mark.parametrize(
    ("examples", "together", "message"),
    [(1, 2, "examples=1 cannot be used: expected at least together=2"), (4, 0, "together=0")],
)
def test_examples_that_would_be_sent_as_they_are_are_refused(examples, together, message):
    with pytest.raises(SettingError, match=message):
        secret(examples, together)


def test_coefficients_of_another_batch_are_refused():
    with pytest.raises(SettingError, match="coefficients=6 cannot be used: expected a number that 14, examples times"):
        datamix(some_maps(14), secret(6))
