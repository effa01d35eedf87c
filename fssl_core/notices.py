"""Things a user should see once although nothing is wrong: a capped setting, a data set that is only a subset."""

import sys

_seen: set[str] = set()


def notice(message: str) -> None:
    """Print ``message`` to stderr, once per process however often it is given."""
    if message not in _seen:
        _seen.add(message)
        print(f"fssl: {message}", file=sys.stderr, flush=True)
