import os
import subprocess
import sys

import pytest
import torch

from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import SettingError


def test_the_device_is_the_one_asked_for(monkeypatch):
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    assert default_device() == torch.device("cpu")
    monkeypatch.delenv("FSSL_DEVICE")
    assert default_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:99"])
def test_a_device_that_is_not_there_is_an_error(monkeypatch, name):
    monkeypatch.setenv("FSSL_DEVICE", name)
    with pytest.raises(SettingError, match=f"FSSL_DEVICE='{name}'"):
        default_device()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_kept():
    assert keep_freed_memory()


def test_kernels_are_repeatable_inside_and_as_before_outside():
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    with repeatable_kernels():
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == before


def test_the_package_asks_for_passive_waiting_unless_the_user_chose():
    code = "import os, fssl_core; print(os.environ['OMP_WAIT_POLICY'])"
    for chosen, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment |= {"OMP_WAIT_POLICY": chosen} if chosen else {}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == expected
