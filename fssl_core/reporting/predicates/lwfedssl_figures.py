"""Claims of LW-FedSSL (Tun et al., arXiv:2401.11647) on its figures and algorithms as predicates on recorded results.

Each function restates the ``check`` text of its claim in ``lwfedssl_claims.yaml``; the rest of Fig. 5 is in
:mod:`fssl_core.reporting.predicates.lwfedssl`. Methods are named as the paper prints them: ``"FedSSL"``,
``"LW-FedSSL"`` and ``"Prog-FedSSL"`` in Table 1, with ``"FedMoCoV3"`` for the first elsewhere. Stages and units are
numbered from 1 here, as in the paper: the unit ``L_1`` is 1.
"""

import pandas as pd

from fssl_core.reporting.predicate import in_words, predicate
from fssl_core.reporting.predicates.lwfedssl import ALL_THREE, FULL, LAYERWISE, PROGRESSIVE

ROUNDING = 1e-5  # of a few steps in single precision
SEVERAL = 3  # "several times smaller"

# ------------------------------------------------------------------------------------- table1: what is trained and sent
# Rows with property and value: of "weighted average" the largest difference of a parameter of the global model after a
# round to sum_n |D_n| / |D| * local_n, of "momentum update" that of the target branch after a step to
# mu * target + (1 - mu) * online; counts of "target predictor parameters" and "target parameters with gradient".
# Rows with method, stage, unit and largest_change, that of one of the unit's parameters in local training (0:
# bit-identical). Rows with method, stage and trained_units, how many units of the encoder the stage trains.


def _properties(results: pd.DataFrame, *names: str) -> pd.Series | None:
    values = results.dropna(subset="property").groupby("property")["value"].max().reindex([*names])
    return None if values.isna().any() else values


@predicate("lwfedssl-fig1-fl-round")
def weighted_average(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (values := _properties(results, "weighted average")) is None:
        return None
    return bool(values.item() <= ROUNDING), f"largest difference {values.item():.1e}"


@predicate("lwfedssl-fig2-mocov3")
def target_branch(results: pd.DataFrame) -> tuple[bool, str] | None:
    counts = ["target predictor parameters", "target parameters with gradient"]
    if (values := _properties(results, *counts, "momentum update")) is None:
        return None
    value = "; ".join(f"{name} {values[name]:g}" for name in counts)
    holds = (values[counts] == 0).all() and values["momentum update"] <= ROUNDING
    return bool(holds), f"{value}; momentum update differs by {values['momentum update']:.1e}"


def _changes(results: pd.DataFrame, method: str) -> pd.DataFrame | None:
    """Largest change: rows stage, a column for each unit, missing where a stage lacks it. All stages, or None."""
    table = results[results["method"] == method].pivot_table("largest_change", "stage", "unit", aggfunc="max")
    table.index = table.index.astype(int)  # a column with gaps is read back as floats
    stages, units = len(table), len(table.columns)
    if not stages or units % stages:
        return None
    complete = all(table.loc[stage].notna().sum() == stage * units // stages for stage in table.index)
    return table if complete and list(table.index) == list(range(1, stages + 1)) else None


@predicate("lwfedssl-fig3-layerwise")
def only_the_newest_changes(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _changes(results, LAYERWISE)) is None:
        return None
    each = len(table.columns) // len(table)
    frozen = pd.concat([table.loc[stage].iloc[: (stage - 1) * each] for stage in table.index])
    newest = pd.concat([table.loc[stage].iloc[(stage - 1) * each : stage * each] for stage in table.index])
    same, moved = frozen == 0, newest > 0
    value = f"{same.sum()} of {len(same)} frozen units unchanged, {moved.sum()} of {len(moved)} new ones changed"
    return bool(same.all() and moved.all()), value


@predicate("lwfedssl-fig9-progressive")
def all_present_change(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _changes(results, PROGRESSIVE)) is None:
        return None
    changes = table.stack().dropna()
    return bool((changes > 0).all()), f"{(changes > 0).sum()} of {len(changes)} units changed"


@predicate("lwfedssl-fig4-three-schemes")
def trained_units(results: pd.DataFrame) -> tuple[bool, str] | None:
    """S is the number of stages of LW-FedSSL, one unit each."""
    table = results.pivot_table("trained_units", "stage", "method").reindex(columns=["FedSSL", LAYERWISE, PROGRESSIVE])
    staged = table[[LAYERWISE, PROGRESSIVE]]
    if staged.empty or staged.isna().any(axis=None) or table["FedSSL"].dropna().empty:
        return None
    total = len(staged)
    holds = (table["FedSSL"].dropna() == total).all() and (staged[LAYERWISE] == 1).all()
    holds = holds and list(staged[PROGRESSIVE]) == list(range(1, total + 1))
    full, layerwise, last = table["FedSSL"].dropna().iloc[0], staged[LAYERWISE].max(), staged[PROGRESSIVE].iloc[-1]
    return bool(holds), f"of {total}: end-to-end {full:g}, layer-wise {layerwise:g}, progressive 1 to {last:g}"


# --------------------------------------------------------------------------------------- fig5, fig8: resources by stage
# Rows with method, stage and memory_bytes, of a training step, in fig8 with batch_size: counted or measured.


@predicate("lwfedssl-fig5a-memory")
def memory_by_stage(results: pd.DataFrame) -> tuple[bool, str] | None:
    """ "Almost flat": layer-wise memory grows by a third of what progressive memory grows by, or less."""
    table = results.pivot_table("memory_bytes", "stage", "method").reindex(columns=ALL_THREE)
    full, staged = table[FULL].dropna(), table[[LAYERWISE, PROGRESSIVE]].dropna()
    if full.empty or len(staged) < 2:
        return None
    growth = staged.iloc[-1] / staged.iloc[0]
    reached = staged[PROGRESSIVE].iloc[-1] / full.iloc[-1]
    holds = full.max() <= 1.01 * full.min() and staged[PROGRESSIVE].is_monotonic_increasing and abs(reached - 1) <= 0.01
    holds = holds and SEVERAL * (growth[LAYERWISE] - 1) <= growth[PROGRESSIVE] - 1
    value = ", ".join(f"{method} x {factor:.2f}" for method, factor in growth.items())
    return bool(holds), f"from the first stage to the last: {value}, {reached:.3f} of {FULL}"


@predicate("lwfedssl-fig8-memory-vs-batch")
def memory_by_batch(results: pd.DataFrame) -> tuple[bool, str] | None:
    """The peak over stages; at least two batch sizes; slopes between the smallest and the largest."""
    peaks = results.groupby(["batch_size", "method"])["memory_bytes"].max()
    table = peaks.unstack("method").reindex(columns=ALL_THREE).dropna()
    if len(table) < 2:
        return None
    apart = (table[PROGRESSIVE] / table[FULL] - 1).abs().max()
    rise = table.iloc[-1] - table.iloc[0]
    lowest = (table[LAYERWISE] < table[[FULL, PROGRESSIVE]].min(axis=1)).all()
    slopes = rise[FULL] / rise[LAYERWISE]
    holds = apart <= 0.01 and lowest and slopes >= SEVERAL
    sizes = ", ".join(f"{size:g}" for size in table.index)
    return bool(
        holds
    ), f"batches {sizes}: {FULL} grows {slopes:.1f} times as fast as {LAYERWISE}, {apart:.1%} from {PROGRESSIVE}"


# ---------------------------------------------------------------------------------- fig6: divergence, fig7, fig10: data


@predicate("lwfedssl-fig6-divergence")
def lower_divergence(results: pd.DataFrame) -> tuple[bool, str] | None:
    """A row per run and round: method, seed, round and distance, that of a random client's weights to the others'.

    End-to-end training with another SSL method stands for FedMoCoV3, and the verdict names it.
    """
    ends = {"FedMoCoV3", "FedBYOL", "FedSimCLR"} & {*results["method"]}
    if len(ends) != 1:
        return None
    whole = ends.pop()
    results = results.replace({"method": {whole: FULL}})
    table = results.pivot_table("distance", ["seed", "round"], "method").reindex(columns=ALL_THREE).dropna()
    if table.empty:
        return None
    mean = table.mean()
    value = in_words(mean.rename({FULL: whole}), ".3g")
    return bool((mean[[LAYERWISE, PROGRESSIVE]] < mean[FULL]).all()), f"mean L2 distance: {value}"


@predicate("lwfedssl-fig7-medmnist-samples")
def medical_samples(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Rows with dataset and samples, how many images of it are shown; other data sets are not read."""
    shown = results.groupby(results["dataset"].str.lower())["samples"].sum()
    shown = shown.reindex(["pathmnist", "bloodmnist", "dermamnist", "organamnist"])
    if shown.isna().any():
        return None
    return bool((shown > 0).all()), in_words(shown, "g")


@predicate("lwfedssl-fig10-partitions")
def more_uneven(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Rows with beta and total_variation (0 to 1), of a client's labels to those of all; means over rows."""
    mean = results.groupby("beta")["total_variation"].mean().reindex([50, 5, 0.5])
    if mean.isna().any():
        return None
    value = ", ".join(f"{distance:.3f} (beta {beta:g})" for beta, distance in mean.items())
    return bool(mean[50] < mean[5] < mean[0.5]), f"total variation {value}"
