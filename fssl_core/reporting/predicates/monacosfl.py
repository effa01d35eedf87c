"""Claims of MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024) as predicates on recorded results.

Each function restates the ``check`` text of its claim in ``monacosfl_claims.yaml``. Accuracies come as fractions and
are compared in points (100 x fraction), means over seeds first.
"""

import numpy as np
import pandas as pd

from fssl_core.reporting.predicate import predicate, span
from fssl_core.reporting.tables import MIB

METHODS = ["MocoSFL", "MonAcoSFL"]
SETTING = ["dataset", "clients", "sync_every"]

# ----------------------------------------------------------------------------------- fig1: traffic and accuracy


@predicate("monacosfl-fig1-optimal-cut")
def optimal_cut(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Among all nine cuts under two-way counting, as for Figure 3; the layers of ResNet-18 include its classifier."""
    rows = _traffic(results, "resnet18")
    if list(rows["cut_layer"]) != list(range(1, 18, 2)):
        return None
    best = rows.loc[rows["total_bytes"].idxmin()]
    value = f"{best.cut_layer} on the client, {18 - best.cut_layer} on the server ({best.total_bytes / MIB:.1f} MiB)"
    return bool(best.cut_layer == 11), value


@predicate("monacosfl-fig1-accuracy-gap-at-optimum")
def accuracy_gap_at_optimum(results: pd.DataFrame) -> tuple[bool, str] | None:
    """In every setting that has both cuts; the paper does not say which one its figure shows."""
    table = _at_cuts(results, 1, 11)
    if table.empty:
        return None
    gap = table["MonAcoSFL"][11] - table["MocoSFL"][11]
    loss = {method: table[method][1] - table[method][11] for method in METHODS}
    value = f"gap {span(gap, '+.1f')} points at cut 11; lost from cut 1: "
    value += ", ".join(f"{method} {span(loss[method], '.1f')}" for method in METHODS)
    return bool(((gap > 0) & (loss["MocoSFL"] > loss["MonAcoSFL"])).all()), value


# ---------------------------------------------------------------------------------------------- fig2: activations


@predicate("monacosfl-fig2-early-layers-look-like-input")
def early_layers_look_like_input(results: pd.DataFrame) -> tuple[bool, str] | None:
    similarity = results.groupby("layer")["similarity"].mean().reindex([1, 5, 9, 13, 17])
    if similarity.isna().any():
        return None
    falls = similarity[1] > similarity[17] and (similarity.diff().dropna() <= 0.05).all()
    return bool(falls), f"similarity {similarity[1]:.2f} at layer 1, {similarity[17]:.2f} at layer 17"


# -------------------------------------------------------------------------------------------------- fig3: traffic


def _traffic(results: pd.DataFrame, architecture: str, rule: str = "two-way") -> pd.DataFrame:
    """Rows of the figure's setting (224 px, 250 images, 10 syncs) of the CIFAR-stride model, shallowest cut first."""
    rows = results.query("architecture == @architecture and rule == @rule and strides == 'cifar'")
    return rows.query("image_size == 224 and images == 250 and syncs == 10").sort_values("cut_layer")


@predicate("monacosfl-fig3-resnet18-optimum")
def resnet18_optimum(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Under two-way counting, the only simple rule that gives the paper's number; the one-way optimum beside it."""
    best = {}
    for rule in ("two-way", "one-way"):
        rows = _traffic(results, "resnet18", rule)
        if rows.empty:
            return None
        best[rule] = rows.loc[rows["total_bytes"].idxmin()]
    value = "; ".join(f"{row.cut_layer} ({row.total_bytes / MIB:.1f} MiB) {rule}" for rule, row in best.items())
    return bool(best["two-way"].cut_layer == 11), value


@predicate("monacosfl-fig3-mobilenetv2-optimum")
def mobilenetv2_optimum(results: pd.DataFrame) -> tuple[bool, str] | None:
    rows = _traffic(results, "mobilenetv2")
    if rows.empty:
        return None
    best = rows.loc[rows["total_bytes"].idxmin()]
    value = f"code index {best.code_index} = label {best.cut_layer} ({best.total_bytes / MIB:.1f} MiB)"
    return bool(best.code_index == 7), value


@predicate("monacosfl-fig3-activations-shrink")
def activations_shrink(results: pd.DataFrame) -> tuple[bool, str] | None:
    rows = _traffic(results, "resnet18").set_index("cut_layer")["activation_bytes"]
    if not {1, 17} <= set(rows.index):
        return None
    holds = rows.is_monotonic_decreasing and rows[17] < rows[1]
    return bool(holds), f"{rows[1] / MIB:.1f} MiB at layer 1, {rows[17] / MIB:.1f} at layer 17"


@predicate("monacosfl-fig3-sync-grows")
def sync_grows(results: pd.DataFrame) -> tuple[bool, str] | None:
    sync = {name: _traffic(results, name)["sync_bytes"] for name in ("resnet18", "mobilenetv2")}
    if any(len(values) < 2 for values in sync.values()):
        return None
    holds = all((values.diff().dropna() > 0).all() for values in sync.values())
    value = "; ".join(f"{name} {v.iloc[0] / MIB:.1f} to {v.iloc[-1] / MIB:.1f} MiB" for name, v in sync.items())
    return holds, value


# ------------------------------------------------------------------------------- fig4: MocoSFL by size of federation


def _mocosfl(results: pd.DataFrame) -> pd.DataFrame:
    """Mean linear-probe accuracy of MocoSFL in points; rows a setting, columns the cuts, which all settings have."""
    rows = results[(results["method"] == "MocoSFL") & (results["partition"] != "iid")]
    return 100 * rows.pivot_table("linear_probe_accuracy", SETTING, "cut_layer").dropna(axis="columns")


@predicate("monacosfl-fig4-depth-hurts-mocosfl")
def depth_hurts_mocosfl(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = _mocosfl(results)
    table = table[table.index.isin([5, 20, 200], level="clients")]
    deep = table.loc[:, table.columns >= 9]
    if table.index.unique("clients").size < 3 or 1 not in table or deep.empty:
        return None
    loss = table[1] - deep.min(axis=1)
    return bool((loss >= 10).all()), f"cut 1 is ahead of the worst deep cut by {span(loss, '.1f')} points"


@predicate("monacosfl-fig4-unreliable-beyond-7")
def unreliable_beyond_7(results: pd.DataFrame) -> tuple[bool, str] | None:
    """For every number of clients there is, over those of the cuts that were run."""
    table = _mocosfl(results)
    shallow, deep = table.loc[:, table.columns <= 7], table.loc[:, table.columns >= 9]
    if shallow.empty or deep.empty:
        return None
    loss = shallow.mean(axis=1) - deep.mean(axis=1)
    sizes, cuts = (", ".join(map(str, names)) for names in (loss.index.unique("clients"), deep.columns))
    return bool((loss > 0).all()), f"cuts {cuts} are behind by {span(loss, '.1f')} points ({sizes} clients)"


# ------------------------------------------------------------------------------------------------ fig5: the 2-D toy


@predicate("monacosfl-fig5-sync-misaligns")
def sync_misaligns(results: pd.DataFrame) -> tuple[bool, str] | None:
    """At every sync, with room for rounding where the claim is "not larger"."""
    ratio = {name: rows["distance_after"] / rows["distance_before"] for name, rows in results.groupby("method")}
    if not set(METHODS) <= set(ratio):
        return None
    holds = (ratio["MocoSFL"] > 1).all() and (ratio["MonAcoSFL"] <= 1 + 1e-9).all()
    return bool(holds), "distance after / before: " + ", ".join(f"{m} {span(ratio[m], '.2f')}" for m in METHODS)


@predicate("monacosfl-sec42-ema-commutes-with-average")
def ema_commutes_with_average(results: pd.DataFrame) -> tuple[bool, str] | None:
    gap = results["ema_gap"].max()
    return None if np.isnan(gap) else (bool(gap < 1e-6), f"largest gap {gap:.1e}")


# --------------------------------------------------------------------------------------------- fig6: accuracy by cut


@predicate("monacosfl-sec51-images-between-syncs")
def images_between_syncs(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Arithmetic at the paper's sizes: 50,000 training images, ten syncs per epoch. Needs no result."""
    images = {clients: 50_000 / clients / 10 for clients in (5, 20, 200)}
    value = ", ".join(f"{clients} clients: {count:g}" for clients, count in images.items())
    return images == {5: 1000, 20: 250, 200: 25}, value


def _accuracy(results: pd.DataFrame) -> pd.DataFrame:
    """Mean linear-probe accuracy in points; rows (dataset, clients, sync_every, cut_layer), a column per method.

    Rows of IID controls are left out: the paper's figure is non-IID throughout.
    """
    rows = results[results["partition"] != "iid"]
    table = rows.pivot_table("linear_probe_accuracy", [*SETTING, "cut_layer"], "method")
    return 100 * table.reindex(columns=METHODS).dropna()


def _at_cuts(results: pd.DataFrame, *cuts: int) -> pd.DataFrame:
    """Accuracies of the settings that have all of ``cuts``; rows a setting, columns (method, cut_layer)."""
    return _accuracy(results).unstack("cut_layer").reindex(columns=pd.MultiIndex.from_product([METHODS, cuts])).dropna()


@predicate("monacosfl-fig6-both-decline")
def both_decline(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Least-squares slopes, in every setting with at least three cuts (two points are no tendency)."""
    slopes = []
    for _, table in _accuracy(results).groupby(level=SETTING):
        if len(table) >= 3:
            slopes.append(np.polyfit(table.index.get_level_values("cut_layer"), table.to_numpy(), 1)[0])
    if not slopes:
        return None
    mocosfl, monacosfl = np.transpose(slopes)
    value = f"MocoSFL {span(mocosfl, '+.2f')}, MonAcoSFL {span(monacosfl, '+.2f')} points per layer"
    return bool(((mocosfl < monacosfl) & (monacosfl <= 0)).all()), value


@predicate("monacosfl-fig6-gap-11-13")
def gap_11_13(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = _at_cuts(results, 11, 13)
    if table.empty:
        return None
    gap = (table["MonAcoSFL"] - table["MocoSFL"]).max(axis=1)
    return bool(gap.max() >= 30 and (gap > 0).all()), f"gap {span(gap, '+.1f')} points"


@predicate("monacosfl-fig6-monacosfl-holds")
def monacosfl_holds(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = _at_cuts(results, 1, 13)
    if table.empty:
        return None
    loss = {method: table[method][1] - table[method][13] for method in METHODS}
    value = "lost from cut 1 to 13: " + ", ".join(f"{m} {span(loss[m], '.1f')}" for m in METHODS) + " points"
    return bool((loss["MonAcoSFL"] <= 0.5 * loss["MocoSFL"]).all()), value


@predicate("monacosfl-abs-state-of-the-art")
def state_of_the_art(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Accuracy at cut 11 in every setting, and MonAcoSFL's traffic there against cut 1 as the runs counted it."""
    accuracy = _at_cuts(results, 11)
    traffic = (
        results.query("method == 'MonAcoSFL' and partition != 'iid'")
        .pivot_table("bytes_per_client_epoch", SETTING, "cut_layer")
        .reindex(columns=[1, 11])
        .dropna()
    )
    if accuracy.empty or traffic.empty:
        return None
    gap = accuracy["MonAcoSFL"][11] - accuracy["MocoSFL"][11]
    share = traffic[11] / traffic[1]
    value = f"gap {span(gap, '+.1f')} points at {span(share, '.2f')} of the traffic of cut 1"
    return bool((gap > 0).all() and (share < 0.5).all()), value


# ------------------------------------------------------------------------------------------------ fig7: MobileNetV2


def _gaps(results: pd.DataFrame) -> pd.DataFrame:
    """MonAcoSFL - MocoSFL on MobileNetV2 in points; rows a setting, columns the cuts, which all settings have."""
    table = _accuracy(results[results["architecture"] == "mobilenetv2"])
    return (table["MonAcoSFL"] - table["MocoSFL"]).unstack("cut_layer").dropna(axis="columns")


@predicate("monacosfl-fig7-gap-40")
def gap_40(results: pd.DataFrame) -> tuple[bool, str] | None:
    """The relaxed reading, ahead at all of these cuts, stands beside the verdict."""
    gaps = _gaps(results).reindex(columns=range(3, 17, 2))
    if gaps.empty or gaps.isna().any(axis=None):
        return None
    least = gaps.min(axis=None)
    relaxed = "holds" if least > 0 else "fails"
    return bool(least >= 40), f"smallest gap {least:+.1f} points, at cut {gaps.min().idxmin()}; relaxed: {relaxed}"


@predicate("monacosfl-fig7-every-depth")
def every_depth(results: pd.DataFrame) -> tuple[bool, str] | None:
    """At all cuts there are, at least three of them, as for the tendencies of Figure 6."""
    gaps = _gaps(results)
    if gaps.shape[1] < 3:
        return None
    value = f"gap {span(gaps.to_numpy().ravel(), '+.1f')} points at cuts {', '.join(map(str, gaps.columns))}"
    return bool((gaps > 0).all(axis=None)), value


# ---------------------------------------------------------------------------------------------- fig9: misalignment


def _steps(results: pd.DataFrame) -> tuple[pd.DataFrame, int] | None:
    """The steps of the paper's own setting and the step of the first sync; None without either of them."""
    steps = results[results["setting"] == "paper-like"]
    synced = steps.loc[steps["synced"].astype(bool), "step"]
    if synced.empty or not set(METHODS) <= set(steps["method"]):
        return None
    return steps, int(synced.min())


@predicate("monacosfl-fig9-equal-before-first-sync")
def equal_before_first_sync(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (found := _steps(results)) is None:
        return None
    steps, first = found
    before = steps[steps["step"] < first].pivot_table("misalignment", ["seed", "step"], "method").dropna()
    if before.empty:
        return None
    difference = (before["MocoSFL"] - before["MonAcoSFL"]).abs()
    relative = (difference / before["MocoSFL"]).max() if difference.max() > 0 else 0.0
    return bool(relative < 0.05), f"largest relative difference {relative:.1%} in steps 1 to {first - 1}"


@predicate("monacosfl-fig9-misalignment")
def misalignment_jumps(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (found := _steps(results)) is None:
        return None
    steps, first = found
    at_sync = steps.query("method == 'MocoSFL' and step == @first")
    ratio = (at_sync["misalignment"] / at_sync["misalignment_before_sync"]).mean()
    return bool(ratio >= 5), f"x {ratio:.2f} at the first sync (step {first})"


@predicate("monacosfl-fig9-order-of-magnitude")
def order_of_magnitude(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (found := _steps(results)) is None:
        return None
    steps, first = found
    last = min(1500, steps["step"].max())
    mean = steps[steps["step"].between(first, last)].groupby("method")["misalignment"].mean()
    ratio = mean["MocoSFL"] / mean["MonAcoSFL"]
    return bool(ratio >= 5), f"x {ratio:.2f} over steps {first} to {last}"


@predicate("monacosfl-fig9-monacosfl-flat")
def monacosfl_flat(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (found := _steps(results)) is None:
        return None
    steps, _ = found
    at_sync = steps[steps["synced"].astype(bool) & (steps["method"] == "MonAcoSFL")]
    ratio = at_sync["misalignment"] / at_sync["misalignment_before_sync"]
    return bool((ratio <= 1.1).all()), f"x {span(ratio, '.2f')} over {at_sync['step'].nunique()} syncs"
