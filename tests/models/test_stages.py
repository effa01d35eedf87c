"""Stages of layer-wise training: which units they add, and that every stage's encoder is part of the whole."""

import pytest
import torch
import torchvision
from torch import nn

from fssl_core.costs.compute import forward_macs
from fssl_core.errors import SettingError
from fssl_core.models import build_backbone, part, reshape_layer, stages
from fssl_core.models.heads import GlobalPool
from fssl_core.random import generator


def test_a_transformer_adds_block_by_block_and_ends_in_its_norm():
    twelve = stages(build_backbone("vit-tiny", norm="layer", width=4))
    assert twelve.added == (("embed", "block_0"), *((f"block_{index}",) for index in range(1, 12)))
    assert twelve.tail == ("norm",)
    assert len(twelve) == 12


def test_a_resnet_adds_its_four_stages_the_first_with_the_stem():
    four = stages(build_backbone("resnet18", width=4))
    later = [(f"layer{stage}_0", f"layer{stage}_1") for stage in (2, 3, 4)]
    assert four.added == (("stem", "layer1_0", "layer1_1"), *later)
    assert four.tail == ()
    assert [len(units) for units in stages(build_backbone("resnet50", width=4)).added] == [1 + 3, 4, 6, 3]


@pytest.mark.parametrize(
    ("name", "norm", "widths"), [("resnet18", "batch", [4, 8, 16, 32]), ("vit4", "layer", [12, 12, 12, 12])]
)
def test_the_encoder_of_a_stage_shares_the_modules_of_the_whole(name, norm, widths):
    whole = build_backbone(name, width=4, norm=norm, image_size=16).eval()
    x = torch.randn(2, 3, 16, 16, generator=generator(0, "images"))
    units, shared = stages(whole), whole.state_dict()
    for stage, width in enumerate(widths, start=1):
        frozen, newest = sum(units.added[: stage - 1], ()), units.added[stage - 1] + units.tail
        encoder = part(whole, frozen + newest)
        assert encoder.feature_dim == encoder(x).shape[1] == width
        state = encoder.state_dict()
        assert list(state) == [key for key in shared if key.split(".")[0] in frozen + newest]
        assert all(value.data_ptr() == shared[key].data_ptr() for key, value in state.items())
        first, last = (nn.Sequential(*map(whole.get_submodule, names)) for names in (frozen, newest))
        assert torch.equal(last(first(x)), encoder(x))
    assert torch.equal(encoder(x), whole(x))


def test_reshape_layer_makes_up_for_a_narrow_encoder():
    layer = reshape_layer(8, 32, generator=generator(0, "reshape"))
    assert layer(torch.zeros(2, 8)).shape == (2, 32)
    assert torch.equal(layer.weight, reshape_layer(8, 32, generator=generator(0, "reshape")).weight)
    assert isinstance(reshape_layer(32, 32), nn.Identity)


def test_resnet18_with_the_imagenet_stem_equals_torchvisions():
    ours, model = build_backbone("resnet18-imagenet", norm="batch"), torchvision.models.resnet18()
    theirs = nn.Sequential(*list(model.children())[:-2])
    for value, source in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        source.copy_(value)
    x = torch.randn(2, 3, 64, 64, generator=generator(0, "images"))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    assert (ours.name, ours.image_size) == ("resnet18-imagenet", 32)


def test_resnet18_has_the_size_and_the_cost_that_table_4_implies():
    backbone = build_backbone("resnet18-imagenet", norm="batch")
    values = sum(value.numel() for key, value in backbone.state_dict().items() if "num_batches" not in key)
    head, predictor = 659_968, 263_168 + 1_024  # papers/data/accounting_conventions.md, 1.2 and 1.1
    sent = 2 * 4 * 120 * (values + head + predictor) / (1000 * 2**20)
    assert round(sent, 2) == 11.09
    flops = forward_macs(nn.Sequential(backbone, GlobalPool()), (3, 32, 32)).total
    heads = 512 * (512 + 512 + 256) + 256 * 512 + 512 * 256  # their norms do not show
    assert round(120 * 3 * 3 * (flops + heads) / 1e9) == 41


def test_what_is_not_a_part_is_refused():
    with pytest.raises(SettingError, match="architecture='mobilenetv2' cannot be used: expected a ResNet or a vision"):
        stages(build_backbone("mobilenetv2", width=4))
    backbone = build_backbone("vit4", norm="layer", width=4)
    for units in (("embed", "head"), ("block_0",), ()):
        with pytest.raises(SettingError, match=r"units=\(.* cannot be used: expected units of vit4 from the first on"):
            part(backbone, units)
