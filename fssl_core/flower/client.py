"""The ClientApp: one client's local training, as :meth:`AveragingTrainer.train_client` does it.

The SuperNode's ``--node-config`` says which client it is:

``partition-id``
    its number, from 0: whose share of the images it takes, and whose random numbers
``own-images``
    true: it trains on all images of its own data folder, whatever ``partition`` says, and normalises them by their own
    mean and deviation. Otherwise each process loads the whole data set: a simulation of a device that has its own
    images.
"""

import io
import json
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import FsslError, SettingError
from fssl_core.flower.agreement import run_settings, terms
from fssl_core.settings import differences
from fssl_core.training.averaging import AveragingTrainer

KEPT = ("client_models", "targets", "velocities")  # matrices with a row for each client

app = ClientApp()


@app.query()
def join(message: Message, context: Context) -> Message:
    """Answer the server's terms with this client's number and the number of its images.

    Raises:
        FsslError: the terms are others here; the message names them.
        SettingError: ``partition-id`` is missing or no client's number.
    """
    client, settings = _number(context), run_settings(context.run_config)
    there = json.loads(message.content["config"]["terms"])
    data, own_images = settings.load_data(), context.node_config.get("own-images")
    here = terms(settings, data)
    if own_images:
        here["training images"] = there.get("training images")
    if found := differences(there, here):
        raise FsslError(
            f"Client {client} has other terms than the server (there): {found}. Give both the same package and images."
        )
    images = len(data.train) if own_images else len(settings.divide(data)[client])
    return Message(RecordDict({"metrics": MetricRecord({"client": client, "images": images})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the global model that the server sent; answer with the model, images, losses and figures."""
    keep_freed_memory()
    client = _number(context)
    trainer = _trainer(context, client)
    trainer.finished = message.content["config"]["server-round"] - 1
    trainer.shared.load_state_dict(message.content["arrays"].to_torch_state_dict())
    if "kept" in context.state:
        _take_up(trainer, client, context.state["kept"]["state"])
    with repeatable_kernels():
        row = trainer.train_client(0, client)
    context.state["kept"] = ConfigRecord({"state": _put_down(trainer, client)})
    arrays, metrics = ArrayRecord(trainer.trained.state_dict(0)), {"images": int(trainer.images[client])} | row
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)


def _number(context: Context) -> int:
    client, clients = context.node_config.get("partition-id"), run_settings(context.run_config).clients
    if type(client) is not int or not 0 <= client < clients:
        expected = f"a number from 0 to {clients - 1}, another for each client, in --node-config"
        raise SettingError("partition-id", client, expected)
    return client


def _trainer(context: Context, client: int) -> AveragingTrainer:
    # Room for the one model that is sent; the rule is the server's.
    alone = {"clients_per_round": 1, "aggregation": "fedavg", "assumed_faulty": 0}
    settings = run_settings(context.run_config).changed(**alone)
    own_images = context.node_config.get("own-images")
    if own_images:
        settings = settings.changed(partition="iid")  # which any images allow
    trainer = AveragingTrainer(settings, settings.load_data(default_device()))
    if own_images:
        trainer.parts[client] = torch.arange(len(trainer.data.train))
        trainer.images[client] = len(trainer.data.train)
    return trainer


def _put_down(trainer: AveragingTrainer, client: int) -> bytes:
    """What the client has to remember until its next round."""
    state: dict[str, Any] = {"memory": trainer.memory[client]}
    for name in KEPT:
        if (matrix := getattr(trainer, name)) is not None:
            state[name] = matrix.state_dict(client)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _take_up(trainer: AveragingTrainer, client: int, content: bytes) -> None:
    """The inverse of :func:`_put_down`."""
    state = torch.load(io.BytesIO(content), map_location=trainer.device, weights_only=True)
    trainer.memory[client] = state.pop("memory")
    for name, row in state.items():
        getattr(trainer, name).load_state_dict(row, client)
