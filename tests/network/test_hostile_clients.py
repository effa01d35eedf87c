"""What one client does, by mistake or on purpose, costs the others nothing but its part."""

import contextlib
import json
import math
import sys
import threading
import time

import pytest
import torch

from fssl_core.errors import FsslError
from fssl_core.network import handshake, meter
from fssl_core.network import peers as peers_module
from fssl_core.network.handshake import read_welcome, versions
from fssl_core.network.messages import Message
from fssl_core.network.peers import Peers
from fssl_core.network.server import Served
from fssl_core.network.sockets import ConnectionLostError, Link
from tests.network.federation import (
    MORE,
    PATIENCE,
    Wire,
    bytes_until_cut,
    connected,
    deserter,
    frame,
    free_address,
    joining,
    liar,
    port_of,
    shaken,
    spoiled,
    tiny,
    trained,
)

ESCAPES = "\x1b]0;owned\x07\rfssl: client 1 is ready\nfssl: all is well \u202e\u2028" + "x" * 2000
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux how much a connection has brought")


def assert_goes_on_without_client_0(served: Served, epochs: int = 2) -> None:
    assert list(served.lost) == [0]
    assert served.trainer.clients.members.tolist() == [1, 2]
    assert [row["epoch"] for row in served.trainer.metrics] == list(range(1, epochs + 1))
    assert all(math.isfinite(row["loss"]) for row in served.trainer.metrics)
    assert all(value.isfinite().all() for value in served.trainer.global_model().state_dict().values())


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("activations", math.nan),
        ("momentum_activations", math.inf),
        ("parameters", math.nan),
        ("momentum_parameters", -math.inf),
        ("measurement", math.nan),
        ("activations", 1e38),  # finite, and a sum of squares of it is not
        ("parameters", -1e30),
    ],
)
def test_one_bad_value_drops_its_sender_and_nobody_else(kind, value):
    address = free_address()

    def alter(message: Message) -> Message:
        return spoiled(message, value) if message.kind == kind else message

    served, (bad,) = trained(tiny(), address, liar(address, 0, alter))
    assert bad.result() == served.lost[0]
    assert served.lost[0].startswith(f"{kind!r} has values in ")
    assert served.lost[0].endswith("that are not finite or beyond 1e+06")
    assert_goes_on_without_client_0(served)


@pytest.mark.parametrize("kind", ["activations", "momentum_parameters"])
@pytest.mark.parametrize("change", ["shape", "type", "more"])
def test_another_shape_or_type_drops_its_sender(kind, change):
    address = free_address()

    def alter(message: Message) -> Message:
        if message.kind != kind:
            return message
        tensors = dict(message.tensors)
        name = next(iter(tensors))
        if change == "more":
            tensors["extra"] = torch.zeros(1)
        else:
            tensors[name] = tensors[name][None] if change == "shape" else tensors[name].double()
        return Message(message.kind, message.fields, tensors)

    served, _ = trained(tiny(epochs=1), address, liar(address, 0, alter))
    assert f"'{kind}' has " in served.lost[0] or "bytes where at most" in served.lost[0]
    assert_goes_on_without_client_0(served, epochs=1)


def test_who_moves_much_farther_than_the_others_is_named_and_stays(capfd):
    address = free_address()

    def alter(message: Message) -> Message:
        if message.kind != "parameters":
            return message
        return Message(message.kind, message.fields, {name: 30 * value for name, value in message.tensors.items()})

    served, _ = trained(tiny(), address, liar(address, 0, alter))
    assert served.lost == {}
    norms = served.norms
    assert norms.columns.tolist() == ["epoch", "step", "purpose", "client", "norm"]
    assert len(norms) == 2 * 2 * 3 * 2  # epochs, synchronisations, clients, models
    first = norms[(norms["purpose"] == "parameters") & (norms["epoch"] == 1) & (norms["step"] == 3)].set_index("client")
    assert first.loc[0, "norm"] > 10 * first.loc[[1, 2], "norm"].median()
    said = [line for line in capfd.readouterr().err.splitlines() if "outlier" in line]
    assert len(said) == 1
    assert said[0].startswith("fssl: client 0 is an outlier: its parameters moved by ")


def test_of_honest_clients_nobody_is_an_outlier(capfd):
    settings = tiny(method="MocoSFL", epochs=1)
    served, _ = trained(settings, free_address())
    assert set(served.norms["purpose"]) == {"parameters"}
    assert (served.norms["norm"] > 0).all()
    assert "outlier" not in capfd.readouterr().err


# ---------------------------------------------------------------- silence and places


class Clock:
    """The server's, but for the connections; set ``ahead`` (seconds), and what is waited for until then has come."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(peers_module, "time", clock)
    monkeypatch.setattr(handshake, "time", clock)
    return clock


@pytest.mark.parametrize("kind", ["activations", "parameters"])
def test_who_is_there_and_does_not_answer_is_dropped(kind, clock, monkeypatch):
    """Its heartbeats go on: ZeroMQ sends them. The deadline comes when only this client is waited for."""
    address, silent, receive = free_address(), threading.Event(), Peers.next

    def alter(message: Message) -> Message | None:
        if message.kind != kind:
            return message
        silent.set()
        return None

    def waiting(peers: Peers, awaited, *most):
        if silent.is_set() and list(awaited) == [0]:
            clock.ahead = PATIENCE
        return receive(peers, awaited, *most)

    monkeypatch.setattr(Peers, "next", waiting)
    served, (gone,) = trained(tiny(), address, liar(address, 0, alter), deadline=PATIENCE, timeout=60)
    assert clock.ahead
    assert served.lost == {0: "it did not answer within 300 seconds"}
    assert gone.result() == served.lost[0]
    assert_goes_on_without_client_0(served)


def test_the_place_of_one_who_joins_and_is_never_ready_is_free_again(clock, capfd, monkeypatch):
    """The deadline comes when the server waits for the first who has joined."""
    address, receive = free_address(), Peers.next

    def waiting(peers: Peers, awaited, *most):
        if list(awaited) == [0]:
            clock.ahead = PATIENCE
        return receive(peers, awaited, *most)

    def squatter_then_client() -> None:
        link = Link(address, timeout=20)
        link.send(Message("hello", {"versions": versions(), "client": 0}))
        read_welcome(link.receive(PATIENCE))
        assert link.receive(PATIENCE).fields["reason"] == "it joined and was not ready within 300 seconds"
        link.close(0)
        joining(address, 0)()

    monkeypatch.setattr(Peers, "next", waiting)
    served, (done,) = trained(
        tiny(clients=1, epochs=1), address, squatter_then_client, deadline=PATIENCE, wait=2 * PATIENCE
    )
    done.result()
    assert clock.ahead
    assert served.lost == {}
    assert "client 0 is gone before the start: it joined and was not ready" in capfd.readouterr().err


# ---------------------------------------------------------------- sizes


@linux
def test_a_message_of_many_frames_is_not_read_to_its_end():
    """Each frame is of a size that is due: only their number is not."""
    address = free_address()

    def flood(link: Link) -> None:
        part = bytes(1 << 20)
        link._socket.send_multipart([part] * 64, copy=False)
        with pytest.raises(ConnectionLostError):
            link.receive(PATIENCE)

    served, (gone,) = trained(tiny(), address, deserter(address, 0, (1, 2), flood))
    gone.result()
    assert served.lost == {0: "it sent more than was due"}
    assert_goes_on_without_client_0(served)


@linux
def test_what_is_due_of_a_client_is_allowed_however_early_it_speaks(monkeypatch):
    """It may be ready before the thread has noticed its connection; it would then be cut after 1 MiB."""
    monkeypatch.setattr(meter, "PAUSE", 3600.0)  # the thread does not look at all
    with Peers(free_address(), 20) as peers:
        link = Link(peers.address, 20)
        link.send(Message("hello"))
        peers.members[0] = peers.next([]).identity
        link.send(Message("ready"))
        peers.next([])
        name = peers._connections[peers.members[0]]
        assert name[1] > 0
        peers._meter.allow(name, 1 << 30)
        assert peers._meter._connections[name[0]] == (name[1], meter.WINDOW + (1 << 30))
        peers._meter._end.set()
        link.close(0)


@linux
def test_a_stranger_cannot_send_a_message_without_end():
    with Peers("tcp://127.0.0.1:*", 20) as peers, connected(port_of(peers.address)) as stranger:
        sent = bytes_until_cut(shaken(stranger, b"DEALER"), most=1 << 30, patience=2)
        assert sent < 1 << 30
        assert len(peers._meter.cut) == 1  # not just left waiting
        assert peers.next([]) is None


@linux
def test_a_stranger_is_cut_that_stays_longer_than_a_member_may_take():
    """However slowly it sends: a message that does not end would fill the memory in time."""
    with Peers("tcp://127.0.0.1:*", 2, deadline=0.5) as peers, connected(port_of(peers.address)) as stranger:
        wire, since, cut = shaken(stranger, b"DEALER"), time.monotonic(), False
        wire.settimeout(0)
        while not cut and time.monotonic() < since + PATIENCE:
            try:
                wire.sendall(MORE.to_bytes(2, "little"))  # an empty frame, and more to come
                cut = not wire.recv(1 << 10)
            except BlockingIOError:  # nothing to read: it is still there
                peers.next([])
            except OSError:
                cut = True
        assert cut
        assert time.monotonic() - since > 1  # twice the deadline


def test_of_a_message_of_very_many_frames_the_first_are_looked_at(monkeypatch):
    """In 1 MiB there is room for half a million empty ones, which took 400 MB in Python and eight seconds to read."""
    looked_at = []
    decode = peers_module.decode
    monkeypatch.setattr(peers_module, "decode", lambda frames: looked_at.append(len(frames)) or decode(frames))
    with Peers("tcp://127.0.0.1:*", 20) as peers, connected(port_of(peers.address)) as stranger:
        shaken(stranger, b"DEALER").sendall(2 * MORE.to_bytes(2, "little") * 50_000 + bytes(2))
        while not looked_at:
            assert peers.next([]) is None
    assert looked_at[0] < 1 << 14


def test_a_frame_that_says_it_is_larger_than_any_that_is_due_closes_the_connection():
    with Peers("tcp://127.0.0.1:*", 20, largest=1 << 10) as peers, connected(port_of(peers.address)) as stranger:
        shaken(stranger, b"DEALER").sendall(frame(0, b"", claimed=3 << 30))
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1 << 10):  # until the other side closes
                pass
        assert peers.next([]) is None


def test_who_speaks_an_old_protocol_is_refused_and_ends_nothing(capfd):
    """ZeroMQ takes ZMTP 2, and does not tell by which connection a message of it came."""
    hello = frame(0, json.dumps({"kind": "hello", "fields": {}, "tensors": []}).encode())
    said, since = "", time.monotonic()
    with Peers("tcp://127.0.0.1:*", 20) as peers, connected(port_of(peers.address)) as stranger:
        stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x01\x05" + bytes(2) + hello)  # a DEALER without a name
        while "it speaks ZMTP 1 or 2, and 3 is needed" not in said and time.monotonic() < since + PATIENCE:
            assert peers.next([]) is None
            said += "".join(capfd.readouterr())
    assert "it speaks ZMTP 1 or 2, and 3 is needed" in said


def test_before_the_training_a_message_is_small(capfd):
    address, reasons = free_address(), []

    def stranger_then_client() -> None:
        link = Link(address, timeout=20)
        link.send(Message("hello", {"versions": versions(), "client": 0, "more": "x" * (1 << 17)}))
        reasons.append(link.receive(PATIENCE).fields["reason"])
        link.close(0)
        joining(address, 0)()

    served, (done,) = trained(tiny(clients=1, epochs=1), address, stranger_then_client)
    done.result()
    assert served.lost == {}
    assert "bytes where at most 65,536 are due" in reasons[0]


# ---------------------------------------------------------------- words


def assert_harmless(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\nfssl: client 1 is ready\n" not in text
    assert "\nfssl: all is well" not in text
    assert max(map(len, text.splitlines())) < 1000


@pytest.mark.parametrize("say", ["leaving", "kind", "tensor"])
def test_what_a_member_says_cannot_write_to_the_terminal_or_forge_a_line(say, capfd):
    address = free_address()

    def deed(link: Link) -> None:
        if say == "leaving":
            link.send(Message("leaving", {"reason": ESCAPES}))
        elif say == "kind":
            link.send(Message(ESCAPES, tensors={"a": torch.zeros(1)}))
        else:
            link.send(Message("activations", tensors={ESCAPES: torch.zeros(1)}))
        with contextlib.suppress(FsslError):  # until the server is gone, so that the words arrive before the end
            while True:
                link.receive(PATIENCE)

    served, (gone,) = trained(tiny(epochs=1), address, deserter(address, 0, (0, 2), deed))
    gone.result()
    assert list(served.lost) == [0]
    assert_harmless(served.lost[0])
    assert all(purpose.isprintable() for purpose in served.wire["purpose"])
    err = capfd.readouterr().err.replace("\r", "\n")
    assert "client 0 is lost: " in err
    assert_harmless(err)


def test_what_a_stranger_says_cannot_either_and_is_not_reported_for_ever(capfd, monkeypatch):
    monkeypatch.setattr(peers_module, "MOST_REPORTS", 3)
    address = free_address()

    def strangers_then_client() -> None:
        hello = {"versions": versions(), "client": None}
        for first in (
            Message(ESCAPES),
            Message("hello", hello | {"versions": {ESCAPES: ESCAPES}}),
            Message("hello", hello | {"client": ESCAPES}),
            Message("hello", hello | {"client": [ESCAPES]}),
            Message("hello"),
        ):
            link = Link(address, timeout=20)
            link.send(first)
            assert_harmless(link.receive(PATIENCE).fields["reason"])
            link.close(0)
        joining(address, 0)()

    served, (done,) = trained(tiny(clients=1, epochs=1), address, strangers_then_client)
    done.result()
    assert served.lost == {}
    err = capfd.readouterr().err.replace("\r", "\n")
    assert_harmless(err)
    assert err.count("refused a peer: ") == 3
    assert "further peers that are refused or gone before the start are not reported" in err


def test_who_joins_and_leaves_again_and_again_is_not_reported_for_ever(capfd):
    address, over = free_address(), threading.Event()

    def restless_then_client() -> None:
        link = Link(address, timeout=60)
        for _ in range(40):
            link.send(Message("hello", {"versions": versions(), "client": 0}))
            read_welcome(link.receive(PATIENCE))
            link.send(Message("ready"))
            link.send(Message("leaving", {"reason": "refused"}))
        link.close(PATIENCE)
        over.set()
        joining(address, 0)()

    def other() -> None:
        over.wait(PATIENCE)
        joining(address, 1)()

    served, clients = trained(tiny(clients=2, epochs=1), address, restless_then_client, other)
    assert [client.result() for client in clients] == [None, None]
    assert served.lost == {}
    err = capfd.readouterr().err.replace("\r", "\n")
    assert err.count("client 0 is gone before the start") == 20
    assert err.count("client 0 is ready (1 of 2)") == 1
    assert err.count("further peers that are refused or gone before the start are not reported") == 1


def test_a_line_that_falls_silent_is_still_noticed_beside_the_deadline():
    address = free_address()
    with Wire(address) as wire:
        silent = liar(
            wire.address, 0, lambda message: wire.fall_silent() if message.kind == "parameters" else message, timeout=15
        )
        # After an epoch the line is there again: the client need not wait until it notices, too.
        options = {"deadline": PATIENCE, "timeout": 5, "progress": lambda *_, **__: wire.speak()}
        served, _ = trained(tiny(), address, silent, **options)
    assert served.lost == {0: "its connection closed"}
    assert_goes_on_without_client_0(served)
