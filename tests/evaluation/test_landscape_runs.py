import numpy as np
import pytest

from fssl_core.data.augment import augmentation
from fssl_core.errors import SettingError
from fssl_core.evaluation.landscape import circle_loss_increase, held_out_loss
from fssl_core.evaluation.landscape_runs import LandscapeSettings
from fssl_core.evaluation.trajectory import full_path, late_turning_angle, path_ratio, pca_plane
from fssl_core.experiments.store import run
from fssl_core.objectives import BYOL
from fssl_core.objectives.simclr import SimCLR
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.split import SplitSettings

FEDERATION = AveragingSettings(
    dataset="digits",
    train_images=80,
    architecture="resnet10",
    width=4,
    clients=2,
    partition="iid",
    probe_epochs=0,
    rounds=4,
    local_epochs=1,
    batch=16,
    keep_every=2,
    augmentation="digits",
    objective=SimCLR(projector=(8,)),
)
SMALL = LandscapeSettings(pretraining=FEDERATION, points=3, images=32, radii=(0.1, 0.2), circle_points=4)


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSSL_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("FSSL_DEVICE", "cpu")
        yield


@pytest.mark.parametrize("filter_normalise", [False, True])
def test_a_run_has_the_plane_of_the_kept_models_without_buffers_and_the_loss_in_it(filter_normalise):
    done = run(SMALL.changed(filter_normalise=filter_normalise), progress=False)
    data = FEDERATION.load_data()
    model = FEDERATION.build_model(data)
    kept = run(FEDERATION, progress=False).tensors("models")
    models = {name: kept[name] for name, _ in model.named_parameters()}
    plane = pca_plane(models, filter_normalise=filter_normalise)
    evaluate = held_out_loss(
        FEDERATION.objective, model, data, augmentation("digits", data.image_size), images=32, batch=16
    )

    path, surface = done.table("path"), done.table("surface")
    assert path["round"].tolist() == [0, 2, 4]
    np.testing.assert_allclose(path[["x", "y"]], plane.coordinates, atol=1e-9)
    assert len(surface) == 9
    for row in surface.iloc[[1, 5]].itertuples():
        assert row.loss == pytest.approx(evaluate(plane.state(row.x, row.y)), rel=1e-6)
    increases = [circle_loss_increase(plane, evaluate, radius * plane.norm, 4) for radius in (0.1, 0.2)]
    assert done.table("circles")["loss_increase"].tolist() == pytest.approx(increases, rel=1e-5)
    assert done.summary == {
        "path_ratio": pytest.approx(path_ratio(plane.path)),
        "late_turning_degrees": pytest.approx(late_turning_angle(plane.path)),
        "full_path_ratio": pytest.approx(path_ratio(full_path(models))),
        "full_late_turning_degrees": pytest.approx(late_turning_angle(full_path(models))),
        "circle_loss_increase": pytest.approx(increases[0], rel=1e-5),
        "final_loss": pytest.approx(evaluate(plane.state(0, 0))),
        "final_norm": pytest.approx(plane.norm),
        "explained_variance_x": pytest.approx(plane.explained_variance[0]),
        "explained_variance_y": pytest.approx(plane.explained_variance[1]),
        "official_data": False,
    }


def test_the_surface_is_square_and_holds_the_path_and_the_ring_which_has_its_radius():
    done = run(SMALL, progress=False)
    path, surface, ring = (done.table(name) for name in ("path", "surface", "ring"))
    sides = [surface[axis].max() - surface[axis].min() for axis in "xy"]
    assert sides[0] == pytest.approx(sides[1])
    for axis in "xy":
        for places in (path, ring):
            assert surface[axis].min() < places[axis].min() < places[axis].max() < surface[axis].max()
    np.testing.assert_allclose(np.hypot(ring["x"], ring["y"]), 0.1 * done.summary["final_norm"])


def test_every_evaluation_is_told_and_a_run_repeats_to_the_bit_with_a_surface_or_without():
    calls, tables = [], {}

    class Handle:
        def result_of(self, settings):
            return run(settings, progress=False)

        def write_table(self, name, table):
            tables[name] = table

    settings = SMALL.changed(points=2)
    summary = settings.execute(Handle(), lambda done, total: calls.append((done, total)))
    assert calls == [(done, 14) for done in range(1, 15)]  # 2 circles of 4 points and a centre, and 4 points
    assert summary == settings.execute(Handle(), lambda done, total: None)

    without = settings.changed(points=0)
    tables.clear()
    assert without.execute(Handle(), lambda done, total: None) == summary
    assert set(tables) == {"path", "circles", "ring"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pretraining": FEDERATION.changed(keep_every=0)}, r"AveragingSettings with keep_every=0.*keep_every=1"),
        ({"pretraining": SplitSettings()}, "SplitSettings with keep_every=0"),
        ({"points": 1}, "points=1"),
        ({"circle_points": 2}, "circle_points=2"),
        ({"radii": []}, r"radii=\(\)"),
        ({"radii": [0.1, 0.0]}, r"radii=\(0.1, 0.0\)"),
    ],
)
def test_settings_that_cannot_be_used_name_themselves(values, message):
    with pytest.raises(SettingError, match=message):
        SMALL.changed(**values)


def test_what_cannot_be_evaluated_is_refused_before_anything_is_trained():
    class Handle:
        def result_of(self, settings):
            raise AssertionError("trained")

    for settings, message in [
        (SMALL.changed(images=40), "images=40 .*multiple of batch=16"),
        (SMALL.changed(pretraining=FEDERATION.changed(objective=BYOL())), "objective='byol'"),
    ]:
        with pytest.raises(SettingError, match=message):
            settings.execute(Handle(), lambda done, total: None)
