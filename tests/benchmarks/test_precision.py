"""bfloat16 against float32: `pytest -m benchmark -s tests/benchmarks/test_precision.py`, about a quarter of an hour.

CPU time of whole steps, from uint8 images to updated weights, on one thread, in turn, medians. ResNet-18, images of 32
px, 100 of them a step in the split engine and 64 in the averaging engine. "dense" is the floor: forward and backward of
the plain network alone, of as many views, in the same precision. The bars are those of a CPU with AMX; one that has
AVX512-BF16 without AMX multiplies about 2.3 times as fast in bfloat16, and has bars of its own. Others multiply rounded
factors in float32, which costs the rounding, and must not be slower than float32 where they choose for themselves.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.devices import autocast
from fssl_core.models import build_backbone
from fssl_core.objectives import SimCLR
from fssl_core.precision import _processor, chosen_precision
from fssl_core.random import generator
from fssl_core.training.averaging import AveragingSettings, AveragingTrainer
from fssl_core.training.split import SplitSettings, SplitTrainer
from tests.benchmarks.timing import milliseconds, train_on

pytestmark = pytest.mark.benchmark

PRECISIONS = ("float32", "bfloat16")
AMX = {16: 0.60, 32: 0.45, 64: 0.40}  # by width, at most so much of float32's time
AVX512 = {16: 0.85, 32: 0.75, 64: 0.65}
OTHERS = dict.fromkeys(AMX, 1.5)
WIDTHS = (16, 32, 64)


def bar(width: int) -> float:
    processor = _processor()
    return AMX[width] if "amx" in processor else AVX512[width] if "avx512_bf16" in processor else OTHERS[width]


def noise(count: int) -> Dataset:
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator(0, "images")).to(torch.uint8)
    images = ImageSet(pixels, torch.arange(count) % 10)
    return Dataset("noise", images, images, tuple("0123456789"), official=False)


def split_step(clients: int, cut_layer: int, width: int, precision: str) -> partial:
    alike = {"dataset": "noise", "partition": "iid", "symmetric": False, "seed": 0}
    settings = SplitSettings(
        **alike, clients=clients, client_batch=100 // clients, cut_layer=cut_layer, width=width, precision=precision
    )
    trainer = SplitTrainer(settings, noise(100))
    order, draws = trainer.start_epoch()
    keys = torch.randn(settings.queue_size, settings.projector_dim, generator=generator(0, "keys"))
    trainer.server.queue.push(F.normalize(keys, dim=1))
    return partial(trainer.step, trainer.data.train.images[order[:, 0]], draws[:, 0])


def averaging_step(norm: str, width: int, precision: str) -> partial:
    settings = AveragingSettings(
        objective=SimCLR(), dataset="noise", partition="iid", clients=1, width=width, batch=64, norm=norm, seed=0
    )
    trainer = AveragingTrainer(settings.changed(precision=precision), noise(64))
    trainer.worker.take(trainer.shared, [0])
    return partial(train_on, trainer, trainer.batches(0, 0))


def dense_step(norm: str, width: int, images: int, precision: str, architecture: str = "resnet18") -> partial:
    backbone = build_backbone(architecture, width=width, norm=norm, image_size=32, generator=generator(0, "dense"))
    views = torch.rand(images, 3, 32, 32, generator=generator(0, "views"))
    return partial(forward_and_backward, backbone.train(), views, precision)


def forward_and_backward(backbone: torch.nn.Module, views: Tensor, precision: str) -> None:
    with autocast(views.device, precision):
        maps = backbone(views)
    maps.float().square().mean().backward()


def compared(name: str, width: int, steps: list[partial], repeats: int) -> bool:
    exact, rough, dense, rough_dense = milliseconds(*steps, repeats=repeats, warm_up=1)
    shown = f"{name:28} {width:3} | {exact:8.0f} {rough:8.0f} |  {rough / exact:.2f}  {bar(width):.2f}"
    print(f"{shown} | {rough_dense / dense:5.2f} {exact / dense:14.2f} {rough / rough_dense:9.2f}", flush=True)
    return rough <= bar(width) * exact


def test_whole_steps():
    torch.set_num_threads(1)
    print(f"\n{_processor()}: auto is {chosen_precision('auto')}")
    print("step                       width | float32 bfloat16 | ratio   bar | dense  float32/dense  bfloat16/dense")
    missed = []
    for width in WIDTHS:
        # Built one after the other: a hundred clients of width 64 take gigabytes.
        rows = {
            f"split, {clients} clients, cut {cut}": (partial(split_step, clients, cut, width), "group", 100)
            for clients in (10, 20, 100)
            for cut in (1, 7, 13)
        }
        for norm in ("batch", "group"):
            rows[f"averaging, {norm} norm"] = (partial(averaging_step, norm, width), norm, 128)
        for name, (build, norm, views) in rows.items():
            steps = [build(precision) for precision in PRECISIONS]
            steps += [dense_step(norm, width, views, precision) for precision in PRECISIONS]
            if not compared(name, width, steps, repeats=5 if width < 64 else 3):
                missed.append((name, width))
    assert not missed


@pytest.mark.parametrize(("architecture", "norm", "width"), [("vit-tiny", "layer", 32), ("mobilenetv2", "group", 16)])
def test_other_architectures(architecture, norm, width):
    """As the profile `workstation` has them: half and a quarter of their width."""
    torch.set_num_threads(1)
    steps = [dense_step(norm, width, 100, precision, architecture) for precision in PRECISIONS]
    exact, rough = milliseconds(*steps)
    print(f"\n{architecture} of width {width}: {exact:.0f} and {rough:.0f} ms, {rough / exact:.2f}")
    assert rough <= bar(width) * exact


@pytest.mark.parametrize("engine", ["split", "averaging"])
def test_a_machine_that_chooses_for_itself_is_not_slower_than_float32(engine):
    make = partial(split_step, 20, 7, 16) if engine == "split" else partial(averaging_step, "batch", 16)
    exact, chosen = milliseconds(make("float32"), make("auto"))
    print(f"\n{engine}: auto takes {chosen / exact:.2f} of float32's time")
    assert chosen <= 1.05 * exact
