"""Work and memory of a module's passes, counted on tensors without values.

Unit: a multiply-add counts 2, as in ``torch.utils.flop_counter``; products only, which are all but a few percent of the
arithmetic. :mod:`fssl_core.costs` counts as the papers do.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

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


_NORMALISATIONS = {  # the shape of their statistics
    torch.ops.aten.native_batch_norm.default: lambda images, *_: images.shape[1:2],
    torch.ops.aten.native_group_norm.default: lambda *arguments: (arguments[3], arguments[6]),  # images, groups
    torch.ops.aten.native_layer_norm.default: lambda images, last, *_: (*images.shape[: -len(last)], *[1] * len(last)),
}


class Counter(TorchDispatchMode):
    """Adds up the FLOPs of products while it is active, as ``FlopCounterMode`` does.

    That one also tries to take every other operation apart, which costs a second for a network on tensors without
    values, and keeps books by module.
    """

    flops = first = 0  # the latter: of the first product

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in _NORMALISATIONS:  # no products, and taken apart they take most of the time
            statistics = args[0].new_empty(_NORMALISATIONS[function](*args))
            return torch.empty_like(args[0]), statistics, torch.empty_like(statistics)
        output = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket)
        if count is not None:
            product = count(*args, **(kwargs or {}), out_val=output)
            self.first = self.first or product
            self.flops += product
        return output


def passes(module: nn.Module, shape: tuple[int, ...]) -> Passes:
    """Count the passes of one image through a module; nothing is computed.

    Args:
        module: any module whose passes cost each image the same. It loses its values, and is in training mode then.
        shape: of its input, without the batch.
    """
    module = module.to("meta").train().requires_grad_()
    values = sum(value.numel() for value in (*module.parameters(), *module.buffers()))
    own = {value.untyped_storage() for value in (*module.parameters(), *module.buffers())}
    kept = set()  # holds the storages, so that none is freed and its place taken by another

    def pack(value: Tensor) -> Tensor:
        kept.add(value.untyped_storage())
        return value

    images = torch.empty(IMAGES, *shape, device="meta")
    with Counter() as counter, saved_tensors_hooks(pack, lambda value: value):
        output = module(images)
    forward, first = counter.flops / IMAGES, counter.first / IMAGES
    saved = sum(storage.nbytes() for storage in kept - own) / IMAGES
    # Each product has two in the backward pass: the gradients of its weights, and of its input where that is needed.
    return Passes(forward, 2 * forward - first, 2 * forward, saved, values, tuple(output.shape[1:]))
