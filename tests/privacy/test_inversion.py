"""The attack as a run: on small frozen clients, from the store to tables and images."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from fssl_core.data.datasets import Dataset, ImageSet, load_dataset
from fssl_core.errors import DataError, SettingError
from fssl_core.experiments.store import Run, run, run_all
from fssl_core.privacy import inversion
from fssl_core.privacy.decoder import build_decoder
from fssl_core.privacy.image_quality import explained, mse, psnr, ssim
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.random import generator
from fssl_core.settings import Settings
from fssl_core.training.split import SplitSettings


@dataclass(frozen=True, kw_only=True)
class Frozen(Settings):
    """A run that leaves a random convolution, at stride 1 next to the image and at stride 8 far from it."""

    version: ClassVar[int] = 1
    dataset: str = "scattered-digits"
    image_size: int | None = None
    train_images: int | None = None
    seed: int = 0
    stride: int = 1

    def load_data(self, device="cpu"):
        data = load_dataset(self.dataset, device=device, image_size=self.image_size)
        return data if self.train_images is None else data.with_fewer_images(self.train_images)

    def execute(self, run, progress):
        weight = torch.randn(4, 1, 3, 3, generator=generator(self.seed, "client"))
        run.save_tensors("client", {"weight": weight})
        return {"filters": len(weight)}

    def client_model(self, run, data):
        model = nn.Conv2d(1, 4, 3, self.stride, padding=1, bias=False)
        model.load_state_dict(run.tensors("client"))
        return model.eval()


NEAR, AGAIN, FAR = Frozen(stride=1), Frozen(stride=1, seed=1), Frozen(stride=8)


def tiny(*targets: Settings, **values) -> InversionSettings:
    defaults = {"decoder": "res_normN0C8", "epochs": 3, "attacker_images": 60, "test_images": 20, "learning_rate": 0.01}
    return InversionSettings(targets=targets, **defaults | values)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    return tmp_path


def attack(*targets: Settings, **values) -> Run:
    return run(tiny(*targets, **values), progress=False)


def test_attack_leaves_a_row_and_images_for_every_target():
    done = attack(NEAR, FAR, AGAIN)
    table, reference, history = (done.table(name) for name in ("attack", "reference", "history"))
    assert table["target"].tolist() == [0, 1, 2]
    assert table["latent"].tolist() == ["4x16x16", "4x2x2", "4x16x16"]
    assert len(history) == 9
    lowest = history.loc[history.groupby("target")["validation_mse"].idxmin(), "epoch"]
    assert table["best_epoch"].tolist() == lowest.tolist()
    assert reference["reference"].tolist() == ["mean image", *3 * ["untrained decoder"]]
    assert reference["target"][1:].tolist() == [0, 1, 2]
    assert done.summary["mse"] == pytest.approx(table["mse"].mean())
    assert done.summary["images_of_attacker"] == 60
    images = done.tensors("reconstructions")
    assert images["originals"].shape == (8, 1, 16, 16)
    assert images["reconstructions"].shape == (3, 8, 1, 16, 16)
    assert images["originals"].dtype == images["reconstructions"].dtype == torch.uint8


def test_measures_are_those_of_the_images_that_are_kept():
    done = attack(NEAR, test_images=8)  # as many as are kept
    images = done.tensors("reconstructions")
    reconstructions, originals = images["reconstructions"][0] / 255, images["originals"] / 255
    row = done.table("attack").iloc[0]
    assert row["explained"] == pytest.approx(explained(reconstructions, originals).mean().item(), abs=1e-6)
    for name, measure in {"mse": mse, "psnr": psnr, "ssim": ssim}.items():
        values = measure(reconstructions, originals)  # up to the rounding to 256 values
        assert row[name] == pytest.approx(values.mean().item(), rel=0.02)
        assert row[f"{name}_standard_error"] == pytest.approx((values.var() / 8).sqrt().item(), rel=0.05)


def test_training_images_that_the_attacker_does_not_have_may_be_attacked_instead():
    data, settings = NEAR.load_data(), tiny(NEAR, attacked="train")
    (own, test), (again, train) = (s.choose_images(data) for s in (tiny(NEAR), settings))
    assert torch.equal(own, again)
    assert test.shape == train.shape
    rows = {image.numpy().tobytes(): row for row, image in enumerate(data.train.images)}
    drawn = [rows[image.numpy().tobytes()] for image in torch.cat([own, train])]
    assert len(set(drawn)) == 80
    assert tiny(NEAR, attacked="test").key == tiny(NEAR).key != settings.key
    with pytest.raises(SettingError, match=r"test_images=3950 .*at most 3940"):
        tiny(NEAR, attacked="train", test_images=3950).choose_images(data)


def test_references_are_an_untrained_decoder_and_the_mean_of_the_attackers_images():
    settings = tiny(NEAR)
    done = run(settings, progress=False)
    data = NEAR.load_data()
    own, attacked = settings.choose_images(data)
    guess = (own / 255).mean(0, keepdim=True)
    expected = ((attacked / 255 - guess) ** 2).mean().item()
    mean_image, untrained = done.table("reference")["mse"]
    assert mean_image == pytest.approx(expected, rel=1e-6)
    assert done.summary["mean_image_mse"] == mean_image

    decoder = build_decoder("res_normN0C8", (4, 16, 16), (1, 16, 16), generator=generator(1138, "decoder")).eval()
    client = NEAR.client_model(Run(NEAR), data)
    with torch.no_grad():
        output = decoder(client((attacked / 255 - data.mean) / data.std))
    assert untrained == pytest.approx(((output - attacked / 255) ** 2).mean().item(), rel=1e-5)


def test_an_attack_near_the_image_succeeds_and_one_far_from_it_does_not():
    done = attack(NEAR, FAR, epochs=10, attacker_images=120)
    (near, far), guess = done.table("attack")["mse"], done.summary["mean_image_mse"]
    assert near < 0.3 * guess
    assert far > 2 * near
    ssims = done.table("attack")["ssim"]
    assert ssims[0] > 0.5 > ssims[1]


def test_a_target_keeps_its_result_whatever_else_is_attacked():
    together = attack(FAR, AGAIN, NEAR, precision="float64")
    alone = attack(NEAR, precision="float64")
    ours, theirs = together.table("attack").iloc[2], alone.table("attack").iloc[0]
    assert ours["best_epoch"] == theirs["best_epoch"]
    for name in ("mse", "psnr", "ssim", "mse_standard_error"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-9)
    ours, theirs = together.table("reference").iloc[3], alone.table("reference").iloc[1]
    assert ours["mse"] == pytest.approx(theirs["mse"], rel=1e-12)


def test_an_interrupted_attack_goes_on_with_the_next_group(monkeypatch, root):
    whole = attack(NEAR, FAR)
    monkeypatch.setenv("FSSL_RUNS", str(root / "interrupted"))
    train, shapes = inversion.train_decoders, []

    def dying(settings, features, *args):
        shapes.append(tuple(features.shape[2:]))
        if len(shapes) == 2:
            raise RuntimeError("died")
        return train(settings, features, *args)

    monkeypatch.setattr(inversion, "train_decoders", dying)
    with pytest.raises(RuntimeError, match="died"):
        attack(NEAR, FAR)
    calls = []
    resumed = Run(tiny(NEAR, FAR))
    summary = resumed.settings.execute(resumed, lambda done, total: calls.append((done, total)))
    assert shapes == [(4, 16, 16), (4, 2, 2), (4, 2, 2)]
    assert calls == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert summary == whole.summary
    for name in ("attack", "reference", "history"):
        assert resumed.table(name).equals(whole.table(name))
    assert torch.equal(
        resumed.tensors("reconstructions")["reconstructions"], whole.tensors("reconstructions")["reconstructions"]
    )


def test_an_attack_on_the_clients_of_split_learning():
    common = {"dataset": "scattered-digits", "train_images": 100, "augmentation": "digits", "architecture": "resnet10"}
    common |= {"width": 4, "clients": 2, "client_batch": 10, "epochs": 1, "queue_size": 20, "probe_epochs": 0}
    targets = [
        SplitSettings(method=method, cut_layer=cut, partition="iid", projector_hidden=8, projector_dim=8, **common)
        for cut in (3, 9)
        for method in ("MocoSFL", "MonAcoSFL")
    ]
    settings = tiny(*targets)
    frame = run_all([settings], progress=False)
    done = Run(settings)
    assert done.table("attack")["latent"].tolist() == 2 * ["4x16x16"] + 2 * ["32x2x2"]
    assert frame.loc[0, "mse"] == done.summary["mse"]
    assert all(Run(target).finished for target in targets)


def test_stored_attacks_are_of_a_version_of_the_engine_they_attack(monkeypatch):
    done = attack(NEAR)
    assert done.finished
    monkeypatch.setattr(Frozen, "version", 2)
    assert not Run(done.settings).finished


def test_images_are_drawn_by_the_seed_alone():
    data = NEAR.load_data()
    (own, attacked), (again, _), (other, _) = (tiny(NEAR, seed=seed).choose_images(data) for seed in (0, 0, 1))
    assert torch.equal(own, again)
    assert not torch.equal(own, other)
    assert len(own) == 60
    assert len(attacked) == 20
    assert len(tiny(NEAR, attacker_images=None).choose_images(data)[0]) == 40  # a hundredth of 4,000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"targets": ()}, r"targets=\[\] cannot be used: expected runs, at least one"),
        ({"targets": (NEAR, replace(NEAR, train_images=100))}, r"targets=\[.*100.*\] .* one and the same \(dataset"),
        (
            {"targets": (NEAR, SplitSettings(dataset="scattered-digits"))},
            r"targets=\['Frozen', 'SplitSettings'\] .* that normalise images alike; attack the others in a second run",
        ),
        ({"targets": (inversion.Settings(),)}, r"targets='Settings' .* with a method client_model\(run, data\)"),
        ({"decoder": "vgg"}, "decoder='vgg'"),
        ({"attacker_images": 9}, "attacker_images=9 cannot be used: expected at least 10"),
        ({"attacker_share": 1.5}, "attacker_share=1.5"),
        ({"test_images": 1}, "test_images=1"),
        ({"precision": "half"}, "precision='half'"),
        ({"backend": "vmap"}, "backend='vmap'"),
        ({"epochs": 0}, "epochs=0"),
    ],
)
def test_settings_that_cannot_be_used(values, message):
    with pytest.raises(SettingError, match=message):
        InversionSettings(**{"targets": (NEAR,)} | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"attacker_images": None},
            r"attacker_share=0.01 .* at least 10 of the 100 training images; or set attacker_im",
        ),
        ({"attacker_images": 101}, "attacker_images=101 cannot be used: expected at most 100, the number of training"),
        ({"test_images": 2000}, "test_images=2000 cannot be used: expected at most 1000, the number of test images"),
    ],
)
def test_more_images_than_there_are(values, message):
    with pytest.raises(SettingError, match=message):
        attack(Frozen(train_images=100), **values)


def test_images_too_small_for_ssim_are_refused_before_anything_is_trained():
    target = Frozen(dataset="digits")
    with pytest.raises(DataError, match="images have a side of 8"):
        attack(target)
    assert not Run(target).finished


def test_a_client_that_sends_no_feature_maps():
    pixels = torch.zeros(20, 1, 16, 16, dtype=torch.uint8)
    images = ImageSet(pixels, torch.arange(20) % 2)
    data = Dataset("tiny", images, images, ("a", "b"), official=False)
    with pytest.raises(DataError, match=r"activations \[B, c, h, w\], not \[B, 3\]"):
        inversion._latent_shape(nn.Sequential(nn.Flatten(), nn.Linear(256, 3)), data)
