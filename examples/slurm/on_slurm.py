"""Compute the runs of notebooks on Slurm: a Dask cluster of jobs with a GPU each, for as long as a command takes.

    python examples/slurm/on_slurm.py --jobs 8 -- fssl reproduce monacosfl --profile gpu

Start it on a node from which jobs are submitted and that lives as long (in tmux, or as a job of its own), in the
environment and the clone that jobs see, too. `FSSL_RUNS` and `FSSL_DATA` should name folders that they share.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys

import dask
from dask_jobqueue import SLURMCluster

from fssl_core.paths import data_root, project_root, runs_root

LOGS = project_root() / "build" / "slurm"
KEPT = ("OMP_NUM_THREADS", "FSSL_DEVICE", "FSSL_SAVE_EVERY")  # variables of this shell that jobs get, too


def slurm_cluster(arguments: argparse.Namespace) -> SLURMCluster:
    """The scheduler, in this process; jobs come with :meth:`adapt`."""
    variables = {"FSSL_RUNS": runs_root(), "FSSL_DATA": data_root()}
    variables |= {name: os.environ[name] for name in KEPT if name in os.environ}
    directives = [f"--gpus={arguments.gpus}"] if arguments.gpus else []
    return SLURMCluster(
        cores=1,  # runs at a time
        processes=1,
        job_cpu=arguments.cpus,
        memory=arguments.memory,
        walltime=arguments.walltime,
        interface=arguments.interface,
        job_extra_directives=[*directives, *arguments.sbatch],
        job_script_prologue=[
            f"cd {shlex.quote(str(project_root()))}",
            *(f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()),
        ],
        worker_extra_args=["--resources", f"GPU={arguments.gpus}"] if arguments.gpus else [],
        log_directory=str(LOGS),
        python=sys.executable,
    )


def main() -> int:
    """Returns the command's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="at a time; default: 4")
    text = "of a job, which computes a run at a time; default: 1"
    parser.add_argument("--gpus", type=int, default=1, choices=(0, 1), help=text)
    parser.add_argument("--cpus", type=int, default=4, metavar="N", help="of a job; default: 4")
    parser.add_argument("--memory", default="32GB", metavar="SIZE", help="of a job; default: 32GB")
    parser.add_argument("--walltime", default="24:00:00", metavar="TIME", help="of a job; default: 24:00:00")
    parser.add_argument("--interface", metavar="NAME", help="network on which jobs reach this machine, e.g. ib0")
    text = "a further line for sbatch, e.g. --sbatch=--partition=gpu; repeatable"
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help=text)
    parser.add_argument("command", nargs="+", help="after --, e.g. fssl reproduce monacosfl --profile gpu")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: expected at least 1")
    if shutil.which("sbatch") is None:
        parser.error("there is no sbatch on this machine: start this where jobs are submitted")
    # A job that ends, at its walltime or by preemption, is no failure of its run, which goes on in the next one.
    dask.config.set({"distributed.scheduler.allowed-failures": 100})
    with slurm_cluster(arguments) as cluster:
        cluster.adapt(minimum_jobs=arguments.jobs, maximum_jobs=arguments.jobs)  # those that end are replaced
        print(f"jobs write to {LOGS}: look there, and at squeue, if no worker comes", file=sys.stderr)
        environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": cluster.scheduler_address}
        if not arguments.gpus:
            environment["FSSL_RESOURCES"] = ""  # or runs at `gpu` and `paper` would wait for a GPU
        # dask_jobqueue ends this process at Ctrl-C, with status 0. The command gets it, too, and is waited for.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        command = subprocess.Popen(arguments.command, env=environment)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: command.send_signal(signal.SIGINT))
        status = command.wait()
        return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
