import pytest
import torch

from fssl_core.data.embedded import PHOTOGRAPHS, digits, photograph, scattered_digits
from fssl_core.errors import SettingError

SUMS = [  # digits train, digits test, scattered train, scattered test
    (6718636, 26851796788, [0, 4, 5, 6]),
    (2235165, 8512793358, [1, 2, 3, 7]),
    (76976048, 315197441673, [0, 1, 2, 3]),
    (19465222, 80123571740, [0, 1, 2, 3]),
]


def nearest_neighbour_accuracy(train, test):
    (bank, bank_labels), (queries, labels) = train, test
    nearest = torch.cdist(queries.flatten(1).float(), bank.flatten(1).float()).argmin(dim=1)
    return (bank_labels[nearest] == labels).float().mean().item()


def test_sizes_types_and_class_shares():
    (images, labels), (test_images, test_labels) = digits()
    assert images.shape == (1347, 1, 8, 8)
    assert test_images.shape == (450, 1, 8, 8)
    every = labels.bincount() + test_labels.bincount()
    torch.testing.assert_close(labels.bincount() / every, torch.full((10,), 0.75), rtol=0, atol=0.01)
    (images, labels), (test_images, test_labels) = scattered_digits()
    assert images.shape == (4000, 1, 16, 16)
    assert test_images.shape == (1000, 1, 16, 16)
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [400] * 10
    assert test_labels.bincount().tolist() == [100] * 10


def test_digits_are_scikit_learns_each_once():
    from sklearn.datasets import load_digits

    (images, labels), (test_images, test_labels) = digits()
    rows = torch.cat([torch.cat([images, test_images]).flatten(1), torch.cat([labels, test_labels])[:, None]], dim=1)
    bunch = load_digits()
    original = (torch.from_numpy(bunch.data) * 255 / 16).round()
    original = torch.cat([original, torch.from_numpy(bunch.target)[:, None]], dim=1)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, original.tolist()))


def test_no_digit_is_in_both_splits():
    (images, _), (test_images, _) = digits()
    train, test = ({tuple(row) for row in part.flatten(1).tolist()} for part in (images, test_images))
    assert not train & test


def test_every_machine_makes_the_same_images():
    """Sums of the pixels, plain and weighted by place, as made when the sets were defined."""
    sums = []
    for images, labels in (*digits(), *scattered_digits()):
        values = images.flatten().long()
        sums.append(
            (values.sum().item(), (values * (torch.arange(len(values)) % 8191)).sum().item(), labels[:4].tolist())
        )
    assert sums == SUMS


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_matter(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        again = scattered_digits.__wrapped__()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(*pair) for pair in zip(again[0] + again[1], sum(scattered_digits(), ()), strict=True))


def test_pixels_classify_digits_but_not_scattered_digits():
    assert nearest_neighbour_accuracy(*digits()) > 0.95
    assert nearest_neighbour_accuracy(*scattered_digits()) < 0.65


@pytest.mark.parametrize("name", PHOTOGRAPHS)
@pytest.mark.parametrize("size", [64, 224])
def test_photograph_equals_torchvisions_crop_and_resize(name, size):
    from sklearn.datasets import load_sample_image
    from torchvision.transforms.v2 import functional as tv

    image = torch.tensor(load_sample_image(f"{name}.jpg")).permute(2, 0, 1)
    expected = tv.resize(tv.center_crop(image, [427, 427]), [size, size], antialias=True)
    ours = photograph(name, size)
    assert ours.shape == (3, size, size)
    assert ours.dtype == torch.uint8
    assert (ours.int() - expected.int()).abs().max() <= 1  # of 255: torchvision resizes in integers


def test_unknown_photograph_and_size_are_refused():
    with pytest.raises(SettingError, match=r"photograph='boat' cannot be used: expected one of china, flower\."):
        photograph("boat")
    with pytest.raises(SettingError, match=r"size=0 cannot be used: expected at least 1\."):
        photograph(size=0)
