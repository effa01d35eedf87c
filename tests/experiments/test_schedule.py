"""What is computed next; and what runs say that they build on, which decides it."""

import pytest

from fssl_core.errors import FsslError, RunsFailedError
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.experiments.schedule import Schedule
from fssl_core.objectives.fedca import FedCA
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.settings import Settings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.modular import ModularSettings
from tests.experiments.toy_runs import Sum, Walk


class Pretended:
    """A run that is finished when it is said so."""

    def __init__(self, settings, finished=False):
        self.settings, self.finished = settings, finished


def schedule(asked, stored=()):
    return Schedule([Pretended(one, one in stored) for one in asked], lambda one: Pretended(one, one in stored))


def keys(runs):
    return [run.settings.key for run in runs]


def test_a_run_comes_as_soon_as_those_that_it_builds_on_are_there_and_else_in_order():
    walks = [Walk(seed=seed) for seed in range(4)]
    both, one = Sum(walks=(walks[2], walks[3])), Sum(walks=(walks[1],))
    left = schedule([walks[0], both, one, both, walks[2]], stored=[walks[1]])
    assert list(left.left) == [run.key for run in (walks[0], walks[2], walks[3], both, one)]
    assert keys(left.ready()) == [run.key for run in (one, walks[0], walks[2], walks[3])]
    taken = [left.take() for _ in range(5)]
    assert keys(taken[:4]) == [run.key for run in (one, walks[0], walks[2], walks[3])]
    assert taken[4] is None
    left.finished(taken[2])
    assert left.take() is None
    left.finished(taken[3])
    assert left.take().settings == both


def test_a_model_is_evaluated_before_the_next_one_is_trained():
    walks = [Walk(seed=seed) for seed in range(3)]
    sums = [Sum(walks=(walk,)) for walk in walks]
    left = schedule([*walks, *sums])
    order = []
    while (run := left.take()) is not None:
        order.append(run.settings)
        left.finished(run)
    assert order == [one for pair in zip(walks, sums, strict=True) for one in pair]


def test_a_run_that_another_process_has_is_asked_for_again_later(monkeypatch):
    monkeypatch.setattr("fssl_core.experiments.schedule.PAUSE_SECONDS", 1000.0)
    left = schedule([Walk(seed=0), Walk(seed=1)])
    held = left.take()
    left.is_held(held)
    other = left.take()
    assert other.settings == Walk(seed=1)
    assert left.waits_for() is None  # there is something to do
    left.finished(other)
    assert left.take() is None
    assert left.waits_for() is held
    left.held[held.settings.key] = 0.0
    assert left.take() is held


def test_errors_of_several_runs_are_one_that_names_them():
    walks = [Walk(seed=seed) for seed in range(3)]
    left = schedule([*walks, Sum(walks=(walks[0],)), Sum(walks=(walks[0], walks[1]))])
    left.failed(left.take(), FsslError("The first."))
    assert list(left.left) == [walks[1].key, walks[2].key]
    with pytest.raises(FsslError, match=r"^The first\.$"):
        left.raise_errors(str)
    left.failed(left.take(), ValueError("x\ny"))
    with pytest.raises(RunsFailedError) as raised:
        left.raise_errors(lambda run: run.settings.key[:3])
    assert str(raised.value).splitlines() == [
        "2 runs failed. 2 more build on these. Those that are finished are stored; run again to compute the others.",
        f"{walks[0].key[:3]}: The first.",
        f"{walks[1].key[:3]}: ValueError: x",
    ]


def test_what_runs_build_on():
    pretraining = AveragingSettings()
    aligned = AveragingSettings(objective=FedCA(alignment_model=pretraining))
    phase2 = ModularSettings()
    assert pretraining.needs == ()
    assert aligned.needs == (pretraining,)  # a setting of its objective
    assert FineTuneSettings(pretraining=aligned).needs == (aligned,)
    assert FineTuneSettings(pretraining=aligned, scratch=True).needs == ()
    assert phase2.needs == (phase2.phase1,)
    assert ReconstructionSettings(target=phase2).needs == (phase2.phase1,)  # the module that clients send with
    assert all(isinstance(one, Settings) for one in aligned.needs)
