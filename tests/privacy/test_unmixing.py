import pytest
import torch

from fssl_core.privacy.datamix import datamix, mixing_coefficients
from fssl_core.privacy.unmixing import unmix, zero_patterns


def maps(views: int = 2, examples: int = 10) -> torch.Tensor:
    """As behind a ReLU: about half are zero. ``[V, N, C, H, W]``"""
    random = torch.Generator().manual_seed(0)
    return torch.randn(views, examples, 4, 3, 5, generator=random, dtype=torch.float64).relu()


def mixed(examples: torch.Tensor, together: int) -> tuple[torch.Tensor, torch.Tensor]:
    secret = mixing_coefficients(examples.shape[1], torch.Generator().manual_seed(1), together)
    return datamix(examples.flatten(0, 1), secret).unflatten(0, examples.shape[:2]), secret


@pytest.mark.parametrize("together", [2, 3])
def test_zeros_tell_who_is_mixed_with_whom(together):
    mixtures, secret = mixed(maps(examples=11), together)
    patterns = zero_patterns(mixtures)
    found = torch.tensor([[one == other for other in patterns] for one in patterns])
    assert torch.equal(found, secret > 0)
    assert not found.all()


def test_two_mixtures_of_two_give_both_back():
    examples = maps()
    mixtures, secret = mixed(examples, 2)
    partner = (secret - secret.diagonal().diag()).argmax(1)
    torch.testing.assert_close(unmix(mixtures, mixtures[:, partner]), examples, rtol=0, atol=1e-10)
    single = unmix(mixtures.float(), mixtures[:, partner].float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), examples, rtol=0, atol=1e-5)


def test_where_no_zero_helps_a_part_of_the_other_stays():
    """Without zeros the smallest ratio is larger than that of the coefficients."""
    examples = maps() + 0.1
    mixtures, secret = mixed(examples, 2)
    partner = (secret - secret.diagonal().diag()).argmax(1)
    assert not torch.isclose(unmix(mixtures, mixtures[:, partner]), examples, atol=1e-2).flatten(2).all(2).any()
