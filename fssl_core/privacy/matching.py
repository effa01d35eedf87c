"""Reconstruction by matching: images are changed until a model answers to them as it did to those that are wanted.

What an attacker can match is the representations that were sent (He et al., "Model inversion attacks against
collaborative inference", ACSAC 2019), and the gradient of a training loss (Zhu et al., "Deep leakage from gradients",
NeurIPS 2019; as a cosine: Geiping et al., "Inverting gradients", NeurIPS 2020). Total variation, of which real images
have little, decides where these leave something open. Whoever lacks the model matches with a surrogate of the same
architecture: one with random values, or one that is fitted along with the images (Erdogan et al., "UnSplit", WPES
2022).

For images x, representations z of a model f and the gradient g of its loss, the attack minimises::

    sum_n |f(x_n) - z_n|^2 / |z_n|^2 + total_variation * TV(x_n) + gradient_weight * (1 - cos(grad loss(x), g))

by Adam, with a rate that falls as half a cosine; pixels are put back into [0, 1] after each step. All terms are free of
scale, so weights mean the same for all models.
"""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import DataError, NonFiniteLossError
from fssl_core.learning_rates import half_cosine

LOGGED = 20  # rows of an attack's history, beside that of its start
SURROGATE_RATE = 1e-3  # of Adam, for a surrogate that is fitted: Adam's own default, as in UnSplit's code


def total_variation(images: Tensor) -> Tensor:
    """Mean difference between neighbouring pixels, down plus across: ``[..., C, H, W]`` to ``[...]``, in [0, 2]."""
    down, across = images.diff(dim=-2).abs(), images.diff(dim=-1).abs()
    return down.mean((-3, -2, -1)) + across.mean((-3, -2, -1))


def representation_error(representation: Tensor, sent: Tensor) -> Tensor:
    """``|representation - sent|^2 / |sent|^2`` of each image over all its views: ``[V, N, ...]`` to ``[N]``."""
    difference, size = (values.square().transpose(0, 1).flatten(1).sum(1) for values in (representation - sent, sent))
    return difference / size


class GradientDistance:
    """How far the gradient that some images give is from the one of the wanted images: ``1 - cos``, in [0, 2].

    Args:
        loss: of all images as one batch, ``[V, N, C, H, W]`` to a scalar.
        parameters: that it is differentiated by; they need gradients.
        images: the wanted ones, of which the gradient is all that is kept.
    """

    def __init__(self, loss: Callable[[Tensor], Tensor], parameters: Sequence[nn.Parameter], images: Tensor) -> None:
        self.loss, self.parameters = loss, list(parameters)
        self.observed = self.gradient(images).detach()  # [P]

    def gradient(self, images: Tensor, create_graph: bool = False) -> Tensor:
        """Of the loss of these images by all parameters, in one row ``[P]``."""
        parts = torch.autograd.grad(self.loss(images), self.parameters, create_graph=create_graph)
        return torch.cat([part.flatten() for part in parts])

    def __call__(self, images: Tensor) -> Tensor:
        """A scalar that can be differentiated by the images."""
        return 1 - F.cosine_similarity(self.gradient(images, create_graph=True), self.observed, dim=0)


def match(
    represent: Callable[[Tensor], Tensor],
    sent: Tensor,
    start: Tensor,
    *,
    iterations: int,
    learning_rate: float,
    total_variation_weight: float = 0.0,
    gradient_distance: GradientDistance | None = None,
    gradient_weight: float = 0.0,
    surrogate: Sequence[nn.Parameter] = (),
    measure: Callable[[Tensor], dict[str, float]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tensor, pd.DataFrame]:
    """Search images of which ``represent`` makes what was sent; all at once, each by itself unless gradients match.

    Args:
        represent: the model, images in [0, 1] ``[V, N, C, H, W]`` to representations like ``sent``.
        sent: representations of V views of N images, ``[V, N, ...]``.
        start: where the search begins, ``[V, N, C, H, W]`` in [0, 1].
        iterations: steps of Adam.
        learning_rate: of the first step, in units of a pixel's range.
        total_variation_weight: of :func:`total_variation`, the mean over an image's views.
        gradient_distance: what else is matched.
        gradient_weight: of it, as if it were one of each image.
        surrogate: parameters of ``represent`` that are fitted along with the images.
        measure: of images, figures that go into the history. The attack does not see them.
        progress: called with the number of finished steps.

    Returns:
        the images after the last step, and a table: iteration (0 is the start), ``representation_error`` and
        ``total_variation`` as means over images, ``gradient_distance`` (NaN where none is matched), and the measures.

    Raises:
        DataError: representations are not finite, or one is all zeros.
        NonFiniteLossError: the search has diverged.
    """
    _check_sent(sent)
    images = start.clone().requires_grad_()
    groups = [{"params": [images], "lr": learning_rate}]
    if surrogate:
        groups.append({"params": list(surrogate), "lr": SURROGATE_RATE})
    optimizer = torch.optim.Adam(groups)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: half_cosine(step, iterations))
    logged = {round(row * iterations / LOGGED) for row in range(LOGGED + 1)}
    history = []
    for step in range(iterations + 1):
        errors = representation_error(represent(images), sent)  # [N]
        variation = total_variation(images).mean(0)  # [N]
        loss = (errors + total_variation_weight * variation).sum()
        distance = None
        if gradient_distance is not None:
            distance = gradient_distance(images)
            loss = loss + gradient_weight * len(errors) * distance
        if step in logged:
            if not loss.isfinite():
                raise NonFiniteLossError(
                    f"the loss of the attack is {loss.item()} at step {step}. Lower learning_rate={learning_rate}."
                )
            figures = {
                "iteration": step,
                "representation_error": errors.mean().item(),
                "total_variation": variation.mean().item(),
                "gradient_distance": math.nan if distance is None else distance.item(),
            }
            history.append(figures | (measure(images.detach()) if measure else {}))
        if step == iterations:
            break
        variables = [images, *surrogate]
        for parameter, gradient in zip(variables, torch.autograd.grad(loss, variables), strict=True):
            parameter.grad = gradient
        optimizer.step()
        fall.step()
        with torch.no_grad():
            images.clamp_(0, 1)
        if progress is not None:
            progress(step + 1)
    return images.detach(), pd.DataFrame(history)


def _check_sent(sent: Tensor) -> None:
    if not sent.isfinite().all():
        raise DataError("The representations that were sent are not all finite: the attacked model has diverged.")
    if not sent.transpose(0, 1).flatten(1).any(1).all():
        raise DataError("A representation that was sent is all zeros: there is nothing to match.")
