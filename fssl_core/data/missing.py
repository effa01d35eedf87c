"""Which data sets are not here: a notebook runs what it can, and says of the rest why it was not run."""

from collections.abc import Iterable

from fssl_core.data import outlines
from fssl_core.data.datasets import EMBEDDED, find_dataset, how_to_get


def missing_datasets(names: Iterable[str]) -> dict[str, str]:
    """Of data sets that are not here, what is missing and how to get it; nothing is read.

    Args:
        names: as for :func:`~fssl_core.data.datasets.load_dataset`.

    Returns:
        a sentence by name, in order; none inside :func:`~fssl_core.data.outlines.outlines_only`.
    """
    if outlines.in_use():
        return {}
    missing = (name for name in dict.fromkeys(names) if name not in EMBEDDED and not find_dataset(name))
    return {name: how_to_get(name) for name in missing}
