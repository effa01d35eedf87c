"""One message between server and client: a header in JSON, then the raw bytes of each tensor.

Reading a message runs no code: a tensor is a name, one of three types and a shape, and its bytes must be exactly as
many as these say. Bytes are little-endian, which the handshake makes sure of.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from fssl_core.errors import FsslError
from fssl_core.federation.received import unusable

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER = 1 << 20  # bytes; a ResNet-18 has 60 tensors of about 50 bytes each in a header
MAX_FRAME = 1 << 30  # bytes of one tensor
MAX_DIMENSIONS = 8

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # by name, type and shape of the tensors of a message


class ProtocolError(FsslError):
    """The other side sent something that is no message, or not the message that was due."""


@dataclass(frozen=True)
class Message:
    """What crosses the network at once.

    Args:
        kind: what it is; of a message with tensors, also the purpose that the ledger books them under.
        fields: anything that JSON knows.
        tensors: by name.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def encode(message: Message) -> list[bytes]:
    """The frames of a message: the header, then each tensor."""
    described = [[name, NAMES[value.dtype], list(value.shape)] for name, value in message.tensors.items()]
    header = {"kind": message.kind, "fields": dict(message.fields), "tensors": described}
    # To bytes by a view, because numpy knows no bfloat16.
    payload = [
        value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for value in message.tensors.values()
    ]
    return [json.dumps(header).encode(), *payload]


def decode(frames: Sequence[bytes | memoryview]) -> Message:
    """The message in these frames, its tensors on the CPU.

    Raises:
        ProtocolError: they are none; the text says why.
    """
    if not frames or len(frames[0]) > MAX_HEADER:
        raise ProtocolError(f"a message needs a header of at most {MAX_HEADER} bytes")
    try:
        header = json.loads(bytes(frames[0]))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the header of a message is not JSON") from error
    match header:
        case {"kind": str(kind), "fields": dict(fields), "tensors": list(described)}:
            pass
        case _:
            raise ProtocolError("the header of a message needs kind, fields and tensors")
    if len(described) != len(frames) - 1:
        raise ProtocolError(f"{kind!r} has {len(frames) - 1} frames of tensors and describes {len(described)}")
    tensors = dict(_tensor(entry, frame) for entry, frame in zip(described, frames[1:], strict=True))
    if len(tensors) != len(described):
        raise ProtocolError(f"{kind!r} has two tensors of one name")
    return Message(kind, fields, tensors)


def _tensor(described: Any, frame: bytes | memoryview) -> tuple[str, Tensor]:
    match described:
        case [str(name), str(dtype), list(shape)] if dtype in DTYPES:
            pass
        case _:
            raise ProtocolError(f"a tensor needs a name, one of the types {', '.join(DTYPES)}, and a shape")
    if len(shape) > MAX_DIMENSIONS or any(type(size) is not int or size < 1 for size in shape):
        raise ProtocolError(f"{name!r} cannot have the shape {str(shape)[:100]}")
    if len(frame) > MAX_FRAME or len(frame) != prod(shape) * DTYPES[dtype].itemsize:
        raise ProtocolError(f"{name!r} as {dtype} {shape} cannot have {len(frame)} bytes")
    return name, torch.frombuffer(bytearray(frame), dtype=DTYPES[dtype]).view(shape)


def layout(tensors: Mapping[str, Tensor]) -> Layout:
    """Type and shape of each tensor."""
    return {name: (value.dtype, tuple(value.shape)) for name, value in tensors.items()}


def check_layout(message: Message, expected: Layout) -> None:
    """Raise :class:`ProtocolError` unless the message has exactly these tensors, in any order."""
    found = layout(message.tensors)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            got, due = (_words(side.get(name)) for side in (found, expected))
            raise ProtocolError(f"{message.kind!r} has {name[:100]!r} as {got} where {due} is due")


def check_values(message: Message) -> None:
    """Raise :class:`ProtocolError` unless all values are such that one can go on computing with them."""
    if reason := unusable(message.tensors):
        raise ProtocolError(f"{message.kind!r} has {reason}")


def due_bytes(expected: Layout) -> int:
    """The most that a message with these tensors has in all of its frames."""
    payload = sum(dtype.itemsize * prod(shape) for dtype, shape in expected.values())
    return payload + 256 * (1 + len(expected))  # of the header, type and shape of a tensor and a name are far less


def _words(described: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "nothing" if described is None else f"{NAMES[described[0]]} {list(described[1])}"
