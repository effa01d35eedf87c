import json

import pytest
import torch

from fssl_core.network.messages import Message, ProtocolError, check_layout, decode, encode, layout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_message_arrives_as_it_was_sent(dtype):
    random = torch.Generator().manual_seed(0)
    tensors = {
        "strided": torch.randn(3, 4, 5, generator=random).to(dtype).transpose(0, 2),
        "scalar": torch.tensor(float("nan"), dtype=dtype),
        "expanded": torch.tensor([1.5], dtype=dtype).expand(2, 3),
    }
    sent = Message("parameters", {"epoch": 3, "rate": 0.1, "none": None, "text": "ü"}, tensors)
    frames = encode(sent)
    assert [len(frame) for frame in frames[1:]] == [count * dtype.itemsize for count in (60, 1, 6)]
    got = decode([memoryview(frame) for frame in frames])
    assert (got.kind, got.fields) == (sent.kind, sent.fields)
    for name, value in tensors.items():
        assert got.tensors[name].dtype == dtype
        torch.testing.assert_close(got.tensors[name], value, rtol=0, atol=0, equal_nan=True)
    got.tensors["strided"].zero_()  # memory of its own


def header(tensors=(), **changed) -> bytes:
    return json.dumps({"kind": "x", "fields": {}, "tensors": list(tensors)} | changed).encode()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "needs a header"),
        ([b" " * (1 << 20) + header()], "needs a header of at most"),
        ([b"\x80\x04\x95 a pickle"], "is not JSON"),
        ([b"[" * 200_000], "is not JSON"),
        ([b"[1, 2]"], "needs kind, fields and tensors"),
        ([header(kind=3)], "needs kind, fields and tensors"),
        ([header(fields=[])], "needs kind, fields and tensors"),
        ([header([["a", "float32", [1]]])], "has 0 frames of tensors and describes 1"),
        ([header(), b"1234"], "has 1 frames of tensors and describes 0"),
        ([header([["a", "object", [1]]]), b"1234"], "one of the types float32, float64, bfloat16"),
        ([header(["a"]), b"1234"], "a tensor needs a name"),
        ([header([["a", "float32", [2]]]), b"1234"], "cannot have 4 bytes"),
        ([header([["a", "float32", [-1, -1]]]), b"1234"], "cannot have the shape"),
        ([header([["a", "float32", [0]]]), b""], "cannot have the shape"),
        ([header([["a", "float32", [1.0]]]), b"1234"], "cannot have the shape"),
        ([header([["a", "float32", [True]]]), b"1234"], "cannot have the shape"),
        ([header([["a", "float32", [1] * 9]]), b"1234"], "cannot have the shape"),
        ([header([["a", "float32", [1 << 40]]]), b"1234"], "cannot have 4 bytes"),
        ([header([["a", "float32", [1]], ["a", "float32", [1]]]), b"1234", b"1234"], "two tensors of one name"),
    ],
)
def test_what_is_no_message_is_refused_with_a_reason(frames, reason):
    with pytest.raises(ProtocolError, match=reason):
        decode(frames)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({}, "'x' has 'a' as nothing where float32 \\[2, 3\\] is due"),
        ({"a": torch.zeros(3, 2)}, "float32 \\[3, 2\\] where float32 \\[2, 3\\]"),
        ({"a": torch.zeros(2, 3, dtype=torch.float64)}, "float64 \\[2, 3\\] where float32"),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(1)}, "'b' as float32 \\[1\\] where nothing is due"),
    ],
)
def test_a_message_must_have_the_tensors_that_are_due(tensors, reason):
    due = layout({"a": torch.ones(2, 3)})
    check_layout(Message("x", tensors={"a": torch.zeros(2, 3)}), due)
    with pytest.raises(ProtocolError, match=reason):
        check_layout(Message("x", tensors=tensors), due)
