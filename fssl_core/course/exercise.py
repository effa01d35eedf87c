"""What an exercise is: a test that says no, right, or which mistake was made.

An exercise is a function that tests one answer and raises :class:`Wrong` with the name of a hint::

    @exercise("averaging/fedavg", unweighted="Should a client with few images count as much as one with many?")
    def fedavg(answer, generator):
        models, images = torch.randn(3, 5, generator=generator), torch.tensor([10.0, 20.0, 70.0])
        shares = images / images.sum()
        compare(answer(models, images), shares @ models, unweighted=models.mean(0))

A prediction is a function that reads the right number from the record of a figure, or from a table that a paper
prints; where neither is named, it computes the number::

    @prediction("averaging/gap", record=("ldawa/table4", "laptop"), unit="points", within=5, too_low="...", ...)
    def gap(record):
        return 100 * record.accuracy.max()

The IDs of the exercises of a paper's notebook begin with its own, ``ldawa/table4/gap``.
"""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from numbers import Real
from pkgutil import iter_modules
from types import EllipsisType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fssl_core.course import exercises, predictions
from fssl_core.errors import SettingError

COMMON = {  # hints that every exercise has
    "shape": "The answer has another shape than it should.",
    "type": "The answer is of another kind than it should be.",
    "unit": "Right, but in another unit: expected are bytes.",
    "other": "The result is not right, and it is no mistake that this check knows. Try two or three numbers by hand.",
}
UNIT = "This looks like a fraction or a percentage in the other's place."  # a hint that every prediction has

_KNOWN: dict[str, "Exercise | Prediction"] = {}


class Wrong(Exception):
    """An answer is wrong.

    Args:
        hint: the name of the hint that belongs to the mistake.
        text: in place of the hint's own text, where it depends on the answer.
    """

    def __init__(self, hint: str, text: str = "") -> None:
        super().__init__(hint, text)
        self.hint, self.text = hint, text


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: ``module/name``.
        test: takes the answer and a generator for fresh inputs, and raises :class:`Wrong`.
        hints: texts by name.
    """

    id: str
    test: Callable[[Any, torch.Generator], None]
    hints: Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """A number to be guessed before it is looked up.

    Attributes:
        id: ``module/name``, or ``paper/notebook/name``.
        value: takes the record or the printed table, if it is about one, and returns the number.
        unit: of the number.
        within: a guess that is at most so far off counts as right.
        hints: texts by name, ``too_low``, ``too_high`` and ``unit``.
        record: artifact and profile of a record under ``figures/``; or empty.
        table: paper and table, such as ``("ldawa", "table5")``; or empty. Without either the number is computed.
    """

    id: str
    value: Callable[..., float]
    unit: str
    within: float
    hints: Mapping[str, str]
    record: tuple[str, ...] = ()
    table: tuple[str, ...] = ()


def exercise(id: str, **hints: str) -> Callable[[Callable], Exercise]:
    """Make an exercise of the test below, with the texts of its hints by name."""

    def make(test: Callable[[Any, torch.Generator], None]) -> Exercise:
        return _added(Exercise(id, test, COMMON | hints))

    return make


def prediction(
    id: str,
    *,
    record: tuple[str, ...] = (),
    table: tuple[str, ...] = (),
    unit: str,
    within: float,
    too_low: str,
    too_high: str,
) -> Callable[[Callable], Prediction]:
    """Make a prediction of the function below, which returns the number; see :class:`Prediction`."""

    def make(value: Callable[..., float]) -> Prediction:
        hints = {"too_low": too_low, "too_high": too_high, "unit": UNIT}
        return _added(Prediction(id, value, unit, within, hints, record, table))

    return make


def find_exercise(id: str) -> Exercise | Prediction:
    """The exercise of this name.

    Raises:
        SettingError: there is none.
    """
    module = id.partition("/")[0] if isinstance(id, str) else ""
    _load(module)
    if not isinstance(id, str) or id not in _KNOWN:
        own = [name for name in _KNOWN if name.startswith(f"{module}/")]
        raise SettingError("exercise", id, f"one of {', '.join(own or [f'{name}/...' for name in modules()])}")
    return _KNOWN[id]


def exercises_of(place: str) -> dict[str, Exercise | Prediction]:
    """The exercises of one notebook, by ID; none of a place that has none.

    Args:
        place: a module of the course, ``"averaging"``, or the ID of a paper's notebook, ``"ldawa/table4"``.
    """
    _load(place.partition("/")[0])
    return {id: known for id, known in _KNOWN.items() if place_of(id) == place}


def place_of(id: str) -> str:
    """The notebook that an exercise belongs to, as :func:`exercises_of` calls it."""
    return id.rpartition("/")[0]


def _load(module: str) -> None:
    for package in (exercises, predictions):
        if module in _names(package):
            import_module(f"{package.__name__}.{module}")


def modules() -> tuple[str, ...]:
    """Names of the modules of the course that have exercises."""
    return _names(exercises)


@cache
def _names(package: ModuleType) -> tuple[str, ...]:
    return tuple(found.name for found in iter_modules(package.__path__))


def compare(given: Any, right: Any, *, tolerance: float = 1e-4, **mistakes: Any) -> None:
    """Raise :class:`Wrong` unless a result equals the right one.

    Args:
        given: the student's: a number, or a tensor or what can be made one.
        right: the right one.
        tolerance: relative to the right one, and absolute near zero.
        **mistakes: what usual mistakes lead to, by the name of their hint; the first that fits is told. A tuple has
            several things that one mistake leads to.
    """
    right = torch.as_tensor(right)
    given = as_tensor(given)
    if _equal(given, right, tolerance):
        return
    for hint, mistake in mistakes.items():
        several = mistake if isinstance(mistake, tuple) else (mistake,)
        if any(_equal(given, torch.as_tensor(one), tolerance) for one in several):
            raise Wrong(hint)
    if given.shape != right.shape:
        shown = [f"the shape {list(one.shape)}" if one.ndim else "a single number" for one in (given, right)]
        raise Wrong("shape", f"the answer has {shown[0]}; expected is {shown[1]}.")
    if given.is_floating_point() and right.isfinite().all() and (lost := int((~given.isfinite()).sum())):
        raise Wrong("type", f"the answer is not a finite number, but nan or inf, in {lost} of {given.numel()} places.")
    raise Wrong("other")


def as_tensor(given: Any) -> Tensor:
    """An answer as a detached tensor; :class:`Wrong` for what cannot be one."""
    if isinstance(given, list | tuple) and any(isinstance(one, Tensor) and one.ndim for one in given):
        how = "torch.stack makes one of rows, and torch.autograd.grad returns a tuple: take its [0]"
        raise Wrong("type", f"expected one tensor, got a {type(given).__name__} of {len(given)} tensors: {how}.")
    try:
        return torch.as_tensor(given.copy() if isinstance(given, np.ndarray) else given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Wrong("type", f"expected a number or a tensor, got {type(given).__name__}.") from error


def as_number(given: Any) -> float:
    """An answer as a finite number; :class:`Wrong` for what is none."""
    if isinstance(given, Tensor | np.ndarray) and len(given.reshape(-1)) == 1:
        given = given.item()
    elif isinstance(given, Tensor | np.ndarray):
        raise Wrong("type", f"the answer has the shape {list(given.shape)}; expected is a single number.")
    if isinstance(given, str):
        how = "without quotes" if _is_number(given) else "alone, without its unit"
        raise Wrong("type", f"expected a number, got the text {given!r}: write the number {how}.")
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, int) for part in given):
        how = "without a comma between thousands, and with a point before decimals"
        raise Wrong("type", f"expected a number, got two: write it {how}.")
    if isinstance(given, bool) or not isinstance(given, Real):
        raise Wrong("type", f"expected a number, got {type(given).__name__}.")
    if not math.isfinite(given):
        raise Wrong("type", f"expected a finite number, got {given}.")
    return float(given)


def parts(given: Any, count: int, hint: str) -> list:
    """What an answer consists of; :class:`Wrong` with this hint unless these are ``count`` things."""
    try:
        found = list(given)
    except TypeError:
        found = []
    if len(found) != count:
        raise Wrong(hint)
    return found


def numbers(given: Any, count: int, hint: str) -> Tensor:
    """An answer as ``count`` finite numbers in float64; :class:`Wrong` for what is none."""
    return torch.tensor([as_number(as_tensor(part)) for part in parts(given, count, hint)], dtype=torch.float64)


def check_word(given: Any, words: Iterable[str]) -> None:
    """Raise :class:`Wrong` with the hint ``words`` unless an answer is one of these."""
    if not (isinstance(given, str) and given in [*words]):
        raise Wrong("words", f"{reprlib.repr(given)} is none of {', '.join(map(repr, words))}.")


def other_units(size: float) -> tuple[float, ...]:
    """So many bytes in kB, MB, GB, KiB, MiB and GiB."""
    return tuple(size / base**power for base in (1000, 1024) for power in (1, 2, 3))


def whole_number(low: int, high: int, generator: torch.Generator) -> int:
    """A fresh input, at least ``low`` and below ``high``."""
    return int(torch.randint(low, high, (), generator=generator))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def unanswered(answer: Any) -> bool:
    """Whether this is what the cell of an exercise holds before anybody has filled it in."""
    return answer is None or isinstance(answer, EllipsisType)


def _equal(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    if not (one.is_floating_point() or other.is_floating_point()):
        return bool((one == other).all())
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def _added(known: Exercise | Prediction) -> Exercise | Prediction:
    if known.id in _KNOWN:
        raise SettingError("exercise", known.id, "an ID that no other exercise has")
    _KNOWN[known.id] = known
    return known
