"""Lines on stderr for what a user should know although nothing is wrong."""

import sys

from tqdm import tqdm

_seen: set[str] = set()


def notice(message: str) -> None:
    """Say it once per process, however often it is given: a capped setting, a data set that is only a subset."""
    if message not in _seen:
        _seen.add(message)
        say(message)


def say(text: str) -> None:
    """A line on stderr, above progress bars."""
    tqdm.write(f"fssl: {text}", file=sys.stderr)
