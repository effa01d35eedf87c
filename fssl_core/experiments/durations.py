"""How long runs take, told by runs that are finished."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Durations:
    """What the runs of a sweep will take.

    A run counts if it differs from those of the sweep only in what varies among them, or in a seed. Those of a run's
    own kind that have most in common with it, seeds aside, tell what it takes: their mean.

    Args:
        sweep: the settings of its runs, flat; not empty.
        varying: names of the settings in which they differ.
        recorded: settings and seconds of finished runs of any kind.
    """

    def __init__(
        self,
        sweep: Sequence[Mapping[str, Any]],
        varying: Sequence[str],
        recorded: Iterable[tuple[Mapping[str, Any], float]],
    ) -> None:
        self.varying = [name for name in varying if not is_seed(name)]
        self.like = self._fixed(sweep[0], varying)
        self.known = [(_encoded(row), seconds) for row, seconds in recorded if self._fixed(row, varying) == self.like]

    def add(self, row: Mapping[str, Any], seconds: float) -> None:
        """A run of the sweep is finished."""
        self.known.append((_encoded(row), seconds))

    def expected(self, row: Mapping[str, Any]) -> float | None:
        """Seconds for a run of the sweep; ``None`` where no run tells."""
        encoded = _encoded(row)
        known = [
            (sum(encoded.get(name) != other.get(name) for name in self.varying), seconds)
            for other, seconds in self.known
            if other.get("kind") == encoded.get("kind")
        ]
        least = min((distance for distance, _ in known), default=0)
        nearest = [seconds for distance, seconds in known if distance == least]
        return sum(nearest) / len(nearest) if nearest else None

    @staticmethod
    def _fixed(row: Mapping[str, Any], varying: Sequence[str]) -> dict[str, str]:
        return _encoded({name: value for name, value in row.items() if name not in varying and not is_seed(name)})


def is_seed(name: str) -> bool:
    """Whether a setting's name, in dots where it is a nested one's, is that of a seed."""
    return name.rpartition(".")[2] == "seed"


def _encoded(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in row.items()}  # tuples and lists are one thing
