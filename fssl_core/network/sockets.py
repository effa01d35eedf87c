"""The sockets of both sides, and the client's end of the connection.

A peer is taken for lost when its connection closes (the process died) or when nothing has come from it for
``timeout`` seconds (the machine or the line died, or the process is halted). ZeroMQ exchanges heartbeats in a thread
of its own, so a peer may compute for as long as it likes.
"""

import contextlib
import errno
import math
import time

import zmq

from fssl_core.errors import FsslError, SettingError
from fssl_core.network.keys import ClientKeys, ServerKeys
from fssl_core.network.messages import MAX_FRAME, MAX_HEADER, Message, ProtocolError, decode, encode
from fssl_core.network.meter import NOBODY, Meter, Name
from fssl_core.notices import printable

ADDRESS = "an address such as tcp://127.0.0.1:5555"
GOODBYE = 2.0  # seconds in which last words may still reach the other side
LOOK = 0.1  # seconds between two looks whether the connection is still there
SMALL = 1 << 16  # bytes of a message without tensors
MOST_FRAMES = 1 << 14  # of a message that is looked at: MAX_HEADER has room for about as many tensors
WAITING = 1 << 28  # bytes of messages that may wait for one who does not read, or of 16
ENCRYPTION = 1 << 10  # bytes, and more than CurveZMQ adds to a frame
FAILED = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the server does not know the key of this client",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "one side uses keys and the other does not, or they are not of one set",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "one side uses keys and the other does not, or they are not of one set",
}


def new_socket(
    context: zmq.Context, kind: int, timeout: float, largest: int, keys: ServerKeys | ClientKeys | None
) -> zmq.Socket:
    """A socket with heartbeats, limits and keys.

    Args:
        kind: ``zmq.ROUTER`` or ``zmq.DEALER``.
        timeout: seconds of silence after which the other side is lost.
        largest: bytes of the largest frame that is ever due.
        keys: None: connections are neither encrypted nor authenticated.
    """
    socket = context.socket(kind)
    milliseconds = int(1000 * timeout)
    socket.heartbeat_ivl = milliseconds // 4
    socket.heartbeat_timeout = socket.heartbeat_ttl = milliseconds
    socket.maxmsgsize = max(largest, MAX_HEADER) + ENCRYPTION
    if keys is not None:
        keys.put_on(socket)
    socket.rcvhwm = 0  # what has come is read after a few messages anyway
    socket.sndhwm = min(256, max(16, WAITING // largest))  # messages; the other side may not read
    socket.linger = int(1000 * GOODBYE)
    return socket


def connection_of(frame: zmq.Frame) -> int:
    """The connection that a frame came by, as the system numbers it.

    Raises:
        ProtocolError: the peer speaks a protocol of which ZeroMQ does not tell it.
    """
    try:
        return frame.get(zmq.SRCFD)
    except zmq.ZMQError as error:
        raise ProtocolError("it speaks ZMTP 1 or 2, and 3 is needed") from error


def next_frames(socket: zmq.Socket) -> list[zmq.Frame]:
    """The frames of the next message, but for those beyond ``MOST_FRAMES``: of an empty one Python keeps 800 bytes."""
    frames = [socket.recv(copy=False)]
    last = frames[0]
    while last.more:
        last = socket.recv(copy=False)
        if len(frames) < MOST_FRAMES:
            frames.append(last)
    return frames


def explained(error: zmq.ZMQError, name: str, address: str) -> FsslError:
    """What is wrong with an address that ZeroMQ refused."""
    if error.errno == errno.EADDRINUSE:
        return SettingError(name, address, "an address that no other program uses, e.g. with another port")
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return SettingError(name, address, "an address of this machine, e.g. tcp://0.0.0.0:5555 for all it has")
    if error.errno == errno.EACCES:
        return SettingError(name, address, "a port above 1023")
    return SettingError(name, address, ADDRESS)


class ConnectionLostError(FsslError):
    """The server is not there any more, or never was."""


class Link:
    """A client's connection to the server.

    Args:
        address: of the server, ``tcp://HOST:PORT``.
        timeout, keys: as for :func:`new_socket`.
        memory: bytes that a message may have once this client has joined.

    Raises:
        SettingError: the address is none.
    """

    def __init__(self, address: str, timeout: float, keys: ClientKeys | None = None, memory: int = MAX_FRAME) -> None:
        self.address = address
        self._memory, self._most = memory, MAX_HEADER
        self._connection: Name = NOBODY
        self._context = zmq.Context()
        self._socket = new_socket(self._context, zmq.DEALER, timeout, min(memory, MAX_FRAME), keys)
        self._meter = Meter(self._socket)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close(0)
            raise explained(error, "ADDRESS", address) from error

    def expect_models(self) -> None:
        """From now on messages may have tensors."""
        self._most = self._memory
        self._meter.allow(self._connection, self._memory)

    def send(self, message: Message) -> None:
        """Send, or queue where the server is not there yet; where it is lost nothing happens, and receiving says so."""
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(encode(message), zmq.NOBLOCK)

    def receive(self, wait: float | None = None) -> Message:
        """The next message that is not a ``ping``.

        Args:
            wait: seconds; None: as long as the connection lasts.

        Raises:
            ConnectionLostError: the connection is lost, or nothing came in time.
            ProtocolError: the server sent something that is no message.
        """
        deadline = math.inf if wait is None else time.monotonic() + wait
        while True:
            ended = self._meter.ended
            if self._socket.poll(min(1000 * LOOK, max(0, 1000 * (deadline - time.monotonic())))):
                message = self._next()
                if message.kind != "ping":
                    return message
            elif ended is not None:  # and what was sent before that has been read
                raise self._why(*ended)
            elif time.monotonic() > deadline:
                raise ConnectionLostError(
                    f"No server answered at {self.address} within {wait:g} seconds. Is `fssl serve-split` running "
                    "there, and is the port open?"
                )

    def _next(self) -> Message:
        frames = next_frames(self._socket)
        size = sum(map(len, frames))
        try:
            self._connection = self._meter.name(connection_of(frames[0]))
            self._meter.allow(self._connection, size)
            if size > self._most:
                raise ProtocolError(f"it sent {size:,} bytes where at most {self._most:,} are allowed")
            return decode([frame.buffer for frame in frames])
        except ProtocolError as error:
            raise ProtocolError(f"The server at {self.address} is not understood: {printable(error)}.") from error

    def _why(self, event: int, cut: bool) -> FsslError:
        if cut:
            return ProtocolError(f"The server at {self.address} sent more than --memory allows.")
        if event in FAILED:
            return ConnectionLostError(
                f"The server at {self.address} closed the connection before anything was said: {FAILED[event]}. Give "
                "both sides --keys with files of one `fssl keys`."
            )
        return ConnectionLostError(
            f"The connection to the server at {self.address} is lost: it ended, or the network between failed."
        )

    def close(self, linger: float) -> None:
        """Close; what was sent has ``linger`` seconds to leave."""
        self._meter.close()
        self._socket.close(int(1000 * linger))
        self._context.term()
