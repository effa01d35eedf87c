"""The server process: wait for the clients, train with them, evaluate, store."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.manifest import finish
from fssl_core.experiments.provenance import Session
from fssl_core.experiments.store import Run
from fssl_core.files import write_json
from fssl_core.network.handshake import admit, check_split_settings
from fssl_core.network.keys import ServerKeys, check_keys
from fssl_core.network.messages import Message, due_bytes
from fssl_core.network.peers import Peers
from fssl_core.network.remote_clients import RemoteClients, layouts
from fssl_core.notices import say
from fssl_core.settings import check_range
from fssl_core.training.checkpoint import full_disk_explained
from fssl_core.training.split import SplitSettings, SplitTrainer


@dataclass(frozen=True)
class Served:
    """A finished training over the network.

    Args:
        trainer: with the models, the tables and the ledger.
        summary: as of the same run in one process.
        wire: bytes of the frames that were sent and received, see :meth:`fssl_core.network.peers.Peers.traffic`.
        norms: how far clients moved, see :meth:`fssl_core.network.remote_clients.RemoteClients.norms`.
        lost: of the clients that were lost, by number, why.
        provenance: versions, device, seconds and memory of the server process.
    """

    trainer: SplitTrainer
    summary: dict[str, Any]
    wire: pd.DataFrame
    norms: pd.DataFrame
    lost: dict[int, str]
    provenance: dict[str, Any]


def serve_split(
    settings: SplitSettings,
    *,
    bind: str = "tcp://127.0.0.1:5555",
    keys: ServerKeys | None = None,
    insecure: bool = False,
    wait: float = 300.0,
    timeout: float = 10.0,
    deadline: float = 120.0,
    progress: Callable[..., None] = lambda done, total, **figures: None,
) -> Served:
    """Train a federation whose clients are other processes (:func:`fssl_core.network.client.join_split`).

    On CPUs of one kind, with one thread each, the backend ``"loop"`` and a width that is a multiple of 8, the result is
    that of the same settings in one process, to the bit, as long as no client is lost. (Otherwise PyTorch computes the
    last few parameters of a client with other instructions when they lie alone in memory.) With bfloat16 all machines
    need the same kind of device, because kinds differ in what they keep in float32. There is no checkpoint.

    Args:
        settings: of the run; every client gets them from here.
        bind: where to listen; port ``*`` for any that is free.
        keys: of the server and its clients (:func:`fssl_core.network.keys.server_keys`). None: nothing is encrypted,
            and anybody can join.
        insecure: None are wanted where other machines reach this address either.
        wait: seconds until all clients must have joined.
        timeout: seconds of silence after which a client is lost.
        deadline: seconds after which a client is lost that has not answered, alive or not.
        progress: called as ``progress(done, total, **figures)`` after each epoch.

    Raises:
        SettingError: settings that clients over a network cannot have, or a place where nobody can listen.
        FsslError: not all clients came in time, or all were lost.
    """
    check_split_settings({"pretrained_client": settings.pretrained_client})
    check_range("wait", wait, 0)
    check_range("timeout", timeout, 0.1, 3600)
    check_range("deadline", deadline, 0.1)
    check_keys("--bind", bind, keys, insecure)
    if keys is not None and len(keys.clients) < settings.clients:
        raise SettingError("--keys", f"keys of {len(keys.clients)} clients", f"those of {settings.clients} clients")
    keep_freed_memory()
    session = Session(precision=settings.precision)
    data = settings.load_data(default_device())
    client = settings.build_model(data)[0]
    largest = max(due_bytes({name: tensor}) for due in layouts(settings, client, data) for name, tensor in due.items())
    with Peers(bind, timeout, deadline, keys, largest) as peers:
        clients = RemoteClients(settings, client, data, peers)
        trainer = SplitTrainer(settings, data, clients=clients)
        whom = f"{settings.clients} clients" if keys is None else f"{settings.clients} clients with their keys"
        say(f"waiting for {whom} at {peers.address}")
        if keys is None and not insecure:
            say("no keys: whoever uses this machine can join; between machines make some with `fssl keys`.")
        admit(peers, settings, data, wait)
        with repeatable_kernels():
            trainer.train(progress)
            peers.dismiss(Message("finished"))
            summary = trainer.summary()
    return Served(trainer, summary, peers.traffic(), clients.norms(), peers.lost, session.record())


def claim_folder(folder: Path, settings: SplitSettings, *, new: bool = False) -> None:
    """Make a folder for a run and leave its settings there, before hours are spent on it.

    Args:
        folder: where.
        settings: of the run.
        new: it must not be there, as nobody has named it: it is below ``FSSL_RUNS``.

    Raises:
        SettingError: it holds something, is there though it should not be, or cannot be written.
    """
    if (folder / "summary.json").exists():
        raise SettingError("--out", str(folder), "a folder without a finished run")
    if folder.is_dir() and {path.name for path in folder.iterdir()} - {"settings.json"}:  # a failed one leaves that
        raise SettingError("--out", str(folder), "a new or empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        write_json(folder / "settings.json", settings.as_dict())
    except OSError as error:
        setting = "FSSL_RUNS" if new else "--out"
        raise SettingError(setting, str(folder), f"a folder that can be written ({error.strerror})") from error


def store(served: Served, folder: Path) -> Path:
    """Leave tables, the best model, provenance and, last, the summary in a folder.

    Where it has no room any more, hours after it was claimed, they go to the folder for temporary files, and that is
    said.

    Returns:
        the folder that has them.

    Raises:
        FsslError: neither of the two takes them.
    """
    try:
        _store(served, folder)
    except (FsslError, OSError) as error:
        folder = Path(tempfile.mkdtemp(prefix="fssl-split-"))
        say(f"{error} What was trained now goes to {folder}.")
        claim_folder(folder, served.trainer.settings)
        _store(served, folder)
    return folder


def _store(served: Served, folder: Path) -> None:
    run = Run(served.trainer.settings)
    run.folder = folder  # apart from what one process computes and finds again
    with full_disk_explained(folder, "name another --out"):
        served.trainer.write(run)
        run.write_table("wire", served.wire)
        run.write_table("norms", served.norms)
        write_json(folder / "provenance.json", served.provenance | {"lost_clients": served.lost})
        finish(folder, served.summary)
