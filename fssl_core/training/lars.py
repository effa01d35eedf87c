"""LARS: every weight tensor moves by a share of its own norm, so large batches can have large learning rates.

You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, Algorithm 1, with what
SimCLR's code makes of it (Chen et al., ICML 2020), on which that of MFCL is built: biases and the parameters of
normalisations have neither weight decay nor a rate of their own, and the learning rate is inside the momentum, so a
falling rate does not reach the steps that the momentum remembers.

Differs from SimCLR's code, as the paper does: the ratio divides by ``|g| + decay |w|`` and not by ``|g + decay w|``.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

from fssl_core.settings import check_range

TRUST_COEFFICIENT = 0.001  # eta, of the paper and of SimCLR's code


class LARS(Optimizer):
    """SGD with momentum whose rate is, for each weight tensor w with gradient g, ``learning rate * ratio``.

    ``ratio = eta |w| / (|g| + decay |w|)``; it is 1 where w is zero, and for vectors: biases, scales and shifts.

    Args:
        params: parameters, each one tensor of the model.
        lr: learning rate, at least 0.
        momentum: in [0, 1].
        weight_decay: added to the gradient as ``decay * w``, except to that of vectors.

    Raises:
        SettingError: a value outside its range.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, *, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        check_range("lr", lr, 0)
        check_range("momentum", momentum, 0, 1)
        check_range("weight_decay", weight_decay, 0)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One step with the gradients as they are; nothing makes the CPU wait for a GPU."""
        for group in self.param_groups:
            decay = group["weight_decay"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                update = w.grad * group["lr"]
                if w.dim() > 1:
                    size, slope = torch.linalg.vector_norm(w), torch.linalg.vector_norm(w.grad)
                    pull = slope + decay * size
                    ratio = torch.where((size > 0) & (pull > 0), TRUST_COEFFICIENT * size / pull, 1.0)
                    update.add_(w, alpha=group["lr"] * decay).mul_(ratio)
                state = self.state[w]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(w)
                w.sub_(state["momentum_buffer"].mul_(group["momentum"]).add_(update))
