"""Load data sets that may crash, hang or fill the memory: each in a process of its own, with limits.

``python -m tests.data.child`` reads a JSON list of lists of ``[data root, name]`` and prints a JSON list of outcomes.
"""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

SECONDS = 60  # until a process counts as hanging
ROOM = 3 * 2**30  # bytes of address space that a load may take beside what the process has


def outcomes(cases: list[tuple[object, str]], in_one: int = 1) -> list[dict]:
    """Of each case ``{"end": "read" | name of the error | "signal N", "message": ..., "megabytes": grown by}``.

    With ``in_one`` above 1 so many cases share a process, and its signal if there is one.
    """
    cases = [[str(root), name] for root, name in cases]
    cases = json.dumps([cases[start : start + in_one] for start in range(0, len(cases), in_one)])
    command = [sys.executable, "-W", "ignore", "-m", "tests.data.child"]
    done = subprocess.run(command, input=cases, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _load(root: str, name: str) -> dict:
    from fssl_core.data.datasets import load_dataset

    os.environ["FSSL_DATA"] = root
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        data = load_dataset(name, image_size=None)
        result = {"end": "read", "message": "", "images": len(data.train)}
    except BaseException as error:
        result = {"end": type(error).__name__, "message": str(error)}
    return result | {"megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def _in_child(cases: list[tuple[str, str]]) -> list[dict]:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(SECONDS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with os.fdopen(writer, "w") as file:
            json.dump([_load(*case) for case in cases], file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    status = os.waitpid(pid, 0)[1]
    lost = {"end": f"signal {os.WTERMSIG(status)}", "message": "", "megabytes": 0}
    return json.loads(said) if said else [lost] * len(cases)


if __name__ == "__main__":
    for module in ("fssl_core.data.datasets", "torchvision.transforms.v2", "PIL.Image"):  # once, before the first fork
        importlib.import_module(module)
    print(json.dumps([result for cases in json.load(sys.stdin) for result in _in_child(cases)]))
