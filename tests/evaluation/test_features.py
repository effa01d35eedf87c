import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.features import check_features, extract, standardised, unpooled
from fssl_core.models import GlobalPool, build_backbone, cut
from fssl_core.objectives import MoCoV2
from fssl_core.random import generator

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def normalise(images, dtype):
    """As ``Dataset.normalise`` of a set with these statistics."""
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (MEAN, STD))
    return (images.to(dtype) / 255 - mean) / std


@pytest.fixture
def images():
    return torch.randint(0, 256, (23, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Counting(nn.Module):
    """Flattens its input and keeps the number of images of every call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        self.calls.append(len(x))
        return x.flatten(1)


@pytest.mark.parametrize("batch", [1, 10, 23, 512])
def test_every_image_passes_the_model_exactly_once(images, batch):
    model = Counting()
    features = extract(model, images, normalise, batch=batch)
    assert sum(model.calls) == len(images) == len(features)
    assert max(model.calls) <= batch


def test_features_are_the_normalised_pixels_in_the_order_of_the_images(images):
    features = extract(nn.Identity(), images, normalise, batch=5).unflatten(1, (3, 4, 4))
    for n, c in [(0, 0), (7, 1), (22, 2)]:
        expected = (images[n, c].double() / 255 - MEAN[c]) / STD[c]
        torch.testing.assert_close(features[n, c].double(), expected, rtol=0, atol=1e-6)


def test_the_batch_does_not_change_the_features_because_the_model_is_in_evaluation_mode(images):
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten())
    model[0].running_mean += 0.3
    before = {name: value.clone() for name, value in model.state_dict().items()}
    few, all_at_once = (extract(model, images, normalise, batch=batch) for batch in (4, 23))
    torch.testing.assert_close(few, all_at_once, rtol=1e-5, atol=1e-6)  # other kernels may round otherwise
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_each_module_gets_its_own_training_mode_back_also_after_an_error(images):
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.Dropout(0.5), nn.Flatten()), nn.Linear(7, 2))
    model[0].eval()  # a frozen part
    modes = [module.training for module in model.modules()]
    assert True in modes
    assert False in modes
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        extract(model, images, normalise)
    assert [module.training for module in model.modules()] == modes
    extract(model[:2], images, normalise)
    assert [module.training for module in model.modules()] == modes


def test_features_are_float32_under_autocast_and_carry_no_graph(images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    full = extract(model, images, normalise)
    with torch.autocast("cpu", torch.bfloat16):
        low = extract(model, images, normalise)
    assert full.dtype == low.dtype == torch.float32
    assert not full.requires_grad
    assert not torch.equal(full, low)
    torch.testing.assert_close(full, low, rtol=0, atol=0.05)


def test_unpooled_features_are_the_flattened_map_and_pooled_ones_their_mean():
    backbone = build_backbone("resnet10", width=4, image_size=16).eval()
    model = nn.Sequential(*cut(backbone, 3), GlobalPool())  # as split federations have it
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels = (images.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        maps = backbone(pixels)  # [5, 32, 2, 2]
    features = extract(unpooled(model), images, normalise)
    assert torch.equal(features, maps.flatten(1))
    torch.testing.assert_close(features.unflatten(1, (32, 4)).mean(2), extract(model, images, normalise))


def test_the_encoder_of_an_objective_can_be_unpooled_and_shares_its_weights():
    backbone = build_backbone("resnet10", width=4, image_size=8)
    encoder = MoCoV2(projector=(8, 4)).build_model(backbone, generator(0, "heads")).encoder
    assert [id(value) for value in unpooled(encoder).parameters()] == [id(value) for value in backbone.parameters()]


def test_what_does_not_end_in_pooling_cannot_be_unpooled():
    with pytest.raises(SettingError, match=r"features='unpooled' .* 'pooled', because the .* backbone ends in Flatten"):
        unpooled(nn.Sequential(GlobalPool(), nn.Flatten()))
    with pytest.raises(SettingError, match="ends in BasicBlock and not in GlobalPool"):
        unpooled(build_backbone("resnet10", width=4, image_size=8))
    with pytest.raises(SettingError, match="ends in Linear and not in GlobalPool"):
        unpooled(nn.Linear(2, 2))


def test_images_that_are_not_uint8_or_empty_are_refused(images):
    with pytest.raises(DataError, match=r"uint8 images .* got torch.float32 \[23, 3, 4, 4\]: pass the `images`"):
        extract(nn.Identity(), images.float(), normalise)
    with pytest.raises(DataError, match=r"N > 0, got torch.uint8 \[0, 3, 4, 4\]"):
        extract(nn.Identity(), images[:0], normalise)


def test_features_that_cannot_be_evaluated_are_refused():
    labels = torch.zeros(4, dtype=torch.int64)
    check_features("bank", torch.zeros(4, 2), labels)
    with pytest.raises(DataError, match=r"Of the bank, features .* got \[3, 2\] and \[4\]"):
        check_features("bank", torch.zeros(3, 2), labels)
    for wrong in ((torch.zeros(4, 2).numpy(), labels), (torch.zeros(4, 2), labels.float())):
        with pytest.raises(DataError, match=r"bank, features have to be a tensor \[N, D\] and labels one of whole"):
            check_features("bank", *wrong)
    with pytest.raises(DataError, match=r"features of the queries are not all finite: .* earlier checkpoint"):
        check_features("queries", torch.full((4, 2), float("nan")), labels)
    check_features("bank", torch.zeros(4, 2), torch.tensor([0, 2, 1, 0]), classes=3)
    for wrong in (-1, 3):
        with pytest.raises(DataError, match=f"Labels of the bank span {min(wrong, 0)} to .*: expected 0 to 2"):
            check_features("bank", torch.zeros(2, 2), torch.tensor([0, wrong]), classes=3)


def test_standardised_features_are_those_of_scikit_learn():
    draw = torch.Generator().manual_seed(0)
    train, test = (torch.randn(n, 5, generator=draw) * torch.tensor([1e-3, 1, 50, 2, 1]) + 3 for n in (40, 7))
    train[:, 4] = 3.0  # constant in the first set only
    oracle = StandardScaler().fit(train)
    for ours, features in zip(standardised(train, test), (train, test), strict=True):
        torch.testing.assert_close(ours, torch.tensor(oracle.transform(features)).float(), rtol=1e-3, atol=1e-3)
