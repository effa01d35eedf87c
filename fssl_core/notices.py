"""Lines on stderr for what a user should know although nothing is wrong."""

import sys

from tqdm import tqdm

LONGEST = 300  # characters of what another machine said

_seen: set[str] = set()


def notice(message: str) -> None:
    """Say it once per process, however often it is given: a capped setting, a data set that is only a subset."""
    if message not in _seen:
        _seen.add(message)
        say(message)


def printable(text: object) -> str:
    """What another machine said, fit for a terminal and a log: one line, no control characters, not too long."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(text))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def say(text: str) -> None:
    """A line on stderr, above progress bars."""
    tqdm.write(f"fssl: {text}", file=sys.stderr)
