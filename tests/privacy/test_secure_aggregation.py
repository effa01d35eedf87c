"""The protocol with every loss of clients, what the server sees, and what it cannot make of it."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from fssl_core.errors import FsslError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.privacy.masks import decode, encode
from fssl_core.privacy.secure_aggregation import (
    Client,
    MaskedModel,
    SecureAggregation,
    Server,
    Unmasking,
    combine_securely,
    secure_average,
    seeded_bytes,
)
from fssl_core.random import generator
from tests.training.test_averaging import tiny, trained

FIVE = SecureAggregation(clients=5, threshold=3)
IMAGES = torch.tensor([30, 7, 11, 52, 20])


def some_models(clients: int, parameters: int) -> Tensor:
    return torch.randn(clients, parameters, generator=generator(0, "models"))


def play(
    protocol: SecureAggregation, models: Tensor, weights: Tensor, lost: dict[int, int]
) -> tuple[np.ndarray, Server]:
    """A round where client c takes only its first ``lost[c]`` of four steps."""
    shares = (weights / weights.sum()).tolist()
    parties = [Client(protocol, number) for number in range(protocol.clients)]
    server = Server(protocol)

    def left(step):
        return [party for party in parties if lost.get(party.number, 4) > step]

    keys = server.publish([party.public_keys() for party in left(0)])
    inboxes = server.deliver([party.sealed_shares(keys) for party in left(1)])
    survivors = server.survivors(
        [party.masked_model(models[party.number], shares[party.number], inboxes[party.number]) for party in left(2)]
    )
    return server.total([party.unmasking(survivors) for party in left(3)]), server


def plain_sum(protocol: SecureAggregation, models: Tensor, weights: Tensor, members: list[int]) -> list[int]:
    """In Python's whole numbers."""
    shares = (weights / weights.sum()).tolist()
    total = [0] * models.shape[1]
    for member in members:
        scale = shares[member] * 2**protocol.fraction_bits
        total = [sum_ + round(value * scale) for sum_, value in zip(total, models[member].tolist(), strict=True)]
    return [sum_ % 2**protocol.bits for sum_ in total]


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize(("bits", "fraction_bits"), [(32, 24), (64, 40)])
def test_the_sum_is_the_plain_one_bit_for_bit_whoever_is_lost_before_sending_a_model(bits, fraction_bits):
    protocol = FIVE.changed(bits=bits, fraction_bits=fraction_bits)
    models = some_models(5, 37)
    for count in range(3):
        for dropped in itertools.combinations(range(5), count):
            total, _ = play(protocol, models, IMAGES, dict.fromkeys(dropped, 2))
            members = [client for client in range(5) if client not in dropped]
            assert total.tolist() == plain_sum(protocol, models, IMAGES, members), dropped


@pytest.mark.parametrize(
    ("lost", "members"),
    [
        ({0: 0}, [1, 2, 3, 4]),  # never there
        ({3: 1}, [0, 1, 2, 4]),  # after its keys: nobody has masks in common with it
        ({1: 3, 4: 3}, [0, 1, 2, 3, 4]),  # after its model, which counts
        ({0: 1, 4: 2}, [1, 2, 3]),
        ({2: 3, 0: 2}, [1, 2, 3, 4]),
    ],
)
def test_the_sum_is_over_those_who_sent_a_model_whenever_others_are_lost(lost, members):
    models = some_models(5, 37)
    total, _ = play(FIVE, models, IMAGES, lost)
    assert total.tolist() == plain_sum(FIVE, models, IMAGES, members)


@pytest.mark.parametrize(
    ("taken", "step"), [(0, "public keys"), (1, "sealed shares"), (2, "masked model"), (3, "unmasking")]
)
def test_with_fewer_clients_than_the_threshold_the_round_ends_with_an_error(taken, step):
    with pytest.raises(FsslError, match=f"2 of 5 clients took the step '{step}': threshold=3 have to"):
        play(FIVE, some_models(5, 3), IMAGES, dict.fromkeys((0, 2, 4), taken))


def test_the_average_is_weighted_and_as_near_as_rounding_allows():
    models = some_models(5, 1000).double()
    average, _ = secure_average(models, IMAGES, FIVE, dropped=[1])
    rest = [0, 2, 3, 4]
    shares = IMAGES[rest] / IMAGES[rest].sum(dtype=torch.float64)
    kept = IMAGES[rest].sum() / IMAGES.sum()
    torch.testing.assert_close(average, shares @ models[rest], rtol=0, atol=4 * 0.51 * 2**-24 / kept.item())
    assert average.dtype == torch.float64
    assert secure_average(models.float(), IMAGES, FIVE)[0].dtype == torch.float32


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_average_of_trained_clients_is_that_of_federated_averaging(norm):
    """One round of the engine, FedAvg weighted by images, batch norm's statistics and counts included."""
    trainer = trained(tiny(norm=norm, partition="dirichlet:1"), rounds=1)
    received, protocol = trainer.trained, SecureAggregation(clients=4, threshold=3)
    into = ClientMatrix(trainer.shared.row_module(0), 1)
    into.load_state_dict({name: torch.zeros_like(value) for name, value in into.state_dict().items()})
    assert len(trainer.images.unique()) > 1
    combine_securely(received, trainer.images, into, protocol, seed=3)
    for name, block in trainer.shared.blocks.items():
        torch.testing.assert_close(into.blocks[name], block, rtol=0, atol=4 * 0.51 * 2**-24)
    assert not torch.equal(into.weights, received.weights[: into.parameters])


# ---------------------------------------------------------------- who knows what


def test_the_server_never_gets_shares_of_both_secrets_of_a_client():
    _, server = play(FIVE, some_models(5, 10), IMAGES, {1: 2, 3: 3})
    answers = [message for message in server.received if isinstance(message, Unmasking)]
    assert [answer.client for answer in answers] == [0, 2, 4]
    for answer in answers:
        assert sorted(answer.seeds) == [0, 2, 3, 4]
        assert list(answer.masking) == [1]


def test_a_client_answers_once():
    """Asked again with other survivors, it would bare a model."""
    parties, server = [Client(FIVE, number) for number in range(5)], Server(FIVE)
    keys = server.publish([party.public_keys() for party in parties])
    inboxes = server.deliver([party.sealed_shares(keys) for party in parties])
    with pytest.raises(FsslError, match="Client 0 was asked for 'unmasking', but what comes next is 'masked model'"):
        parties[0].unmasking([0, 1, 2])
    model = torch.ones(3)
    with pytest.raises(SettingError):
        parties[0].masked_model(100 * model, 0.2, inboxes[0])
    parties[0].masked_model(model, 0.2, inboxes[0])  # the error used nothing up
    with pytest.raises(FsslError, match="what comes next is 'unmasking'"):
        parties[0].masked_model(2 * model, 0.2, inboxes[0])
    parties[0].unmasking([0, 1, 2, 3])
    with pytest.raises(FsslError, match="what comes next is 'a new client with new keys'"):
        parties[0].unmasking([0, 1, 2, 4])


@pytest.mark.parametrize(
    ("survivors", "message"), [([0, 1], "2 of 5 clients"), ([1, 2, 3], "masks in common"), ([0, 1, 7], "masks in")]
)
def test_a_client_reveals_nothing_for_survivors_that_cannot_be(survivors, message):
    parties, server = [Client(FIVE, number) for number in range(5)], Server(FIVE)
    keys = server.publish([party.public_keys() for party in parties])
    inboxes = server.deliver([party.sealed_shares(keys) for party in parties])
    parties[0].masked_model(torch.ones(3), 0.2, inboxes[0])
    with pytest.raises(FsslError, match=message):
        parties[0].unmasking(survivors)


# ---------------------------------------------------------------- a masked model is noise

TEN = SecureAggregation(clients=10, threshold=7)


def messages(models: Tensor, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Words ``[10, P]`` as encoded, and as the server gets them."""
    _, server = secure_average(models, torch.ones(10), TEN, number=number)
    masked = [message.words for message in server.received if isinstance(message, MaskedModel)]
    return np.stack([encode(model, 0.1, 32, 24) for model in models]), np.stack(masked)


def evenness(words: np.ndarray) -> float:
    """Probability that even bytes are at least so uneven: chi-square over their 256 values."""
    return stats.chisquare(np.bincount(words.reshape(-1).view(np.uint8), minlength=256)).pvalue


def test_bytes_of_a_masked_model_are_even_and_unrelated_to_the_model():
    models = 0.05 * some_models(10, 100_000)
    plain, masked = messages(models)
    assert evenness(plain[0]) == 0
    assert all(1e-4 < evenness(words) < 1 - 1e-4 for words in masked)
    for model, words in zip(models.numpy(), masked, strict=True):
        assert abs(np.corrcoef(model, words.view(np.int32))[0, 1]) < 4 / math.sqrt(100_000)


def test_the_best_linear_guess_from_bits_finds_a_plain_model_and_nothing_of_a_masked_one():
    models = 0.05 * some_models(10, 50_000)

    def explained(words: np.ndarray, model: np.ndarray) -> float:
        """R^2 on the second half of a model of which the attacker knows the first."""
        bits = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1).astype(np.float64)
        bits = np.concatenate([bits, np.ones((len(bits), 1))], 1)
        half = len(bits) // 2
        found = np.linalg.lstsq(bits[:half], model[:half], rcond=None)[0]
        return 1 - np.square(bits[half:] @ found - model[half:]).mean() / model[half:].var()

    plain, masked = messages(models)
    assert explained(plain[0], models[0].double().numpy()) > 0.999
    assert explained(masked[0], models[0].double().numpy()) < 0.005


def test_who_knows_all_models_finds_their_owners_without_masks_and_guesses_with_them():
    hits = defaultdict(int)
    models = some_models(10, 5_000)
    for number in range(5):
        for kind, words in zip(("plain", "masked"), messages(models, number), strict=True):
            seen = np.corrcoef(models.numpy(), words.view(np.int32))[:10, 10:]  # [models, messages]
            hits[kind] += int((seen.argmax(0) == np.arange(10)).sum())
    assert hits["plain"] == 50
    assert hits["masked"] <= 12  # 5 by chance


def test_an_image_is_read_out_of_a_plain_gradient_but_not_of_a_masked_one():
    """The gradient of a linear layer for one image is an outer product: a row over its bias's gradient is the image."""
    images = torch.rand(10, 400, generator=generator(0, "images"))
    gradients = []
    for image in images:
        layer = nn.Linear(400, 8)
        with torch.no_grad():
            layer.weight.copy_(0.1 * torch.randn(8, 400, generator=generator(0, "layer")))
        nn.functional.cross_entropy(layer(image), torch.tensor(3)).backward()
        gradients.append(torch.cat([layer.weight.grad.flatten(), layer.bias.grad]))
    plain, masked = messages(torch.stack(gradients))

    def read(words: np.ndarray) -> Tensor:
        gradient = decode(words, 0.1, 24)
        return gradient[3 * 400 : 4 * 400] / gradient[-8 + 3]

    for image, seen, hidden in zip(images, plain, masked, strict=True):
        torch.testing.assert_close(read(seen).float(), image, rtol=0, atol=1e-4)
        assert abs(np.corrcoef(read(hidden), image)[0, 1]) < 4 / math.sqrt(400)


# ---------------------------------------------------------------- bytes, repetition, settings


def test_bytes_of_every_message_by_formula():
    """N clients, two of them lost before they send a model of P words: 64 bytes a client's keys and sealed shares."""
    n, gone, parameters = 10, 2, 1000
    _, server = secure_average(some_models(n, parameters), torch.ones(n), TEN, dropped=[2, 7])
    table = server.traffic()
    each = table.groupby(["step", "direction"]).bytes.agg(["count", "min", "max"])
    expected = {
        ("public keys", "up"): (n, 64),
        ("public keys", "down"): (n, 64 * (n - 1)),
        ("sealed shares", "up"): (n, 64 * (n - 1)),
        ("sealed shares", "down"): (n, 64 * (n - 1)),
        ("masked model", "up"): (n - gone, 4 * parameters),
        ("masked model", "down"): (n - gone, 4 * (n - gone)),
        ("unmasking", "up"): (n - gone, 16 * (n - gone) + 32 * gone),
    }
    assert {key: (row["count"], row["min"]) for key, row in each.iterrows()} == expected
    assert (each["min"] == each["max"]).all()


def test_a_simulated_round_repeats_bit_for_bit_and_no_two_rounds_share_masks():
    models = some_models(10, 1000)
    (first, _), (again, _) = (secure_average(models, torch.ones(10), TEN, seed=1, number=4) for _ in range(2))
    assert torch.equal(first, again)
    assert (messages(models, 4)[1] == messages(models, 4)[1]).all()
    rounds = [messages(models, number)[1] for number in (4, 5)]
    assert (rounds[0] == rounds[1]).mean() < 0.01
    assert seeded_bytes(1, 4, 0)(16) != seeded_bytes(1, 4, 1)(16)
    assert Client(TEN, 0).public_keys().masking != Client(TEN, 0).public_keys().masking  # the system's randomness


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"threshold": 1}, "threshold=1 cannot be used: expected a number from 2 to 5"),
        ({"threshold": 6}, "threshold=6"),
        ({"clients": 1}, "clients=1"),
        ({"bits": 16}, "bits=16 cannot be used: expected one of 32, 64"),
        ({"fraction_bits": 31}, "fraction_bits=31"),
    ],
)
def test_protocols_that_cannot_work_are_refused(values, message):
    with pytest.raises(SettingError, match=message):
        FIVE.changed(**values)


@pytest.mark.parametrize(
    ("weights", "dropped", "message"),
    [
        (torch.ones(4), (), "weights=.* expected 5 numbers from 0, not all 0"),
        (torch.zeros(5), (), "weights="),
        (-torch.ones(5), (), "weights="),
        (torch.ones(5), (5,), "dropped=.* expected clients from 0 to 4"),
    ],
)
def test_weights_and_losses_of_other_clients_are_refused(weights, dropped, message):
    with pytest.raises(SettingError, match=message):
        secure_average(some_models(5, 3), weights, FIVE, dropped=dropped)
