"""What a client answered, checked before it is used: it comes from outside."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, RecordDict
from torch import Tensor

from fssl_core.errors import FsslError
from fssl_core.federation.received import unusable
from fssl_core.notices import printable
from fssl_core.training.averaging import AveragingSettings

MOST_IMAGES = 10**9
MOST_FIGURES = 32
LARGEST_FIGURE = 1e30  # sums of such are finite in float32, too
# Figures that only the server has, or that stand beside its settings.
NOT_THEIRS = {"epoch", "best_epoch", "method", "linear_probe_accuracy", "test_accuracy"} | {
    one.name for one in fields(AveragingSettings)
}
NPY_HEADER = 1 << 10  # bytes, and more than numpy puts in front of an array


class ReplyError(FsslError):
    """A reply that cannot be used; the message says why in a printable line that begins in the middle of a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(printable(why))


def read_join(content: RecordDict, clients: int) -> tuple[int, int]:
    """A client's number, and the number of its images.

    Raises:
        ReplyError: they are missing, or no such numbers.
    """
    metrics = _record(content, "metrics", MetricRecord)
    client, images = metrics.get("client"), metrics.get("images")
    if type(client) is not int or not 0 <= client < clients:
        raise ReplyError(f"its number is {client!r} where one from 0 to {clients - 1} is due")
    if type(images) is not int or not 1 <= images <= MOST_IMAGES:
        raise ReplyError(f"it has {images!r} images where a number from 1 to {MOST_IMAGES} is due")
    return client, images


def read_training(content: RecordDict, due: Mapping[str, Tensor], images: int) -> tuple[dict[str, Tensor], dict]:
    """The model that a client has trained, and its figures.

    Args:
        content: of the reply.
        due: a state of the model: the names, shapes and types that are due.
        images: that the client has joined with.

    Returns:
        the state, and the figures by name, without the number of images.

    Raises:
        ReplyError: something is missing, has another shape or type, or is not finite; or another number of images.
    """
    arrays, metrics = _record(content, "arrays", ArrayRecord), _record(content, "metrics", MetricRecord)
    return _state(arrays, due), _figures(metrics, images)


def _record(content: RecordDict, name: str, kind: type) -> Any:
    record = content.get(name)
    if not isinstance(record, kind):
        raise ReplyError(f"its {name} are missing")
    return record


def _state(arrays: ArrayRecord, due: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = set(arrays) ^ due.keys()
    if names:
        name = min(names)
        raise ReplyError(f"{name[:100]!r} is {'missing' if name in due else 'not part of the model'}")
    for name, expected in due.items():
        most = expected.nbytes + NPY_HEADER
        if len(arrays[name].data) > most:
            raise ReplyError(f"{name!r} has {len(arrays[name].data):,} bytes where at most {most:,} are due")
    try:
        state = arrays.to_torch_state_dict()
    except Exception as error:  # whatever numpy makes of bytes that are no array
        raise ReplyError(f"its model cannot be read ({type(error).__name__})") from error
    for name, expected in due.items():
        value = state[name]
        if (value.shape, value.dtype) != (expected.shape, expected.dtype):
            got, wanted = (f"{part.dtype} {list(part.shape)}" for part in (value, expected))
            raise ReplyError(f"{name!r} is {got} where {wanted} is due")
    if reason := unusable(state):
        raise ReplyError(f"it has {reason}")
    return {name: state[name] for name in due}


def _figures(metrics: MetricRecord, images: int) -> dict[str, float]:
    row = dict(metrics)
    counted = row.pop("images", None)
    if type(counted) is not int or counted != images:
        raise ReplyError(f"it counts {counted!r} images and has joined with {images}")
    if not {"loss", "last_epoch_loss"} <= row.keys() or NOT_THEIRS & row.keys() or len(row) > MOST_FIGURES:
        raise ReplyError("its figures are not those of a round")
    for name, value in row.items():
        if not name.isidentifier() or type(value) not in (int, float) or not abs(value) <= LARGEST_FIGURE:
            raise ReplyError(
                f"its figure {name[:100]!r} is {str(value)[:100]!r} where a number of at most {LARGEST_FIGURE:g} is due"
            )
    return row
