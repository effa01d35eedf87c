import torch

from fssl_core.figures import image_grids
from tests.figures.reading import drawn


def test_pictures_keep_their_range():
    images = {
        "colour": torch.full((3, 4, 6), 9, dtype=torch.uint8),
        "grey": torch.full((1, 5, 5), 9, dtype=torch.uint8),
        "float": torch.full((1, 5, 5), 0.5),
    }
    figure = drawn(image_grids.side_by_side(images, subtitle="made up", title="Images"))
    assert [axes.get_title() for axes in figure.axes] == ["colour", "grey", "float"]
    shown = [axes.images[0] for axes in figure.axes]
    assert [image.get_array().shape for image in shown] == [(4, 6, 3), (5, 5), (5, 5)]
    assert [image.get_clim() for image in shown[1:]] == [(0, 255), (0, 1)]  # dark stays dark


def test_activation_grid_shows_image_layers_and_sizes():
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    maps = {1: torch.rand(4, 4, 4), 17: torch.rand(2, 1, 2)}
    figure = drawn(image_grids.activation_grid(image, maps, subtitle="untrained", captions={1: "similar", 17: "not"}))
    assert [axes.get_title() for axes in figure.axes[:3]] == ["input", "layer 1", "layer 17"]
    assert [axes.texts[0].get_text() for axes in figure.axes if axes.texts] == ["4×4\nsimilar", "1×2\nnot"]
    assert sum(bool(axes.images) for axes in figure.axes) == 1 + 3 + 2
