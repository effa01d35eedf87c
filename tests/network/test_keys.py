"""Nobody takes part without a key, nor with another's."""

import json
import stat

import pytest

from fssl_core import cli
from fssl_core.errors import FsslError, SettingError
from fssl_core.network.client import join_split
from fssl_core.network.handshake import read_welcome, versions
from fssl_core.network.keys import check_keys, client_keys, is_local, make_keys, server_keys
from fssl_core.network.messages import Message
from fssl_core.network.server import serve_split
from fssl_core.network.sockets import ConnectionLostError, Link
from tests.network.federation import (
    PATIENCE,
    Wire,
    assert_same_bits,
    free_address,
    in_one_process,
    joining,
    threads,
    tiny,
)

CLOSED = "closed the connection before anything was said"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Of the server and of each client; and those of others."""

    def made(name):
        server, *clients = make_keys(tmp_path_factory.mktemp("keys") / name, 3)
        return server_keys(server), [client_keys(path) for path in clients]

    return made("ours"), made("theirs")


def test_with_keys_the_run_is_the_same_and_nothing_can_be_read(keys):
    (server, clients), _ = keys
    address, settings = free_address(), tiny()
    with Wire(address) as wire:
        addresses = [wire.address, address, address]
        work = [joining(addresses[key.client], None, keys=key) for key in clients]
        with threads(*work) as futures:
            served = serve_split(settings, bind=address, keys=server, wait=PATIENCE, timeout=60)
        assert [future.result() for future in futures] == [0, 1, 2]
    assert_same_bits(served.trainer, in_one_process(settings))
    for purpose in ("activations", "momentum_activations", "gradients", "parameters", "momentum_parameters"):
        crossed = served.wire[served.wire["purpose"] == purpose]["bytes"].sum()
        booked = served.trainer.ledger.table()[[f"{purpose}_up", f"{purpose}_down"]].to_numpy().sum()
        assert crossed == booked > 0
    assert all(b"CURVE" in begun for begun in wire.begun.values())
    assert not any(word in begun for begun in wire.begun.values() for word in (b'"kind"', b"resnet10", b"float32"))
    counted = served.wire[served.wire["client"] == 0].groupby("direction")["bytes"].sum()
    assert all(counted[direction] < raw < 1.1 * counted[direction] + 4096 for direction, raw in wire.seen.items())


def test_who_has_no_key_or_a_wrong_one_does_not_join(keys, capfd):
    (server, clients), (_, others) = keys
    address = free_address()
    impostor = type(clients[0])(0, others[0].secret, clients[0].server)  # knows the server, has a key of its own
    refusals: list[str] = []

    def strangers_then_clients() -> None:
        for stranger in (None, impostor, others[1]):
            with pytest.raises(ConnectionLostError, match=CLOSED) as refused:
                join_split(address, keys=stranger, wait=PATIENCE, timeout=60)
            refusals.append(str(refused.value))
        with threads(*(joining(address, None, keys=key) for key in clients)) as futures:
            assert [future.result() for future in futures] == [0, 1, 2]

    with threads(strangers_then_clients) as (done,):
        served = serve_split(tiny(epochs=1), bind=address, keys=server, wait=PATIENCE, timeout=60)
    done.result()
    assert served.lost == {}
    assert "the server does not know the key of this client" in refusals[1]
    assert "refused a peer: its key is none of the clients'" in capfd.readouterr().err


def test_a_key_is_good_for_one_number_only(keys):
    (server, clients), _ = keys
    address, reasons = free_address(), []

    def thief_then_clients() -> None:
        for number, key in ((0, clients[1]), (2, clients[2])):
            link = Link(address, 20, key)
            link.send(Message("hello", {"versions": versions(), "client": number}))
            reasons.append(link.receive(PATIENCE).fields["reason"])
            link.close(0)
        with threads(*(joining(address, None, keys=key) for key in clients[:2])) as futures:
            assert [future.result() for future in futures] == [0, 1]

    with threads(thief_then_clients) as (done,):
        served = serve_split(tiny(clients=2, epochs=1), bind=address, keys=server, wait=PATIENCE, timeout=60)
    done.result()
    assert served.lost == {}
    assert reasons[0].startswith("its key is that of client 1, not of client 0")
    assert reasons[1].startswith("there is no client 2")
    with pytest.raises(SettingError, match=r"--client=1 cannot be used: expected 0, whose key this is"):
        join_split(address, client=1, keys=clients[0])


def test_a_client_that_was_started_anew_takes_its_own_place(keys, capfd):
    (server, clients), _ = keys
    address = free_address()

    def hangs_then_joins() -> None:
        hanging = Link(address, 20, clients[0])
        hanging.send(Message("hello", {"versions": versions(), "client": 0}))
        read_welcome(hanging.receive(PATIENCE))
        joining(address, None, keys=clients[0])()
        assert hanging.receive(PATIENCE).fields["reason"] == "it joined again"
        hanging.close(0)

    with threads(hangs_then_joins) as (done,):
        served = serve_split(tiny(clients=1, epochs=1), bind=address, keys=server, wait=PATIENCE, timeout=60)
    done.result()
    assert served.lost == {}
    assert "client 0 is gone before the start: it joined again" in capfd.readouterr().err


def test_a_server_needs_a_key_for_every_client(keys):
    (server, _), _ = keys
    with pytest.raises(SettingError, match="keys of 3 clients' cannot be used: expected those of 5 clients"):
        serve_split(tiny(clients=5), bind=free_address(), keys=server)


# ---------------------------------------------------------------- files


def test_keys_are_for_their_owner_only_and_never_overwritten(tmp_path, capsys):
    folder = tmp_path / "new" / "keys"
    assert cli.main(["keys", str(folder), "--clients", "2"]) == 0
    assert "server.json: for `fssl serve-split --keys`" in capsys.readouterr().out
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["client-0.json", "client-1.json", "server.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.parent.iterdir()] == ["keys"]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert cli.main(["keys", str(folder), "--clients", "2"]) == 2
    assert "keys are never overwritten" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    secrets = {json.loads(content)["secret"] for content in before.values()}
    assert len(secrets) == 3
    for clients in ("0", "-1", "1000000"):
        assert cli.main(["keys", str(tmp_path / "others"), "--clients", clients]) == 2
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("", "in JSON"),
        ("[" * 100_000, "in JSON"),
        ("[1]", "a client-N.json"),
        ('{"secret": 1}', "a client-N.json"),
        ('{"client": 0, "secret": "short", "server": "short"}', "keys of 40 characters"),
        ('{"client": 0, "secret": "' + "\\u00fc" * 40 + '", "server": "x"}', "keys of 40 characters"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, content, reason):
    path = tmp_path / "client-0.json"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(SettingError, match=reason):
        client_keys(path)


def test_a_file_of_another_role_or_that_others_can_read_is_refused(tmp_path):
    server, client = make_keys(tmp_path / "keys", 1)
    with pytest.raises(SettingError, match=r"a server\.json"):
        server_keys(client)
    with pytest.raises(SettingError, match=r"a client-N\.json"):
        client_keys(server)
    client.chmod(0o640)
    with pytest.raises(SettingError, match="chmod 600"):
        client_keys(client)


def test_keys_that_are_shown_have_no_secret(keys):
    (server, clients), _ = keys
    for own in (server, *clients):
        assert str(own.secret) not in repr(own)


# ---------------------------------------------------------------- without keys


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("tcp://127.0.0.1:5555", True),
        ("tcp://127.8.8.8:*", True),
        ("tcp://localhost:5555", True),
        ("tcp://[::1]:5555", True),
        ("ipc:///tmp/socket", True),
        ("tcp://0.0.0.0:5555", False),
        ("tcp://*:5555", False),
        ("tcp://[::]:5555", False),
        ("tcp://192.168.1.5:5555", False),
        ("tcp://127.0.0.1.example.org:5555", False),
        ("tcp://127.0.0.1:0;10.0.0.1:5555", False),
        ("tcp://eth0:5555", False),
    ],
)
def test_which_addresses_stay_on_this_machine(address, local):
    assert is_local(address) == local


def test_between_machines_nothing_is_plain_unless_asked_for(keys, capfd):
    (server, _), _ = keys
    with pytest.raises(
        SettingError, match=r"--bind='tcp://0\.0\.0\.0:\*' cannot be used: expected --keys FILE beside it"
    ):
        serve_split(tiny(), bind="tcp://0.0.0.0:*")
    with pytest.raises(SettingError, match=r"ADDRESS='tcp://192\.0\.2\.1:5' cannot be used: expected --keys FILE"):
        join_split("tcp://192.0.2.1:5")
    with pytest.raises(FsslError, match="exclude each other"):
        check_keys("--bind", "tcp://0.0.0.0:5", server, insecure=True)
    assert capfd.readouterr().err == ""
    check_keys("--bind", "tcp://0.0.0.0:5", None, insecure=True)
    assert "--insecure: nothing is encrypted, and whoever reaches tcp://0.0.0.0:5 can" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["serve-split", "--clients", "2"], ["join-split", "tcp://127.0.0.1:5"]])
def test_keys_that_are_missing_are_a_message(command, tmp_path, capsys):
    assert cli.main([*command, "--keys", str(tmp_path / "none.json")]) == 2
    assert "none.json' cannot be used: expected a file that `fssl keys` has made" in capsys.readouterr().err
