"""The steps of one round of federated averaging, as the calls that the engine really makes.

L-DAWA (Ur Rehman et al., ICCV 2023), Figure 1: local self-supervised training, upload, the divergence of every layer
of every client, the weighted average; the clients' models are then dropped. Here a round runs under a profiler, which
sees each call and changes none.
"""

import inspect
import sys
from types import FrameType

import pandas as pd

from fssl_core.federation.aggregation import Round, combine
from fssl_core.federation.clients import ClientMatrix
from fssl_core.training.averaging import AveragingTrainer


def trace_round(trainer: AveragingTrainer) -> pd.DataFrame:
    """Run the next round of a trainer and say which steps it had, in which order.

    Args:
        trainer: between two rounds.

    Returns:
        a row per step, in the order of their first calls, with the columns step, order (from 1), calls, first_call
        and last_call (numbers of the calls, all steps together, from 1), and models_kept (see :func:`models_kept`).
        The steps: ``"local SSL"``, an optimiser step of a client; ``"upload"``, a client's model comes to the
        server; ``"divergence"``, Eq. 2 for all clients and layers; ``"averaging"``, Eq. 1.
    """
    watched = {
        inspect.unwrap(function).__code__: step
        for step, function in {
            "local SSL": AveragingTrainer.step,
            "upload": ClientMatrix.put,
            "divergence": vars(Round)["cosines"].func,
            "averaging": combine,
        }.items()
    }
    calls: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        step = watched.get(frame.f_code) if event == "call" else None
        if step == "upload" and frame.f_locals["target"] is not trainer.trained:
            return  # what a client keeps for itself
        if step is not None:
            calls.append(step)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        for _ in trainer.settings.taking_part(trainer.finished):
            trainer.advance()
    finally:
        sys.setprofile(before)
    positions = pd.Series(range(1, len(calls) + 1)).groupby(calls, sort=False)
    steps = positions.agg(calls="count", first_call="min", last_call="max").rename_axis("step").reset_index()
    steps.insert(1, "order", range(1, len(steps) + 1))
    return steps.assign(models_kept=models_kept(trainer))


def models_kept(trainer: AveragingTrainer) -> int:
    """Models in the state that the rest of the training depends on, of which a checkpoint is made."""
    kept = [*trainer.kept, *([trainer.trained] if trainer.rows else [])]
    return sum(models.clients for models in kept)
