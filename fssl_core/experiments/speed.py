"""How fast this machine is, beside those that the recorded seconds come from."""

import time

import torch
from torch.nn import functional as F

from fssl_core.devices import default_device

# work_per_second() on the machines of the records, by the name that a record has for its device. AMD EPYC: two cores
# of a virtual machine, torch 2.15; 36 calls gave 597 to 706, the median is 677.
REFERENCE = {"AMD EPYC": 680.0}
SECONDS = 1.0


def relative_speed(device: str) -> float | None:
    """How many times as fast as a record's device this machine computes now; ``None`` where that cannot be told.

    Takes a second, and nothing where there is no reference for the device or runs are computed on a GPU here.
    """
    if device not in REFERENCE or default_device().type != "cpu":
        return None
    return work_per_second() / REFERENCE[device]


def work_per_second() -> float:
    """Steps of a small convolution's training on one thread; the fastest, as others may use the machine as well."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        images = torch.linspace(-1, 1, 32 * 16 * 16 * 16).view(32, 16, 16, 16)
        weight = torch.linspace(-1, 1, 16 * 16 * 9).view(16, 16, 3, 3).requires_grad_()
        fastest, end = float("inf"), time.perf_counter() + SECONDS
        while (began := time.perf_counter()) < end:
            hidden = F.relu(F.conv2d(images, weight, padding=1)).flatten(1)  # [32, 4096]
            torch.autograd.grad((hidden @ hidden.T).sum(), weight)
            fastest = min(fastest, time.perf_counter() - began)
        return 1 / fastest
    finally:
        torch.set_num_threads(threads)
