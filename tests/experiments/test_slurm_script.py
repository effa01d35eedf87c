"""The script for Slurm, with commands of that name that start its jobs on this machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.toy_runs import Walk, log
from tests.processes import PATIENCE, wait_until

pytest.importorskip("dask_jobqueue")
SCRIPT = Path(__file__).parents[2] / "examples" / "slurm" / "on_slurm.py"
SBATCH = """#!/bin/bash
cp "$1" {folder}/job.sh
setsid bash {folder}/job.sh > {folder}/job.log 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/bash
touch {folder}/cancelled
kill -- -"$1" 2>/dev/null
exit 0
"""
COMMAND = """
from fssl_core.experiments import run_all
from tests.experiments.toy_runs import Walk
print(run_all([Walk(seed=0), Walk(seed=1)])["key"].tolist())
"""


@pytest.fixture
def variables(tmp_path):
    """Of a machine with Slurm."""
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / "bin" / name).write_text(text.format(folder=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "FSSL_RUNS": str(tmp_path / "runs"),
        "TOY_FOLDER": str(tmp_path),
    }


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_script_lets_its_command_end_and_takes_its_jobs_away(variables, tmp_path, sent):
    """At Ctrl-C dask_jobqueue would end it with status 0, and kill the command."""
    waits = f"import time, pathlib; pathlib.Path({str(tmp_path / 'begun')!r}).touch(); time.sleep({PATIENCE})"
    command = [sys.executable, str(SCRIPT), "--jobs", "1", "--", sys.executable, "-c", waits]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True) as script:
        wait_until((tmp_path / "begun").exists)
        wait_until((tmp_path / "job.sh").exists)
        if sent == signal.SIGINT:
            os.killpg(script.pid, sent)  # as a terminal does
        else:
            script.send_signal(sent)
        _, said = script.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in said  # the command's
    assert script.returncode == 130
    assert (tmp_path / "cancelled").exists()


def test_jobs_of_slurm_compute_the_runs_of_a_command(variables, tmp_path):
    command = [sys.executable, str(SCRIPT), "--jobs", "1", "--sbatch=--partition=quick", "--", sys.executable, "-c"]
    done = subprocess.run([*command, COMMAND], env=variables, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([Walk(seed=0).key, Walk(seed=1).key])
    steps = log(tmp_path)
    assert len(steps) == 8
    assert steps["process"].nunique() == 1  # the job's
    script = (tmp_path / "job.sh").read_text()
    assert "#SBATCH --gpus=1\n" in script
    assert "#SBATCH --partition=quick\n" in script
    assert "--resources GPU=1" in script
    assert f"export FSSL_RUNS={tmp_path / 'runs'}" in script


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--jobs", "0"], "--jobs 0: expected at least 1"), ([], "there is no sbatch on this machine")],
)
def test_what_cannot_get_a_job_is_refused_at_once(tmp_path, options, message):
    command = [sys.executable, str(SCRIPT), *options, "--", "fssl", "list"]
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 2
    assert message in done.stderr
