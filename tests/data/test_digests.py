"""Sets of one name are told apart by what their files hold; who has not changed is not read again."""

import os
import shutil

import pytest
import torch
from PIL import Image

from fssl_core.data import datasets, digests
from fssl_core.data.datasets import DOWNLOADS, data_digest, load_dataset
from fssl_core.errors import DataError

pytestmark = pytest.mark.usefixtures("root")


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (value, 2 * value, 3)).save(path)


@pytest.fixture
def photos(root):
    for split in ("train", "test"):
        for number, name in enumerate(("cat", "dog")):
            for image in range(3):
                write(root / "pets" / split / name / f"{image}.png", 40 * number + image)
    return root / "pets"


def replace(photos):
    write(photos / "train/cat/1.png", 99)


def swap_labels(photos):
    os.rename(photos / "train/cat/2.png", photos / "train/dog/3.png")
    os.rename(photos / "train/dog/2.png", photos / "train/cat/2.png")


def double(photos):
    for path in list(photos.rglob("*.png")):
        path.with_name(f"again-{path.name}").write_bytes(path.read_bytes())


def remove(photos):
    (photos / "test/dog/2.png").unlink()


def replace_keeping_size_and_time(photos):
    path = photos / "train/cat/1.png"
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [replace, swap_labels, double, remove, replace_keeping_size_and_time])
def test_other_images_or_labels_have_another_digest(photos, change):
    before = data_digest("pets")
    assert data_digest("pets") == before
    change(photos)
    assert data_digest("pets") != before


def test_a_change_is_seen_by_the_process_that_has_read_the_set_before(photos):
    before = load_dataset("pets").train.images
    assert load_dataset("pets").train.images is before
    replace(photos)
    assert not torch.equal(load_dataset("pets").train.images, before)
    double(photos)
    assert len(load_dataset("pets").train) == 2 * len(before)


def test_a_digest_does_not_depend_on_where_the_set_lies_or_when_it_was_written(photos, root):
    before = data_digest("pets")
    os.rename(photos, root / "animals")
    for path in (root / "animals").rglob("*.png"):
        os.utime(path, (1, 1))
    assert data_digest("animals") == before
    assert data_digest("pets") is None


def test_a_known_set_is_not_read_again(photos, monkeypatch):
    before = data_digest("pets")
    monkeypatch.setattr(digests, "_sum", lambda path: pytest.fail(f"{path} was read again"))
    assert data_digest("pets") == before


def test_machines_with_images_of_their_own_at_one_path_read_them_once(photos, monkeypatch):
    others, away = photos.with_name("others"), photos.with_name("away")
    shutil.copytree(photos, others)
    for _ in range(2):
        before = data_digest("pets")
        photos.rename(away)
        others.rename(photos)
        assert data_digest("pets") == before
        photos.rename(others)
        away.rename(photos)
        monkeypatch.setattr(digests, "_sum", lambda path: pytest.fail(f"{path} was read again"))


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"a": 3}', '{"a": [1, 2]}', "[" * 100_000, "\udcff"])
def test_a_damaged_cache_is_made_anew(photos, tmp_path, content):
    before = data_digest("pets")
    (tmp_path / "runs/digests.json").write_bytes(content.encode(errors="surrogateescape"))
    assert data_digest("pets") == before
    assert len(digests._kept(tmp_path / "runs/digests.json")) == 1


def test_a_cache_that_cannot_be_written_costs_time_only(photos, tmp_path, monkeypatch):
    before = data_digest("pets")
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "a file"))
    assert data_digest("pets") == before


def test_embedded_sets_are_known_by_their_version_and_not_made(monkeypatch):
    monkeypatch.setattr(datasets, "EMBEDDED", dict.fromkeys(datasets.EMBEDDED, lambda: pytest.fail("made")))
    assert data_digest("scattered-digits") == data_digest("digits") == "embedded 1"


def test_a_set_that_is_not_there_has_no_digest(root):
    assert data_digest("cifar10") is None
    assert data_digest("nowhere") is None
    (root / "empty/train/cat").mkdir(parents=True)
    assert data_digest("empty") is None


def test_a_subset_and_the_official_files_differ(data_root, monkeypatch, tmp_path):
    monkeypatch.setenv("FSSL_DATA", str(data_root))
    folder = datasets.find_dataset("cifar10")
    if folder is None:
        pytest.skip("needs cifar10")
    here = data_digest("cifar10")
    other = tmp_path / "other" / folder.name
    other.mkdir(parents=True)
    for path in folder.iterdir():
        (other / path.name).symlink_to(path)
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "other"))
    assert data_digest("cifar10") == here
    (other / "data_batch_3").unlink()
    (other / "data_batch_3").write_bytes((folder / "data_batch_2").read_bytes())
    assert data_digest("cifar10") != here


def test_a_pipe_in_a_set_keeps_nobody_waiting(photos, root):
    os.mkfifo(next(photos.rglob("*.png")).with_name("pipe.png"))
    assert data_digest("pets") is None
    with pytest.raises(DataError, match="not a regular file"):
        load_dataset("pets")


def test_a_set_that_may_not_be_read_is_an_error(photos, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", str(photos / "train"))

    monkeypatch.setattr(datasets.folders, "read_folder", refuse)
    with pytest.raises(DataError, match="pets/train may not be read: change its permissions"):
        load_dataset("pets")


def test_what_lies_zipped_beside_files_that_are_read_does_not_hide_that_they_changed(root):
    folder = root / DOWNLOADS["cifar10"].folders[0]
    folder.mkdir()
    for name in DOWNLOADS["cifar10"].files:
        (folder / name).write_bytes(b"old")
        (folder / f"{name}.gz").write_bytes(b"zipped")
    before = data_digest("cifar10")
    (folder / DOWNLOADS["cifar10"].files[0]).write_bytes(b"new")
    assert data_digest("cifar10") != before
