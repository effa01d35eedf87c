"""Folders of images without classes, and large ones, which are decoded once."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as TF

from fssl_core.data import datasets, folders
from fssl_core.data.datasets import inventory, load_dataset
from fssl_core.data.outlines import OUTLINES, Outline
from fssl_core.errors import DataError, SettingError

NUMBERS = np.random.default_rng(0)
PLACES = ("coco/train2017", "coco/train", "coco")


def write_photos(folder, count=7, suffix=".jpg"):
    """Smooth images of unlike sizes, one of them grey."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        side = 40 + 3 * number
        coarse = Image.fromarray(NUMBERS.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        photo = coarse.resize((side, 40), Image.Resampling.BICUBIC)
        photo.convert("L" if number == 1 else "RGB").save(folder / f"{number:012d}{suffix}")


@pytest.mark.parametrize("place", PLACES)
def test_images_in_no_class_folder_are_an_unlabelled_set(root, place):
    write_photos(root / place)
    (root / place / "readme.txt").touch()
    data = load_dataset("coco", image_size=16)
    assert not data.labelled
    assert data.classes == ()
    assert data.train.images.shape == (7, 3, 16, 16)
    assert data.train.images.dtype == torch.uint8
    assert data.train.labels.tolist() == [-1] * 7
    assert (len(data.test), data.test.images.shape[1:]) == (0, (3, 16, 16))
    for number, image in enumerate(data.train.images):  # in the order of their names, one by one
        pixels = TF.pil_to_tensor(Image.open(root / place / f"{number:012d}.jpg").convert("RGB"))
        assert torch.equal(image, TF.center_crop(TF.resize(pixels, [16], antialias=True), [16, 16]))
    assert load_dataset("coco").image_size == 64


def test_official_coco_next_to_its_other_archives(root):
    write_photos(root / "coco/train2017")
    write_photos(root / "coco/val2017", 2)
    (root / "coco/annotations").mkdir()
    assert len(load_dataset("coco").train) == 7


def test_what_an_unlabelled_set_says_of_itself(root):
    write_photos(root / "holidays/train")
    data = load_dataset("holidays")
    values = data.train.images.double() / 255
    torch.testing.assert_close(data.mean, values.mean((0, 2, 3)).float())
    assert torch.equal(data.with_fewer_images(3).train.images, data.train.images[:3])
    assert datasets.digest(data) != datasets.digest(data.with_fewer_images(3))
    for count in (0, 8):
        with pytest.raises(SettingError, match=f"train_images={count} .*from 1 to 7"):
            data.with_fewer_images(count)


def test_class_folders_win_over_images_beside_them(root):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            write_photos(root / "pets" / split / name, 2)
    write_photos(root / "pets/train", 3)
    data = load_dataset("pets")
    assert data.labelled
    assert len(data.train) == 4


def test_a_folder_that_is_neither_says_what_is_needed(root):
    write_photos(root / "mixed", 2)
    (root / "mixed/cat").mkdir()
    (root / "file").touch()
    (root / "nothing").mkdir()
    for name in ("mixed", "file", "nothing"):
        with pytest.raises(DataError, match=r"needs the folders train/<class>/.*without classes, images directly"):
            load_dataset(name)


def test_coco_is_official_by_its_number_of_images(root, monkeypatch, capsys):
    write_photos(root / "coco/train2017")
    assert not load_dataset("coco").official
    assert "the files of coco are not the official ones (7 train and 0 test images)" in capsys.readouterr().err
    monkeypatch.setitem(OUTLINES, "coco", Outline(7, 0, 0, 64))
    assert load_dataset("coco", image_size=20).official  # another size, so that it is read again
    assert capsys.readouterr().err == ""


def test_a_missing_coco_says_how_to_get_it(root):
    with pytest.raises(DataError) as error:
        load_dataset("coco")
    for part in (str(root / "coco"), "images.cocodataset.org/zips/train2017.zip (18 GB)", "train2017."):
        assert part in str(error.value)
    row = inventory().set_index("name").loc["coco"]
    assert (row.found, row.path) == (False, str(root / "coco"))


@pytest.mark.parametrize("place", PLACES)
def test_the_inventory_counts_unlabelled_images_without_decoding_them(root, place):
    write_photos(root / place)
    write_photos(root / "holidays", 4, suffix=".PNG")
    (root / place / "000000000000.jpg").write_bytes(b"")
    table = inventory().set_index("name")
    assert table.index.is_unique
    assert table.loc["coco", ["found", "train", "test", "official", "problem"]].tolist() == [True, 7, 0, False, ""]
    assert table.loc["holidays", ["train", "test"]].tolist() == [4, 0]


def test_a_damaged_image_is_named(root):
    write_photos(root / "coco/train2017", 90)
    path = root / "coco/train2017/000000000070.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match=r"000000000070\.jpg is damaged or cut short .* put a whole copy in its place"):
        load_dataset("coco")


# Large sets


def counted(monkeypatch):
    """Decode sets of any size once; the list of calls."""
    calls, decode = [], folders._decode_all

    def decode_all(paths, size):
        calls.extend([size] if paths else [])
        return decode(paths, size)

    monkeypatch.setattr(folders, "KEPT_FROM", 5)
    monkeypatch.setattr(folders, "_decode_all", decode_all)
    return calls


def load_again(image_size):
    datasets._load.cache_clear()  # as in a new process
    return load_dataset("coco", image_size=image_size).train.images


def test_a_large_set_is_decoded_once_for_each_size(root, monkeypatch, capsys):
    write_photos(root / "coco/train2017")
    small = load_again(16)
    calls = counted(monkeypatch)
    assert torch.equal(load_again(16), small)
    assert torch.equal(load_again(16), small)
    assert load_again(24).shape[-1] == 24
    assert calls == [16, 24]
    assert "decoding 7 images" in capsys.readouterr().err


def test_a_set_that_has_changed_is_decoded_anew(root, monkeypatch):
    write_photos(root / "coco/train2017")
    calls = counted(monkeypatch)
    load_again(16)
    write_photos(root / "coco/train2017", 8)
    assert len(load_again(16)) == 8
    path = root / "coco/train2017/000000000000.jpg"
    os.utime(path, ns=(0, 0))
    load_again(16)
    path.rename(path.with_stem("a"))
    load_again(16)
    assert calls == [16] * 4


def test_a_damaged_copy_is_replaced(root, monkeypatch):
    write_photos(root / "coco/train2017")
    calls = counted(monkeypatch)
    images = load_again(16)
    (kept,) = (root.parent / "runs/images").iterdir()
    whole = kept.read_bytes()
    one_pixel = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    for content in (whole[:200], b"", b"text", one_pixel):
        kept.write_bytes(content)
        assert torch.equal(load_again(16), images)
    assert calls == [16] * 5
    assert torch.equal(load_again(16), images)
    assert len(calls) == 5


# ---------------------------------------------------------------- Tiny ImageNet


def write_tiny_imagenet(folder, classes=("n01", "n02", "n03"), each=2):
    """As the archive has it: boxes beside training images, one folder for validation, and a test set without labels."""
    lines = []
    for number, name in enumerate(classes):
        write_photos(folder / "train" / name / "images", each, ".JPEG")
        (folder / "train" / name / f"{name}_boxes.txt").touch()
        lines += [f"val_{number + len(classes) * turn}.JPEG\t{name}\t0\t0\t9\t9" for turn in range(each)]
    (folder / "val" / "images").mkdir(parents=True)
    for line in lines:
        value = 40 * (1 + classes.index(line.split("\t")[1]))
        Image.new("RGB", (64, 64), (value,) * 3).save(folder / "val" / "images" / line.split("\t")[0])
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    write_photos(folder / "test" / "images", 1, ".JPEG")
    (folder / "wnids.txt").write_text("\n".join(classes))


def test_tiny_imagenet_as_it_is_published(root):
    write_tiny_imagenet(root / "tiny-imagenet-200")
    data = load_dataset("tiny-imagenet-200")
    assert data.classes == ("n01", "n02", "n03")
    assert (len(data.train), len(data.test)) == (6, 6)
    assert data.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    means = data.test.images.float().mean((1, 2, 3))
    assert torch.allclose(means, 40 * (1 + data.test.labels.float()), atol=3)
    assert not data.official


def test_other_classes_in_the_table_are_other_data(root):
    write_tiny_imagenet(root / "tiny-imagenet-200")
    before = datasets.data_digest("tiny-imagenet-200")
    table = root / "tiny-imagenet-200/val/val_annotations.txt"
    text = table.read_text()
    table.write_text(text.replace("val_0.JPEG\tn01", "val_0.JPEG\tn03").replace("val_2.JPEG\tn03", "val_2.JPEG\tn01"))
    assert table.read_text() != text
    assert datasets.data_digest("tiny-imagenet-200") != before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("val_0.JPEG n01", "with a tab between"),
        ("../../other.JPEG\tn01", "with a tab between"),
        ("val_0.JPEG\tn01\nval_0.JPEG\tn01", "line 2"),
        ("val_0.JPEG\tn01", "has 5 more"),
        ("", "has 6 more"),
    ],
)
def test_a_damaged_table_of_tiny_imagenet_is_refused(root, line, said):
    write_tiny_imagenet(root / "tiny-imagenet-200")
    (root / "tiny-imagenet-200/val/val_annotations.txt").write_text(line)
    with pytest.raises(DataError, match=said):
        load_dataset("tiny-imagenet-200")


def test_a_set_larger_than_memory_is_told_with_its_bytes():
    with pytest.raises(DataError, match="10 images of 10000000 pixels need 3,000,000,000,000,000 bytes"):
        folders._decode_all(["a.png"] * 10, 10**7)


def test_files_that_were_written_again_with_their_old_times_are_decoded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "KEPT_FROM", 2)
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    root = tmp_path / "mine"

    def value_of(grey):
        for path in (root / part / name / "0.png" for part in ("train", "test") for name in "ab"):
            path.parent.mkdir(parents=True, exist_ok=True)
            times = path.stat() if path.exists() else None
            Image.new("RGB", (8, 8), (grey, grey, grey)).save(path, compress_level=0)
            if times:
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        monkeypatch.setenv("FSSL_DATA", str(tmp_path))
        return load_dataset("mine", image_size=8).train.images.unique().tolist()

    assert [value_of(10), value_of(200)] == [[10], [200]]
