import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.clusters import cluster_measures, tsne_plane
from fssl_core.random import generator


def blobs(*centres, each=20, spread=0.1):
    """Points around each centre, with the number of the centre as label."""
    centres = torch.tensor(centres, dtype=torch.float32).repeat_interleave(each, dim=0)
    noise = torch.randn(centres.shape, generator=generator(0, "blobs")) * spread
    return centres + noise, torch.arange(len(centres)) // each


def test_blobs_far_apart_are_all_separated_and_two_in_one_place_are_not():
    far = cluster_measures(*blobs((0, 0), (10, 0), (0, 10)))
    assert (far.purity, far.separated_classes) == (1, 3)
    assert far.silhouette > 0.95
    two = cluster_measures(*blobs((0, 0), (10, 0), (10, 0)))
    assert two.separated_classes == 1
    assert two.purity == pytest.approx(2 / 3, abs=0.1)  # of the last two, half of the neighbours
    assert two.silhouette < 0.5


def test_a_class_with_four_of_five_neighbours_of_its_own_stands_apart():
    """Five points of the first class with one of the second, and six of the second elsewhere."""
    points = torch.tensor([*(0.01 * place for place in range(6)), *(9 + 0.01 * place for place in range(6))])[:, None]
    measured = cluster_measures(points, torch.tensor([0] * 5 + [1] * 7), k=5)
    assert measured.separated_classes == 2  # with a mean purity of 4/5 and of 6/7
    assert measured.purity == pytest.approx((5 * 0.8 + 6) / 12)


def test_purity_is_that_of_scikit_learns_neighbours():
    points, labels = (torch.from_numpy(part[:300]) for part in load_digits(return_X_y=True))
    points += 5 * torch.randn(points.shape, generator=generator(0, "noise"))  # some classes overlap then
    measured = cluster_measures(points, labels, k=7)
    nearest = NearestNeighbors(n_neighbors=7).fit(points).kneighbors(return_distance=False)  # without itself
    expected = (labels[torch.from_numpy(nearest)] == labels[:, None]).double().mean(1)
    assert measured.purity == pytest.approx(expected.mean().item())
    by_class = [expected[labels == digit].mean() >= 0.8 for digit in range(10)]
    assert measured.separated_classes == sum(by_class)
    assert 0 < measured.separated_classes < 10


def test_silhouette_of_a_closed_case():
    """Two pairs: within 1 apart, across (2 + 3) / 2 or (3 + 4) / 2 on a line; s = 1 - a / b for each point."""
    points = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
    assert cluster_measures(points, torch.tensor([0, 0, 1, 1]), k=1).silhouette == pytest.approx(
        (2 * (1 - 1 / 3.5) + 2 * (1 - 1 / 2.5)) / 4
    )


def test_the_plane_keeps_blobs_apart_and_is_the_same_again():
    points, labels = blobs((0, 0, 0, 0), (10, 0, 0, 0), (0, 10, 0, 0))
    plane = tsne_plane(points, perplexity=10)
    assert plane.shape == (60, 2)
    assert torch.equal(plane, tsne_plane(points, perplexity=10, seed=1))
    assert cluster_measures(plane, labels).separated_classes == 3
    first, again, other = (tsne_plane(points, perplexity=10, init="random", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_cannot_be_measured_is_named():
    points, labels = blobs((0, 0), (1, 1))
    with pytest.raises(SettingError, match="perplexity=40 cannot be used"):
        tsne_plane(points, perplexity=40)
    with pytest.raises(SettingError, match="k=40 cannot be used"):
        cluster_measures(points, labels, k=40)
    with pytest.raises(DataError, match="features of the points are not all finite"):
        cluster_measures(points / 0, labels)
    for found, classes in ((1, labels * 0), (40, torch.arange(40))):
        with pytest.raises(DataError, match=f"Clusters need 2 to 39 classes of 40 points, got {found}: take more"):
            cluster_measures(points, classes)
