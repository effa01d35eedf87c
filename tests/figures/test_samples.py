import torch

from fssl_core.figures.image_grids import samples
from tests.figures.reading import drawn


def classes(count, images=3, channels=1):
    """Class k has images of the one value k, the first of them with a dark corner."""
    made = {}
    for value in range(1, count + 1):
        made[f"class {value}"] = torch.full((images, channels, 16, 16), value, dtype=torch.uint8)
        made[f"class {value}"][0, :, 0, 0] = 0
    return made


def test_a_panel_has_a_named_row_for_each_class_and_a_sentence_where_there_are_no_images():
    sets = {"grey": classes(4), "colour": classes(2, channels=3), "absent": "not run: no such file"}
    figure = drawn(samples(sets, subtitle="profile smoke", title="Samples"))
    grey, colour, absent, unused = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["grey", "colour", "absent", ""]
    for axes, count in ((grey, 4), (colour, 2)):
        pixels = axes.images[0].get_array()
        assert pixels.shape == (17 * count, 17 * 3, 3)
        assert pixels[1::17, 1, 0].tolist() == list(range(1, count + 1))
        assert pixels[0, ::17, 0].tolist() == [0, 1, 1]
        assert [text.get_text() for text in axes.get_yticklabels()] == [f"class {k + 1}" for k in range(count)]
    assert [text.get_text() for text in absent.texts] == ["not run: no such file"]
    assert not absent.images
    assert not absent.axison
    assert not unused.axison


def test_images_are_of_one_size_and_panels_do_not_overlap():
    figure = samples(
        {name: classes(count, 8) for name, count in zip("abc", (9, 4, 2), strict=True)}, subtitle="", title=""
    )
    boxes = [axes.get_tightbbox() for axes in drawn(figure).axes[:3]]
    assert boxes[0].x1 <= boxes[1].x0
    assert boxes[2].y1 <= boxes[0].y0
    heights = [axes.get_window_extent().height / count for axes, count in zip(figure.axes, (9, 4, 2), strict=False)]
    assert max(heights) < 1.3 * min(heights)


def test_without_any_images_the_figure_is_sentences():
    figure = samples({"one": "not run", "two": "not run"}, subtitle="", title="")
    assert not [axes for axes in figure.axes if axes.images]
    assert figure.get_size_inches()[1] < 2
