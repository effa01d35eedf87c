"""Which data sets are not here: a notebook runs what it can, and says of the rest why it was not run."""

from collections.abc import Iterable

from fssl_core.data import outlines
from fssl_core.data.datasets import EMBEDDED, find_dataset, how_to_get
from fssl_core.paths import data_root


def missing_datasets(names: Iterable[str]) -> dict[str, str]:
    """Of data sets that are not here, what is missing and how to get it; nothing is read.

    Args:
        names: as for :func:`~fssl_core.data.datasets.load_dataset`.

    Returns:
        a sentence by name, in order; none inside :func:`~fssl_core.data.outlines.outlines_only`.
    """
    if outlines.in_use():
        return {}
    root = data_root()
    missing = (name for name in dict.fromkeys(names) if name not in EMBEDDED and not find_dataset(name, root))
    return {name: how_to_get(name, root) for name in missing}
