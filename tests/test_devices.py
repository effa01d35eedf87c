import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fssl_core import devices
from fssl_core.devices import (
    RoundedFactors,
    autocast,
    default_device,
    in_full_precision,
    keep_freed_memory,
    repeatable_kernels,
    tf32,
)
from fssl_core.errors import SettingError


def test_the_device_is_the_one_asked_for(monkeypatch):
    monkeypatch.setenv("FSSL_DEVICE", "cpu")
    assert default_device() == torch.device("cpu")
    monkeypatch.delenv("FSSL_DEVICE")
    assert default_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "meta"])
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


STEPS = """
import os, resource, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
{first}
import fssl_core
import torch
from fssl_core.experiments import split_settings
from fssl_core.training.split import SplitTrainer

settings = split_settings("smoke", clients=5, cut_layer=5)
trainer = SplitTrainer(settings, settings.load_data())
order, draws = trainer.start_epoch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
for step in range(8):
    at = step % trainer.steps_per_epoch
    trainer.step(trainer.data.train.images[order[:, at]], draws[:, at])
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch has libgomp on Linux only")
def test_steps_take_no_longer_when_torch_is_imported_first():
    """Without its own processor a thread that waits busily takes several times the work's time."""
    chosen = {"OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    seconds, said = {}, {}
    for first in ("", "import torch"):
        command = [sys.executable, "-c", STEPS.format(first=first)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        taken, policy = done.stdout.split()
        assert policy == "PASSIVE"  # for the processes that this one starts, too
        seconds[first], said[first] = float(taken), done.stderr.count("torch was imported before fssl_core")
    assert seconds["import torch"] < 2 * seconds[""] + 0.5
    if len(os.sched_getaffinity(0)) > 1:
        assert said == {"": 0, "import torch": 1}


@pytest.mark.parametrize(
    ("variables", "threads", "said"),
    [
        ({}, 1, "computes on one thread, as several would wait busily"),
        ({"OMP_NUM_THREADS": "2"}, 2, "computes on several threads, which wait busily"),
        ({"OMP_NUM_THREADS": "1"}, 1, ""),
    ],
)
def test_a_chosen_number_of_threads_is_kept_and_the_rest_said(monkeypatch, variables, threads, said):
    told = []
    chosen = [int(variables.get("OMP_NUM_THREADS", 4))]
    monkeypatch.setattr(devices.sys, "platform", "linux")
    monkeypatch.setattr(devices, "notice", told.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[-1])
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    devices.do_not_wait_busily()
    assert chosen[-1] == threads
    assert [said in line for line in told] == ([True] if said else [])


def test_the_package_asks_for_passive_waiting_unless_the_user_chose():
    code = "import os, fssl_core; print(os.environ['OMP_WAIT_POLICY'])"
    for chosen, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment |= {"OMP_WAIT_POLICY": chosen} if chosen else {}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == expected


def test_float32_on_a_gpu_is_what_the_docs_say_inside_and_as_before_outside():
    backends = torch.backends
    places = (backends.cudnn.conv, backends.cuda.matmul, backends.mkldnn.conv, backends.mkldnn.matmul)
    before = [place.fp32_precision for place in places]
    try:
        backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision = "ieee", "tf32"
        backends.mkldnn.matmul.fp32_precision = "bf16"
        with repeatable_kernels():
            assert [place.fp32_precision for place in places] == ["tf32", "ieee", "ieee", "ieee"]
        assert [place.fp32_precision for place in places] == ["ieee", "tf32", before[2], "bf16"]
    finally:
        for place, value in zip(places, before, strict=True):
            place.fp32_precision = value


def test_a_fast_product_chosen_outside_does_not_reach_a_run():
    """``torch.set_float32_matmul_precision("medium")`` lets a CPU multiply in bfloat16, too."""
    factors = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = factors[0] @ factors[1]
    torch.set_float32_matmul_precision("medium")
    try:
        with repeatable_kernels():
            assert torch.equal(factors[0] @ factors[1], expected)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_what_is_rounded_to_tf32(monkeypatch):
    assert tf32(torch.device("cpu")) == []
    for capability, expected in (((7, 5), []), ((9, 0), ["convolutions"])):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, value=capability: value)
        assert tf32(torch.device("cuda")) == expected


CPU = torch.device("cpu")
PRODUCTS = {  # by name: a function of two factors, and their shapes
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (4, 3, 8, 8), (5, 3, 3, 3)),
    "grouped conv2d": (lambda x, w: F.conv2d(x, w, groups=2), (4, 6, 8, 8), (4, 3, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (4, 3, 8, 8), (3, 5, 3, 3)),
    "linear": (F.linear, (7, 20), (5, 20)),
    "linear, by name": (lambda x, w: F.linear(x, weight=w), (7, 20), (5, 20)),
    "@": (lambda x, w: x @ w, (2, 7, 20), (20, 5)),
    "bmm": (torch.bmm, (2, 7, 20), (2, 20, 5)),
    "attention": (lambda x, w: F.scaled_dot_product_attention(x, w, w), (2, 3, 6, 8), (2, 3, 6, 8)),
}


def factors(*shapes, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=numbers).requires_grad_() for shape in shapes]


@pytest.mark.parametrize(
    ("onednn", "avx512", "avx512_bf16", "fast"),
    [
        (True, True, True, True),
        (True, True, False, False),  # supported, and slower than float32
        (True, False, False, True),  # of another family
        (False, False, False, False),
    ],
)
def test_bfloat16_is_multiplied_where_the_cpu_has_instructions(monkeypatch, onednn, avx512, avx512_bf16, fast):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    assert devices.multiplies_bfloat16() == fast


@pytest.fixture
def without_instructions(monkeypatch):
    """A CPU on which torch has no fast products of bfloat16."""
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)


@pytest.mark.parametrize("name", PRODUCTS)
def test_without_instructions_a_product_in_bfloat16_is_that_of_rounded_factors(without_instructions, name):
    product, *shapes = PRODUCTS[name]
    x, w = factors(*shapes)
    with autocast(CPU, "bfloat16"):
        ours = product(x, w)
    exact = product(*(value.bfloat16().double() for value in (x, w)))
    assert ours.dtype == torch.bfloat16
    assert not torch.equal(exact, product(x.double(), w.double()))
    unit = 2.0**-8  # half of the last of eight bits, relative
    torch.testing.assert_close(ours.double(), exact, rtol=1.01 * unit, atol=1e-6)


@pytest.mark.parametrize("name", PRODUCTS)
def test_without_instructions_gradients_are_those_of_torch_in_bfloat16(without_instructions, name):
    product, *shapes = PRODUCTS[name]
    gradients = []
    for context in (autocast(CPU, "bfloat16"), torch.autocast("cpu", torch.bfloat16)):
        x, w = factors(*shapes)
        with context:
            result = product(x, w)
        weights = torch.linspace(-1, 1, result.numel()).view_as(result)
        gradients.append(torch.autograd.grad((result.float() * weights).sum(), [x, w]))
    for ours, theirs in zip(*gradients, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        difference = (ours - theirs).norm() / theirs.norm()
        assert difference < 0.01, difference  # eight bits, and a sum of many


def test_without_instructions_all_else_stays_as_autocast_has_it(without_instructions):
    x, w = factors((4, 3), (5, 3))
    layer = nn.Linear(3, 5)
    with autocast(CPU, "bfloat16"):
        assert layer(x).dtype == F.relu(layer(x)).dtype == torch.bfloat16
        assert F.layer_norm(x, (3,)).dtype == (x + x).dtype == torch.float32
        exact = in_full_precision(F.linear)(x, w)
        assert F.linear(x.double(), w.double()).dtype == torch.float64
    torch.testing.assert_close(exact, x @ w.T)
    with autocast(CPU, "float32"):
        torch.testing.assert_close(x @ w.T, exact)
    assert F.linear(x, w).dtype == torch.float32


@pytest.mark.parametrize("has", [True, False])
def test_a_cpu_with_instructions_uses_them(monkeypatch, has):
    used = []
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: has)
    monkeypatch.setattr(RoundedFactors, "__enter__", lambda self: used.append(self))
    monkeypatch.setattr(RoundedFactors, "__exit__", lambda self, *error: None)
    for precision in devices.PRECISIONS:
        with autocast(CPU, precision):
            pass
    assert len(used) == (not has)
