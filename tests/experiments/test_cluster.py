"""Runs on Dask clusters on this machine: the same results as without one, whatever happens to a worker."""

import errno
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from fssl_core.errors import FsslError, SettingError
from fssl_core.experiments.notebooks import execute
from fssl_core.experiments.store import Run, run_all
from tests.experiments.toy_runs import Sum, Walk, contents, log
from tests.processes import PATIENCE, wait_until

pytest.importorskip("distributed", reason="needs the extra cluster")
from fssl_core.experiments.cluster import Cluster, parse_resources


def environment(folder, runs):
    """Variables of a worker: its own store, and the classes of these tests."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "FSSL_RUNS": str(runs),
        "TOY_FOLDER": str(folder),
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def scheduler(folder):
    """A scheduler and two workers that share a store, started as a user starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    worker += ["--resources", "GPU=1", "--local-directory", str(folder), "--nworkers", "2"]
    variables = environment(folder, folder / "shared")
    processes = [
        subprocess.Popen(one, env=variables, stderr=subprocess.DEVNULL, start_new_session=True)
        for one in (command, worker)
    ]
    wait_until(lambda: answers(address))
    yield address
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE)


def answers(address):
    host, port = address.removeprefix("tcp://").split(":")
    with socket.socket() as other:
        return other.connect_ex((host, int(port))) == 0


@pytest.fixture(autouse=True)
def on_the_cluster(scheduler, folder, monkeypatch):
    for name in ("log", "go", *(path.name for path in folder.glob("died-*"))):
        (folder / name).unlink(missing_ok=True)
    monkeypatch.setenv("FSSL_RUNS", str(folder / "shared"))
    monkeypatch.setenv("TOY_FOLDER", str(folder))
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", scheduler)


def computed_here(settings, folder, monkeypatch):
    """What the same runs leave without a cluster."""
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    monkeypatch.setenv("FSSL_RUNS", str(folder))
    frame = run_all(settings, progress=False)
    return frame, contents(folder)


def sweep(first):
    walks = [Walk(seed=first + seed) for seed in range(3)]
    return [*walks, Sum(walks=(walks[0], Walk(seed=first + 9))), Sum(walks=(Walk(seed=first + 9),))]


def test_results_are_those_without_a_cluster(folder, monkeypatch, tmp_path, capsys):
    frame = run_all(sweep(100))
    said = capsys.readouterr().err
    assert f"fssl: connecting to the cluster {os.environ['DASK_SCHEDULER_ADDRESS']}" in said
    assert "fssl: 5 runs computed in" in said
    assert os.getpid() not in set(log(folder)["process"])
    assert len(log(folder)) == 4 * 4  # nothing twice
    stored = contents(folder / "shared")
    expected, left = computed_here(sweep(100), tmp_path / "here", monkeypatch)
    assert frame.equals(expected)
    assert left.items() <= stored.items()


def test_an_error_of_a_gpu_ends_its_worker_and_no_run(folder):
    runs = [Walk(seed=30, faults=True), Walk(seed=31)]
    run_all(runs, progress=False)
    assert (folder / "died-30").exists()
    assert set(log(folder)["seed"]) == {30, 31}


@pytest.mark.parametrize("dies", ["step 2", "save 2"])
def test_a_run_goes_on_where_its_worker_was_killed(folder, monkeypatch, tmp_path, dies):
    runs = [Walk(seed=200 + len(dies), dies=dies), Walk(seed=201)]
    frame = run_all(runs, progress=False)
    steps = log(folder).query(f"seed == {runs[0].seed}")
    assert steps["process"].nunique() == 2
    assert steps["step"].tolist() == ([1, 2, 3, 4] if dies == "step 2" else [1, 3, 4])  # killed before it was noted
    expected, left = computed_here(runs, tmp_path / "here", monkeypatch)
    assert frame.equals(expected)
    assert left.items() <= contents(folder / "shared").items()


CHILD = """
from fssl_core.experiments.store import run_all
from tests.experiments.toy_runs import Walk
run_all([Walk(seed=seed, stops="step 2") for seed in (301, 300)])
"""


def test_two_notebooks_share_runs(folder):
    variables = environment(folder, folder / "shared")
    other = subprocess.Popen([sys.executable, "-c", CHILD], env=variables, stderr=subprocess.PIPE, text=True)
    runs = [Walk(seed=seed, stops="step 2") for seed in (300, 301, 302)]
    wait_until(lambda: len(log(folder)) == 4)
    threading.Timer(1.0, (folder / "go").touch).start()
    frame = run_all(runs, progress=False)
    _, errors = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0, errors
    assert "2 runs computed in" in errors
    assert frame["seed"].tolist() == [300, 301, 302]
    assert sorted(log(folder)["step"]) == sorted(3 * [1, 2, 3, 4])  # nothing twice


def test_what_nobody_wants_any_more_stops_and_goes_on_later(folder):
    code = CHILD.replace("(301, 300)", "(400, 401)")
    variables = environment(folder, folder / "shared")
    other = subprocess.Popen([sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(log(folder)) == 4)
    other.send_signal(signal.SIGINT)
    _, errors = other.communicate(timeout=PATIENCE)
    named = [
        f"interrupted; run again to continue (seed {seed} resumes from its last checkpoint" in errors
        for seed in (400, 401)
    ]
    assert any(named), errors  # whichever was heard of first
    run_all([Walk(seed=402)], progress=False)  # a worker is free again although nobody let the others go on
    (folder / "go").touch()
    run_all([Walk(seed=seed, stops="step 2") for seed in (400, 401)], progress=False)
    assert sorted(log(folder)["step"]) == sorted(3 * [1, 2, 3, 4])


def test_an_error_of_a_run_is_that_of_the_notebook(folder, capsys):
    bad = Walk(seed=500, wrong=True)
    with pytest.raises(SettingError, match=r"^wrong=True cannot be used: expected False\.$"):
        run_all([bad, Sum(walks=(bad,)), Walk(seed=501)])
    assert Run(Walk(seed=501)).finished
    assert "2 are left" in capsys.readouterr().err


def test_results_travel_where_the_store_is_not_shared(scheduler, folder, monkeypatch, tmp_path):
    """Both ways: what a run builds on goes to its worker, too."""
    from distributed import Client

    there = Walk(seed=600)
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "mine"))
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    run_all([there], progress=False)
    (folder / "log").unlink()
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", scheduler)
    with Client(scheduler, set_as_default=False) as client:  # nothing is sent to those that come later
        client.wait_for_workers(1)
    runs = [Sum(walks=(there, Walk(seed=601)))]
    frame = run_all(runs, progress=False)
    assert set(log(folder)["seed"]) == {601}
    expected, left = computed_here(runs, tmp_path / "here", monkeypatch)
    assert frame.equals(expected)
    assert contents(tmp_path / "mine") == left
    assert not list((tmp_path / "mine").glob(".*"))


@pytest.mark.parametrize("damage", ["model", "name", "settings"])
def test_what_arrives_damaged_is_not_taken(monkeypatch, tmp_path, damage):
    from fssl_core.experiments.transfer import content, put

    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "theirs"))
    run_all([Walk()], progress=False)
    files = content(Run(Walk()))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "mine"))
    if damage == "model":
        files["model.tensors"] = files["model.tensors"][:-1] + b"x"
    elif damage == "name":
        files["../evil.csv"] = b""
    wanted = Walk(seed=1) if damage == "settings" else Walk()
    with pytest.raises(FsslError, match=r"not what such a run writes|damaged|should hold the settings"):
        put(Run(wanted), files)
    assert not Run(wanted).finished
    assert not [path for path in (tmp_path / "mine").rglob("*") if path.is_file() and path.name != "lock"]


def test_what_does_not_fit_where_it_arrives_is_explained(monkeypatch, tmp_path):
    from fssl_core.experiments import transfer

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "theirs"))
    run_all([Walk()], progress=False)
    files = transfer.content(Run(Walk()))
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "mine"))
    monkeypatch.setattr(transfer, "move", full)
    with pytest.raises(FsslError, match=r"No space left for .*mine\. .* free some space, or set FSSL_RUNS"):
        transfer.put(Run(Walk()), files)
    assert not Run(Walk()).finished


@pytest.mark.parametrize("address", ["foo", "http://127.0.0.1:1", "tcp://127.0.0.1"])
def test_what_is_no_address_is_said_at_once(address):
    started = time.monotonic()
    with pytest.raises(FsslError, match=r"^No Dask scheduler answers at "):
        Cluster(address)
    assert time.monotonic() - started < 5


def test_an_address_where_nobody_answers_is_one_line(monkeypatch):
    monkeypatch.setattr("fssl_core.experiments.cluster.CONNECT_SECONDS", 1.0)
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    with pytest.raises(FsslError, match=r"^No Dask scheduler answers at tcp://127\.0\.0\.1:9 \(.*\)\. Start it"):
        run_all([Walk(seed=700)])


class WebServer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n")


def test_what_listens_and_is_no_scheduler_is_not_waited_for(monkeypatch):
    """Such as the dashboard's port: the client of a web server waited without end."""
    monkeypatch.setattr("fssl_core.experiments.cluster.CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(FsslError, match=f"^No Dask scheduler answers at {address} .*says nothing; is it the dash"):
            Cluster(address)


def test_what_answers_and_is_no_scheduler_is_one_line():
    with socketserver.TCPServer(("127.0.0.1", 0), WebServer) as server, ThreadPoolExecutor(1) as pool:
        address = f"tcp://127.0.0.1:{server.server_address[1]}"
        pool.submit(server.serve_forever)
        with pytest.raises(FsslError, match=f"^No Dask scheduler answers at {address}"):
            Cluster(address)
        server.shutdown()


def test_the_runs_of_all_notebooks_are_computed_before_the_first_is_executed(scheduler, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FSSL_FIGURES", str(tmp_path / "figures"))
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    asked_for = {"parameters": {"overrides": {"rounds": 1}}, "folder": tmp_path, "cluster": scheduler}
    assert execute(["ldawa/fig5"], **asked_for)["status"].tolist() == ["ok"]
    assert "DASK_SCHEDULER_ADDRESS" not in os.environ
    said = capsys.readouterr().err
    assert said.index("5 runs computed in") < said.index("ldawa/fig5")
    (executed,) = tmp_path.rglob("fig5_*.ipynb")
    text = executed.read_text()
    assert "runs, stored already" in text
    assert "computed in" not in text
    monkeypatch.setattr("fssl_core.experiments.asked.run_all", Mock(side_effect=RuntimeError("out of luck")))
    assert execute(["index"], folder=tmp_path, cluster=scheduler)["status"].tolist() == ["ok"]
    assert "fssl: RuntimeError: out of luck. The notebooks follow" in capsys.readouterr().err


def test_resources_are_read_as_dask_writes_them():
    assert parse_resources("GPU=1,MEMORY=64e9") == {"GPU": 1.0, "MEMORY": 64e9}
    assert parse_resources("") == {}
    with pytest.raises(SettingError, match="FSSL_RESOURCES='GPU' cannot be used: expected resources of a worker"):
        parse_resources("GPU")
