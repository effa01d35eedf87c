"""Work and memory of a module's passes, counted on tensors without values.

Unit: a multiply-add counts 2, as in ``torch.utils.flop_counter``; products only, which are all but a few percent of the
arithmetic. :mod:`fssl_core.costs` counts as the papers do.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fssl_core.costs.compute import FlopCounter, saved_for_backward

IMAGES = 4  # in the batch that is counted: batch norm and twins need several


@dataclass(frozen=True)
class Passes:
    """What passes of one image through a module take.

    Args:
        forward: FLOPs of a forward pass.
        backward: FLOPs of the backward pass of a module whose input needs no gradient.
        inner_backward: of one whose input needs one.
        saved_bytes: what autograd keeps of it, in float32.
        values: parameters and buffers.
        shape: of the output, without the batch.
    """

    forward: float = 0.0
    backward: float = 0.0
    inner_backward: float = 0.0
    saved_bytes: float = 0.0
    values: int = 0
    shape: tuple[int, ...] = ()

    def __add__(self, other: "Passes") -> "Passes":
        """Of one module after another; nothing at all is ``Passes()``."""
        if not self.shape:
            return other
        if not other.shape:
            return self
        return Passes(
            self.forward + other.forward,
            self.backward + other.inner_backward,
            self.inner_backward + other.inner_backward,
            self.saved_bytes + other.saved_bytes,
            self.values + other.values,
            other.shape,
        )

    @property
    def trained(self) -> float:
        """FLOPs of a step: both passes."""
        return self.forward + self.backward

    @property
    def inner_trained(self) -> float:
        """The same where what comes before it is trained as well."""
        return self.forward + self.inner_backward

    @property
    def bytes_per_flop(self) -> float:
        """What autograd keeps for a FLOP of the forward pass."""
        return self.saved_bytes / self.forward if self.forward else 0.0

    @property
    def bytes(self) -> int:
        """Of parameters and buffers in float32."""
        return 4 * self.values


class NoValues(TorchDispatchMode):
    """Draws no first values of what is made while it is active, for models whose sizes alone are asked for."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return args[0] if function is torch.ops.aten.uniform_.default else function(*args, **(kwargs or {}))


def passes(module: nn.Module, shape: tuple[int, ...]) -> Passes:
    """Count the passes of one image through a module; nothing is computed.

    Args:
        module: any module whose passes cost each image the same. It loses its values, and is in training mode then.
        shape: of its input, without the batch.
    """
    module = module.to("meta").train().requires_grad_()
    values = sum(value.numel() for value in (*module.parameters(), *module.buffers()))
    images = torch.empty(IMAGES, *shape, device="meta")
    with FlopCounter() as counter, saved_for_backward(module) as kept:
        output = module(images)
    forward, first = counter.flops / IMAGES, counter.first / IMAGES
    saved = sum(storage.nbytes() for storage in kept) / IMAGES
    # Each product has two in the backward pass: the gradients of its weights, and of its input where that is needed.
    return Passes(forward, 2 * forward - first, 2 * forward, saved, values, tuple(output.shape[1:]))
