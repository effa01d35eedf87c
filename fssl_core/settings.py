"""Settings as values: frozen, checked when made, hashable to a name that is the same on every machine."""

import dataclasses
import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

from fssl_core.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings. A subclass is a frozen dataclass whose :meth:`check` raises :class:`SettingError`."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):  # papermill and JSON know no tuples
                object.__setattr__(self, field.name, tuple(value))
            if field.type is float and type(value) is int:  # 1 and 1.0 are one setting and one hash
                object.__setattr__(self, field.name, float(value))
        self.check()

    def check(self) -> None:
        """Raise :class:`SettingError` for a value that cannot be used."""

    def changed(self, **values: Any) -> Self:
        """A copy with some fields changed; an unknown name is an error that lists the known ones."""
        names = [field.name for field in dataclasses.fields(self)]
        for name, value in values.items():
            if name not in names:
                raise SettingError(name, value, f"one of the settings of {type(self).__name__}: {', '.join(names)}")
        return dataclasses.replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values of all fields."""
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """Plain values that tell these settings from others, as in a run's ``settings.json``; see :func:`added`."""
        return _identity(self)

    @property
    def key(self) -> str:
        """Sixteen hex digits that name these settings: equal settings, equal key."""
        text = json.dumps({"kind": type(self).__name__, **self.identity()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


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
        values = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {
            field.name: _identity(own)
            for field, own in values
            if "before" not in field.metadata or own != field.metadata["before"]
        }
    return [_identity(one) for one in value] if isinstance(value, list | tuple) else value


def check_choice(name: str, value: object, allowed: Collection) -> None:
    """Raise :class:`SettingError` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise SettingError(name, value, "one of " + ", ".join(map(str, allowed)))


def check_range(name: str, value: float, low: float = float("-inf"), high: float = float("inf")) -> None:
    """Raise :class:`SettingError` unless ``low <= value <= high`` (a NaN is refused)."""
    if not low <= value <= high:
        bounds = f"at least {low:g}" if high == float("inf") else f"a number from {low:g} to {high:g}"
        raise SettingError(name, value, bounds)
