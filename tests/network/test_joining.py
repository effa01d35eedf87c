"""Who may join, and what is said to those who may not."""

import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest

from fssl_core.data.datasets import digest
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.network import client as client_module
from fssl_core.network import handshake
from fssl_core.network.handshake import check_split_settings, versions
from fssl_core.network.messages import Message
from fssl_core.network.server import claim_folder, serve_split
from fssl_core.network.sockets import Link
from tests.network.federation import PATIENCE, connected, free_address, joining, port_of, threads, tiny, trained


def test_strangers_are_refused_with_a_reason_and_do_not_disturb(capfd):
    address, hello, reasons = free_address(), {"versions": versions(), "client": None}, []
    refused = {
        "not JSON": b"\x80\x04\x95 a pickle",
        '"fssl_core": "0.0.1"': Message("hello", hello | {"versions": versions() | {"fssl_core": "0.0.1"}}),
        "it has null": Message("hello"),
        "no client 3: they are numbered from 0 to 2": Message("hello", hello | {"client": 3}),
        "no client 1:": Message("hello", hello | {"client": "1"}),
        "'forward' instead of 'hello'": Message("forward"),
    }

    def strangers_then_client() -> None:
        for first in refused.values():
            link = Link(address, timeout=60)
            link._socket.send(first) if isinstance(first, bytes) else link.send(first)
            reasons.append(link.receive(PATIENCE).fields["reason"])
            link.close(0)
        with connected(port_of(address)) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
            joining(address, None)()

    served, _ = trained(tiny(), address, strangers_then_client)
    assert [part for part, reason in zip(refused, reasons, strict=True) if part not in reason] == []
    assert len(served.trainer.metrics) == 2
    assert served.lost == {}
    assert capfd.readouterr().err.count("refused a peer") == len(refused)


def test_nobody_joins_a_training_that_has_begun(monkeypatch):
    """It goes no further than its first step before the late one has its answer."""
    address, late = free_address(), []
    answer = client_module.Member.answer

    def answer_when_the_late_one_is_refused(member, message):
        wait(late, PATIENCE)
        return answer(member, message)

    monkeypatch.setattr(client_module.Member, "answer", answer_when_the_late_one_is_refused)
    with ThreadPoolExecutor(1) as pool:

        def progress(done: int, total: int, **figures) -> None:
            if done == 0:
                late.append(pool.submit(joining(address, 1)))

        served, _ = trained(tiny(), address, progress=progress)
    assert served.lost == {}
    with pytest.raises(FsslError, match="refused this client: the training has begun"):
        late[0].result()


def test_a_number_is_given_once_and_missing_clients_are_named(monkeypatch):
    """The time is up when the first client is ready and a second one with its number has its answer."""
    address, ready = free_address(), threading.Event()
    joined: list[Future] = []
    clock = SimpleNamespace(monotonic=lambda: 5.0 if ready.is_set() and joined and joined[0].done() else 0.0)
    monkeypatch.setattr(handshake, "time", clock)
    monkeypatch.setattr(handshake, "say", lambda text: ready.set())
    with ThreadPoolExecutor(1) as pool:
        first = joining(address, 1, joined=lambda *_: joined.append(pool.submit(joining(address, 1))))
        with threads(first) as (waiting,), pytest.raises(FsslError, match=r"1 of 3 .* 4 seconds; missing: 0, 2"):
            serve_split(tiny(), bind=address, wait=4)
    with pytest.raises(FsslError, match="client 1 is there already"):
        joined[0].result()
    with pytest.raises(FsslError, match="The server ended the training for this client: 1 of 3 clients were ready"):
        waiting.result()


def test_a_client_with_other_images_than_the_servers_goes_and_another_takes_its_place(monkeypatch, capfd):
    address, wrong = free_address(), ["0123"]
    monkeypatch.setattr(client_module, "digest", lambda data: wrong.pop() if wrong else digest(data))

    def twice() -> None:
        with pytest.raises(DataError, match=r"The training images of digits here \(60\) are not those of the server"):
            joining(address, 0)()
        joining(address, 0)()

    served, (client,) = trained(tiny(clients=1), address, twice)
    client.result()
    assert served.lost == {}
    assert "client 0 is gone before the start: refused. Another" in capfd.readouterr().err


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:5555x", "127.0.0.1", "[::1]", "eth0:"]
)
def test_what_is_no_port_is_refused(address):
    """Before keys are asked for, and before ZeroMQ takes something else for it."""
    with pytest.raises(SettingError, match=r"--bind='tcp://.*' cannot be used: expected a port from 1 to"):
        serve_split(tiny(), bind=f"tcp://{address}")
    with pytest.raises(SettingError, match=r"ADDRESS='tcp://.*' cannot be used: expected a port from 1 to"):
        client_module.join_split(f"tcp://{address}", wait=0)


def test_a_port_in_use_and_a_folder_in_use_are_errors(tmp_path):
    address = free_address()
    in_use = socket.create_server(("127.0.0.1", port_of(address)))
    with in_use, pytest.raises(SettingError, match="an address that no other program uses"):
        serve_split(tiny(), bind=address)
    claim_folder(tmp_path, tiny())
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(SettingError, match="a folder without a finished run"):
        claim_folder(tmp_path, tiny())
    (tmp_path / "summary.json").rename(tmp_path / "notes.json")
    with pytest.raises(SettingError, match=r"--out=.* a new or empty folder"):
        claim_folder(tmp_path, tiny())
    with pytest.raises(SettingError, match="a folder that can be written"):
        claim_folder(tmp_path / "notes.json" / "run", tiny())
    claim_folder(tmp_path / "new", tiny(), new=True)
    with pytest.raises(SettingError, match=r"FSSL_RUNS=.* a folder that can be written \(File exists\)"):
        claim_folder(tmp_path / "new", tiny(), new=True)


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
@pytest.mark.parametrize("name", ["wait", "timeout", "memory"])
def test_a_client_that_could_never_end_is_refused_at_once(name, value):
    with pytest.raises(SettingError, match=name):
        client_module.join_split(free_address(), **{name: value})


def test_settings_from_a_message_are_checked():
    check_split_settings(json.loads(json.dumps(tiny(learning_rate=1).as_dict())))
    for values, name in (({"seed": True}, "seed"), ({"width": "8"}, "width"), ({"version": 2}, "version")):
        with pytest.raises(SettingError, match=f"{name}="):
            check_split_settings(values)
