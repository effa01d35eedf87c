import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.experiments import run
from fssl_core.privacy.image_quality import ssim
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.training.resistance import ResistanceSettings, ResistanceTrainer
from fssl_core.training.split import SplitSettings


def tiny(**values) -> ResistanceSettings:
    defaults = {
        "seed": 0,
        "dataset": "scattered-digits",
        "train_images": 200,
        "attacker_images": 16,
        "source": "digits",
        "source_images": 100,
        "architecture": "resnet10",
        "width": 8,
        "cut_layer": 3,
        "decoder": "res_normN1C8",
        "epochs": 2,
        "batch": 16,
    }
    return ResistanceSettings(**defaults | values)


def trainer(**values) -> ResistanceTrainer:
    settings = tiny(**values)
    return ResistanceTrainer(settings, *settings.load_data())


def test_without_an_attacker_it_is_ordinary_supervised_training():
    ours = trainer(strength=0.0, epochs=1)
    model = copy.deepcopy(ours.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    seen = []
    step = ours.step

    def recorded(images, labels, attacked):
        seen.append((images, labels))
        return step(images, labels, attacked)

    ours.step = recorded
    ours.train_epoch()
    assert sum(len(labels) for _, labels in seen) == 100
    for images, labels in seen:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(ours.model.state_dict()[name], value, rtol=0, atol=1e-6)


def test_one_step_is_the_attackers_steps_and_then_the_models():
    """Against a loop that is written out; the figures are those before and after the decoder's last step."""
    game = trainer(strength=2.0, similarity_limit=-1.0)
    images, labels = game.source.normalise(game.source.train.images[:8]), game.source.train.labels[:8]
    batches = game.images.split(8)
    model, decoder = copy.deepcopy(game.model), copy.deepcopy(game.decoder)
    figures = game.step(images, labels, batches)

    adam = torch.optim.Adam(decoder.parameters(), lr=1e-3)
    for batch in batches:
        latents = model[0](game.target.normalise(batch))
        error = (decoder(latents) - batch / 255).square().mean()
        adam.zero_grad()
        error.backward(inputs=list(decoder.parameters()))
        adam.step()
    latents = model[0](game.target.normalise(batches[-1]))
    similarity = ssim(decoder(latents), batches[-1] / 255).mean()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    (F.cross_entropy(model(images), labels) + 2 * (similarity + 1)).backward(inputs=list(model.parameters()))
    sgd.step()
    assert figures["attack_mse"].item() == pytest.approx(error.item(), rel=1e-5)
    assert figures["similarity"].item() == pytest.approx(similarity.item(), rel=1e-5)
    for ours, expected in ((game.model, model), (game.decoder, decoder)):
        for name, value in expected.named_parameters():
            torch.testing.assert_close(ours.get_parameter(name), value, rtol=0, atol=1e-5)


def test_every_epoch_has_orders_of_its_own():
    """Of the source, and of the simulated attacker's images; which are the same in each."""
    game, seen = trainer(), []
    step = game.step
    game.step = lambda images, labels, attacked: (
        seen.append((images, torch.cat(attacked))) or step(images, labels, attacked)
    )
    for _ in range(2):
        game.train_epoch()
    for parts in zip(*seen, strict=True):
        both = torch.cat(parts).flatten(1).double().chunk(2)
        first, second = (part @ torch.arange(part.shape[1]).double() for part in both)  # a number for each image
        assert not torch.equal(first, second)
        torch.testing.assert_close(first.sort().values, second.sort().values)


def test_reconstructions_that_are_less_similar_than_the_limit_cost_nothing():
    free, below, above = (
        trainer(strength=strength, similarity_limit=limit) for strength, limit in ((0.0, 0.3), (2.0, 1.0), (2.0, -1.0))
    )
    for game in (free, below, above):
        images, labels = game.source.normalise(game.source.train.images[:8]), game.source.train.labels[:8]
        game.step(images, labels, game.images.split(8))
    for name, value in free.model.state_dict().items():
        assert torch.equal(below.model.state_dict()[name], value)
    assert not torch.equal(free.client[0][0].weight, above.client[0][0].weight)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_decoder_makes_so_many_steps_for_each_of_the_model(steps):
    game = trainer(decoder_steps=steps, source_images=40, epochs=1)
    game.train_epoch()
    made = {int(state["step"]) for state in game.decoder_optimizer.state.values()}
    assert made == {steps * math.ceil(len(game.source.train) / 16)}


def test_the_two_attackers_have_images_of_their_own():
    """Both draw 16 of 200 images with one seed. Independent draws share few, one draw all."""
    game = trainer()
    split = SplitSettings(
        dataset="scattered-digits",
        train_images=200,
        architecture="resnet10",
        width=8,
        norm="group",
        cut_layer=3,
        pretrained_client=game.settings,
    )
    attack = InversionSettings(targets=(split,), seed=0, attacker_images=16)
    theirs, _ = attack.choose_images(game.target)
    assert len(theirs) == len(game.images) == 16
    both = (game.images.flatten(1)[:, None] == theirs.flatten(1)).all(2).any(1)  # [16]
    assert both.sum() < 8


def test_the_client_part_becomes_harder_to_invert():
    """The simulated attacker's reconstructions are less similar where the model is charged for their similarity."""
    found = {}
    for strength in (0.0, 5.0):
        game = trainer(strength=strength, similarity_limit=0.0, epochs=6, cut_layer=1, attacker_images=32)
        for _ in range(6):
            game.train_epoch()
        found[strength] = game.metrics[-1]["similarity"]
    assert found[5.0] < found[0.0] - 0.05, found


@pytest.mark.parametrize("freeze", [True, False])
def test_a_split_run_starts_from_the_client_part(freeze, tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path))
    resistance = tiny(epochs=1)
    settings = SplitSettings(
        seed=0,
        dataset="scattered-digits",
        train_images=200,
        clients=5,
        augmentation="digits",
        architecture="resnet10",
        width=8,
        cut_layer=3,
        projector_hidden=16,
        projector_dim=8,
        queue_size=50,
        client_batch=10,
        epochs=1,
        knn_k=5,
        probe_epochs=1,
        pretrained_client=resistance,
        freeze_client=freeze,
        learning_rate=0.03,
    )
    finished = run(settings, progress=False)
    start = run(resistance, progress=False).tensors("client")
    data = settings.load_data()
    client = settings.client_model(finished, data)
    same = all(torch.equal(value, start[name]) for name, value in client.state_dict().items())
    assert same is freeze
    assert 0 <= run(resistance, progress=False).summary["source_accuracy"] <= 1


def test_a_split_run_needs_a_client_part_of_its_own_model():
    with pytest.raises(SettingError, match=r"pretrained_client.width=8 .*one of 64"):
        SplitSettings(dataset="scattered-digits", architecture="resnet10", cut_layer=3, pretrained_client=tiny())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architecture": "vgg"}, "architecture='vgg'"),
        ({"decoder": "mlp"}, "decoder='mlp'"),
        ({"strength": -1.0}, "strength=-1.0"),
        ({"decoder_steps": 0}, "decoder_steps=0 .*at least 1"),
        ({"attacker_share": 0.0001, "attacker_images": None}, "attacker_images=0 .*2 to 200"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        trainer(**values)


def test_source_and_target_need_the_same_channels(monkeypatch):
    colour = ImageSet(torch.zeros(10, 3, 16, 16, dtype=torch.uint8), torch.arange(10))
    from fssl_core.training import resistance

    load = resistance.load_dataset
    data = Dataset("colour", colour, colour, tuple("0123456789"), official=False)
    monkeypatch.setattr(resistance, "load_dataset", lambda name, **k: data if name == "colour" else load(name, **k))
    with pytest.raises(SettingError, match=r"source='colour' .*1 channels"):
        trainer(source="colour", source_images=None)


def test_a_loss_that_is_not_finite_says_so():
    game = trainer()
    with torch.no_grad():
        game.model[3][0].weight[0] = float("nan")
    with pytest.raises(NonFiniteLossError, match=r"epoch 1; .*Lower learning_rate=0.05 or strength=1.0"):
        game.train_epoch()
    assert dataclasses.asdict(game.settings)["strength"] == 1.0
