import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from fssl_core.errors import DataError
from fssl_core.evaluation import trajectory
from fssl_core.evaluation.trajectory import full_path, late_turning_angle, path_ratio, pca_plane, turning_angles

SHAPES = {"conv.weight": (6, 3, 3, 3), "norm.weight": (6,), "linear.weight": (4, 5), "linear.bias": (4,)}


def saved_models(count=9, seed=0, dtype=torch.float64):
    """A random walk with a drift: parameters by name, [count, *shape]."""
    source = torch.Generator().manual_seed(seed)
    draw = {name: torch.randn(count, *shape, generator=source, dtype=dtype) for name, shape in SHAPES.items()}
    return {name: 5 + steps.cumsum(0) + 0.3 * torch.arange(count).view(-1, *[1] * (steps.dim() - 1)) * steps[:1]
            for name, steps in draw.items()}  # fmt: skip


def rows(models):
    """The models as numpy rows, [count, parameters]."""
    return torch.cat([block.flatten(1) for block in models.values()], dim=1).double().numpy()


def axes(plane):
    return rows(plane.directions)  # [2, parameters]


@pytest.mark.parametrize("columns", [1 << 15, 7])  # all parameters at a time, and a few
def test_plane_coordinates_and_explained_variance_are_those_of_scikit_learn(monkeypatch, columns):
    monkeypatch.setattr(trajectory, "COLUMNS", columns)
    models = saved_models()
    plane, pca = pca_plane(models), PCA(n_components=2).fit(rows(models))
    projected = pca.transform(rows(models))
    projected -= projected[-1]
    signs = np.sign((projected * plane.coordinates.numpy()).sum(0))  # those of components are a convention
    np.testing.assert_allclose(plane.coordinates, projected * signs, atol=1e-9)
    np.testing.assert_allclose(axes(plane), pca.components_ * signs[:, None], atol=1e-10)
    np.testing.assert_allclose(plane.explained_variance, pca.explained_variance_ratio_, rtol=1e-10)
    torch.testing.assert_close(plane.path, plane.coordinates)  # orthonormal: the same thing


def test_the_model_farthest_out_has_positive_coordinates_whatever_the_library_says():
    for seed in range(5):
        coordinates = pca_plane(saved_models(seed=seed)).coordinates
        assert (coordinates.gather(0, coordinates.abs().argmax(0, keepdim=True)) > 0).all()


def test_models_of_a_plane_are_found_again_at_their_coordinates_and_the_origin_is_the_final_model():
    source = torch.Generator().manual_seed(1)
    places = torch.randn(6, 2, generator=source, dtype=torch.float64)
    models = {
        name: 3 + torch.einsum("tk,k...->t...", places, torch.randn(2, *shape, generator=source, dtype=torch.float64))
        for name, shape in SHAPES.items()
    }
    plane = pca_plane(models)
    assert sum(plane.explained_variance) == pytest.approx(1, abs=1e-12)
    for row, (x, y) in enumerate(plane.coordinates.tolist()):
        for name, values in plane.state(x, y).items():
            torch.testing.assert_close(values, models[name][row], rtol=0, atol=1e-10)
    assert all(torch.equal(values, models[name][-1]) for name, values in plane.state(0, 0).items())


def test_every_filter_of_a_normalised_direction_is_as_long_as_that_of_the_final_model():
    models = saved_models()
    models["conv.weight"][:, 2] = 1.5  # a filter that never moved
    plane = pca_plane(models, filter_normalise=True)
    assert set(plane.directions) == {"conv.weight", "linear.weight"}
    for name, direction in plane.directions.items():
        for axis in direction:
            for index, (moved, own) in enumerate(zip(axis, models[name][-1], strict=True)):
                expected = 0 if (name, index) == ("conv.weight", 2) else own.square().sum().sqrt().item()
                assert moved.square().sum().sqrt().item() == pytest.approx(expected, rel=1e-12)
    moved = plane.state(0.3, -0.2)
    for name in ("norm.weight", "linear.bias"):  # no filters: they stay
        assert torch.equal(moved[name], models[name][-1])


def test_normalised_directions_are_those_of_the_components_filter_by_filter():
    models = {name: block for name, block in saved_models().items() if block.dim() > 2}
    plain, normalised = pca_plane(models), pca_plane(models, filter_normalise=True)
    for name, direction in plain.directions.items():
        cosine = torch.cosine_similarity(direction.flatten(2), normalised.directions[name].flatten(2), dim=2)
        torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_coordinates_on_oblique_directions_are_those_of_least_squares():
    models = saved_models()
    models["linear.weight"][:, 0] += 40  # one long filter: the directions' angle in it is about that of the whole
    plane = pca_plane(models, filter_normalise=True)
    moved = rows({name: models[name] for name in plane.directions})
    expected = np.linalg.lstsq(axes(plane).T, (moved - moved[-1]).T, rcond=None)[0].T
    np.testing.assert_allclose(plane.coordinates, expected, atol=1e-10)
    assert abs(plane.metric[0, 1]) > 0.1 * plane.metric[0, 0]  # else this says nothing about oblique ones
    units = axes(plane) / np.linalg.norm(axes(plane), axis=1, keepdims=True)
    np.testing.assert_allclose(plane.explained_variance, (moved @ units.T).var(0) / moved.var(0).sum(), rtol=1e-10)

    projected = expected @ axes(plane)  # the path keeps the lengths that its points have in weight space
    lengths = np.linalg.norm(projected[:, None] - projected, axis=2)
    np.testing.assert_allclose(torch.cdist(plane.path, plane.path), lengths, atol=1e-6)
    assert plane.norm == pytest.approx(np.linalg.norm(moved[-1]))


@pytest.mark.parametrize("filter_normalise", [False, True])
def test_a_circle_has_one_distance_in_weight_space_and_goes_round(filter_normalise):
    plane = pca_plane(saved_models(), filter_normalise=filter_normalise)
    points = plane.circle(0.7, 12)
    places = points.numpy() @ axes(plane)
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 0.7, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=1), 1.4 * math.sin(math.pi / 12))


def test_float32_models_give_float32_points_and_the_same_coordinates_again():
    models = saved_models(dtype=torch.float32)
    first, second = pca_plane(models, filter_normalise=True), pca_plane(models, filter_normalise=True)
    assert torch.equal(first.coordinates, second.coordinates)
    for name, values in first.state(0.1, 0.2).items():
        assert values.dtype == torch.float32
        assert torch.equal(values, second.state(0.1, 0.2)[name])
    exact = pca_plane({name: block.double() for name, block in models.items()}, filter_normalise=True)
    torch.testing.assert_close(first.coordinates, exact.coordinates, rtol=0, atol=1e-6)


def test_the_full_path_keeps_all_distances():
    models = saved_models()
    path = full_path(models)
    assert path.shape == (9, 9)
    expected = torch.from_numpy(rows(models))
    torch.testing.assert_close(torch.cdist(path, path), torch.cdist(expected, expected))
    torch.testing.assert_close(turning_angles(path), turning_angles(expected))
    assert path_ratio(path) == pytest.approx(path_ratio(expected), rel=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: block[:2], "at least 3, got .2.: save"),
        (lambda block: block * math.nan, "conv.weight is not finite"),
        (lambda block: block[-1:].expand_as(block), "The 9 models lie on a line, or do not differ"),
        (lambda block: block[-1] + torch.arange(9).view(-1, *[1] * (block.dim() - 1)), "lie on a line"),
    ],
)
def test_models_without_a_plane_are_an_error(change, message):
    with pytest.raises(DataError, match=message):
        pca_plane({name: change(block) for name, block in saved_models().items()})


def points(*places):
    return torch.tensor(places, dtype=torch.float64)


def test_path_numbers_of_paths_made_by_hand():
    straight = points((0, 0), (1, 2), (3, 6), (4, 8))
    assert path_ratio(straight) == pytest.approx(1)
    torch.testing.assert_close(turning_angles(straight), torch.zeros(2, dtype=torch.float64))

    zigzag = points((0, 0), (1, 0), (0, 0), (1, 0))
    assert path_ratio(zigzag) == pytest.approx(3)
    torch.testing.assert_close(turning_angles(zigzag), torch.full((2,), 180, dtype=torch.float64))

    corner = points((0, 0), (3, 0), (3, 4))
    assert path_ratio(corner) == pytest.approx(7 / 5)
    assert turning_angles(corner).tolist() == pytest.approx([90])

    angle = torch.arange(181, dtype=torch.float64).deg2rad()  # half a circle, a degree a step
    half = torch.stack([angle.cos(), angle.sin()], dim=1)
    torch.testing.assert_close(turning_angles(half), torch.ones(179, dtype=torch.float64))
    assert path_ratio(half) == pytest.approx(math.pi / 2, rel=1e-4)


def test_the_late_angle_counts_the_turns_into_the_last_fifth_of_the_steps():
    # 10 steps: straight on for eight of them, a right angle into the ninth, back in the tenth
    path = points(*((x, 0) for x in range(9)), (8, 1), (8, 0))
    assert late_turning_angle(path) == pytest.approx((90 + 180) / 2)
    longer = points(*((x, 0) for x in range(11)), (10, 1), (10, 0), (10, 1))  # a fifth of 13 steps is nearly three
    assert late_turning_angle(longer) == pytest.approx((90 + 180 + 180) / 3)


def test_paths_without_the_number_are_errors():
    with pytest.raises(DataError, match="ends where it began"):
        path_ratio(points((1, 1), (2, 3), (1, 1)))
    for path in (points((0, 0), (1, 1)), points((0, 0), (1, 1), (1, 1), (2, 0))):
        with pytest.raises(DataError, match="at least 3 points of which no two successive ones are equal"):
            turning_angles(path)
    models = saved_models()
    for block in models.values():
        block[4] = block[3]  # in the full space, too, where equal models differ by rounding
    with pytest.raises(DataError, match="no two successive ones are equal"):
        turning_angles(full_path(models))
