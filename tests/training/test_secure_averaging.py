import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.training.modular import AutoencoderSettings
from fssl_core.training.secure_averaging import SecureAutoencoderSettings

TINY = {
    "dataset": "scattered-digits",
    "train_images": 80,
    "partition": "iid",
    "clients": 4,
    "architecture": "resnet10",
    "width": 8,
    "rounds": 2,
    "batch": 10,
    "learning_rate": 0.001,
    "knn_k": 5,
}


def trained(kind, **settings):
    settings = kind(**TINY | settings)
    trainer = settings.trainer(settings.load_data(), None)
    trainer.train(lambda *_, **__: None)
    return trainer.shared.weights


# A round differs by the resolution of 24 bits; Adam's first steps of the next one make more of it.
@pytest.mark.parametrize(("rounds", "tolerance"), [(1, 4 * 2**-24), (2, 1e-3)])
def test_rounds_end_where_those_of_plain_averaging_do(rounds, tolerance):
    plain, secure = (trained(kind, rounds=rounds) for kind in (AutoencoderSettings, SecureAutoencoderSettings))
    torch.testing.assert_close(secure, plain, rtol=0, atol=tolerance)
    assert not secure.equal(plain)  # fixed point: it went through the protocol
    assert secure.equal(trained(SecureAutoencoderSettings, rounds=rounds))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation": "l-dawa"}, "aggregation"),
        ({"threshold": 5}, "threshold"),
        ({"bits": 31}, "bits"),
    ],
)
def test_what_cannot_be_masked_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        SecureAutoencoderSettings(**TINY | settings)
