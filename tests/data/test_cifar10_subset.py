import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fssl_core.data import cifar10_subset, digests, readers
from fssl_core.data.cifar10_subset import CLASSES, SHA256, contents, places, write_subset
from fssl_core.data.readers import load_pickle, read_cifar10
from fssl_core.errors import DataError
from fssl_core.experiments.archive import opened
from fssl_core.paths import project_root
from tests.data.test_datasets import write_cifar10

FOLDER = "cifar-10-batches-py"


@pytest.fixture
def official(root, monkeypatch):
    """Say what the files in the data root have, which would be 184 MB; black images of class 0, unless told."""
    (root / FOLDER).mkdir()

    def say(train=None, test=None, classes=CLASSES):
        monkeypatch.setattr(readers, "read_cifar10", lambda _: (train or black(50_000), test or black(10_000), classes))

    say()
    return say


def black(count):
    return torch.zeros(1, 3, 32, 32, dtype=torch.uint8).expand(count, -1, -1, -1), torch.zeros(1).long().expand(count)


def sums(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def read_files(folder):
    return {name: (folder / name).read_bytes() for name in SHA256}


# Made-up files


def test_images_labels_and_names_are_those_at_the_places(root, tmp_path):
    write_cifar10(root, per_batch=20)
    train, test, _ = read_cifar10([root / FOLDER / name for name in SHA256])
    chosen = np.random.default_rng(1).permutation(100)[:24].reshape(6, 4).astype(np.uint16)
    chosen[5] = 19, 0, 7, 3  # of 20
    for name, content in contents(train, test, chosen).items():
        (tmp_path / name).write_bytes(content)
    (images, labels), (test_images, test_labels), classes = read_cifar10([tmp_path / name for name in SHA256])
    assert torch.equal(images, train[0][chosen[:5].ravel().tolist()])
    assert torch.equal(labels, train[1][chosen[:5].ravel().tolist()])
    assert torch.equal(test_images, test[0][[19, 0, 7, 3]])
    assert torch.equal(test_labels, test[1][[19, 0, 7, 3]])
    assert classes == CLASSES
    batch = load_pickle(tmp_path / "data_batch_2")
    assert batch["filenames"] == [f"train_{place:05}.png" for place in chosen[1].tolist()]
    assert batch["batch_label"] == "training batch 2 of 5"
    assert load_pickle(tmp_path / "test_batch")["filenames"][0] == "test_00019.png"
    assert load_pickle(tmp_path / "batches.meta")["num_cases_per_batch"] == 4


def test_the_bytes_do_not_change_with_versions():
    files = contents(black(50_000), black(10_000), places())
    assert sums(files)["batches.meta"] == SHA256["batches.meta"]
    whole = hashlib.sha256(b"".join(files.values())).hexdigest()  # when the bytes of the real files were the recorded
    assert whole == "b03d5db96229546efc84200c27ba63ca07d1134b084aa985083e5c0fb9718a01"


def test_every_place_is_one_of_the_official_files_and_taken_once():
    assert places().shape == (6, 2000)
    train, test = places()[:5].ravel(), places()[5]
    assert len(set(train.tolist())) == 10_000
    assert len(set(test.tolist())) == 2_000
    assert train.max() < 50_000
    assert test.max() < 10_000


def test_the_checksums_are_those_of_the_images_that_recorded_runs_read(tmp_path):
    listed = "".join(f"{checksum} {name}\n" for name, checksum in SHA256.items())
    digest = hashlib.sha256(f"readers {digests.READERS}\n{listed}".encode()).hexdigest()[: digests.DIGITS]
    with opened(project_root() / "figures/mfcl/runs.workstation.zip", tmp_path) as archive:
        settings = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith("/settings.json")]
    assert {one["data"]["cifar10"] for one in settings} == {digest}


def test_a_new_folder_has_the_files(official, tmp_path, monkeypatch):
    files = contents(black(50_000), black(10_000), places())
    monkeypatch.setattr(cifar10_subset, "SHA256", sums(files))
    monkeypatch.chdir(tmp_path)
    folder = write_subset(Path("new/made"))
    assert folder == tmp_path / "new/made" / FOLDER
    assert read_files(folder) == files
    assert [path.name for path in folder.parent.iterdir()] == [FOLDER]
    with pytest.raises(DataError, match=f"{folder} holds the files of the recorded runs already"):
        write_subset(tmp_path / "new/made")
    monkeypatch.setenv("FSSL_DATA", str(folder.parent))
    with pytest.raises(DataError, match=f"The files in {folder} are those of the recorded runs already: there is noth"):
        write_subset(tmp_path / "again")
    assert not (tmp_path / "again").exists()


# What is refused


def test_without_cifar10_it_is_said_how_to_get_it(root, tmp_path):
    with pytest.raises(DataError, match="fssl data cifar10 --download"):
        write_subset(tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_too_few_images_or_other_classes_are_refused(root, tmp_path):
    write_cifar10(root, per_batch=20)
    with pytest.raises(DataError, match=r"not hold the official .* here are 100 and 20 of the classes class 0, class"):
        write_subset(tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_other_classes_are_refused_in_one_line(official, tmp_path):
    official(classes=("a\n\x1b[2J", *CLASSES[1:]))
    with pytest.raises(
        DataError, match=r"50,000 and 10,000 of the classes a \ufffd\[2J, automobile, .* Move them away, th"
    ):
        write_subset(tmp_path / "made")


def test_other_images_or_labels_are_named_and_nothing_is_written(official, tmp_path):
    with pytest.raises(DataError, match=r"another data_batch_1, data_batch_2, .*, test_batch \(by SHA-256\), and was"):
        write_subset(tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_what_is_there_stays(official, root):
    (root / FOLDER / "mine").write_text("kept")
    with pytest.raises(DataError, match="is there already and stays as it is: name another folder"):
        write_subset(root)
    assert [path.name for path in (root / FOLDER).iterdir()] == ["mine"]


def test_of_a_full_disk_nothing_stays_behind(official, tmp_path, monkeypatch):
    files = contents(black(50_000), black(10_000), places())
    monkeypatch.setattr(cifar10_subset, "SHA256", sums(files))
    write = cifar10_subset.atomic_write

    def full(path):
        if path.name == "data_batch_3":
            raise OSError(28, "No space left on device")
        return write(path)

    monkeypatch.setattr(cifar10_subset, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        write_subset(tmp_path / "made")
    assert [*(tmp_path / "made").iterdir()] == []


# Real files


@pytest.fixture
def real(data_root):
    """The folder of the real set, which may be the official one or the subset."""
    if not (data_root / FOLDER).exists():
        pytest.skip(f"cifar10 is not in {data_root}")
    return data_root / FOLDER


def test_the_real_subset_comes_out_again_byte_for_byte(real, official, tmp_path):
    batches = [load_pickle(real / name) for name in SHA256 if name != "batches.meta"]
    if len(batches[0]["labels"]) != 2_000:
        pytest.skip(f"needs the subset of cifar10, and the whole set is in {real}")
    names = [name for batch in batches for name in batch["filenames"]]
    assert names == [f"{'test' if row == 5 else 'train'}_{place:05}.png" for row in range(6) for place in places()[row]]
    whole = []
    for rows, count in ((slice(0, 5), 50_000), (slice(5, 6), 10_000)):
        at = places()[rows].ravel().tolist()
        images, labels = torch.zeros(count, 3072, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64)
        images[at] = torch.from_numpy(np.concatenate([batch["data"].array for batch in batches[rows]]))
        labels[at] = torch.tensor([label for batch in batches[rows] for label in batch["labels"]])
        whole.append((images.reshape(-1, 3, 32, 32), labels))
    official(*whole)
    made = write_subset(tmp_path / "made")
    assert read_files(made) == read_files(real)
    assert sums(read_files(real)) == SHA256


def test_the_real_official_files_make_the_subset(real, tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_DATA", str(real.parent))
    if len(load_pickle(real / "data_batch_1")["labels"]) != 10_000:
        pytest.skip(f"needs the official cifar10, and a subset is in {real}")
    assert sums(read_files(write_subset(tmp_path / "made"))) == SHA256
