"""Decoders of many targets at once against one plain PyTorch training each."""

import copy

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import DataError, NonFiniteLossError, SettingError
from fssl_core.privacy.decoder import build_decoder
from fssl_core.privacy.decoder_training import TrainedDecoders, reconstruct, train_decoders
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.random import generator
from fssl_core.training.split import SplitSettings

TINY = {"decoder": "res_normN1C4", "epochs": 4, "batch": 5, "learning_rate": 0.03, "seed": 3, "precision": "float64"}


def settings(**values) -> InversionSettings:
    return InversionSettings(targets=(SplitSettings(),), **TINY | values)


def random(*shape: int, key: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=generator(0, "test", key), dtype=torch.float64)


IMAGES = random(24, 2, 8, 8)  # two are set aside, 22 make steps of 5, 5, 5, 5 and 2
FEATURES = 3 * random(3, 24, 6, 4, 4, key=1)  # of three targets


def plain_training(features, images, *, decoder, epochs, batch, learning_rate, seed, precision):
    """One target, one ordinary module, one Adam: the history, and the weights of the best epoch."""
    model = build_decoder(decoder, features.shape[1:], images.shape[1:], generator=generator(seed, "decoder")).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    order = torch.randperm(len(images), generator=generator(seed, "attacker validation"))
    held_out, training = order[: len(images) // 10], order[len(images) // 10 :]
    history, states = [], []
    for epoch in range(1, epochs + 1):
        model.train()
        shuffled = training[torch.randperm(len(training), generator=generator(seed, "attacker order", epoch))].tolist()
        squares = 0.0
        for first in range(0, len(shuffled), batch):
            rows = shuffled[first : first + batch]
            loss = F.mse_loss(model(features[rows]), images[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            squares += loss.item() * len(rows)
        model.eval()
        with torch.no_grad():
            history.append((squares / len(training), F.mse_loss(model(features[held_out]), images[held_out]).item()))
        states.append(copy.deepcopy(model.state_dict()))
    best = min(range(epochs), key=lambda epoch: history[epoch][1])
    return history, best + 1, states[best]


def of_target(found: TrainedDecoders, target: int) -> torch.Tensor:
    history = found.history[found.history["target"] == target]
    return torch.tensor(history[["train_mse", "validation_mse"]].to_numpy())


@pytest.mark.parametrize("backend", ["stacked", "loop", "auto"])
def test_each_target_trains_as_if_it_were_alone(backend):
    found = train_decoders(settings(backend=backend), FEATURES, IMAGES)
    assert found.history["epoch"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert min(found.best_epoch) < TINY["epochs"]  # or nothing was selected
    for target, features in enumerate(FEATURES):
        history, best_epoch, state = plain_training(features, IMAGES, **TINY)
        torch.testing.assert_close(
            of_target(found, target), torch.tensor(history, dtype=torch.float64), rtol=1e-10, atol=1e-10
        )
        assert found.best_epoch[target] == best_epoch
        for name, value in found.decoders.state_dict(target).items():
            torch.testing.assert_close(value, state[name], rtol=1e-10, atol=1e-10)


def test_a_target_does_not_change_with_the_others():
    pair = train_decoders(settings(), FEATURES[[2, 0]], IMAGES)
    alone = train_decoders(settings(), FEATURES[[0]], IMAGES)
    torch.testing.assert_close(of_target(pair, 1), of_target(alone, 0), rtol=1e-10, atol=1e-10)
    assert pair.best_epoch[1] == alone.best_epoch[0]
    ours, theirs = (
        reconstruct(settings(), found.decoders, FEATURES[rows])[-1] for found, rows in ((pair, [2, 0]), (alone, [0]))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_a_repeat_gives_the_same_bits_and_another_seed_does_not():
    first, again, other = (
        train_decoders(settings(precision="float32", seed=seed), FEATURES, IMAGES) for seed in (0, 0, 1)
    )
    assert first.history.equals(again.history)
    assert torch.equal(first.decoders.weights, again.decoders.weights)
    assert not first.history.equals(other.history)


def test_reconstruction_uses_evaluation_mode_and_leaves_decoders_as_they_are():
    found = train_decoders(settings(), FEATURES, IMAGES)
    before = [rows.clone() for rows in found.decoders.all_rows().values()]
    many = FEATURES.repeat(1, 4, 1, 1, 1)  # more than are decoded at a time
    together = reconstruct(settings(), found.decoders, many)
    assert together.shape == (3, 96, 2, 8, 8)
    alone = found.decoders.row_module(1).eval()(FEATURES[1, 5:6]).detach()
    torch.testing.assert_close(together[1, 24 * 3 + 5][None], alone, rtol=1e-10, atol=1e-10)
    assert all(torch.equal(a, b) for a, b in zip(before, found.decoders.all_rows().values(), strict=True))


def test_untrained_decoders_are_all_the_same_start():
    found = train_decoders(settings(), FEATURES, IMAGES)
    start = build_decoder("res_normN1C4", (6, 4, 4), (2, 8, 8), generator=generator(3, "decoder")).double()
    for target in range(3):
        for name, value in start.state_dict().items():
            assert torch.equal(found.untrained.state_dict(target)[name], value)


def test_bfloat16_comes_close():
    exact, rough = (
        train_decoders(settings(precision=precision), FEATURES, IMAGES) for precision in ("float32", "bfloat16")
    )
    assert exact.decoders.weights.dtype == rough.decoders.weights.dtype == torch.float32
    a, b = of_target(exact, 0), of_target(rough, 0)
    assert not torch.equal(a, b)
    torch.testing.assert_close(a[0], b[0], rtol=0.1, atol=0)  # after one epoch; later ones drift apart


@pytest.mark.parametrize(
    ("features", "images", "message"),
    [
        (FEATURES[0], IMAGES, r"got \[24, 6, 4, 4\] and \[24, 2, 8, 8\]"),
        (FEATURES[:, :23], IMAGES, r"got \[3, 23, 6, 4, 4\] and"),
        (FEATURES[:, :1], IMAGES[:1], "at least 2 images"),
        (FEATURES / 0, IMAGES, "not all finite: a model has diverged"),
    ],
)
def test_examples_that_do_not_fit(features, images, message):
    with pytest.raises(DataError, match=message):
        train_decoders(settings(), features, images)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"epochs": 0}, "epochs=0"), ({"batch": 0}, "batch=0"), ({"precision": "half"}, "precision='half'")],
)
def test_values_out_of_range(values, message):
    with pytest.raises(SettingError, match=message):
        settings(**values)


@pytest.mark.parametrize("batch", [1, 7])
def test_a_step_that_would_see_one_pixel(batch):
    latents = random(1, 24, 6, 1, 1)
    with pytest.raises(SettingError, match=rf"batch={batch} .* of 22 images the last step has one"):
        train_decoders(settings(batch=batch), latents, IMAGES)


def test_a_loss_that_is_not_finite():
    images = IMAGES.clone()
    images[3] = torch.nan
    with pytest.raises(NonFiniteLossError, match=r"MSE of decoder 1 of 3 is not finite in epoch 1\. Lower learning_"):
        train_decoders(settings(), FEATURES, images)
