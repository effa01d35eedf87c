"""How benchmarks measure: CPU time, in turn, medians."""

import statistics
import time
from collections.abc import Callable
from itertools import pairwise


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
