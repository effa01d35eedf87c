import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.data.datasets import load_dataset
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models import client_module, decoder
from fssl_core.objectives.reconstruction import Autoencoder, Reconstruction, binary_cross_entropy
from fssl_core.training.averaging import AveragingSettings


def autoencoder(norm: str) -> Autoencoder:
    like = {"width": 8, "channels": 3, "image_size": 8, "channels_per_group": 4}
    return Autoencoder(*(make("resnet10", 2, norm, **like) for make in (client_module, decoder))).double()


def learner(norm: str, **values):
    online = ClientMatrix(autoencoder(norm), 1).requires_grad_()
    return Reconstruction(**values).learner(online, None)


def views(count: int = 3) -> torch.Tensor:
    return torch.rand(2, count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_binary_cross_entropy_is_pytorchs_away_from_zero_and_one():
    images, reconstructed = views()
    expected = F.binary_cross_entropy(reconstructed, images)
    assert binary_cross_entropy(reconstructed, images).item() == pytest.approx(expected.item(), abs=1e-12)


def test_binary_cross_entropy_of_saturated_pixels_is_finite_and_of_nan_is_nan():
    wrong = torch.tensor([0.0, 1.0], requires_grad=True)
    loss = binary_cross_entropy(wrong, torch.tensor([1.0, 0.0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-7), rel=0.02)  # 1 - 1e-7 is not exact in float32
    assert wrong.grad.isfinite().all()
    assert binary_cross_entropy(torch.tensor([math.nan]), torch.tensor([1.0])).isnan()


def test_the_batch_is_all_first_views_and_then_all_second_views():
    ours, seen = learner("twin"), []
    ours.online.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    pair = views()
    ours.loss(pair)
    assert len(seen) == 1
    for k in range(3):
        assert torch.equal(seen[0][k], pair[0, k])
        assert torch.equal(seen[0][3 + k], pair[1, k])


@pytest.mark.parametrize("name", ["bce", "mse"])
def test_the_loss_is_a_mean_over_all_pixels_of_both_views(name):
    """With group norm, where images do not see each other: one image after the other, pixel by pixel."""
    ours, pair = learner("group", loss=name), views()
    loss, figures = ours.loss(pair)
    total, squares, pixels = 0.0, 0.0, 0
    for image in [*pair[0], *pair[1]]:
        made = ours.online(image[None])[0]
        for x, t in zip(made.flatten().tolist(), image.flatten().tolist(), strict=True):
            squares += (x - t) ** 2
            total -= t * math.log(x) + (1 - t) * math.log(1 - x)
            pixels += 1
    expected = {"bce": total, "mse": squares}[name] / pixels
    assert loss.item() == pytest.approx(expected, abs=1e-10)
    assert figures["squared_error"].item() == pytest.approx(squares / pixels, abs=1e-10)


def test_with_twin_norm_a_reconstruction_depends_on_the_other_view_and_on_no_other_image():
    ours, pair = learner("twin"), views()
    first = ours.online(pair.flatten(0, 1)).unflatten(0, (2, 3))
    other = pair.clone()
    other[1, 0] += 0.1
    changed = ours.online(other.flatten(0, 1)).unflatten(0, (2, 3))
    assert not torch.allclose(changed[0, 0], first[0, 0])
    assert torch.equal(changed[:, 1:], first[:, 1:])


def test_the_loss_is_computed_in_full_precision_under_autocast():
    online = ClientMatrix(autoencoder("twin").float(), 1).requires_grad_()
    ours, pair = Reconstruction().learner(online, None), views().float()
    plain, _ = ours.loss(pair)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, figures = ours.loss(pair)
    assert mixed.dtype == figures["squared_error"].dtype == torch.float32
    assert mixed.item() == pytest.approx(plain.item(), rel=1e-2)


def test_an_image_is_evaluated_by_the_mean_of_its_maps():
    model, images = autoencoder("group"), views()[0]
    torch.testing.assert_close(model.encoder(images), model.client_module(images).mean(dim=(2, 3)))
    assert model.encoder(images).shape == (3, 8)
    assert model(images).shape == images.shape


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "l1"}, "loss='l1' .*one of bce, mse"),
        ({"projector": (8,)}, r"projector=\(8,\) .*the decoder follows the client module"),
        ({"predictor": (8,)}, r"predictor=\(8,\)"),
        ({"name": "simclr"}, "name='simclr' .*one of reconstruction"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        Reconstruction(**values)


def test_other_federations_say_where_the_decoder_is():
    settings = AveragingSettings(objective=Reconstruction(), dataset="digits", architecture="resnet10", width=4)
    with pytest.raises(SettingError, match=r"objective='reconstruction' .*AutoencoderSettings"):
        settings.build_model(load_dataset("digits"))
