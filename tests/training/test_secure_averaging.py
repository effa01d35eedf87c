import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.privacy.secure_parties import Server
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


def trainer_of(kind, **settings):
    settings = kind(**TINY | settings)
    trainer = settings.trainer(settings.load_data(), None)
    trainer.train(lambda *_, **__: None)
    return trainer


def trained(kind, **settings):
    return trainer_of(kind, **settings).shared.weights


# A round differs by the resolution of 24 bits; Adam's first steps of the next one make more of it.
@pytest.mark.parametrize(("rounds", "tolerance"), [(1, 4 * 2**-24), (2, 1e-3)])
def test_rounds_end_where_those_of_plain_averaging_do(rounds, tolerance):
    plain, secure = (trained(kind, rounds=rounds) for kind in (AutoencoderSettings, SecureAutoencoderSettings))
    torch.testing.assert_close(secure, plain, rtol=0, atol=tolerance)
    assert not secure.equal(plain)  # fixed point: it went through the protocol
    assert secure.equal(trained(SecureAutoencoderSettings, rounds=rounds))


def test_each_client_has_other_keys_and_seeds_in_each_round(monkeypatch):
    """With those of before, a client's masks would be gone from the difference of two of its models."""
    published, publish = [], Server.publish
    monkeypatch.setattr(Server, "publish", lambda server, keys: published.extend(keys) or publish(server, keys))
    trained(SecureAutoencoderSettings, rounds=2, train_images=40)
    assert [keys.client for keys in published] == [0, 1, 2, 3] * 2
    for kind in ("masking", "messages", "commitment"):
        assert len({getattr(keys, kind) for keys in published}) == 8


def test_a_run_goes_on_when_batch_norm_has_counted_more_than_64_batches():
    """20 images a client, 2 a batch, 7 passes: 70 batches in the first round."""
    long = {"rounds": 1, "batch": 2, "local_epochs": 7, "norm": "batch"}
    plain, secure = (trainer_of(kind, **long) for kind in (AutoencoderSettings, SecureAutoencoderSettings))
    counts = [name for name in plain.shared.blocks if name.endswith("num_batches_tracked")]
    assert counts
    for name, block in plain.shared.blocks.items():
        torch.testing.assert_close(secure.shared.blocks[name], block, rtol=0, atol=4 * 2**-24)
    assert all(plain.shared.blocks[name].item() == 70 for name in counts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 2}, "threshold=2 cannot be used: expected a number from 3 to 4"),
        ({"aggregation": "l-dawa"}, "aggregation"),
        ({"threshold": 5}, "threshold"),
        ({"bits": 31}, "bits"),
    ],
)
def test_what_cannot_be_masked_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        SecureAutoencoderSettings(**TINY | settings)
