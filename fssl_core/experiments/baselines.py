"""Runs with what their models would reach untrained, and by chance, beside their accuracies."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from fssl_core.evaluation.untrained import untrained
from fssl_core.experiments.store import run_all
from fssl_core.settings import Settings

MEASURES = ("fine_tune_accuracy", "semi_supervised_accuracy", "test_accuracy", "linear_probe_accuracy", "knn_accuracy")


def run_beside_untrained(settings: Iterable[Settings], **how: Any) -> pd.DataFrame:
    """As :func:`~fssl_core.experiments.store.run_all`, with the accuracies of untrained models beside the runs'.

    Those are runs like any other, see :mod:`fssl_core.evaluation.untrained`.

    Args:
        settings: what to run.
        how: as for ``run_all``.

    Returns:
        What ``run_all`` gives, and the columns

        - ``untrained_<measure>`` for each accuracy ``<measure>`` of the runs, such as ``untrained_knn_accuracy``,
        - ``accuracy``: that of the run's own model by the first of ``MEASURES`` which it has,
        - ``untrained``: the same of the untrained model,
        - ``chance``: 1 / classes, or the share of the commonest class among the test images, whichever is more.

        Missing for a run without accuracies; all are fractions.
    """
    settings = list(settings) if isinstance(settings, Iterator) else settings  # gone through twice
    frame = run_all(settings, **how)
    baselines = {index: one for index, each in enumerate(settings) if (one := untrained(each)) is not None}
    beside = run_all([*baselines.values()], **how).set_axis([*baselines]).reindex(frame.index)
    measures = [name for name in beside if name.endswith("_accuracy") and not name.startswith("best_")]
    chance = frame.get("chance", pd.Series(index=frame.index, dtype=float))
    columns = {f"untrained_{name}": beside[name] for name in measures}
    columns |= {
        "accuracy": _first(frame),
        "untrained": _first(beside),
        "chance": beside.get("chance", chance).fillna(chance),
    }
    return frame.assign(**columns)


def _first(table: pd.DataFrame) -> pd.Series:
    """In each row the first of ``MEASURES`` that it has."""
    return table.reindex(columns=[*MEASURES]).astype(float).bfill(axis=1).iloc[:, 0]
