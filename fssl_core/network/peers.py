"""The server's end of all connections: who is there, who is lost, and every byte that crossed."""

import errno
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import pandas as pd
import zmq

from fssl_core.errors import FsslError
from fssl_core.network.messages import Layout, Message, ProtocolError, check_layout, decode, encode
from fssl_core.network.sockets import GOODBYE, explained, new_socket
from fssl_core.notices import say

Frames = list[bytes]


class Peers:
    """The clients of one federation, as the server is connected with them; a context manager.

    Where the block ends with an error, every client is told why.

    Args:
        bind: where to listen, e.g. ``tcp://0.0.0.0:5555``; port ``*`` for any that is free.
        timeout: seconds of silence after which a client is lost.

    Attributes:
        address: where it listens.
        members: of the clients that are there, by number, what ZeroMQ calls them.
        lost: of the clients that were lost during training, by number, why.
        training: all have joined: nobody else can.

    Raises:
        SettingError: nobody can listen there.
    """

    def __init__(self, bind: str, timeout: float) -> None:
        self.members: dict[int, bytes] = {}
        self.lost: dict[int, str] = {}
        self.training = False
        self._bytes: Counter[tuple[int, str, str]] = Counter()
        self._probe_every = min(1.0, timeout / 4)  # seconds
        self._probed = time.monotonic()
        self._context = zmq.Context()
        self._socket = new_socket(self._context, zmq.ROUTER, timeout)
        self._socket.router_mandatory = True  # sending to one who is not there is an error: this is how it is noticed
        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise explained(error, "--bind", bind) from error
        self.address = self._socket.last_endpoint.decode().rstrip("\0")

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, kind, error: BaseException | None, trace) -> None:
        if error is not None:
            self.dismiss(Message("stopped", {"reason": _reason(error)}))
        self._socket.close(int(1000 * GOODBYE))
        self._context.term()

    # ---------------------------------------------------------------- sending

    def send(self, clients: Iterable[int], message: Message) -> None:
        """Send to those of the given clients that are there; one whose connection has closed is lost."""
        frames = encode(message)
        for client in clients:
            if client not in self.members:
                continue
            if self.reply(self.members[client], frames):
                self._count(client, message.kind, "down", frames)
            else:
                self.lose(client, "its connection closed")

    def reply(self, identity: bytes, frames: Frames) -> bool:
        """Send to a peer, member or not; returns whether it is connected."""
        try:
            self._socket.send_multipart([identity, *frames])
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def dismiss(self, message: Message) -> None:
        """Tell every client the last thing: ``finished``, or ``stopped`` with a reason."""
        frames = encode(message)
        for identity in self.members.values():
            self.reply(identity, frames)

    def refuse(self, identity: bytes, reason: str) -> None:
        """Tell somebody who is no member why not."""
        say(f"refused a peer: {reason}")
        self.reply(identity, encode(Message("refused", {"reason": reason})))

    # ---------------------------------------------------------------- receiving

    def ask(
        self, clients: Collection[int], request: Message, answers: Mapping[str, Layout]
    ) -> dict[int, dict[str, Message]]:
        """Send a request and wait until each client has answered or is lost.

        Args:
            clients: numbers.
            request: for each of them.
            answers: by kind, the messages that answer it, with the tensors that each has to have. A client that sends
                anything else is lost.

        Returns:
            by client and kind, the answers of those who are there, in the order of ``clients``.
        """
        received: dict[int, dict[str, Message]] = {client: {} for client in clients}
        self.send(clients, request)
        while waiting := [c for c, got in received.items() if c in self.members and len(got) < len(answers)]:
            arrived = self.next(waiting)
            if arrived is None:
                continue
            client, identity, message = arrived
            if client is None:
                self.refuse(identity, "the training has begun; nobody can join it any more")
            elif client not in waiting or message.kind not in answers or message.kind in received[client]:
                self.lose(client, f"it sent {message.kind[:100]!r}, which was not due", tell=True)
            else:
                try:
                    check_layout(message, answers[message.kind])
                except ProtocolError as error:
                    self.lose(client, str(error), tell=True)
                else:
                    received[client][message.kind] = message
        return {client: got for client, got in received.items() if client in self.members}

    def next(self, awaited: Collection[int]) -> tuple[int | None, bytes, Message] | None:
        """Wait for a message, at most about a second, and look whether those awaited are still connected.

        Returns:
            the member it comes from (None: somebody else), what ZeroMQ calls the sender, and the message; None when
            there was none, or one that is dealt with.
        """
        now = time.monotonic()
        # What has come is read first: a client that says why it leaves has closed its connection by now.
        if now >= self._probed + self._probe_every and not self._socket.poll(0):
            self._probed = now
            self.send(list(awaited), Message("ping"))
        if not self._socket.poll(max(1, math.ceil(1000 * (self._probed + self._probe_every - now)))):
            return None
        identity, *frames = [frame.bytes for frame in self._socket.recv_multipart(copy=False)]
        client = next((number for number, name in self.members.items() if name == identity), None)
        try:
            message = decode(frames)
        except ProtocolError as error:
            if client is None:
                self.refuse(identity, f"its message is not understood: {error}")
            else:
                self.lose(client, f"its message is not understood: {error}", tell=True)
            return None
        if client is not None:
            self._count(client, message.kind, "up", frames)
        if message.kind != "leaving":
            return client, identity, message
        if client is not None:
            self.lose(client, str(message.fields.get("reason"))[:500])
        return None

    # ---------------------------------------------------------------- who is there

    def lose(self, client: int, reason: str, *, tell: bool = False) -> None:
        """Go on without a client: its number is free again before the training, and nobody's afterwards."""
        identity = self.members.pop(client)
        if tell:
            self.reply(identity, encode(Message("refused", {"reason": reason})))
        if self.training:
            self.lost[client] = reason
            names = ", ".join(map(str, sorted(self.members)))
            say(f"client {client} is lost: {reason}. Going on with {f'client {names}' if names else 'nobody'}.")
        else:
            say(f"client {client} is gone before the start: {reason}. Another can take its place.")

    # ---------------------------------------------------------------- bytes

    def _count(self, client: int, kind: str, direction: str, frames: Frames) -> None:
        header, *payload = frames
        self._bytes[client, "headers", direction] += len(header)
        if payload:
            self._bytes[client, kind, direction] += sum(map(len, payload))

    def traffic(self) -> pd.DataFrame:
        """Bytes of all frames that were handed to ZeroMQ or came from it, without ZeroMQ's and TCP's own.

        Returns:
            columns client, purpose, direction, bytes. A purpose is one of the ledger's, ``measurement`` (what the
            engine logs about the clients' models) or ``headers`` (of all messages between welcome and farewell).
        """
        rows = [(*key, count) for key, count in sorted(self._bytes.items())]
        return pd.DataFrame(rows, columns=["client", "purpose", "direction", "bytes"])


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "the server was interrupted"
    return str(error) if isinstance(error, FsslError) else f"the server failed with {type(error).__name__}: {error}"
