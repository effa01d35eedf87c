"""Forked processes are like started ones, and die with who asked for them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, start_new_kernel

from fssl_core.experiments import warm
from fssl_core.experiments.refresh import normalised
from fssl_core.experiments.warm import VARIABLE, Forked, fork, start, warm_python
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(not warm.can_fork(), reason="processes are forked on Linux only")

SAY = """
import json, os, sys
from pathlib import Path
import {imports}
names = ("torch", "seaborn", "fssl_core.training.split")
print(json.dumps({{
    "arguments": sys.argv[1:], "main": __name__, "first": sys.path[0], "folder": os.getcwd(),
    "environment": dict(os.environ), "stdin": sys.stdin.read(), "session": os.getsid(0) == os.getpid(),
    "imported": [name for name in names if name in sys.modules], "files": os.listdir("/proc/self/fd"),
    "parent": [len(os.listdir(f"/proc/{{os.getppid()}}/task")), Path(f"/proc/{{os.getppid()}}/cmdline").read_text()],
}}))
sys.stderr.write("to stderr")
sys.exit(7)
"""


@pytest.fixture
def run(tmp_path):
    """Runs code as a module in a process of its own: how, the exit status, what it wrote."""

    def run(code, environment, *arguments, change=None):
        (tmp_path / "said.py").write_text(code)
        with open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
            process = start(["-m", "said", *arguments], environment, folder=tmp_path, stdout=out, stderr=err)
            status = process.wait(300)
        return type(process), status, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    return run


def test_a_forked_process_is_like_a_started_one(warm_environment, run, tmp_path):
    said = {}
    environment = {**warm_environment, "OTHER": "x"}
    for kind, given in {Forked: environment, subprocess.Popen: environment | {VARIABLE: "/nonexistent"}}.items():
        made, status, out, err = run(SAY.format(imports="argparse"), given, "a", "--b")
        assert (made, status, err) == (kind, 7, "to stderr")
        said[kind] = json.loads(out)
        assert said[kind].pop("environment") == given
    forked, started = said.values()
    assert forked.pop("imported") == ["torch", "seaborn", "fssl_core.training.split"]
    assert started.pop("imported") == []
    assert forked.pop("session")  # of its own: Ctrl-C is for the kernel's client
    started.pop("session")
    threads, server = forked.pop("parent")
    assert (threads, "fssl_core.experiments.warm" in server) == (1, True)  # nothing that a fork would lose
    started.pop("parent")
    assert forked == started
    assert (forked["main"], forked["arguments"], forked["folder"]) == ("__main__", ["a", "--b"], str(tmp_path))


def test_what_a_forked_process_writes_to_nowhere_is_not_seen(warm_environment, tmp_path, capfd):
    (tmp_path / "said.py").write_text("import sys; print(1, file=sys.stderr); print(2)")
    for nowhere in ({"stdout": subprocess.DEVNULL}, {"stderr": subprocess.DEVNULL}):
        process = start(["-m", "said"], warm_environment, folder=tmp_path, **nowhere)
        assert (type(process), process.wait(300)) == (Forked, 0)
    assert capfd.readouterr() == ("2\n", "1\n")


def test_an_error_and_a_signal_end_it_as_they_end_any_process(warm_environment, run):
    made, status, _, err = run("1 / 0", warm_environment)
    assert (made, status, err.splitlines()[-1]) == (Forked, 1, "ZeroDivisionError: division by zero")
    _, status, _, _ = run("import os; os.kill(os.getpid(), 15)", warm_environment)
    assert status == -signal.SIGTERM
    last = "import atexit, threading, time; atexit.register(print, 'last')\n"
    last += "threading.Timer(0.1, print, ['first']).start(); raise SystemExit('no more')"
    assert run(last, warm_environment) == (Forked, 1, "first\nlast\n", "no more\n")


def test_what_one_process_changes_another_does_not_see(warm_environment, run):
    code = "import torch, numpy as np; print(torch.rand(1).item(), np.random.rand(), getattr(torch, 'mark', 0))"
    one, other = (run(code + "; torch.mark = 1; torch.manual_seed(5)", warm_environment) for _ in range(2))
    assert one == other
    assert one[2].split()[2] == "0"


def test_who_has_imported_what_the_server_has_may_have_forked_processes_too(warm_environment, run):
    """scikit-learn sets variables of OpenMP when it is imported, and the tests import it here and there."""
    import sklearn  # noqa: F401

    environment = {**os.environ, VARIABLE: warm_environment[VARIABLE]}
    assert run("print(1)", environment)[:3] == (Forked, 0, "1\n")


def test_with_another_environment_at_the_start_a_process_is_started_anew(warm_environment, run):
    made, _, out, _ = run("import os; print(os.environ['MKL_X'])", {**warm_environment, "MKL_X": "1"})
    assert (made, out) == (subprocess.Popen, "1\n")


def test_where_processes_cannot_be_forked_they_are_started(monkeypatch, run):
    monkeypatch.setattr(warm.sys, "platform", "darwin")
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with warm_python(environment) as address:
        assert address == {}
        assert run("print(1)", environment | address)[:3] == (subprocess.Popen, 0, "1\n")


WAIT = """
import os, pathlib, time, torch
x = torch.ones(300, 300)
pathlib.Path("said").write_text(f"{os.getpid()} {torch.get_num_threads()} {(x @ x).sum().item()}\\n")
time.sleep(900)
"""
ASK = """
import os, time
from fssl_core.experiments.warm import start, warm_python
{server}
    process = start(["-m", "waiting"], environment)
    time.sleep(900)
"""
SERVERS = {
    "its own": "with warm_python(os.environ) as address:\n    environment = {**os.environ, **address}",
    "another's": "environment = os.environ\nif True:",
}


@pytest.mark.parametrize(("server", "threads"), [("its own", 2), ("another's", 1)])
def test_it_computes_and_dies_with_who_asked_for_it(warm_environment, tmp_path, server, threads):
    """On several threads, too: had the server started them, a fork would lose them and the process wait for ever."""
    (tmp_path / "waiting.py").write_text(WAIT)
    said = tmp_path / "said"
    command = [sys.executable, "-c", ASK.format(server=SERVERS[server])]
    environment = {**warm_environment, "OMP_NUM_THREADS": str(threads)}
    if server == "its own":
        del environment[VARIABLE]
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as asking:
        wait_until(lambda: (said.exists() and said.read_text().endswith("\n")) or asking.poll() is not None)
        asking.kill()
    pid, *computed = said.read_text().split()
    assert computed == [str(threads), "27000000.0"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


DRAW = """
import sys
import torch
from matplotlib import pyplot as plt
from fssl_core.data import load_dataset
from fssl_core.figures.style import use_style
data = load_dataset("scattered-digits")
with use_style():
    figure, axes = plt.subplots()
    axes.plot(torch.rand(50, generator=torch.Generator().manual_seed(3)) @ torch.ones(50, 1) + data.train.images.sum())
print("%matplotlib" in sys.modules, plt.get_backend())
figure
"""


def test_a_forked_kernel_gives_what_a_started_one_gives(warm_environment, monkeypatch, tmp_path):
    """To the bit, pictures too; and a kernel is stopped when its client stops it."""
    wide = "import pandas as pd; pd.DataFrame({f'a long name {n}': [n / 7] * 100 for n in range(30)})"
    cells = [new_code_cell(code) for code in (DRAW, wide, "import os; os.getppid()")]
    notebook = new_notebook(cells=cells)
    source = nbformat.from_dict({"cells": cells[:2]})
    outputs, parents = {}, {}
    for address in (warm_environment[VARIABLE], "/nonexistent"):
        monkeypatch.setenv(VARIABLE, address)
        done = NotebookClient(nbformat.from_dict(notebook), kernel_name="python3", startup_timeout=300).execute()
        parents[address] = int(done.cells.pop().outputs[0].data["text/plain"])
        outputs[address] = [cell.outputs for cell in normalised(source, done, tmp_path).cells]
    forked, started = outputs.values()
    assert forked == started
    assert any("image/png" in output.get("data", {}) for output in forked[0])
    assert parents.pop("/nonexistent") == os.getpid()
    assert parents.popitem()[1] != os.getpid()


def test_the_kernels_of_nbval_are_forked_and_stopped(warm_environment, tmp_path):
    with open(os.devnull, "w") as nowhere:
        options = {"stderr": nowhere, "cwd": str(tmp_path)}
        manager, client = start_new_kernel(300, CURRENT_ENV_KERNEL_NAME, **options)
    process = manager.provisioner.process
    assert isinstance(process, Forked)
    assert manager.is_alive()
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert process.wait(300) == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()


def test_the_server_outlives_those_who_leave_as_their_process_ends(warm_environment, run, tmp_path):
    (tmp_path / "said.py").write_text(WAIT)
    for _ in range(20):
        process = fork(["-m", "said"], warm_environment, folder=tmp_path)
        process.kill()
        process._connection.close()
    assert run("print(1)", warm_environment)[:3] == (Forked, 0, "1\n")
