"""A run over the network is the run in one process: its numbers to the bit, its traffic to the byte."""

import errno
import json
import tempfile

import pandas as pd
import pytest
import torch

from fssl_core.federation.ledger import DIRECTIONS, PURPOSES
from fssl_core.network.server import store
from fssl_core.training.checkpoint import load_tensors
from fssl_core.training.split import SplitTrainer
from tests.network.federation import (
    PATIENCE,
    TINY,
    Wire,
    assert_same_bits,
    free_address,
    in_one_process,
    joining,
    process,
    tiny,
    trained,
)


@pytest.mark.parametrize(
    "values",
    [
        {"method": "MonAcoSFL"},
        {"method": "MocoSFL", "norm": "batch", "log_steps": True},
        {"method": "MonAcoSFL", "clients_per_epoch": 2, "variant": "SFL-V2", "epochs": 3, "log_steps": True},
        {"method": "MocoSFL", "clients_per_epoch": 2, "epochs": 3, "symmetric": False},
        {"freeze_client": True},
        {"precision": "bfloat16", "architecture": "mobilenetv2"},
    ],
    ids=lambda values: "-".join(map(str, values.values())),
)
def test_numbers_are_equal_to_the_bit_and_the_wire_is_the_ledger_to_the_byte(values):
    settings = tiny(**values)
    served, _ = trained(settings, free_address())
    reference = in_one_process(settings)
    assert_same_bits(served.trainer, reference)
    assert served.summary == reference.summary()
    assert served.lost == {}

    table = reference.ledger.table()
    assert served.trainer.ledger.table().equals(table)
    booked = {
        (client, purpose, direction): int(rows[f"{purpose}_{direction}"].sum())
        for client, rows in table.groupby("client")
        for purpose in PURPOSES
        for direction in DIRECTIONS
    }
    wire = served.wire[~served.wire["purpose"].isin(["headers", "measurement"])]
    assert {key: count for key, count in booked.items() if count} == wire.set_index(["client", "purpose", "direction"])[
        "bytes"
    ].to_dict()


def test_the_bytes_counted_are_the_bytes_that_cross():
    address, settings = free_address(), tiny(clients=1)
    with Wire(address) as wire:
        served, _ = trained(settings, address, joining(wire.address, 0))
    counted = served.wire.groupby("direction")["bytes"].sum()
    for direction, raw in wire.seen.items():
        assert counted[direction] < raw < 1.02 * counted[direction] + 4096  # ZeroMQ's own, and the handshake


def test_what_was_trained_goes_elsewhere_where_its_folder_has_no_room_any_more(tmp_path, monkeypatch, capsys):
    served, _ = trained(tiny(clients=1, epochs=1), free_address())
    write, full = SplitTrainer.write, tmp_path / "full"

    def no_room(trainer, run):
        if run.folder == full:
            raise OSError(errno.ENOSPC, "No space left on device", str(full / "metrics.csv"))
        write(trainer, run)

    monkeypatch.setattr(SplitTrainer, "write", no_room)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = store(served, full)
    assert folder.parent == tmp_path
    said = capsys.readouterr().err
    assert f"No space left for {full / 'metrics.csv'}" in said
    assert f"What was trained now goes to {folder}." in said
    assert json.loads((folder / "summary.json").read_text()).keys() == served.summary.keys()
    assert json.loads((folder / "settings.json").read_text()) == served.trainer.settings.as_dict()


def test_three_processes_and_what_they_print_and_store(tmp_path, warm_environment):
    address, folder = free_address(), tmp_path / "run"
    settings = tiny(clients=2, clients_per_epoch=1)
    values = {name: value for name, value in TINY.items() if name != "clients"} | {"clients_per_epoch": 1}
    options = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    options += ["--clients", "2", "--bind", address, "--out", str(folder)]
    with (
        process(warm_environment, "serve-split", *options) as server,
        process(warm_environment, "join-split", address, "--client", "1", "--wait", str(PATIENCE)) as first,
        process(warm_environment, "join-split", address, "--wait", str(PATIENCE)) as second,
    ):
        out, err = server.communicate(timeout=PATIENCE)
        assert first.communicate()[1].startswith("fssl: client 1 of 2: MonAcoSFL on digits\n")
        assert second.communicate()[1].startswith("fssl: client 0 of 2: MonAcoSFL on digits\n")
    assert [server.returncode, first.returncode, second.returncode] == [0, 0, 0]

    reference = in_one_process(settings)
    summary, stored = reference.summary(), json.loads((folder / "summary.json").read_text())
    assert stored.keys() == summary.keys()
    measured = [name for name in summary if name not in ("identifiability", "identifiability_common")]
    assert [stored[name] for name in measured] == [summary[name] for name in measured]  # the others need two clients
    best = load_tensors(folder / "best.tensors")
    assert all(torch.equal(value, best[name]) for name, value in reference.best["model"].items())
    assert pd.read_csv(folder / "traffic.csv").equals(reference.ledger.table())
    assert {path.name for path in folder.iterdir()} == {
        *("settings.json", "summary.json", "manifest.json", "provenance.json", "best.tensors"),
        *("metrics.csv", "traffic.csv", "wire.csv", "norms.csv"),
    }
    assert f"linear_probe_accuracy     {summary['linear_probe_accuracy']}\n" in out
    assert f"waiting for 2 clients at {address}" in err
