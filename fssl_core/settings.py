"""Settings as values: frozen, checked when made, hashable to a name that is the same on every machine.

The annotation of a field says which values it takes, type and range: ``epochs: Count = 200``. Nothing is rounded or
taken for something else: ``1.5`` is no number of epochs, and ``"false"`` no truth value.
"""

import dataclasses
import difflib
import hashlib
import inspect
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

import numpy as np

from fssl_core.errors import SettingError


@dataclass(frozen=True)
class Range:
    """What a number may be, the ends included: metadata of an annotation."""

    low: float = -math.inf
    high: float = math.inf


WORD = Range(-(2**63), 2**63 - 1)  # of every whole number: torch and numpy count with 64 bits
NAMES_DATA = "the name of a data set"  # metadata of an annotation: a run of these settings reads the set

Count = Annotated[int, Range(1)]
Pixels = Annotated[int, Range(1, 1024)]
Channels = Annotated[int, Range(1, 4096)]
Whole = Annotated[int, Range(0)]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Temperature = Annotated[float, Range(1e-6)]
DataName = Annotated[str, NAMES_DATA]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings. A subclass is a frozen dataclass whose :meth:`check` raises :class:`SettingError`.

    Types and ranges are those of the annotations, see :func:`checked`. A field that a subclass annotates anew, to give
    it another default, keeps the range that its base has.
    """

    def __post_init__(self) -> None:
        for name, hints in _hints(type(self)).items():
            for hint in hints:
                object.__setattr__(self, name, checked(name, getattr(self, name), hint))
        self.check()

    def check(self) -> None:
        """Raise :class:`SettingError` for values that do not go together."""

    def changed(self, **values: Any) -> Self:
        """A copy with some fields changed; an unknown name is an error that lists the known ones."""
        check_names(type(self), values)
        return dataclasses.replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values of all fields."""
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """Plain values that tell these settings from others, as in a run's ``settings.json``; see :func:`added`."""
        return _identity(self)

    @cached_property
    def key(self) -> str:
        """Sixteen hex digits that name these settings: equal settings, equal key."""
        return key_of(type(self).__name__, self.identity())

    @property
    def data_sets(self) -> frozenset[str]:
        """Names of the image sets that a run of these settings reads: their own, and those of settings inside them."""
        found = {getattr(self, name) for name in _naming_data(type(self))} - {None}
        return frozenset(found).union(*(nested.data_sets for nested in self.nested))

    @property
    def nested(self) -> "list[Settings]":
        """Settings that are the value of a field, or stand in a tuple that is; not those inside them."""
        values = (getattr(self, name) for name in _hints(type(self)))
        listed = (one for value in values for one in (value if isinstance(value, tuple) else (value,)))
        return [one for one in listed if isinstance(one, Settings)]

    @property
    def needs(self) -> "tuple[Settings, ...]":
        """The runs whose results a run of these settings uses, by default all that are among its fields.

        They are computed first. One that is missing here is computed when the run asks for it.
        """
        found = {}
        for nested in self.nested:
            own = (nested,) if callable(getattr(nested, "execute", None)) else nested.needs
            found |= {settings.key: settings for settings in own}
        return tuple(found.values())


def key_of(kind: str, identity: Mapping[str, Any]) -> str:
    """The key of settings by the name of their class and their plain values, as a run's ``settings.json`` has both."""
    text = json.dumps({"kind": kind, **identity}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _hints(kind: type[Settings]) -> dict[str, list[Any]]:
    """By field, its annotations in the class and its bases, the outermost base first."""
    if inspect.get_annotations(kind) and "__dataclass_fields__" not in vars(kind):  # what it annotates is no field
        raise SettingError("settings", kind.__name__, "a class with @dataclass(frozen=True, kw_only=True)")
    annotations = [inspect.get_annotations(base, eval_str=True) for base in reversed(kind.__mro__)]
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: [hints[name] for hints in annotations if name in hints] for name in names}


@cache
def _naming_data(kind: type[Settings]) -> list[str]:
    """Its fields that name data sets."""
    return [name for name, hints in _hints(kind).items() if any(NAMES_DATA in _metadata(hint) for hint in hints)]


def completed(kind: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of all fields of a run's settings, from its ``settings.json``; see :func:`added`."""
    before = [_before(known) for known in _kinds(Settings) if known.__name__ == kind]
    return {**(before[0] if before else {}), **identity}


@cache
def _before(kind: type[Settings]) -> dict[str, Any]:
    """Of the fields that were :func:`added`, the value that stands for what the code did before."""
    return {field.name: field.metadata["before"] for field in dataclasses.fields(kind) if "before" in field.metadata}


def _metadata(hint: Any) -> list[Any]:
    """Of an annotation and of the kinds that it allows."""
    if get_origin(hint) is Annotated:
        return [*hint.__metadata__, *_metadata(hint.__origin__)]
    return [entry for kind in get_args(hint) for entry in _metadata(kind)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Plain values of nested dicts by names with dots; lists as tuples."""
    found = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = tuple(value) if isinstance(value, list) else value
    return found


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Which of nested plain values differ, in words; empty if none does."""
    first, second = flat(there), flat(here)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    return "; ".join(f"{name} is {first.get(name)!r} there and {second.get(name)!r} here" for name in names)


# ---------------------------------------------------------------- values


def check_names(kind: type[Settings], values: Mapping[str, Any]) -> None:
    """Raise :class:`SettingError` for a name that is none of the settings of ``kind``; the error lists them."""
    names = [field.name for field in dataclasses.fields(kind)]
    for name, value in values.items():
        if name not in names:
            meant, listed = closest(name, names), f"settings of {kind.__name__}: {', '.join(names)}"
            raise SettingError(name, value, f"{meant}, or another of the {listed}" if meant else f"one of the {listed}")


def check_types(kind: type[Settings], values: Mapping[str, Any]) -> None:
    """Check names, types and ranges of some settings of ``kind``, before they are put together with others."""
    check_names(kind, values)
    for name, value in values.items():
        for hint in _hints(kind)[name]:
            checked(name, value, hint)


def checked(name: str, value: Any, hint: Any) -> Any:
    """A value as an annotation wants it.

    A list becomes a tuple, since papermill and JSON know no tuples; a whole number becomes a float where one is wanted,
    so that 1 and 1.0 are one setting and one hash; a number of numpy becomes Python's. Nothing else is converted.

    Args:
        name: of the setting or argument.
        value: what it was given.
        hint: ``bool``, ``int`` (64 bits), ``float`` (finite), ``str``, a class, ``tuple[...]``, ``X | None``, or such
            with a :class:`Range`, as ``Annotated[float, Range(0, 1)]``. Others are not looked at.

    Raises:
        SettingError: the value is of another kind or outside the range.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in kinds:
        return None
    for kind in kinds:
        plain, ranges = kind, ()
        if get_origin(kind) is Annotated:
            plain, ranges = kind.__origin__, [entry for entry in kind.__metadata__ if isinstance(entry, Range)]
        if get_origin(plain) is tuple and isinstance(value, list | tuple):
            entries = get_args(plain)
            if entries[-1] is ... or len(entries) == len(value):
                wanted = repeat(entries[0]) if entries[-1] is ... else entries
                return tuple(checked(name, entry, want) for entry, want in zip(value, wanted, strict=False))
        elif _is(plain, found := _python(value, plain)):
            for bounds in (*ranges, WORD) if plain is int else ranges:
                check_range(name, found, bounds.low, bounds.high)
            return found
    shown = type(value).__name__ if isinstance(value, Settings) else value
    raise SettingError(name, shown, " or ".join(map(_words, kinds)))


def _python(value: Any, kind: Any) -> Any:
    """Numpy's numbers as Python's; a whole number as a float and a list as a tuple, where these are wanted."""
    if isinstance(value, np.generic):
        value = value.item()
    if kind is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def _is(kind: Any, value: Any) -> bool:
    if kind is float:
        return type(value) is float and math.isfinite(value)
    if kind in (bool, int, str):
        return type(value) is kind  # True is an int, too
    return isinstance(value, kind) if isinstance(kind, type) else get_origin(kind) is not tuple


def _words(kind: Any) -> str:
    """An annotation in words."""
    if get_origin(kind) is Annotated:
        return _words(kind.__origin__)
    if get_origin(kind) is tuple:
        entries = [entry for entry in get_args(kind) if entry is not ...]
        return f"a list, each entry {_words(entries[0])}" if ... in get_args(kind) else f"a list of {len(entries)}"
    plain = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a word", NoneType: "None"}
    plain[list] = "a tuple, of a field annotated as tuple[...]"
    if kind in plain:
        return plain[kind]
    if kind is Settings:
        return "settings, for example AveragingSettings()"
    made = [f"{each.__name__}()" for each in (kind, *_kinds(kind)) if not inspect.isabstract(each)]
    return ("one of " if len(made) > 1 else "") + ", ".join(made)


def added(default: Any, *, before: Any) -> Any:
    """A field for something that the code did in one way only when runs were stored.

    Settings in which the field says just that keep the key that they had without the field, and their runs.

    Args:
        default: of the field.
        before: the value that stands for what the code did before.
    """
    return dataclasses.field(default=default, metadata={"before": before})


def _identity(value: Any) -> Any:
    if isinstance(value, Settings):
        before = _before(type(value))
        values = ((name, getattr(value, name)) for name in _hints(type(value)))
        return {name: _identity(own) for name, own in values if name not in before or own != before[name]}
    return [_identity(one) for one in value] if isinstance(value, list | tuple) else value


def is_own(registered: Any) -> bool:
    """Whether a function, class or partial that stands in a registry is code of a user's own."""
    return not getattr(registered, "func", registered).__module__.startswith("fssl_core.")


def check_own_name(settings: Settings) -> None:
    """Raise :class:`SettingError` unless ``name``, which keys hold, is the default of the class and of no base."""
    kind = type(settings)
    own = kind.__dataclass_fields__["name"].default
    check_choice("name", settings.name, [own])
    if is_own(kind) and any(getattr(base, "name", None) == own for base in kind.__mro__[1:]):
        raise SettingError("name", own, f"another one, which {kind.__name__} has to give itself: name: str = ...")


def check_choice(name: str, value: object, allowed: Collection) -> None:
    """Raise :class:`SettingError` unless ``value`` is one of ``allowed``."""
    try:
        known = value in frozenset(allowed)
    except TypeError:  # a list or an array is no choice
        known = False
    if not known:
        listed = [repr(one) if "," in str(one) else str(one) for one in allowed]
        raise SettingError(name, value, f"one of {', '.join(listed)}{did_you_mean(value, allowed)}")


def did_you_mean(value: object, known: Iterable) -> str:
    """The end of a sentence that has listed what is known: which of it is written much like this value, if any is."""
    meant = closest(value, known)
    return f" (did you mean {meant}?)" if meant else ""


def closest(value: object, known: Iterable) -> str | None:
    """What of the known is written much like this value, or else the only one that has it as a word; if any is."""
    names = {one.casefold(): one for one in known if isinstance(one, str)}
    if not isinstance(value, str):
        return None
    close = difflib.get_close_matches(value.casefold(), names, n=1)
    close = close or [name for name in names if value.casefold() in name.split("_")]
    return names[close[0]] if len(close) == 1 else None


def check_range(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise :class:`SettingError` unless ``value`` is a number with ``low <= value <= high`` (a NaN is refused)."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"a number from {low:g} to {high:g}"
        raise SettingError(name, value, bounds)


def _kinds(kind: type) -> list[type]:
    """The subclasses, and theirs."""
    return [found for each in kind.__subclasses__() for found in (each, *_kinds(each))]
