"""Saved activations in closed form against what autograd keeps, and what they explain of the printed memory."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fssl_core.costs.activations import (
    ATTENTION,
    PRECISIONS,
    SavedActivations,
    block_saved_bytes,
    client_memory,
)
from fssl_core.costs.compute import saved_bytes
from fssl_core.costs.layerwise import GB
from fssl_core.errors import SettingError
from fssl_core.federation.schedule import KINDS, schedule
from fssl_core.models import GlobalPool, build_backbone
from fssl_core.models.heads import MLP
from fssl_core.papers.reference import paper_table

BATCH, WIDTH = 5, 8  # the width of a head, of which there are three
KERNELS = {"explicit": SDPBackend.MATH, "fused": SDPBackend.FLASH_ATTENTION}


def online_branch(stage):
    """Encoder of a stage with heads, its frozen units frozen."""
    backbone = build_backbone("vit4", norm="layer", width=WIDTH)
    stem, *blocks, norm = backbone.children()
    projector = MLP(3 * WIDTH, (512, 512, 256), output_norm="plain", output_bias=False)
    predictor = MLP(256, (512, 256), output_bias=False)
    for module in [*(blocks[unit] for unit in stage.frozen), *([] if 0 in stage.active else [stem])]:
        module.requires_grad_(False)
    return nn.Sequential(stem, *(blocks[unit] for unit in stage.present), norm, GlobalPool(), projector, predictor)


STAGES = [pytest.param(s, id=f"{kind}-{s.number}") for kind in KINDS for s in schedule(kind, 4, rounds=4)]


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("stage", STAGES)
def test_closed_form_is_the_peak_of_a_real_step(stage, attention):
    """Two views through the online branch, backward from their sum."""
    module = online_branch(stage)
    with sdpa_kernel(KERNELS[attention]), SavedActivations(module.state_dict().values()) as saved:
        outputs = [module(torch.randn(BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(v))) for v in (0, 1)]
        loss = sum(output.sum() for output in outputs)
        del outputs
        assert saved.live_bytes == saved.peak_bytes
        loss.backward()
        del loss
    memory = client_memory(stage, batch_size=BATCH, width=3 * WIDTH, depth=4, attention=attention)
    assert saved.peak_bytes == memory.saved_bytes
    assert saved.live_bytes == 0

    trained = [value.numel() for value in module.parameters() if value.requires_grad]
    state = {name: value.numel() for name, value in module.state_dict().items() if "num_batches" not in name}
    without_predictor = [size for name, size in state.items() if not name.startswith(f"{len(module) - 1}.")]
    assert memory.gradient_bytes == 4 * sum(trained)
    assert memory.optimiser_bytes == 8 * sum(trained)
    assert memory.model_bytes == 4 * sum(state.values())
    assert memory.momentum_model_bytes == 4 * sum(without_predictor)


def test_counting_shapes_gives_the_same():
    """Without values there is no fused attention."""
    stage = schedule("layer-wise", 4, rounds=4)[2]
    memory = client_memory(stage, batch_size=BATCH, width=3 * WIDTH, depth=4)
    assert 2 * saved_bytes(online_branch(stage), (3, 32, 32), BATCH) == memory.saved_bytes


def test_peak_is_the_most_at_one_time_and_shared_memory_counts_once():
    x = torch.ones(6, requires_grad=True)
    with SavedActivations() as saved:
        y = x * x  # keeps x twice
        assert saved.live_bytes == 4 * 6
        z = y.exp()  # keeps its own result
        w = z.exp()
        assert saved.live_bytes == saved.peak_bytes == 3 * 4 * 6
        w.sum().backward()
        del y, z, w
        assert saved.live_bytes == 0
        (x * x).sum().backward()
    assert (saved.live_bytes, saved.peak_bytes) == (0, 3 * 4 * 6)
    with SavedActivations([x]) as saved:
        (x * x).sum().backward()
    assert saved.peak_bytes == 0


# ------------------------------------------------------------------------------------------------- the printed numbers


def slope(tokens, batch, attention, precision):
    """GB for each trained block: two views."""
    return 2 * batch * block_saved_bytes(tokens, attention=attention, precision=precision) / GB


@pytest.mark.parametrize(
    ("attention", "precision", "expected"),
    [
        ("explicit", "float32", [0.817, 0.961, 0.701]),
        ("fused", "float32", [0.770, 0.770, 0.589]),
        ("explicit", "mixed", [0.505, 0.721, 0.500]),
        ("fused", "mixed", [0.434, 0.434, 0.332]),
    ],
)
def test_a_block_has_the_size_of_the_conventions(attention, precision, expected):
    inputs = ((64, 512), (256, 128), (196, 128))  # tokens and batch of Tables 2 and 11
    assert [round(slope(*one, attention, precision), 3) for one in inputs] == expected


def printed_memory(table, **where):
    cells = paper_table("lwfedssl", table)
    cells = cells[cells["metric"] == "peak_memory"]
    for name, value in where.items():
        cells = cells[cells[name] == value]
    return cells.set_index("method")["value"]


def test_printed_memory_is_a_constant_and_as_much_again_for_each_trained_block():
    cells = paper_table("lwfedssl", "table3").query("metric == 'peak_memory' and method == 'LW-FedSSL'")
    blocks, memory = cells["layers_per_stage"].to_numpy(), cells["value"].to_numpy()
    each, constant = np.polyfit(blocks, memory, 1)
    assert np.abs(constant + each * blocks - memory).max() < 0.025
    full = printed_memory("table3")["FedMoCoV3"]
    assert abs(constant + 12 * each - full) < 0.015 * full
    assert (round(each, 2), round(constant, 1)) == (0.55, 2.0)
    assert round((constant + each) / (constant + 12 * each), 1) == 0.3  # where the ratio comes from


@pytest.mark.parametrize(
    ("image_size", "tokens", "batch", "table"),
    [(32, 64, 512, "table2"), (64, 256, 128, "table11"), (224, 196, 128, "table11")],
)
def test_mixed_precision_with_explicit_attention_is_within_a_tenth_of_the_printed_block(
    image_size, tokens, batch, table
):
    memory = printed_memory(table, image_size=image_size, ssl_method="MoCoV3")
    each = (memory["FedMoCoV3"] - memory["LW-FedSSL"]) / 11  # 12 trained blocks against 1
    assert 0.9 < slope(tokens, batch, "explicit", "mixed") / each < 1
    others = [slope(tokens, batch, a, p) for a in ATTENTION for p in PRECISIONS if (a, p) != ("explicit", "mixed")]
    assert not any(0.9 < other / each < 1 for other in others)


def test_layerwise_training_of_a_resnet_peaks_in_its_first_stage():
    """The printed ratio of Table 4 is far above a quarter: stages keep less and less."""
    backbone = build_backbone("resnet18-imagenet", norm="batch")
    kept = []
    for number in range(1, 5):
        units = [unit for name, unit in backbone.named_children() if name == "stem" or int(name[5]) <= number]
        for name, unit in backbone.named_children():
            unit.requires_grad_(name.startswith(f"layer{number}") or (name == "stem" and number == 1))
        kept.append(saved_bytes(nn.Sequential(*units), (3, 32, 32), 2))
    whole = saved_bytes(backbone.requires_grad_(True), (3, 32, 32), 2)
    assert kept == sorted(kept, reverse=True)
    assert max(kept) > 0.6 * whole


@pytest.mark.parametrize("precision", PRECISIONS)
def test_shapes_of_figures_5a_and_8(precision):
    def peaks(kind, batch):
        stages = schedule(kind, 12, rounds=180)
        return [client_memory(stage, batch_size=batch, precision=precision).total_bytes for stage in stages]

    full, layerwise, progressive = (peaks(kind, 512) for kind in KINDS)
    assert progressive == sorted(progressive)
    assert progressive[-1] == full[0]
    assert layerwise[-1] / layerwise[0] < 1.1 < 10 < progressive[-1] / progressive[0]
    growth = {kind: max(peaks(kind, 512)) - max(peaks(kind, 64)) for kind in KINDS}
    assert growth["end-to-end"] == growth["progressive"] > 8 * growth["layer-wise"]


def test_depth_dropout_drops_trained_units_of_progressive_training_alone():
    plain, dropped = (
        {kind: schedule(kind, 12, rounds=12, most_units=most)[-1] for kind in ("layer-wise", "progressive")}
        for most in (None, 6)
    )
    saved = {name: [client_memory(s[name]).saved_bytes for s in (plain, dropped)] for name in plain}
    assert saved["layer-wise"][0] == saved["layer-wise"][1]
    assert saved["progressive"][0] - saved["progressive"][1] == 2 * 512 * 6 * block_saved_bytes(64)
    models = [client_memory(s["layer-wise"]).model_bytes for s in (plain, dropped)]
    assert models[0] - models[1] == 4 * 6 * 444_288


def test_methods_without_target_or_predictor_hold_less():
    stage = schedule("end-to-end", 12, rounds=1)[0]
    byol, simclr = (client_memory(stage, ssl_method=name) for name in ("BYOL", "SimCLR"))
    assert byol == client_memory(stage)
    assert simclr.momentum_model_bytes == 0
    assert byol.gradient_bytes - simclr.gradient_bytes == 4 * 263_168
    assert byol.saved_bytes > simclr.saved_bytes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "flash"}, r"attention='flash' cannot be used: expected one of explicit, fused\."),
        (
            {"precision": "float16"},
            r"precision='float16' cannot be used: expected one of float32, mixed",
        ),
        ({"batch_size": 0}, r"batch_size=0 cannot be used"),
        ({"ssl_method": "DINO"}, r"ssl_method='DINO' cannot be used"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        client_memory(schedule("end-to-end", 12, rounds=1)[0], **settings)
