"""Words, masks and shares, against independent forms: Python's whole numbers, pycryptodome's AES."""

import itertools
import math

import numpy as np
import pytest
import torch
from Crypto.Cipher import AES

from fssl_core.errors import SettingError
from fssl_core.privacy import masks
from fssl_core.random import generator

BITS = [(32, 24), (64, 40)]


@pytest.mark.parametrize(("bits", "fraction_bits"), BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_are_rounded_multiples_modulo_their_range(bits, fraction_bits, dtype):
    values = torch.randn(500, generator=generator(0, "values"), dtype=dtype)
    values[:3] = torch.tensor([0.0, 0.5, -2.0])
    words = masks.encode(values, 0.3, bits, fraction_bits)
    expected = [round(value * (0.3 * 2**fraction_bits)) % 2**bits for value in values.tolist()]
    assert words.tolist() == expected
    assert words.itemsize * 8 == bits
    back = masks.decode(words, 0.3, fraction_bits)
    torch.testing.assert_close(back, values.double(), rtol=0, atol=0.51 / 0.3 / 2**fraction_bits)


@pytest.mark.parametrize(("bits", "fraction_bits"), BITS)
def test_a_sum_of_the_largest_values_fits(bits, fraction_bits):
    limit = masks.largest_value(bits, fraction_bits)
    shares = torch.rand(7, generator=generator(0, "shares"), dtype=torch.float64)
    shares = (shares / shares.sum()).tolist()
    values = torch.tensor([limit, -limit])
    total = sum(masks.encode(values, share, bits, fraction_bits) for share in shares)
    torch.testing.assert_close(masks.decode(total, 1, fraction_bits), values.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 64.1, -64.1])
def test_values_that_do_not_fit_are_refused(bad):
    values = torch.zeros(3 * masks.PIECE // 2)
    values[-1] = bad
    with pytest.raises(SettingError, match="numbers up to 64; lower fraction_bits=24, or use 64 bits"):
        masks.encode(values, 1e-3, 32, 24)


@pytest.mark.parametrize("share", [100.0, 1.001, 0.0, 1e-9, -0.5, math.nan, math.inf])
def test_shares_that_overflow_a_sum_or_vanish_in_rounding_are_refused(share):
    with pytest.raises(SettingError, match=r"share=.* expected a part of all weight from 1\.5e-05 to 1"):
        masks.encode(torch.ones(3), share, 32, 24)


def test_the_smallest_share_of_a_client_is_still_seen():
    share = masks.FINEST * 2.0**-24
    back = masks.decode(masks.encode(torch.tensor([1.0, -0.5]), share, 32, 24), share, 24)
    torch.testing.assert_close(back, torch.tensor([1.0, -0.5], dtype=torch.float64), rtol=0, atol=1 / masks.FINEST)


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
@pytest.mark.parametrize("length", [1, masks.PIECE, 2 * masks.PIECE + 77])
def test_a_mask_is_aes_in_counter_mode(dtype, length):
    seeds = [bytes([value]) * masks.SEED for value in (1, 2)]
    streams = [
        np.frombuffer(AES.new(seed, AES.MODE_CTR, nonce=b"").encrypt(bytes(length * int(dtype[-1]))), dtype)
        for seed in seeds
    ]
    words = np.arange(length).astype(dtype)
    expected = words + streams[0] - streams[1]
    masks.apply_masks(words, [(seeds[0], 1), (seeds[1], -1)])
    assert (words == expected).all()
    masks.apply_masks(words, [(seeds[1], 1), (seeds[0], -1)])
    assert (words == np.arange(length).astype(dtype)).all()


def test_two_parties_agree_on_a_seed_for_each_purpose():
    one, other, third = (bytes([value]) * masks.KEY for value in (1, 2, 3))
    keys = {masks.agree(one, masks.public_key(other), purpose) for purpose in ("a", "b")}
    assert keys == {masks.agree(other, masks.public_key(one), purpose) for purpose in ("a", "b")}
    assert len(keys | {masks.agree(third, masks.public_key(one), "a")}) == 3
    assert {len(key) for key in keys} == {masks.SEED}


def test_a_signature_holds_for_one_message_and_one_key():
    signing = [bytes([value]) * masks.KEY for value in (1, 2)]
    keys = [masks.verification_key(key) for key in signing]
    signature = masks.sign(signing[0], b"message")
    assert len(signature) == masks.SIGNATURE
    assert masks.is_signed(keys[0], b"message", signature)
    changed = bytes([signature[0] ^ 1]) + signature[1:]
    for key, message, signed in (
        (keys[1], b"message", signature), (keys[0], b"messages", signature), (keys[0], b"message", changed)
    ):  # fmt: skip
        assert not masks.is_signed(key, message, signed)


def test_any_threshold_shares_give_the_secret_and_fewer_do_not():
    secret = bytes(range(48))
    shares = masks.split_secret(secret, 3, 5)
    assert {len(share) for share in shares} == {len(secret)}
    for count in range(1, 6):
        for holders in itertools.combinations(range(5), count):
            joined = masks.join_secret({holder: shares[holder] for holder in holders})
            assert (joined == secret) == (count >= 3)
