"""What a finished run holds is served as it was written, or not at all, whatever happens to its files."""

import errno
import json
import os
import resource
import stat
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import pytest
import torch
from PIL import Image

from fssl_core.data.datasets import load_dataset
from fssl_core.errors import FsslError, OtherRunError, SettingError
from fssl_core.experiments import averaging_settings, store
from fssl_core.experiments.store import Run, run, run_all, runs_table, stored_run
from fssl_core.settings import DataName, Settings
from fssl_core.training.checkpoint import Checkpoint, save_tensors


@dataclass(frozen=True, kw_only=True)
class Mean(Settings):
    """The mean of a set's pixels, in steps; a step adds that of the images as they are then."""

    version: ClassVar[int] = 1
    dataset: DataName = "pets"
    seed: int = 0
    steps: int = 3

    def execute(self, run, progress):
        images = load_dataset(self.dataset, image_size=8).train.images
        state = run.checkpoint.load() or {"step": 0, "sums": []}
        while state["step"] < self.steps:
            if os.environ.get("MEAN_DIES_AT") == str(state["step"]):
                raise RuntimeError("died")
            state = {"step": state["step"] + 1, "sums": [*state["sums"], images.double().mean().item() + self.seed]}
            run.checkpoint.save(state)
        run.write_table("metrics", pd.DataFrame({"step": range(self.steps), "sum": state["sums"]}))
        run.write_table("nothing", pd.DataFrame())
        run.save_tensors("model", {"images": images[:2].clone()})
        run.save_tensors("other", {"images": images[:2].clone() + 1})
        return {"mean": sum(state["sums"]) / self.steps, "training_images": len(images)}


@dataclass(frozen=True, kw_only=True)
class Twice(Settings):
    version: ClassVar[int] = 1
    mean: Settings

    def execute(self, run, progress):
        return {"twice": 2 * run.result_of(self.mean).summary["mean"]}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "data"))
    write_photos(tmp_path / "data/pets", 10)
    return tmp_path / "runs"


def write_photos(folder, value, images=3):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for image in range(images):
                Image.new("RGB", (8, 8), (value, value, value)).save(folder / split / name / f"{image}.png")


def begun(monkeypatch, settings, at=2):
    monkeypatch.setenv("MEAN_DIES_AT", str(at))
    with pytest.raises(RuntimeError, match="died"):
        run(settings, progress=False)
    monkeypatch.delenv("MEAN_DIES_AT")
    return Run(settings)


# ---------------------------------------------------------------- other images


def test_a_finished_run_is_computed_again_when_its_images_were_replaced(root, tmp_path, capsys):
    assert run(Mean(), progress=False).summary["mean"] == 10
    built = run(Twice(mean=Mean()), progress=False)
    assert built.summary["twice"] == 20
    write_photos(tmp_path / "data/pets", 30)
    assert not Run(Mean()).finished
    assert not Run(Twice(mean=Mean())).finished
    assert run_all([Mean(), Twice(mean=Mean())], progress=False)[["mean", "twice"]].max().tolist() == [30, 60]
    told = capsys.readouterr().err
    assert f"Mean {Mean().key} was computed on other images or labels of 'pets' (digest " in told
    assert told.count("starting again") == 2
    (kept,) = root.glob(f"{Mean().key}-*")  # of a day on a GPU nothing is lost because FSSL_DATA was mistaken once
    assert f"What it was is kept in {kept}." in told
    assert json.loads((kept / "summary.json").read_text())["mean"] == 10
    assert sorted(path.name for path in root.iterdir() if path.name.startswith(".")) == []


def test_a_finished_run_is_computed_again_when_its_set_has_grown(tmp_path):
    assert run(Mean(), progress=False).summary["training_images"] == 6
    write_photos(tmp_path / "data/pets", 10, images=6)
    assert run(Mean(), progress=False).summary["training_images"] == 12


def test_a_run_is_not_resumed_on_other_images(monkeypatch, tmp_path, capsys):
    begun(monkeypatch, Mean())
    write_photos(tmp_path / "data/pets", 30)
    assert run(Mean(), progress=False).table("metrics")["sum"].tolist() == [30] * 3
    assert "on other images" in capsys.readouterr().err


def test_a_run_is_not_kept_whose_images_were_changed_under_it(monkeypatch, tmp_path):
    write = Run.write_table

    def write_and_change(self, name, table):
        write(self, name, table)
        write_photos(tmp_path / "data/pets", 77)

    monkeypatch.setattr(Run, "write_table", write_and_change)
    with pytest.raises(FsslError, match="images of pets were changed while Mean"):
        run(Mean(), progress=False)
    monkeypatch.setattr(Run, "write_table", write)
    assert run(Mean(), progress=False).summary["mean"] == 77


def test_finished_results_are_there_where_the_images_are_not(monkeypatch, tmp_path, capsys):
    run(Mean(), progress=False)
    monkeypatch.setenv("FSSL_DATA", str(tmp_path / "nowhere"))
    assert Run(Mean()).finished
    assert run(Mean(), progress=False).summary["mean"] == 10
    assert "starting again" not in capsys.readouterr().err


def test_images_that_were_only_touched_are_the_same(tmp_path):
    run(Mean(), progress=False)
    for path in (tmp_path / "data/pets").rglob("*.png"):
        os.utime(path, (1, 1))
    assert Run(Mean()).finished


# ---------------------------------------------------------------- other settings


def test_a_checkpoint_of_another_seed_is_not_resumed(root, monkeypatch, capsys):
    other, mine = begun(monkeypatch, Mean(seed=5)), begun(monkeypatch, Mean())
    mine.checkpoint.path.write_bytes(other.checkpoint.path.read_bytes())
    mine.checkpoint.previous.write_bytes(other.checkpoint.path.read_bytes())
    with pytest.raises(OtherRunError, match=r"settings\.seed is 5 there and 0 here"):
        mine.checkpoint.load()
    done = run(Mean(), progress=False)
    assert done.table("metrics")["sum"].tolist() == [10] * 3
    assert done.provenance["sessions"] == 1  # of those before it nothing is left
    assert "It is not used; starting again" in capsys.readouterr().err


def test_the_state_before_is_taken_where_the_newest_is_of_another_run(monkeypatch):
    other, mine = begun(monkeypatch, Mean(seed=5)), begun(monkeypatch, Mean())
    mine.checkpoint.path.write_bytes(other.checkpoint.path.read_bytes())
    with pytest.warns(UserWarning, match="of another run.*Going on from the checkpoint before"):
        done = run(Mean(), progress=False)
    assert done.table("metrics")["sum"].tolist() == [10] * 3


def test_a_checkpoint_that_says_not_whose_it_is_is_not_resumed(root, monkeypatch, capsys):
    mine = begun(monkeypatch, Mean())
    mine.checkpoint.previous.unlink()
    save_tensors(mine.checkpoint.path, {"step": 2, "sums": [1.0, 1.0]})  # as earlier versions wrote it
    assert run(Mean(), progress=False).table("metrics")["sum"].tolist() == [10] * 3
    assert "saved by an earlier version" in capsys.readouterr().err


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    Checkpoint(tmp_path / "run", {"version": 1}).save({"step": 1})
    with pytest.raises(OtherRunError, match="version is 1 there and 2 here"):
        Checkpoint(tmp_path / "run", {"version": 2}).load()


# ---------------------------------------------------------------- damaged files


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def empty(path):
    path.write_bytes(b"")


def removed(path):
    path.unlink()


def longer(path):
    path.write_bytes(path.read_bytes() + b"\n")


def a_digit_changed(path):
    content = bytearray(path.read_bytes())
    place = max(place for place, byte in enumerate(content) if chr(byte).isdigit())
    content[place] = ord("7") if content[place] != ord("7") else ord("3")
    path.write_bytes(content)


def a_row_lost(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2] + lines[-1:]))


def a_bit_flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def braces(path):
    path.write_text("{}")


def nested(path):
    path.write_text("[" * 100_000)


def a_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = (half, zeroed, empty, removed, longer, a_digit_changed, a_row_lost, a_bit_flipped, braces, nested, a_folder)
FILES = (
    "summary.json", "settings.json", "provenance.json", "manifest.json", "metrics.csv", "model.tensors", "nothing.csv"
)  # fmt: skip


def read_all(settings):
    """All that a notebook may read of a run."""
    frame = run_all([settings], progress=False)
    handle = Run(settings)
    tables = runs_table(frame, "metrics")["sum"].tolist(), handle.table("nothing")
    return frame["mean"].tolist(), tables, handle.tensors("model"), stored_run(settings.key), handle.provenance


def test_a_checkpoint_is_gone_on_from_though_its_provenance_is_damaged(root, monkeypatch, capsys):
    unfinished = begun(monkeypatch, Mean())
    (unfinished.folder / "provenance.json").write_text("")
    saved = []
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, state: saved.append(state["step"]) or save(self, state))
    assert run(Mean(), progress=False).summary["mean"] == 10
    assert saved == [3]
    assert "provenance.json is damaged" in capsys.readouterr().err


def test_settings_are_no_key_of_a_run():
    with pytest.raises(SettingError, match=r"key='.*Settings' cannot be used: expected its attribute `key`"):
        stored_run(averaging_settings("smoke", objective="simclr"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_one_clear_error(root, name, damage):
    path = run(Mean(), progress=False).folder / name
    content = path.read_bytes()
    if name == "nothing.csv" and damage is a_digit_changed:
        pytest.skip("has no digit")
    damage(path)
    if path.is_file() and path.read_bytes() == content:
        pytest.skip("changes nothing here")
    if (name, damage) == ("manifest.json", longer):
        assert read_all(Mean())[0] == [10]  # a line break says nothing
        return
    if name == "summary.json" and damage is removed:
        assert not Run(Mean()).finished  # no result is served: it is computed again
        assert run(Mean(), progress=False).summary["mean"] == 10
        return
    with pytest.raises(FsslError) as caught:
        read_all(Mean())
    message = str(caught.value)
    assert name in message or name == "manifest.json"  # then it is the file that it is wrong about
    assert "\n" not in message
    assert str(path.parent) in message


def test_tensors_of_another_name_are_not_taken_for_these(root):
    folder = run(Mean(), progress=False).folder
    (folder / "model.tensors").write_bytes((folder / "other.tensors").read_bytes())
    with pytest.raises(FsslError, match=r"model\.tensors is damaged"):
        Run(Mean()).tensors("model")


def test_files_that_the_run_did_not_write_are_not_served(root):
    folder = run(Mean(), progress=False).folder
    (folder / "own.csv").write_text("a\n1\n")
    (folder / "notes.txt").write_text("looked at on Monday")
    assert Run(Mean()).finished
    with pytest.raises(FsslError, match=r"own\.csv is none of the files that the run wrote"):
        Run(Mean()).table("own")


def test_a_table_without_columns_comes_back(root):
    assert run(Mean(), progress=False).table("nothing").empty


# ---------------------------------------------------------------- files and folders in the way


def test_a_hidden_folder_does_not_block_a_run_and_leftovers_of_a_killed_write_are_removed(root, monkeypatch):
    handle = begun(monkeypatch, Mean())
    (handle.folder / ".ipynb_checkpoints").mkdir()
    (handle.folder / ".ipynb_checkpoints/metrics-checkpoint.csv").write_text("a\n1\n")
    (handle.folder / ".checkpoint.pt.x1y2").write_bytes(b"half")
    assert run(Mean(), progress=False).summary["mean"] == 10
    assert (handle.folder / ".ipynb_checkpoints").is_dir()
    assert not (handle.folder / ".checkpoint.pt.x1y2").exists()


def test_a_file_in_place_of_the_folder_of_runs_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "a file"))
    with pytest.raises(FsslError, match=r"FSSL_RUNS='.*a file' cannot be used: expected a folder, and this is a file"):
        run(Mean(), progress=False)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG])
@pytest.mark.parametrize("where", ["FileLock", "write_json", "finish"])
def test_what_the_disk_refuses_is_explained_and_nothing_is_lost(root, monkeypatch, number, where):
    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number), str(Run(Mean()).folder / "summary.json"))

    original = getattr(store, where)
    monkeypatch.setattr(store, where, refuse)
    with pytest.raises(FsslError, match="set FSSL_RUNS to another folder") as caught:
        run(Mean(), progress=False)
    monkeypatch.setattr(store, where, original)
    assert "\n" not in str(caught.value)
    assert run(Mean(), progress=False).summary["mean"] == 10


def test_errors_on_files_elsewhere_are_not_those_of_the_runs(root, monkeypatch):
    def refuse(self, run, progress):
        raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere/image.png")

    monkeypatch.setattr(Mean, "execute", refuse)
    with pytest.raises(PermissionError, match="elsewhere"):
        run(Mean(), progress=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("mode", [stat.S_IRUSR | stat.S_IXUSR, 0])
def test_a_folder_without_permission_is_an_error(root, mode):
    root.mkdir()
    root.chmod(mode)
    try:
        with pytest.raises(FsslError, match=r"permission|cannot be read"):
            run(Mean(), progress=False)
    finally:
        root.chmod(0o755)


def test_the_limit_of_file_sizes_is_an_error(root, monkeypatch):
    begun(monkeypatch, Mean())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
        with pytest.raises(FsslError, match=r"larger than this process may write.*ulimit -f"):
            run(Mean(), progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run(Mean(), progress=False).summary["mean"] == 10


@pytest.mark.parametrize("settings", [None, "Mean", 3, Mean, Settings(), {"dataset": "pets"}])
def test_what_is_no_run_is_refused(settings):
    for call in (Run, run, lambda each: run_all([each])):
        with pytest.raises(SettingError, match="settings of a run"):
            call(settings)
    with pytest.raises(SettingError, match=r"a list of settings|settings of a run"):
        run_all(settings)


def test_tensors_of_the_model_are_those_that_were_saved(root):
    images = load_dataset("pets", image_size=8).train.images
    assert torch.equal(run(Mean(), progress=False).tensors("model")["images"], images[:2])
