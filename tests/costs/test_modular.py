"""Resources of MFCL: every printed cell of Tables 3 and 15, counts by hand and of real messages."""

import math
import re
from importlib import resources

import pandas as pd
import pytest
import torch
from torch import nn

from fssl_core.costs.modular import (
    CODINGS,
    ROUNDS,
    SETUPS,
    Sizes,
    backbone_sizes,
    client_sizes,
    client_traffic,
    delivery_bits,
    epoch_macs,
    memory_bytes,
    module_sizes,
    phase1_bytes,
    phase2_bytes,
    representation_values,
    round_bits,
)
from fssl_core.costs.modular_cells import resource_table
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.federation.ledger import Ledger
from fssl_core.models.client_module import client_module, decoder
from fssl_core.papers.reference import paper_table

# ------------------------------------------------------------------------------------------------- the printed cells


def stated_rows():
    """Section 2.3 of the conventions: what was found once, by other code. A cell "21e8" is 21 x 10^8."""
    file = resources.files("fssl_core.papers").joinpath("data", "accounting_conventions.md")
    text = file.read_text(encoding="utf-8")
    section = text.split("### 2.3")[1].split("###")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    # the column of the formula holds a "|D|" in places: count from both ends
    return [
        (int(row[0]), row[1], float(row[-4]), float(row[-3]), float(row[-2].strip("%")) / 100, row[-1] == "yes")
        for row in cells
        if row[0].isdigit()
    ]


@pytest.fixture(scope="module")
def table():
    return resource_table(pd.concat([paper_table("mfcl", "table3"), paper_table("mfcl", "table15")]))


def test_all_cells_come_out_as_stated_row_by_row(table):
    twice = (table["method"] == "FedEMA") & (table["metric"] == "bits_per_round_phase1")  # stated with FedSimCLR's
    short = {"RN18": "ResNet-18", "RN50": "ResNet-50", "VGG": "VGG-16-BN"}
    words = {"alpha": "alpha", "gamma": "gamma", "beta": "beta", "round": "round", "size": "size", "phase": "phase2"}
    for ours, stated in zip(table[~twice].itertuples(), stated_rows(), strict=True):
        number, cell, value, printed, residual, reproduced = stated
        assert (ours.table, ours.architecture, ours.printed) == (number, short[cell.split()[0]], printed), cell
        assert ours.method in cell, cell
        assert any(word in cell and metric in ours.metric for word, metric in words.items()), cell
        assert ours.ours == pytest.approx(value, rel=5e-3), cell  # which has three digits
        assert ours.residual == pytest.approx(residual, abs=6e-4), cell
        assert ours.reproduced == reproduced, cell


def test_which_cells_no_formula_reproduces(table):
    open_cells = ~table.groupby(["architecture", "method", "metric"])["reproduced"].any()
    assert set(open_cells[open_cells].index) == {
        ("ResNet-18", "FedSimCLR", "gamma_memory"),
        ("ResNet-18", "FedEMA", "gamma_memory"),
        ("ResNet-18", "FedSimCLR", "beta_compute"),
        ("ResNet-18", "MFCL", "beta_compute"),
        ("ResNet-50", "FedEMA", "alpha_communication"),
        ("ResNet-50", "MFCL", "bits_per_round_phase1"),
        ("ResNet-50", "FedEMA", "gamma_memory"),
        ("ResNet-50", "FedSimCLR", "beta_compute"),
        ("ResNet-50", "MFCL", "beta_compute"),
        ("VGG-16-BN", "FedSimCLR", "beta_compute"),
    }


# ------------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.parametrize(("architecture", "number"), [("ResNet-18", 9), ("ResNet-50", 10)])
@pytest.mark.parametrize("with_decoder", [False, True])
def test_modules_have_the_parameters_and_maps_of_the_papers_layers(architecture, number, with_decoder):
    layers = paper_table("mfcl", f"table{number}")
    modules = ["client module", "decoder"][: 1 + with_decoder]
    layers = layers[layers["module"].isin(modules)]
    convolutions = layers[layers["operation"].str.startswith("Conv")].pivot(
        index="layer_index", columns="metric", values="value"
    )
    normed = {index - 1 for index in layers[layers["operation"] == "TN"]["layer_index"]}
    parameters = products = maps = 0
    for index, layer in convolutions.iterrows():
        filters = layer["in_channels"] * layer["out_channels"] * layer["kernel_size"] ** 2
        parameters += filters + layer["out_channels"] + 2 * layer["out_channels"] * (index in normed)
        products += filters * 16 * 16
        maps += layer["out_channels"] * 16 * 16
    ours = client_sizes(architecture, 16, with_decoder=with_decoder)
    assert ours.parameters == parameters
    if not with_decoder:  # the decoder works at half the resolution, which the tables do not restore
        assert (ours.products, ours.conv_maps, ours.relu_maps) == (products, maps, maps)


def test_decoder_by_hand():
    """Pooling, two transposed convolutions of which the last doubles the side, and a convolution of three channels."""
    alone, both = client_sizes("ResNet-18"), client_sizes("ResNet-18", with_decoder=True)
    small, large = 16 * 16, 32 * 32
    assert both.products - alone.products == small * 9 * (64 * 64 + 64 * 3) + large * 9 * 3 * 3
    assert both.conv_maps - alone.conv_maps == 64 * small + 2 * 3 * large
    assert both.relu_maps - alone.relu_maps == 64 * small + 3 * large
    assert both.macs - both.products == 5 * (alone.conv_maps + 64 * small + 3 * large)  # twin norm, as group norm


def test_backbones_by_hand():
    sides = [64 * 32**2, 128 * 16**2, 256 * 8**2, 512 * 4**2]  # maps of ResNet-18's stages
    sizes = backbone_sizes("ResNet-18")
    assert sizes.conv_maps == 5 * sum(sides)  # stem or shortcut, and four each
    assert sizes.relu_maps == 4 * sum(sides) + sides[0]
    assert sizes.parameters == 11_689_512 - 1000 * 513 - 64 * 3 * (49 - 9)  # torchvision's, less classifier and stem
    assert backbone_sizes("ResNet-50", stem="imagenet").parameters == 25_557_032 - 1000 * 2049
    assert backbone_sizes("VGG-16-BN").parameters == 138_365_992


def test_sizes_of_a_module_by_hand_leave_it_unchanged():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    assert module_sizes(module, 8) == Sizes(112 + 725, 144, 144, 27 * 144 + 720, 27 * 144 + 720)
    assert module.training
    assert not any(layer._forward_hooks for layer in module.modules())
    assert module[0].weight.device.type == "cpu"


# -------------------------------------------------------------------------------------------------------- the equations


def test_equations_by_hand():
    assert round_bits(10, 7, "literal") == pytest.approx(17 * 32 / 3)
    assert round_bits(10, 7) == 17 * 32 * 3
    values = representation_values(2, 3, 5, 7, vectors=11)
    assert values == 2 * 3 * 5 * 7 * 11
    assert delivery_bits(values) == 9 * delivery_bits(values, "literal") == values * 96
    sizes = Sizes(parameters=10, conv_maps=7, relu_maps=5, products=0, macs=0)
    assert memory_bytes(sizes, 4) == (10 + 10 + 7) * 4 * 4
    assert memory_bytes(sizes, 4, 1, relu=True) == (10 + 10 + 7 + 5) * 4


@pytest.mark.parametrize("architecture", SETUPS)
@pytest.mark.parametrize("coding", CODINGS)
def test_traffic_is_linear_in_data_and_in_the_code(architecture, coding):
    images = SETUPS[architecture].images
    once, twice, thrice = (client_traffic("MFCL", architecture, images=k * images, coding=coding) for k in (1, 2, 3))
    assert once == client_traffic("MFCL", architecture, coding=coding)
    assert twice.bits_phase2 == 2 * once.bits_phase2
    assert math.isclose(thrice.alpha_bits - twice.alpha_bits, twice.alpha_bits - once.alpha_bits)
    assert once.alpha_bits == 15 * once.bits_per_round + once.bits_phase2
    none = client_traffic("MFCL", architecture, images=0, coding=coding)
    assert none.alpha_bits == 15 * once.bits_per_round


def test_how_often_a_client_talks():
    assert {method: client_traffic(method, "ResNet-18").exchanges for method in ROUNDS} == {
        "FedEMA": 100,
        "FedSimCLR": 800,
        "MFCL": 16,
    }


@pytest.mark.parametrize("architecture", SETUPS)
def test_order_of_computation_with_the_stem_of_the_client_module_and_not_with_imagenets(architecture):
    ema, simclr, modular = (epoch_macs(method, architecture) for method in ("FedEMA", "FedSimCLR", "MFCL"))
    assert ema > simclr > modular
    assert 3 * ema == 4 * simclr == 3 * 4 * 2 * SETUPS[architecture].images * backbone_sizes(architecture).macs
    turned = epoch_macs("FedSimCLR", architecture, stem="imagenet") < modular
    assert turned == (architecture != "VGG-16-BN")  # which has one stem


# ------------------------------------------------------------------------------------------------------- our own engine


@pytest.mark.parametrize("norm", ["twin", "batch"])
def test_bytes_are_those_that_the_ledger_counts(norm):
    client = client_module("resnet18", 2, norm, width=8)
    autoencoder = nn.Sequential(client, decoder("resnet18", 2, norm, width=8))
    clients, matrix = torch.tensor([0, 2]), ClientMatrix(autoencoder, 2)
    ledger = Ledger(3)
    for block in matrix.blocks.values():
        for direction in ("down", "up"):
            ledger.send(block, "parameters", direction, clients)
    images, pairs = 3, 2
    views = torch.rand(2 * pairs * images, 3, 16, 16)
    with torch.no_grad():
        maps = client.eval()(views)
    ledger.send(maps[None], "representations", "up", torch.tensor([2]))
    ledger.close_epoch()
    counted = ledger.table().set_index("client")
    exchange = phase1_bytes(autoencoder)
    for client_ in (0, 2):
        assert counted.loc[client_, "parameters_down"] == exchange.down
        assert counted.loc[client_, "parameters_up"] == exchange.up
    assert exchange.total == 2 * 4 * matrix.elements
    assert counted.loc[2, "representations_up"] == phase2_bytes((8, 16, 16), images, pairs) == 4 * maps.numel()
    assert counted.loc[1].drop("epoch").sum() == 0


def test_half_precision_halves_representations_and_pairs_default_to_the_papers():
    assert phase2_bytes((64, 32, 32), 5000) == 2 * 8 * 4 * 64 * 32 * 32 * 5000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: client_traffic("FedU", "ResNet-18"), r"method='FedU'.* one of FedEMA, FedSimCLR, MFCL"),
        (lambda: client_traffic("MFCL", "resnet18"), r"architecture='resnet18'.* one of ResNet-18"),
        (lambda: epoch_macs("MFCL", "resnet18"), r"architecture='resnet18'"),
        (lambda: client_traffic("FedEMA", ["ResNet-18"]), r"architecture=\['ResNet-18'\]"),
        (lambda: epoch_macs("FedEMA", ["ResNet-18"]), r"architecture=\['ResNet-18'\]"),
        (lambda: backbone_sizes("ResNet-18", stem="7x7"), r"stem='7x7'.* one of cifar, imagenet"),
        (lambda: round_bits(1, 1, "R"), r"coding='R'.* one of literal, transmitted"),
        (lambda: delivery_bits(1, "R"), r"coding='R'"),
        (lambda: phase2_bytes((1, 1, 1), -1), r"images=-1.* at least 0"),
        (lambda: phase2_bytes((1, 1, 1), 1, -1), r"pairs=-1.* at least 0"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(call, message):
    with pytest.raises(SettingError, match=re.compile(message)):
        call()
