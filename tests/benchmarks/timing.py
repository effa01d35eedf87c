"""How benchmarks measure: CPU time, in turn, medians."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor

from fssl_core.training.averaging import AveragingTrainer


def train_on(trainer: AveragingTrainer, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Of the client that is training, from ``uint8`` images to updated weights, on what ``trainer.batches`` gave."""
    for rows, views in trainer.prepared(batches):
        trainer.step(rows, views)


def milliseconds(*functions: Callable[[], object], repeats: int = 5, warm_up: int = 4) -> list[float]:
    """Median CPU time of each, called in turn; only ratios within one run mean something, to about a tenth."""
    times = []
    for _ in range(warm_up + repeats):
        starts = []
        for function in functions:
            starts.append(time.process_time())
            function()
        starts.append(time.process_time())
        times.append([1000 * (end - start) for start, end in pairwise(starts)])
    return [statistics.median(column) for column in zip(*times[warm_up:], strict=True)]
