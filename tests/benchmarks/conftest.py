from collections.abc import Iterator

import pytest
import torch

from fssl_core.devices import keep_freed_memory


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    keep_freed_memory()  # as every run does
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
