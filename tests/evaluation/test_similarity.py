import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fssl_core.evaluation.similarity import activations, channel_similarity, grey
from fssl_core.models import build_backbone, cut, cut_layers


def random_maps(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("side", [1, 3, 8, 16])
def test_similarity_equals_numpys_correlation_channel_by_channel(side):
    maps, references = random_maps(5, side, side) * 7 - 3, random_maps(3, 16, 16, seed=1)
    if side == 1:
        expected = np.zeros((3, 5))  # one pixel says nothing
    else:
        expected = np.empty((3, 5))
        for c in range(5):
            wide = F.interpolate(maps[None, c : c + 1].double(), size=(16, 16), mode="bilinear")
            for r in range(3):
                expected[r, c] = abs(np.corrcoef(wide.flatten(), references[r].flatten())[0, 1])
    np.testing.assert_allclose(channel_similarity(maps, references), expected, atol=1e-6)


def test_similarity_is_one_for_the_image_itself_bright_or_inverted_and_zero_for_constants():
    image = random_maps(1, 16, 16)
    maps = torch.cat([image, 5 - 1e-3 * image, torch.zeros(1, 16, 16), torch.full((1, 16, 16), 0.3)])
    torch.testing.assert_close(channel_similarity(maps, image), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    assert channel_similarity(maps, torch.full((1, 16, 16), 0.1)).tolist() == [[0.0] * 4]


def test_grey_weighs_colours_and_keeps_the_range():
    image = torch.tensor([[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]], dtype=torch.uint8).view(3, 1, 4)
    torch.testing.assert_close(grey(image), torch.tensor([[0.299, 0.587, 0.114, 1.0]]) * 255)
    torch.testing.assert_close(grey(image.expand(2, 3, 1, 4)), grey(image).expand(2, 1, 4))


@pytest.mark.parametrize("name", ["resnet10", "mobilenetv2"])
def test_activations_equal_the_clients_output_at_every_cut(name):
    backbone = build_backbone(name, width=4, image_size=16).eval()
    images = random_maps(2, 3, 16, 16)
    sent = activations(backbone, images)
    assert tuple(sent) == cut_layers(backbone)
    with torch.no_grad():
        for layer, maps in sent.items():
            client, _ = cut(backbone, layer)
            torch.testing.assert_close(maps, client(images), rtol=0, atol=0)
