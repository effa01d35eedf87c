"""Clients and servers that die, fall silent, leave or misbehave."""

import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch
import zmq

from fssl_core.errors import FsslError, NonFiniteLossError
from fssl_core.network.handshake import admit
from fssl_core.network.messages import Message, encode
from fssl_core.network.peers import Peers
from fssl_core.network.server import Served, serve_split
from fssl_core.network.sockets import ConnectionLostError, Link
from fssl_core.training.split import SplitSettings, SplitTrainer
from fssl_core.training.split_clients import SplitClients
from tests.network.federation import (
    PATIENCE,
    Wire,
    assert_same_bits,
    deserter,
    free_address,
    in_one_process,
    joining,
    process,
    threads,
    tiny,
    trained,
)

TIMEOUT = 5.0  # seconds of silence; a busy machine must not be silent for as long


def test_a_killed_process_is_dropped_and_the_others_go_on(capfd, warm_environment):
    address, settings = free_address(), tiny(epochs=3)
    with process(warm_environment, "join-split", address, "--client", "2", "--wait", str(PATIENCE)) as third:
        lose = lambda: third.send_signal(signal.SIGKILL)  # noqa: E731
        served, seconds = trained_without_client_2(settings, address, lose, timeout=PATIENCE)
    assert_went_on_without_client_2(served, settings)
    assert seconds < PATIENCE / 2  # the connection closes, which is noticed long before a silence
    assert "client 2 is lost: its connection closed. Going on with client 0, 1." in capfd.readouterr().err


def test_where_the_line_goes_dead_both_sides_notice():
    address, settings = free_address(), tiny(epochs=3, method="MocoSFL")
    with Wire(address) as wire, threads(joining(wire.address, 2, timeout=TIMEOUT)) as (third,):
        served, seconds = trained_without_client_2(settings, address, wire.fall_silent, timeout=TIMEOUT)
        with pytest.raises(ConnectionLostError, match=r"The connection to the server at .* is lost"):
            third.result(timeout=PATIENCE)
    assert_went_on_without_client_2(served, settings)
    assert TIMEOUT / 2 < seconds < PATIENCE


def trained_without_client_2(
    settings: SplitSettings, address: str, lose: Callable, timeout: float
) -> tuple[Served, float]:
    """``lose`` is called after the first epoch; the seconds are those of the second."""
    moments: dict[int, float] = {}

    def progress(done: int, total: int, **figures) -> None:
        moments[done] = time.monotonic()
        if done == 1:
            lose()

    with threads(joining(address, 0), joining(address, 1)) as others:
        served = serve_split(settings, bind=address, wait=PATIENCE, timeout=timeout, progress=progress)
    assert [future.result() for future in others] == [0, 1]
    return served, moments[2] - moments[1]


def assert_went_on_without_client_2(served: Served, settings: SplitSettings) -> None:
    assert served.lost == {2: "its connection closed"}
    # The oracle: one process, in which two of three clients keep the rows that they had after an epoch.
    reference = in_one_process(settings, epochs=1)
    left = SplitClients(settings, settings.build_model(reference.data)[0], reference.data, members=[0, 1])
    for name, (matrix, _) in left.matrices.items():
        matrix.take(reference.clients.matrices[name][0], [0, 1])
    reference.clients = left
    for _ in range(settings.epochs - 1):
        reference.advance()
    assert_same_bits(served.trainer, reference)
    assert served.trainer.ledger.table().equals(reference.ledger.table())


def send_and_hear(message: Message | bytes) -> Callable[[Link], None]:
    def deed(link: Link) -> None:
        link._socket.send(message) if isinstance(message, bytes) else link.send(message)
        assert link.receive(PATIENCE).kind == "refused"

    return deed


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (lambda link: None, "its connection closed"),
        (lambda link: link.send(Message("leaving", {"reason": "no power"})), "no power"),
        (send_and_hear(b"garbage"), "its message is not understood: the header of a message is not JSON"),
        (send_and_hear(Message("parameters")), "it sent 'parameters', which was not due"),
        (send_and_hear(Message("activations")), "'activations' has 'activations' as nothing where float32"),
    ],
    ids=["closes", "leaves", "garbage", "undue", "shape"],
)
def test_a_client_that_leaves_or_misbehaves_within_an_epoch_is_dropped(deed, reason):
    address = free_address()
    served, (gone,) = trained(tiny(method="MocoSFL"), address, deserter(address, 0, (1, 2), deed))
    gone.result()
    assert list(served.lost) == [0]
    assert served.lost[0].startswith(reason)
    assert len(served.trainer.metrics) == 2
    sent = served.trainer.ledger.table().set_index(["epoch", "client"])["activations_up"]
    step = sent[1, 0] / 4
    assert sent.tolist() == [4 * step, 4 * step, 4 * step, 2 * step, 4 * step, 4 * step]
    assert served.trainer.clients.members.tolist() == [1, 2]


def test_what_a_client_said_last_is_read_before_its_connection_is_missed():
    with Peers(free_address(), TIMEOUT) as peers:
        link = Link(peers.address, TIMEOUT)
        link.send(Message("hello"))
        identity = peers.next([]).identity
        peers.members[0], peers.training = identity, True
        link.send(Message("leaving", {"reason": "no power"}))
        link.close(PATIENCE)
        while not peers.reply(identity, [b"are you there?"]):
            time.sleep(0.01)
        peers._probed = 0.0  # a ping is due
        peers.next([0])
        assert peers.lost == {0: "no power"}


def test_where_nobody_of_an_epoch_is_left_others_take_their_place():
    address, settings = free_address(), tiny(clients_per_epoch=1, seed=1)
    reference = SplitTrainer(settings, settings.load_data())
    reference.start_epoch()
    first = int(reference.clients.sampled[0])
    work = [joining(address, number) for number in range(3)]
    work[first] = deserter(address, first, (0, 1), lambda link: None)
    with threads(*work):
        served = serve_split(settings, bind=address, wait=PATIENCE)
    sent = served.trainer.ledger.table().pivot(index="epoch", columns="client", values="activations_up")
    step = sent.loc[1, first]
    assert sent.sum(axis=1).tolist() == [4 * step, 4 * step]
    assert sent.loc[2, first] == 0


def test_the_server_ends_when_all_clients_are_lost():
    address = free_address()
    work = [deserter(address, number, (0, 1), lambda link: None) for number in range(2)]
    with threads(*work), pytest.raises(FsslError, match="All clients are lost"):
        serve_split(tiny(clients=2), bind=address, wait=PATIENCE)


# ---------------------------------------------------------------- the server


def test_a_client_notices_that_the_server_died():
    """Its sockets close and no word comes: what a kill of its process looks like from outside."""
    address, settings = free_address(), tiny(clients=1)
    with threads(joining(address, 0)) as (client,):
        peers = Peers(address, TIMEOUT)
        admit(peers, settings, settings.load_data(), wait=PATIENCE)
        peers._close(0)
        with pytest.raises(ConnectionLostError, match=f"The connection to the server at {address} is lost"):
            client.result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ({}, KeyboardInterrupt, "the server was interrupted"),
        ({}, ZeroDivisionError, "the server failed with ZeroDivisionError: a bug"),
        ({"learning_rate": 1e30}, NonFiniteLossError, "the loss is nan at step"),
    ],
)
def test_clients_learn_why_the_server_gave_up(values, error, reason):
    address, begun = free_address(), threading.Event()

    def progress(done: int, total: int, **figures) -> None:
        begun.set()
        if not values:
            raise error("a bug")

    with threads(joining(address, 0)) as (client,), pytest.raises(error):
        serve_split(tiny(clients=1, **values), bind=address, wait=PATIENCE, progress=progress)
    assert begun.is_set()
    with pytest.raises(FsslError, match=f"The server ended the training for this client: {reason}"):
        client.result()


def test_a_client_that_does_not_read_is_dropped_before_it_fills_the_servers_memory():
    """Its messages would wait for ever where it is never asked, so that no deadline ends it."""
    with Peers("tcp://127.0.0.1:*", TIMEOUT, largest=2**22) as peers, zmq.Context() as context:
        deaf = context.socket(zmq.DEALER)
        deaf.rcvhwm, deaf.rcvbuf, deaf.linger = 1, 4096, 0
        deaf.connect(peers.address)
        deaf.send_multipart(encode(Message("hello")))
        while (arrived := peers.next([])) is None:
            pass
        peers.welcome(0, arrived.identity, Message("welcome"))
        peers.training = True
        model = Message("parameters", tensors={"weight": torch.ones(2**18)})  # 1 MiB
        sent = 0
        while 0 in peers.members and sent < 300:
            peers.send([0], Message("ping"))
            peers.send([0], model)
            sent += 1
        assert peers.lost == {0: "it does not read what it is sent"}
        assert sent < 100
        deaf.close()
