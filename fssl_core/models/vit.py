"""Vision transformer (Dosovitskiy et al., ICLR 2021) as LW-FedSSL trains it, as units that can be cut apart.

LW-FedSSL: Tun et al., "LW-FedSSL: resource-efficient layer-wise federated self-supervised learning", Section 4.1
(ViT-Tiny of 12 blocks) and Table 11 (patches of 4, 8 and 16 pixels). What the paper leaves open follows from the
traffic and the FLOPs that it prints, see ``papers/data/accounting_conventions.md``, Section 1.1: width 192, 3 heads, an
MLP of 4 times the width, no class token, no bias in the projection to queries, keys and values, and positions that are
not trained: the sine-cosine table of MoCo-v3's code (Chen et al., ICCV 2021).

Choices of ours: the final norm acts on every token and the features are the mean of the tokens; first values are those
of timm. Activations between units are maps ``[B, D, h, w]``, a channel for each of the D numbers of a token, as in any
other backbone. In memory they lie as ``[B, h * w, D]``, so that a block sees its tokens without a copy.

Runs one model, or one client of a federation at a time: linear layers do not take the weights of all clients at once.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import SettingError
from fssl_core.models.cutting import Backbone

NORM = "layer"
VITS = {"vit-tiny": 12, "vit6": 6, "vit4": 4}  # name: blocks; the short ones are for small profiles
HEADS = 3
EPSILON = 1e-6  # of layer norm, as in timm and MoCo-v3; PyTorch's default is 1e-5


def patch_size(image_size: int) -> int:
    """Side of a patch in pixels, as in LW-FedSSL: 4 up to 64 px, 8 up to 128 px, 16 for larger images (Table 11)."""
    return 4 if image_size <= 64 else 8 if image_size <= 128 else 16


def sine_cosine_positions(rows: int, columns: int, width: int) -> Tensor:
    """The table of MoCo-v3: a quarter of the numbers each for sine and cosine of the row, and of the column.

    Frequencies fall from 1 towards 1/10,000 per patch.

    Args:
        rows, columns: patches in each direction.
        width: numbers of a token, a multiple of 4.

    Returns:
        float32 ``[rows * columns, width]``, row by row, on the CPU.
    """
    frequencies = 10_000 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    row, column = torch.meshgrid(torch.arange(rows).double(), torch.arange(columns).double(), indexing="ij")
    angles = [coordinate.reshape(-1, 1) * frequencies for coordinate in (row, column)]  # each [N, width / 4]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1).float()


def to_tokens(x: Tensor) -> Tensor:
    """Tokens ``[B, h * w, D]`` of a map ``[B, D, h, w]``, row by row."""
    return x.flatten(2).transpose(1, 2)


def to_map(tokens: Tensor, like: Tensor) -> Tensor:
    """The inverse of :func:`to_tokens`: a map of the size of ``like``."""
    return tokens.transpose(1, 2).unflatten(2, like.shape[2:])


class PatchEmbedding(nn.Module):
    """One linear layer on every patch, plus the table of positions; ``[B, C, H, W]`` to ``[B, D, h, w]``.

    The positions are a buffer: they are in the state, and so in what a whole-model transfer counts, but not trained.
    """

    def __init__(self, channels: int, width: int, patch: int, image_size: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, patch, stride=patch)
        self.register_buffer("positions", torch.empty((image_size // patch) ** 2, width))  # [N, D]

    def forward(self, images: Tensor) -> Tensor:
        if self.projection.weight.dim() > 4:
            raise SettingError("backend", "stacked", "'loop': a vision transformer runs one client at a time")
        x = self.projection(images)  # [B, D, h, w]
        tokens, positions = to_tokens(x), self.positions
        if tokens.shape[1] != len(positions):
            side = math.isqrt(len(positions)) * self.projection.stride[0]
            expected = f"images of {side} x {side} pixels, for which the transformer's positions were made"
            raise SettingError("image_size", tuple(images.shape[2:]), expected)
        return to_map(tokens.contiguous() + positions, x)


class Block(nn.Module):
    """Pre-norm transformer block on maps ``[B, D, h, w]``: attention over all positions, then an MLP on each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=EPSILON)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=EPSILON)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = to_tokens(x)  # [B, N, D]
        tokens = tokens + self.attention(self.norm1(tokens))
        tokens = tokens + self.fc2(F.gelu(self.fc1(self.norm2(tokens))))
        return to_map(tokens, x)

    def attention(self, tokens: Tensor) -> Tensor:
        """Multi-head self-attention, ``[B, N, D]`` to ``[B, N, D]``."""
        q, k, v = self.qkv(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [B, heads, N, d]
        return self.proj(attention(q, k, v).transpose(1, 2).flatten(2))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of queries to keys and values, each ``[B, heads, N, d]``.

    Written out for bfloat16 on a CPU, where the backward pass of PyTorch's takes five times as long for few tokens.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return (q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)).softmax(3).to(v.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v)


class MapNorm(nn.LayerNorm):
    """Layer norm of each token of a map ``[B, D, h, w]``."""

    def forward(self, x: Tensor) -> Tensor:
        return to_map(super().forward(to_tokens(x)), x)


def vit(
    name: str,
    *,
    width: int,
    norm: str,
    image_size: int,
    channels: int,
    depth: int,
    heads: int = HEADS,
    patch: int | None = None,
) -> Backbone:
    """A vision transformer with units ``embed``, ``block_0``, ``block_1``, ..., ``norm``.

    Args:
        width: channels of one head, a multiple of 4; with 64 and three heads a token has the paper's 192 numbers.
        norm: ``"layer"``, the only one.
        image_size: side in pixels, a multiple of the patch.
        depth: number of blocks.
        heads: of the attention.
        patch: side in pixels; None: :func:`patch_size`.

    Raises:
        SettingError: another norm, or images that cannot be divided into patches.
    """
    patch = patch_size(image_size) if patch is None else patch
    if norm != NORM:
        raise SettingError("norm", norm, f"{NORM!r}, the normalisation of a vision transformer")
    if image_size % patch:
        raise SettingError("image_size", image_size, f"a multiple of {patch}, the patches of {name} in pixels")
    size = heads * width
    units: dict[str, nn.Module] = {"embed": PatchEmbedding(channels, size, patch, image_size)}
    for index in range(depth):
        units[f"block_{index}"] = Block(size, heads)
    units["norm"] = MapNorm(size, eps=EPSILON)
    return Backbone(units, name=name, feature_dim=size, channels=channels, image_size=image_size)


def initialise_vit_(backbone: Backbone, generator: torch.Generator) -> Backbone:
    """Fill all parameters and buffers of a vision transformer in place, as timm does, and return it.

    Linear layers: normal with deviation 0.02, truncated at 2, and zero biases; patch projection: PyTorch's default of a
    convolution; layer norms: the identity.

    Args:
        backbone: on the CPU.
        generator: on the CPU.
    """
    for layer in backbone.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.reset_parameters()
        elif isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Conv2d):
            bound = layer.weight[0].numel() ** -0.5
            for parameter in (layer.weight, layer.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
        elif isinstance(layer, PatchEmbedding):
            patches, width = layer.positions.shape
            side = math.isqrt(patches)
            layer.positions.copy_(sine_cosine_positions(side, side, width))
    return backbone
