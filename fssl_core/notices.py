"""Lines for what a user should know although nothing is wrong: on stderr, or in the output of a notebook's cell."""

import sys
from collections.abc import Callable

from tqdm import tqdm

LONGEST = 300  # characters of what others said
TRANSIENT = {"fssl": "transient"}  # metadata of outputs that are for whoever is watching: `fssl refresh` drops them

_seen: set[str] = set()
_listeners: list[Callable[[str], None]] = []


def notice(message: str) -> None:
    """Say it once per process, however often it is given: a capped setting, a data set that is only a subset."""
    if message not in _seen:
        _seen.add(message)
        say(message)


def printable(text: object) -> str:
    """What others said, such as a file or another machine, fit for a terminal and a log: one line, not too long."""
    text = str(text)
    line = visible(" ".join(text[:LONGEST].split()))
    return line if len(text) <= LONGEST else f"{line} ..."


def visible(text: str) -> str:
    """The same without control characters, which move a terminal's cursor: they are replaced."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def say(text: str) -> None:
    """A line that names its sender."""
    tell(f"fssl: {text}")


def tell(line: str) -> None:
    """A line as it is: below a notebook's cell, or on stderr above progress bars."""
    if _listeners:
        _listeners[-1](line)
    elif in_kernel():  # not on stderr, which notebooks show as if something were wrong
        from IPython.display import display

        display({"text/plain": line}, raw=True, metadata=TRANSIENT)
    else:
        tqdm.write(line, file=sys.stderr)


def send_lines(listener: Callable[[str], None]) -> None:
    """From now on lines go there: this process computes for another one, which shows them."""
    _listeners.append(listener)


def in_kernel() -> bool:
    """Whether a Jupyter kernel runs this code; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
