"""The ServerApp: wait for the clients, train with them, evaluate, store.

Beside the settings a run's configuration has ``wait``, seconds until all clients must be there, and ``timeout``,
seconds after which a client is lost that has not answered in a round.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import FsslError
from fssl_core.experiments.manifest import finish
from fssl_core.experiments.provenance import Session
from fssl_core.experiments.store import Run
from fssl_core.files import write_json
from fssl_core.flower.agreement import SERVER_ONLY, run_settings, terms
from fssl_core.flower.replies import ReplyError, read_join
from fssl_core.flower.strategy import AveragingStrategy
from fssl_core.notices import notice, printable, say
from fssl_core.paths import runs_root
from fssl_core.settings import NonNegative, checked
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.checkpoint import full_disk_explained

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train a federation; what a run leaves goes to the folder ``flower/<run ID>`` beside the stored runs."""
    config, settings = context.run_config, run_settings(context.run_config)
    wait, timeout = (checked(name, config.get(name, default), NonNegative) for name, default in SERVER_ONLY.items())
    session = Session(precision=settings.precision)
    keep_freed_memory()
    trainer = AveragingTrainer(settings, settings.load_data(default_device()))
    nodes, images = admit(grid, terms(settings, trainer.data), settings.clients, wait)
    for client, count in images.items():
        if count != trainer.images[client]:
            notice(f"client {client} says that it has {count} images of its own, and counts for as many.")
            trainer.images[client] = count
    run = Run(settings)
    run.folder = runs_root() / "flower" / str(context.run_id)  # apart from what one process computes and finds again
    with full_disk_explained(run.folder):  # found out before the training, not after it
        write_json(run.folder / "settings.json", settings.as_dict())
    strategy = AveragingStrategy(trainer, nodes)
    with repeatable_kernels():
        first = ArrayRecord(trainer.shared.state_dict(0))
        strategy.start(grid, first, num_rounds=settings.rounds, timeout=timeout)
        summary = trainer.summary()
    provenance = session.record() | {"lost_clients": strategy.lost, "refused_replies": strategy.refused}
    notice(f"stored in {store(run, trainer, provenance, summary)}")


def store(run: Run, trainer: AveragingTrainer, provenance: dict[str, Any], summary: dict[str, Any]) -> Path:
    """Leave in the run's folder what it has; where that has no room any more, in the folder for temporary files.

    Returns:
        the folder that has it.

    Raises:
        FsslError, OSError: neither of the two takes it.
    """

    def write() -> None:
        with full_disk_explained(run.folder):
            write_json(run.folder / "settings.json", run.settings.as_dict())
            trainer.write(run)
            write_json(run.folder / "provenance.json", provenance)
            finish(run.folder, summary)

    try:
        write()
    except (FsslError, OSError) as error:
        run.folder = Path(tempfile.mkdtemp(prefix="fssl-flower-"))
        say(f"{error} What was trained now goes to {run.folder}.")
        write()
    return run.folder


def admit(grid: Grid, shared: dict[str, Any], clients: int, wait: float) -> tuple[dict[int, int], dict[int, int]]:
    """Wait for the SuperNodes, and let each agree to the terms.

    Args:
        shared: :func:`fssl_core.flower.agreement.terms` of the server.
        clients: to wait for.
        wait: seconds.

    Returns:
        by client, its node and the number of its images.

    Raises:
        FsslError: too few came, one has other terms or none that can be read, or two have the same number.
    """
    deadline = time.monotonic() + wait
    while len(ids := list(grid.get_node_ids())) < clients:
        if time.monotonic() > deadline:
            raise FsslError(
                f"{len(ids)} of {clients} SuperNodes were there within {wait:g} seconds. Start the others, or allow "
                "more time with wait in the run's configuration."
            )
        time.sleep(0.5)
    content = RecordDict({"config": ConfigRecord({"terms": json.dumps(shared)})})
    nodes: dict[int, int] = {}
    images: dict[int, int] = {}
    for reply in grid.send_and_receive([Message(content, node, MessageType.QUERY) for node in ids], timeout=wait):
        if reply.has_error():
            raise FsslError(f"A client cannot take part: {printable(reply.error.reason)}")
        try:
            client, count = read_join(reply.content, clients)
        except ReplyError as error:
            raise FsslError(f"SuperNode {reply.metadata.src_node_id} cannot take part: {error}.") from error
        if client in nodes:
            raise FsslError(f"Two SuperNodes have partition-id={client}: give each client a number of its own.")
        nodes[client], images[client] = reply.metadata.src_node_id, count
    if len(nodes) < clients:
        missing = ", ".join(str(client) for client in range(clients) if client not in nodes)
        raise FsslError(f"No answer from client {missing} within {wait:g} seconds.")
    return nodes, images
