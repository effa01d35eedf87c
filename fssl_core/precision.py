"""Whether bfloat16 is fast here: what ``precision="auto"`` stands for on this machine.

The multiplications of a GPU with tensor cores for bfloat16, or of a CPU with AMX or AVX512-BF16, are two to eight times
as fast as those of float32. Other CPUs gain nothing by bfloat16. What a CPU is advertised for does not tell, since
``torch`` must use it, so the same small convolution is timed in both.

``"auto"`` is a question that settings ask when they are made, and no value that they have: afterwards they say
``"bfloat16"`` or ``"float32"``. So the key of a run, its record and everybody who repeats it know the arithmetic; two
machines that answer differently make two runs, and a run that is sent to another machine stays what it is.
"""

import json
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import nn

from fssl_core.devices import PRECISIONS, autocast, cpu_name, default_device, multiplies_bfloat16
from fssl_core.files import write_json
from fssl_core.notices import notice
from fssl_core.paths import cache_root
from fssl_core.settings import check_choice

AUTO = "auto"
WORTH_IT = 0.8  # of float32's time: with less to gain a run had better keep all digits
REPEATS = 5


def chosen_precision(precision: str) -> str:
    """One of ``PRECISIONS``: what is asked for, or for ``"auto"`` the fast one of ``bfloat16`` and ``float32``.

    Raises:
        SettingError: no precision.
    """
    check_choice("precision", precision, (*PRECISIONS, AUTO))
    if precision != AUTO:
        return precision
    return "bfloat16" if bfloat16_is_fast(default_device()) else "float32"


def versions_of(precision: str) -> dict[str, int]:
    """Of the arithmetic of a precision, where runs of it were computed in another way before."""
    return {"bfloat16": 2} if precision == "bfloat16" else {}


def bfloat16_is_fast(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 much faster than float32.

    A CUDA device does from compute capability 8.0 on. On a CPU, convolutions are timed once (half a second of CPU
    time), and the answer is kept in ``precision.json`` in :func:`~fssl_core.paths.cache_root`, by processor and version
    of ``torch``; delete it to measure again. Elsewhere the answer is no.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0) and torch.cuda.is_bf16_supported(False)
    if device.type != "cpu" or not multiplies_bfloat16():
        return False
    return _measured(cache_root() / "precision.json", _processor()) <= WORTH_IT


@cache
def _measured(file: Path, processor: str) -> float:
    """The time that convolutions take in bfloat16, as a share of that in float32; from ``file`` where it is known."""
    known = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text(encoding="utf-8"))
    known = known if isinstance(known, dict) else {}
    share = known.get(processor)
    if isinstance(share, float) and share > 0:
        return share
    share = share_of_float32()
    try:
        write_json(file, known | {processor: share})
    except OSError as error:
        notice(f"how fast bfloat16 is here cannot be kept in {file} ({error.strerror}); every process will measure it.")
    return share


def _processor() -> str:
    """What the answer depends on: the processor, its instructions, and the libraries that use them."""
    instructions: list[str] = []
    with suppress(OSError):
        words = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
        instructions = sorted({word for word in words if "bf16" in word or word.startswith("amx_")})
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return ", ".join(filter(None, (cpu_name(), *instructions, limit, f"torch {torch.__version__}")))


@torch.enable_grad()
def share_of_float32() -> float:
    """CPU time of a convolution forward and backward in bfloat16, divided by that in float32.

    64 channels, 16 x 16 pixels, 32 images; each the fastest of some turns, because whatever else the machine does can
    only make one slower.
    """
    numbers = torch.Generator().manual_seed(0)
    images = torch.rand(32, 64, 16, 16, generator=numbers).requires_grad_()
    layer = nn.utils.skip_init(nn.Conv2d, 64, 64, 3, padding=1)  # not from the global random numbers
    with torch.no_grad():
        for values in layer.parameters():
            values.uniform_(-0.1, 0.1, generator=numbers)
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for _ in range(1 + REPEATS):
        for precision, times in seconds.items():
            start = time.process_time()
            with autocast(images.device, precision):
                outputs = layer(images)
            outputs.float().sum().backward()
            times.append(time.process_time() - start)
    fastest = {precision: min(times[1:]) for precision, times in seconds.items()}  # the first of each warms up
    return fastest["bfloat16"] / fastest["float32"]
