"""Decoders and searches on single test images, finished attacks on two systems, under one set of columns.

The attacks are those of :mod:`fssl_core.privacy.inversion` and :mod:`fssl_core.privacy.reconstruction`, on runs of
MFCL's phase 1 and of split learning.
"""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from fssl_core.errors import DataError
from fssl_core.experiments.store import Run
from fssl_core.privacy.image_quality import MEASURES, explained, quality
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.training.modular import AutoencoderSettings

Attack = InversionSettings | ReconstructionSettings


def attack_cells(attacks: Sequence[Attack]) -> pd.DataFrame:
    """What each attack found, a row for each of its targets.

    Args:
        attacks: finished runs.

    Returns:
        The columns system (``"MFCL"``, or the method of split learning), attack (``"decoder"``, ``"search"`` or
        ``"search, model unknown"``), layers (on the client), seed, latent (the shape of what is sent), mse, psnr
        (decibel) and ssim, means over the attacked images; explained (see
        :func:`fssl_core.privacy.image_quality.explained`), of a decoder the mean over the first eight of them, which
        its run keeps; representation_error (of a search), official_data and key. With ``mean_image_`` before them, the
        four measures of the mean of a decoder's own images as the guess for every image, in all rows of the same
        system and seed.
    """
    rows: list[dict[str, object]] = []
    guesses: dict[tuple[str, int], dict[str, float]] = {}  # by system and seed, whose decoders have the same images
    for settings in attacks:
        run = Run(settings)
        if isinstance(settings, InversionSettings):
            measured = run.table("attack").to_dict("records")
            new = {(system, settings.seed) for system, _ in _targets(settings)} - guesses.keys()
            if new:
                guesses |= dict.fromkeys(new, _mean_image(settings))
        else:
            measured = [run.summary]
        for (system, layers), values in zip(_targets(settings), measured, strict=True):
            rows.append(
                {
                    "system": system,
                    "attack": _name(settings),
                    "layers": layers,
                    "seed": settings.seed,
                    **{name: values[name] for name in ("latent", *MEASURES, "explained")},
                    "representation_error": values.get("representation_error"),
                    "official_data": run.summary["official_data"],
                    "key": settings.key,
                }
            )
    cells = pd.DataFrame(rows).astype({"representation_error": float})
    if not guesses:
        return cells
    beside = pd.DataFrame(guesses.values(), index=pd.MultiIndex.from_tuples(guesses, names=["system", "seed"]))
    return cells.join(beside, on=beside.index.names)


def attack_pictures(
    attacks: Sequence[Attack], images: int = 4
) -> tuple[Tensor, dict[tuple[str, str], dict[int, Tensor]]]:
    """The first images that were attacked, and what was made of them.

    Args:
        attacks: finished runs of one seed.
        images: how many.

    Returns:
        the originals, uint8 ``[images, C, H, W]``, and reconstructions alike, by (system, attack) and layers.

    Raises:
        DataError: the attacks are not on the same images.
    """
    kept = [Run(settings).tensors("reconstructions") for settings in attacks]
    originals = [tensors["originals"][:images] for tensors in kept]
    if not all(torch.equal(originals[0], others) for others in originals):
        seeds = sorted({settings.seed for settings in attacks})
        raise DataError(f"Pictures need attacks on the same images: of one seed, got {seeds}, and on the same data.")
    pictures = {}
    for settings, tensors in zip(attacks, kept, strict=True):
        for (system, layers), reconstructions in zip(_targets(settings), tensors["reconstructions"], strict=True):
            pictures.setdefault((system, _name(settings)), {})[layers] = reconstructions[:images]
    return originals[0], dict(sorted(pictures.items()))


def _targets(settings: Attack) -> list[tuple[str, int]]:
    """System and layers on the client, of each target."""
    targets = settings.targets if isinstance(settings, InversionSettings) else [settings.target]
    return [
        ("MFCL", target.cut) if isinstance(target, AutoencoderSettings) else (target.method, target.cut_layer)
        for target in targets
    ]


def _name(settings: Attack) -> str:
    if isinstance(settings, InversionSettings):
        return "decoder"
    return "search" if settings.collusion else "search, model unknown"


def _mean_image(settings: InversionSettings) -> dict[str, float]:
    """How good the mean of the attacker's images is as the guess for every image."""
    attacker_images, attacked_images = (
        images / 255 for images in settings.choose_images(settings.targets[0].load_data())
    )
    guess = attacker_images.mean(0).expand(attacked_images.shape)
    measured = quality(guess, attacked_images) | {"explained": explained(guess, attacked_images).mean().item()}
    return {f"mean_image_{name}": measured[name] for name in (*MEASURES, "explained")}
