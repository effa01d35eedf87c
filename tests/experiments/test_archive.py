"""Runs go into a file and come back as they were; what is not such a file is refused, and nothing of it is kept."""

import errno
import io
import json
import os
import pickle
import time
import tracemalloc
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
import torch

from fssl_core.cli import main
from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments import archive
from fssl_core.experiments.archive import KEYS, MEMBER, export_runs, import_runs, keys_of, opened, recorded_files
from fssl_core.experiments.asked import runs_of
from fssl_core.experiments.dry_run import collecting
from fssl_core.experiments.store import Run, lock_of, run, run_all, runs_table
from fssl_core.experiments.transfer import LONGEST_LINE, TOO_WIDE
from fssl_core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Square(Settings):
    version: ClassVar[int] = 1
    side: float = 3.0

    def execute(self, run, progress):
        run.write_table("sides", pd.DataFrame({"side": [self.side] * 4}))
        run.save_tensors("model", {"sides": torch.full((4,), self.side)})
        return {"area": self.side**2}


@dataclass(frozen=True, kw_only=True)
class Cube(Settings):
    version: ClassVar[int] = 1
    square: Settings
    height: float = 2.0

    def execute(self, run, progress):
        return {"volume": float(run.result_of(self.square).tensors("model")["sides"][0]) ** 2 * self.height}


SETTINGS = [Square(side=side) for side in (1.0, 2.0, 3.0)]


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """A function that makes a store of this name the one in use."""

    def use(name):
        monkeypatch.setenv("FSSL_RUNS", str(tmp_path / name))
        return tmp_path / name

    use("first")
    run_all(SETTINGS[:2], progress=False)
    return use


@pytest.fixture
def exported(stores, tmp_path):
    """A file of two runs of three, without models."""
    path = tmp_path / "runs.zip"
    assert export_runs(SETTINGS, path) == 2
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def test_runs_come_back_as_they_were(stores, tmp_path):
    path = tmp_path / "with.zip"
    assert export_runs(SETTINGS, path, models=True) == 2
    before = contents(Run(SETTINGS[0]).folder)
    root = stores("second")
    assert import_runs(path) == (2, 2)
    assert contents(Run(SETTINGS[0]).folder) == before
    assert Run(SETTINGS[0]).finished
    assert not Run(SETTINGS[2]).finished
    assert torch.equal(Run(SETTINGS[1]).tensors("model")["sides"], torch.full((4,), 2.0))
    assert import_runs(path) == (2, 0)
    assert sorted(entry.name for entry in root.iterdir()) == sorted(one.key for one in SETTINGS[:2])


def test_models_of_one_kind_come_along_alone(stores, tmp_path):
    """What others build on is often small, and what they make of it large."""
    path, cube = tmp_path / "some.zip", Cube(square=SETTINGS[1])
    run(cube, progress=False)
    with pytest.raises(FsslError, match="No finished run is of the kind Sphere, but of Cube, Square"):
        export_runs([*SETTINGS, cube], path, models=["Sphere"])
    assert export_runs([*SETTINGS, cube], path, models=["Cube"]) == 3
    stores("second")
    import_runs(path)
    assert not list(Run(SETTINGS[1]).folder.glob("*.tensors"))
    stores("first")
    assert export_runs([*SETTINGS, cube], path, models=["Square"]) == 3
    stores("third")
    import_runs(path)
    assert torch.equal(Run(SETTINGS[1]).tensors("model")["sides"], torch.full((4,), 2.0))


def test_equal_runs_make_equal_files(exported, tmp_path):
    again = tmp_path / "a folder that is made" / "again.zip"
    export_runs(reversed(SETTINGS), again)
    assert again.read_bytes() == exported.read_bytes()


def test_without_models_results_are_there_and_a_model_is_computed_when_needed(exported, stores, capsys):
    stores("second")
    import_runs(exported)
    assert run_all(SETTINGS[:2], progress=False)["area"].tolist() == [1.0, 4.0]
    assert Run(SETTINGS[1]).table("sides")["side"].tolist() == [2.0] * 4
    assert not list(Run(SETTINGS[1]).folder.glob("*.tensors"))
    with pytest.raises(FsslError, match=r"has no other\.tensors"):
        Run(SETTINGS[1]).tensors("other")
    assert "computing it again" not in capsys.readouterr().err
    assert run_all([Cube(square=SETTINGS[1])], progress=False)["volume"].tolist() == [8.0]
    assert f"Square {SETTINGS[1].key} was imported without its models" in capsys.readouterr().err
    assert Run(SETTINGS[1]).finished
    assert Run(SETTINGS[1]).provenance["sessions"] == 1  # what was imported is no part of it
    assert list(Run(SETTINGS[1]).folder.glob("*.tensors"))
    assert not list(Run(SETTINGS[0]).folder.glob("*.tensors"))


def test_what_is_computed_again_has_nothing_left_out(exported, stores):
    """Even where a process that began with it was killed at once."""
    stores("second")
    import_runs(exported)
    (Run(SETTINGS[0]).folder / "summary.json").unlink()
    assert "left_out.json" not in contents(run(SETTINGS[0], progress=False).folder)


def test_a_plan_computes_no_model_that_was_left_out(exported, stores):
    stores("second")
    import_runs(exported)
    with collecting(), pytest.raises(FsslError, match=r"without model\.tensors"):
        Run(SETTINGS[1]).tensors("model")
    assert Run(SETTINGS[1]).finished


def test_what_was_imported_without_models_can_be_handed_on(exported, stores, tmp_path):
    stores("second")
    import_runs(exported)
    again = tmp_path / "again.zip"
    assert export_runs(SETTINGS, again, models=True) == 2
    assert again.read_bytes() == exported.read_bytes()


def test_a_table_that_nobody_reads_is_left_out(stores, tmp_path, monkeypatch):
    path, again, third = (tmp_path / name for name in ("first.zip", "again.zip", "third.zip"))
    assert export_runs(SETTINGS, path, without_tables=["sides"]) == 2
    stores("second")
    assert import_runs(path) == (2, 2)
    assert run_all(SETTINGS[:2], progress=False)["area"].tolist() == [1.0, 4.0]
    for read in (lambda: Run(SETTINGS[1]).table("sides"), lambda: runs_table(run_all(SETTINGS[:2]), "sides")):
        with pytest.raises(FsslError, match=r"imported without sides\.csv. Delete the folder"):
            read()
    assert Run(SETTINGS[1]).has_tensors("model")  # what is tested is computed
    monkeypatch.delenv("FSSL_RECORDED")
    assert not Run(SETTINGS[1]).has_tensors("model")
    export_runs(SETTINGS, again, without_tables=["sides"])  # as it was, though it has none by now
    assert again.read_bytes() == path.read_bytes()
    Run(SETTINGS[1]).tensors("model")  # computes the run, and with it the table
    assert Run(SETTINGS[1]).has_tensors("model")
    assert Run(SETTINGS[1]).table("sides")["side"].tolist() == [2.0] * 4
    export_runs(SETTINGS, third, without_tables=["sides"])
    assert keys_of(third) == keys_of(path)


def test_what_an_import_lacked_stays_listed_where_more_is_left_out(exported, stores, tmp_path):
    stores("second")
    import_runs(exported)  # without models
    export_runs(SETTINGS, tmp_path / "less.zip", without_tables=["sides"])
    stores("third")
    import_runs(tmp_path / "less.zip")
    left_out = json.loads((Run(SETTINGS[1]).folder / "left_out.json").read_text())
    assert list(left_out) == ["model.tensors", "sides.csv"]
    assert torch.equal(Run(SETTINGS[1]).tensors("model")["sides"], torch.full((4,), 2.0))


def test_a_table_to_leave_out_must_be_one(stores, tmp_path):
    with pytest.raises(FsslError, match="2 finished runs has a table side to leave out"):
        export_runs(SETTINGS, tmp_path / "none.zip", without_tables=["side"])
    assert not (tmp_path / "none.zip").exists()


def test_what_is_here_stays(exported, stores):
    stores("second")
    run(SETTINGS[0], progress=False)
    before = contents(Run(SETTINGS[0]).folder)
    assert import_runs(exported) == (2, 1)
    assert contents(Run(SETTINGS[0]).folder) == before


def test_models_of_a_run_that_was_only_begun_are_not_those_of_the_run_that_arrives(exported, stores, monkeypatch):
    monkeypatch.delenv("FSSL_RECORDED", raising=False)
    stores("second")
    begun = Run(SETTINGS[1])
    begun.folder.mkdir(parents=True)
    begun.prepare()
    begun.save_tensors("model", {"sides": torch.full((4,), -99.0)})
    begun.checkpoint.save({"x": torch.zeros(2**19)})
    import_runs(exported)
    assert {path.name for path in begun.folder.iterdir()} == {"lock", *contents(begun.folder)}
    assert not list(begun.folder.glob("checkpoint*"))
    assert not begun.has_tensors("model")
    assert torch.equal(begun.tensors("model")["sides"], torch.full((4,), 2.0))  # computed again


def test_tensors_that_a_run_did_not_write_are_not_read(exported, stores, monkeypatch):
    monkeypatch.delenv("FSSL_RECORDED", raising=False)
    added = Run(SETTINGS[0])
    added.save_tensors("added", {"sides": torch.zeros(4)})
    assert not added.has_tensors("added")
    with pytest.raises(FsslError, match=r"has no added\.tensors"):
        added.tensors("added")
    stores("second")
    import_runs(exported)
    added = Run(SETTINGS[1])
    added.save_tensors("model", {"sides": torch.zeros(4)})
    assert torch.equal(added.tensors("model")["sides"], torch.full((4,), 2.0))


def test_tables_are_there_while_a_model_is_computed_again(exported, stores, monkeypatch):
    stores("second")
    import_runs(exported)
    frame, seen = run_all(SETTINGS[:2], progress=False), []
    execute = Square.execute

    def reading(self, run, progress):  # what another notebook may do meanwhile
        seen.append(runs_table(frame, "sides")["side"].tolist())
        return execute(self, run, progress)

    monkeypatch.setattr(Square, "execute", reading)
    Run(SETTINGS[1]).tensors("model")
    assert seen == [[1.0] * 4 + [2.0] * 4]


def test_a_damaged_run_is_not_handed_on(stores, tmp_path):
    table = Run(SETTINGS[0]).folder / "sides.csv"
    table.write_bytes(table.read_bytes().replace(b"1.0", b"7.0"))  # as long as before
    with pytest.raises(FsslError, match=r"sides\.csv is damaged"):
        export_runs(SETTINGS, tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()


def test_a_run_that_another_process_computes_is_left_to_it(exported, stores, monkeypatch, capsys):
    stores("second")
    monkeypatch.setattr(archive, "PATIENCE", 0.0)
    with lock_of(Run(SETTINGS[0]).folder):
        assert import_runs(exported) == (2, 1)
    assert f"Run {SETTINGS[0].key} is left to another process" in capsys.readouterr().err
    assert import_runs(exported) == (2, 1)


def test_errors_of_the_store_are_not_blamed_on_the_file(exported, stores, monkeypatch):
    stores("second")

    def fails(source, target, names):
        raise OSError(errno.EIO, "Input/output error", str(target))

    monkeypatch.setattr(archive, "move", fails)
    with pytest.raises(OSError, match="Input/output error"):
        import_runs(exported)


def test_an_export_to_a_full_disk_advises_another_file(stores, tmp_path, monkeypatch):
    """Another folder for the runs would not help."""

    def full(source, target, *rest):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(archive.shutil, "copyfileobj", full)
    with pytest.raises(FsslError, match=r"No space left for .*: free some space, or name a file elsewhere, and run"):
        export_runs(SETTINGS, tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()


def test_nothing_to_export(stores, tmp_path):
    stores("second")
    with pytest.raises(FsslError, match="None of the 3 runs is finished"):
        export_runs(SETTINGS, tmp_path / "none.zip")
    with pytest.raises(FsslError, match="the notebooks that were named have no runs"):
        export_runs([], tmp_path / "none.zip")
    assert not (tmp_path / "none.zip").exists()


def rewritten(path, change, method=zipfile.ZIP_STORED):
    """The archive with its runs' files changed by a function of their names and contents, packed in another way."""
    with opened(path, path.parent) as archive:
        members = change({name: archive.read(name) for name in archive.namelist()})
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    packed(path, inner.getvalue())
    return path


def packed(path, content, method=zipfile.ZIP_STORED, keys=None):
    """A file of runs, with the list that it has unless another one is given."""
    keys = json.dumps(sorted(keys_of(path))) if keys is None else keys
    with zipfile.ZipFile(path, "w", method) as outer:
        outer.writestr(KEYS, keys, zipfile.ZIP_STORED)
        outer.writestr(MEMBER, content)


def forged(name, change):
    """A change of a run's file, with checksums that are right."""

    def members_changed(members):
        key = SETTINGS[0].key
        stored = members[f"{key}/{name}"]
        content = change(stored) if name.endswith(".csv") else json.dumps(change(json.loads(stored))).encode()
        manifest = json.loads(members[f"{key}/manifest.json"])
        manifest[name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        return members | {f"{key}/{name}": content, f"{key}/manifest.json": json.dumps(manifest).encode()}

    return members_changed


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members | {"../outside.json": b"{}"},
        lambda members: members | {f"{SETTINGS[0].key}/../x.json": b"{}"},
        lambda members: members | {"/etc/passwd.json": b"{}"},
        lambda members: members | {f"{SETTINGS[0].key}/evil.py": b"import os"},
        lambda members: members | {f"{SETTINGS[0].key}/.hidden.json": b"{}"},
        lambda members: members | {"README.json": b"{}"},
        lambda members: members | {f"{SETTINGS[0].key}/more.csv": b"a\n1\n"},
        lambda members: {name: content for name, content in members.items() if not name.endswith("sides.csv")},
        lambda members: {name: content for name, content in members.items() if not name.endswith("manifest.json")},
        lambda members: {name: content.replace(b"1.0", b"9.0") for name, content in members.items()},
        lambda members: {name: b"[" if name.endswith("summary.json") else c for name, c in members.items()},
        lambda members: members | {f"{SETTINGS[0].key}/{'a' * 300}.csv": b"a\n1\n"},
        lambda members: members | {f"{SETTINGS[0].key}/a\x1b[2J.csv": b"a\n1\n"},
        forged("settings.json", lambda stored: stored | {"settings": {"side": 7.0}}),  # the folder is of others
        forged("settings.json", lambda stored: stored | {"data": None}),
        forged("summary.json", lambda stored: stored | {"side": 7.0}),  # would be a second column of that name
        forged("summary.json", lambda stored: stored | {"area": [1.0]}),
        forged("provenance.json", lambda stored: stored | {"seconds": "long"}),
        forged("provenance.json", lambda stored: stored | {"seconds": 10**400}),
        forged("provenance.json", lambda stored: stored | {"seconds": float("inf")}),
        forged("provenance.json", lambda stored: {"seconds": stored["seconds"]}),
        forged("provenance.json", lambda stored: stored | {"device": "\x1b[2J"}),
        forged("provenance.json", lambda stored: stored | {"device": ["CPU"]}),  # a set of devices could not hold it
        forged("sides.csv", lambda stored: b"a,b\n1,2,3,4\n1\n\n9,9,9,9,9"),
        forged("sides.csv", lambda stored: b"," * 100_000),  # of a column pandas makes 3 kB
        forged("sides.csv", lambda stored: b"a,b\n" + b"," * 100_000),
    ],
)
def test_what_is_no_run_is_refused(exported, stores, change):
    root = stores("second")
    with pytest.raises(FsslError):
        import_runs(rewritten(exported, change))
    assert not list(root.glob(f"{SETTINGS[0].key}/*.json"))
    assert not list(root.parent.glob("*.json"))
    assert not [entry for entry in root.iterdir() if entry.name.startswith(".")]


def test_long_lines_are_looked_for_once():
    lines = (b"," * LONGEST_LINE + b"\n") * 64
    begun = time.process_time()
    assert not TOO_WIDE.search(lines)
    assert TOO_WIDE.search(lines + b"," * (LONGEST_LINE + 1))
    assert time.process_time() - begun < 10  # from each byte on it would be minutes


def test_a_packed_list_of_runs_is_not_unpacked(exported):
    """LZMA unpacks a few kilobytes to gigabytes, whatever size the list of members has for it."""
    keys = json.dumps(sorted(keys_of(exported)))
    with zipfile.ZipFile(exported, "w") as outer:
        outer.writestr(KEYS, keys, zipfile.ZIP_LZMA)
        outer.writestr(MEMBER, b"")
    with pytest.raises(FsslError, match="has no list of its runs"):
        keys_of(exported)


def test_a_file_that_unpacks_to_more_than_it_says_takes_little_memory(exported, stores):
    stores("second")
    packed(exported, bytes(128 << 20), zipfile.ZIP_LZMA)
    content = exported.read_bytes()
    exported.write_bytes(content.replace((128 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(FsslError, match="it is damaged"):
        import_runs(exported)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80 << 20  # of 128


def by_another_method(path):
    """The same content, which `zipfile` would unpack whatever size it turns out to have."""
    with zipfile.ZipFile(path) as outer:
        content = outer.read(MEMBER)
    packed(path, content, zipfile.ZIP_BZIP2)


def compressed_within(path):
    rewritten(path, dict, zipfile.ZIP_BZIP2)


@pytest.mark.parametrize("change", [by_another_method, compressed_within])
def test_only_compression_that_can_be_limited_is_unpacked(exported, stores, change):
    root = stores("second")
    change(exported)
    with pytest.raises(FsslError):
        import_runs(exported)
    assert not list(root.glob("*/*.json"))


def test_a_run_of_another_version_stays_and_is_named(exported, stores, capsys):
    root = stores("second")
    assert import_runs(exported) == (2, 2)
    path = root / SETTINGS[0].key / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 0}))
    capsys.readouterr()
    assert import_runs(exported) == (2, 0)
    said = capsys.readouterr()
    assert f"run {SETTINGS[0].key} is in {root} already, by version 0" in said.out + said.err
    assert SETTINGS[1].key not in said.out + said.err


@pytest.mark.parametrize("version", [0, 1])
def test_an_import_never_takes_the_checkpoint_of_a_run_by_other_code(exported, stores, capsys, version):
    """With the same code what is finished takes the place of what was begun; with other code that may be wanted."""
    stores("second")
    begun = Run(SETTINGS[0])
    begun.prepare()
    begun.checkpoint.save({"step": 1})
    path = begun.folder / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    assert import_runs(exported) == (2, 1 + version)
    assert begun.checkpoint.exists == (version == 0)
    said = capsys.readouterr()
    assert ("was begun in" in said.out + said.err) == (version == 0)


def test_what_an_archive_says_cannot_write_to_the_terminal(exported, stores, capsys):
    stores("second")
    assert import_runs(exported) == (2, 2)
    hostile = b'"version": "\\u001b]0;owned\\u0007\\nfssl: all is well"'
    rewritten(
        exported,
        lambda members: {name: text.replace(b'"version": 1', hostile) for name, text in members.items()},
    )
    assert import_runs(exported) == (2, 0)
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if "owned" in line]
    assert lines
    assert all(line.isprintable() and "all is well" in line for line in lines)


def test_what_does_not_fit_a_run_names_the_archive_and_the_run(exported, stores):
    stores("second")
    rewritten(exported, lambda members: {n: c.replace(b"1.0", b"9.0") for n, c in members.items()})
    with pytest.raises(FsslError, match=rf"^Run [0-9a-f]{{16}} of {exported} is not what .*get the file again"):
        import_runs(exported)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user whom permissions stop")
def test_a_store_that_cannot_be_written_to_is_named_and_not_the_archive(exported, stores):
    root = stores("second")
    root.mkdir(exist_ok=True)
    root.chmod(0o500)
    try:
        with pytest.raises(FsslError, match="There is no permission to write"):
            import_runs(exported)
    finally:
        root.chmod(0o700)


def test_a_store_that_is_a_file_is_said(exported, stores):
    root = stores("second")
    if root.exists():
        root.rmdir()
    root.write_text("no folder")
    with pytest.raises(FsslError, match="There is a file where a folder should be"):
        import_runs(exported)


def test_settings_that_are_nested_too_deep_are_refused(exported, stores, monkeypatch):
    """Python 3.13 reads JSON that is nested deeper than Python itself can follow."""
    stores("second")
    monkeypatch.setattr(archive, "flat", lambda values: archive.flat(values))
    with pytest.raises(FsslError, match="is not what such a run writes"):
        import_runs(exported)


def test_tensors_with_code_are_refused(stores, tmp_path):
    """A pickle that would call a function, with the right checksums everywhere."""

    class Evil:
        def __reduce__(self):
            return (print, ("evil",))

    path = tmp_path / "with.zip"
    export_runs(SETTINGS[:1], path, models=True)
    body = pickle.dumps(Evil(), protocol=2)  # the one that `torch.load` expects
    digest = sha256(body).hexdigest()
    key = SETTINGS[0].key

    def change(members):
        content = digest.encode() + b"\n" + body
        manifest = json.loads(members[f"{key}/manifest.json"])
        manifest["model.tensors"] = {"bytes": len(content), "sha256": digest}
        return members | {f"{key}/model.tensors": content, f"{key}/manifest.json": json.dumps(manifest).encode()}

    stores("second")
    with pytest.raises(FsslError):
        import_runs(rewritten(path, change))
    assert not Run(SETTINGS[0]).finished


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_archive_is_refused(stores, tmp_path, content):
    (tmp_path / "runs.zip").write_bytes(content)
    with pytest.raises(FsslError, match=r"no file of `fssl runs export`"):
        import_runs(tmp_path / "runs.zip")
    (tmp_path / "cut.zip").write_bytes(content)
    with pytest.raises(FsslError, match="There is no file"):
        import_runs(tmp_path / "missing.zip")


def test_a_file_that_was_cut_off_or_flipped_is_refused(exported, stores):
    whole = exported.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        exported.write_bytes(damaged)
        root = stores("second")
        with pytest.raises(FsslError):
            import_runs(exported)
        assert not (root / sorted(one.key for one in SETTINGS[:2])[0] / "summary.json").exists()


def test_a_file_larger_than_the_disk_is_refused_first(exported, stores, monkeypatch):
    root = stores("second")
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(FsslError, match="free some space"):
        import_runs(exported)
    assert not list(root.iterdir())


def test_only_regular_files_are_opened(stores, tmp_path):
    os.mkfifo(tmp_path / "pipe.zip")
    for path in (tmp_path / "pipe.zip", Path("/dev/zero")):  # of which reading would not end
        with pytest.raises(FsslError, match="it is not a regular file"):
            import_runs(path)


def test_an_archive_out_of_proportion_is_refused_before_it_is_unpacked(exported, stores, monkeypatch):
    stores("second")
    with monkeypatch.context() as limits:
        limits.setattr(archive, "LARGEST_TEXT", 100)
        limits.setattr(archive, "RATIO", 1)
        with pytest.raises(FsslError, match="it would unpack to"):
            import_runs(exported)
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 300)  # the outer one has two members, the inner one has eight
    with pytest.raises(FsslError, match="lists too many members"):
        import_runs(exported)


def test_json_is_not_read_that_is_larger_than_any_runs(exported, stores, monkeypatch):
    stores("second")
    monkeypatch.setattr(archive, "LARGEST_JSON", 100)
    with pytest.raises(FsslError, match="which is no file of a run"):
        import_runs(exported)


def test_the_list_of_a_large_archive_is_measured_where_it_counts(tmp_path, monkeypatch):
    """With more than 65,535 members a ZIP archive has a second record of its end, and that is the one that is read."""
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as members:
        for number in range(65_536):
            members.writestr(zipfile.ZipInfo(f"{number:05}"), b"")
    assert len(archive._archive(many).namelist()) == 65_536
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 65_536 * (46 + 5) - 1)
    with pytest.raises(zipfile.BadZipFile, match="too many members"):
        archive._archive(many)


def test_what_a_killed_import_left_goes_after_a_day(exported, stores):
    root = stores("second")
    for name, days in ((".arriving-old", 2), (".arriving-new", 0)):
        (root / name).mkdir(parents=True)
        os.utime(root / name, (time.time() - days * 86400,) * 2)
    import_runs(exported)
    assert [entry.name for entry in root.iterdir() if entry.name.startswith(".")] == [".arriving-new"]


@pytest.fixture
def recorded(exported, stores, monkeypatch):
    """The file as the project keeps it with its records, and an empty store."""
    path = exported.parent / "figures" / "toy" / "runs.laptop.zip"
    path.parent.mkdir(parents=True)
    exported.rename(path)
    monkeypatch.setattr("fssl_core.experiments.archive.records_root", lambda: exported.parent / "figures")
    monkeypatch.delenv("FSSL_RECORDED", raising=False)
    stores("second")
    return path


def taken():
    """Which of the runs came without their models: those were not computed here."""
    return [not list(Run(one).folder.glob("*.tensors")) for one in SETTINGS]


def test_the_list_of_runs(exported):
    assert keys_of(exported) == {one.key for one in SETTINGS[:2]}


@pytest.mark.parametrize("keys", ["[", "3", "[[1], {}]"])
def test_a_list_of_runs_that_is_none_is_refused(exported, keys):
    with zipfile.ZipFile(exported) as outer:
        content = outer.read(MEMBER)
    packed(exported, content, keys=keys)
    with pytest.raises(FsslError, match="get the file again"):
        keys_of(exported)


def test_a_damaged_file_of_recorded_runs_is_named_and_keeps_nobody_from_working(recorded, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RECORDED", "1")
    recorded.with_name("runs.gpu.zip").write_bytes(recorded.read_bytes()[:100])
    assert run_all(SETTINGS, progress=False)["area"].tolist() == [1.0, 4.0, 9.0]
    assert taken() == [True, True, False]
    assert "runs.gpu.zip is no file of `fssl runs export`, or it is damaged" in capsys.readouterr().err


def test_damage_that_only_unpacking_shows_keeps_nobody_from_working_either(recorded, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RECORDED", "1")
    content = bytearray(recorded.read_bytes())
    content[len(content) // 2] ^= 1
    recorded.write_bytes(content)
    assert keys_of(recorded) == {one.key for one in SETTINGS[:2]}
    assert run_all(SETTINGS, progress=False)["area"].tolist() == [1.0, 4.0, 9.0]
    assert taken() == [False, False, False]
    assert f"{recorded} is no file of `fssl runs export`, or it is damaged" in capsys.readouterr().err


def test_a_notebook_takes_recorded_runs_and_computes_the_others(recorded, monkeypatch, capsys):
    monkeypatch.setattr("fssl_core.experiments.archive.in_kernel", lambda: True)
    assert run_all(SETTINGS, progress=False)["area"].tolist() == [1.0, 4.0, 9.0]
    assert taken() == [True, True, False]
    assert f"runs are taken that are recorded in {recorded}" in capsys.readouterr().err
    run_all(SETTINGS, progress=False)
    assert "recorded" not in capsys.readouterr().err


def test_a_model_of_a_recorded_run_is_computed(recorded, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RECORDED", "1")
    assert torch.equal(run(SETTINGS[1], progress=False).tensors("model")["sides"], torch.full((4,), 2.0))
    assert capsys.readouterr().err.count("computing it again") == 1


def test_elsewhere_runs_are_computed_and_what_is_recorded_is_said(recorded, capsys):
    run_all(SETTINGS, progress=False)
    assert taken() == [False, False, False]
    assert f"2 runs recorded in {recorded}: FSSL_RECORDED=1 takes them" in capsys.readouterr().err


def test_a_variable_decides_whether_recorded_runs_are_taken(recorded, stores, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RECORDED", "0")
    monkeypatch.setattr("fssl_core.experiments.archive.in_kernel", lambda: True)
    run(SETTINGS[0], progress=False)
    assert list(Run(SETTINGS[0]).folder.glob("*.tensors"))
    assert "recorded" not in capsys.readouterr().err
    stores("third")
    monkeypatch.setenv("FSSL_RECORDED", "1")
    monkeypatch.setattr("fssl_core.experiments.archive.in_kernel", lambda: False)
    run(SETTINGS[0], progress=False)
    assert not list(Run(SETTINGS[0]).folder.glob("*.tensors"))
    assert not Run(SETTINGS[1]).folder.exists()  # nobody asked for it
    monkeypatch.setenv("FSSL_RECORDED", "yes")
    with pytest.raises(SettingError, match=r"FSSL_RECORDED.*yes"):
        run(SETTINGS[1], progress=False)


def test_recorded_runs_of_other_code_are_not_taken(recorded, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RECORDED", "1")
    monkeypatch.setattr(Square, "version", 2)
    assert run_all(SETTINGS[:2], progress=False)["area"].tolist() == [1.0, 4.0]
    assert taken()[:2] == [False, False]
    assert (
        f"fssl: 2 runs recorded in {recorded} not taken: of other images or other code, or being computed.\n"
    ) == capsys.readouterr().err


def test_what_a_run_builds_on_is_not_taken(recorded, monkeypatch):
    """It is asked for its model, which records do not have."""
    monkeypatch.setenv("FSSL_RECORDED", "1")
    assert run(Cube(square=SETTINGS[1]), progress=False).summary == {"volume": 8.0}
    assert list(Run(SETTINGS[1]).folder.glob("*.tensors"))


def test_a_notebooks_runs_are_found(stores):
    settings = runs_of(["monacosfl/fig6"], "smoke")
    assert len(settings) > 4
    assert all(key == one.key for key, one in settings.items())
    with pytest.raises(SettingError, match="nothing/here"):
        runs_of(["nothing/here"], "smoke")
    with pytest.raises(SettingError, match="profile"):
        runs_of(["monacosfl/fig6"], "huge")


def test_by_command(stores, tmp_path, capsys):
    path = str(tmp_path / "fig6.zip")
    assert main(["runs", "export", "monacosfl/fig6", path, "--profile", "smoke"]) == 2
    assert "is finished in" in capsys.readouterr().err
    first = next(iter(runs_of(["monacosfl/fig6"], "smoke").values()))
    run(first, progress=False)
    assert main(["runs", "export", "monacosfl/fig6", path, "--profile", "smoke"]) == 0
    assert "1 of " in (told := capsys.readouterr().out)
    assert "the others are not finished" in told
    stores("second")
    assert main(["runs", "import", path]) == 0
    assert "1 runs, 1 of them new" in capsys.readouterr().out
    assert Run(first).finished
    assert main(["runs", "import", str(tmp_path / "missing.zip")]) == 2


def test_runs_are_computed_without_the_notebook(stores, capsys, monkeypatch):
    stores("computed")
    command = ["runs", "compute", "ldawa/fig5", "--set", "overrides={rounds: 1}"]
    assert main(command) == 0
    settings = runs_of(["ldawa/fig5"], "smoke", {"overrides": {"rounds": 1}})
    assert f"{len(settings)} runs are finished in" in capsys.readouterr().out
    assert all(Run(one).finished for one in settings.values())
    monkeypatch.setattr(Run, "compute", None)  # a second time there is nothing to do
    assert main(command) == 0
    assert main(["runs", "compute", "ldawa/fig5", "--set", "overides={rounds: 1}"]) == 2
    assert "overides" in capsys.readouterr().err


def test_the_runs_that_the_project_keeps_are_whole_and_those_that_notebooks_ask_for(stores):
    root, files = stores("project"), recorded_files()
    assert files
    assert sum(path.stat().st_size for path in files) < 5 * 2**20
    for path in files:
        paper, profile = path.parent.name, path.name.split(".")[1]
        count, _ = import_runs(path)  # some are in several files: of settings that profiles share
        asked = runs_of([paper], profile)
        with opened(path, root) as archive:
            kept = {name.split("/")[0] for name in archive.namelist()}
        assert len(kept) == count
        assert kept <= asked.keys()
        assert all(Run(asked[key]).finished for key in kept), root


def test_a_file_that_no_store_takes_is_not_exported(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    settings = Drawing()
    run(settings, progress=False)
    with pytest.raises(FsslError, match=r"plot.png.*only \.json"):
        export_runs([settings], tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


@dataclass(frozen=True, kw_only=True)
class Drawing(Settings):
    def execute(self, run, progress):
        (run.folder / "plot.png").write_bytes(b"x")
        return {"found": 1.0}
