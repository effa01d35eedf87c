"""Keys for CurveZMQ: who may join as which client, and who the server is.

CurveZMQ (https://rfc.zeromq.org/spec/26) encrypts every connection with keys of the moment, and proves on both sides
who holds which long-term key. ``fssl keys FOLDER --clients N`` makes a file for each machine:

=================  =====================================================
``server.json``    the server's secret key, the public key of each client
``client-0.json``  a client's number and secret key, the server's public key
=================  =====================================================

Keys are 32 bytes, written in Z85 (40 characters). A file that others can read is refused, as OpenSSH does it.
"""

import json
import os
import stat
import tempfile
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import zmq

from fssl_core.errors import FsslError, SettingError
from fssl_core.notices import say
from fssl_core.settings import check_range

MOST_CLIENTS = 10_000
LARGEST_FILE = 1 << 20  # bytes


@dataclass(frozen=True)
class ServerKeys:
    """What the server needs: its secret key, which is never printed, and by number the clients' public keys."""

    secret: bytes = field(repr=False)
    clients: tuple[bytes, ...]

    def put_on(self, socket: zmq.Socket) -> None:
        """Let nobody connect with a socket that has no key; which keys may is for a ZAP handler to say."""
        socket.curve_server = True
        socket.curve_secretkey, socket.curve_publickey = self.secret, zmq.curve_public(self.secret)


@dataclass(frozen=True)
class ClientKeys:
    """What a client needs: its number, its secret key, which is never printed, and the server's public key."""

    client: int
    secret: bytes = field(repr=False)
    server: bytes

    def put_on(self, socket: zmq.Socket) -> None:
        """Let a socket connect with nobody but the server."""
        socket.curve_secretkey, socket.curve_publickey = self.secret, zmq.curve_public(self.secret)
        socket.curve_serverkey = self.server


def make_keys(folder: Path, clients: int) -> list[Path]:
    """New keys for a server and its clients, a file each, which only their owner can read.

    Args:
        folder: a new or empty one; there is either all or nothing in it afterwards.
        clients: their number.

    Returns:
        the files, the server's first.

    Raises:
        SettingError: the folder has something in it, or cannot be written; or a number that is none.
    """
    check_range("--clients", clients, 1, MOST_CLIENTS)
    server_public, server_secret = zmq.curve_keypair()
    pairs = [zmq.curve_keypair() for _ in range(clients)]
    contents: dict[str, dict[str, Any]] = {
        "server.json": {"secret": server_secret.decode(), "clients": [public.decode() for public, _ in pairs]}
    }
    for number, (_, secret) in enumerate(pairs):
        contents[f"client-{number}.json"] = {
            "client": number,
            "secret": secret.decode(),
            "server": server_public.decode(),
        }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as parent:
            temporary = Path(parent) / "keys"
            temporary.mkdir(mode=0o700)
            for name, content in contents.items():
                (temporary / name).touch(0o600)
                (temporary / name).write_text(json.dumps(content, indent=1) + "\n")
            temporary.rename(folder)  # which never replaces a folder that has something in it
    except OSError as error:
        expected = f"a new or empty folder that can be made ({error.strerror}); keys are never overwritten"
        raise SettingError("FOLDER", str(folder), expected) from error
    return [folder / name for name in contents]


def server_keys(path: Path) -> ServerKeys:
    """The keys in a ``server.json``.

    Raises:
        SettingError: it cannot be read, can be read by others, or is something else.
    """
    match _read(path):
        case {"secret": str(secret), "clients": list(clients)} if clients:
            return ServerKeys(_key(path, secret), tuple(_key(path, public) for public in clients))
    raise SettingError("--keys", str(path), "a server.json that `fssl keys` has made")


def client_keys(path: Path) -> ClientKeys:
    """The keys in a ``client-N.json``; errors as those of :func:`server_keys`."""
    match _read(path):
        case {"client": int(client), "secret": str(secret), "server": str(server)}:
            return ClientKeys(client, _key(path, secret), _key(path, server))
    raise SettingError("--keys", str(path), "a client-N.json that `fssl keys` has made")


def _read(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            mode, content = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(LARGEST_FILE)
    except OSError as error:
        raise SettingError("--keys", str(path), f"a file that `fssl keys` has made ({error.strerror})") from error
    if os.name == "posix" and mode & 0o077:
        raise SettingError("--keys", str(path), f"a file that nobody else can read: chmod 600 {path}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SettingError("--keys", str(path), "a file that `fssl keys` has made, in JSON") from error


def _key(path: Path, text: Any) -> bytes:
    try:
        key = text.encode("ascii")
        zmq.curve_public(key)  # only 40 characters of Z85 have one
    except (AttributeError, ValueError, zmq.ZMQError) as error:
        raise SettingError("--keys", str(path), "keys of 40 characters, as `fssl keys` makes them") from error
    return key


# ---------------------------------------------------------------- without keys


def is_local(address: str) -> bool:
    """Whether an address can be reached from this machine only (or is none, as ZeroMQ will say)."""
    scheme, found, rest = address.partition("://")
    if not found or scheme in ("ipc", "inproc"):
        return True
    host = rest.rpartition(";")[2].rpartition(":")[0].strip("[]")  # before a semicolon stands where from
    try:
        return scheme == "tcp" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


def check_keys(name: str, address: str, keys: ServerKeys | ClientKeys | None, insecure: bool) -> None:
    """Between machines no connection is made without keys, unless this was asked for by name.

    Of a port ZeroMQ takes the digits that it begins with, modulo 65,536: what is none is refused first.

    Args:
        name: of the setting that the address is.
        address: where to listen or to connect.
        keys: None for no encryption and no authentication.
        insecure: this was asked for.

    Raises:
        SettingError: keys are missing, or the port is.
        FsslError: both were asked for.
    """
    port = address.rpartition(":")[2]
    if address.startswith("tcp://") and port != "*" and not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise SettingError(name, address, "a port from 1 to 65535 at its end, as in tcp://127.0.0.1:5555")
    if keys is not None:
        if insecure:
            raise FsslError("--keys and --insecure exclude each other: leave one out.")
        return
    if is_local(address):
        return
    if not insecure:
        expected = "--keys FILE beside it (`fssl keys` makes them), or --insecure where anybody may join and listen"
        raise SettingError(name, address, expected)
    say(f"--insecure: nothing is encrypted, and whoever reaches {address} can take part and read the models.")
