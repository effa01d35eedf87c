"""Parts of the machine, with pretended cores and GPUs."""

import pytest
import torch

from fssl_core import resources
from fssl_core.errors import SettingError
from fssl_core.resources import divided, threads, threads_of_a_run, workers


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores and no GPU; nothing said by the user."""
    for name in ("FSSL_WORKERS", "FSSL_DEVICE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(resources, "cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)


def visible(parts):
    return [part.get("CUDA_VISIBLE_DEVICES") for part in parts]


def test_a_worker_for_each_core_or_as_many_as_are_asked_for(monkeypatch):
    assert workers() == [{}] * 8
    assert workers(3) == [{}] * 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert workers() == [{}] * 4
    monkeypatch.setenv("FSSL_WORKERS", "5")
    assert workers() == [{}] * 5
    assert workers(2) == [{}] * 2


def test_a_worker_for_each_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert visible(workers()) == ["0", "1", "2", "3"]
    assert visible(workers(2)) == ["0,2", "1,3"]
    assert visible(workers(6)) == ["0", "1", "2", "3", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    assert visible(workers()) == ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    monkeypatch.setenv("FSSL_DEVICE", "cuda:1")  # named by the user: one for all
    assert workers() == [{}]
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    assert workers() == [{}] * 8
    monkeypatch.setenv("FSSL_DEVICE", "")  # as if nothing were said
    assert len(workers()) == 4
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert workers() == [{}] * 8


def test_notebooks_side_by_side_share_the_machine(monkeypatch):
    """All had the first GPU, and as many workers as there are cores."""
    assert divided(2) == [{"FSSL_WORKERS": "4"}] * 2
    assert divided(20) == [{"FSSL_WORKERS": "1"}] * 20
    monkeypatch.setenv("FSSL_WORKERS", "2")
    assert divided(2) == [{"FSSL_WORKERS": "1"}] * 2
    monkeypatch.delenv("FSSL_WORKERS")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert divided(3) == [{"CUDA_VISIBLE_DEVICES": name} for name in "012"]
    assert visible(divided(2)) == ["0,2", "1"]
    assert visible(divided(4)) == ["0", "1", "2", "0"]


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_number_of_workers_that_is_none(monkeypatch, value):
    monkeypatch.setenv("FSSL_WORKERS", value)
    with pytest.raises(SettingError, match=rf"FSSL_WORKERS='{value}' cannot be used: expected a whole number of at"):
        workers()
    with pytest.raises(SettingError, match="workers=0 cannot be used"):
        workers(0)


def test_a_run_has_the_threads_that_the_user_gives_or_one(monkeypatch):
    before = torch.get_num_threads()
    for given, expected in ((None, 1), ("3", 3), ("2,4", 2), ("", 1), ("0", 1), ("all", 1), ("²", 1)):
        if given is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert threads() == expected
        with threads_of_a_run():
            assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == before


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.undo()
    assert resources.cores() >= 1
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda process: {1, 5, 7}, raising=False)
    assert resources.cores() <= 3


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 8000 * 1024),
        ({"memory.max": "max", "memory.current": "9", "memory.stat": "inactive_file 0"}, 8000 * 1024),
        ({"memory.max": "5000", "memory.current": "3000", "memory.stat": "anon 2600\ninactive_file 400"}, 2400),
        ({"memory.max": "9000000", "memory.current": "0", "memory.stat": "inactive_file 0"}, 8000 * 1024),
        (
            {
                "memory/memory.limit_in_bytes": "5000",
                "memory/memory.usage_in_bytes": "3000",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 400",
            },
            2400,
        ),
    ],
)
def test_memory_is_that_of_the_machine_within_the_limit_of_the_container(tmp_path, monkeypatch, files, available):
    files = {"meminfo": "MemTotal: 16000 kB\nMemAvailable: 8000 kB\nHugePages_Total: 0", **files}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    monkeypatch.setattr(resources, "MEMINFO", tmp_path / "meminfo")
    assert resources.available_memory() == available


def test_memory_without_a_limit_that_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    monkeypatch.setattr(resources, "MEMINFO", tmp_path / "meminfo")
    assert resources.available_memory() == float("inf")
