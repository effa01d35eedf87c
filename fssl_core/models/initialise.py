"""First values of all parameters, drawn from a generator that is passed in: the global one is never touched."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from fssl_core.models.layers import Conv2d
from fssl_core.random import generator as make_generator

# Their own first values are constants.
DRAW_NOTHING = (nn.GroupNorm, nn.LayerNorm, nn.modules.batchnorm._NormBase, nn.PReLU)

M = TypeVar("M", bound=nn.Module)


def initialise_(module: nn.Module, generator: torch.Generator | None = None) -> nn.Module:
    """Fill all parameters and buffers of ``module`` in place and return it.

    As in the authors' code of MocoSFL and MonAcoSFL: Xavier-uniform weights and zero biases for linear layers and
    plain convolutions, PyTorch's default for standardised convolutions, ones and zeros for normalisations.

    Args:
        module: on the CPU, made of linear and (transposed) convolution layers, normalisations and PReLU.
        generator: on the CPU; without one, always the same numbers.

    Raises:
        TypeError: the module holds parameters or buffers of a layer for which there is no rule.
    """
    if generator is None:
        generator = make_generator(0, "initialise")
    for layer in module.modules():
        if isinstance(layer, DRAW_NOTHING):
            layer.reset_parameters()
        elif isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            if isinstance(layer, Conv2d) and layer.standardize:
                nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            else:
                nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]:  # would be what was in memory
            raise TypeError(f"no rule to initialise a {type(layer).__name__}: add one to models/initialise.py")
    return module


def build(make: Callable[[], M], generator: torch.Generator | None = None, fill: Callable = initialise_) -> M:
    """What ``make()`` returns, on the CPU, with the first values that ``fill(module, generator)`` gives it only."""
    with torch.device("meta"):  # layers draw default values when made, from the global generator: none on "meta"
        module = make()
    return fill(module.to_empty(device="cpu"), generator or make_generator(0, "initialise"))
