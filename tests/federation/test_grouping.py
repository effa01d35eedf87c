import pytest
import torch
from sklearn.cluster import KMeans

from fssl_core.errors import SettingError
from fssl_core.federation.grouping import far_apart, k_means


def points(count: int = 40, dim: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
def test_k_means_is_scikit_learns_from_the_same_start(groups):
    x = points()
    start = far_apart(x, groups)
    members = k_means(x, groups)
    oracle = KMeans(groups, init=start.numpy(), n_init=1, algorithm="lloyd", tol=0).fit(x.numpy())
    assert members.tolist() == oracle.labels_.tolist()


def test_the_start_is_far_apart():
    """Greedily: each next point has the largest distance to the nearest of those before it."""
    x = points(12)
    chosen = far_apart(x, 4).tolist()
    rows = x.tolist()
    mean = [sum(column) / 12 for column in zip(*rows, strict=True)]

    def distance(a, b):
        return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))

    assert chosen[0] == min(rows, key=lambda row: distance(row, mean))
    for count in (1, 2, 3):
        assert chosen[count] == max(rows, key=lambda row, n=count: min(distance(row, c) for c in chosen[:n]))


def test_groups_keep_their_numbers_while_the_whole_space_moves():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], dtype=torch.float64)
    x = centres.repeat(5, 1) + 0.1 * points(15, 2)
    members = k_means(x, 3)
    assert all(len(set(members[place::3].tolist())) == 1 for place in range(3))
    moved = -x.flip(1) + 1000  # nearest to one and the same of the old centroids
    assert torch.equal(k_means(moved, 3, members), members)
    newcomer = members.clone()
    newcomer[4] = -1
    assert torch.equal(k_means(moved, 3, newcomer), members)


def test_one_that_has_moved_to_another_group_changes_to_it():
    x = torch.tensor([[0.0], [0.1], [5.0], [5.1], [5.2]], dtype=torch.float64)
    assert k_means(x, 2, torch.tensor([1, 1, 1, 0, 0])).tolist() == [1, 1, 0, 0, 0]


def test_a_group_without_members_begins_where_nobody_else_is():
    x = torch.tensor([[0.0], [0.1], [5.0], [5.1], [10.0]], dtype=torch.float64)
    assert k_means(x, 3, torch.tensor([2, 2, 0, 0, 0])).tolist() == [2, 2, 0, 0, 1]


def test_there_must_be_a_point_for_every_group():
    with pytest.raises(SettingError, match=r"groups=3 .*from 1 to 2"):
        k_means(points(2), 3)
