"""Where a run computes: the device, and what makes the machine fast without changing a number."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fssl_core.errors import SettingError

PRECISIONS = ("float32", "bfloat16", "float64")  # bfloat16: in forward passes only; weights and sums stay float32


def default_device() -> torch.device:
    """``$FSSL_DEVICE`` if set, else the first CUDA device, else the CPU.

    Raises:
        SettingError: ``$FSSL_DEVICE`` names a device that torch does not know or that is not there.
    """
    name = os.environ.get("FSSL_DEVICE")
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return check_device(name, "FSSL_DEVICE")


def check_device(device: torch.device | str, name: str = "device") -> torch.device:
    """A device of this machine; :class:`SettingError` names the setting ``name`` where there is no such."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise SettingError(name, device, "cpu, cuda or cuda:N of this machine") from error
    return found


def keep_freed_memory() -> bool:
    """Ask glibc to keep big freed buffers for the next operation instead of returning them to the kernel.

    Training allocates the same large activations at every step; without this, page faults take 10 to 30 % of the
    time on a CPU. Peak memory stays the same. Returns whether the C library took the request (it does on Linux with
    glibc); elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # malloc.h: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
    return all(
        mallopt(option, value)
        for option, value in ((mmap_threshold, 1 << 30), (trim_threshold, 2**31 - 1), (top_pad, 64 << 20))
    )


def dtype_of(precision: str) -> torch.dtype:
    """Of weights and images, for one of ``PRECISIONS``."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of forward passes, for one of ``PRECISIONS``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def repeatable_kernels() -> Iterator[None]:
    """Inside the block cuDNN uses only algorithms that give the same bits every time, and picks none by timing."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
