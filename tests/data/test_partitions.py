import numpy as np
import pytest
import torch

from fssl_core.data.partitions import Scheme, class_counts, heterogeneity, parsed, partition
from fssl_core.errors import SettingError
from fssl_core.random import generator


def balanced(classes=10, per_class=100, seed=0):
    """Labels of equally frequent classes in random order."""
    labels = torch.arange(classes).repeat(per_class)
    return labels[torch.randperm(len(labels), generator=generator(seed, "labels"))]


SCHEMES = ["iid", "classes:1", "classes:2", "classes:3", "classes:10", "one-class", "dirichlet:0.1", "dirichlet:100"]
SCHEMES += ["dirichlet-equal:0.1", "dirichlet-equal:100"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("clients", [10, 20, 50])
@pytest.mark.parametrize("per_class", [100, 97])
def test_every_image_goes_to_exactly_one_client(scheme, clients, per_class):
    labels = balanced(per_class=per_class)
    parts = partition(labels, clients, scheme, seed=1)
    assert len(parts) == clients
    assert all(len(part) > 0 and part.dtype == torch.int64 for part in parts)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))
    assert all(torch.equal(part, part.sort().values) for part in parts)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_part_is_what_a_client_of_the_whole_federation_has(scheme):
    labels = balanced()
    whole = partition(labels, 20, scheme, seed=3)
    for client in (0, 19):
        (part,) = partition(labels, 1, f"part:{client}/20:{scheme}", seed=3)
        assert torch.equal(part, whole[client])


@pytest.mark.parametrize(
    ("scheme", "clients", "message"),
    [
        ("part:20/20:iid", 1, "partition='part:20/20:iid' cannot be used: expected part:i/n:scheme with i from 0"),
        ("part:1:iid", 1, "expected part:i/n:scheme"),
        ("part:1/2", 1, "expected part:i/n:scheme"),
        ("part:-1/2:iid", 1, "expected part:i/n:scheme"),
        (f"part:0/{'9' * 5000}:iid", 1, "expected part:i/n:scheme"),
        (f"{'part:0/1:' * 5000}iid", 1, "expected part:i/n:scheme"),
        ("part:1/2:iidd", 1, "partition='iidd' cannot be used"),
        ("part:1/2:iid", 2, "clients=2 cannot be used: expected 1 for 'part:1/2:iid'"),
    ],
)
def test_a_part_that_is_none_is_refused(scheme, clients, message):
    with pytest.raises(SettingError, match=message):
        partition(balanced(), clients, scheme, seed=0)


@pytest.mark.parametrize(
    ("scheme", "parts", "written"),
    [
        ("iid", Scheme("iid"), "iid"),
        ("one-class", Scheme("one-class"), "one-class"),
        ("classes:2", Scheme("classes", 2), "classes:2"),
        ("majority:0.99", Scheme("majority", 0.99), "majority:0.99"),
        ("dirichlet:0.10:32", Scheme("dirichlet", 0.1, 32), "dirichlet:0.1:32"),
        ("dirichlet:200", Scheme("dirichlet", 200.0), "dirichlet:200"),
        ("dirichlet-equal:0.1234567", Scheme("dirichlet-equal", 0.1234567), "dirichlet-equal:0.1234567"),
        ("part:1/2:dirichlet:5", Scheme("part"), "part"),
    ],
)
def test_a_scheme_has_parts_and_one_way_to_be_written(scheme, parts, written):
    assert parsed(scheme) == parts
    assert str(parts) == written


@pytest.mark.parametrize("scheme", ["dirichlet:x", "classes:1.5", "dirichlet:1:0", "part:0/2:majority:-1", "classes"])
def test_a_bad_number_is_found_without_images(scheme):
    with pytest.raises(SettingError, match="above 0 after the colon"):
        parsed(scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_seed_decides(scheme):
    labels = balanced()
    first, again, other = (partition(labels, 20, scheme, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(("clients", "scheme", "k"), [(5, "classes:2", 2), (20, "classes:2", 2), (200, "classes:2", 2)])
def test_classes_k_gives_every_client_k_classes_in_equal_shares(clients, scheme, k):
    counts = class_counts(balanced(per_class=400), partition(balanced(per_class=400), clients, scheme, 0), 10)
    assert ((counts > 0).sum(1) == k).all()
    assert (counts[counts > 0] == 4000 // (clients * k)).all()
    assert (counts.sum(0) == 400).all()


@pytest.mark.parametrize(("clients", "classes", "k"), [(10, 10, 3), (30, 10, 7), (20, 100, 20), (4, 6, 3), (7, 7, 7)])
def test_classes_k_holds_when_k_does_not_divide_the_classes(clients, classes, k):
    for seed in range(20):
        counts = class_counts(
            balanced(classes, 50), partition(balanced(classes, 50), clients, f"classes:{k}", seed), classes
        )
        assert ((counts > 0).sum(1) == k).all()
        assert ((counts > 0).sum(0) == clients * k // classes).all()


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.1, 1.0, 200.0])
@pytest.mark.parametrize(("clients", "per_class"), [(10, 100), (7, 97)])
def test_dirichlet_equal_keeps_clients_equally_large_however_unlike(alpha, clients, per_class):
    labels = balanced(per_class=per_class)
    sizes = [len(part) for part in partition(labels, clients, f"dirichlet-equal:{alpha:g}", 0)]
    assert sum(sizes) == len(labels)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("step", [0, 200])
def test_dirichlet_equal_follows_the_shares_that_were_drawn_while_classes_last(step, monkeypatch):
    """Also where classes are not equally frequent, from 1100 to 2900 images."""
    labels = torch.arange(10).repeat_interleave((2000 + step * torch.arange(-4.5, 5)).long())
    seen, make = {}, np.random.default_rng

    class Spy:
        def __init__(self, seed):
            self.numbers = make(seed)
            self.multinomial = self.numbers.multinomial

        def dirichlet(self, alpha, size):
            return seen.setdefault("shares", self.numbers.dirichlet(alpha, size=size))

        def permutation(self, count):
            return seen.setdefault("order", self.numbers.permutation(count))

    monkeypatch.setattr(np.random, "default_rng", Spy)
    counts = class_counts(labels, partition(labels, 20, "dirichlet-equal:0.5", 0), 10).numpy()
    first, last = seen["order"][0], seen["order"][-1]  # of the second, nothing is left of what it wants
    apart = np.abs(counts / 1000 - seen["shares"]).sum(1) / 2
    assert seen["shares"].shape == (20, 10)
    assert apart[first] < 0.1 < apart[last]


def test_dirichlet_equal_is_as_unlike_as_mfcl_says():
    """MFCL, Appendix B: with 0.01 a client of CIFAR-10 has two very unbalanced classes, with 0.1 four or five."""
    labels = balanced(per_class=500)
    held = {}
    for alpha in (0.01, 0.1, 200.0):
        counts = torch.stack(
            [class_counts(labels, partition(labels, 10, f"dirichlet-equal:{alpha:g}", seed), 10) for seed in range(10)]
        )
        held[alpha] = (counts > 5).double().sum(2).mean().item()  # a hundredth of its images
    assert 1.5 < held[0.01] < 2.5 < 3.3 < held[0.1] < 5.5 < held[200.0] == 10


def test_which_classes_a_client_holds_is_random():
    labels = balanced()
    held = torch.zeros(10, 10)  # how often client i holds class c
    for seed in range(300):
        held += class_counts(labels, partition(labels, 10, "classes:2", seed), 10) > 0
    torch.testing.assert_close(held / 300, torch.full((10, 10), 0.2), rtol=0, atol=0.12)  # 5 standard deviations


@pytest.mark.parametrize("per_class", [97, 103, 111])
def test_remainders_are_spread(per_class):
    for scheme in ("iid", "classes:2", "classes:3"):
        for seed in range(10):
            sizes = [len(part) for part in partition(balanced(per_class=per_class), 20, scheme, seed)]
            assert max(sizes) - min(sizes) <= (1 if scheme == "iid" else 2)


def test_unequal_classes_are_divided_equally_among_their_clients():
    labels = torch.arange(3).repeat_interleave(torch.tensor([90, 30, 9]))
    counts = class_counts(labels, partition(labels, 9, "one-class", 0), 3)
    assert sorted(counts[counts > 0].tolist()) == [3, 3, 3, 10, 10, 10, 30, 30, 30]


def test_labels_need_not_be_consecutive():
    labels = torch.tensor([3, 3, 7, 7])
    assert sorted(labels[part].tolist() for part in partition(labels, 2, "one-class", 0)) == [[3, 3], [7, 7]]


@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_dirichlet_shares_have_the_variance_of_the_distribution(alpha):
    """Var p = 1/N (1 - 1/N) / (N alpha + 1) for a share p of one of N clients."""
    clients, labels = 8, balanced(classes=500, per_class=200)
    shares = class_counts(labels, partition(labels, clients, f"dirichlet:{alpha}", 0), 500) / 200
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert shares.var().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("least", [1, 8, 32])
def test_dirichlet_may_be_drawn_until_every_client_has_enough(least):
    labels = balanced()
    for seed in range(5):
        parts = partition(labels, 10, f"dirichlet:0.1:{least}", seed)
        assert min(map(len, parts)) >= least
        assert torch.cat(parts).sort().values.equal(torch.arange(len(labels)))
    plain, same = (partition(labels, 10, scheme, 3) for scheme in ("dirichlet:0.1", "dirichlet:0.1:1"))
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


def test_the_least_size_decides_which_draw_is_taken_and_changes_nothing_else():
    """The first draw that suffices: a demand that the first draw meets by itself has no effect."""
    labels = balanced()
    plain = partition(labels, 10, "dirichlet:0.5", 0)
    smallest = min(map(len, plain))
    met, unmet = (partition(labels, 10, f"dirichlet:0.5:{least}", 0) for least in (smallest, smallest + 1))
    assert all(torch.equal(a, b) for a, b in zip(plain, met, strict=True))
    assert min(map(len, unmet)) > smallest


@pytest.mark.parametrize("seed", [0, 1])
def test_majority_of_two_clients_gives_the_papers_counts(seed):
    """4950 of one class and 50 of the other one, mirrored (MFCL, Figure 4)."""
    labels = balanced(per_class=5000, seed=seed)
    parts = partition(labels, 2, "majority:0.99", seed)
    assert class_counts(labels, parts, 10).tolist() == [[4950, 50, *[0] * 8], [50, 4950, *[0] * 8]]
    held = torch.cat(parts)
    assert held.unique().numel() == len(held) == (labels < 2).sum()
    assert all(torch.equal(part, part.sort().values) for part in parts)


def test_majority_of_more_clients_divides_the_rest_of_a_class_equally():
    labels = balanced(per_class=90)
    counts = class_counts(labels, partition(labels, 4, "majority:0.7", 0), 10)
    expected = torch.full((4, 4), 9) + torch.eye(4, dtype=torch.int64) * 54
    assert torch.equal(counts[:, :4], expected)
    assert counts[:, 4:].sum() == 0
    for share, kept in ((0.25, 22), (1, 90)):  # round(22.5) is 22
        counts = class_counts(labels, partition(labels, 4, f"majority:{share}", 0), 10)[:, :4]
        assert (counts.diag() == kept).all()
        assert (counts.sum(0) == 90).all()
        assert (counts.sum(1) == 90).all()


def test_the_seed_decides_who_holds_the_rare_images():
    labels = balanced()
    first, again, other = (partition(labels, 2, "majority:0.9", seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_heterogeneity_of_closed_cases():
    labels = torch.arange(10).repeat(20)  # ordered: client i of "equal" holds every class twice
    equal = list(torch.arange(200).split(20))
    assert heterogeneity(labels, equal) == 0
    for k in (1, 2, 5):
        assert heterogeneity(labels, partition(labels, 10, f"classes:{k}", 0)) == pytest.approx(1 - k / 10)
    # Two clients, two classes, counts [[3, 1], [1, 3]]: |3/4 - 1/2| = 1/4 each.
    labels = torch.tensor([0, 0, 0, 1, 0, 1, 1, 1])
    assert heterogeneity(labels, [torch.arange(4), torch.arange(4, 8)]) == pytest.approx(0.25)
    # Clients count equally, images make the whole: counts [[4, 0], [0, 1], [0, 1]], frequencies 2/3 and 1/3.
    unequal = [torch.arange(4), torch.tensor([4]), torch.tensor([5])]
    assert heterogeneity(torch.tensor([0, 0, 0, 0, 1, 1]), unequal) == pytest.approx((1 / 3 + 2 / 3 + 2 / 3) / 3)


def test_heterogeneity_falls_with_alpha():
    values = [heterogeneity(balanced(), partition(balanced(), 10, f"dirichlet:{a}", 0)) for a in (0.05, 0.5, 5, 500)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.5
    assert values[-1] < 0.1


def test_heterogeneity_of_an_empty_client_is_refused():
    with pytest.raises(SettingError, match="at least one image per client"):
        heterogeneity(torch.tensor([0, 1]), [torch.tensor([0, 1]), torch.tensor([], dtype=torch.long)])


def test_class_counts_equal_a_slow_count():
    labels = balanced()
    parts = partition(labels, 7, "iid", 0)
    slow = [[sum(int(labels[i]) == c for i in part.tolist()) for c in range(12)] for part in parts]
    assert class_counts(labels, parts, 12).tolist() == slow


@pytest.mark.parametrize(("classes", "clients"), [(12, 100), (12, 13), (10, 7)])
def test_where_shares_do_not_come_out_even_some_classes_have_one_client_more(classes, clients):
    labels = torch.arange(classes * 60) % classes
    parts = partition(labels, clients, "classes:2", 0)
    assert torch.cat(parts).sort().values.equal(torch.arange(len(labels)))
    holders = torch.zeros(classes, dtype=torch.int64)
    for part in parts:
        own = labels[part].unique()
        assert len(own) == 2
        holders[own] += 1
    assert holders.max() - holders.min() == 1


@pytest.mark.parametrize(
    ("clients", "scheme", "message"),
    [
        (0, "iid", "clients=0 cannot be used: expected from 1 to 1000, the number of images"),
        (1001, "iid", "clients=1001 cannot be used: expected from 1 to 1000"),
        (10, "pathological", "partition='pathological' cannot be used: expected one of iid, classes:k"),
        (10, "iid:2", "partition='iid:2' cannot be used: expected one of iid"),
        (10, "classe:2", r"partition='classe:2' cannot be used: expected one of iid, .* \(did you mean classes\?\)"),
        (10, "classes:x", "partition='classes:x' cannot be used: expected a whole number above 0 after the colon"),
        (10, "classes", "partition='classes' cannot be used: expected a whole number above 0"),
        (10, "classes:0", "partition='classes:0' cannot be used: expected a whole number above 0"),
        (10, "classes:11", "partition='classes:11' cannot be used: expected at most 10 classes a client"),
        (4, "classes:2", r"clients=4 cannot be used: expected at least 5, so that each of the 10 classes has a client"),
        (9, "one-class", r"clients=9 cannot be used: expected at least 10, so that each of the 10 classes"),
        (600, "classes:2", r"clients=600 cannot be used: expected at most 500: the smallest class has 100 images"),
        (10, "dirichlet:0", "partition='dirichlet:0' cannot be used: expected a number above 0"),
        (10, "dirichlet:nan", "partition='dirichlet:nan' cannot be used: expected a number above 0"),
        (10, "dirichlet:0.1:0", "partition='dirichlet:0.1:0' cannot be used: expected a whole number above 0"),
        (10, "dirichlet:0.1:2.5", "partition='dirichlet:0.1:2.5' cannot be used: expected a whole number above 0"),
        (10, "dirichlet:0.1:101", "'dirichlet:0.1:101' .* at most 100 images for each of 10 clients, of 1,000 in all"),
        (2, "majority", "partition='majority' cannot be used: expected a number above 0 after the colon"),
        (2, "majority:0.4", "'majority:0.4' cannot be used: expected a share from 1 / 2 to 1"),
        (2, "majority:1.01", "'majority:1.01' cannot be used: expected a share from 1 / 2 to 1"),
        (1, "majority:1", "clients=1 cannot be used: expected from 2 to 10, a class for each"),
        (11, "majority:0.9", "clients=11 cannot be used: expected from 2 to 10, a class for each"),
        (500, "dirichlet:0.01", "partition='dirichlet:0.01' cannot be used: expected a larger alpha or fewer clients"),
    ],
)
def test_settings_that_cannot_be_met_are_named(clients, scheme, message):
    with pytest.raises(SettingError, match=message):
        partition(balanced(), clients, scheme, 0)
