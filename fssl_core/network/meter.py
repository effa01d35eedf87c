"""A limit to what comes over a connection, whole messages or not.

ZeroMQ limits the size of a frame, but not the number of frames of a message, and shows a message only when its last
frame is there. So a peer could fill the memory with one message that never ends. The kernel knows how many bytes a
connection has brought: a thread compares them with what is due and cuts the connection that has brought more, whereupon
ZeroMQ throws away what it holds of it. This is for Linux; elsewhere only the size of a frame is limited.
"""

import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

PAUSE = 0.02  # seconds between two looks: at 1 Gbit/s a connection brings 2.5 MB in it
WINDOW = 1 << 20  # bytes that may always come: handshake, hello, frames' and encryption's own
HEARTBEATS = 1 << 12  # bytes a second in addition
BEGUN = (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED)
ENDED = (
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)
Name = tuple[int, float]
NOBODY: Name = (-1, 0.0)
_RECEIVED = struct.Struct("=Q")
_RECEIVED_AT = 128  # tcpi_bytes_received in Linux' struct tcp_info, since 4.1


class Meter:
    """Watches the connections of a socket from a thread of its own, until :meth:`close`.

    Args:
        watched: before it listens or connects.

    Attributes:
        cut: connections that were cut, by their names.
        ended: ZeroMQ's event with which the first connection ended, and whether it was cut; None: none has.
    """

    def __init__(self, watched: zmq.Socket) -> None:
        self.cut: set[Name] = set()
        self.ended: tuple[int, bool] | None = None
        self._watched = watched
        self._monitor = watched.get_monitor_socket(sum(BEGUN) | sum(ENDED))
        self._connections: dict[int, tuple[float, int]] = {}  # since when, and bytes that may have come
        self._lock = threading.Lock()
        self._listening = threading.Lock()  # a socket of ZeroMQ is for one thread at a time
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._end.set()
        self._thread.join()
        self._watched.disable_monitor()
        with contextlib.suppress(zmq.ZMQError):
            self._monitor.close()

    def name(self, connection: int) -> Name:
        """Of a connection that is there: its file descriptor, which others will have after it, and since when it is."""
        self._hear()  # of one that has just begun: its first message may be faster than the thread's next look
        with self._lock:
            return connection, self._connections.get(connection, (0.0, 0))[0]

    def allow(self, name: Name, count: int) -> None:
        """So many bytes more are due."""
        connection, begun = name
        with self._lock:
            since, allowed = self._connections.get(connection, (0.0, 0))
            if since == begun and connection in self._connections:
                self._connections[connection] = since, allowed + count

    def cut_others(self, members: Collection[Name], age: float) -> None:
        """Cut the connections older than so many seconds that are none of these."""
        with self._lock:
            for connection, (since, _) in list(self._connections.items()):
                if (connection, since) not in members and time.monotonic() - since > age:
                    del self._connections[connection]
                    _cut(connection)

    def _run(self) -> None:
        while not self._end.wait(PAUSE):
            self._hear()
            with self._lock:
                for connection, (since, allowed) in list(self._connections.items()):
                    if received(connection) > allowed + HEARTBEATS * (time.monotonic() - since):
                        self.cut.add((connection, since))
                        del self._connections[connection]
                        _cut(connection)

    def _hear(self) -> None:
        with self._listening:
            while self._monitor.poll(0):
                self._note(recv_monitor_message(self._monitor))

    def _note(self, event: dict[str, Any]) -> None:
        kind, connection = int(event["event"]), int(event["value"])
        with self._lock:
            if kind in BEGUN:
                self._connections[connection] = time.monotonic(), WINDOW
                return
            if self.ended is None:
                self.ended = kind, bool(self.cut)
            if kind == zmq.EVENT_DISCONNECTED:
                self._connections.pop(connection, None)


def received(connection: int) -> int:
    """Bytes that have come over a TCP connection; 0 where nothing tells, as for one that is gone."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        handle = socket.socket(fileno=connection)
    except OSError:
        return 0
    try:
        information = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size)
    except OSError:  # not TCP
        return 0
    finally:
        handle.detach()  # it is ZeroMQ's
    return _RECEIVED.unpack_from(information, _RECEIVED_AT)[0] if len(information) > _RECEIVED_AT else 0


def _cut(connection: int) -> None:
    with contextlib.suppress(OSError):
        handle = socket.socket(fileno=connection)
        try:
            handle.shutdown(socket.SHUT_RDWR)
        finally:
            handle.detach()
