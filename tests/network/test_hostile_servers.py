"""What a server can make a client do: train on what the client has named, within the client's limits, and no more."""

import contextlib
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fssl_core.data.datasets import digest, load_dataset
from fssl_core.errors import DataError, FsslError, SettingError
from fssl_core.network.client import Member, join_split
from fssl_core.network.handshake import read_welcome
from fssl_core.network.limits import GIB, bytes_needed, own_settings
from fssl_core.network.messages import Message, ProtocolError
from fssl_core.network.peers import Peers
from fssl_core.network.sockets import Link
from tests.network.federation import PATIENCE, bytes_until_cut, frame, free_address, shaken, tiny

BIND = "tcp://127.0.0.1:*"


def answered(welcome: Message, **options) -> tuple[Message, Exception]:
    """The next message of a client after this welcome, and what it raised."""
    with ThreadPoolExecutor(1) as pool, Peers(BIND, 20) as peers:
        client = pool.submit(join_split, peers.address, **{"wait": PATIENCE, "timeout": 60} | options)
        while (hello := peers.next([])) is None:
            pass
        lost = []
        peers.lose = lambda client, reason, **_: lost.append(Message("leaving", {"reason": reason}))
        peers.welcome(0, hello.identity, welcome)
        while not lost:
            assert peers.next([]) is None
        return lost[0], client.exception(timeout=PATIENCE)


def welcome(client: int = 0, **values) -> Message:
    settings = tiny(clients=1).as_dict() | values
    return Message("welcome", {"client": client, "settings": settings, "data": digest(tiny().load_data())})


def test_a_server_learns_nothing_about_the_files_of_a_client(tmp_path):
    """The same word for a folder that is there, for one that is not, for a file that may not be read, for a bug."""
    (tmp_path / "there" / "train").mkdir(parents=True)
    (tmp_path / "file").write_text("secret")
    words = set()
    for path in (tmp_path / "there", tmp_path / "not-there", tmp_path / "file", "/etc/passwd", "../../etc"):
        left, error = answered(welcome(dataset=str(path)))
        words.add(left.fields["reason"])
        assert isinstance(error, DataError)
        assert "has not said on which images it does" in str(error)
        assert "secret" not in str(error)
    for values in ({"width": 200_000}, {"partition": "classes:99"}, {"cut_layer": 4}, {"client_batch": 10**9}):
        left, error = answered(welcome(**values))
        words.add(left.fields["reason"])
        assert isinstance(error, FsslError)
    assert words == {"refused"}


def test_a_client_trains_on_its_own_set_whatever_the_server_says(tmp_path):
    assert own_settings(tiny(dataset="/etc"), "digits").dataset == "digits"
    assert own_settings(tiny(dataset="scattered-digits"), None).dataset == "scattered-digits"
    left, error = answered(welcome(dataset="/etc"), data=str(tmp_path / "mine"))
    assert left.fields["reason"] == "refused"
    assert "mine" in str(error)
    assert "/etc" not in str(error)


@pytest.mark.parametrize(
    "values",
    [
        {"width": 200_000},
        {"width": 2**40},
        {"projector_hidden": 10**12},
        {"projector_dim": 10**12},
        {"image_size": 100_000},
        {"clients": 10**9},
        {"client_batch": 10**7},
    ],
    ids=lambda values: "-".join(map(str, values)),
)
def test_settings_that_would_exhaust_the_memory_are_refused_before_anything_is_made(values):
    begun = time.process_time()
    left, error = answered(welcome(**values))
    assert time.process_time() - begun < 60  # seconds of computing, and not of a model of that size
    assert left.fields["reason"] == "refused"
    assert isinstance(error, FsslError)
    if not isinstance(error, SettingError):
        assert "GiB here, and 4 are allowed: refused" in str(error)


def test_the_memory_that_a_client_allows_is_its_own_to_say():
    _, error = answered(welcome(width=64), memory=0.001)
    assert "and 0.001 are allowed: refused. Allow more with --memory" in str(error)
    with pytest.raises(SettingError, match="memory=0"):
        join_split(free_address(), memory=0)


def test_memory_is_counted_from_shapes():
    data = load_dataset("digits")
    pixels = (len(data.train) + len(data.test)) * 64
    small, wide = (bytes_needed(tiny(width=width), data) - pixels for width in (8, 32))
    assert small * 8 < wide < small * 16.5  # models grow with the square, activations with the width
    assert bytes_needed(tiny(image_size=80), data) > 100 * pixels
    model = tiny().build_model(data)
    assert bytes_needed(tiny(), data) > 2 * sum(value.nbytes for value in model.state_dict().values())
    assert bytes_needed(tiny(), data) < 0.1 * GIB


@pytest.mark.parametrize("number", [-1, 1, 10**30])
def test_a_number_that_cannot_be_is_refused(number):
    left, error = answered(welcome(client=number))
    assert left.fields["reason"] == "refused"
    assert isinstance(error, ProtocolError)


@pytest.mark.parametrize("due", ["frozen", "another model"])
def test_gradients_without_activations_that_wait_for_them_are_refused(due):
    settings = tiny(clients=1, freeze_client=due == "frozen")
    member = Member(settings, 0, settings.load_data())
    sent = member.answer(Message("forward", {"epoch": 0, "step": 0}))[0].tensors["activations"]
    if due == "another model":
        model = member.answer(Message("upload", {"purpose": "parameters"}))[0].tensors
        member.answer(Message("parameters", tensors={name: value.clone() for name, value in model.items()}))
    with pytest.raises(ProtocolError, match="has no activations that wait for them"):
        member.answer(Message("gradients", tensors={"gradients": torch.ones_like(sent)}))


def test_true_is_a_number_in_python_and_does_no_harm():
    client, settings, _ = read_welcome(welcome(client=True, clients=2))
    member = Member(settings, client, settings.load_data())
    asked = (member.answer(Message("forward", {"epoch": one, "step": one}))[0] for one in (True, 1))
    first, second = (answer.tensors["activations"] for answer in asked)
    assert first.shape == second.shape


ESCAPES = "\x1b]0;owned\x07\nfssl: client 0: the server has finished" + "x" * 10_000


@pytest.mark.parametrize(
    "message",
    [
        Message("refused", {"reason": ESCAPES}),
        Message("stopped", {"reason": ESCAPES}),
        Message(ESCAPES),
        welcome(**{ESCAPES: 1}),
        welcome(norm=ESCAPES),
    ],
    ids=["refused", "stopped", "kind", "name of a setting", "setting"],
)
def test_what_a_server_says_is_one_line_without_control_characters(message):
    with pytest.raises(FsslError) as refused:
        read_welcome(message)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1500


def test_what_is_no_message_is_told_in_one_line():
    with Peers(BIND, 20) as peers:
        link = Link(peers.address, 60)
        link.send(Message("hello"))
        while (hello := peers.next([])) is None:
            pass
        header = {"kind": ESCAPES, "fields": {}, "tensors": [[]]}
        peers.reply(hello.identity, [json.dumps(header).encode()])
        with pytest.raises(ProtocolError, match="is not understood") as refused:
            link.receive(PATIENCE)
        link.close(0)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1500


def test_a_server_that_speaks_an_old_protocol_is_told_from_a_right_one():
    refused = frame(0, json.dumps({"kind": "refused", "fields": {}, "tensors": []}).encode())
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        client = pool.submit(join_split, address, wait=PATIENCE, timeout=PATIENCE)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"\xff" + bytes(8) + b"\x7f\x01\x06" + bytes(2) + refused)  # a ROUTER without a name
            with pytest.raises(ProtocolError, match="is not understood: it speaks ZMTP 1 or 2, and 3 is needed"):
                client.result(timeout=PATIENCE)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux how much a connection has brought")
def test_a_server_cannot_send_a_message_without_end():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        client = pool.submit(join_split, address, wait=PATIENCE, timeout=PATIENCE)
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            assert bytes_until_cut(shaken(connection, b"ROUTER"), most=1 << 30, patience=2) < 1 << 30
        with pytest.raises(FsslError, match="sent more than --memory allows"):
            client.result(timeout=PATIENCE)
