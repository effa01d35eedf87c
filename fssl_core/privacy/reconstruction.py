"""Reconstruction attacks on what clients send: MFCL's representations, and activations of split learning.

Motamedi and Kim, "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients", Section
5.6.2 and Table 8: can the rServer get images back from the representations of their views, if the two servers collude
(C1) or do not (C0), if clients mix (D1) or do not (D0)? :func:`~fssl_core.privacy.threat.two_servers` says what the
attacker knows in each case; :mod:`fssl_core.privacy.matching` is the attack. As in the paper there are two steps: from
representations to views, and from the two views of an image to the image, here simply by their mean.

The paper shows pictures and names neither the attack nor its numbers of images and steps, so these are ours. So are two
stronger attackers: one that fits its surrogate, and one that undoes DataMix (:mod:`fssl_core.privacy.unmixing`).

The same attack on test images, one at a time and not augmented, as
:class:`~fssl_core.privacy.inversion.InversionSettings` attacks them with a decoder: for phase 1 of MFCL, and for every
run with a method ``client_model``, such as split learning's.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.models import paired
from fssl_core.objectives.reconstruction import LOSSES
from fssl_core.privacy.image_quality import check_size, explained, mse, quality
from fssl_core.privacy.inversion import as_uint8, draw_images
from fssl_core.privacy.matching import GradientDistance, match
from fssl_core.privacy.threat import ACTIVATION_MATCHING, SURROGATES, ThreatModel, matching_without_model, two_servers
from fssl_core.privacy.unmixing import unmix, zero_patterns
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range, Settings, check_choice


@dataclass(frozen=True, eq=False)
class Attacked:
    """What is attacked, and what the attack is measured by.

    Args:
        sent: what V views of N images were sent as, ``[V, N, c, h, w]``.
        views: these views, ``[V, N, C, H, W]`` in [0, 1]. Only the gradient of them may be the attacker's.
        images: what they are views of, ``[N, C, H, W]`` in [0, 1].
    """

    sent: Tensor
    views: Tensor
    images: Tensor


@dataclass(frozen=True, kw_only=True)
class ReconstructionSettings(Settings):
    """An attack on one run.

    The target is one of three:

    - settings with a ``phase1`` (MFCL's phase 2): what a client sends of its first pair of views of each image, in
      mixtures if the target has ``datamix``. Phase 2 itself is not needed, and not run.
    - MFCL's phase 1 alone: its client module's representations of test images.
    - settings with a method ``client_model(run, data)``: activations of test images, as for ``InversionSettings``,
      which draws the same test images from the same seed.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "iteration"

    target: Settings  # a run that was not run yet is run first
    collusion: bool = True  # C; the server of split learning has the client's model anyway
    secure_aggregation: bool = False  # in phase 1: nobody has a single client's gradient
    surrogate: str = "random"  # without collusion: "random" stays as it is, "fitted" is fitted with the images
    unmix: bool = False  # undo DataMix first, in groups of two; else a mixture is taken for a representation
    seed: int = 1138
    images: Annotated[int, Range(2)] = 8  # attacked at once: papers/data/mfcl_settings.yaml; two have a standard error
    iterations: Count = 300  # enough: the error does not fall any more
    learning_rate: NonNegative = 0.1  # of Adam, in units of a pixel's range
    total_variation: NonNegative = 1e-3  # weight
    gradient: NonNegative = 0.01  # weight, where the gradient is known; 0: it is not matched

    def check(self) -> None:
        if self._phase1 is None and not callable(getattr(self.target, "client_model", None)):
            expected = "settings of MFCL (ModularSettings, AutoencoderSettings), or with client_model(run, data)"
            raise SettingError("target", type(self.target).__name__, expected)
        if self._phase1 is None and not self.collusion:
            expected = f"True for {type(self.target).__name__}, whose server has the client's model"
            raise SettingError("collusion", self.collusion, expected)
        check_choice("surrogate", self.surrogate, SURROGATES)
        if self.collusion and self.surrogate != "random":
            raise SettingError("surrogate", self.surrogate, "random with collusion, which needs no surrogate")
        if self.secure_aggregation and not self._sends_views:
            expected = f"False for {type(self.target).__name__}: gradients are the attacker's in MFCL's phase 2 alone"
            raise SettingError("secure_aggregation", self.secure_aggregation, expected)
        if self.unmix and getattr(self.target, "datamix", 1) != 2:
            raise SettingError(
                "unmix", self.unmix, "False where the target's datamix is not 2: mixtures of two examples"
            )

    @property
    def _sends_views(self) -> bool:
        return hasattr(self.target, "phase1")

    @property
    def _phase1(self) -> Settings | None:
        """MFCL's; None for others."""
        first = getattr(self.target, "phase1", self.target)
        return first if getattr(getattr(first, "objective", None), "name", None) == "reconstruction" else None

    @property
    def needs(self) -> tuple[Settings, ...]:
        """Of MFCL its phase 1, which made the module that the clients send with."""
        return (self._phase1 or self.target,)

    @property
    def threat(self) -> ThreatModel:
        """What the attacker knows."""
        if not self._sends_views:
            return ACTIVATION_MATCHING if self.collusion else matching_without_model(self.surrogate)
        return two_servers(
            collusion=self.collusion,
            datamix=self.target.datamix > 1,
            secure_aggregation=self.secure_aggregation,
            surrogate=self.surrogate,
            unmix=self.unmix,
        )

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Attack, and leave a table and tensors in the run's folder.

        Table ``history``: see :func:`~fssl_core.privacy.matching.match`; its mse is that of the views. Tensors
        ``reconstructions``, all uint8: the ``originals`` ``[N, C, H, W]``, the ``views`` that were attacked and the
        ``reconstructions`` of them, both ``[V, N, C, H, W]`` with V of 2, or 1 for test images.

        Returns:
            the run's summary. Means over the attacked views, with standard errors: mse, psnr in decibel, ssim; and
            :func:`~fssl_core.privacy.image_quality.explained`. The same of the image, for which the mean of its
            reconstructed views is the guess, with ``image_`` before them.
            ``grey_mse``: of views for a guess of 0.5 everywhere. ``case``: as in Table 8, None for test images.
        """
        keep_freed_memory()
        data = self.target.load_data(default_device())
        check_size(data.image_size)
        progress(0, self.iterations)
        with repeatable_kernels():
            attacked = self.choose(run, data)
            reconstructions, history = self.attack(run, data, attacked, progress)
        run.write_table("history", history)
        tensors = {"originals": attacked.images, "views": attacked.views, "reconstructions": reconstructions}
        run.save_tensors("reconstructions", {name: as_uint8(pixels) for name, pixels in tensors.items()})
        views = attacked.views.flatten(0, 1)
        compared = {"": (reconstructions.flatten(0, 1), views), "image_": (reconstructions.mean(0), attacked.images)}
        measured = {}
        for prefix, (guess, truth) in compared.items():
            values = quality(guess, truth) | {"explained": explained(guess, truth).mean().item()}
            measured |= {prefix + name: value for name, value in values.items()}
        return {
            "case": getattr(self.threat, "case", None),
            **measured,
            "grey_mse": mse(torch.full_like(views, 0.5), views).mean().item(),
            "representation_error": history["representation_error"].iloc[-1],
            "latent": "x".join(map(str, attacked.sent.shape[2:])),
            "official_data": data.official,  # False: not comparable with published numbers
        }

    def attack(
        self, run, data: Dataset, attacked: Attacked, progress: Callable[..., None]
    ) -> tuple[Tensor, pd.DataFrame]:
        """What the attacker makes of it: images ``[V, N, C, H, W]`` in [0, 1]; and the history."""
        module = self.attackers_module(run, data)
        fitted = not self.collusion and self.surrogate == "fitted"
        module.requires_grad_(fitted)
        start = torch.rand(attacked.views.shape, generator=generator(self.seed, "start of the search"))
        gradient = self.gradient > 0 and getattr(self.threat, "knows_gradient", False)
        return match(
            lambda images: self.represent(module, data, images),
            attacked.sent,
            start.to(attacked.sent),
            iterations=self.iterations,
            learning_rate=self.learning_rate,
            total_variation_weight=self.total_variation,
            gradient_distance=self.gradient_distance(run, data, attacked.views) if gradient else None,
            gradient_weight=self.gradient,
            surrogate=list(module.parameters()) if fitted else (),
            measure=lambda images: {"mse": mse(images.flatten(0, 1), attacked.views.flatten(0, 1)).mean().item()},
            progress=lambda done: progress(done, self.iterations),
        )

    # ---------------------------------------------------------------- what is attacked

    def choose(self, run, data: Dataset) -> Attacked:
        """The attacked images and what was sent of them: of a client of MFCL's phase 2, or of test images.

        Raises:
            SettingError: there are not so many images.
        """
        if self._sends_views:
            return self._sent_views(run, data)
        images = data.test.images
        self._check_enough(len(images), "the number of test images")
        pixels = draw_images(images, self.images, "attacked images", self.seed)
        module = self.clients_module(run, data)
        views = (pixels / 255).to(next(module.parameters()).dtype)
        with torch.no_grad():
            return Attacked(self.represent(module, data, views[None]), views[None], views)

    def _sent_views(self, run, data: Dataset) -> Attacked:
        sends = self.target.trainer(data, run).representations
        draw = generator(self.seed, "attacked images")
        client = list(sends.positions)[torch.randint(len(sends.positions), (), generator=draw)]
        positions = sends.positions[client]
        self._check_enough(len(positions), f"the number of images of client {client}")
        chosen = torch.randperm(len(positions), generator=draw)[: self.images]
        pixels = data.train.images[sends.images[positions[chosen].to(sends.images.device)]]
        views = sends.views(pixels, sends.draws(client, 0)[chosen])
        sent = sends.batch(positions[chosen], 0)
        if self.unmix:
            sent = self._unmixed(sends, positions, positions[chosen], sent)
        return Attacked(sent, views.clamp(0, 1).to(sent.dtype), (pixels / 255).to(sent.dtype))

    def _unmixed(self, sends, positions: Tensor, chosen: Tensor, sent: Tensor) -> Tensor:
        """What the attacker makes of mixtures, with all that the client has sent; a group of three stays mixed."""
        members: dict[bytes, list[int]] = {}  # by pattern
        for batch in positions.split(sends.client_batch):
            for position, pattern in zip(batch.tolist(), zero_patterns(sends.batch(batch, 0)), strict=True):
                members.setdefault(pattern, []).append(position)
        groups = [members[pattern] for pattern in zero_patterns(sent)]
        pairs = torch.tensor([len(group) == 2 for group in groups])
        others = [
            sum(group) - position for group, position in zip(groups, chosen.tolist(), strict=True) if len(group) == 2
        ]
        unmixed = sent.clone()
        if others:
            unmixed[:, pairs] = unmix(sent[:, pairs], sends.batch(torch.tensor(others), 0))
        return unmixed

    def _check_enough(self, available: int, what: str) -> None:
        if self.images > available:
            raise SettingError("images", self.images, f"at most {available}, {what}")

    # ---------------------------------------------------------------- what the attacker has

    def clients_module(self, run, data: Dataset) -> nn.Module:
        """What makes representations of images on the clients, in evaluation mode."""
        target = self._phase1 or self.target
        return target.client_model(run.result_of(target), data)

    def attackers_module(self, run, data: Dataset) -> nn.Module:
        """The clients' own where servers collude, else a surrogate with random values; in evaluation mode."""
        if self.collusion:
            return self.clients_module(run, data)
        seed = int(torch.randint(2**31, (), generator=generator(self.seed, "surrogate")))  # not that of the clients
        return self._phase1.changed(seed=seed).build_model(data).client_module.eval()

    def represent(self, module: nn.Module, data: Dataset, images: Tensor) -> Tensor:
        """Images ``[V, N, C, H, W]`` in [0, 1] to ``[V, N, c, h, w]``, twins together where the target has them so."""
        twins = self._sends_views and self.target.twins
        with paired(module) if twins else nullcontext():
            return module(data.normalise(images, images.dtype).flatten(0, 1)).unflatten(0, images.shape[:2])

    def gradient_distance(self, run, data: Dataset, views: Tensor) -> GradientDistance:
        """To the gradient of phase 1's loss at its last model, for a batch of these views."""
        first = self._phase1
        model = first.trained_model(run.result_of(first), data).train().requires_grad_()
        loss = LOSSES[first.objective.loss]

        def reconstruction_loss(images: Tensor) -> Tensor:
            batch = images.flatten(0, 1)  # [2K, C, H, W]: B^m of Section 2.1
            return loss(model(batch), batch)

        return GradientDistance(reconstruction_loss, list(model.parameters()), views)
