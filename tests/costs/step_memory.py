"""Peak memory of a client that trains in stages, measured on a GPU while the engine trains.

LW-FedSSL (Tun et al., arXiv:2401.11647), Tables 2, 3, 10 and 11, Fig. 5(a) and 8, prints the peak of a process. The
closed form of :mod:`fssl_core.costs.activations` is a bound from below: what is there when the forward passes end. Here
the engine takes real steps, and CUDA's allocator says how much they held at one time, passing results among it.

A federation in one process holds more than a client: models of the server, layers of later stages, the images of all.
So a client's memory has two parts, of which one is the size of its own tensors, the other what a step takes beside
everything that was there before it. Workspaces that CUDA's libraries keep from step to step are in neither, and nor is
the CUDA context: the paper's constant part of about 2 GB is left out.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fssl_core.data.datasets import Dataset, ImageSet
from fssl_core.errors import SettingError
from fssl_core.random import generator
from fssl_core.settings import check_range
from fssl_core.training.layerwise import LayerwiseSettings, LayerwiseTrainer

Batch = tuple[Tensor, Tensor]  # images and draws: see AveragingTrainer.batches
WARM_UP = 2  # steps, after which libraries and the optimiser have what they keep


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a client in one stage.

    Args:
        stage: from 1.
        held_bytes: the model, its frozen part, the target branch, gradients, states of the optimiser. The frozen part
            is there once, for both branches.
        passing_bytes: the most that a step takes beside them: images, activations, their gradients.
    """

    stage: int
    held_bytes: int
    passing_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.held_bytes + self.passing_bytes


def peak_by_stage(
    settings: LayerwiseSettings, *, channels: int = 3, device: torch.device | str = "cuda"
) -> list[StepMemory]:
    """What a client holds at most in a local training step of each stage, the first stage first.

    The client trains alone on a batch of noise: no image of a data set is read, and no round is completed.

    Args:
        settings: of the federation; model, objective, optimiser, batch, precision and scheme matter.
        channels: of an image.
        device: a CUDA device.

    Raises:
        SettingError: another device, or no ``image_size``.
    """
    device = torch.device(device)
    if device.type != "cuda":
        expected = "a CUDA device, whose allocator keeps a peak; elsewhere count what autograd keeps: SavedActivations"
        raise SettingError("device", str(device), f"{expected} or client_memory in fssl_core.costs.activations")
    result = []
    for trainer, batch in in_each_stage(settings, noise(settings, channels, device)):
        for _ in range(WARM_UP):
            take(trainer, batch)
        gc.collect()  # nothing of the last stage may go while the peak is measured
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        take(trainer, batch)
        passing = torch.cuda.max_memory_allocated(device) - before
        result.append(StepMemory(trainer.stage.number, held_bytes(trainer), passing))
    return result


def take(trainer: LayerwiseTrainer, batch: Batch) -> None:
    """A step on a batch, whose views are made before it."""
    for rows, views in trainer.prepared([batch]):
        trainer.step(rows, views)


def noise(settings: LayerwiseSettings, channels: int = 3, device: torch.device | str = "cpu") -> Dataset:
    """As many images as a batch has, of the size that the settings name, uniform in 0 to 255.

    Raises:
        SettingError: settings that leave the size to their data set, or a channel number below 1.
    """
    check_range("channels", channels, low=1)
    if settings.image_size is None:
        raise SettingError("image_size", None, "the side of an image in pixels, as no data set is there to tell")
    shape = (settings.batch, channels, settings.image_size, settings.image_size)
    pixels = torch.randint(0, 256, shape, generator=generator(settings.seed, "noise"), dtype=torch.uint8)
    images = ImageSet(pixels, torch.zeros(settings.batch, dtype=torch.int64)).to(device)
    return Dataset("noise", images, images, ("noise",), official=False)


def in_each_stage(settings: LayerwiseSettings, data: Dataset) -> Iterator[tuple[LayerwiseTrainer, Batch]]:
    """A client alone in the midst of local training, one stage after the other: :func:`take` goes on.

    Args:
        settings: of the federation; those that say which clients there are do not matter.
        data: the client's images; the batch is the first that they give.

    Yields:
        the trainer, the same one each time, and a batch.
    """
    alone = {"clients": 1, "clients_per_round": None, "client_dropout": 0.0, "partition": "iid", "local_epochs": 1}
    trainer = LayerwiseTrainer(replace(settings, **alone), data)
    batch = trainer.batches(0, 0)[0]
    for stage in dict.fromkeys(trainer.plan):
        trainer.enter(stage)
        trainer.train_client(0, 0)
        yield trainer, batch


def held_bytes(trainer: LayerwiseTrainer) -> int:
    """What a client holds between two steps; what it leaves out by depth dropout is counted as well."""
    worker, target = trainer.worker, trainer.target
    states = trainer.optimizer.state[worker.weights].values()
    tensors = [*worker.blocks.values(), worker.weights.grad, *trainer.frozen.state_dict().values()]
    tensors += [*([] if target is None else target.blocks.values()), *filter(torch.is_tensor, states)]
    return sum(value.nbytes for value in tensors)
