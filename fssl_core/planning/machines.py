"""How long counted work takes: on this machine, calibrated by a benchmark of a second, and on GPUs at a stated use.

Products take their FLOPs, and what lies between them, normalisation above all, the bytes of activations that it moves;
a step has a time of its own for all else: augmentation, launches of kernels, bookkeeping. These are averages over
engines: a single run may take half or twice as long, a sum over many less so.
"""

from dataclasses import dataclass
from math import inf

from fssl_core.experiments.speed import REFERENCE, work_per_second
from fssl_core.planning.work import Work


@dataclass(frozen=True)
class Machine:
    """What computes runs, one after the other.

    Args:
        name: as a table has it.
        flops: by precision, FLOPs of products a second.
        bandwidth: bytes a second of activations that training keeps, all their moves included.
        step_seconds: of a step beside these.
        small_step_seconds: of a step of a linear classifier.
        memory: bytes that a run can have.
    """

    name: str
    flops: dict[str, float]
    bandwidth: float
    step_seconds: float
    small_step_seconds: float
    memory: float = inf

    def seconds(self, work: Work) -> float:
        """For a run's work."""
        flops = work.training + work.evaluation
        size = {"bfloat16": 0.5, "float64": 2.0}.get(work.precision, 1.0) if "bfloat16" in self.flops else 1.0
        moved = flops * work.bytes_per_flop * size / 3  # a step has three times the FLOPs of its forward pass
        own = work.steps * self.step_seconds + work.small_steps * self.small_step_seconds
        return flops / self.flops.get(work.precision, self.flops["float32"]) + moved / self.bandwidth + own


# A core of the machine that the laptop records were made on. Rates: of whole steps of averaging and split training at
# widths 16, 32 and 64; times of steps: so that the recorded seconds of most notebooks come out.
REFERENCE_NAME = "AMD EPYC"
FLOPS, BANDWIDTH, STEP_SECONDS, SMALL_STEP_SECONDS = 140e9, 1.5e9, 0.008, 0.0004

# What small images leave of a GPU: of the dense peak (TF32's for float32), and of the memory's bandwidth. So that two
# steps of FedAvg with SimCLR take what they took on an H200 (PyTorch 2.11, bfloat16): 11 ms with ResNet-10 of width 16
# and 100 views, where the GPU waits for launches, and 24 ms with ResNet-18 of width 64 and 256 views.
PRODUCTS_USE, MEMORY_USE, MOVES = 0.07, 0.5, 6  # a kept activation is written and read so often in a step
LAUNCH_SECONDS, SMALL_LAUNCH_SECONDS = 0.011, 0.00015  # a step launches hundreds of kernels


def gpu(name: str, bfloat16: float, tf32: float, float64: float, bandwidth: float, memory: float) -> Machine:
    """A GPU by its data sheet: dense peaks in TFLOP/s, the memory's bandwidth in TB/s and its size in GiB."""
    peaks = {"bfloat16": bfloat16, "float32": tf32, "float64": float64}
    flops = {precision: PRODUCTS_USE * 1e12 * peak for precision, peak in peaks.items()}
    moved = MEMORY_USE * 1e12 * bandwidth / MOVES
    return Machine(name, flops, moved, LAUNCH_SECONDS, SMALL_LAUNCH_SECONDS, memory * 2**30)


H200 = gpu("H200", bfloat16=989, tf32=494, float64=67, bandwidth=4.8, memory=140)
A100 = gpu("A100", bfloat16=312, tf32=156, float64=19.5, bandwidth=2.0, memory=80)


def this_machine(speed: float | None = None) -> Machine:
    """One core here.

    Args:
        speed: steps a second of :func:`~fssl_core.experiments.speed.work_per_second`; None: measured now, in a second.
    """
    relative = (work_per_second() if speed is None else speed) / REFERENCE[REFERENCE_NAME]
    flops = {"float32": relative * FLOPS, "float64": relative * FLOPS / 2}
    return Machine("here", flops, relative * BANDWIDTH, STEP_SECONDS / relative, SMALL_STEP_SECONDS / relative)
