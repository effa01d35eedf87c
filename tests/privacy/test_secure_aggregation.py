"""The protocol with every loss of clients, what the server sees, and what it cannot make of it."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from fssl_core.errors import FsslError, SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.models.layers import BatchNorm2d
from fssl_core.privacy.masks import apply_masks, decode, encode, sign
from fssl_core.privacy.secure_aggregation import combine_securely, secure_average, seeded_bytes, simulated_clients
from fssl_core.privacy.secure_messages import STEPS, MaskedModel, SecureAggregation, Unmasking, statement
from fssl_core.privacy.secure_parties import Client, Server
from fssl_core.random import generator
from tests.training.test_averaging import tiny, trained

FIVE = SecureAggregation(clients=5, threshold=3)
IMAGES = torch.tensor([30, 7, 11, 52, 20])


def some_models(clients: int, parameters: int) -> Tensor:
    return torch.randn(clients, parameters, generator=generator(0, "models"))


def play(
    protocol: SecureAggregation, models: Tensor, weights: Tensor, lost: dict[int, int]
) -> tuple[np.ndarray, Server]:
    """A round where client c takes only its first ``lost[c]`` of five steps."""
    shares = (weights / weights.sum()).tolist()
    parties, server = simulated_clients(protocol), Server(protocol)

    def left(step):
        return [party for party in parties if lost.get(party.number, 5) > step]

    keys = server.publish([party.public_keys() for party in left(0)])
    inboxes = server.deliver([party.sealed_shares(keys) for party in left(1)])
    survivors = server.survivors(
        [party.masked_model(models[party.number], shares[party.number], inboxes[party.number]) for party in left(2)]
    )
    signatures = server.confirm([party.consistency(survivors) for party in left(3)])
    return server.total([party.unmasking(signatures) for party in left(4)]), server


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
        ({1: 4, 4: 3}, [0, 1, 2, 3, 4]),  # one of them after it has signed the list of survivors
        ({0: 1, 4: 2}, [1, 2, 3]),
        ({2: 3, 0: 2}, [1, 2, 3, 4]),
    ],
)
def test_the_sum_is_over_those_who_sent_a_model_whenever_others_are_lost(lost, members):
    models = some_models(5, 37)
    total, _ = play(FIVE, models, IMAGES, lost)
    assert total.tolist() == plain_sum(FIVE, models, IMAGES, members)


@pytest.mark.parametrize(("clients", "threshold"), [(2, 2), (3, 2), (3, 3), (4, 3)])
def test_every_pattern_of_losses_is_exact_or_ends_with_an_error(clients, threshold):
    """Each client leaves before any of the five steps, or never: 1,764 patterns in all."""
    protocol = SecureAggregation(clients=clients, threshold=threshold)
    models, weights = some_models(clients, 5), IMAGES[:clients]
    for taken in itertools.product(range(6), repeat=clients):
        lost = dict(enumerate(taken))
        if all(sum(steps > step for steps in taken) >= threshold for step in range(5)):
            members = [client for client in range(clients) if taken[client] > 2]
            assert play(protocol, models, weights, lost)[0].tolist() == plain_sum(protocol, models, weights, members)
        else:
            with pytest.raises(FsslError, match=f"of {clients} clients took the step"):
                play(protocol, models, weights, lost)


@pytest.mark.parametrize(("taken", "step"), list(enumerate(STEPS)))
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


def test_counts_of_batches_are_averaged_beside_the_masked_numbers():
    """They passed 64 after so many batches, and no word of 32 bits held them any more."""
    matrix = ClientMatrix(BatchNorm2d(4), 5)
    matrix.weights.normal_(generator=generator(0, "weights"))
    matrix.blocks["num_batches_tracked"].copy_(torch.tensor([100.0, 20_000, 65, 0, 7]))
    into = ClientMatrix(BatchNorm2d(4), 1)
    combine_securely(matrix, IMAGES, into, FIVE, dropped=[3])
    rest = [0, 1, 2, 4]
    shares = IMAGES[rest] / IMAGES[rest].sum()
    for name, block in into.blocks.items():
        expected = torch.tensordot(shares, matrix.blocks[name][rest], 1)
        torch.testing.assert_close(block[0], expected, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------- who knows what


def test_the_server_never_gets_shares_of_both_secrets_of_a_client():
    _, server = play(FIVE, some_models(5, 10), IMAGES, {1: 2, 3: 3})
    answers = [message for message in server.received if isinstance(message, Unmasking)]
    assert [answer.client for answer in answers] == [0, 2, 4]
    for answer in answers:
        assert sorted(answer.seeds) == [0, 2, 3, 4]
        assert list(answer.masking) == [1]


def a_round(protocol: SecureAggregation = FIVE, steps: int = 3, number: int = 0):
    """Clients and server where all have taken the first steps, and what the server says then."""
    parties, server = simulated_clients(protocol, number), Server(protocol)
    said = server.publish([party.public_keys() for party in parties])
    if steps > 1:
        said = server.deliver([party.sealed_shares(said) for party in parties])
    if steps > 2:
        said = server.survivors([party.masked_model(torch.ones(3), 0.2, said[party.number]) for party in parties])
    if steps > 3:
        said = server.confirm([party.consistency(said) for party in parties])
    return parties, server, said


def test_a_client_answers_once():
    """Asked again with other survivors, it would bare a model."""
    parties, _, inboxes = a_round(steps=2)
    with pytest.raises(FsslError, match="Client 0 was asked for 'consistency', but what comes next is 'masked model'"):
        parties[0].consistency([0, 1, 2])
    model = torch.ones(3)
    with pytest.raises(SettingError):
        parties[0].masked_model(100 * model, 0.2, inboxes[0])
    for party in parties:  # the error used nothing up
        party.masked_model(model, 0.2, inboxes[party.number])
    with pytest.raises(FsslError, match="what comes next is 'consistency'"):
        parties[0].masked_model(2 * model, 0.2, inboxes[0])
    signatures = {party.number: party.consistency([0, 1, 2, 3]).signature for party in parties[:4]}
    with pytest.raises(FsslError, match="what comes next is 'unmasking'"):
        parties[0].consistency([0, 1, 2, 4])
    parties[0].unmasking(signatures)
    with pytest.raises(FsslError, match="what comes next is 'a new client with new keys'"):
        parties[0].unmasking(signatures)


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        ([0, 1], "2 of 5 clients"),
        ([1, 2, 3], r"Client 0 sent a model; the server has those of \[1, 2, 3\]"),
        ([0, 1, 7], r"Clients \[7\] are there twice or not expected"),
        ([0, 0, 0], r"Clients \[0\] are there twice"),
    ],
)
def test_a_client_signs_no_survivors_that_cannot_be(survivors, message):
    parties, _, _ = a_round()
    with pytest.raises(FsslError, match=message):
        parties[0].consistency(survivors)


# ---------------------------------------------------------------- a lying server


@pytest.mark.parametrize("clients", range(2, 12))
def test_no_threshold_lets_two_groups_of_clients_be_told_two_lists(clients):
    for threshold in range(1, clients // 2 + 1):
        with pytest.raises(SettingError, match=f"threshold={threshold} cannot be used: .* from {clients // 2 + 1} to"):
            SecureAggregation(clients=clients, threshold=threshold)
    for threshold in range(clients // 2 + 1, clients + 1):
        protocol = SecureAggregation(clients=clients, threshold=threshold)
        for colluding in range(threshold):  # they sign both lists, the others one of them
            two_lists = 2 * (threshold - colluding) <= clients - colluding
            assert two_lists == (colluding > protocol.colluding)


@pytest.mark.parametrize("threshold", [3, 4, 5])
def test_clients_who_are_told_other_survivors_reveal_nothing(threshold):
    """Without the check, five clients who each miss two others give away a sum over two models, fewer than three."""
    lists = [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 3], [0, 2, 3, 4], [1, 2, 3, 4]]
    possible = [
        told
        for told in itertools.product(lists, repeat=5)
        if all(client in one and len(one) >= threshold for client, one in enumerate(told))
        and len(set(map(tuple, told))) > 1
    ]
    for told in possible[:: len(possible) // 6 + 1]:
        parties, _, _ = a_round(FIVE.changed(threshold=threshold))
        signed = {party.number: party.consistency(one).signature for party, one in zip(parties, told, strict=True)}
        confirmed = []
        for party, one in zip(parties, told, strict=True):
            agree = {other for other in one if told[other] == one}
            for shown in (one, range(5)) if len(agree) < 5 else ():
                if set(shown) != agree:
                    with pytest.raises(FsslError, match=r"has not signed the list|are there twice or not expected"):
                        party.unmasking({other: signed[other] for other in shown})
            if len(agree) < threshold:
                with pytest.raises(FsslError, match=f"{len(agree)} of 5 clients took the step 'consistency'"):
                    party.unmasking({other: signed[other] for other in agree})
            else:
                party.unmasking({other: signed[other] for other in agree})
                confirmed.append(one)
        assert len(set(map(tuple, confirmed))) <= 1  # whatever is answered is answered for one list


def test_keys_that_are_not_the_clients_own_are_refused():
    """The server in the middle; another round's keys; one client's under the number of another."""
    parties, _, keys = a_round(steps=1)
    _, _, others = a_round(steps=1)
    stranger = replace(keys[2], masking=others[2].masking, messages=others[2].messages)
    cases = [
        (stranger, "The keys of client 2 are not signed by it"),
        (replace(keys[2], commitment=others[2].commitment), "The keys of client 2"),
        (replace(keys[1], client=2), "The keys of client 2"),
        (others[2], "The keys of client 2"),  # signed with another key than the registered one
        (replace(keys[2], signature=bytes(64)), "The keys of client 2"),
        (replace(keys[2], signature=b""), "The keys of client 2"),
    ]
    for wrong, message in cases:
        with pytest.raises(FsslError, match=message):
            parties[0].sealed_shares([*keys[:2], wrong, *keys[3:]])
    signing, registered = bytes(32), parties[0]._registered
    again = Client(FIVE, 0, signing, registered, round_number=1)
    again.public_keys()
    with pytest.raises(FsslError, match="not signed by it for this round"):
        again.sealed_shares(keys)  # of round 0
    parties[0].sealed_shares(keys)


def test_two_clients_with_one_key_are_refused():
    same = simulated_clients(FIVE, randomness=lambda client: seeded_bytes(0, 0, client % 4))
    with pytest.raises(FsslError, match="Two clients have the same public key"):
        same[0].sealed_shares([party.public_keys() for party in same])


def test_a_copy_of_another_clients_key_takes_no_mask_away():
    """X25519 leaves out the last bit. Four of nine had the keys of four others so, and bared the model between them."""
    protocol = SecureAggregation(clients=9, threshold=7)
    parties, server = simulated_clients(protocol), Server(protocol)
    keys = [party.public_keys() for party in parties]
    for copied, colluding in zip(range(4), range(5, 9), strict=True):
        key = bytearray(keys[copied].masking)
        key[-1] ^= 0x80
        false = replace(keys[colluding], masking=bytes(key))
        keys[colluding] = replace(false, signature=sign(parties[colluding]._signing, false.signed(0)))
    keys = server.publish(keys)
    inboxes = server.deliver([party.sealed_shares(keys) for party in parties])
    model = some_models(1, 100)[0]
    words = parties[4].masked_model(model, 1 / 9, inboxes[4]).words
    apply_masks(words, [(parties[4]._seed, -1)])  # which everybody's shares give
    assert protocol.colluding == 4
    assert (decode(words, 1 / 9, 24) - model).abs().min() > 1e-3


@pytest.mark.parametrize("key", [bytes(32), bytes(31)], ids=["zeros", "too short"])
@pytest.mark.parametrize("purpose", ["messages", "masking"])
def test_a_key_that_gives_no_secret_is_refused_although_its_client_has_signed_it(purpose, key):
    parties, server = simulated_clients(FIVE), Server(FIVE)
    keys = [party.public_keys() for party in parties]
    wrong = replace(keys[2], **{purpose: key})
    keys[2] = replace(wrong, signature=sign(parties[2]._signing, wrong.signed(0)))
    server.publish(keys)

    def go_on():
        inboxes = server.deliver([party.sealed_shares(keys) for party in parties])
        parties[0].masked_model(torch.ones(3), 0.2, inboxes[0])

    with pytest.raises(FsslError, match=f"{key.hex()} is no public key"):
        go_on()


def test_signatures_of_another_round_list_or_client_count_for_nothing():
    parties, _, _ = a_round(number=4)
    everyone = range(5)
    signed = {party.number: party.consistency(everyone).signature for party in parties}
    earlier = {
        number: sign(parties[number]._signing, statement("survivors", 3, everyone)) for number in range(5)
    }  # the same list, a round ago
    for wrong in (earlier, signed | {3: signed[2]}, signed | {3: bytes(64)}, signed | {3: b""}):
        with pytest.raises(FsslError, match="has not signed the list"):
            parties[0].unmasking(wrong)
    parties[0].unmasking(signed)


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_sealed_message_that_was_changed_stops_a_client_before_it_sends_its_model(place):
    parties, _, inboxes = a_round(steps=2)
    changed = bytearray(inboxes[0][3])
    changed[place] ^= 1
    for wrong in (bytes(changed), inboxes[1][3], b""):
        with pytest.raises(FsslError, match="A sealed message was changed"):
            parties[0].masked_model(torch.ones(3), 0.2, inboxes[0] | {3: wrong})
    parties[0].masked_model(torch.ones(3), 0.2, inboxes[0])


# ---------------------------------------------------------------- copies, and what does not fit


def test_copies_of_a_message_count_once_at_every_step():
    """Three copies of one message are no three clients."""
    parties, server = simulated_clients(FIVE), Server(FIVE)

    def refused(take, messages):
        for copies in ([messages[0]] * 3, [messages[0]] * 5, [*messages, messages[3]]):
            with pytest.raises(FsslError, match=r"Clients \[[03]\] are there twice or not expected"):
                take(copies)
        with pytest.raises(FsslError, match="2 of 5 clients took the step"):
            take(messages[:2])

    keys = [party.public_keys() for party in parties]
    refused(server.publish, keys)
    keys = server.publish(keys)
    refused(parties[0].sealed_shares, keys)
    shares = [party.sealed_shares(keys) for party in parties]
    refused(server.deliver, shares)
    inboxes = server.deliver(shares)
    models = [party.masked_model(torch.ones(3), 0.2, inboxes[party.number]) for party in parties]
    refused(server.survivors, models)
    survivors = server.survivors(models)
    refused(parties[0].consistency, survivors)
    agreed = [party.consistency(survivors) for party in parties]
    refused(server.confirm, agreed)
    signatures = server.confirm(agreed)
    answers = [party.unmasking(signatures) for party in parties]
    refused(server.total, answers)
    assert server.total(answers).tolist() == plain_sum(FIVE, torch.ones(5, 3), torch.ones(5), range(5))


def test_messages_of_clients_who_are_not_there_are_refused():
    parties, server, keys = a_round(steps=1)
    with pytest.raises(FsslError, match=r"Clients \[9\]"):
        server.publish([*keys, replace(keys[0], client=9)])
    server = Server(FIVE)
    keys = server.publish(keys[:4])  # the fifth has sent none
    shares = [party.sealed_shares(keys) for party in parties[:4]]
    with pytest.raises(FsslError, match=r"Clients \[4\]"):
        server.deliver([*shares, replace(shares[0], client=4)])
    with pytest.raises(FsslError, match=r"Client 0 sent shares for \[1, 2\]; due are shares for \[1, 2, 3\]"):
        server.deliver([replace(shares[0], sealed={k: shares[0].sealed[k] for k in (1, 2)}), *shares[1:]])


@pytest.mark.parametrize("kind", ["seeds", "masking"])
@pytest.mark.parametrize("bit", [3, 63, -10])  # X25519 leaves out the first three and the last
def test_a_flipped_bit_in_a_share_is_noticed(kind, bit):
    """It made an average that was off by 150."""
    models = some_models(5, 37)
    parties, server = simulated_clients(FIVE), Server(FIVE)
    keys = server.publish([party.public_keys() for party in parties])
    inboxes = server.deliver([party.sealed_shares(keys) for party in parties])
    survivors = server.survivors([party.masked_model(models[0], 0.2, inboxes[party.number]) for party in parties[:4]])
    signatures = server.confirm([party.consistency(survivors) for party in parties[:4]])
    answers = [party.unmasking(signatures) for party in parties[:4]]
    whose = 3 if kind == "seeds" else 4
    share = bytearray(getattr(answers[1], kind)[whose])
    share[bit // 8] ^= 1 << bit % 8
    wrong = replace(answers[1], **{kind: getattr(answers[1], kind) | {whose: bytes(share)}})
    secret = "seed" if kind == "seeds" else "masking key"
    with pytest.raises(FsslError, match=rf"shares of \[0, 1, 2\] do not give the {secret} of client {whose}: one was"):
        server.total([answers[0], wrong, *answers[2:]])
    short = replace(answers[1], **{kind: getattr(answers[1], kind) | {whose: b"a"}})
    with pytest.raises(FsslError, match=f"shares of a secret of client {whose} are not"):
        server.total([answers[0], short, *answers[2:]])
    missing = replace(answers[1], **{kind: {}})
    with pytest.raises(FsslError, match=r"Client 1 sent shares for \[\]; due are"):
        server.total([answers[0], missing, *answers[2:]])
    server.total(answers)


def test_a_client_that_shares_another_secret_than_its_own_is_noticed():
    parties, server = simulated_clients(FIVE), Server(FIVE)
    keys = server.publish([party.public_keys() for party in parties])
    parties[2]._seed, own = bytes(16), parties[2]._seed
    shares = [party.sealed_shares(keys) for party in parties]
    parties[2]._seed = own
    inboxes = server.deliver(shares)
    survivors = server.survivors([party.masked_model(torch.ones(3), 0.2, inboxes[party.number]) for party in parties])
    signatures = server.confirm([party.consistency(survivors) for party in parties])
    with pytest.raises(FsslError, match=r"do not give the seed of client 2: .*the client shared another"):
        server.total([party.unmasking(signatures) for party in parties])


def test_masked_models_that_are_not_alike_are_refused():
    parties, server, inboxes = a_round(steps=2)
    models = [party.masked_model(torch.ones(3), 0.2, inboxes[party.number]) for party in parties]
    for words in (models[1].words[:2], models[1].words.astype("<u8"), models[1].words[None]):
        with pytest.raises(FsslError, match="Masked models are not all as long"):
            server.survivors([models[0], replace(models[1], words=words), *models[2:]])


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
    """N clients, two of them lost before they send a model of P words.

    160 bytes of keys (two, a commitment, a signature), 64 a sealed share and a signature of consistency.
    """
    n, gone, parameters = 10, 2, 1000
    _, server = secure_average(some_models(n, parameters), torch.ones(n), TEN, dropped=[2, 7])
    table = server.traffic()
    each = table.groupby(["step", "direction"]).bytes.agg(["count", "min", "max"])
    expected = {
        ("public keys", "up"): (n, 160),
        ("public keys", "down"): (n, 160 * (n - 1)),
        ("sealed shares", "up"): (n, 64 * (n - 1)),
        ("sealed shares", "down"): (n, 64 * (n - 1)),
        ("masked model", "up"): (n - gone, 4 * parameters),
        ("masked model", "down"): (n - gone, 4 * (n - gone)),
        ("consistency", "up"): (n - gone, 64),
        ("consistency", "down"): (n - gone, 64 * (n - gone - 1)),
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
    fresh = [simulated_clients(TEN)[0].public_keys() for _ in range(2)]
    assert fresh[0].masking != fresh[1].masking  # the system's randomness


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"threshold": 1}, "threshold=1 cannot be used: expected a number from 3 to 5"),
        ({"threshold": 2}, "threshold=2 cannot be used: expected a number from 3 to 5"),
        ({"threshold": 6}, "threshold=6"),
        ({"clients": 1}, "clients=1"),
        ({"bits": 16}, "bits=16 cannot be used: expected one of 32, 64"),
        ({"fraction_bits": 31}, "fraction_bits=31"),
        ({"fraction_bits": 7}, "fraction_bits=7 cannot be used: expected a number from 8 to 30"),
        ({"clients": 100, "threshold": 67, "fraction_bits": 10}, "clients=100 cannot be used: .* from 2 to 4"),
    ],
)
def test_protocols_that_cannot_work_are_refused(values, message):
    with pytest.raises(SettingError, match=message):
        FIVE.changed(**values)


@pytest.mark.parametrize(
    ("weights", "dropped", "message"),
    [
        (torch.ones(4), (), "weights=.* expected 5 finite numbers above 0"),
        (torch.zeros(5), (), "weights="),
        (-torch.ones(5), (), "weights="),
        (torch.tensor([1.0, 0, 0, 0, 0]), (), "weights="),  # an average over one client is its model
        (torch.tensor([1.0, 1, 1, 1, math.nan]), (), "weights="),
        (torch.tensor([1.0, 1, 1, 1, math.inf]), (), "weights="),
        (
            torch.tensor([1e9, 1, 1, 1, 1]),
            (),
            "share=.*e-10 cannot be used: expected a part of all weight from 1.5e-05",
        ),
        (torch.ones(5), (5,), "dropped=.* expected clients from 0 to 4"),
    ],
)
def test_weights_and_losses_of_other_clients_are_refused(weights, dropped, message):
    with pytest.raises(SettingError, match=message):
        secure_average(some_models(5, 3), weights, FIVE, dropped=dropped)
