"""The loss around a trained model, on the plane in which its training moved.

Fig. 2 of L-DAWA (Rehman et al., ICCV 2023; Sections 3.2 and 5.2) shows global models' paths over the loss, but does not
say how. This is the usual way, that of Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018; the
plane is made in :mod:`fssl_core.evaluation.trajectory`. Two choices of ours:

- *Loss of a point.* That of the self-supervised objective on held-out images that are always the same, with
  augmentations that are always the same, so that points and methods differ in nothing but the weights.
- *Batch norm.* Models that nobody trained have no running statistics, and interpolated ones belong to no model. The
  loss is computed in training mode, each batch by its own statistics, as it was in training.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fssl_core.data.augment import Augmentation
from fssl_core.data.datasets import Dataset
from fssl_core.devices import autocast, repeatable_kernels
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.trajectory import Plane, State
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives import Objective
from fssl_core.random import generator
from fssl_core.settings import check_range

Evaluate = Callable[[State], float]


def held_out_loss(
    objective: Objective,
    model: nn.Module,
    data: Dataset,
    augment: Augmentation,
    *,
    images: int = 512,
    batch: int = 256,
    seed: int = 0,
    precision: str = "float32",
) -> Evaluate:
    """The loss of an objective on test images, as a function of the model's parameters and nothing else.

    Images and augmentations are drawn here, from ``seed`` alone: two calls with the same data, ``augment``, ``images``
    and ``seed`` see the same views, whatever the objective. Batch norm uses the statistics of each batch.

    Args:
        objective: one without target branch, labels and what clients share, as SimCLR and Barlow Twins. The loss of
            the others depends on more than one model and its views.
        model: of that objective, on the images' device; only its form is used.
        data: the views are of its test images.
        augment: as in training.
        images: number of test images, a multiple of ``batch``.
        batch: images a forward pass; contrastive losses depend on it, so it should be that of the training.
        seed: of images and augmentations.
        precision: of forward passes, as that of a run; ``"bfloat16"``: autocast.

    Returns:
        a function from all parameters, by name, to the loss, in the objective's unit, averaged over batches.

    Raises:
        SettingError: an objective, or a number of images, that does not fit. The function raises
            :class:`DataError` for a state that does not hold exactly the parameters.
    """
    if objective.has_target or objective.supervised or objective.shares:
        expected = "one without target branch and labels, whose loss is a function of one model and views"
        raise SettingError("objective", objective.name, expected)
    check_range("batch", batch, 2)
    if not 1 <= images <= len(data.test) or images % batch:
        raise SettingError("images", images, f"a multiple of batch={batch}, up to {len(data.test)} test images")
    device = data.test.images.device
    chosen = torch.randperm(len(data.test), generator=generator(seed, "landscape images"))[:images]
    draws = augment.draw(2 * images, generator(seed, "landscape augmentations")).unflatten(0, (images, 2))
    views = augment.two_views(data.test.images[chosen.to(device)][None], draws[None])[0]  # [2, N, C, H, W]

    online = ClientMatrix(model, 1)  # its running statistics are written in every pass and never read
    views = data.normalise(views, online.weights.dtype)
    learner = objective.learner(online, None)
    learner.online.train()

    @torch.no_grad()
    def evaluate(state: State) -> float:
        if state.keys() != online.parameter_blocks.keys():
            wrong = ", ".join(sorted(state.keys() ^ online.parameter_blocks.keys()))
            raise DataError(f"The loss needs all parameters of the model and nothing else; look at {wrong}.")
        for name, block in online.parameter_blocks.items():
            block[0].copy_(state[name])
        with repeatable_kernels(), autocast(device, precision):
            losses = [learner.loss(part)[0].double() for part in views.split(batch, dim=1)]
        return torch.stack(losses).mean().item()

    return evaluate


def loss_surface(
    plane: Plane,
    evaluate: Evaluate,
    extent: tuple[tuple[float, float], tuple[float, float]],
    points: int = 21,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss on a grid of the plane.

    Args:
        plane: see :func:`~fssl_core.evaluation.trajectory.pca_plane`.
        evaluate: the loss of a model's parameters, for example :func:`held_out_loss`.
        extent: smallest and largest x, and y.
        points: of the grid, along each axis, at least 2.

    Returns:
        x ``[points]``, y ``[points]`` and the loss ``[points, points]``, a row for each y, as contour plots take it;
        float64 on the CPU. A loss that is not finite stays so.
    """
    x, y = (torch.linspace(low, high, points, dtype=torch.float64) for low, high in extent)
    grid = torch.cartesian_prod(y, x).flip(1)  # [points * points, 2], x varies first
    return x, y, _losses(plane, evaluate, grid).view(points, points)


def circle_loss_increase(
    plane: Plane,
    evaluate: Evaluate,
    radius: float,
    points: int = 32,
) -> float:
    """How much the loss rises around the final model: its mean on a circle, less that of the final model.

    Args:
        plane: see :func:`~fssl_core.evaluation.trajectory.pca_plane`.
        evaluate: as for :func:`loss_surface`.
        radius: Euclidean distance in weight space, above 0. For models with normalisation layers a fraction of
            :attr:`Plane.norm` compares two runs better than one distance for both.
        points: on the circle, evenly spaced, at least 3.
    """
    check_range("points", points, 3)
    if not radius > 0:
        raise SettingError("radius", radius, "a positive distance")
    coordinates = torch.cat([plane.circle(radius, points), torch.zeros(1, 2, dtype=torch.float64)])
    losses = _losses(plane, evaluate, coordinates)
    return (losses[:-1].mean() - losses[-1]).item()


def _losses(plane: Plane, evaluate: Evaluate, coordinates: Tensor) -> Tensor:
    return torch.tensor([evaluate(plane.state(x, y)) for x, y in coordinates.tolist()], dtype=torch.float64)
