"""The sockets of both sides, and the client's end of the connection.

A peer is taken for lost when its connection closes (the process died) or when nothing has come from it for
``timeout`` seconds (the machine or the line died, or the process is halted). ZeroMQ exchanges heartbeats in a thread
of its own, so a peer may compute for as long as it likes.
"""

import contextlib
import errno

import zmq
from zmq.utils.monitor import recv_monitor_message

from fssl_core.errors import FsslError, SettingError
from fssl_core.network.messages import MAX_FRAME, Message, ProtocolError, decode, encode

ADDRESS = "an address such as tcp://127.0.0.1:5555"
GOODBYE = 2.0  # seconds in which last words may still reach the other side


def new_socket(context: zmq.Context, kind: int, timeout: float) -> zmq.Socket:
    """A socket with heartbeats and limits.

    Args:
        kind: ``zmq.ROUTER`` or ``zmq.DEALER``.
        timeout: seconds of silence after which the other side is lost.
    """
    socket = context.socket(kind)
    milliseconds = int(1000 * timeout)
    socket.heartbeat_ivl = milliseconds // 4
    socket.heartbeat_timeout = socket.heartbeat_ttl = milliseconds
    socket.maxmsgsize = MAX_FRAME
    socket.sndhwm = socket.rcvhwm = 0  # never blocks: each side waits for the other after a few messages anyway
    socket.linger = int(1000 * GOODBYE)
    return socket


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
        timeout: as for :func:`new_socket`.

    Raises:
        SettingError: the address is none.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self._context = zmq.Context()
        self._socket = new_socket(self._context, zmq.DEALER, timeout)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise explained(error, "ADDRESS", address) from error
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        for socket in (self._socket, self._monitor):
            self._poller.register(socket, zmq.POLLIN)

    def send(self, message: Message) -> None:
        """Send, or queue where the server is not there yet."""
        self._socket.send_multipart(encode(message))

    def receive(self, wait: float | None = None) -> Message:
        """The next message that is not a ``ping``.

        Args:
            wait: seconds; None: as long as the connection lasts.

        Raises:
            ConnectionLostError: the connection is lost, or nothing came in time.
            ProtocolError: the server sent something that is no message.
        """
        while True:
            ready = dict(self._poller.poll(None if wait is None else 1000 * wait))
            if not ready:
                raise ConnectionLostError(
                    f"No server answered at {self.address} within {wait:g} seconds. Is `fssl serve-split` running "
                    "there, and is the port open?"
                )
            if self._socket in ready:  # first: what was sent before the connection closed
                try:
                    message = decode([frame.buffer for frame in self._socket.recv_multipart(copy=False)])
                except ProtocolError as error:
                    raise ProtocolError(f"The server at {self.address} is not understood: {error}.") from error
                if message.kind != "ping":
                    return message
            else:
                recv_monitor_message(self._monitor)
                raise ConnectionLostError(
                    f"The connection to the server at {self.address} is lost: it ended, or the network between failed."
                )

    def close(self, linger: float) -> None:
        """Close; what was sent has ``linger`` seconds to leave."""
        self._socket.disable_monitor()
        with contextlib.suppress(zmq.ZMQError):
            self._monitor.close()
        self._socket.close(int(1000 * linger))
        self._context.term()
