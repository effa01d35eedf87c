"""Recorded results by slider and menu: what is drawn is what is recorded, and a choice changes it."""

import base64
import time

import pytest

from fssl_core.errors import FsslError, SettingError
from fssl_core.reporting import explore

DRAWN = 0.5  # seconds of CPU for a picture; it takes 0.1 to 0.2, and a test shares its core


@pytest.fixture
def results():
    return explore.recorded("monacosfl/beyond_tradeoff", "laptop")


@pytest.fixture
def traffic():
    return explore.recorded("monacosfl/fig3", "laptop")


@pytest.fixture
def distances():
    return explore.recorded("monacosfl/fig9", "laptop")


def line(axes, name: str) -> dict[float, float]:
    """The points of the line with a label."""
    (found,) = (found for found in axes.lines if found.get_label() == name)
    return dict(zip(*(data.tolist() for data in found.get_data()), strict=True))


def test_a_record_knows_its_profile_data_and_seeds(results):
    assert explore.profiles_of("monacosfl/beyond_tradeoff") == ["workstation", "laptop"]
    assert results.attrs == {"subtitle": "profile laptop · scattered-digits", "seeds": [0, 1, 2]}
    with pytest.raises(SettingError, match="profile='paper' cannot be used"):
        explore.recorded("monacosfl/beyond_tradeoff", "paper")


@pytest.mark.parametrize(("accuracy", "column"), [("linear probe", "linear_probe_accuracy"), ("kNN", "knn_accuracy")])
def test_one_cut_draws_the_means_over_seeds_and_writes_out_those_of_the_cut(results, accuracy, column):
    first, traffic, attack, keys = explore.one_cut(results, 5, accuracy=accuracy).axes
    for name, rows in results.groupby("method"):
        mean = rows.groupby("cut_layer")[[column, "bytes_per_client_epoch", "psnr", "identifiability"]].mean()
        assert line(first, name) == pytest.approx((100 * mean[column]).to_dict())
        assert line(traffic, name) == pytest.approx((mean["bytes_per_client_epoch"] / 2**20).to_dict())
        assert line(attack, name) == pytest.approx(mean["psnr"].to_dict())
        assert line(keys, name) == pytest.approx((100 * mean["identifiability"]).to_dict())
        assert f"{name} {100 * mean.loc[5, column]:.3g}" in first.get_title(loc="left")


def test_outside_of_a_clone_it_is_said_where_records_are(tmp_path, monkeypatch):
    monkeypatch.setattr("fssl_core.papers.records.records_root", lambda: tmp_path)
    with pytest.raises(FsslError, match=r"No record of monacosfl/fig6 is in .*: open this in a clone of the project"):
        explore.profiles_of("monacosfl/fig6")


def test_one_method_leaves_the_axes_as_they_are(results):
    both, one = (explore.one_cut(results, 9, method).axes for method in ("both", "MocoSFL"))
    assert [axes.get_ylim() for axes in both] == [axes.get_ylim() for axes in one]
    assert {line.get_label() for line in one[0].lines if line.get_label()[0] != "_"} == {"MocoSFL"}


def test_client_traffic_stacks_both_parts_and_names_the_cheapest_cut(traffic):
    (axes,) = explore.traffic_by_cut(traffic, "resnet18, cifar", "two-way", 5).axes
    rows = traffic[(traffic.architecture == "resnet18") & (traffic.rule == "two-way")].sort_values("cut_layer")
    tops = [bar.get_y() + bar.get_height() for bar in axes.containers[1]]
    assert tops == pytest.approx((rows.total_bytes / 2**20).tolist())
    assert axes.get_title(loc="left").endswith(f"least at cut {rows.cut_layer.iloc[rows.total_bytes.argmin()]}")


def test_momentum_distance_shows_400_steps_of_a_setting(distances):
    (axes,) = explore.momentum_distance(distances, "short windows", 201, "MonAcoSFL").axes
    rows = distances[(distances.setting == "short windows") & (distances.method == "MonAcoSFL")]
    expected = rows[rows.step.between(201, 600)].groupby("step").misalignment.mean()
    assert line(axes, "MonAcoSFL") == pytest.approx(expected.to_dict())


def test_bad_choices_are_refused_by_name(results, traffic, distances):
    for call, message in [
        (lambda: explore.one_cut(results, 4), "cut_layer=4"),
        (lambda: explore.one_cut(results, 5, "SFL"), "method='SFL'"),
        (lambda: explore.one_cut(results, 5, accuracy="top-5"), "accuracy='top-5'"),
        (lambda: explore.traffic_by_cut(traffic, "vgg", "two-way", 5), "network='vgg'"),
        (lambda: explore.traffic_by_cut(traffic, "resnet18, cifar", "all", 5), "rule='all'"),
        (lambda: explore.momentum_distance(distances, "long", 1), "setting='long'"),
    ]:
        with pytest.raises(SettingError, match=message):
            call()


def test_a_moved_slider_draws_anew_at_once_and_the_picture_is_stored_without_the_widget(results):
    pytest.importorskip("ipywidgets", reason="needs ipywidgets: pip install -e '.[notebooks]'")
    drawn = []

    def draw(cut_layer, method):
        drawn.append((cut_layer, method))
        return explore.one_cut(results, cut_layer, method)

    widget = explore.explorer(draw, cut_layer=[1, 5, 9], method=["both", "MocoSFL"])
    controls, picture = widget.children
    before = bytes(picture.value)
    seconds = []
    for cut_layer in (9, 1, 9):  # the least of three: what earlier tests have left is collected in one of them
        started = time.process_time()
        controls.children[0].value = cut_layer
        seconds.append(time.process_time() - started)
    assert min(seconds) < DRAWN
    assert drawn == [(5, "both"), (9, "both"), (1, "both"), (9, "both")]
    assert picture.value != before
    bundle = widget._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == picture.value
    assert "application/vnd.jupyter.widget-view+json" in bundle
