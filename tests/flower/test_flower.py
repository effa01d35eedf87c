"""A Flower app computes what the engine computes in one process, over Flower's own processes too."""

import contextlib
import os
import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

import psutil
import pytest
import torch

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.store import Run
from fssl_core.training.averaging import AveragingTrainer

pytest.importorskip("flwr", reason="needs Flower: pip install 'fssl-core[flower]'")

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fssl_core.flower import client, server
from fssl_core.flower.agreement import run_settings

SMALL = {"clients": 2, "rounds": 2, "probe-every": 0, "probe-epochs": 0, "wait": 0.1}


@pytest.fixture(autouse=True)
def task(monkeypatch, tmp_path):
    """What Flower knows of a process that runs an app, and a folder for the results."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))


def context(config, **node) -> Context:
    return Context(run_id=1, node_id=0, node_config=node, state=RecordDict(), run_config=config)


class Nodes:
    """Flower's grid with every node in this process. Client k is node 100 + k.

    Args:
        nodes: their contexts.
        silent: of each client that falls silent, from which round.
    """

    def __init__(self, nodes: dict[int, Context], silent: dict[int, int] | None = None) -> None:
        self.nodes, self.silent = nodes, silent or {}
        self.sent: list[tuple[int, Message]] = []  # by client, its answers in training

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout):
        return [reply for message in messages if (reply := self.answer(message))]

    def answer(self, message):
        message.metadata.__dict__["_message_id"] = "1"
        node = message.metadata.dst_node_id
        training = message.metadata.message_type == MessageType.TRAIN
        if training and message.content["config"]["server-round"] >= self.silent.get(node - 100, 99):
            return None
        try:
            reply = client.app(message, self.nodes[node])
        except Exception as error:  # as Flower's process of a client does it
            return Message(Error(2, str(error)), reply_to=message)
        if training:
            self.sent.append((node - 100, reply))
        return reply


def nodes(config, **options) -> Nodes:
    return Nodes({100 + k: context(config, **{"partition-id": k}) for k in range(config["clients"])}, **options)


def served(config, grid) -> Run:
    server.main(grid, context(config))
    return stored(config, "1")


def stored(config, run_id) -> Run:
    run = Run(run_settings(config))
    run.folder = run.folder.parent / "flower" / run_id
    return run


def assert_same_as_in_one_process(run: Run) -> None:
    trainer = AveragingTrainer(run.settings, run.settings.load_data())
    trainer.train(lambda *_, **__: None)
    for name, table in trainer.tables().items():
        assert run.table(name).equals(table), name
    for name, tensors in trainer.tensors().items():
        ours = run.tensors(name)
        assert ours.keys() == tensors.keys()
        assert all(torch.equal(ours[key], value) for key, value in tensors.items())
    assert len(trainer.models) == run.settings.rounds + 1  # so the last global model is among them


@pytest.mark.parametrize(
    "values",
    [
        {"method": "L-DAWA"},
        {"method": "FedAvg", "clients": 3, "clients-per-round": 2, "rounds": 3, "schedule": "cosine"},
        {"method": "FedEMA", "objective.name": "byol", "keep-velocity": True},
        {"method": "L-DAWA_FedU", "objective.name": "moco-v2"},
    ],
    ids=lambda values: "-".join(map(str, values.values())),
)
def test_tables_and_models_are_those_of_one_process_to_the_bit(values):
    config = SMALL | values
    assert_same_as_in_one_process(served(config, nodes(config)))


def test_settings_come_from_the_run_configuration_and_bad_ones_are_refused():
    settings = run_settings(
        SMALL | {"ssl-method": "Barlow Twins", "local-epochs": 3, "objective.redundancy_weight": 0.5}
    )
    assert (settings.method, settings.local_epochs) == ("L-DAWA", 3)
    assert (settings.objective.name, settings.objective.redundancy_weight) == ("barlow-twins", 0.5)
    with pytest.raises(SettingError, match=r"local_epoch=3 cannot be used: expected one of the settings"):
        run_settings({"local-epoch": 3})
    with pytest.raises(SettingError, match=r"client_update='euc' cannot be used: expected another rule"):
        run_settings({"method": "EUC"})
    with pytest.raises(SettingError, match=r"objective.name='fedca' cannot be used: expected an objective that"):
        run_settings({"objective.name": "fedca"})


def test_a_client_with_other_settings_is_refused_and_the_difference_named():
    grid = nodes(SMALL)
    grid.nodes[101] = context(SMALL | {"learning-rate": 0.5, "objective.temperature": 0.2}, **{"partition-id": 1})
    expected = (
        r"Client 1 has other terms: learning_rate is 0\.5 here and 0\.03 at the server; "
        r"objective\.temperature is 0\.2 here and \S+ at the server\. Give"
    )
    with pytest.raises(FsslError, match=expected):
        served(SMALL, grid)


def test_a_client_with_other_images_is_refused_unless_they_are_its_own(monkeypatch):
    grid, message = nodes(SMALL), []
    grid.answer = lambda query: message.append(query)
    with pytest.raises(FsslError, match=r"No answer from client 0, 1 within 0\.1 seconds"):
        served(SMALL, grid)
    message[0].metadata.__dict__["_message_id"] = "1"
    monkeypatch.setitem(message[0].content["config"], "terms", '{"training images": "others"}')
    with pytest.raises(FsslError, match=r"training images is '[0-9a-f]{16}' here and 'others' at the server"):
        client.app(message[0], context(SMALL, **{"partition-id": 1}))
    with pytest.raises(FsslError) as refused:
        client.app(message[0], context(SMALL, **{"partition-id": 1, "own-images": True}))
    assert "training images" not in str(refused.value)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (None, r"partition-id=None cannot be used: expected a number from 0 to 1, another for each client"),
        (2, r"partition-id=2 cannot be used"),
        (0, r"Two SuperNodes have partition-id=0"),
    ],
)
def test_every_client_needs_a_number_of_its_own(number, message):
    grid = nodes(SMALL)
    grid.nodes[101] = context(SMALL, **{} if number is None else {"partition-id": number})
    with pytest.raises(FsslError, match=message):
        served(SMALL, grid)


def test_too_few_clients_in_time_is_an_error():
    grid = nodes(SMALL)
    del grid.nodes[101]
    with pytest.raises(FsslError, match=r"1 of 2 SuperNodes were there within 0\.1 seconds\. Start the others"):
        served(SMALL, grid)


def test_when_a_client_is_lost_the_rounds_go_on_with_the_others(capsys):
    config = SMALL | {"method": "FedAvg", "rounds": 3}
    grid = nodes(config, silent={1: 2})
    run = served(config, grid)
    assert [number for number, _ in grid.sent] == [0, 1, 0, 0]
    assert "client 1 is lost in round 2: it is gone" in capsys.readouterr().err
    assert run.provenance["lost_clients"] == {"1": 2}
    last = grid.sent[-1][1].content["arrays"].to_torch_state_dict()  # the average of one model is that model
    assert all(torch.equal(models[-1], last[name]) for name, models in run.tensors("models").items())
    with pytest.raises(FsslError, match="No client answered in round 2; the training cannot go on"):
        served(config, nodes(config, silent={0: 2, 1: 2}))


def test_an_error_of_a_client_ends_the_run_with_its_message():
    config = SMALL | {"learning-rate": 1e30}
    with pytest.raises(FsslError, match=r"Client 0 failed in round 1: the loss is .* Lower learning_rate=1e\+30"):
        served(config, nodes(config))


def test_a_client_with_its_own_images_trains_on_all_of_them_and_counts_for_as_many():
    config = SMALL | {"method": "FedAvg", "rounds": 1}
    grid = nodes(config)
    grid.nodes[101].node_config["own-images"] = True
    run = served(config, grid)
    (_, first), (_, second) = grid.sent
    counts = [reply.content["metrics"]["images"] for reply in (first, second)]
    share = run.settings.divide(run.settings.load_data())[0]
    assert counts == [len(share), 160]
    models = [reply.content["arrays"].to_torch_state_dict() for reply in (first, second)]
    for name, values in run.tensors("models").items():
        expected = (counts[0] * models[0][name] + counts[1] * models[1][name]) / sum(counts)
        torch.testing.assert_close(values[-1], expected)


# ---------------------------------------------------------------- Flower's own processes


@contextlib.contextmanager
def process(command, *arguments, **options):
    """A command of Flower, and an end to it and all that it started."""
    with subprocess.Popen([shutil.which(command), *arguments], start_new_session=True, **options) as started:
        try:
            yield started
        finally:
            children = psutil.Process(started.pid).children(recursive=True) if started.poll() is None else []
            for one in (*children, started):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@pytest.mark.timeout(1200)  # a busy machine; half a minute on an idle one
def test_a_server_and_two_clients_on_the_loopback(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1")  # seconds
    config = SMALL | {"wait": 600, "keep-velocity": True}  # so that clients have something to remember
    app = tmp_path / "app"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "flower", app)
    with (app / "pyproject.toml").open("a") as file:
        file.write("probe-every = 0\nprobe-epochs = 0\nkeep-velocity = true\n")
    link, *ports = free_ports(3)
    address = f"127.0.0.1:{link}"
    (tmp_path / "flower-home").mkdir()
    (tmp_path / "flower-home" / "config.toml").write_text(f'[superlink.here]\naddress = "{address}"\ninsecure = true\n')
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))
        silent = {"stdout": log, "stderr": log}
        options = ("--insecure", "--port", str(link), "--disable-runtime-dependency-installation")
        stack.enter_context(process("flower-superlink", *options, **silent))
        for number, port in enumerate(ports):
            options = ("--insecure", "--superlink", address, "--port", str(port))
            node = ("--node-config", f"partition-id={number}")
            stack.enter_context(process("flower-supernode", *options, *node, **silent))
        while not listening(link):
            time.sleep(0.1)
        arguments = ("run", str(app), "here", "--stream")
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        out, _ = stack.enter_context(process("flwr", *arguments, **piped)).communicate(timeout=900)
    runs = list((tmp_path / "flower").iterdir())
    assert len(runs) == 1, out
    assert_same_as_in_one_process(stored(config, runs[0].name))


def listening(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
