"""What of this machine runs may use, so that nothing is asked to do two things at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fssl_core.errors import SettingError

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")  # in a container, its own
MEMORY_LIMITS = (  # in cgroups of version 2 and 1: the limit, what is used, and of it cached files that can be given up
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def cores() -> int:
    """Of this machine, those that this process may use: not those of another job, or beyond a container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (CGROUP / "cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))  # "max" is no number: no quota
    return count


def available_memory() -> float:
    """Bytes that this process can still have, as Linux estimates them, within a container's limit; else infinite."""
    available = float("inf")
    with suppress(OSError, ValueError, LookupError):
        available = 1024 * _numbers(MEMINFO)["MemAvailable:"]
    for limit, used, parts, cached in MEMORY_LIMITS:
        with suppress(OSError, ValueError, LookupError):  # "max" is no number: no limit
            left = int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text())
            available = min(available, left + _numbers(CGROUP / parts)[cached])
    return available


def _numbers(file: Path) -> dict[str, int]:
    """Of lines with a name and a number."""
    return {name: int(number) for name, number, *_ in map(str.split, file.read_text().splitlines())}


def threads() -> int:
    """Of a run: one, or as many as ``$OMP_NUM_THREADS`` says.

    The last bits of sums depend on it, so it depends neither on how many runs are computed at a time nor on the cores.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else 1


@contextmanager
def threads_of_a_run() -> Iterator[None]:
    """Inside the block torch uses so many."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gpus() -> list[str]:
    """The CUDA devices that runs may use, as ``CUDA_VISIBLE_DEVICES`` names them; none where runs use others."""
    if (os.environ.get("FSSL_DEVICE") or "cuda") != "cuda":
        return []
    import torch

    count = torch.cuda.device_count()  # does not start CUDA
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if visible is None else visible.split(",")
    return [name.strip() for name in names][:count]


def shares(count: int | None = None) -> list[dict[str, str]]:
    """The machine in parts, for what is computed at a time: of each part the variables that keep a process to it.

    Args:
        count: of parts; default: one for each GPU, or for each core (for as many cores as a run has threads).
    """
    devices = gpus()
    if not devices:
        chosen = os.environ.get("FSSL_DEVICE") or "cpu"  # one that is named is one for all
        return [{}] * (count or (max(1, cores() // threads()) if chosen == "cpu" else 1))
    count = count or len(devices)
    parts = [devices[part::count] or [devices[part % len(devices)]] for part in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in parts]


def workers(count: int | None = None) -> list[dict[str, str]]:
    """Where runs are computed at a time, as :func:`shares`: ``count``, else ``$FSSL_WORKERS``, else the default.

    Raises:
        SettingError: no such number.
    """
    value = os.environ.get("FSSL_WORKERS") if count is None else count
    try:
        number = None if value in (None, "") else int(value)
    except (TypeError, ValueError):
        number = 0
    if number is not None and number < 1:
        raise SettingError("FSSL_WORKERS" if count is None else "workers", value, "a whole number of at least 1")
    return shares(number)


def divided(jobs: int) -> list[dict[str, str]]:
    """For each of so many processes that compute runs at a time, the variables that keep it to its part.

    With fewer GPUs than processes, some share one.
    """
    parts = shares(jobs)
    if gpus() and not os.environ.get("FSSL_WORKERS"):
        return parts  # each sees its GPUs
    each = max(1, len(workers()) // jobs)
    return [{**part, "FSSL_WORKERS": str(each)} for part in parts]
