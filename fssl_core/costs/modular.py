"""Traffic, memory and computation of a client of MFCL and of the end-to-end methods it is set against, in closed form.

Motamedi and Kim, "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients", TMLR,
Section 5.4, Equations 4 to 6, Tables 3, 9, 10 and 15. Everything is counted on modules without values; nothing but the
paper's settings is typed in. Three readings are needed beside them (``papers/data/accounting_conventions.md``):

- Equations 4 and 5 multiply by the code rate R = 1/3; the printed cells need its inverse, 3, the bits that a code of
  that rate puts on the channel. ``coding`` chooses: ``"literal"`` or ``"transmitted"``.
- The maps that are sent have the size of the image, as stated, although Tables 9 and 10 end in pooling; and they count
  once for each of the rho = 8 pairs of views, although two views of an image are two maps.
- Equation 6 takes the client module without its decoder.

Other cells come out only with sizes that contradict the text, or not at all: :mod:`fssl_core.costs.modular_cells` has
them all, ours beside the printed ones. No rule gives the column beta, so that :func:`epoch_macs` is a count of our own
and decides orders alone.

:func:`phase1_bytes` and :func:`phase2_bytes` count what this package's engine sends, for its ledger: no channel code,
both views, buffers as well as parameters.

Symbols: ``E`` parameters of the client module, ``A`` with its decoder, ``P`` of a whole backbone, ``D`` a client's
images. One multiply-add counts 1, unless a formula says FLOPs, which count it 2.
"""

import copy
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from fssl_core.costs.compute import forward_macs, nbytes
from fssl_core.costs.layerwise import TRAINED_PASSES, Exchange
from fssl_core.models.client_module import CUTS, client_module, decoder, plain_stack
from fssl_core.settings import check_choice, check_range

BITS_PER_VALUE = 32
CODINGS = {"literal": 1 / 3, "transmitted": 3}  # R of Eqs. 4 and 5 as written, and as the tables have it
VECTORS = 8  # rho: representation vectors of a client, each with two views of all its images
CLIENT_BATCH = 64  # K, Table 12
ROUNDS = {"FedEMA": 100, "FedSimCLR": 800, "MFCL": 15}  # T, Table 3


@dataclass(frozen=True)
class Setup:
    """What a block of Table 3 or 15 is about.

    Args:
        modules: architecture of the client module, a key of :data:`fssl_core.models.client_module.CUTS`.
        image_size: side in pixels.
        images: ``|D|`` of a client.
    """

    modules: str
    image_size: int
    images: int


SETUPS = {
    "ResNet-18": Setup("resnet18", 32, 5000),  # CIFAR-10, 10 clients
    "ResNet-50": Setup("resnet50", 64, 1000),  # Tiny ImageNet, 100 clients
    "VGG-16-BN": Setup("vgg16", 32, 5000),  # Section B.2.3: the same client module as with ResNet-18
}


# ---------------------------------------------------------------------------------------------------- what is counted


class Sizes(NamedTuple):
    """Values of a module: its parameters, and what it makes of one image.

    Args:
        conv_maps: outputs of its convolutions, transposed ones included.
        relu_maps: outputs of its activations.
        products: multiply-adds of its convolutions and linear layers, forward.
        macs: the same with normalisation and pooling, see :class:`~fssl_core.costs.compute.Macs`.
    """

    parameters: int
    conv_maps: int
    relu_maps: int
    products: int
    macs: int


def module_sizes(module: nn.Module, image_size: int) -> Sizes:
    """Sizes of a module for an image of three channels; nothing is computed and the module is not changed."""
    macs = forward_macs(module, (3, image_size, image_size))
    parameters = sum(value.numel() for value in module.parameters())
    module = copy.deepcopy(module).to("meta").eval()
    maps = dict.fromkeys((_ConvNd, nn.ReLU), 0)

    def count(layer: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        maps[_ConvNd if isinstance(layer, _ConvNd) else nn.ReLU] += output.numel()

    for layer in module.modules():
        if isinstance(layer, tuple(maps)):
            layer.register_forward_hook(count)
    with torch.no_grad():
        module(torch.empty(1, 3, image_size, image_size, device="meta"))
    return Sizes(parameters, maps[_ConvNd], maps[nn.ReLU], macs.products, macs.total)


@cache
def client_sizes(architecture: str, image_size: int | None = None, *, with_decoder: bool = False) -> Sizes:
    """Of the client module with twin norm that the paper cuts off, alone or with its decoder.

    Args:
        architecture: a key of ``SETUPS``.
        image_size: that of the setup unless given.

    Raises:
        SettingError: another architecture.
    """
    check_choice("architecture", architecture, SETUPS)
    setup = SETUPS[architecture]
    cut = (setup.modules, CUTS[setup.modules])
    module = client_module(*cut)
    if with_decoder:
        module = nn.Sequential(module, decoder(*cut))
    return module_sizes(module, image_size or setup.image_size)


@cache
def backbone_sizes(architecture: str, image_size: int | None = None, *, stem: str = "cifar") -> Sizes:
    """Of torchvision's backbone, which a client of the end-to-end methods trains.

    A ResNet is without its classifier, VGG-16-BN with it: only so it has the stated 138 million parameters.

    Args:
        architecture: a key of ``SETUPS``.
        image_size: that of the setup unless given.
        stem: of a ResNet: ``"cifar"``, 3x3 without pooling, or ``"imagenet"``, 7x7 stride 2 with pooling.

    Raises:
        SettingError: another architecture or stem.
    """
    check_choice("architecture", architecture, SETUPS)
    check_choice("stem", stem, ("cifar", "imagenet"))
    from torchvision import models  # a second, which only this table needs

    with torch.device("meta"):
        if architecture == "VGG-16-BN":
            model = models.vgg16_bn(init_weights=False)
        else:
            model = getattr(models, architecture.lower().replace("-", ""))()
            model.fc = nn.Identity()
            if stem == "cifar":
                model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
                model.maxpool = nn.Identity()
        return module_sizes(model, image_size or SETUPS[architecture].image_size)


# ---------------------------------------------------------------------------------------------------- the equations


def round_bits(down: int, up: int, coding: str = "transmitted") -> float:
    """Bits between a client and the gServer in one round: Eq. 4 with T = 1.

    Args:
        down: parameters that the client receives, ``|theta_fed|``.
        up: parameters that it sends, ``|theta_m|``.
        coding: a key of ``CODINGS``.

    Raises:
        SettingError: another coding.
    """
    check_choice("coding", coding, CODINGS)
    return (down + up) * BITS_PER_VALUE * CODINGS[coding]


def representation_values(height: int, width: int, channels: int, images: int, vectors: int = VECTORS) -> int:
    """Values that a client sends to the rServer by the paper's count: ``|z| x rho`` of Eq. 5.

    Args:
        images: ``|D|``.
        vectors: ``rho``.
    """
    return height * width * channels * images * vectors


def delivery_bits(values: int, coding: str = "transmitted") -> float:
    """Bits of phase 2, Eq. 5, for the values of :func:`representation_values`.

    Raises:
        SettingError: another coding.
    """
    check_choice("coding", coding, CODINGS)
    return values * BITS_PER_VALUE * CODINGS[coding]


def memory_bytes(sizes: Sizes, views: int = 2 * CLIENT_BATCH, bytes_per_value: int = 4, *, relu: bool = False) -> int:
    """Eq. 6: parameters, as many gradients and feature maps, all of them times the batch.

    (Parameters and gradients do not grow with the batch, so it is the paper's measure rather than a client's memory,
    for which see :func:`~fssl_core.costs.compute.training_memory`.)

    Args:
        views: ``2K``.
        relu: activations count among the maps, beside convolutions.
    """
    maps = sizes.conv_maps + relu * sizes.relu_maps
    return (2 * sizes.parameters + maps) * views * bytes_per_value


@dataclass(frozen=True)
class Traffic:
    """Of one client over the whole training; ``alpha = alpha_1 + alpha_2``.

    Args:
        bits_per_round: of phase 1.
        rounds: ``T``.
        representation_values: that are sent once.
        bits_phase2: ``alpha_2``.
    """

    bits_per_round: float
    rounds: int
    representation_values: int = 0
    bits_phase2: float = 0

    @property
    def alpha_bits(self) -> float:
        return self.rounds * self.bits_per_round + self.bits_phase2

    @property
    def exchanges(self) -> int:
        """How often the client uses the channel: once a round, and once to deliver its representations."""
        return self.rounds + (self.representation_values > 0)


def client_traffic(
    method: str, architecture: str, *, images: int | None = None, coding: str = "transmitted"
) -> Traffic:
    """Equations 4 and 5 with the sizes that the text states: auto-encoders both ways, maps without pooling.

    Args:
        method: a key of ``ROUNDS``; the end-to-end ones send the whole backbone.
        architecture: a key of ``SETUPS``.
        images: ``|D|``; that of the setup unless given.
        coding: a key of ``CODINGS``.

    Raises:
        SettingError: a name that is not known.
    """
    check_choice("method", method, ROUNDS)
    check_choice("architecture", architecture, SETUPS)
    if method != "MFCL":
        whole = backbone_sizes(architecture).parameters
        return Traffic(round_bits(whole, whole, coding), ROUNDS[method])
    both = client_sizes(architecture, with_decoder=True).parameters
    setup = SETUPS[architecture]
    channels = plain_stack(setup.modules, CUTS[setup.modules])[-1].out_channels
    images = setup.images if images is None else images
    values = representation_values(setup.image_size, setup.image_size, channels, images)
    return Traffic(round_bits(both, both, coding), ROUNDS[method], values, delivery_bits(values, coding))


def epoch_macs(method: str, architecture: str, *, stem: str = "cifar") -> int:
    """Multiply-adds of one local epoch: two views of each of a client's images, trained networks counted three times.

    FedEMA's target network goes forward once more. Heads and losses do not count. The paper says neither what its beta
    covers nor how it was counted: this is no reproduction of it.

    Args:
        method: a key of ``ROUNDS``.
        architecture: a key of ``SETUPS``.
        stem: of an end-to-end ResNet. The client modules begin as ``"cifar"`` does; with ``"imagenet"`` the order turns
            round, as the whole ResNet then costs less than MFCL's auto-encoder.

    Raises:
        SettingError: a name that is not known.
    """
    check_choice("method", method, ROUNDS)
    check_choice("architecture", architecture, SETUPS)
    if method == "MFCL":
        forward = client_sizes(architecture, with_decoder=True).macs
    else:
        forward = backbone_sizes(architecture, stem=stem).macs
    passes = TRAINED_PASSES + (method == "FedEMA")
    return 2 * SETUPS[architecture].images * passes * forward


# ---------------------------------------------------------------------------------------------------- our own engine


def phase1_bytes(autoencoder: nn.Module) -> Exchange:
    """What a client receives and sends in a round of phase 1, to the byte: parameters and buffers of both modules."""
    sent = nbytes(autoencoder.state_dict().values())
    return Exchange(down=sent, up=sent)


def phase2_bytes(map_shape: tuple[int, int, int], images: int, pairs: int = VECTORS) -> int:
    """What a client sends once, to the byte: the float32 maps of both views in every pair of every image.

    Args:
        map_shape: ``(channels, height, width)`` of the client module's output.
        images: of the client.
        pairs: of views for each image.

    Raises:
        SettingError: a negative number.
    """
    check_range("images", images, low=0)
    check_range("pairs", pairs, low=0)
    return 4 * 2 * pairs * images * prod(map_shape)
