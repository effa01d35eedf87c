"""Toy runs in a module that other processes can import: a random walk with a checkpoint at every step, and a sum."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from fssl_core.errors import SettingError
from fssl_core.notices import notice
from fssl_core.random import generator
from fssl_core.settings import Settings

faulty = set()  # this process, if so


@dataclass(frozen=True, kw_only=True)
class Walk(Settings):
    """``stops`` and ``dies`` say what happens once, at a step, unless the file of that name is there already."""

    seed: int = 0
    steps: int = 4
    stops: str = ""  # "step 2": waits there for the file "go"
    dies: str = ""  # "step 2": killed there, after the save; "save 2": at the save
    wrong: bool = False
    faults: bool = False  # once: an error of a GPU, after which the process cannot compute any more

    def execute(self, run, progress):
        notice("a walk was begun")
        if (self.faults and not self._has_been("died")) or faulty:
            faulty.add(os.getpid())
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        state = run.checkpoint.load() or {"step": 0, "x": torch.zeros(64, 64)}
        progress(state["step"], self.steps)
        if self.wrong:
            raise SettingError("wrong", self.wrong, "False")
        while state["step"] < self.steps:
            step = state["step"] + 1
            noise = torch.randn(64, 64, generator=generator(self.seed, "walk", step))
            state = {"step": step, "x": (state["x"] @ noise / 8 + noise).tanh()}
            if self.dies == f"save {step}" and not self._has_been("died"):
                run.checkpoint.after_save = lambda: os.kill(os.getpid(), signal.SIGKILL)
            run.checkpoint.save(state)
            self._log(step)
            progress(step, self.steps, x=state["x"][0, 0])
            if self.dies == f"step {step}" and not self._has_been("died"):
                os.kill(os.getpid(), signal.SIGKILL)
            while self.stops == f"step {step}" and not Path(os.environ["TOY_FOLDER"], "go").exists():
                time.sleep(0.02)
                progress(step, self.steps)
        run.write_table("metrics", pd.DataFrame({"x": state["x"][0].tolist()}))
        run.save_tensors("model", {"x": state["x"]})
        return {"norm": state["x"].norm(), "threads": torch.get_num_threads()}

    def _log(self, step):
        with Path(os.environ["TOY_FOLDER"], "log").open("a") as log:
            log.write(f"{os.getpid()} {self.seed} {step} {time.monotonic()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")

    def _has_been(self, name):
        try:
            Path(os.environ["TOY_FOLDER"], f"{name}-{self.seed}").touch(exist_ok=False)
        except FileExistsError:
            return True
        return False


@dataclass(frozen=True, kw_only=True)
class Sum(Settings):
    walks: tuple[Settings, ...]

    def execute(self, run, progress):
        sums = [run.result_of(walk).tensors("model")["x"] for walk in self.walks]
        return {"sum": sum(sums).norm()}


def log(folder):
    """Of each step, in order: the process, the walk's seed, the step, the time and the visible GPUs."""
    path = Path(folder, "log")
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return pd.DataFrame(rows, columns=["process", "seed", "step", "time", "gpus"]).astype(
        {"process": int, "seed": int, "step": int, "time": float}
    )


def contents(root):
    """What runs have left, without what says how long it took and where: by key and file the content."""
    left_out = ("lock", "provenance.json", "manifest.json")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(Path(root).glob("*/*"))
        if path.name not in left_out
    }
