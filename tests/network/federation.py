"""Federations over the loopback, small enough for a test. Clients are threads where a process would show no more.

Seconds here are bounds for a machine with many other things to do: nothing waits for them where all is well.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fssl_core.network.client import Member, join_split
from fssl_core.network.handshake import read_welcome, versions
from fssl_core.network.messages import Message
from fssl_core.network.server import Served, serve_split
from fssl_core.network.sockets import ConnectionLostError, Link
from fssl_core.training.split import SplitSettings, SplitTrainer
from tests.processes import Piped, fssl

TINY = {
    "seed": 0,
    "dataset": "digits",
    "train_images": 60,
    "partition": "iid",
    "clients": 3,
    "augmentation": "digits",
    "architecture": "resnet10",
    "width": 8,
    "cut_layer": 3,
    "projector_hidden": 32,
    "projector_dim": 8,
    "queue_size": 40,
    "client_batch": 5,
    "sync_every": 3,
    "epochs": 2,
    "learning_rate": 0.05,
    "client_learning_rate": 0.2,
    "validation_share": 0.2,
    "knn_k": 5,
    "probe_epochs": 1,
    "backend": "loop",
}


PATIENCE = 300.0  # seconds


def tiny(**values) -> SplitSettings:
    return SplitSettings(**TINY | values)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


# ---------------------------------------------------------------- clients and servers


@contextlib.contextmanager
def threads(*work: Callable) -> Iterator[list[Future]]:
    with ThreadPoolExecutor(len(work)) as pool:
        yield [pool.submit(one) for one in work]


def joining(address: str, client: int | None, **options) -> Callable[[], int]:
    return lambda: join_split(address, client=client, **{"wait": PATIENCE, "timeout": 60} | options)


def trained(settings: SplitSettings, address: str, *work: Callable, **options) -> tuple[Served, list[Future]]:
    """A federation with the first clients as ``work`` says, and the others as they should be."""
    rest = range(len(work), settings.clients)
    with threads(*work, *(joining(address, number) for number in rest)) as futures:
        served = serve_split(settings, bind=address, **{"wait": PATIENCE, "timeout": 60} | options)
    assert [future.result() for future in futures[len(work) :]] == list(rest)
    return served, futures[: len(work)]


def joined(link: Link, number: int) -> Member:
    """A client that the server has let in, and that is ready."""
    link.send(Message("hello", {"versions": versions(), "client": number}))
    client, settings, _ = read_welcome(link.receive(PATIENCE))
    member = Member(settings, client, settings.load_data())
    link.send(Message("ready"))
    return member


def deserter(address: str, number: int, when: tuple[int, int], deed: Callable[[Link], None]) -> Callable[[], None]:
    """A client that does its part until an (epoch, step) is asked for, and then something else.

    What it has sent by then is on its way before the connection closes.
    """

    def run() -> None:
        link = Link(address, timeout=60)
        member = joined(link, number)
        while True:
            message = link.receive()
            if message.kind == "forward" and (message.fields["epoch"], message.fields["step"]) == when:
                deed(link)
                break
            for answer in member.answer(message):
                link.send(answer)
        link.close(PATIENCE)

    return run


@contextlib.contextmanager
def process(environment: Mapping[str, str], *arguments: str) -> Iterator[Piped]:
    """``fssl`` with these arguments in a process of its own."""
    with fssl(*arguments, environment=environment) as started:
        try:
            yield started
        finally:
            started.kill()


# ---------------------------------------------------------------- oracles


def in_one_process(settings: SplitSettings, epochs: int | None = None) -> SplitTrainer:
    trainer = SplitTrainer(settings, settings.load_data())
    for _ in range(settings.epochs if epochs is None else epochs):
        trainer.advance()
    return trainer


def assert_same_bits(served: SplitTrainer, reference: SplitTrainer) -> None:
    assert served.metrics == reference.metrics
    assert served.step_log == reference.step_log
    for ours, theirs in (
        (served.best["model"], reference.best["model"]),
        (served.global_model().state_dict(), reference.global_model().state_dict()),
    ):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


class Wire:
    """A port that forwards one connection to the server, counts its bytes, and can fall silent.

    Attributes:
        address: of the near end.
        seen: number of bytes by direction.
        begun: the first bytes by direction.
    """

    def __init__(self, target: str) -> None:
        self.seen = {"up": 0, "down": 0}
        self.begun = {"up": b"", "down": b""}
        self._target = port_of(target)
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def fall_silent(self) -> None:
        """Nothing crosses any more, but both connections stay open."""
        self._open.clear()

    def speak(self) -> None:
        """What waits crosses, the end of a connection too."""
        self._open.set()

    def __enter__(self) -> "Wire":
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._open.set()
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        near, _ = self._listener.accept()
        with near, connected(self._target) as far:
            back = threading.Thread(target=self._pump, args=(far, near, "down"))
            back.start()
            self._pump(near, far, "up")
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._open.wait()
                self.seen[direction] += len(data)
                self.begun[direction] = (self.begun[direction] + data)[: 1 << 14]
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def connected(port: int) -> socket.socket:
    """A plain connection, as soon as somebody listens."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# ---------------------------------------------------------------- those who mean harm


def liar(
    address: str, number: int, alter: Callable[[Message], Message | None], *, timeout: float = 60, **options
) -> Callable[[], str]:
    """A client that does its part, but what it answers goes through ``alter`` (None: it stays silent).

    A server that is silent for ``timeout`` seconds is lost to it.

    Returns:
        the reason that the server gave when it ended this client, or an empty text.
    """

    def run() -> str:
        link = Link(address, timeout=timeout, **options)
        member = joined(link, number)
        try:
            while (message := link.receive()).kind not in ("refused", "stopped", "finished"):
                for answer in member.answer(message):
                    if (altered := alter(answer)) is not None:
                        link.send(altered)
            return str(message.fields.get("reason", ""))
        except ConnectionLostError:
            return "the connection closed"
        finally:
            link.close(0)

    return run


def spoiled(message: Message, value: float) -> Message:
    """With one value of its last tensor replaced."""
    tensors = {name: tensor.clone() for name, tensor in message.tensors.items()}
    tensors[list(tensors)[-1]].view(-1)[-1] = value
    return Message(message.kind, message.fields, tensors)


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # of ZMTP 3.0
MORE, LONG, COMMAND = 1, 2, 4


def frame(flags: int, body: bytes, claimed: int | None = None) -> bytes:
    """One frame of ZMTP, which says that it is as long as ``claimed``."""
    return bytes([flags | LONG]) + (len(body) if claimed is None else claimed).to_bytes(8, "big") + body


def shaken(connection: socket.socket, kind: bytes) -> socket.socket:
    """A plain connection after the handshake of ZMTP, as a socket of this kind."""
    connection.sendall(GREETING)
    ready = b"\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    connection.sendall(frame(COMMAND, ready))
    connection.settimeout(PATIENCE)
    heard = b""
    while b"READY" not in heard:  # ZeroMQ takes what comes before for a breach of protocol
        heard += connection.recv(1 << 10)
    return connection


def bytes_until_cut(connection: socket.socket, most: int, patience: float | None = None) -> int:
    """Send one message that does not end, until the other side closes; returns how much was sent.

    Of a side that closes while it is sent to, the system may say nothing for minutes: with ``patience`` (seconds) one
    that takes nothing for so long counts as closed.
    """
    connection.settimeout(patience)
    part, sent = frame(MORE, bytes(1 << 16)), 0
    with contextlib.suppress(OSError):
        while sent < most:
            connection.sendall(part)
            sent += len(part)
    return sent
