"""Half a cosine down to 0, with or without a linear warm-up before it."""

import math


def half_cosine(done: float, total: float = 1.0) -> float:
    """Of the highest learning rate, the share that is left after so much of all: from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done / total))


def warmed_up(peak: float, done: float, warmup: float, total: float) -> float:
    """The learning rate after so much of all: a linear rise to the peak, then half a cosine."""
    return peak * done / warmup if done < warmup else peak * half_cosine((done - warmup) / (total - warmup))
