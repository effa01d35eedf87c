"""Multiply-adds and memory: the settings file's numbers, hand formulas, and what PyTorch itself counts and keeps."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fssl_core.papers
from fssl_core.costs.compute import (
    MOCOSFL_PASSES,
    Memory,
    compute_table,
    fl_moco_model,
    forward_macs,
    saved_bytes,
    training_memory,
)
from fssl_core.errors import SettingError
from fssl_core.models import build_backbone, cut, cut_layers
from tests.costs.peak_memory import peak_memory

SETTINGS = yaml.safe_load(Path(fssl_core.papers.__path__[0], "data", "mocosfl_settings.yaml").read_text("utf-8"))
FVCORE = SETTINGS["official_code"]["flops_check"]
IMAGE = (3, 32, 32)


@pytest.fixture(scope="module")
def backbones():
    return {norm: build_backbone("resnet18", norm=norm) for norm in ("group", "batch")}


# Multiply-adds


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_totals_equal_the_authors_calculator(backbones, norm):
    whole = forward_macs(fl_moco_model(backbones[norm]), IMAGE).total
    client = {label: forward_macs(cut(backbones[norm], label)[0], IMAGE).total for label in (1, 3, 5)}
    assert whole == FVCORE[f"whole_{norm}_norm_largeV2_head"]
    assert round(100 * client[3] / whole, 2) == FVCORE["share_3_layers_percent"][f"{norm}_norm"]
    if norm == "group":
        for label, word in ((1, "layer"), (3, "layers"), (5, "layers")):
            assert client[label] == FVCORE[f"client_{label}_{word}_group_norm"]


def hand_count(backbone, side):
    """Products by k * k * in * out * height * width, following the strides of a ResNet of basic blocks by hand."""
    total = 0

    def conv(block, side):
        layer = block[0]
        side //= layer.stride[0]
        return side, layer.kernel_size[0] ** 2 * layer.in_channels * layer.out_channels * side**2

    for name, unit in backbone.named_children():
        if name == "stem":
            side, macs = conv(unit, side)
            total += macs
            continue
        if not isinstance(unit.shortcut, nn.Identity):
            total += conv(unit.shortcut, side)[1]
        for block in (unit.conv1, unit.conv2):
            side, macs = conv(block, side)
            total += macs
    return total


@pytest.mark.parametrize("image_size", [32, 64])
def test_products_equal_a_hand_formula(image_size):
    backbone = build_backbone("resnet10", width=8, image_size=image_size)
    macs = forward_macs(backbone, (3, image_size, image_size))
    assert macs.products == hand_count(backbone, image_size)
    assert macs.pooling == 0


def test_products_of_resnet18_are_half_of_what_a_real_pass_counts(backbones):
    backbone = backbones["group"]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        backbone(torch.zeros(2, *IMAGE))
    products = forward_macs(backbone, IMAGE).products
    assert 2 * products == counter.get_total_flops() / 2  # two flops per multiply-add, two images
    assert products == hand_count(backbone, 32) == 555_417_600


def test_normalisation_counts_five_or_two_per_element(backbones):
    # stem and layer1: five maps of 64 x 32 x 32; then five maps a stage with the shortcut's, each half as large
    elements = 5 * 65536 + 5 * (32768 + 16384 + 8192)
    assert forward_macs(backbones["group"], IMAGE).normalisation == 5 * elements
    assert forward_macs(backbones["batch"], IMAGE).normalisation == 2 * elements
    plain = [nn.LayerNorm(6, elementwise_affine=False), nn.BatchNorm1d(6, affine=False), nn.Linear(6, 1)]
    assert forward_macs(nn.Sequential(*plain), (6,)).normalisation == 4 * 6 + 1 * 6
    head = forward_macs(fl_moco_model(backbones["group"])[1:], (512, 4, 4))
    assert (head.products, head.normalisation, head.pooling) == (512 * 4096 + 4096 * 2048, 2 * 4096, 512 * 16)


class Attention(nn.Module):
    """A transformer block as the layer-wise paper counts it: bias-free qkv, MLP ratio 4."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # [B, heads, 3, N, d]
        x = x + self.out(F.scaled_dot_product_attention(*qkv.unbind(2)).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def test_products_of_attention_are_counted():
    macs = forward_macs(Attention(192, 3), (64, 192))  # 64 tokens
    assert macs.total == 64 * 12 * 192**2 + 2 * 64**2 * 192 + 10 * 64 * 192 == 30_007_296


@pytest.mark.parametrize(("cut_layer", "norm"), [(1, "group"), (3, "group"), (3, "batch"), (7, "batch")])
def test_authors_rule_is_exact_for_one_layer_and_low_for_more(backbones, cut_layer, norm):
    client, _ = cut(backbones[norm], cut_layer)
    with FlopCounterMode(display=False) as counter:
        client(torch.zeros(2, *IMAGE)).sum().backward()
    client.zero_grad()
    forward = forward_macs(client, IMAGE).products
    first = 27 * 64 * 1024  # the images need no gradient
    step = counter.get_total_flops() // 4 + forward  # of one image, with the momentum model
    assert step == 4 * forward - first
    assert (step == MOCOSFL_PASSES * forward) == (cut_layer == 1)


def test_counting_leaves_the_module_alone():
    backbone = build_backbone("mobilenetv2", width=4)
    backbone.train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    forward_macs(backbone, IMAGE)
    training_memory(backbone, IMAGE, 2)
    assert all(layer.training and not layer._forward_hooks for layer in backbone.modules())
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


# Memory


def test_memory_of_a_small_net_by_hand():
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 2))
    parameters = 4 * (3 * 5 + 5 + 2 * 5 + 5 * 2 + 2)
    buffers = 4 * (2 * 5) + 8  # running statistics and a counter of 8 bytes
    # the inputs, the ReLU's result (which batch norm keeps as well), batch norm's result and its two statistics
    saved = 4 * (7 * 3 + 7 * 5 + 7 * 5 + 2 * 5)
    memory = training_memory(net, (3,), 7)
    assert memory == Memory(parameters + buffers, parameters, parameters, parameters + buffers, saved)
    assert memory.total_bytes == 4 * parameters + 2 * buffers + saved
    net[0].requires_grad_(False)  # a frozen layer has no gradient, and nobody needs its input
    frozen = training_memory(net, (3,), 7)
    assert frozen.gradient_bytes == frozen.optimiser_bytes == parameters - 4 * 20
    assert frozen.saved_bytes == saved - 4 * (7 * 3 + 7 * 5) + 4 * 7 * 5  # what follows the ReLU is kept by batch norm


def test_saved_bytes_of_one_client_layer_by_hand(backbones):
    client, _ = cut(backbones["group"], 1)
    # of an image: itself, the convolution's result, the ReLU's result in place of the norm's, mean and 1/std of 16
    # groups; once: standardised filters, their mean and 1/std, the constant gain
    image, filters = 3 * 1024 + 2 * 65536 + 2 * 16, 64 * 27 + 2 * 64 + 27
    for batch in (1, 128):
        assert saved_bytes(client, IMAGE, batch) == 4 * (batch * image + filters)


@pytest.mark.parametrize("name", ["resnet10", "mobilenetv2"])
def test_shapes_alone_save_what_a_real_pass_saves(name):
    """Against a plain pass on the CPU, told apart by address."""
    backbone = build_backbone(name, width=8)
    own = {value.data_ptr() for value in backbone.state_dict().values()}
    kept, sizes = [], {}

    def pack(value):
        kept.append(value)
        storage = value.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        backbone(torch.zeros(3, *IMAGE))
    real = sum(size for address, size in sizes.items() if address not in own)
    assert saved_bytes(backbone, IMAGE, 3) == real


def test_table_puts_the_papers_numbers_in_reach():
    table = compute_table(["resnet18"], [1, 3]).set_index(["scheme", "cut_layer", "batch"])
    whole = table.loc["FL-SSL"].iloc[0]
    three = table.loc["MocoSFL"].loc[3]
    assert len(table) == 1 + 2 * 2
    assert round(three.share_of_whole[1], 4) == round(three.share_of_whole[128], 4) == 0.1375  # the paper: 13.7 %
    assert (table.training_macs == 3 * table.forward_macs).all()
    assert round(three.memory_bytes[128] / 2**20) == 195  # the paper: 227 MB ...
    gradient = 4 * 128 * 64 * 32 * 32  # ... which is reached when the server's gradient of the latents comes on top
    assert round((three.memory_bytes[128] + gradient) / 2**20) == 227
    assert round(whole.memory_bytes / 2**20) == 952  # the paper: over 1100 MB
    assert round(whole.memory_bytes / three.memory_bytes[1]) == 321  # the paper: about 288
    parts = ["model_bytes", "gradient_bytes", "optimiser_bytes", "momentum_model_bytes", "saved_bytes"]
    assert (table[parts].sum(axis=1) == table.memory_bytes).all()


def test_table_has_all_cuts_unless_told():
    table = compute_table(["resnet10"], client_batches=[2], width=4, norm="batch")
    assert table.cut_layer.dropna().tolist() == list(cut_layers(build_backbone("resnet10", width=4)))
    assert table.forward_macs.iloc[1:].is_monotonic_increasing
    assert table.share_of_whole.iloc[0] == 1


def test_bad_settings(backbones):
    client, _ = cut(backbones["group"], 1)
    with pytest.raises(SettingError, match=r"batch=0 cannot be used: expected at least 1\."):
        training_memory(client, IMAGE, 0)
    with pytest.raises(SettingError, match=r"device='cpu' cannot be used: expected a CUDA device"):
        peak_memory(client, IMAGE, 1, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("cut_layer", [1, 3, 17])
def test_peak_on_a_gpu_is_above_the_count_and_near_it(backbones, cut_layer):
    client, _ = cut(backbones["group"], cut_layer)
    counted = training_memory(client, IMAGE, 128).total_bytes
    peak = peak_memory(client, IMAGE, 128)
    assert counted <= peak <= 2.5 * counted
    again = peak_memory(client, IMAGE, 128)  # the first one has the libraries' workspaces made, too
    assert again == peak_memory(client, IMAGE, 128)
    assert counted <= again <= peak
