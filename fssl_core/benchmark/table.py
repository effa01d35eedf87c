"""The columns of the benchmark: what a client needs, accuracy along the way, and which method to choose.

Bytes are those of the run's own ledger, multiply-adds and memory are counted by `costs/client_load.py`; all are of a
client and a whole training, means over clients. Seconds are those that messages take on a link
(:mod:`fssl_core.costs.link`), without computation; with stragglers, the mean over draws of who is slow.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fssl_core.benchmark.methods import Method, Problem, passes_over
from fssl_core.claims.estimation import LEVEL, Cells, Quantity
from fssl_core.costs.client_load import ClientLoad, client_load
from fssl_core.costs.client_traffic import client_traffic
from fssl_core.costs.link import Link, mean_seconds
from fssl_core.data.outlines import outlines_only
from fssl_core.errors import DataError
from fssl_core.evaluation.untrained import UntrainedSettings
from fssl_core.experiments.store import Run, run
from fssl_core.federation.ledger import DIRECTIONS
from fssl_core.settings import Settings, check_choice
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import ModularSettings
from fssl_core.training.settings import TrainingSettings
from fssl_core.training.split import SplitSettings

LINKS = {  # of each client
    "seconds_10": Link(up=10, down=10, latency=0.05),
    "seconds_10_stragglers": Link(up=10, down=10, latency=0.05, straggling=0.5),
    "seconds_100": Link(up=100, down=100, latency=0.05),
}
NEEDS = ("passes", "macs", "memory_bytes", "up_bytes", "down_bytes", "traffic_bytes", *LINKS, "rounds")
BUDGETS = ("passes", "macs", "traffic_bytes", "memory_bytes")  # columns of `curves`
MB, GB = 10**6, 10**9
UNITS = {  # of the columns of the table
    "rate": ("rate", 1),
    "passes": ("passes", 1),
    "memory_bytes": ("memory, MB", MB),
    "macs": ("billion MACs", 1e9),
    "up_bytes": ("up, MB", MB),
    "down_bytes": ("down, MB", MB),
    "rounds": ("rounds", 1),
    "seconds_10": ("s at 10 Mbit/s", 1),
    "seconds_10_stragglers": ("s at 10 Mbit/s, stragglers", 1),
    "seconds_100": ("s at 100 Mbit/s", 1),
    "ssim": ("SSIM", 1),
    "explained": ("explained", 1),
    "identifiability": ("identifiability", 1),
    "identifiability_common": ("identifiability, one model", 1),
}
EXPOSED = 0.5  # share of an image's variance that an attack explains: above it, images are not private


# ---------------------------------------------------------------- what a client needs


def load_of(settings: Settings) -> ClientLoad | None:
    """Multiply-adds and memory of a client, which every seed and division into equal parts shares; None: untrained."""
    return None if isinstance(settings, UntrainedSettings) else client_load(settings, settings.load_data())


def resources(settings: Settings, load: ClientLoad | None) -> dict[str, float]:
    """What a finished training asks of a client.

    Args:
        settings: of the training.
        load: of :func:`load_of`.

    Returns:
        ``passes`` (over each image), ``macs``, ``memory_bytes`` (the peak), ``up_bytes``, ``down_bytes``,
        ``traffic_bytes`` (both), ``rounds`` (how often models are averaged, MFCL's one delivery included), and the
        columns of :data:`LINKS`. Of one client, who trains alone, nothing crosses the network; an untrained model needs
        nothing at all.
    """
    if load is None:
        return dict.fromkeys(NEEDS, 0.0)
    needs = {"passes": passes_over(settings), "macs": load.macs, "memory_bytes": load.memory_bytes}
    if settings.clients == 1:
        return dict.fromkeys(NEEDS, 0.0) | needs | {"rounds": 0}
    rounds, trips = _exchanges(settings)
    tables = _traffic(settings)
    sent = {f"{way}_bytes": sum(_of_client(table, way) for table in tables) for way in DIRECTIONS}
    seconds = {
        name: sum(mean_seconds(table, link, round_trips=trips) for table in tables) for name, link in LINKS.items()
    }
    return needs | sent | {"traffic_bytes": sum(sent.values())} | seconds | {"rounds": rounds}


def counted_needs(methods: Mapping[str, Method], problem: Problem) -> pd.DataFrame:
    """What a client needs at a size that nobody has to train, or to have the images of: a row a method.

    References are left out. Traffic is that of :mod:`fssl_core.costs.client_traffic`, the least of FedCA and Orchestra.

    Returns:
        the columns ``method``, ``memory, MB``, ``billion MACs`` and ``traffic, MB``.
    """
    rows = []
    with outlines_only():
        for name, method in methods.items():
            for training in [] if method.reference else method.trainings(problem):
                data = training.load_data()
                load = client_load(training, data)
                traffic = client_traffic(training, data)
                rows.append((name, load.memory_bytes / MB, load.macs / 1e9, traffic / MB))
    columns = ["method", "memory, MB", "billion MACs", "traffic, MB"]
    return pd.DataFrame(rows, columns=columns).groupby("method", sort=False).mean().reset_index()


def _traffic(settings: TrainingSettings) -> list[pd.DataFrame]:
    """Of each phase. The first of MFCL may not be stored yet, where the second came from the project's records."""
    first = [run(settings.phase1, progress=False)] if isinstance(settings, ModularSettings) else []
    return [phase.table("traffic") for phase in [*first, Run(settings)]]


def _of_client(traffic: pd.DataFrame, ways: str = "(up|down)") -> float:
    """Bytes of the mean client, in one direction or both."""
    return float(traffic.filter(regex=f"_{ways}$").to_numpy().sum() / traffic["client"].nunique())


def _exchanges(settings: TrainingSettings) -> tuple[int, int]:
    """Averages in a whole training, and in each epoch or round of the ledger how often a client waits for an answer."""
    if isinstance(settings, ModularSettings):
        return settings.phase1.rounds + 1, 1
    if isinstance(settings, SplitSettings):
        steps = min(map(len, settings.divide(settings.load_data()))) // settings.client_batch
        averages = -(-steps // settings.sync_every)
        return settings.epochs * averages, steps + averages
    return settings.rounds, 1


# ---------------------------------------------------------------- accuracy along the way


def curves(settings: Settings, load: ClientLoad | None) -> pd.DataFrame:
    """kNN accuracy after each epoch or round of a finished training, beside what a client has spent until then.

    Returns:
        the columns ``epoch``, those of :data:`BUDGETS`, ``passes`` being over the images, and ``knn_accuracy``, that of
        the engine: of the projection layers in split and modular training, of the features elsewhere. The first phase
        of MFCL is spent before its first row. No row of an untrained model.
    """
    if load is None:
        return pd.DataFrame(columns=["epoch", *BUDGETS, "knn_accuracy"], dtype=float)
    metrics, first = Run(settings).table("metrics"), 0
    epochs, accuracy = metrics["epoch"].to_numpy(), metrics["knn_accuracy"]
    traffic = _traffic(settings)
    by_epoch = traffic[-1].set_index("epoch").filter(regex="_(up|down)$").sum(axis=1).groupby("epoch").sum()
    sent = by_epoch.cumsum().to_numpy() / settings.clients + sum(map(_of_client, traffic[:-1]))
    macs, memory = load.macs * np.arange(1, len(epochs) + 1) / len(epochs), np.full(len(epochs), load.memory_bytes)
    if isinstance(settings, ModularSettings):
        first, macs = settings.phase1.rounds * settings.phase1.local_epochs, np.full(len(epochs), load.macs)
    elif isinstance(settings, LayerwiseSettings):
        stages = [load.stages[stage.number - 1] for stage in settings.plan(len(load.stages))]
        macs = np.cumsum([stage.image_macs for stage in stages], dtype=float)
        macs *= load.macs / macs[-1]
        memory = np.maximum.accumulate([stage.memory.total_bytes for stage in stages])
    spent = {"macs": macs, "traffic_bytes": sent * (settings.clients > 1), "memory_bytes": memory}
    passes = first + epochs * getattr(settings, "local_epochs", 1)
    return pd.DataFrame({"epoch": epochs, "passes": passes, **spent, "knn_accuracy": accuracy})


def within(curve: pd.DataFrame, budget: str, amounts: Sequence[float]) -> pd.DataFrame:
    """The accuracy of the last row of one curve that has one and that an amount allows; missing where none does.

    Args:
        curve: of one training, or several of one method and seed under one another: their means are taken.
        budget: one of :data:`BUDGETS`.
        amounts: to spend.

    Returns:
        a row an amount: the columns ``budget`` (its name), ``amount`` and ``knn_accuracy``.
    """
    check_choice("budget", budget, BUDGETS)
    steps = curve.groupby("epoch")[[budget, "knn_accuracy"]].mean().dropna()  # not every epoch is validated
    found = [steps.loc[steps[budget] <= amount, "knn_accuracy"] for amount in amounts]
    last = [rows.iloc[-1] if len(rows) else np.nan for rows in found]
    return pd.DataFrame({"budget": budget, "amount": list(amounts), "knn_accuracy": last})


# ---------------------------------------------------------------- the table, and the answer


def overview(results: pd.DataFrame, measures: Sequence[str], sort_by: str) -> pd.DataFrame:
    """A row a method: means over seeds in readers' units, with half the interval of each accuracy beside it.

    Args:
        results: a row a method and seed, on one division of the images; with a column ``untrained``, the first
            measure of each method's own untrained model, it is shown.
        measures: columns that are accuracies, fractions; shown in percent.
        sort_by: a column of the table; accuracies are sorted downwards, all else upwards.
    """
    means = results.groupby("method", sort=False).mean(numeric_only=True)
    table = pd.DataFrame(index=means.index)
    for name in measures:
        cells = Cells(results, name, ["method"])
        intervals = {method: cells.mean(method=method).estimate.interval() for method in cells.levels("method")}
        table[name] = 100 * means[name]
        table[f"± {name}"] = pd.Series({method: 50 * (high - low) for method, (low, high) in intervals.items()})
    if "untrained" in means:
        table["untrained"] = 100 * means["untrained"]
    for column, (name, unit) in UNITS.items():
        if column in means:
            table[name] = means[column] / unit
    check_choice("sort_by", sort_by, table.columns)
    return table.sort_values(sort_by, ascending=sort_by not in measures, kind="stable").reset_index()


class Choice(NamedTuple):
    """An answer in a sentence, and the methods that it is about, the best one first."""

    answer: str
    candidates: pd.DataFrame


def choose(results: pd.DataFrame, *, memory: float, traffic: float, private: bool, measure: str) -> Choice:
    """Which method for clients with so much memory and traffic, and how sure is that?

    The best mean does not win by a hair: it is compared with each other method that fits, seed by seed, at a level that
    holds for all comparisons together (Bonferroni). Those that it does not beat are named beside it. Only seeds count
    that all methods have that fit.

    Args:
        results: a row a method and seed on one division: the columns method, reference, seed, ``memory_bytes``,
            ``traffic_bytes``, ``explained`` (the most that an attack explains of what a client sends; missing where
            none was run) and ``measure``; with a column ``untrained``, the same of the method's own untrained model,
            the answer says so where the best is not shown to have learned.
        memory, traffic: of a client, in bytes; its peak, and all that it sends and receives.
        private: leave out methods whose messages show images: ``explained`` above :data:`EXPOSED`. What no attack was
            run on stays, and says so.
        measure: column with the accuracy, a fraction.

    Raises:
        DataError: there is no such column, the results are of several divisions, or methods have no seed in common.
    """
    if missing := {"method", "reference", "seed", "memory_bytes", "traffic_bytes", "explained", measure} - {*results}:
        raise DataError(f"The results have no column {', '.join(sorted(missing))}: give those of the benchmark.")
    if results.get("partition", pd.Series(dtype=str)).nunique() > 1:
        raise DataError("The results are of several divisions of the images: choose on one of them.")
    means = results.groupby("method", sort=False)[["memory_bytes", "traffic_bytes", "explained", measure]].mean()
    fits = (means["memory_bytes"] <= memory) & (means["traffic_bytes"] <= traffic)
    if private:
        fits &= ~(means["explained"] > EXPOSED)
    fits &= ~results.groupby("method", sort=False)["reference"].any() & means[measure].notna()
    if not fits.any():
        return Choice("No method of the table fits.", means[fits])
    results = results[results["method"].isin(means.index[fits])].dropna(subset=measure)
    of_method = results.groupby("method")["seed"].agg(set)
    shared = set.intersection(*of_method)  # a seed may be easier than another
    if not shared:
        raise DataError(f"{', '.join(of_method.index)} have no seed in common: compute the same seeds of each.")
    results = results[results["seed"].isin(shared)]
    order = results.groupby("method", sort=False)[measure].mean().sort_values(ascending=False, kind="stable").index
    cells = Cells(results, measure, ["method"])
    quantities = {name: cells.mean(method=name) for name in order}
    best, *others = order
    level = 1 - (1 - LEVEL) / max(1, len(others))
    behind = {name: quantities[best] - quantities[name] for name in others}
    level_with = [name for name, gap in behind.items() if not gap.estimate.interval(level)[0] > 0]
    rows = [_candidate(name, quantities[name], behind.get(name), name in [best, *level_with]) for name in order]
    needed = means[["memory_bytes", "traffic_bytes"]] / MB
    needed.columns = ["memory, MB", "traffic, MB"]
    candidates = pd.DataFrame(rows).join(needed, on="method").join(means["explained"], on="method")
    low, high = quantities[best].estimate.interval()
    if np.isnan(low):
        answer = f"Undecided: one seed has no interval. The best mean of {len(order)} methods is that of {best}."
        return Choice(answer, candidates)
    answer = f"{best}: {quantities[best].estimate.value:.1%} ({LEVEL:.0%} interval {low:.1%} to {high:.1%})."
    if level_with:
        answer = f"Undecided between {'; '.join([best, *level_with])}. The best mean is that of {answer}"
    own = results[results["method"] == best]
    if "untrained" in own and own["untrained"].notna().all():
        gained = Cells(own.assign(gained=own[measure] - own["untrained"]), "gained", ["method"])
        if not gained.mean(method=best).estimate.interval()[0] > 0:
            answer += " That it is better than an untrained model is not shown."
    untested = [name for name in [best, *level_with] if private and np.isnan(means.loc[name, "explained"])]
    if untested:
        answer += f" No attack was run on what {'; '.join(untested)} would send: that it is private is not shown."
    return Choice(answer, candidates)


def _candidate(name: str, own: Quantity, behind: Quantity | None, in_answer: bool) -> dict[str, object]:
    low, high = own.estimate.interval()
    gap = 0.0 if behind is None else behind.estimate.value
    return {"method": name, "accuracy": own.estimate.value, "low": low, "high": high, "behind": gap} | {
        "in the answer": in_answer
    }
