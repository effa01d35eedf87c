"""How a client joins: the same code, the server's settings, the same images, a number.

::

    client                            server
    hello (versions, number or None)
                                      welcome (number, settings, digest of the images), or refused (reason)
    ready, or leaving (reason)

Every process loads the whole data set and takes the share of its own number from the partition. This simulates a
device that has its own images; nothing but the number and the settings decides which they are.

With keys a client has the number of its key. Where it joins again before the training begins, because its process was
started anew, its new connection takes the place of the old one.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import fssl_core
from fssl_core.data.datasets import Dataset, digest
from fssl_core.errors import FsslError, SettingError
from fssl_core.network.messages import Message, ProtocolError
from fssl_core.network.peers import Arrived, Peers
from fssl_core.notices import printable, say
from fssl_core.settings import check_types
from fssl_core.training.split import SplitSettings

PROTOCOL = 1  # raise when messages change


def versions() -> dict[str, Any]:
    """What has to be equal on both sides."""
    return {
        "protocol": PROTOCOL,
        "fssl_core": fssl_core.__version__,
        "engine": SplitSettings.version,
        "byte order": sys.byteorder,
    }


def check_split_settings(values: Mapping[str, Any]) -> None:
    """Check settings that come from a message or a command line, before they are put together.

    Raises:
        SettingError: a name, type or range that :class:`SplitSettings` does not know, or a pre-trained client: a
            client process would have no way to get it.
    """
    if values.get("pretrained_client") is not None:
        raise SettingError("pretrained_client", values["pretrained_client"], "none where clients are processes")
    check_types(SplitSettings, {printable(name): value for name, value in values.items()})  # errors repeat names


def admit(peers: Peers, settings: SplitSettings, data: Dataset, wait: float) -> None:
    """Let clients join until all of the federation are there and have their images.

    Args:
        wait: seconds.

    Raises:
        FsslError: not all have come in time; the message names the missing ones.
    """
    welcome = {"settings": settings.as_dict(), "data": digest(data)}
    deadline = time.monotonic() + wait
    joined: dict[int, float] = {}  # when
    ready: set[int] = set()
    said: set[str] = set()  # lines: a client may join and leave for ever
    while len(ready) < settings.clients:
        if time.monotonic() > deadline:
            missing = ", ".join(str(client) for client in range(settings.clients) if client not in ready)
            raise FsslError(
                f"{len(ready)} of {settings.clients} clients were ready within {wait:g} seconds; missing: {missing}. "
                f"Start them with `fssl join-split ADDRESS`, or allow more time with --wait."
            )
        for client in set(peers.members) - ready:
            if time.monotonic() > joined[client] + peers.deadline:
                peers.lose(client, f"it joined and was not ready within {peers.deadline:g} seconds", tell=True)
        arrived = peers.next(list(peers.members))
        ready &= peers.members.keys()
        if arrived is None:
            continue
        client = arrived.client
        if client is None:
            welcomed = _examine(peers, arrived, settings.clients, welcome)
            if welcomed is not None:
                joined[welcomed] = time.monotonic()
                ready.discard(welcomed)
        elif arrived.message.kind == "ready" and client not in ready:
            ready.add(client)
            line = f"client {client} is ready ({len(ready)} of {settings.clients})."
            if line not in said:
                said.add(line)
                say(line)
        else:
            peers.lose(client, f"it sent {arrived.message.kind[:100]!r} instead of 'ready'", tell=True)
            ready.discard(client)
    peers.training = True


def _examine(peers: Peers, arrived: Arrived, clients: int, welcome: dict[str, Any]) -> int | None:
    """Welcome the sender of a first message, or say why not; returns its number."""
    message, owner = arrived.message, arrived.owner
    theirs, ours, number = message.fields.get("versions"), versions(), message.fields.get("client")
    free = [client for client in range(clients) if client not in peers.members]
    if message.kind != "hello":
        reason = f"its first message is {message.kind[:100]!r} instead of 'hello'"
    elif theirs != ours:
        reason = f"it has {json.dumps(theirs)[:200]}, the server has {json.dumps(ours)}; install the same version"
    elif number is not None and (type(number) is not int or not 0 <= number < clients):
        reason = f"there is no client {str(number)[:100]}: they are numbered from 0 to {clients - 1}"
    elif owner is not None and (owner >= clients or number not in (None, owner)):
        reason = f"its key is that of client {owner}, not of client {number}: there are {clients}, from 0"
    elif owner is None and (not free or number not in (None, *free)):
        reason = f"client {number} is there already" if free else f"all {clients} clients are there already"
    else:
        if owner is None:
            client = free[0] if number is None else number
        else:
            client = owner
            if client in peers.members:
                peers.lose(client, "it joined again", tell=True)
        if peers.welcome(client, arrived.identity, Message("welcome", {"client": client, **welcome})):
            return client
        return None
    peers.refuse(arrived.identity, reason)
    return None


def read_welcome(message: Message) -> tuple[int, SplitSettings, str]:
    """The client's number, the settings and the digest of the images that a welcome tells.

    Raises:
        FsslError: the server refused, with its reason.
        ProtocolError: it sent something else.
        SettingError: it sent settings that cannot be used.
    """
    match message:
        case Message("welcome", {"client": int(client), "settings": dict(values), "data": str(expected)}):
            check_split_settings(values)
            return int(client), SplitSettings(**values), expected  # JSON's true is an int, too
        case Message("refused" | "stopped", {"reason": str(reason)}):
            raise FsslError(f"The server refused this client: {printable(reason)}.")
    raise ProtocolError(f"The server sent {message.kind[:100]!r} instead of a welcome.")
