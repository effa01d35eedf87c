"""The attack as a run: on a small phase 1 of MFCL, and on split learning."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.errors import DataError, SettingError
from fssl_core.experiments.store import Run, run, run_all
from fssl_core.models import paired
from fssl_core.privacy.datamix import datamix
from fssl_core.privacy.image_quality import explained, mse, psnr, ssim
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.privacy.threat import ACTIVATION_MATCHING, CASES, matching_without_model, two_servers
from fssl_core.settings import Settings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.split import SplitSettings
from tests.privacy.test_inversion import Frozen

PHASE1 = AutoencoderSettings(
    dataset="scattered-digits",
    train_images=100,
    partition="iid",
    clients=2,
    augmentation="digits",
    architecture="resnet10",
    width=8,
    channels_per_group=4,
    rounds=1,
    batch=20,
    learning_rate=0.02,
    knn_k=5,
)
SPLIT = SplitSettings(
    dataset="scattered-digits",
    train_images=100,
    partition="iid",
    augmentation="digits",
    architecture="resnet10",
    width=4,
    cut_layer=3,
    clients=2,
    client_batch=10,
    epochs=1,
    queue_size=20,
    knn_k=5,
    probe_epochs=0,
    projector_hidden=8,
    projector_dim=8,
)


def phase2(datamix: int = 1, first: AutoencoderSettings = PHASE1, **values) -> ModularSettings:
    defaults = {"pairs": 1, "epochs": 1, "warmup_epochs": 0, "knn_k": 5, "probe_epochs": 0}
    return ModularSettings(phase1=first, datamix=datamix, **defaults | values)


def attack(target=None, **values) -> ReconstructionSettings:
    return ReconstructionSettings(
        **{"target": target or phase2(), "images": 4, "iterations": 60, "gradient": 0.0} | values
    )


@pytest.fixture(autouse=True, scope="module")
def root(tmp_path_factory):
    """All tests of this file attack the same few runs."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("reconstruction")
        patch.setenv("FSSL_RUNS", str(folder))
        yield folder


def attacked(settings: ReconstructionSettings):
    data = settings.target.load_data()
    return settings.choose(Run(settings), data), data


# ---------------------------------------------------------------- what is attacked


def test_representations_are_those_of_the_views_that_the_attack_is_measured_by():
    settings = attack()
    found, data = attacked(settings)
    module = PHASE1.trained_model(run(PHASE1, progress=False), data).client_module
    with paired(module):
        expected = module(found.views.flatten(0, 1))
    torch.testing.assert_close(found.sent.flatten(0, 1), expected, rtol=0, atol=1e-5)
    assert found.images.shape == (4, 1, 16, 16)
    assert all((data.train.images / 255 == image).flatten(1).all(1).any() for image in found.images)


def test_with_datamix_mixtures_are_attacked_and_measured_by_the_views_of_their_largest_part():
    (plain, _), (mixed, data) = (attacked(attack(phase2(number))) for number in (1, 2))
    assert torch.equal(plain.views, mixed.views)
    sends = phase2(2).trainer(data, Run(phase2(2))).representations
    alone = phase2(1).trainer(data, Run(phase2(1))).representations
    mixtures = []
    for client in sends.positions:
        start = int(sends.positions[client][0])
        for secret in sends.coefficients(client, 0):
            assert (secret.argmax(1) == torch.arange(len(secret))).all()
            places = torch.arange(start, start + len(secret))
            together = datamix(alone.batch(places, 0).flatten(0, 1), secret).unflatten(0, (2, -1))
            mixtures.append(together.transpose(0, 1))
            start += len(secret)
    mixtures = torch.cat(mixtures)
    for sent in mixed.sent.transpose(0, 1):
        assert torch.isclose(mixtures, sent, atol=1e-5).flatten(1).all(1).sum() == 1
    assert not torch.isclose(mixed.sent, plain.sent, atol=1e-2).flatten(1).all(1).any()


def test_an_attacker_who_unmixes_attacks_what_was_mixed():
    (plain, _), (unmixed, _) = (attacked(attack(phase2(number), unmix=number == 2, images=10)) for number in (1, 2))
    torch.testing.assert_close(unmixed.sent, plain.sent, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(unmixed.views, plain.views, rtol=0, atol=0)


def test_a_group_of_three_stays_mixed():
    """Of 25 images the last group has three."""
    target = phase2(2, PHASE1.changed(clients=4, batch=25))
    mixed, unmixed, plain = (
        attacked(settings)[0].sent
        for settings in (
            attack(target, images=25),
            attack(target, images=25, unmix=True),
            attack(target.changed(datamix=1), images=25),
        )
    )
    alike = [torch.isclose(unmixed, other, atol=1e-4).transpose(0, 1).flatten(1).all(1) for other in (mixed, plain)]
    assert [found.sum() for found in alike] == [3, 22]


def test_test_images_are_those_that_the_decoder_attack_draws():
    settings = attack(SPLIT, seed=7)
    found, data = attacked(settings)
    _, theirs = InversionSettings(targets=(SPLIT,), seed=7, attacker_images=10, test_images=4).choose_images(data)
    assert torch.equal(found.images, theirs / 255)
    assert torch.equal(found.views, found.images[None])
    client = SPLIT.client_model(run(SPLIT, progress=False), data)
    torch.testing.assert_close(found.sent[0], client(data.normalise(theirs)), rtol=0, atol=1e-6)


# ---------------------------------------------------------------- what the attacker has


@pytest.mark.parametrize("norm", ["twin", "batch"])
def test_the_gradient_is_that_of_phase_1_for_a_batch_of_the_attacked_views(norm):
    first = PHASE1.changed(norm=norm)
    settings = attack(phase2(first=first), gradient=0.1)
    found, data = attacked(settings)
    distance = settings.gradient_distance(Run(settings), data, found.views)
    model = first.trained_model(run(first, progress=False), data).train().requires_grad_()
    views = found.views.flatten(0, 1)
    F.binary_cross_entropy(model(views), views).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    torch.testing.assert_close(distance.observed, expected, rtol=1e-4, atol=1e-6)
    assert distance(found.views).item() == pytest.approx(0, abs=1e-5)


def test_the_gradient_that_is_matched_is_that_of_the_attacked_views(monkeypatch):
    seen, make = [], ReconstructionSettings.gradient_distance
    monkeypatch.setattr(ReconstructionSettings, "gradient_distance", lambda *args: seen.append(args[-1]) or make(*args))
    done = run(attack(gradient=0.1, iterations=1, images=2, seed=11), progress=False)
    (views,) = seen
    assert torch.equal((255 * views).round(), done.tensors("reconstructions")["views"].float())


@pytest.mark.parametrize(
    ("values", "matched"),
    [
        ({"gradient": 0.1}, True),
        ({"gradient": 0.1, "secure_aggregation": True}, False),
        ({"gradient": 0.1, "collusion": False}, False),
        ({"gradient": 0.0}, False),
        ({"gradient": 0.1, "target": PHASE1}, False),
    ],
)
def test_a_gradient_is_matched_only_where_somebody_has_it(values, matched):
    done = run(attack(**{"iterations": 2, "images": 2} | values), progress=False)
    assert done.table("history")["gradient_distance"].notna().all() == matched


def test_without_collusion_the_attackers_module_is_another_and_only_a_fitted_one_changes(monkeypatch):
    seen = {}
    represent = ReconstructionSettings.represent

    def recorded(self, module, data, images):
        seen.setdefault(self.key, []).append({name: value.clone() for name, value in module.state_dict().items()})
        return represent(self, module, data, images)

    monkeypatch.setattr(ReconstructionSettings, "represent", recorded)
    known, random, fitted = (
        attack(iterations=2, seed=5, **values)
        for values in ({}, {"collusion": False}, {"collusion": False, "surrogate": "fitted"})
    )
    for settings in (known, random, fitted):
        run(settings, progress=False)
    first, name = {settings: seen[settings.key][0] for settings in (known, random, fitted)}, "conv1.0.weight"
    last = {settings: seen[settings.key][-1] for settings in (known, random, fitted)}
    model = PHASE1.trained_model(Run(PHASE1), PHASE1.load_data()).client_module
    assert torch.equal(first[known][name], model.state_dict()[name])
    assert not torch.isclose(first[random][name], model.state_dict()[name]).any()
    assert torch.equal(first[random][name], first[fitted][name])
    assert torch.equal(first[random][name], last[random][name])
    assert not torch.equal(first[fitted][name], last[fitted][name])


def test_cases_say_what_is_known():
    assert list(CASES) == ["C1D0", "C1D1", "C0D0", "C0D1"]
    for case, threat in CASES.items():
        assert (threat.collusion, threat.datamix) == ("C1" in case, "D1" in case)
        assert threat.knows_module == threat.knows_gradient == threat.collusion
        settings = attack(phase2(2 if threat.datamix else 1), collusion=threat.collusion)
        assert settings.threat == threat
        assert ("mixtures" in threat.sees) == ("who is mixed" in threat.cannot) == threat.datamix
    secured = two_servers(collusion=True, datamix=False, secure_aggregation=True)
    assert secured == attack(secure_aggregation=True).threat
    assert secured.knows_module
    assert not secured.knows_gradient
    assert "gradient of any single client" in secured.cannot
    assert attack(SPLIT).threat == attack(PHASE1).threat == ACTIVATION_MATCHING
    fitted = attack(PHASE1, collusion=False, surrogate="fitted").threat
    assert fitted == matching_without_model("fitted") != matching_without_model()
    unmixing = attack(phase2(2), unmix=True).threat
    assert unmixing.case == "C1D1"
    assert "finds it out" in unmixing.cannot
    assert "fitted together" in two_servers(collusion=False, datamix=True, surrogate="fitted").has


# ---------------------------------------------------------------- results


def test_with_both_servers_and_without_mixing_views_come_back_and_else_they_do_not():
    sweep = [
        attack(phase2(mixed), collusion=collusion, iterations=100, images=3, learning_rate=0.2)
        for collusion in (True, False)
        for mixed in (1, 2)
    ]
    frame = run_all(sweep, progress=False).set_index("case")
    assert frame.index.tolist() == list(CASES)
    error = frame["mse"]
    assert error["C1D0"] < 0.005
    assert error["C1D0"] < 0.5 * error["C1D1"]
    assert error["C1D0"] < 0.2 * error["C0D1"]
    assert frame.loc["C1D0", "ssim"] > 0.9 > frame.loc["C0D1", "ssim"]
    assert frame.loc["C1D0", "image_mse"] > frame.loc["C1D0", "mse"]  # the mean of two views is not the image


@dataclass(frozen=True, kw_only=True)
class Shuffled(Frozen):
    """Every 2 x 2 pixels as four channels: nothing is lost."""

    def execute(self, run, progress):
        return {"filters": 4}

    def client_model(self, run, data):
        model = nn.Conv2d(1, 4, 2, stride=2, bias=False).requires_grad_(False)
        model.weight.copy_(torch.eye(4).view(4, 1, 2, 2))
        return model.eval()


def test_activations_from_which_nothing_is_missing_give_the_images_back():
    done = run(attack(Shuffled(), iterations=200, total_variation=0.0), progress=False)
    assert done.summary["psnr"] > 35
    assert done.summary["latent"] == "4x8x8"
    assert done.summary["case"] is None


def test_measures_are_those_of_the_images_that_are_kept():
    done = run(attack(), progress=False)
    images = {name: pixels / 255 for name, pixels in done.tensors("reconstructions").items()}
    assert [tuple(images[name].shape[:-3]) for name in ("originals", "views", "reconstructions")] == [
        (4,),
        (2, 4),
        (2, 4),
    ]
    pairs = {
        "": (images["reconstructions"].flatten(0, 1), images["views"].flatten(0, 1)),
        "image_": (images["reconstructions"].mean(0), images["originals"]),
    }
    for prefix, (found, truth) in pairs.items():
        for name, measure in {"mse": mse, "psnr": psnr, "ssim": ssim}.items():
            values = measure(found, truth)  # up to the rounding to 256 values
            assert done.summary[prefix + name] == pytest.approx(values.mean().item(), rel=0.02)
            error = (values.var() / len(values)).sqrt().item()
            assert done.summary[f"{prefix}{name}_standard_error"] == pytest.approx(error, rel=0.05)
        assert done.summary[f"{prefix}explained"] == pytest.approx(explained(found, truth).mean().item(), abs=0.01)
    grey = (images["views"] - 0.5).square().mean().item()
    assert done.summary["grey_mse"] == pytest.approx(grey, rel=0.01)
    history = done.table("history")
    assert done.summary["mse"] == pytest.approx(history["mse"].iloc[-1])
    assert done.summary["representation_error"] == history["representation_error"].iloc[-1]


def test_the_same_attack_gives_the_same_bits_and_another_seed_other_images(root, monkeypatch):
    settings = attack(gradient=0.1, iterations=5)
    first = run(settings, progress=False).tensors("reconstructions")
    other = run(settings.changed(seed=1), progress=False).tensors("reconstructions")
    assert not torch.equal(first["originals"], other["originals"])
    calls = []
    again = Run(settings)
    assert settings.execute(again, lambda done, total: calls.append((done, total))) == again.summary
    assert all(torch.equal(value, first[name]) for name, value in again.tensors("reconstructions").items())
    assert calls == [(done, 5) for done in range(6)]


def test_phase_2_is_not_needed():
    target = phase2(seed=3)
    run(attack(target, iterations=1), progress=False)
    assert Run(PHASE1).finished
    assert not Run(target).finished


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": Settings()}, r"target='Settings' .* or with client_model\(run, data\)"),
        ({"target": SPLIT, "collusion": False}, "collusion=False .*True for SplitSettings, whose server has the"),
        ({"unmix": True}, "unmix=True cannot be used: expected False where the target's datamix is not 2"),
        ({"unmix": True, "target": SPLIT}, "unmix=True"),
        ({"surrogate": "fitted"}, "surrogate='fitted' cannot be used: expected random with collusion"),
        ({"secure_aggregation": True, "target": SPLIT}, "secure_aggregation=True .*False for SplitSettings"),
        ({"surrogate": "trained"}, "surrogate='trained' cannot be used: expected one of random, fitted"),
        ({"images": 1}, "images=1 cannot be used: expected at least 2"),
        ({"iterations": 0}, "iterations=0"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1"),
        ({"total_variation": -1}, "total_variation=-1"),
        ({"gradient": -1}, "gradient=-1"),
    ],
)
def test_settings_that_cannot_be_used(values, message):
    with pytest.raises(SettingError, match=message):
        attack(**values)


@pytest.mark.parametrize(
    ("target", "images", "message"),
    [
        (phase2(), 51, r"images=51 cannot be used: expected at most 50, the number of images of client \d"),
        (SPLIT, 1001, "images=1001 cannot be used: expected at most 1000, the number of test images"),
    ],
)
def test_more_images_than_there_are(target, images, message):
    with pytest.raises(SettingError, match=message):
        run(attack(target, images=images), progress=False)


def test_images_too_small_for_ssim_are_refused_before_anything_is_trained():
    target = replace(PHASE1, dataset="digits")
    with pytest.raises(DataError, match="images have a side of 8"):
        run(attack(target), progress=False)
    assert not Run(target).finished
