"""Convolutions and normalisations that run one model, or all client models of a federation in one call.

The layers are PyTorch's own, with its parameter shapes and state dict. In addition their parameters may carry one
more leading dimension, ``[clients, *shape]``: the layer then stands for one layer per client, and activations are
``[batch, clients * channels, H, W]``, all channels of client 0 first. Convolutions become grouped convolutions, and
a normalisation over ``clients * channels`` channels is a normalisation per client.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fssl_core.devices import multiplies_bfloat16
from fssl_core.models.twin_norm import TwinNorm, groups_of
from fssl_core.settings import check_choice

NORMS = ("group", "batch", "twin")
CHANNELS_PER_GROUP = 4  # MocoSFL, Appendix A.1


def standardize(weight: Tensor) -> Tensor:
    """Weight standardisation (Qiao et al., 2019): ``(w - mean) / std`` of every filter, ``std`` being unbiased.

    One fused kernel. ``layer_norm`` divides by the biased deviation, which the constant gain turns into the unbiased
    one; ``eps`` stands under the root where the authors of MocoSFL add 1e-5 to the deviation.

    Args:
        weight: filters ``[..., out, in / groups, height, width]``.
    """
    filter_shape = weight.shape[-3:]
    size = filter_shape.numel()
    gain = weight.new_full(filter_shape, ((size - 1) / size) ** 0.5)
    return F.layer_norm(weight, filter_shape, gain, eps=1e-10)


def _grouped(weight: Tensor, bias: Tensor | None, groups: int) -> tuple[Tensor, Tensor | None, int]:
    """Filters, bias and groups of all clients as those of one grouped convolution; of one model, as they are.

    Stacked filters are ``[clients, out, in / groups, height, width]``, of a transposed convolution
    ``[clients, in, out / groups, height, width]``.
    """
    if weight.dim() == 4:
        return weight, bias, groups
    return weight.flatten(0, 1), None if bias is None else bias.flatten(), groups * weight.shape[0]


def _in_bfloat16_on_a_cpu(x: Tensor) -> bool:
    """With instructions for it; float32's kernels, which others use, corrupt the heap at this layout (PyTorch 2.15)."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and multiplies_bfloat16()


class Conv2d(nn.Conv2d):
    """Convolution that keeps the image size at stride 1, with standardised filters on request.

    Args:
        standardize: apply :func:`standardize` to the weight in every forward pass.
        channels_last: where a CPU has instructions for bfloat16 and computes one model in it, take and give maps whose
            channels lie side by side. What follows must keep that layout, as batch norm does; group norm is slow on it
            (CPU, PyTorch 2.15).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        *,
        groups: int = 1,
        bias: bool = False,
        standardize: bool = False,
        channels_last: bool = False,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, groups=groups, bias=bias
        )
        self.standardize, self.channels_last = standardize, channels_last

    def forward(self, x: Tensor) -> Tensor:
        if self.channels_last and self.weight.dim() == 4 and _in_bfloat16_on_a_cpu(x):
            x = x.contiguous(memory_format=torch.channels_last)
        weight = standardize(self.weight) if self.standardize else self.weight
        weight, bias, groups = _grouped(weight, self.bias, self.groups)
        if groups == x.shape[1] > 1 and self.stride > (1, 1) and _in_bfloat16_on_a_cpu(x):
            # Depthwise and strided: oneDNN's backward pass in bfloat16 takes 5 to 30 times as long as in float32.
            with torch.autocast("cpu", enabled=False):
                bias = None if bias is None else bias.float()
                out = F.conv2d(x.float(), weight.float(), bias, self.stride, self.padding, self.dilation, groups)
            return out.bfloat16()
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", standardize=True" if self.standardize else "")


class ConvTranspose2d(nn.ConvTranspose2d):
    """Transposed convolution, of an odd kernel, that multiplies the image size by its stride."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        *,
        bias: bool = False,
    ) -> None:
        sizes = {"padding": kernel_size // 2, "output_padding": stride - 1}
        super().__init__(in_channels, out_channels, kernel_size, stride, **sizes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, groups = _grouped(self.weight, self.bias, self.groups)
        return F.conv_transpose2d(
            x, weight, bias, self.stride, self.padding, self.output_padding, groups, self.dilation
        )


class GroupNorm(nn.GroupNorm):
    """Group normalisation, of four channels per group unless told; one group where that does not divide them."""

    def __init__(self, channels: int, channels_per_group: int = CHANNELS_PER_GROUP) -> None:
        super().__init__(groups_of(channels, channels_per_group), channels)

    def forward(self, x: Tensor) -> Tensor:
        clients = self.weight.numel() // self.num_channels
        return F.group_norm(x, clients * self.num_groups, self.weight.flatten(), self.bias.flatten(), self.eps)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation, with statistics per client when stacked.

    ``num_batches_tracked`` is a float, unlike PyTorch's, so that all buffers of a client fit in one float matrix. It
    stays in the state dict because the papers count it among the values that a client sends.
    """

    def __init__(self, channels: int, *, affine: bool = True) -> None:
        super().__init__(channels, affine=affine)
        self.num_batches_tracked = self.num_batches_tracked.to(torch.get_default_dtype())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.num_batches_tracked.add_(1)
        weight, bias = (None if value is None else value.flatten() for value in (self.weight, self.bias))
        mean, variance = self.running_mean.view(-1), self.running_var.view(-1)  # not copies: training updates them
        return F.batch_norm(x, mean, variance, weight, bias, self.training, self.momentum, self.eps)


def norm_layer(
    kind: str, channels: int, channels_per_group: int | None = None, variance: str = "pooled"
) -> GroupNorm | BatchNorm2d | TwinNorm:
    """The normalisation ``"group"``, ``"batch"`` or ``"twin"`` (of two views in one batch: see :class:`TwinNorm`).

    Args:
        kind: which one. The convolution before a group norm is standardised, see :func:`conv_norm`.
        channels: of the map.
        channels_per_group: of group and twin norm, or all channels where it does not divide them; None: 4 and 8.
        variance: of twin norm.

    Raises:
        SettingError: for another kind, or a value that cannot be used.
    """
    check_choice("norm", kind, NORMS)
    if kind == "batch":
        return BatchNorm2d(channels)
    grouping = {} if channels_per_group is None else {"channels_per_group": channels_per_group}
    return GroupNorm(channels, **grouping) if kind == "group" else TwinNorm(channels, variance=variance, **grouping)


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether what a module makes of an image depends on the others in the batch, by a batch norm."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def conv_norm(
    norm: str,
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    *,
    groups: int = 1,
    bias: bool = False,
) -> nn.Sequential:
    """A convolution and its normalisation: standardised filters if and only if group norm follows."""
    options = {"groups": groups, "bias": bias, "standardize": norm == "group", "channels_last": norm == "batch"}
    conv = Conv2d(in_channels, out_channels, kernel_size, stride, **options)
    return nn.Sequential(conv, norm_layer(norm, out_channels))
