"""Where a run computes: the device, and what makes the machine fast without changing a number."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fssl_core.errors import SettingError
from fssl_core.notices import notice

PRECISIONS = ("float32", "bfloat16", "float64")  # bfloat16: in forward passes only; weights and sums stay float32


def default_device() -> torch.device:
    """``$FSSL_DEVICE`` if set, else the first CUDA device, else the CPU.

    Raises:
        SettingError: ``$FSSL_DEVICE`` names a device that torch does not know or that is not there.
    """
    name = os.environ.get("FSSL_DEVICE")
    if not name:
        if torch.cuda.is_available():
            return torch.device("cuda")
        if (named := os.environ.get("CUDA_VISIBLE_DEVICES", "")) not in ("", "-1"):
            notice(f"CUDA_VISIBLE_DEVICES={named} names GPUs and torch can use none of them: computing on the CPU.")
        return torch.device("cpu")
    return check_device(name, "FSSL_DEVICE")


def check_device(device: torch.device | str, name: str = "device") -> torch.device:
    """A device of this machine; :class:`SettingError` names the setting ``name`` where there is no such."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found).cpu()  # "meta" has nothing that could come back
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise SettingError(name, device, "cpu, cuda or cuda:N of this machine") from error
    return found


def launches_kernels(device: torch.device) -> bool:
    """Whether a device is told of each operation, which takes longer than a small one: not the CPU, nor ``meta``."""
    return device.type not in ("cpu", "meta")


@cache
def cpu_name() -> str:
    """The processor as the system calls it."""
    if sys.platform.startswith("linux"):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


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


def do_not_wait_busily() -> None:
    """Make the best of a torch that was imported before it could be told how its threads are to wait.

    With libgomp, which torch has on Linux, they then wait busily, and that cannot be changed any more: steps take
    several times as long on two threads as on one when the machine has anything else to do. One thread never waits.
    Who has chosen a number of threads keeps it. A line says so, once.
    """
    if not sys.platform.startswith("linux") or torch.get_num_threads() == 1:
        return
    what = "computes on several threads, which wait busily"
    if not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys():
        torch.set_num_threads(1)
        what = "computes on one thread, as several would wait busily"
    notice(
        f"torch was imported before fssl_core and {what}. Set OMP_WAIT_POLICY=PASSIVE where Python or Jupyter starts, "
        "or import fssl_core first."
    )


def dtype_of(precision: str) -> torch.dtype:
    """Of weights and images, for one of ``PRECISIONS``."""
    return torch.float64 if precision == "float64" else torch.float32


@contextmanager
def autocast(device: torch.device, precision: str) -> Iterator[None]:
    """The context of forward passes, for one of ``PRECISIONS``; bfloat16 is no slower than float32 on any CPU."""
    half = precision == "bfloat16"
    slow = half and device.type == "cpu" and not multiplies_bfloat16()
    with torch.autocast(device.type, torch.bfloat16, enabled=half), RoundedFactors() if slow else nullcontext():
        yield


def multiplies_bfloat16() -> bool:
    """Whether torch has fast products of bfloat16 on this CPU.

    oneDNN supports them on any CPU with AVX-512. Without AVX512-BF16 it imitates the instructions, in 1.5 times the
    time of float32 and more (PyTorch 2.15).
    """
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    return torch.cpu._is_avx512_bf16_supported() or not torch.cpu._is_avx512_supported()


PRODUCTS = {  # what autocast computes in bfloat16
    *(F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
    *(F.linear, F.scaled_dot_product_attention, torch.matmul, torch.mm, torch.bmm),
    *(Tensor.matmul, Tensor.__matmul__, Tensor.mm, Tensor.bmm),
}


class RoundedFactors(TorchFunctionMode):
    """Inside :class:`torch.autocast`, products of bfloat16 for a CPU without instructions for them.

    There torch has loops that take ten to seventy times as long as float32 (PyTorch 2.15). Here factors are rounded to
    bfloat16, multiplied and summed in float32, and the product is rounded: what the instructions do as well, but for
    the order of sums.
    """

    def __torch_function__(self, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in PRODUCTS or not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            product = function(*map(_rounded, args), **{name: _rounded(value) for name, value in kwargs.items()})
        return product.bfloat16() if product.dtype == torch.float32 else product


def _rounded(value: Any) -> Any:
    halves = isinstance(value, Tensor) and value.device.type == "cpu" and value.dtype.is_floating_point
    return value.bfloat16().float() if halves and value.dtype != torch.float64 else value


def in_full_precision(function: Callable) -> Callable:
    """A function of tensors, such as a loss, that computes in float32 or more inside :func:`autocast`, too.

    Eight bits of a bfloat16 similarity do not tell neighbours apart. And a loop over steps must not stand in one
    autocast: that keeps the first cast of a weight until it ends, so that all later steps train behind a stale copy.
    """

    @wraps(function)
    def computed(*values: Any, **named: Any) -> Any:
        device = next(value for value in (*values, *named.values()) if isinstance(value, Tensor)).device
        if device.type == "meta":  # where steps are counted, and autocast is unknown
            return function(*values, **named)
        with torch.autocast(device.type, enabled=False):
            named = {name: _all_digits(value) for name, value in named.items()}
            return function(*map(_all_digits, values), **named)

    return computed


def _all_digits(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


@contextmanager
def repeatable_kernels() -> Iterator[None]:
    """Inside the block a device computes as it does for every run, whatever the process has chosen outside.

    cuDNN uses only algorithms that give the same bits every time, and picks none by timing. Of float32 on a GPU,
    convolutions may round factors to TF32 (10 bits), which is PyTorch's default and so what the papers' code has on
    current GPUs; matrix products keep all digits, since losses, similarities and heads are made of them. A CPU keeps
    all digits of both. See :func:`tf32`.
    """
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    chosen = (
        (cudnn, "deterministic", True),
        (cudnn, "benchmark", False),
        (cudnn.conv, "fp32_precision", "tf32"),
        (torch.backends.cuda.matmul, "fp32_precision", "ieee"),
        (mkldnn.conv, "fp32_precision", "ieee"),
        (mkldnn.matmul, "fp32_precision", "ieee"),
    )
    before = [getattr(backend, name) for backend, name, _ in chosen]
    for backend, name, value in chosen:
        setattr(backend, name, value)
    try:
        yield
    finally:
        for (backend, name, _), value in zip(chosen, before, strict=True):
            setattr(backend, name, value)


def tf32(device: torch.device) -> list[str]:
    """Which operations of float32 a device rounds to TF32 inside :func:`repeatable_kernels`."""
    tensor_cores = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return ["convolutions"] if tensor_cores else []
