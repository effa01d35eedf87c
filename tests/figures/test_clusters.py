import numpy as np
import torch

from fssl_core.figures.planar import clusters
from tests.figures.reading import drawn

NAMES = [f"class {digit}" for digit in range(10)]


def plane(count, classes, seed=0):
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed))
    return points, torch.tensor(classes).repeat(count)[:count]


def draw(planes, classes=NAMES, **more):
    return drawn(clusters(planes, classes, subtitle="profile laptop", title="Figure 9", **more))


def test_each_class_has_one_colour_in_every_panel_and_one_key():
    planes = {"raw": plane(40, [3, 7]), "BN": plane(100, [0, 3, 7])}
    figure = draw(planes, notes={"BN": "silhouette 0.1"})
    raw, batch = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["raw", "BN"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "silhouette 0.1"]
    for axes, (points, _) in zip(figure.axes, planes.values(), strict=True):
        np.testing.assert_allclose(axes.collections[0].get_offsets(), points)
    labels = [labels.tolist() for _, labels in planes.values()]
    faces = [axes.collections[0].get_facecolor().tolist() for axes in (raw, batch)]
    pairs = [{*zip(names, map(tuple, colours), strict=True)} for names, colours in zip(labels, faces, strict=True)]
    assert [len(of) for of in pairs] == [2, 3]
    colour = [dict(of) for of in pairs]
    assert colour[0].items() <= colour[1].items()
    assert len(set(colour[1].values())) == 3
    assert [text.get_text() for text in figure.legends[0].texts] == ["class 0", "class 3", "class 7"]


def test_more_than_ten_classes_have_colours_of_their_own():
    figure = draw({"many": plane(60, list(range(20)))}, classes=[str(number) for number in range(20)])
    assert len({tuple(face) for face in figure.axes[0].collections[0].get_facecolor()}) == 20
