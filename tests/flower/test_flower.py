"""A Flower app computes what the engine computes in one process, over Flower's own processes too."""

import contextlib
import errno
import os
import pickle
import re
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from cryptography import x509

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.store import Run
from fssl_core.training.averaging import AveragingTrainer

pytest.importorskip("flwr", reason="needs Flower: pip install 'fssl-core[flower]'")

from flwr.app import Array, ArrayRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
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
        self.spoil: dict[tuple[int, int], Callable] = {}  # by client and round, what happens to its answer
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
            if training and (spoil := self.spoil.get((node - 100, message.content["config"]["server-round"]))):
                spoil(reply)
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
        {"aggregation": "krum", "assumed-faulty": 1, "clients": 5, "faulty-share": 0.2, "fault": "noise"},
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
    with pytest.raises(SettingError, match=r"local_epoch=3 cannot be used: expected local_epochs, or another"):
        run_settings({"local-epoch": 3})
    with pytest.raises(SettingError, match=r"client_update='euc' cannot be used: expected another rule"):
        run_settings({"method": "EUC"})
    with pytest.raises(SettingError, match=r"objective.name='fedca' cannot be used: expected an objective that"):
        run_settings({"objective.name": "fedca"})


def test_a_client_with_other_settings_is_refused_and_the_difference_named():
    grid = nodes(SMALL)
    grid.nodes[101] = context(SMALL | {"learning-rate": 0.5, "objective.temperature": 0.2}, **{"partition-id": 1})
    expected = (
        r"Client 1 has other terms than the server \(there\): learning_rate is 0\.03 there and 0\.5 here; "
        r"objective\.temperature is \S+ there and 0\.2 here\. Give"
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
    with pytest.raises(FsslError, match=r"training images is 'others' there and '[0-9a-f]{16}' here"):
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


@pytest.mark.parametrize(("name", "value"), [("wait", "soon"), ("timeout", "1h"), ("timeout", -1.0)])
def test_seconds_that_are_none_are_refused_before_anybody_is_waited_for(name, value):
    with pytest.raises(SettingError, match=f"{name}={value!r} cannot be used"):
        server.main(None, context(SMALL | {name: value}))


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


# ---------------------------------------------------------------- replies that cannot be used


def replaced(reply: Message, name: str, change) -> None:
    """One array of the model in a reply, changed."""
    state = {key: value.clone() for key, value in reply.content["arrays"].to_torch_state_dict().items()}
    state[name] = change(state[name])
    reply.content["arrays"] = ArrayRecord(state)


def first_name(reply: Message) -> str:
    return next(iter(reply.content["arrays"]))


def with_value(value: float):
    def spoil(reply: Message) -> None:
        def change(tensor):
            tensor.view(-1)[0] = value
            return tensor

        replaced(reply, first_name(reply), change)

    return spoil


def with_metric(name: str, value):
    def spoil(reply: Message) -> None:
        reply.content["metrics"][name] = value

    return spoil


def without(record: str, name: str | None = None):
    def spoil(reply: Message) -> None:
        if name is None:
            del reply.content[record]
        else:
            del reply.content[record][name or first_name(reply)]

    return spoil


def as_bytes(data: bytes):
    def spoil(reply: Message) -> None:
        array = reply.content["arrays"][first_name(reply)]
        reply.content["arrays"][first_name(reply)] = Array(array.dtype, array.shape, array.stype, data)

    return spoil


def metrics_as_model(reply: Message) -> None:
    reply.content["arrays"] = MetricRecord(dict.fromkeys(reply.content["arrays"], 1.0))


BAD_REPLIES = {
    "nan": (with_value(float("nan")), "values in '.*' that are not finite"),
    "inf": (with_value(float("-inf")), "values in '.*' that are not finite"),
    "huge": (with_value(1e30), "not finite or beyond"),
    "shape": (lambda r: replaced(r, first_name(r), lambda value: value[None]), r"is torch.float32 \[1, .*\] where"),
    "smaller": (lambda r: replaced(r, first_name(r), lambda value: value[:1]), r"is torch.float32 \[1, .*\] where"),
    "type": (lambda r: replaced(r, first_name(r), lambda value: value.int()), r"is torch.int32 .* where torch.float32"),
    "larger": (lambda r: replaced(r, first_name(r), lambda value: value.repeat(99, 99, 1, 1)), "bytes where at most"),
    "missing": (without("arrays", ""), "is missing"),
    "extra": (lambda r: r.content["arrays"].update(extra=Array(np.ones(1))), "'extra' is not part of the model"),
    "no model": (without("arrays"), "its arrays are missing"),
    "no figures": (without("metrics"), "its metrics are missing"),
    "metrics as model": (metrics_as_model, "its arrays are missing"),
    "pickle": (as_bytes(pickle.dumps([1, 2])), "its model cannot be read"),
    "object array": (as_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'shape': (1,)}"), "cannot be read"),
    "no bytes": (as_bytes(b""), "its model cannot be read"),
    "images 0": (with_metric("images", 0), "it counts 0 images and has joined with"),
    "images -5": (with_metric("images", -5), "it counts -5 images and has joined with"),
    "images 1e9": (with_metric("images", 10**9), "it counts 1000000000 images and has joined with"),
    "images nan": (with_metric("images", float("nan")), "it counts nan images"),
    "no images": (without("metrics", "images"), "it counts None images"),
    "loss nan": (with_metric("loss", float("nan")), "its figure 'loss' is 'nan' where a number of at most"),
    "loss 1e300": (with_metric("last_epoch_loss", 1e300), "its figure 'last_epoch_loss' is '1e.300' where a number of"),
    "probe": (with_metric("linear_probe_accuracy", 1.0), "its figures are not those of a round"),
    "test": (with_metric("test_accuracy", 1.0), "its figures are not those of a round"),
    "setting": (with_metric("rounds", 9.0), "its figures are not those of a round"),
    "loss list": (with_metric("loss", [1.0, 2.0]), "its figure 'loss' is"),
    "no loss": (without("metrics", "last_epoch_loss"), "its figures are not those of a round"),
    "epoch": (with_metric("epoch", 7.0), "its figures are not those of a round"),
    "best epoch": (with_metric("best_epoch", 999.0), "its figures are not those of a round"),
    "images without end": (with_metric("images", [7] * 10**5), "it counts .7, 7, 7"),
    "figure": (with_metric("\x1b]0;owned\x07\nfssl: fine", 1.0), "its figure"),
}  # fmt: skip


def test_what_was_trained_is_kept_where_the_folder_of_runs_is_full(monkeypatch, capsys, tmp_path):
    write = AveragingTrainer.write

    def full(self, run):
        if "fssl-flower-" not in str(run.folder):
            raise OSError(errno.ENOSPC, "No space left on device", str(run.folder))
        write(self, run)

    monkeypatch.setattr(AveragingTrainer, "write", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = SMALL | {"method": "FedAvg", "rounds": 1}
    server.main(nodes(config), context(config))
    (folder,) = tmp_path.glob("fssl-flower-*")
    run = stored(config, "1")
    run.folder = folder
    assert_same_as_in_one_process(run)
    assert "No space left for" in (said := capsys.readouterr().err)
    assert f"What was trained now goes to {folder}" in said


@pytest.mark.parametrize(("spoil", "reason"), BAD_REPLIES.values(), ids=BAD_REPLIES.keys())
def test_a_reply_that_cannot_be_used_is_left_out_of_its_round(spoil, reason, capsys):
    """The oracle: client 0 alone makes the first round, whose average is then its model."""
    config = SMALL | {"method": "FedAvg", "rounds": 2}
    grid = nodes(config)
    grid.spoil = {(1, 1): spoil}
    run = served(config, grid)
    assert [number for number, _ in grid.sent] == [0, 1, 0, 1]  # and client 1 is asked again
    assert run.provenance["refused_replies"] == {"1": [1]}
    assert run.provenance["lost_clients"] == {}
    said = capsys.readouterr().err
    assert re.search(f"The reply of client 1 in round 1 cannot be used: .*{reason}.*The round goes on without it", said)
    assert all(character.isprintable() or character in "\r\n" for character in said)
    assert max(map(len, said.splitlines())) < 1000
    models, first = run.tensors("models"), grid.sent[0][1].content["arrays"].to_torch_state_dict()
    assert all(torch.equal(models[name][1], value) for name, value in first.items())
    assert models[next(iter(first))].isfinite().all()
    assert run.table("metrics")["loss"][0] == pytest.approx(grid.sent[0][1].content["metrics"]["loss"])
    table = run.table("traffic").set_index(["epoch", "client"])["parameters_up"]
    assert table[1, 1] == 0 < table[1, 0] == table[2, 1]


def test_one_bad_reply_among_many_changes_nothing_for_the_others():
    """Three clients, of which one is spoiled in every round: the models are those of the two others."""
    config = SMALL | {"method": "FedAvg", "rounds": 1, "clients": 3}
    grid = nodes(config)
    grid.spoil = {(2, 1): with_value(float("nan"))}
    run = served(config, grid)
    counts = [reply.content["metrics"]["images"] for _, reply in grid.sent]
    models = [reply.content["arrays"].to_torch_state_dict() for _, reply in grid.sent]
    for name, values in run.tensors("models").items():
        expected = (counts[0] * models[0][name] + counts[1] * models[1][name]) / (counts[0] + counts[1])
        torch.testing.assert_close(values[-1], expected)


def test_an_error_of_one_client_leaves_it_out_of_the_round(capsys):
    config = SMALL | {"method": "FedAvg", "rounds": 2}
    grid = nodes(config)
    grid.spoil = {(0, 2): lambda reply: 1 / 0}
    run = served(config, grid)
    assert run.provenance["refused_replies"] == {"0": [2]}
    assert "Client 0 failed in round 2: division by zero The round goes on without it" in capsys.readouterr().err
    assert len(run.table("metrics")) == 2


def test_where_no_reply_can_be_used_the_run_ends_and_says_why():
    config = SMALL | {"method": "FedAvg", "rounds": 2}
    grid = nodes(config)
    grid.spoil = {(client, 2): with_value(float("nan")) for client in (0, 1)}
    with pytest.raises(FsslError, match=r"No client answered in round 2; .* of client 0 .* of client 1"):
        served(config, grid)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"client": 7, "images": 3}, "its number is 7 where one from 0 to 1 is due"),
        ({"client": -1, "images": 3}, "its number is -1 where"),
        ({"client": 1.0, "images": 3}, r"its number is 1\.0 where"),
        ({"client": 1, "images": 0}, "it has 0 images where a number from 1"),
        ({"client": 1, "images": 10**15}, "it has 1000000000000000 images where"),
        ({"client": 1}, "it has None images where"),
        (None, "its metrics are missing"),
    ],
)
def test_who_joins_with_something_else_than_a_number_and_its_images_is_refused(metrics, reason):
    grid = nodes(SMALL)
    honest = grid.answer

    def answer(message):
        reply = honest(message)
        if message.metadata.dst_node_id == 101:
            del reply.content["metrics"]
            if metrics is not None:
                reply.content["metrics"] = MetricRecord(metrics)
        return reply

    grid.answer = answer
    with pytest.raises(FsslError, match=f"SuperNode 101 cannot take part: {reason}"):
        served(SMALL, grid)


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


EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@contextlib.contextmanager
def superlink(folder: Path, keys: Path):
    """A SuperLink on the loopback, and the options of a SuperNode for it. ``here`` is its name for ``flwr``."""
    (link,) = free_ports(1)
    address, home = f"127.0.0.1:{link}", folder / "flower-home"
    options = ("--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt")
    options += ("--ssl-keyfile", keys / "server.key", "--enable-supernode-auth")
    home.mkdir()
    connection = f'address = "{address}"\nroot-certificates = "{keys / "ca.crt"}"'
    (home / "config.toml").write_text(f"[superlink.here]\n{connection}\n")
    log = (folder / "log").open("w")
    options += ("--port", str(link), "--disable-runtime-dependency-installation")
    with log, process("flower-superlink", *map(str, options), stdout=log, stderr=log):
        while not listening(link):
            time.sleep(0.1)
        yield ("--superlink", address, "--root-certificates", str(keys / "ca.crt"))


@contextlib.contextmanager
def supernode(folder: Path, number: int, *options: str):
    (port,) = free_ports(1)
    arguments = (*options, "--port", str(port), "--node-config", f"partition-id={number}")
    with (folder / f"log-{number}").open("w") as log, process("flower-supernode", *arguments, stdout=log, stderr=log):
        yield folder / f"log-{number}"


def flwr(*arguments: str) -> str:
    """What a command of Flower printed."""
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with process("flwr", *arguments, **piped) as started:
        return started.communicate(timeout=900)[0]


@pytest.fixture
def flower(tmp_path, monkeypatch) -> Path:
    """A folder for Flower's own files and an app that remembers something between rounds."""
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1")  # seconds
    shutil.copytree(EXAMPLE, tmp_path / "app")
    with (tmp_path / "app" / "pyproject.toml").open("a") as file:
        file.write("probe-every = 0\nprobe-epochs = 0\nkeep-velocity = true\n")
    return tmp_path


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    """The folder that the example's script makes."""
    folder = tmp_path_factory.mktemp("keys") / "keys"
    subprocess.run([sys.executable, str(EXAMPLE / "keys.py"), str(folder), "--clients", "2"], check=True)
    return folder


@pytest.mark.timeout(1200)  # a busy machine; half a minute on an idle one
def test_a_server_and_two_clients_on_the_loopback(flower, keys):
    config = SMALL | {"wait": 600, "keep-velocity": True}  # so that clients have something to remember
    with contextlib.ExitStack() as stack:
        options = stack.enter_context(superlink(flower, keys))
        for number in range(2):
            assert "registered successfully" in flwr("supernode", "register", f"{keys}/client-{number}.pub", "here")
            own = ("--auth-supernode-private-key", f"{keys}/client-{number}")
            stack.enter_context(supernode(flower, number, *options, *own))
        out = flwr("run", str(flower / "app"), "here", "--stream")
    runs = list((flower / "flower").iterdir())
    assert len(runs) == 1, out
    assert_same_as_in_one_process(stored(config, runs[0].name))


@pytest.mark.timeout(1200)  # a busy machine; half a minute on an idle one
def test_a_supernode_without_a_registered_key_is_refused(flower, keys):
    strange = keys / "client-1"
    with superlink(flower, keys) as options:
        assert "registered successfully" in flwr("supernode", "register", f"{keys}/client-0.pub", "here")
        for number, own in enumerate(((), ("--auth-supernode-private-key", str(strange)))):
            with supernode(flower, number, *options, *own) as log:
                wait_for(lambda log=log: "Failed to initialize the connection to the SuperLink" in log.read_text())
        assert "online" not in flwr("supernode", "list", "here").lower()


def wait_for(condition: Callable, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_keys_of_the_example_are_for_their_owner_only_and_never_overwritten(keys):
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    again = subprocess.run([sys.executable, str(EXAMPLE / "keys.py"), str(keys), "--clients", "2"], capture_output=True)
    assert again.returncode != 0
    server = x509.load_pem_x509_certificate((keys / "server.crt").read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes()))


def listening(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
