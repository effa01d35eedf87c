"""The server's end of all connections: who is there, who is lost, and every byte that crossed."""

import errno
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import zmq
from zmq.auth.thread import ThreadAuthenticator

from fssl_core.errors import FsslError
from fssl_core.federation.ledger import PURPOSES
from fssl_core.network.keys import ServerKeys
from fssl_core.network.messages import (
    MAX_FRAME,
    Layout,
    Message,
    ProtocolError,
    check_layout,
    check_values,
    decode,
    due_bytes,
    encode,
)
from fssl_core.network.meter import NOBODY, Meter, Name
from fssl_core.network.sockets import GOODBYE, SMALL, connection_of, explained, new_socket, next_frames
from fssl_core.notices import notice, printable, say

Frames = Sequence[bytes | memoryview]
UNREAD = "it does not read what it is sent"
MOST_REPORTS = 20  # of peers that are refused or go before the training


class Arrived(NamedTuple):
    """A message, and from whom.

    Args:
        client: the member it comes from; None: somebody else.
        identity: what ZeroMQ calls the sender.
        owner: whose key the sender has; None where there are no keys.
        message: what was sent.
    """

    client: int | None
    identity: bytes
    owner: int | None
    message: Message


class Peers:
    """The clients of one federation, as the server is connected with them; a context manager.

    Where the block ends with an error, every client is told why.

    Args:
        bind: where to listen, e.g. ``tcp://0.0.0.0:5555``; port ``*`` for any that is free.
        timeout: seconds of silence after which a client is lost.
        deadline: seconds after which a client is lost that has not answered, alive or not.
        keys: who may join as which client; None: anybody as any.
        largest: bytes of the largest tensor that is ever due.

    Attributes:
        address: where it listens.
        keys, deadline: as above.
        members: of the clients that are there, by number, what ZeroMQ calls them.
        lost: of the clients that were lost during training, by number, why.
        training: all have joined: nobody else can.

    Raises:
        SettingError: nobody can listen there.
    """

    def __init__(
        self,
        bind: str,
        timeout: float,
        deadline: float = 120.0,
        keys: ServerKeys | None = None,
        largest: int = MAX_FRAME,
    ) -> None:
        self.members: dict[int, bytes] = {}
        self.lost: dict[int, str] = {}
        self.training = False
        self.deadline, self.keys = deadline, keys
        self._reports = 0
        self._bytes: Counter[tuple[int, str, str]] = Counter()
        self._probe_every = min(1.0, timeout / 4)  # seconds
        self._probed = time.monotonic()
        self._connections: dict[bytes, Name] = {}  # of members
        self._context = zmq.Context()
        self._authenticator = None if keys is None else _authenticator(self._context, keys)
        self._socket = new_socket(self._context, zmq.ROUTER, timeout, largest, keys)
        self._socket.router_mandatory = True  # sending to one who is not there is an error: this is how it is noticed
        self._meter = Meter(self._socket)
        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            self._close(0)
            raise explained(error, "--bind", bind) from error
        self.address = self._socket.last_endpoint.decode().rstrip("\0")

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, kind, error: BaseException | None, trace) -> None:
        if error is not None:
            self.dismiss(Message("stopped", {"reason": _reason(error)}))
        self._close(GOODBYE)

    def _close(self, linger: float) -> None:
        self._meter.close()
        self._socket.close(int(1000 * linger))
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    # ---------------------------------------------------------------- sending

    def send(self, clients: Iterable[int], message: Message) -> None:
        """Send to those of the given clients that are there; one that is not there any more, or does not read, is lost.

        A ``ping`` only asks whether somebody is there: one that reads slowly is.
        """
        frames = encode(message)
        for client in clients:
            if client not in self.members:
                continue
            failed = self.reply(self.members[client], frames)
            if not failed:
                self._count(client, message.kind, "down", frames)
            elif failed != UNREAD or message.kind != "ping":
                cut = self._connections.get(self.members[client]) in self._meter.cut
                self.lose(client, "it sent more than was due" if cut else failed)

    def reply(self, identity: bytes, frames: Frames) -> str:
        """Send to a peer, member or not; returns why it cannot be sent, in words, and nothing where it can."""
        try:
            self._socket.send_multipart([identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EHOSTUNREACH, errno.EAGAIN):
                raise
            return UNREAD if error.errno == errno.EAGAIN else "its connection closed"
        return ""

    def dismiss(self, message: Message) -> None:
        """Tell every client the last thing: ``finished``, or ``stopped`` with a reason."""
        frames = encode(message)
        for identity in self.members.values():
            self.reply(identity, frames)

    def refuse(self, identity: bytes, reason: str) -> None:
        """Tell somebody who is no member why not."""
        reason = printable(reason)
        self._report(f"refused a peer: {reason}")
        self.reply(identity, encode(Message("refused", {"reason": reason})))

    def welcome(self, client: int, identity: bytes, message: Message) -> bool:
        """Make a peer a member; returns whether it is still connected."""
        if self.reply(identity, encode(message)):
            return False
        self.members[client] = identity
        return True

    # ---------------------------------------------------------------- receiving

    def ask(
        self, clients: Collection[int], request: Message, answers: Mapping[str, Layout]
    ) -> dict[int, dict[str, Message]]:
        """Send a request and wait until each client has answered or is lost.

        Args:
            clients: numbers.
            request: for each of them.
            answers: by kind, the messages that answer it, with the tensors that each has to have. A client is lost that
                sends anything else, values that are not finite, or nothing within the deadline.

        Returns:
            by client and kind, the answers of those who are there, in the order of ``clients``.
        """
        received: dict[int, dict[str, Message]] = {client: {} for client in clients}
        sizes = [due_bytes(layout) for layout in answers.values()]
        for client in clients:
            if client in self.members:
                self._meter.allow(self._connections.get(self.members[client], NOBODY), sum(sizes))
        self.send(clients, request)
        deadline = time.monotonic() + self.deadline
        while waiting := [c for c, got in received.items() if c in self.members and len(got) < len(answers)]:
            if time.monotonic() > deadline:
                for client in waiting:
                    self.lose(client, f"it did not answer within {self.deadline:g} seconds", tell=True)
                break
            arrived = self.next(waiting, max(sizes))
            if arrived is None:
                continue
            client, message = arrived.client, arrived.message
            if client is None:
                self.refuse(arrived.identity, "the training has begun; nobody can join it any more")
            elif client not in waiting or message.kind not in answers or message.kind in received[client]:
                self.lose(client, f"it sent {message.kind[:100]!r}, which was not due", tell=True)
            else:
                try:
                    check_layout(message, answers[message.kind])
                    check_values(message)
                except ProtocolError as error:
                    self.lose(client, str(error), tell=True)
                else:
                    received[client][message.kind] = message
        return {client: got for client, got in received.items() if client in self.members}

    def next(self, awaited: Collection[int], most: int = SMALL) -> Arrived | None:
        """Wait for a message, at most about a second, and look whether those awaited are still connected.

        Args:
            awaited: members that a message is due from.
            most: bytes that it may have; all others have at most ``SMALL``.

        Returns:
            what has come; None when there was nothing, or something that is dealt with.
        """
        now = time.monotonic()
        # What has come is read first: a client that says why it leaves has closed its connection by now.
        if now >= self._probed + self._probe_every and not self._socket.poll(0):
            self._probed = now
            self.send(list(awaited), Message("ping"))
            # Of no member, or of one that is lost; twice, as a member is known by what it says within the deadline.
            self._meter.cut_others({*self._connections.values()}, 2 * self.deadline)
        if not self._socket.poll(max(1, math.ceil(1000 * (self._probed + self._probe_every - now)))):
            return None
        first, *rest = next_frames(self._socket)
        identity, frames = first.bytes, [frame.buffer for frame in rest]
        client = next((number for number, name in self.members.items() if name == identity), None)
        try:
            size, allowed = sum(map(len, frames)), max(most, SMALL) if client in awaited else SMALL
            if size > allowed:
                raise ProtocolError(f"it has {size:,} bytes where at most {allowed:,} are due")
            message = decode(frames)
            connection = connection_of(rest[0])
        except ProtocolError as error:
            if client is None:
                self.refuse(identity, f"its message is not understood: {error}")
            else:
                self.lose(client, f"its message is not understood: {error}", tell=True)
            return None
        if client is not None:
            self._connections.setdefault(identity, self._meter.name(connection))
            self._count(client, message.kind, "up", frames)
        if message.kind != "leaving":
            return Arrived(client, identity, self._owner(rest[0]), message)
        if client is not None:
            self.lose(client, printable(message.fields.get("reason")))
        return None

    def _owner(self, frame: zmq.Frame) -> int | None:
        return None if self.keys is None else self.keys.clients.index(frame.get("User-Id").encode())

    # ---------------------------------------------------------------- who is there

    def lose(self, client: int, reason: str, *, tell: bool = False) -> None:
        """Go on without a client: its number is free again before the training, and nobody's afterwards."""
        reason = printable(reason)
        identity = self.members.pop(client)
        self._connections.pop(identity, None)
        if tell:
            self.reply(identity, encode(Message("refused", {"reason": reason})))
        if self.training:
            self.lost[client] = reason
            names = ", ".join(map(str, sorted(self.members)))
            say(f"client {client} is lost: {reason}. Going on with {f'client {names}' if names else 'nobody'}.")
        else:
            self._report(f"client {client} is gone before the start: {reason}. Another can take its place.")

    def _report(self, line: str) -> None:
        """Say what a peer can make happen as often as it likes, but not for ever."""
        self._reports += 1
        if self._reports <= MOST_REPORTS:
            say(line)
        if self._reports == MOST_REPORTS:
            say("further peers that are refused or gone before the start are not reported")

    # ---------------------------------------------------------------- bytes

    def _count(self, client: int, kind: str, direction: str, frames: Frames) -> None:
        header, *payload = frames
        self._bytes[client, "headers", direction] += len(header)
        if payload:
            purpose = kind if kind in (*PURPOSES, "measurement") else "not due"
            self._bytes[client, purpose, direction] += sum(map(len, payload))

    def traffic(self) -> pd.DataFrame:
        """Bytes of all frames that were handed to ZeroMQ or came from it, without ZeroMQ's and TCP's own.

        Returns:
            columns client, purpose, direction, bytes. A purpose is one of the ledger's, ``measurement`` (what the
            engine logs about the clients' models), ``headers`` (of all messages between welcome and farewell) or
            ``not due`` (of a client that was lost for it).
        """
        rows = [(*key, count) for key, count in sorted(self._bytes.items())]
        return pd.DataFrame(rows, columns=["client", "purpose", "direction", "bytes"])


def _authenticator(context: zmq.Context, keys: ServerKeys) -> ThreadAuthenticator:
    """Answers ZeroMQ, from a thread of its own, whether a key may connect (https://rfc.zeromq.org/spec/27)."""

    class Allowed:
        def callback(self, domain: str, key: bytes) -> bool:
            if key not in keys.clients:
                notice("refused a peer: its key is none of the clients'. Others like it are not reported.")
            return key in keys.clients

    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback("*", Allowed())
    return authenticator


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "the server was interrupted"
    return str(error) if isinstance(error, FsslError) else f"the server failed with {type(error).__name__}: {error}"
