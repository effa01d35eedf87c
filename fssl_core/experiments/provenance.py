"""How a run came about: versions, machine, time and memory."""

import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import fssl_core
from fssl_core.devices import cpu_name, default_device, tf32

LARGEST = "peak_memory_bytes", "peak_gpu_memory_bytes"
OVER_SESSIONS = "seconds", "sessions", *LARGEST  # what a session goes on with that the ones before it left


class Session:
    """One stretch of computing a run; a run that was interrupted has several.

    Args:
        earlier: the provenance that the sessions before this one left, if any.
        precision: of the run, where it has one.
    """

    def __init__(self, earlier: dict[str, Any] | None = None, precision: str | None = None) -> None:
        self.earlier = earlier or {}
        self.precision = precision
        self.started = time.perf_counter()
        self.threads = torch.get_num_threads()  # of this thread; a record may be made in another
        if (device := self._gpu()) is not None:
            torch.cuda.reset_peak_memory_stats(device)

    def record(self) -> dict[str, Any]:
        """Provenance up to now.

        Top-level values are those of the last session, except that ``seconds`` and ``sessions`` are sums over all and
        memory is the largest. ``history`` has an entry for each session: an interrupted run may have gone on with other
        code, on another machine. As the record is made when a checkpoint is saved and
        when the run ends, time whose work an interruption lost is not counted. ``peak_memory_bytes`` is the largest
        resident memory of the process, whatever it computed before; ``peak_gpu_memory_bytes`` is what this run's
        tensors took on the GPU (0 on a CPU). ``precision`` is that of forward passes, as the settings have it, and
        ``tf32`` lists what of float32 was rounded to TF32 (nothing on a CPU).
        """
        device = self._gpu()
        gpu_memory = 0 if device is None else torch.cuda.max_memory_allocated(device)
        this = {
            "fssl_core": fssl_core.__version__,
            **git_state(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "torchvision", "numpy")},
            "device": torch.cuda.get_device_name(device) if gpu_memory else cpu_name(),
            "threads": self.threads,
            "precision": self.precision,
            "tf32": tf32(default_device()),
            "seconds": time.perf_counter() - self.started,
            "peak_memory_bytes": peak_memory(),
            "peak_gpu_memory_bytes": gpu_memory,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        before = self.earlier
        return {
            **this,
            "seconds": before.get("seconds", 0.0) + this["seconds"],
            "sessions": before.get("sessions", 0) + 1,
            **{name: max(before.get(name, 0), this[name]) for name in LARGEST},
            "history": [*before.get("history", [before] if before else []), this],
        }

    @staticmethod
    def _gpu() -> torch.device | None:
        """The one that runs are computed on, which need not be PyTorch's current one; None where none is in use."""
        device = default_device()
        return device if device.type == "cuda" and torch.cuda.is_initialized() else None


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


@cache
def git_state() -> dict[str, Any]:
    """``commit`` of the code in use, or ``"unknown"``, and whether it was ``modified`` since (``None``: unknown)."""
    package = Path(fssl_core.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie in someone else's repository
        return {"commit": git("rev-parse", "HEAD"), "modified": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": "unknown", "modified": None}
