"""Multiply-adds and memory of a client's model, counted without running or training it.

MocoSFL (Li et al., 2023), Section 4.2 and Fig. 3(b): inference of the online model for one 32x32 image, and memory of
training at a batch size. Its authors' calculator counts with fvcore and reads memory off the CUDA allocator.

Unit: one multiply-add counts 1 (a MAC; "FLOPs" in the papers). ``torch.utils.flop_counter`` counts 2, halved here.
Beside the products, fvcore counts normalisations and adaptive pooling per input element; the same numbers are used
here, and reproduce the calculator's totals exactly. Activations, additions, softmax, biases and weight
standardisation count nothing.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from fssl_core.models import Backbone, GlobalPool, build_backbone, cut, cut_layers
from fssl_core.settings import check_range

# The authors' rule for a training step, x the forward pass: forward, backward and the momentum model's forward. (The
# three of LW-FedSSL, TRAINED_PASSES in costs.layerwise, are others.) Their backward pass costs one forward pass. It
# has two products per layer (gradients of weights and of inputs), so this is right for a single layer, whose input
# needs no gradient, and too low for deeper clients by nearly one forward pass.
MOCOSFL_PASSES = 3
WHOLE_BATCH = 128  # images in a step of FL-SSL, which trains the whole model


@dataclass(frozen=True)
class Macs:
    """Multiply-adds of one forward pass of one image.

    Args:
        products: convolutions, linear layers and matrix products, attention's included.
        normalisation: per element 5 for group and layer norm, 2 for batch norm; 1 less without scale and shift.
        pooling: 1 per element that an average over the whole image reads.
    """

    products: int
    normalisation: int
    pooling: int

    @property
    def total(self) -> int:
        return self.products + self.normalisation + self.pooling


def forward_macs(module: nn.Module, input_shape: Sequence[int]) -> Macs:
    """Multiply-adds of ``module`` for one input, in evaluation mode; nothing is computed and the module is not changed.

    Args:
        module: any module; normalisations other than batch, group and layer norm count nothing.
        input_shape: of one input, without the batch, e.g. ``(3, 32, 32)``.
    """
    module = _on_meta(module).eval()  # batch norm costs 2 per element with its running statistics
    counted: Counter[str] = Counter()

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        what, each = _per_element(layer)
        counted[what] += each * inputs[0].numel()

    for layer in module.modules():
        if _per_element(layer) is not None:
            layer.register_forward_hook(count)
    with FlopCounter() as counter, torch.no_grad():
        module(_inputs(module, input_shape, 1))
    return Macs(counter.flops // 2, counted["normalisation"], counted["pooling"])


def _per_element(layer: nn.Module) -> tuple[str, int] | None:
    """What fvcore counts for an element of a layer's input, beside products."""
    if isinstance(layer, nn.GroupNorm | nn.LayerNorm):
        return "normalisation", 4 + (layer.weight is not None)
    if isinstance(layer, _BatchNorm):
        return "normalisation", 1 + (layer.weight is not None)
    if isinstance(layer, GlobalPool | nn.AdaptiveAvgPool2d):
        return "pooling", 1
    return None


@dataclass(frozen=True)
class Memory:
    """What a client holds in bytes when the forward pass of a training step ends.

    Args:
        model_bytes: parameters and buffers.
        gradient_bytes: one value per trained parameter.
        optimiser_bytes: its states: one value per trained parameter for the momentum of SGD, two for AdamW.
        momentum_model_bytes: the momentum model or target branch: parameters and buffers again.
        saved_bytes: see :func:`saved_bytes`.
    """

    model_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    momentum_model_bytes: int
    saved_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(asdict(self).values())


def training_memory(module: nn.Module, input_shape: Sequence[int], batch: int) -> Memory:
    """Memory of training ``module`` with SGD and a momentum model, counted and not measured.

    A lower bound of the peak: what an operation needs while it runs (the other branch of a block, gradients of
    activations, a convolution's workspace) comes on top.

    Args:
        module: any module.
        input_shape: of one input, without the batch.
        batch: inputs in the forward pass; with a symmetric loss, twice the number of images.

    Raises:
        SettingError: a batch below 1.
    """
    model = nbytes((*module.parameters(), *module.buffers()))
    trained = nbytes(value for value in module.parameters() if value.requires_grad)
    return Memory(model, trained, trained, model, saved_bytes(module, input_shape, batch))


def nbytes(tensors: Iterable[Tensor]) -> int:
    """What tensors take together."""
    return sum(tensor.nbytes for tensor in tensors)


def saved_bytes(module: nn.Module, input_shape: Sequence[int], batch: int) -> int:
    """Bytes that autograd keeps from a forward pass for the backward pass; nothing is computed.

    Each piece of memory counts once, however many operations keep it. Parameters and buffers do not count; the batch
    of inputs does, where a layer keeps it, and so do the standardised filters, whose size no batch changes.

    Args:
        module: any module; it is counted in training mode.
        input_shape: of one input, without the batch.
        batch: number of inputs.

    Raises:
        SettingError: a batch below 1.
        ValueError: from PyTorch, for a batch norm that sees a single value per channel.
    """
    check_range("batch", batch, low=1)
    module = _on_meta(module).train()
    with FlopCounter(), saved_for_backward(module) as saved:
        module(_inputs(module, input_shape, batch))
    return sum(storage.nbytes() for storage in saved)


@contextmanager
def saved_for_backward(module: nn.Module) -> Iterator[set[torch.UntypedStorage]]:
    """The pieces of memory that autograd keeps of what the block computes, but for parameters and buffers.

    The set holds them, so that none is freed and its place taken by another; it is complete when the block ends.
    """
    saved: set[torch.UntypedStorage] = set()

    def pack(value: Tensor) -> Tensor:
        saved.add(value.untyped_storage())
        return value

    with saved_tensors_hooks(pack, lambda value: value):
        yield saved
    saved -= {value.untyped_storage() for value in (*module.parameters(), *module.buffers())}


_NORMALISATIONS = {  # the shape of their statistics
    torch.ops.aten.native_batch_norm.default: lambda images, *_: images.shape[1:2],
    torch.ops.aten.native_group_norm.default: lambda *arguments: (arguments[3], arguments[6]),  # images, groups
    torch.ops.aten.native_layer_norm.default: lambda images, last, *_: (*images.shape[: -len(last)], *[1] * len(last)),
}


class FlopCounter(TorchDispatchMode):
    """Adds up the FLOPs of products on tensors without values while it is active, as ``FlopCounterMode`` does.

    That one also tries to take every other operation apart, which costs a second for a network, and keeps books by
    module.

    Attributes:
        flops: of all products.
        first: of the first one.
    """

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # imports triton, where there is one

        self.registry, self.flops, self.first = flop_registry, 0, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in _NORMALISATIONS:  # no products, and taken apart they take most of the time
            statistics = args[0].new_empty(_NORMALISATIONS[function](*args))
            return torch.empty_like(args[0]), statistics, torch.empty_like(statistics)
        output = function(*args, **(kwargs or {}))
        count = self.registry.get(function._overloadpacket)
        if count is not None:
            product = count(*args, **(kwargs or {}), out_val=output)
            self.first = self.first or product
            self.flops += product
        return output


def fl_moco_model(backbone: Backbone) -> nn.Sequential:
    """What a client of FL-MoCo trains: the backbone with the authors' large head, C-4096-2048 with batch norm.

    It has shapes and no values: for counting.
    """
    with torch.device("meta"):
        head = [nn.Linear(backbone.feature_dim, 4096), nn.BatchNorm1d(4096), nn.ReLU(inplace=True)]
        return nn.Sequential(_on_meta(backbone), GlobalPool(), *head, nn.Linear(4096, 2048))


def compute_table(
    architectures: Sequence[str],
    cuts: Sequence[int] | None = None,
    *,
    client_batches: Sequence[int] = (1, 128),
    image_size: int = 32,
    width: int = 64,
    norm: str = "group",
) -> pd.DataFrame:
    """Computation and memory of a client of FL-SSL, which trains the whole model, and of MocoSFL (Fig. 3(b)).

    Args:
        architectures: names for :func:`~fssl_core.models.build_backbone`.
        cuts: labels of cuts; all that an architecture has unless given.
        client_batches: batch sizes of MocoSFL's client; 1 is the paper's micro-batch.
        norm: of the backbone in both; the authors use ``"batch"`` in FL-MoCo and ``"group"`` in MocoSFL.

    Returns:
        Columns ``architecture``, ``norm``, ``image_size``, ``scheme`` (``"FL-SSL"`` or ``"MocoSFL"``), ``cut_layer``
        (missing for the whole model), ``batch``, ``forward_macs`` and ``training_macs`` of one image,
        ``share_of_whole`` (fraction of the forward MACs), the fields of :class:`Memory`, and their sum
        ``memory_bytes``.

    Raises:
        SettingError: unknown architecture, cut or norm, or a batch below 1.
    """
    rows = []
    for architecture in architectures:
        backbone = build_backbone(architecture, width=width, norm=norm, image_size=image_size, values=False)
        shape = (backbone.channels, image_size, image_size)
        whole = fl_moco_model(backbone)
        whole_macs = forward_macs(whole, shape).total
        parts = [("FL-SSL", None, whole, [WHOLE_BATCH])]
        for cut_layer in cuts or cut_layers(backbone):
            parts.append(("MocoSFL", cut_layer, cut(backbone, cut_layer)[0], client_batches))
        for scheme, cut_layer, module, batches in parts:
            macs = forward_macs(module, shape).total
            for batch in batches:
                memory = training_memory(module, shape, batch)
                rows.append(
                    {
                        "architecture": architecture,
                        "norm": norm,
                        "image_size": image_size,
                        "scheme": scheme,
                        "cut_layer": cut_layer,
                        "batch": batch,
                        "forward_macs": macs,
                        "training_macs": MOCOSFL_PASSES * macs,
                        "share_of_whole": macs / whole_macs,
                        **asdict(memory),
                        "memory_bytes": memory.total_bytes,
                    }
                )
    return pd.DataFrame(rows).astype({"cut_layer": "Int64"})


def _on_meta(module: nn.Module) -> nn.Module:
    """A copy with shapes and no values, whose forward pass computes nothing."""
    return copy.deepcopy(module).to("meta")


def _inputs(module: nn.Module, input_shape: Sequence[int], batch: int) -> Tensor:
    """A batch without values, of the module's device and type."""
    like = next(module.parameters())
    return torch.empty(batch, *input_shape, dtype=like.dtype, device=like.device)
