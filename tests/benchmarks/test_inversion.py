"""Speed of the inversion attack: `pytest -m benchmark -s tests/benchmarks/test_inversion.py`, about two minutes.

CPU time on one thread, alternating between what is compared, the median of several repeats: only ratios within one
run mean something, to about a tenth. Four targets, 40 images of the attacker, two epochs of training.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from fssl_core.privacy.decoder_training import train_decoders
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.random import generator
from fssl_core.training.split import SplitSettings
from tests.benchmarks.timing import milliseconds

pytestmark = pytest.mark.benchmark

TARGETS, IMAGES, EPOCHS = 4, 40, 2


def uniform(*shape: int) -> Tensor:
    return torch.rand(shape, generator=generator(0, "benchmark"))


def test_all_targets_at_once_against_one_at_a_time():
    """`auto` is what a run does. Latents are those of a ResNet-10 of width 16 at cuts 1, 5 and 9."""
    print("\ndecoder       side latent     | auto ms  one at a time | ratio | stacked   loop")
    missed = []
    for name, side, latent in (
        ("res_normN4C64", 16, (16, 16, 16)),
        ("res_normN4C64", 16, (32, 8, 8)),
        ("res_normN4C64", 16, (128, 2, 2)),
        ("res_normN1C16", 16, (16, 16, 16)),
        ("res_normN1C16", 16, (32, 8, 8)),
        ("res_normN1C16", 16, (128, 2, 2)),
        ("res_normN4C64", 32, (32, 16, 16)),
        ("res_normN4C64", 32, (128, 4, 4)),
    ):
        features, images = uniform(TARGETS, IMAGES, *latent), uniform(IMAGES, 1 if side == 16 else 3, side, side)
        attack = InversionSettings(targets=(SplitSettings(),), decoder=name, epochs=EPOCHS)
        train = partial(train_decoders, attack, images=images)
        auto, alone, stacked, loop = milliseconds(
            partial(train, features),
            partial(one_at_a_time, train, features),
            partial(train_decoders, attack.changed(backend="stacked"), features, images),
            partial(train_decoders, attack.changed(backend="loop"), features, images),
            repeats=3,
            warm_up=1,
        )
        shape = "x".join(map(str, latent))
        print(
            f"{name} {side:4} {shape:10} | {auto:7.0f} {alone:14.0f} |  {auto / alone:.2f} | "
            f"{stacked / alone:7.2f} {loop / alone:6.2f}"
        )
        if auto > 1.05 * alone:
            missed.append((name, side, latent))
    assert not missed


def one_at_a_time(train: partial, features: Tensor) -> None:
    for target in features:
        train(target[None])
