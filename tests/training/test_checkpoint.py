"""Checkpoints: what is saved comes back, whatever happens to the process, the disk or the files."""

import errno
import functools
import hashlib
import io
import os
import pickle
import resource
import struct
import zipfile

import numpy as np
import pytest
import torch

from fssl_core.errors import CheckpointError, FsslError
from fssl_core.training.checkpoint import Checkpoint, load_tensors, save_tensors
from fssl_core.training.parts import Parts


def state(epoch: int) -> dict:
    return {
        "epoch": epoch,
        "model": {"weight": torch.full((3, 2), float(epoch)), "steps": torch.tensor(epoch)},
        "rows": [{"loss": 0.5, "note": "first", "done": False, "best": None}, (1, 2)],
    }


@pytest.fixture
def checkpoint(tmp_path):
    """Two states saved: epoch 1 is the previous one, epoch 2 the current one."""
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.save(state(1))
    checkpoint.save(state(2))
    return checkpoint


def files(checkpoint):
    return sorted(path.name for path in checkpoint.folder.iterdir())


def test_what_is_saved_comes_back(checkpoint):
    loaded = checkpoint.load()
    assert loaded["rows"] == state(2)["rows"]
    assert torch.equal(loaded["model"]["weight"], state(2)["model"]["weight"])
    assert loaded["model"]["steps"].dtype == torch.int64
    assert files(checkpoint) == ["checkpoint.previous.pt", "checkpoint.pt"]


def test_nothing_saved_is_none(tmp_path):
    assert Checkpoint(tmp_path / "never").load() is None
    assert not (tmp_path / "never").exists()


def test_remove_leaves_nothing(checkpoint):
    checkpoint.remove()
    assert checkpoint.load() is None
    assert files(checkpoint) == []


def test_after_save_is_called_once_the_state_is_on_disk(tmp_path):
    seen = []
    checkpoint = Checkpoint(tmp_path)
    checkpoint.after_save = lambda: seen.append(checkpoint.load()["epoch"])
    checkpoint.save(state(1))
    checkpoint.save(state(2))
    assert seen == [1, 2]


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_a_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lambda content: b""])
def test_damaged_file_falls_back_to_the_previous_one_and_says_so(checkpoint, damage):
    checkpoint.path.write_bytes(damage(checkpoint.path.read_bytes()))
    with pytest.warns(
        UserWarning, match=r"checkpoint\.pt is truncated or damaged.*Going on from the checkpoint before"
    ):
        assert checkpoint.load()["epoch"] == 1
    checkpoint.save(state(3))  # and the damaged file has not become the previous one
    assert load_tensors(checkpoint.previous)["state"]["epoch"] == 1


def test_a_damaged_previous_file_does_not_matter(checkpoint):
    checkpoint.previous.write_bytes(b"rubbish")
    assert checkpoint.load()["epoch"] == 2


def test_both_damaged_says_what_to_do(checkpoint):
    for path in (checkpoint.path, checkpoint.previous):
        path.write_bytes(truncate(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"Delete the folder .*run to start this run again"):
        checkpoint.load()


@pytest.mark.parametrize("rename", [1, 2])
def test_killed_at_a_rename_never_loses_both(checkpoint, monkeypatch, rename):
    """The third save dies at its first or second rename: the state of epoch 2 must still be there."""
    calls, replace = [], os.replace

    def dying_replace(source, target):
        calls.append(target)
        if len(calls) == rename:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying_replace)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(state(3))
    monkeypatch.undo()
    assert len(calls) == rename
    assert checkpoint.load()["epoch"] == 2
    checkpoint.save(state(4))
    assert checkpoint.load()["epoch"] == 4
    assert load_tensors(checkpoint.previous)["state"]["epoch"] == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_keeps_the_old_state_and_says_what_to_do(checkpoint, monkeypatch, number):
    def full(descriptor):
        raise OSError(number, os.strerror(number))

    before = checkpoint.path.read_bytes(), checkpoint.previous.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FsslError, match=r"No space left for .*run\. .*free some space"):
        checkpoint.save(state(3))
    monkeypatch.undo()
    assert (checkpoint.path.read_bytes(), checkpoint.previous.read_bytes()) == before
    assert files(checkpoint) == ["checkpoint.previous.pt", "checkpoint.pt"]


def test_a_disk_that_refuses_while_torch_writes_is_named(checkpoint):
    """torch's writer raises an error of its own for that."""
    before = checkpoint.path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(FsslError, match=r"A file is larger than this process may write, in .*raise the limit"):
            checkpoint.save({"weight": torch.rand(50_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert checkpoint.path.read_bytes() == before


def test_other_errors_of_the_disk_are_not_renamed(checkpoint, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.save(state(3))


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("save", [torch.save, functools.partial(pickle.dump, protocol=2)])
def test_code_in_a_checkpoint_is_not_run(tmp_path, save):
    buffer = io.BytesIO()
    save({"epoch": Evil(tmp_path / "owned")}, buffer)
    content = buffer.getvalue()
    (tmp_path / "checkpoint.pt").write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt cannot be read"):
        Checkpoint(tmp_path).load()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"rows": [1, np.float64(2)]}, r"state\['rows'\]\[1\] is a float64"),
        ({"model": np.zeros(2)}, r"state\['model'\] is a ndarray"),
        ({"a": {"b": {1, 2}}}, r"state\['a'\]\['b'\] is a set"),
        ({torch.float32: 1}, "a key of state is a dtype"),
    ],
)
def test_what_could_not_be_read_again_is_refused_when_saved(checkpoint, bad, name):
    with pytest.raises(TypeError, match=name):
        checkpoint.save(bad)
    assert checkpoint.load()["epoch"] == 2


def test_tensors_of_a_module_come_back(tmp_path):
    layer = torch.nn.Linear(2, 3)
    save_tensors(tmp_path / "new" / "model.tensors", layer.state_dict())
    other = torch.nn.Linear(2, 3)
    other.load_state_dict(load_tensors(tmp_path / "new" / "model.tensors"))
    assert torch.equal(layer.weight, other.weight)
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "absent.tensors")


@pytest.mark.parametrize("name", ["../victim.txt", "x" * 64, "0" * 63, 7, None])
def test_a_part_is_named_by_a_checksum_or_not_read(tmp_path, name):
    victim = tmp_path / "victim.txt"
    victim.write_text("kept")
    parts = Parts(tmp_path / "parts")
    record = parts.put(torch.arange(3))
    assert torch.equal(parts.get(record), torch.arange(3))
    for wrong in ({"sha256": name}, {"dtype": "torch.complex64"}, {"shape": "three"}):
        with pytest.raises(CheckpointError, match="has a part that is none of"):
            parts.get(record | wrong)
    assert victim.read_text() == "kept"


def test_no_memory_is_taken_for_a_part_before_its_size_is_known(tmp_path):
    parts = Parts(tmp_path / "parts")
    record = parts.put(torch.arange(3)) | {"shape": [10**15]}
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        parts.get(record)


def test_compressed_tensors_are_refused_before_they_fill_the_memory(tmp_path):
    written, packed = io.BytesIO(), io.BytesIO()
    torch.save({"x": torch.zeros(2**20)}, written)
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    content = packed.getvalue()
    path = tmp_path / "x.tensors"
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    with pytest.raises(CheckpointError, match="compressed, or overlap"):
        load_tensors(path)


ASKING = b"\x80\x02c__builtin__\nbytearray\n\x8a\x05\x00\x00\x00\x00\x40\x85R."  # of 2 ** 38 bytes


def written(path, content):
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    return path


def test_an_older_form_of_tensors_is_not_read_behind_an_archive(tmp_path):
    """What an archive says of itself is no word about the bytes before it, which torch would read."""
    old, archive = io.BytesIO(), io.BytesIO()
    torch.save({"x": torch.zeros(2)}, old, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("x", "y")
    with pytest.raises(CheckpointError, match="it is no archive of tensors"):
        load_tensors(written(tmp_path / "x.tensors", old.getvalue() + archive.getvalue()))


def test_two_lists_of_tensors_in_one_file_are_refused(tmp_path):
    """Torch takes the one whose place is stated, Python the one before the end."""

    def parts(pickled):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as target:
            target.writestr(zipfile.ZipInfo("a/data.pkl"), pickled)
            target.writestr(zipfile.ZipInfo("a/version"), b"3\n")
        content = archive.getvalue()
        size, place = struct.unpack("<II", content[-10:-2])
        return content[:place], content[place : place + size], content[-22:]

    members, listed, end = parts(ASKING)
    harmless, other, _ = parts(b"\x80\x02}.".ljust(len(ASKING)))  # as long, so that the places in its list fit
    content = members + listed + harmless + other + end
    with pytest.raises(CheckpointError, match="it has two lists of its tensors"):
        load_tensors(written(tmp_path / "x.tensors", content))
    with pytest.raises(CheckpointError, match="it has two lists of its tensors"):  # a comment may hide one, too
        load_tensors(written(tmp_path / "x.tensors", harmless + other + end[:-2] + b"\x01\x00 "))
    assert load_tensors(written(tmp_path / "x.tensors", harmless + other + end)) == {}


def tensors_of(tmp_path, pickled, name="data.pkl"):
    """A file whose tensors are described by these bytes."""
    written, changed = io.BytesIO(), io.BytesIO()
    torch.save({"x": torch.zeros(2)}, written)
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(changed, "w") as target:
        for member in source.infolist():
            described = member.filename.endswith("data.pkl")
            called = member.filename.replace("data.pkl", name)
            target.writestr(called, pickled if described else source.read(member))
    content = changed.getvalue()
    path = tmp_path / "x.tensors"
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    return path


def test_memory_that_a_file_asks_for_beside_its_tensors_is_not_taken(tmp_path):
    for name in ("data.pkl", "Data.PKL"):  # which torch reads, too
        with pytest.raises(CheckpointError, match="it has '__builtin__ bytearray', which no tensors need"):
            load_tensors(tensors_of(tmp_path, ASKING, name))


def test_a_key_that_takes_for_ever_to_hash_is_not_read(tmp_path):
    """Each tuple has the one before twice, and a hash asks for both: 2 ** 60 steps."""
    deep = b"\x80\x02}K\x01\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60)) + b"K\x01s."
    with pytest.raises(CheckpointError, match="it has tuples in tuples, more than 20 deep"):
        load_tensors(tensors_of(tmp_path, deep))


def test_a_tuple_may_stand_at_several_places(tmp_path):
    pair = (3, (4, 5))
    state = {"a": [pair] * 30, "b": {"c": (pair, pair)}, pair: torch.ones(2)}
    save_tensors(tmp_path / "x.tensors", state)
    found = load_tensors(tmp_path / "x.tensors")
    assert torch.equal(found.pop(pair), state.pop(pair))
    assert found == state
