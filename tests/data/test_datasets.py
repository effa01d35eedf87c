import dataclasses
import gzip
import hashlib
import os
import pickle
import struct

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.transforms.v2 import functional as TF

from fssl_core.data import datasets
from fssl_core.data.datasets import download, inventory, known_datasets, load_dataset
from fssl_core.data.missing import missing_datasets
from fssl_core.data.outlines import OUTLINES, Outline
from fssl_core.data.readers import load_pickle
from fssl_core.errors import DataError, SettingError
from fssl_core.paths import data_root as current_root

NUMBERS = np.random.default_rng(0)


def write_cifar10(root, per_batch=20):
    """A small set in the official layout; returns its images and labels, train then test."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    parts = []
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        data = NUMBERS.integers(0, 256, (per_batch, 3072), dtype=np.uint8)
        labels = [i % 10 for i in range(per_batch)]
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": labels}))
        parts.append((data.reshape(-1, 3, 32, 32), labels))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {i}" for i in range(10)]}))
    return parts


def write_idx(path, values):
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    content = header + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_fashion(folder, suffix=".gz"):
    folder.mkdir(parents=True)
    images = NUMBERS.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    for part, count in (("train", 30), ("t10k", 10)):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images[:count])
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(count, dtype=np.uint8) % 10)
    return images


def write_images(folder, splits=("train", "test"), classes=("cat", "dog"), suffix=".png"):
    for split in splits:
        for value, name in enumerate(classes):
            (folder / split / name).mkdir(parents=True)
            for i, size in enumerate([(40, 30), (30, 50)]):
                pixels = np.full((*size, 3), 60 * value + 10 * i, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}{suffix}")


# Real files


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "classes"),
    [
        ("cifar10", 10_000, 2_000, (3, 32, 32), 10),
        ("cifar100", 5_000, 1_000, (3, 32, 32), 100),
        ("fashion-mnist", 10_000, 2_000, (1, 28, 28), 10),
        ("medmnist/pneumoniamnist", 4_708, 624, (1, 28, 28), 2),
        ("caltech-101-subset", 400, 100, (3, 64, 64), 10),
    ],
)
def test_real_sets(data_root, name, train, test, shape, classes):
    if datasets.find_dataset(name) is None:
        pytest.skip(f"{name} is not in {data_root}")
    data = load_dataset(name)
    assert data.official or (len(data.train), len(data.test)) == (train, test)  # the full sets are welcome too
    assert data.train.images.shape[1:] == data.test.images.shape[1:] == shape
    assert data.train.images.dtype == torch.uint8
    assert data.train.labels.unique().tolist() == data.test.labels.unique().tolist() == list(range(classes))
    assert len(data.classes) == classes
    assert data.train.images.is_contiguous()


def test_real_pneumoniamnist_is_the_official_set(data_root):
    if not (data_root / "medmnist/pneumoniamnist.npz").exists():
        pytest.skip(f"medmnist/pneumoniamnist is not in {data_root}")
    data = load_dataset("medmnist/pneumoniamnist")
    assert data.official
    assert data.train.labels.bincount().tolist() == [1214, 3494]  # as published
    assert data.test.labels.bincount().tolist() == [234, 390]


def test_real_pneumoniamnist_has_its_validation_split(data_root):
    if not (data_root / "medmnist/pneumoniamnist.npz").exists():
        pytest.skip(f"medmnist/pneumoniamnist is not in {data_root}")
    data, whole = (load_dataset(f"medmnist/pneumoniamnist{split}") for split in (":val", ""))
    assert data.official
    assert data.train.labels.bincount().tolist() == [135, 389]  # as published
    assert torch.equal(data.test.images, whole.test.images)
    assert data.classes == whole.classes


def test_real_cifar10_looks_like_cifar10(data_root):
    if not (data_root / "cifar-10-batches-py").exists():
        pytest.skip(f"cifar10 is not in {data_root}")
    data = load_dataset("cifar10")
    assert data.classes[:3] == ("airplane", "automobile", "bird")
    torch.testing.assert_close(data.mean, torch.tensor([0.4914, 0.4822, 0.4465]), rtol=0, atol=0.005)  # as published
    torch.testing.assert_close(data.std, torch.tensor([0.2470, 0.2435, 0.2616]), rtol=0, atol=0.005)
    images = data.train.images.float()
    step = (images[..., 1:] - images[..., :-1]).abs().mean()
    assert step < 0.5 * (images[..., 16:] - images[..., :16]).abs().mean()  # neighbours are alike: rows are rows


# Readers


def test_cifar_batches_keep_order_and_planes(root):
    *train, (test_images, _) = write_cifar10(root)
    data = load_dataset("cifar10")
    assert np.array_equal(data.train.images.numpy(), np.concatenate([images for images, _ in train]))
    assert data.train.labels.tolist() == [label for _, labels in train for label in labels]
    assert np.array_equal(data.test.images.numpy(), test_images)
    assert data.classes[9] == "class 9"
    assert not data.official
    assert (data.title, dataclasses.replace(data, official=True).title) == ("CIFAR-10 subset", "CIFAR-10")


@pytest.mark.parametrize(
    ("place", "suffix"), [("FashionMNIST/raw", ".gz"), ("fashion-mnist", ".gz"), ("fashion-mnist", "")]
)
def test_fashion_mnist_in_both_places_packed_or_not(root, place, suffix):
    images = write_fashion(root / place, suffix)
    data = load_dataset("fashion-mnist")
    assert np.array_equal(data.train.images.numpy()[:, 0], images)
    assert np.array_equal(data.test.images.numpy()[:, 0], images[:10])
    assert data.test.labels.tolist() == list(range(10))
    assert data.classes[9] == "Ankle boot"


def test_medmnist_in_colour(root):
    images, labels = NUMBERS.integers(0, 256, (9, 28, 28, 3), dtype=np.uint8), np.arange(9)[:, None] % 3
    (root / "medmnist").mkdir()
    splits = {
        f"{split}_{part}": array
        for split in ("train", "test")
        for part, array in (("images", images), ("labels", labels))
    }
    np.savez(root / "medmnist/toymnist.npz", **splits)
    data = load_dataset("medmnist/toymnist")
    assert np.array_equal(data.train.images.permute(0, 2, 3, 1).numpy(), images)
    assert data.train.labels.tolist() == [0, 1, 2] * 3
    assert (data.official, data.title) == (False, "medmnist/toymnist")


def write_medmnist(root, name, train, val, test):
    """Grey images whose first pixel says their split, and labels 0, 1, 2, ... up to each split's own number."""
    (root / "medmnist").mkdir(exist_ok=True)
    arrays = {}
    for value, (split, count, classes) in enumerate((("train", *train), ("val", *val), ("test", *test))):
        arrays[f"{split}_images"] = np.full((count, 28, 28), value, np.uint8)
        arrays[f"{split}_labels"] = np.arange(count)[:, None] % classes
    np.savez(root / f"medmnist/{name}.npz", **arrays)


@pytest.mark.parametrize(("name", "meant"), [("CIFAR10", "cifar10"), ("cifar-10", "cifar10"), ("Digits", "digits")])
def test_a_misspelt_set_is_told_the_right_name(root, name, meant):
    with pytest.raises(DataError, match=rf"The set '{name}' is not at .*{name} \(did you mean {meant}\?\)"):
        load_dataset(name)


@pytest.mark.parametrize("shape", [(4, 64, 64), (4, 28, 28, 3)])
def test_training_and_test_images_of_other_shapes_are_refused(root, shape):
    write_medmnist(root, "toymnist", train=(9, 3), val=(5, 2), test=(4, 2))
    path = root / "medmnist/toymnist.npz"
    arrays = dict(np.load(path)) | {"test_images": np.zeros(shape, np.uint8)}
    np.savez(path, **arrays)
    message = r"toymnist\.npz has training images of 28 x 28 pixels with 1 channel\(s\) and test images of .*alike"
    for image_size in (None, 14):
        with pytest.raises(DataError, match=message):
            load_dataset("medmnist/toymnist", image_size=image_size)


def test_medmnist_validation_images_take_the_place_of_the_training_images(root):
    write_medmnist(root, "toymnist", train=(9, 3), val=(5, 2), test=(4, 2))
    data, usual = load_dataset("medmnist/toymnist:val"), load_dataset("medmnist/toymnist")
    assert data.train.images.unique().tolist() == [1]
    assert data.train.labels.tolist() == [0, 1, 0, 1, 0]
    assert data.test.images.unique().tolist() == [2]
    assert data.classes == usual.classes == ("0", "1", "2")  # those of the training split
    assert usual.train.images.unique().tolist() == [0]
    assert load_dataset("medmnist/toymnist:val", image_size=14).image_size == 14


@pytest.mark.parametrize("name", ["retinamnist", "retinamnist_64"])
def test_medmnist_splits_are_official_by_their_numbers(root, name):
    write_medmnist(root, name, train=(1080, 5), val=(120, 5), test=(400, 5))
    assert load_dataset(f"medmnist/{name}").official
    assert load_dataset(f"medmnist/{name}:val").official
    write_medmnist(root, name, train=(1080, 5), val=(119, 5), test=(400, 5))
    assert load_dataset(f"medmnist/{name}", image_size=27).official  # another size, so that it is read again
    assert not load_dataset(f"medmnist/{name}:val", image_size=27).official


def test_medmnist_counts_add_up_to_the_published_totals():
    totals = {name: {sum(counts) for counts in known} for name, known in datasets.MEDMNIST_COUNTS.items()}
    assert totals == {
        "bloodmnist": {17_092},
        "breastmnist": {780},
        "dermamnist": {10_015},
        "octmnist": {109_309},
        "organamnist": {58_850, 58_830},
        "organcmnist": {23_660, 23_583},
        "organsmnist": {25_221, 25_211},
        "pathmnist": {107_180},
        "pneumoniamnist": {5_856},
        "retinamnist": {1_600},
        "tissuemnist": {236_386},
    }


def test_a_medmnist_file_without_validation_images_is_named(root):
    (root / "medmnist").mkdir()
    arrays = {
        f"{split}_{part}": np.zeros((4, 1), np.uint8) for split in ("train", "test") for part in ("images", "labels")
    }
    np.savez(root / "medmnist/toymnist.npz", **arrays)
    with pytest.raises(DataError, match=r"toymnist\.npz is damaged or cut short .*val_images"):
        load_dataset("medmnist/toymnist:val")


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (np.zeros((4, 28, 28), np.float32), "train_images of float32"),
        (np.zeros((4, 28, 28), np.int64), r"images of int64 and shape \[4, 28, 28\]"),
        (np.zeros((4, 784), np.uint8), r"images of uint8 and shape \[4, 784\]"),
        (np.zeros((4, 28, 24), np.uint8), r"images of uint8 and shape \[4, 28, 24\]"),
    ],
)
def test_medmnist_with_images_of_another_form_is_not_called_damaged(root, images, told):
    labels = np.array([[0], [1], [0], [1]])
    arrays = {
        f"{split}_{kind}": values
        for split in ("train", "test")
        for kind, values in (("images", images), ("labels", labels))
    }
    (root / "medmnist").mkdir(exist_ok=True)
    np.savez(root / "medmnist/mine.npz", **arrays)
    with pytest.raises(DataError, match=rf"mine\.npz has {told}.*; expected are images of uint8"):
        load_dataset("medmnist/mine")


def test_medmnist_whose_labels_are_a_row_is_told_so(root):
    (root / "medmnist").mkdir()
    images, labels = np.zeros((4, 28, 28), np.uint8), np.zeros(4, np.uint8)
    arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(root / "medmnist/mine.npz", **arrays)
    with pytest.raises(DataError, match=r"mine\.npz has labels of shape \[4\]; expected are .*labels \[images, 1\]"):
        load_dataset("medmnist/mine")


def test_medmnist_with_several_labels_is_refused(root):
    (root / "medmnist").mkdir()
    images, labels = np.zeros((4, 28, 28), np.uint8), np.zeros((4, 14), np.uint8)
    np.savez(
        root / "medmnist/chestmnist.npz",
        train_images=images, train_labels=labels, test_images=images, test_labels=labels,
    )  # fmt: skip
    with pytest.raises(DataError, match="several labels"):
        load_dataset("medmnist/chestmnist")


@pytest.mark.parametrize("splits", [("train", "test"), ("train", "val")])
@pytest.mark.parametrize("suffix", [".png", ".JPEG"])
def test_a_folder_of_images(root, splits, suffix):
    write_images(root / "pets", splits, suffix=suffix)
    data = load_dataset("pets", image_size=24)
    assert data.classes == ("cat", "dog")
    assert data.train.images.shape == (4, 3, 24, 24)
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.train.images[:, 0, 12, 12].tolist() == pytest.approx([0, 10, 60, 70], abs=2)  # JPEG is not exact
    assert load_dataset("pets").image_size == 64
    assert not data.official


def test_folder_images_are_resized_at_the_shorter_side_and_cut_at_the_centre(root):
    write_images(root / "pets")
    pixels = NUMBERS.integers(0, 256, (40, 100, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(root / "pets/train/cat/0.png")
    image = load_dataset("pets", image_size=20).train.images[0]
    resized = TF.resize(torch.from_numpy(pixels).permute(2, 0, 1), [20, 50], antialias=True)
    assert torch.equal(image, resized[:, :, 15:35])


def test_images_below_the_class_folder_are_found(root):
    """Tiny ImageNet keeps them in train/<class>/images/."""
    write_images(root / "tiny", splits=("train", "val"), classes=("n01/images", "n02/images"))
    data = load_dataset("tiny")
    assert data.classes == ("n01", "n02")
    assert len(data.train) == 4


def test_image_size_resizes_every_set(root):
    write_cifar10(root)
    native, small = load_dataset("cifar10"), load_dataset("cifar10", image_size=16)
    assert native.image_size == 32
    assert small.image_size == 16
    expected = TF.resize(native.train.images[7], [16, 16], antialias=True)
    assert torch.equal(small.train.images[7], expected)
    assert load_dataset("digits", image_size=12).train.images.shape == (1347, 1, 12, 12)
    with pytest.raises(SettingError, match="image_size=0 cannot be used"):
        load_dataset("cifar10", image_size=0)


# What a set says about itself


def test_mean_and_std_equal_the_plain_form(root):
    write_cifar10(root)
    data = load_dataset("cifar10")
    values = data.train.images.double() / 255
    torch.testing.assert_close(data.mean, values.mean((0, 2, 3)).float())
    torch.testing.assert_close(data.std, values.std((0, 2, 3), correction=0).float())
    assert data.channels == 3
    assert data.mean.shape == (3,)


def test_a_channel_that_is_the_same_everywhere_stays_finite(root):
    write_cifar10(root)
    data = load_dataset("cifar10")
    images = data.train.images.clone()
    images[:, 1] = 7
    constant = dataclasses.replace(data, train=dataclasses.replace(data.train, images=images))
    assert constant.std[1] == 1
    normalised = constant.normalise(constant.train.images)
    assert normalised.isfinite().all()
    assert (normalised[:, 1] == 0).all()


def test_sets_on_the_cpu_are_read_once(root):
    write_cifar10(root)
    assert load_dataset("cifar10").train.images is load_dataset("cifar10").train.images


def test_embedded_sets_need_no_files(root):
    data = load_dataset("scattered-digits")
    assert (len(data.train), len(data.test), data.shape) == (4000, 1000, (1, 16, 16))
    assert data.classes == tuple("0123456789")
    assert load_dataset("digits").image_size == 8


def test_a_subset_gives_one_notice(root, capsys):
    write_cifar10(root)
    load_dataset("cifar10")
    load_dataset("cifar10")
    load_dataset("digits")
    printed = capsys.readouterr().err
    assert printed.count("the files of cifar10 are not the official ones (100 train and 20 test images)") == 1
    assert printed.count("\n") == 1


def test_official_files_are_recognised_by_count_and_checksum(root, monkeypatch, capsys):
    write_cifar10(root)
    folder = root / "cifar-10-batches-py"
    sums = [[path.name, hashlib.md5(path.read_bytes()).hexdigest()] for path in sorted(folder.glob("*batch*_*"))]
    monkeypatch.setitem(OUTLINES, "cifar10", Outline(100, 20, 10, 32))
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "train_list", sums)
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "test_list", [])
    assert load_dataset("cifar10").official
    assert capsys.readouterr().err == ""
    sums[0][1] = "0" * 32
    assert not load_dataset("cifar10", image_size=31).official  # another size, so that it is read again


# What can be wrong


def test_a_malicious_pickle_runs_nothing(root):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(root / "attacked"),)

    write_cifar10(root)
    (root / "cifar-10-batches-py/data_batch_2").write_bytes(pickle.dumps({"data": Attack()}))
    with pytest.raises(DataError, match=r"data_batch_2 asks for (posix|nt)\.mkdir.*not loaded"):
        load_dataset("cifar10")
    assert not (root / "attacked").exists()


@pytest.mark.parametrize("target", [print, eval, getattr, np.load, torch.load, np.random.default_rng])
def test_the_unpickler_refuses_every_other_name(root, target):
    path = root / "file"
    path.write_bytes(pickle.dumps([target]))
    with pytest.raises(DataError, match=f"{target.__name__}"):
        load_pickle(path)


def test_the_unpickler_reads_arrays_and_containers(root):
    path = root / "file"
    content = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": [1, None, True], "c": ("x", b"y", -300, 70_000)}
    path.write_bytes(pickle.dumps(content, protocol=4))
    loaded = load_pickle(path)
    assert np.array_equal(loaded.pop("a").array, content.pop("a"))
    assert loaded == content


def damage(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


@pytest.mark.parametrize("keep", [0, 0.01, 0.5, 0.99])
def test_truncated_files_are_named(root, keep):
    write_cifar10(root)
    damage(root / "cifar-10-batches-py/data_batch_3", keep)
    write_fashion(root / "fashion-mnist")
    damage(root / "fashion-mnist/train-images-idx3-ubyte.gz", keep)
    (root / "medmnist").mkdir()
    np.savez(root / "medmnist/toymnist.npz", train_images=np.zeros((4, 28, 28), np.uint8))
    damage(root / "medmnist/toymnist.npz", keep)
    write_images(root / "pets", suffix=".jpg")
    damage(root / "pets/train/dog/0.jpg", keep)
    for name, file, remedy in (
        ("cifar10", "data_batch_3", "Remove it and fetch the set anew"),
        ("fashion-mnist", "train-images-idx3-ubyte.gz", "Remove it and fetch the set anew"),
        ("medmnist/toymnist", "toymnist.npz", "Remove it and fetch the set anew"),
        ("pets", "dog.0.jpg", "Remove it, or put a whole copy in its place"),
    ):
        with pytest.raises(DataError, match=f"{file} is damaged or cut short .*{remedy}"):
            load_dataset(name)


def test_a_flipped_bit_in_an_archive_is_noticed(root):
    write_fashion(root / "fashion-mnist")
    path = root / "fashion-mnist/t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
        load_dataset("fashion-mnist")


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [0, 1]}, "3 images but labels of shape"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 10]}, "labels are not all from 0 to 9"),
        ({"data": np.zeros((2, 3072), np.float32), "labels": [0, 1]}, "an array of f4, where bytes"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [0, 1]}, "cannot reshape"),
        ({"labels": [0, 1]}, "'data'"),
        ([1, 2], "list indices"),
    ],
)
def test_contents_that_do_not_fit_are_named(root, batch, reason):
    write_cifar10(root)
    (root / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=f"test_batch is damaged or cut short \\(.*{reason}"):
        load_dataset("cifar10")


def test_a_missing_file_of_a_set_is_named(root):
    write_cifar10(root)
    (root / "cifar-10-batches-py/data_batch_5").unlink()
    with pytest.raises(DataError, match="data_batch_5 is missing, the rest of its set is there"):
        load_dataset("cifar10")


def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(root, monkeypatch):
    with pytest.raises(DataError) as error:
        load_dataset("cifar10")
    assert str(root / "cifar-10-batches-py") in str(error.value)
    assert "fssl data cifar10 --download" in str(error.value)
    for name in ("medmnist/bloodmnist", "medmnist/bloodmnist:val"):
        with pytest.raises(
            DataError, match=r"is not at .*bloodmnist\.npz\. Fetch https://zenodo.org/records/\d+/files/bloodmnist\.npz"
        ):
            load_dataset(name)
    for name in ("medmnist/pathmnst", "medmnist/pathmnist:test"):  # which cannot be fetched
        with pytest.raises(DataError, match=rf"'{name}' is not .*\.npz\. Put an npz .*bloodmnist, .*, pathmnist, "):
            load_dataset(name)
    with pytest.raises(
        DataError, match=r"'cifar-10' is not at .*train/<class>.*one of: scattered-digits, digits, cifar10"
    ):
        load_dataset("cifar-10")
    write_cifar10(root)
    for name in ("cifar10", "digits"):  # which are there
        with pytest.raises(DataError, match=rf"'{name}:val' is not at .*{name}:val \(did you mean {name}\?\)"):
            load_dataset(f"{name}:val")
    monkeypatch.delenv("FSSL_DATA")
    (root / "pyproject.toml").touch()
    (root / "notebooks").mkdir()
    monkeypatch.chdir(root)
    assert current_root() == root / "data"
    with pytest.raises(DataError, match="FSSL_DATA is not set, so the project's own folder was searched"):
        load_dataset("cifar100")


def test_folders_that_do_not_fit_are_named(root):
    write_images(root / "no-test", splits=("train",))
    with pytest.raises(DataError, match="no-test needs the folders train/<class>/ and test/<class>/"):
        load_dataset("no-test")
    write_images(root / "other", splits=("train",))
    write_images(root / "other", splits=("test",), classes=("cat", "mouse"))
    with pytest.raises(DataError, match="same classes; only one has: dog, mouse"):
        load_dataset("other")
    write_images(root / "empty")
    (root / "empty/train/eel").mkdir()
    with pytest.raises(DataError, match=r"train has no \.jpg, \.jpeg, \.png images in eel/"):
        load_dataset("empty")


# Inventory and download


def test_inventory_lists_what_is_there(root):
    write_cifar10(root)
    write_images(root / "pets")
    write_images(root / "broken", splits=("train",))
    write_images(root / "x\x1b[2Jy\nfssl: forged")  # could write to the terminal
    table = inventory().set_index("name")
    assert list(table.index) == known_datasets()
    known = ["scattered-digits", "digits", "cifar10", "cifar100", "fashion-mnist", "coco"]
    assert list(table.index) == [*known, "broken", "pets"]
    assert table.loc["cifar10", ["found", "train", "test", "official"]].tolist() == [True, 100, 20, False]
    assert table.loc["pets", ["train", "test"]].tolist() == [4, 4]
    assert table.loc["scattered-digits", ["train", "test", "path"]].tolist() == [4000, 1000, "embedded"]
    assert not table.loc["cifar100", "found"]
    assert table.loc["cifar100", "path"] == str(root / "cifar-100-python")
    assert "needs the folders" in table.loc["broken", "problem"]
    assert (table.drop(index="broken").problem == "").all()


@pytest.mark.parametrize("name", ["cifar10", "digits"])
def test_a_folder_with_the_name_of_a_known_set_is_not_listed_beside_it(root, name):
    write_images(root / name)
    assert known_datasets().count(name) == 1


def test_download_asks_torchvision(root, monkeypatch):
    asked = []

    def fetch(folder, download):
        asked.append((folder, download))
        write_cifar10(root)

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fetch)
    assert download("cifar10") == root / "cifar-10-batches-py"
    assert asked == [(root, True)]
    with pytest.raises(DataError, match=r"not the official ones\. Move them away first"):  # what `fetch` wrote is small
        download("cifar10")
    assert len(asked) == 1


def test_download_without_network_says_so(root, monkeypatch):
    def fetch(folder, download):
        raise OSError("no route to host")

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", fetch)
    with pytest.raises(DataError, match=r"fashion-mnist could not be fetched .*no route to host"):
        download("fashion-mnist")


def test_sets_without_a_download_say_how_to_get_them(root):
    with pytest.raises(DataError, match="scattered-digits is embedded"):
        download("scattered-digits")
    with pytest.raises(
        DataError, match=r"pathmnist cannot be downloaded; cifar10, cifar100, fashion-mnist can.*medmnist\.com"
    ):
        download("medmnist/pathmnist")
    (root / "mine/train").mkdir(parents=True)
    (root / "mine/train/1.jpg").touch()
    with pytest.raises(DataError, match=r"mine is at .*/mine already; it cannot be downloaded, cifar10, "):
        download("mine")
    train, validation = missing_datasets(["medmnist/pathmnist", "medmnist/pathmnist:val"]).values()
    assert train == validation  # one file has both, so one sentence is enough


@pytest.mark.gpu
def test_tensors_go_to_the_device():
    data = load_dataset("digits", device="cuda")
    assert data.train.images.is_cuda
    assert data.test.labels.is_cuda
    torch.testing.assert_close(data.mean.cpu(), load_dataset("digits").mean)
    assert load_dataset("digits").train.images.device.type == "cpu"


def test_fewer_images_are_the_first_of_each_class():
    data = load_dataset("digits")
    fewer = data.with_fewer_images(50)
    assert fewer.train.labels.bincount().tolist() == [5] * 10
    assert fewer.test is data.test
    for label in range(10):
        expected = data.train.images[data.train.labels == label][:5]
        assert torch.equal(fewer.train.images[fewer.train.labels == label], expected)


@pytest.mark.parametrize("count", [0, 55, 10_000])
def test_a_number_of_images_that_cannot_be_met(count):
    with pytest.raises(SettingError, match=f"train_images={count} .*multiple of 10"):
        load_dataset("digits").with_fewer_images(count)
