"""Peak memory of a training step of any module, as the authors of MocoSFL read it: off the CUDA allocator."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from fssl_core.errors import SettingError


def peak_memory(module: nn.Module, input_shape: Sequence[int], batch: int, device: torch.device | str = "cuda") -> int:
    """Most bytes that a training step of ``module`` held at one time, by the CUDA allocator, after a warm-up.

    Two steps warm up, the third is measured: momentum update, both forward passes, backward from a given gradient of
    the output, SGD step. Values do not matter, all are zero. Workspaces of the libraries are included, the CUDA
    context is not.

    Args:
        module: any module; a copy is trained.
        input_shape: of one input, without the batch.
        batch: number of inputs.
        device: a CUDA device.

    Raises:
        SettingError: another device.
    """
    device = torch.device(device)
    if device.type != "cuda":
        raise SettingError("device", str(device), "a CUDA device, whose allocator keeps a peak; else training_memory")
    before = torch.cuda.memory_allocated(device)
    online = copy.deepcopy(module).to("meta").to_empty(device=device).train()
    with torch.no_grad():
        for value in (*online.parameters(), *online.buffers()):
            value.zero_()
    momentum = copy.deepcopy(online).requires_grad_(False)
    optimiser = torch.optim.SGD(online.parameters(), lr=0.01, momentum=0.9, fused=True)
    inputs = torch.zeros(batch, *input_shape, dtype=next(online.parameters()).dtype, device=device)

    def step() -> None:
        with torch.no_grad():
            for slow, fast in zip(momentum.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            momentum(inputs)
        outputs = online(inputs)
        outputs.backward(torch.zeros_like(outputs))
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)

    for _ in range(3):
        torch.cuda.reset_peak_memory_stats(device)
        step()
    return torch.cuda.max_memory_allocated(device) - before
