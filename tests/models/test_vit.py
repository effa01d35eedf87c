"""The vision transformer against PyTorch's own blocks, and its sizes against those that the papers' tables imply."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.vision_transformer import EncoderBlock

from fssl_core.costs.compute import forward_macs
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import GlobalPool, build_backbone, cut, cut_layers, latent_shape, norms_of
from fssl_core.models.vit import (
    Block,
    MapNorm,
    PatchEmbedding,
    attention,
    initialise_vit_,
    patch_size,
    sine_cosine_positions,
    to_map,
    to_tokens,
    vit,
)
from fssl_core.random import generator
from fssl_core.training.averaging import AveragingSettings


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def small(**changes):
    return build_backbone(**({"name": "vit4", "width": 8, "norm": "layer", "image_size": 16} | changes))


def images(count=2, size=16, channels=3):
    return torch.randn(count, channels, size, size, generator=generator(0, "images"))


@pytest.mark.parametrize(
    ("image_size", "patch", "tokens", "projection"),
    [(32, 4, 64, 9_408), (64, 4, 256, 9_408), (128, 8, 256, 37_056), (224, 16, 196, 147_648)],
)
def test_vit_tiny_has_the_sizes_that_the_papers_tables_imply(image_size, patch, tokens, projection):
    backbone = build_backbone("vit-tiny", norm="layer", image_size=image_size)
    assert patch_size(image_size) == patch
    assert [name for name, _ in backbone.named_children()] == ["embed", *(f"block_{i}" for i in range(12)), "norm"]
    assert parameters(backbone.embed) == 3 * patch**2 * 192 + 192 == projection
    assert {parameters(backbone.get_submodule(f"block_{i}")) for i in range(12)} == {444_288}
    assert parameters(backbone.norm) == 384
    assert {name: value.numel() for name, value in backbone.named_buffers()} == {"embed.positions": tokens * 192}
    matrix = ClientMatrix(backbone, 1)  # what a whole-model transfer counts
    assert matrix.elements == projection + tokens * 192 + 12 * 444_288 + 384
    assert backbone.feature_dim == 192


def test_vit_tiny_costs_what_the_papers_tables_imply():
    backbone = build_backbone("vit-tiny", norm="layer")
    side, width = 8, 192
    block = 64 * 12 * width**2 + 2 * 64**2 * width + 10 * 64 * width
    assert forward_macs(backbone.block_0, (width, side, side)).total == block == 30_007_296
    assert forward_macs(backbone.embed, (3, 32, 32)).total == 64 * 48 * width == 589_824
    final_norm = 5 * 64 * width
    assert forward_macs(backbone, (3, 32, 32)).total == 589_824 + 12 * block + final_norm


TORCHVISION = {
    "norm1": "ln_1.", "qkv": "self_attention.in_proj_", "proj": "self_attention.out_proj.",
    "norm2": "ln_2.", "fc1": "mlp.0.", "fc2": "mlp.3.",
}  # fmt: skip


def test_a_block_equals_torchvisions():
    ours = Block(24, heads=3).double()
    theirs = EncoderBlock(num_heads=3, hidden_dim=24, mlp_dim=96, dropout=0.0, attention_dropout=0.0).double()
    state = {"self_attention.in_proj_bias": torch.zeros(72)}
    for index, (name, parameter) in enumerate(ours.named_parameters()):
        nn.init.normal_(parameter, generator=generator(0, "block", index))
        module, _, leaf = name.partition(".")
        state[TORCHVISION[module] + leaf] = parameter.detach()
    theirs.load_state_dict(state)
    tokens = torch.randn(2, 15, 24, generator=generator(0, "tokens"), dtype=torch.float64)
    x = tokens.transpose(1, 2).reshape(2, 24, 3, 5)  # a map as convolutions lay it out
    torch.testing.assert_close(to_tokens(ours(x)), theirs(tokens), rtol=0, atol=1e-10)


def test_attention_in_bfloat16_is_pytorchs_and_so_are_its_gradients():
    """Written out on a CPU; compared in float64, as near as the digits of bfloat16 allow."""
    rows = torch.randn(4, 2, 3, 15, 8, generator=generator(0, "attention"), dtype=torch.float64)
    results = []
    for dtype in (torch.bfloat16, torch.float64):
        q, k, v, direction = (row.to(torch.bfloat16).to(dtype).requires_grad_() for row in rows)
        values = attention(q, k, v) if dtype is torch.bfloat16 else F.scaled_dot_product_attention(q, k, v)
        assert values.dtype == dtype
        gradients = torch.autograd.grad((values * direction).sum(), (q, k, v))
        results.append([tensor.double() for tensor in (values, *gradients)])
    for ours, exact in zip(*results, strict=True):
        assert (ours - exact).norm() < 0.01 * exact.norm()


def test_tokens_and_maps_are_inverse_and_go_row_by_row():
    x = torch.arange(24).view(1, 2, 3, 4)
    tokens = to_tokens(x)
    assert tokens.shape == (1, 12, 2)
    assert tokens[0, 5].tolist() == x[0, :, 1, 1].tolist()
    assert torch.equal(to_map(tokens, x), x)


def test_positions_are_the_table_of_moco_v3():
    rows, columns, width = 3, 5, 12
    table = sine_cosine_positions(rows, columns, width)
    assert table.shape == (15, 12)
    for row in range(rows):
        for column in range(columns):
            waves = [
                wave(place / 10_000 ** (i / 3)) for place in (row, column) for wave in (math.sin, math.cos)
                for i in range(3)
            ]  # fmt: skip
            assert table[row * columns + column].tolist() == pytest.approx(waves, abs=1e-6)


def test_a_patch_is_seen_at_its_place_by_one_linear_layer():
    embed = small(channels=1).embed
    x = images(1, channels=1)
    out = embed(x)
    assert out.shape == (1, 24, 4, 4)
    patch = x[0, 0, 4:8, 8:12].flatten()  # row 1, column 2
    expected = embed.projection.weight.flatten(1) @ patch + embed.projection.bias + embed.positions[1 * 4 + 2]
    torch.testing.assert_close(out[0, :, 1, 2], expected)


def test_final_norm_is_pytorchs_on_each_token():
    norm = MapNorm(6, eps=1e-6)
    nn.init.normal_(norm.weight, generator=generator(0, "weight"))
    x = torch.randn(2, 6, 3, 3, generator=generator(0, "x"))
    expected = nn.functional.layer_norm(x.permute(0, 2, 3, 1), (6,), norm.weight, norm.bias, 1e-6)
    torch.testing.assert_close(norm(x), expected.permute(0, 3, 1, 2))


def test_units_can_be_cut_apart_and_tokens_are_not_copied_between_them():
    backbone = small()
    x = images()
    assert cut_layers(backbone) == (1, 3, 5, 7, 9, 11)
    for label in cut_layers(backbone):
        client, server = cut(backbone, label)
        latent = client(x)
        assert tuple(latent.shape[1:]) == latent_shape(backbone, label) == (24, 4, 4)
        assert to_tokens(latent).is_contiguous()
        assert torch.equal(server(latent), backbone(x))
    assert small(name="vit6", image_size=8, channels=1)(images(2, 8, 1)).shape == (2, 24, 2, 2)


def test_trains_as_a_matrix_of_one_row_and_repeats_to_the_bit():
    def train():
        matrix = ClientMatrix(nn.Sequential(small(), GlobalPool()), 1).requires_grad_()
        module, before = matrix.module(), matrix.weights.detach().clone()
        optimizer = torch.optim.AdamW([matrix.weights], lr=0.01, fused=True)
        for _ in range(3):
            module(images()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        assert module(images()).shape == (2, 24)
        assert (matrix.weights != before).float().mean() > 0.9
        torch.testing.assert_close(matrix.blocks["0.embed.positions"][0], sine_cosine_positions(4, 4, 24))
        return matrix.weights.detach()

    assert torch.equal(train(), train())


def test_first_values_are_timms_and_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (small(width=64, generator=generator(0, "model", key)).state_dict() for key in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["block_0.qkv.weight"], other["block_0.qkv.weight"])
    assert not torch.equal(first["block_0.qkv.weight"], first["block_1.qkv.weight"])
    for name, value in first.items():
        if "norm" in name:
            assert (value == ("weight" in name)).all(), name
        elif "projection" in name:
            bound = 48**-0.5  # PyTorch's default of a convolution: within 1 / sqrt(inputs)
            assert value.abs().max() <= bound
            assert value.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
        elif name.endswith("bias"):
            assert not value.any(), name
        elif name.endswith("weight"):
            assert value.std().item() == pytest.approx(0.02, rel=0.05), name
    assert torch.equal(first["embed.positions"], sine_cosine_positions(4, 4, 192))
    refilled = initialise_vit_(small(width=64), generator(0, "model", 0)).state_dict()
    assert all(torch.equal(value, first[name]) for name, value in refilled.items())


def test_an_encoder_of_a_federation_is_a_vit():
    settings = AveragingSettings(dataset="digits", architecture="vit4", width=4, norm="layer", batch=20)
    data = settings.load_data()
    encoder = settings.build_model(data).encoder
    assert isinstance(encoder[0].embed, PatchEmbedding)
    assert encoder(data.normalise(data.test.images[:3])).shape == (3, 12)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_transformer_with_another_norm_is_refused_and_so_is_layer_norm_elsewhere(norm):
    with pytest.raises(SettingError, match=f"norm='{norm}' cannot be used: expected one of layer: those of vit-tiny"):
        build_backbone("vit-tiny", norm=norm)
    with pytest.raises(SettingError, match="norm='layer' cannot be used: expected one of group, batch, twin"):
        build_backbone("resnet18", norm="layer")
    assert (norms_of("vit4"), norms_of("resnet18")) == (("layer",), ("group", "batch", "twin"))
    with pytest.raises(SettingError, match=f"norm='{norm}' cannot be used: expected 'layer'"):
        vit("vit", width=8, norm=norm, image_size=16, channels=3, depth=1)


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(SettingError, match="image_size=30 cannot be used: expected a multiple of 4, the patches of"):
        small(image_size=30)
    with pytest.raises(SettingError, match=r"image_size=\(20, 20\) cannot be used: expected images of 16 x 16 pixels"):
        small()(images(2, 20))
    with pytest.raises(SettingError, match="backend='stacked' cannot be used: expected 'loop': a vision transformer"):
        ClientMatrix(small(), 2).module()(images(2, 16, 6))
