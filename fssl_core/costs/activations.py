"""Memory of a client that trains a vision transformer stage by stage: in closed form, and counted on a real run.

LW-FedSSL (Tun et al., arXiv:2401.11647), Tables 2, 3, 10 and 11, Fig. 5(a) and 8. Autograd keeps, from the forward
pass, what the backward pass of a trained block needs; a frozen block in front of it keeps nothing, and its output lives
on only as the input of the first trained block. So memory is affine in the number of trained blocks, and the frozen
ones cost their parameters: this is the paper's 0.30 of end-to-end for one block of twelve.

What cannot be compared are the printed gigabytes, peaks of a process on the authors' device: their constant part of
about 2 GB holds the libraries' own memory, workspaces and passing results, none of which arithmetic gives. What can
be compared is a block: 0.55 GB at 32 pixels and batch 512 is printed; mixed precision with explicit attention makes
0.505 here, and has the printed ratio between 64, 196 and 256 tokens, which float32 has not.

Of a ResNet there is no closed form here; :func:`~fssl_core.costs.compute.saved_bytes` counts one. Its first stage alone
keeps most of what the whole keeps, so that layer-wise training saves little at its peak (0.87 in Table 4).

Symbols: ``N`` tokens, ``D`` width, ``h`` attention heads. The norm, the heads and the optimiser are counted, the loss
is not: with InfoNCE it keeps two ``batch x batch`` tables.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fssl_core.costs.compute import Memory
from fssl_core.costs.parts import HEADS, PROJECTOR, build_model, token_count, total, vit
from fssl_core.federation.schedule import Stage
from fssl_core.settings import check_choice, check_range

ATTENTION = ("explicit", "fused")  # with or without a table of N x N weights for each head
PRECISIONS = {"float32": 4, "mixed": 2}  # bytes of what enters and leaves a product; mixed: autocast of CUDA to 16 bits
ADAM_STATES = 2  # values kept for a trained parameter
ATTENTION_HEADS = 3  # h, of ViT-Tiny


def block_saved_bytes(tokens: int, width: int = 192, *, attention: str = "explicit", precision: str = "float32") -> int:
    """What autograd keeps of one pre-norm transformer block for one view of one image, in bytes.

    In values of a token: input of each layer norm (2 D) with mean and deviation, its result that the linear layer
    keeps (2 D), query, key and value (3 D), the attention weights (h N) or, fused, their normaliser (h), the input of
    the output projection (D), the hidden layer before and after its activation (8 D). In mixed precision the residual
    stream and the softmax have 4 bytes, the weights a copy of 2 for the product, all else 2.

    Args:
        tokens: ``N``.
        width: ``D``.

    Raises:
        SettingError: another attention or precision.
    """
    check_choice("attention", attention, ATTENTION)
    check_choice("precision", precision, PRECISIONS)
    products = PRECISIONS[precision]
    norms = 2 * (4 * width + 4 * 2)
    linear = products * (2 * width + 3 * width + width + 2 * 4 * width)
    if attention == "fused":
        weights = 4 * ATTENTION_HEADS
    else:
        weights = (4 if precision == "float32" else 4 + 2) * ATTENTION_HEADS * tokens
    return tokens * (norms + linear + weights)


def head_saved_bytes(inputs: int, widths: Iterable[int], batch: int, *, output_norm: bool, precision: str) -> int:
    """What autograd keeps of a head (see :func:`~fssl_core.costs.parts.mlp_head`) for one batch of one view.

    Each layer's input; of a batch norm its input, and mean and deviation for the batch.
    """
    widths = list(widths)
    values = statistics = 0
    for number, width in enumerate(widths, start=1):
        normed = number < len(widths) or output_norm
        values += inputs + normed * width
        statistics += 2 * width * normed
        inputs = width
    return PRECISIONS[precision] * batch * values + 4 * statistics


def client_memory(
    stage: Stage,
    *,
    batch_size: int = 512,
    ssl_method: str = "MoCoV3",
    image_size: int = 32,
    patch_size: int = 4,
    width: int = 192,
    depth: int = 12,
    channels: int = 3,
    attention: str = "explicit",
    precision: str = "float32",
    shared_frozen: bool = False,
) -> Memory:
    """What a client holds in bytes when the forward passes of a training step of a stage end; a bound from below.

    Two views of each image pass through the online branch. The optimiser is AdamW, the target branch a copy of encoder
    and projection head where the method has one.

    Args:
        stage: from :func:`~fssl_core.federation.schedule.schedule`; what depth dropout leaves out counts nothing.
        batch_size: images in a step.
        attention: one of ``ATTENTION``.
        precision: a key of ``PRECISIONS``; parameters have 4 bytes in both.
        shared_frozen: the target branch uses the frozen units of the online branch, as in this package's engine. In
            Algorithm 2 it is a copy of them as well.

    Raises:
        SettingError: naming the argument that cannot be used.
    """
    check_range("batch_size", batch_size, low=1)
    encoder = vit(image_size, patch_size, width=width, depth=depth, channels=channels)
    model = build_model(encoder, ssl_method)
    tokens = token_count(image_size, patch_size)
    present = len(stage.present) - stage.dropped
    active = len(stage.active) - (0 if stage.frozen else stage.dropped)

    sub_model = total((encoder.stem, encoder.norm, *encoder.units[:present])).values + encoder.positions
    stem = encoder.stem.parameters if 0 in stage.active else 0
    trained = stem + total((encoder.norm, model.heads, *encoder.units[:active])).parameters
    target = 0 if ssl_method == "SimCLR" else sub_model + model.projector.values
    if target and shared_frozen and stage.frozen:
        target -= total((encoder.stem, *encoder.units[: present - active])).values + encoder.positions

    block = block_saved_bytes(tokens, width, attention=attention, precision=precision)
    images = PRECISIONS[precision] * channels * image_size**2 if 0 in stage.active else 0
    norm = tokens * (4 * width + 4 * 2)
    heads = head_saved_bytes(width, PROJECTOR, batch_size, output_norm=True, precision=precision)
    heads += head_saved_bytes(PROJECTOR[-1], HEADS[ssl_method], batch_size, output_norm=False, precision=precision)
    return Memory(
        model_bytes=4 * (sub_model + model.heads.values),
        gradient_bytes=4 * trained,
        optimiser_bytes=4 * ADAM_STATES * trained,
        momentum_model_bytes=4 * target,
        saved_bytes=2 * (batch_size * (active * block + images + norm) + heads),
    )


class SavedActivations(saved_tensors_hooks):
    """Counts, while real training steps run, the bytes that autograd keeps, and the most that it kept at one time.

    ``with SavedActivations(excluded=model.state_dict().values()) as saved: step()``, then ``saved.peak_bytes``. Each
    piece of memory counts once, however many operations keep it, until the last of them lets go of it. It sees real
    tensors: for a count without running anything, see :func:`~fssl_core.costs.compute.saved_bytes`.

    Args:
        excluded: tensors that do not count: parameters and buffers.

    Attributes:
        live_bytes: kept now.
        peak_bytes: most that was kept at one time.
    """

    def __init__(self, excluded: Iterable[Tensor] = ()) -> None:
        super().__init__(self._pack, lambda kept: kept())
        self.live_bytes = self.peak_bytes = 0
        self._excluded = {value.untyped_storage().data_ptr() for value in excluded}
        self._keepers: Counter[int] = Counter()  # how many operations keep a piece of memory

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def _pack(self, value: Tensor) -> Callable[[], Tensor]:
        """What autograd holds in place of a tensor: when it is gone, so is the reason to keep the tensor."""

        def kept() -> Tensor:
            return value

        storage = value.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if size and address not in self._excluded:
            if not self._keepers[address]:
                self.live_bytes += size
                self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            self._keepers[address] += 1
            weakref.finalize(kept, self._release, address, size).atexit = False
        return kept

    def _release(self, address: int, size: int) -> None:
        self._keepers[address] -= 1
        if not self._keepers[address]:
            self.live_bytes -= size
