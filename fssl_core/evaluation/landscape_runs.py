"""The path of a federation's global models and the loss around it, as a run of its own.

L-DAWA: Ur Rehman et al., "L-DAWA: layer-wise divergence aware weight aggregation in federated self-supervised visual
representation learning", ICCV 2023, Figure 2, which shows paths and surfaces and gives no number. The numbers here are
those of :mod:`fssl_core.evaluation.trajectory` and :mod:`fssl_core.evaluation.landscape`, ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor

from fssl_core.data.augment import augmentation
from fssl_core.data.datasets import Dataset
from fssl_core.devices import default_device
from fssl_core.errors import SettingError
from fssl_core.evaluation.landscape import Evaluate, circle_loss_increase, held_out_loss, loss_surface
from fssl_core.evaluation.trajectory import full_path, late_turning_angle, path_ratio, pca_plane
from fssl_core.settings import Count, Range, Settings, check_range

Extent = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class LandscapeSettings(Settings):
    """A plane through the global models of a pre-training, its loss, and what their path is like.

    ``pretraining`` is an ``AveragingSettings`` that keeps its global models (``keep_every``), of an objective without
    target branch and labels. The loss is that objective's, on test images, see
    :func:`~fssl_core.evaluation.landscape.held_out_loss`.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "point"

    pretraining: Settings
    filter_normalise: bool = False  # which plane: Li et al., Section 4
    points: int = 21  # of the grid, along each axis; 0: no surface
    images: Count = 512  # test images, a multiple of the pre-training's batch
    radii: tuple[float, ...] = (0.05, 0.02, 0.1)  # of circles, shares of the final norm; the summary has the first
    circle_points: Annotated[int, Range(3)] = 32  # on each circle
    seed: int = 0  # of test images and augmentations

    def check(self) -> None:
        kept = getattr(self.pretraining, "keep_every", 0)
        if not kept:
            expected = "settings that keep global models, for example AveragingSettings(keep_every=1)"
            raise SettingError("pretraining", f"{type(self.pretraining).__name__} with keep_every={kept}", expected)
        if self.points:
            check_range("points", self.points, 2)
        if not self.radii or min(self.radii) <= 0:
            raise SettingError("radii", self.radii, "one or more positive shares of the final model's norm")

    def held_out_loss(self, data: Dataset) -> Evaluate:
        """The loss as a function of all parameters, on test images of the pre-training's ``data``.

        Raises:
            SettingError: an objective, or a number of images, that does not fit.
        """
        source = self.pretraining
        return held_out_loss(
            source.objective,
            source.build_model(data),
            data,
            augmentation(source.augmentation, data.image_size),
            images=self.images,
            batch=source.batch,
            seed=self.seed,
            precision=source.precision,
        )

    def models(self, run, data: Dataset) -> dict[str, Tensor]:
        """The kept models of a finished pre-training without buffers: by name ``[T, *shape]``, on the data's device."""
        kept = run.tensors("models")
        names = [name for name, _ in self.pretraining.build_model(data).named_parameters()]
        return {name: kept[name].to(data.test.images.device) for name in names}

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Pre-train unless that run is finished, and leave the tables path, circles, ring and surface.

        Tables: ``path`` with the round, x and y of each kept model; ``circles`` with ``radius`` (share of the norm)
        and ``loss_increase``; ``ring`` with x and y of the first circle; ``surface`` with x, y and loss.

        Returns:
            the run's summary: ``path_ratio`` and ``late_turning_degrees`` of the path in the plane, and with
            ``full_`` before them those of the path in the space of all parameters; ``circle_loss_increase`` at the
            first radius; ``final_loss`` and ``final_norm``; ``explained_variance_x`` and ``_y``, fractions.
        """
        data = self.pretraining.load_data(default_device())
        evaluate = self.held_out_loss(data)  # what cannot be evaluated is found before any training
        models = self.models(run.result_of(self.pretraining), data)
        plane = pca_plane(models, filter_normalise=self.filter_normalise)

        total, done = len(self.radii) * (self.circle_points + 1) + self.points**2, 0

        def evaluate_and_tell(state) -> float:
            nonlocal done
            loss = evaluate(state)
            done += 1
            progress(done, total)
            return loss

        circles = [
            circle_loss_increase(plane, evaluate_and_tell, radius * plane.norm, self.circle_points)
            for radius in self.radii
        ]
        run.write_table("circles", pd.DataFrame({"radius": self.radii, "loss_increase": circles}))
        ring = plane.circle(self.radii[0] * plane.norm, 72)
        run.write_table("ring", pd.DataFrame(ring.numpy(), columns=["x", "y"]))
        path = pd.DataFrame(plane.coordinates.numpy(), columns=["x", "y"])
        path.insert(0, "round", [number * self.pretraining.keep_every for number in range(len(path))])
        run.write_table("path", path)
        if self.points:
            x, y, loss = loss_surface(
                plane, evaluate_and_tell, _square(torch.cat([plane.coordinates, ring])), self.points
            )
            grid = {"x": x.repeat(len(y)), "y": y.repeat_interleave(len(x)), "loss": loss.flatten()}
            run.write_table("surface", pd.DataFrame(grid))
        full, (along_x, along_y) = full_path(models), plane.explained_variance
        return {
            "path_ratio": path_ratio(plane.path),
            "late_turning_degrees": late_turning_angle(plane.path),
            "full_path_ratio": path_ratio(full),
            "full_late_turning_degrees": late_turning_angle(full),
            "circle_loss_increase": circles[0],
            "final_loss": evaluate(plane.state(0, 0)),
            "final_norm": plane.norm,
            "explained_variance_x": along_x,
            "explained_variance_y": along_y,
            "official_data": data.official,  # False: not comparable with published numbers
        }


def _square(points: Tensor) -> Extent:
    """A square around points ``[N, 2]``, with a tenth of their extent on the sides: angles are drawn as they are."""
    low, high = points.aminmax(dim=0)
    centre, half = (low + high) / 2, 0.6 * (high - low).max().item()
    return tuple((middle - half, middle + half) for middle in centre.tolist())
