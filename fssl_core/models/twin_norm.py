"""Twin normalization: group norm whose statistics come from both augmented views of an image.

MFCL: Motamedi and Kim, "Modular federated contrastive learning with twin normalization for resource-limited clients",
Section 3.3, Equations 2 and 3; Table 18 is a listing in TensorFlow. A batch ``[2K, C, H, W]`` holds K first views, then
the K second views of the same images. Image i of each half and Lambda channels share one mean and one variance.

Equation and listing are not the same, and neither is complete:

- The variance of Equation 2 is taken around the mean of both views (``"pooled"``, the default here). The listing takes
  the mean of the two views' own variances (``"mean"``), which leaves out ((mean_1 - mean_2) / 2)^2.
- Read literally, Equation 2 has one mean per pixel, as it adds up maps, and its variance has the squared norm of a map,
  a sum over pixels (``"equation"``). Both others, as the listing, are means over pixels, too.
- Epsilon of 1e-5, and a scale and a shift for each channel, come from the listing; Equation 3 has no epsilon.

In all three the two views are opposite behind the norm, group by group, and with ``"equation"`` pixel by pixel, too.
How views are normalised that are *sent* neither says: together, or apart (:mod:`fssl_core.training.representations`).

Open in the paper, and chosen here: where Lambda does not divide the number of channels, they are one group; and an
image without a second view, as in inference, is its own twin, which makes this group norm unless it is ``"equation"``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.settings import check_choice, check_range

VARIANCES = ("pooled", "mean", "equation")
CHANNELS_PER_GROUP = 8  # Lambda; with 16 the best of Table 17


def groups_of(channels: int, channels_per_group: int) -> int:
    """Groups of so many channels each, of group and twin norm; one where that does not divide the channels."""
    check_range("channels_per_group", channels_per_group, low=1)
    return 1 if channels % channels_per_group else channels // channels_per_group


class TwinNorm(nn.GroupNorm):
    """Twin normalization of ``[2K, C, H, W]``; parameters and their names are those of group norm.

    In training mode the halves of a batch are twins. In evaluation mode an image is its own twin, so that what comes
    out does not depend on what else is in the batch; see :func:`paired`.

    Args:
        channels: C. Parameters may carry a leading dimension of clients, see :mod:`fssl_core.models.layers`.
        channels_per_group: Lambda, of each view.
        variance: ``"pooled"``, Equation 2 with means over pixels; ``"mean"``, Table 18; ``"equation"``, Equation 2 as
            it is written, whose output is smaller by the root of the number of pixels.

    Raises:
        SettingError: an argument that cannot be used; in the forward pass, an odd batch where halves are twins.
    """

    def __init__(self, channels: int, channels_per_group: int = CHANNELS_PER_GROUP, variance: str = "pooled") -> None:
        check_choice("variance", variance, VARIANCES)
        super().__init__(groups_of(channels, channels_per_group), channels)
        self.variance = variance
        self.paired = False  # in evaluation mode

    def forward(self, x: Tensor) -> Tensor:
        groups = self.weight.numel() // self.num_channels * self.num_groups  # of all clients
        weight, bias = self.weight.flatten(), self.bias.flatten()
        together = self.training or self.paired
        if not together and self.variance != "equation":
            return F.group_norm(x, groups, weight, bias, self.eps)
        if together and x.shape[0] % 2:
            expected = "an even number: K first views, then the K second views of the same images, in one batch"
            raise SettingError("batch", x.shape[0], expected)
        twins = x.unflatten(0, (2 if together else 1, -1)).unflatten(2, (groups, -1))  # [2, K, G, Lambda, H, W]
        weight, bias = (value.view(groups, -1, 1, 1) for value in (weight, bias))  # [G, Lambda, 1, 1]
        if self.variance == "pooled":
            out = self._pooled(twins, weight, bias)
        else:
            normalise = self._mean if self.variance == "mean" else self._equation
            out = normalise(twins.to(weight.dtype), weight, bias)  # autocast gives it bfloat16
        return out.reshape(x.shape)

    def _pooled(self, twins: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Group norm in which a view's channels are followed by the other's: one fused call for two copies."""
        together = twins.permute(1, 2, 0, 3, 4, 5)  # [K, G, 2, Lambda, H, W]
        flat = together.flatten(1, 3)  # [K, G * 2 * Lambda, H, W]
        weight, bias = (value.expand(-1, 2, -1, -1, -1).flatten() for value in (weight[:, None], bias[:, None]))
        return F.group_norm(flat, twins.shape[2], weight, bias, self.eps).view(together.shape).permute(2, 0, 1, 3, 4, 5)

    def _mean(self, twins: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        variances, means = torch.var_mean(twins, dim=(3, 4, 5), correction=0, keepdim=True)  # [2, K, G, 1, 1, 1]
        scale = (variances.mean(0) + self.eps).rsqrt() * weight  # [K, G, Lambda, 1, 1]
        return torch.addcmul(bias - means.mean(0) * scale, twins, scale)

    def _equation(self, twins: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        deviation = twins - twins.mean((0, 3), keepdim=True)  # from a mean [1, K, G, 1, H, W]
        variance = deviation.square().sum((4, 5), keepdim=True).mean((0, 3), keepdim=True)  # [1, K, G, 1, 1, 1]
        return torch.addcmul(bias, deviation, (variance + self.eps).rsqrt() * weight)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, variance={self.variance}"


def _twin_norms(module: nn.Module) -> list[TwinNorm]:
    return [layer for layer in module.modules() if isinstance(layer, TwinNorm)]


def needs_pairs(module: nn.Module) -> bool:
    """Whether a module must see both views of its images in one batch, ``[2K, ...]``, when it is trained."""
    return bool(_twin_norms(module))


@contextmanager
def paired(module: nn.Module) -> Iterator[None]:
    """Within it the halves of a batch are twins in evaluation mode, too: for representations of two views.

    It does nothing to modules without twin normalization.
    """
    before = [(layer, layer.paired) for layer in _twin_norms(module)]
    for layer, _ in before:
        layer.paired = True
    try:
        yield
    finally:
        for layer, value in before:
            layer.paired = value
