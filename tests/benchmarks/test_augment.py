"""Speed of augmentation: `pytest -m benchmark -s tests/benchmarks/test_augment.py`."""

import statistics
import time

import pytest
import torch

from fssl_core.data.augment import augmentation
from fssl_core.random import generator

pytestmark = pytest.mark.benchmark


def test_a_view_takes_at_most_150_microseconds_on_one_thread():
    aug, batch = augmentation("mocov2", 32), 256
    images = torch.randint(0, 256, (batch, 3, 32, 32), generator=generator(0, "images")).to(torch.uint8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = []
        for repeat in range(15):
            draws = aug.draw(batch, generator(0, "draws", repeat))
            start = time.process_time()
            aug(images, draws)
            seconds.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    milliseconds = 1000 * statistics.median(seconds) / batch
    print(f"\naugmentation, mocov2 at 32 px: {milliseconds:.3f} ms per image and view")
    assert milliseconds <= 0.15
