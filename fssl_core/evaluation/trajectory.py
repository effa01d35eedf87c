"""Where a training run moved: the path of its global models, and the plane that shows most of it.

Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018: Section 7.2 (a plane through the final model
along the two leading principal components of a run's models) and Section 4 (filter normalisation). Fig. 2 of L-DAWA
(Rehman et al., ICCV 2023) shows such paths, but does not say how its planes were obtained.

A choice of ours: filter-normalised directions are neither orthogonal nor of length 1. A model's coordinates are then
the least-squares ones, those of the point of the plane nearest to the model. (Li et al.'s code projects on each
direction by itself unless told, which is the same for orthonormal directions only.) Lengths and angles are measured
where they mean something, in weight space: :attr:`Plane.path`, :meth:`Plane.circle`.

Filter normalisation matters for comparing methods: behind a normalisation layer the scale of the weights has no
effect, so the same step seems larger to a model with smaller weights, and averages scaled by cosines, as those of
L-DAWA, have smaller weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fssl_core.errors import DataError

State = dict[str, Tensor]
COLUMNS = 1 << 15  # parameters handled at a time in float64: memory stays small beside that of the models
FLAT = 1e-12  # a second principal component of less than this share of the first one's variance is rounding
EQUAL = 1e-6  # points of a path that are closer than this share of its steps are equal but for rounding


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane through the final model of a run; a point is ``final + x * first + y * second direction``.

    Args:
        final: the final model's parameters, the origin.
        directions: of the parameters that change in the plane, both directions, ``[2, *shape]``.
        metric: inner products of the directions, float64 ``[2, 2]``; the identity without filter normalisation.
        coordinates: x and y of every model's projection, float64 ``[T, 2]``; the last is 0, 0.
        explained_variance: of the variance of the models, in the parameters that change, the share along each
            direction by itself, in [0, 1]. Without filter normalisation these are the principal components' own.
    """

    final: State
    directions: State
    metric: Tensor
    coordinates: Tensor
    explained_variance: tuple[float, float]

    def state(self, x: float, y: float) -> State:
        """The parameters at a point of the plane, under the models' names."""
        moved = {name: self.final[name] + x * first + y * second for name, (first, second) in self.directions.items()}
        return self.final | moved

    @property
    def norm(self) -> float:
        """Euclidean norm of the final model, in the parameters that change: a scale for the radius of a circle."""
        return sum(self.final[name].double().square().sum().item() for name in self.directions) ** 0.5

    @property
    def path(self) -> Tensor:
        """The projected models in axes of weight space, where lengths and angles are true ones: float64 ``[T, 2]``."""
        return self.coordinates @ torch.linalg.cholesky(self.metric)

    def circle(self, radius: float, points: int) -> Tensor:
        """Coordinates ``[points, 2]`` of points of the plane at one Euclidean distance from the final model."""
        angles = torch.arange(points, dtype=torch.float64) * (2 * torch.pi / points)
        true = radius * torch.stack([angles.cos(), angles.sin()], dim=1)
        return torch.linalg.solve(torch.linalg.cholesky(self.metric), true, left=False)


def pca_plane(models: Mapping[str, Tensor], *, filter_normalise: bool = False) -> Plane:
    """The plane of the two leading principal components of a run's models (Li et al., Section 7.2).

    As in Li et al. the components are those of the differences to the final model, centred, as principal components
    are; the plane goes through the final model. They come from the inner products of the models, ``[T, T]``. Of the
    two signs of a component the one is taken with which the model farthest out has a positive coordinate.

    Args:
        models: by name of the parameter, the models in the order of training, ``[T, *shape]`` with T >= 3: for
            example the ``parameter_blocks`` of a matrix with a model in each row. No buffers: running statistics
            follow from the weights.
        filter_normalise: scale each filter of a direction (what computes one output channel) to the norm of that
            filter of the final model. Biases and the parameters of normalisations (``[n]``) have no filters: as in
            Li et al. they do not change in the plane, and are no part of the components.

    Raises:
        DataError: fewer than three models, a parameter that is not finite, or models that do not span a plane.
    """
    _check_models(models)
    final = {name: block[-1] for name, block in models.items()}
    moved = {name: block for name, block in models.items() if block.dim() > 2 or not filter_normalise}
    centred = _centre(_inner_products(moved))
    variances, vectors = torch.linalg.eigh(centred)  # ascending
    variances, vectors = variances[[-1, -2]], vectors[:, [-1, -2]]
    if variances[1] <= FLAT * variances[0]:
        raise DataError(
            f"The {len(centred)} models lie on a line, or do not differ: a plane needs models of different directions."
        )
    offsets = vectors - vectors[-1]  # from the final model
    vectors = vectors * offsets.gather(0, offsets.abs().argmax(0, keepdim=True)).sign()

    # A component is a mixture of models; its weights sum to 0, so that a common shift of all models cancels.
    mixture = (vectors / variances.sqrt()).T  # [2, T]
    directions = {}
    for name, block in moved.items():
        parts = [mixture.to(rows.device) @ rows for rows in _differences(block)]  # each [2, columns]
        direction = torch.cat(parts, dim=1).view(2, *block.shape[1:]).to(block.dtype)
        directions[name] = _normalise_filters(direction, final[name]) if filter_normalise else direction

    inner, metric = _project(moved, directions)
    along = inner - inner.mean(0)
    explained = along.square().sum(0) / metric.diag() / centred.trace()
    coordinates = torch.linalg.solve(metric, inner, left=False)
    return Plane(final, directions, metric, coordinates, tuple(explained.tolist()))


def full_path(models: Mapping[str, Tensor]) -> Tensor:
    """The models as points of as few axes as hold them: all distances and angles of the full space are kept.

    Args:
        models: as for :func:`pca_plane`, at least one.

    Returns:
        float64 ``[T, T]``, for the functions of a path below.
    """
    variances, vectors = torch.linalg.eigh(_centre(_inner_products(models)))
    return vectors * variances.clamp_min(0).sqrt()


def _check_models(models: Mapping[str, Tensor]) -> None:
    counts = {len(block) for block in models.values()}
    if len(counts) != 1 or min(counts) < 3:
        raise DataError(
            f"A plane needs the same number of models for every parameter, at least 3, got {sorted(counts)}: "
            "save the global model of more rounds."
        )
    for name, block in models.items():
        if not block.isfinite().all():
            raise DataError(f"{name} is not finite in all models: the training has diverged. Leave those rounds out.")


def _differences(block: Tensor) -> Iterator[Tensor]:
    """Differences to the last model, float64 ``[T, columns]``, some parameters at a time."""
    for rows in block.reshape(len(block), -1).split(COLUMNS, dim=1):
        rows = rows.double()
        yield rows - rows[-1]


def _inner_products(models: Mapping[str, Tensor]) -> Tensor:
    """Inner products of the differences to the last model, float64 ``[T, T]``, on the CPU."""
    return sum(rows @ rows.T for block in models.values() for rows in _differences(block)).cpu()


def _centre(products: Tensor) -> Tensor:
    """Inner products ``[T, T]`` of vectors, as if their mean were subtracted from each."""
    means = products.mean(0)
    return products - means - means[:, None] + means.mean()


def _project(models: Mapping[str, Tensor], directions: State) -> tuple[Tensor, Tensor]:
    """Inner products of the directions with the models' differences to the last, ``[T, 2]``, and of one another."""
    inner, metric = 0, 0
    for name, direction in directions.items():
        parts = direction.reshape(2, -1).split(COLUMNS, dim=1)
        for rows, axes in zip(_differences(models[name]), parts, strict=True):
            axes = axes.double()
            inner, metric = inner + rows @ axes.T, metric + axes @ axes.T
    return inner.cpu(), metric.cpu()


def _normalise_filters(direction: Tensor, final: Tensor) -> Tensor:
    """``d_f * |w_f| / |d_f|`` for each filter f (Li et al., Section 4); a filter that does not move stays so.

    Args:
        direction: ``[2, out, ...]``.
        final: ``[out, ...]``.
    """
    lengths, norms = direction.flatten(2).norm(dim=2), final.flatten(1).norm(dim=1)  # [2, out] and [out]
    factors = torch.where(lengths > 0, norms / lengths, 0)
    return direction * factors.view(*factors.shape, *[1] * (final.dim() - 1))


# -------------------------------------------------------------------- numbers of a path


def path_ratio(path: Tensor) -> float:
    """Length of a path over the distance from its first to its last point: 1 for a straight line, else more.

    Args:
        path: ``[T, D]``, in axes with true lengths: :attr:`Plane.path` or :func:`full_path`.

    Raises:
        DataError: the path ends where it began.
    """
    length, distance = path.diff(dim=0).norm(dim=1).sum(), (path[-1] - path[0]).norm()
    if not distance > EQUAL * length:
        raise DataError("The path ends where it began: its length has nothing to be compared with.")
    return (length / distance).item()


def turning_angles(path: Tensor) -> Tensor:
    """Angles between successive steps of a path in degrees: 0 goes straight on, 180 turns back.

    Args:
        path: ``[T, D]``, T >= 3, as for :func:`path_ratio`.

    Returns:
        ``[T - 2]``, in [0, 180].

    Raises:
        DataError: fewer than three points, or two successive ones are equal.
    """
    steps = path.diff(dim=0)
    lengths = steps.norm(dim=1, keepdim=True)
    if len(path) < 3 or not (lengths > EQUAL * lengths.max()).all():
        raise DataError("Turning angles need at least 3 points of which no two successive ones are equal.")
    before, after = (steps / lengths).unfold(0, 2, 1).unbind(2)  # [T - 2, D] each
    return 2 * torch.atan2((before - after).norm(dim=1), (before + after).norm(dim=1)).rad2deg()


def late_turning_angle(path: Tensor) -> float:
    """Mean of :func:`turning_angles` over the last fifth of the steps: how much a run oscillates near its end.

    Args:
        path: as for :func:`turning_angles`. A turn belongs to the step that follows it; at least one counts.
    """
    steps = max(1, round(0.2 * (len(path) - 1)))
    return turning_angles(path)[-steps:].mean().item()
