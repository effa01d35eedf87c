"""Claims of MFCL (Motamedi and Kim, TMLR) on the accuracies of its tables as predicates on our runs.

Each rule restates the ``check`` text of its claim in ``mfcl_claims.yaml``; how it is judged:
:mod:`fssl_core.reporting.accuracy_claims`. One claim is on the table alone (``compute: table_arithmetic``).

Our runs are rows with the columns method, dataset, xi (0.01 to 200), protocol and accuracy (a fraction), and for
headline-84      clients
table1           architecture, cut
table6           secure_aggregation, datamix (0 or 1)
table16          K
table17          channels_per_group
Methods have their printed names: ``"MFCL(TN)"``, ``"MFCL(GN)"``, ``"MFCL(BN)"``, ``"FedSimCLR"`` (in table5
``"FedSimCLR(TN)"``, ...), ``"FedEMA"``, ``"FedU"``, ``"Orchestra"``, ``"FeatARC"``, ``"FedAvg"``, ``"FedProx"``,
``"MOON"``, ``"FSL"``, ``"HeteroFL"``, ``"Split-Mix"``, ``"FedPAC"``.

Accuracies are compared in points (100 x fraction), means over seeds. A rule is judged on the data sets there are, and
on the levels of a column that there are, at least two; what a check says of a named data set counts where it is there.
A number that a check quotes may be missed by ``ROOM``.
"""

import pandas as pd

from fssl_core.reporting.accuracy_claims import table_claim, training_claim
from fssl_core.reporting.predicate import in_words, listed, signed, span
from fssl_core.reporting.predicates.mfcl import printed_cell, same_client_costs, vgg_traffic

TWIN, GROUP, BATCH = NORMS = ["MFCL(TN)", "MFCL(GN)", "MFCL(BN)"]
SUPERVISED = ["FedAvg", "FedProx", "MOON"]
SELF_SUPERVISED = ["FedSimCLR", "Orchestra", "FedEMA", "FedU", "FeatARC"]
SEVERE = [0.01, 0.1]  # xi
HOMOGENEOUS = 200
ROOM = 1.0  # points: the printed cells are means of three runs, which lie up to 0.6 apart
DIGITS = 1e-9  # a point less than this is the error of a sum


def _points(cells: pd.DataFrame, index: str | list[str], methods: list[str]) -> pd.DataFrame:
    """Means over seeds: rows ``index`` that have all methods, in the order of the cells, a column for each."""
    table = cells[cells["method"].isin(methods)].pivot_table("points", index, "method", sort=False)
    return table.reindex(columns=methods).dropna()


def _at(cells: pd.DataFrame, xi: float, methods: list[str]) -> pd.DataFrame | None:
    """Rows dataset, at one xi; None without any."""
    table = _points(cells[cells["xi"] == xi], "dataset", methods)
    return None if table.empty else table


def _at_all(cells: pd.DataFrame, levels: list[float], methods: list[str]) -> pd.DataFrame | None:
    """Rows dataset and xi, of the data sets that have all these xi; None without any."""
    table = _points(cells[cells["xi"].isin(levels)], ["dataset", "xi"], methods)
    whole = table.groupby("dataset").transform("size") == len(levels)
    return table[whole] if whole.any() else None


def _rising(table: pd.DataFrame) -> pd.Series:
    """Of each row, whether each column is above the one before."""
    return (table.diff(axis=1).iloc[:, 1:] > DIGITS).all(axis=1)


def _rows_in_words(table: pd.DataFrame) -> str:
    names = [", ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in table.index]
    return "; ".join(f"{name}: {in_words(row)}" for name, (_, row) in zip(names, table.iterrows(), strict=True))


# --------------------------------------------------------------------------------------------------- table1: cut layer


@training_claim("mfcl-table1-cut-layer", "table1")
def cut_layer(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Best at 2, of a ResNet-50 at 4, among cuts on both sides of it. The deepest there is stands for 7."""
    twin = cells[cells["method"] == TWIN]
    curves = twin.pivot_table("points", "cut", "architecture", sort=False).sort_index()
    holds, parts = True, []
    for architecture, curve in curves.items():
        expected, curve = 4 if architecture == "ResNet-50" else 2, curve.dropna()
        deepest = curve.index[-1] if len(curve) else 0
        if expected not in curve.index or not curve.index[0] < expected < deepest:
            continue
        best, lost = curve.idxmax(), curve.max() - curve[deepest]
        holds &= bool(best == expected and lost > 5)
        holds &= architecture == "ResNet-50" or curve.loc[expected:].is_monotonic_decreasing
        parts.append(f"best cut {best:g}, {lost:.2f} points lost at {deepest:g} ({architecture})")
    return (holds, "; ".join(parts)) if parts else None


# ---------------------------------------------------------------------------------------------- table2: the comparison


@training_claim("mfcl-headline-84", "table2")
def headline(cells: pd.DataFrame) -> tuple[bool, str] | None:
    cells = cells[cells["clients"] == 10]
    table = _at(cells, 0.01, [TWIN])
    if table is None or "CIFAR-10" not in table.index:
        return None
    points = table.loc["CIFAR-10", TWIN]
    return bool(abs(points - 84.1) <= 0.22), f"{points:.2f} percent"


@training_claim("mfcl-table2-best-at-001", "table2")
def best_at_001(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Among the methods there are, of which one at least is supervised and one self-supervised."""
    table = cells[cells["xi"] == 0.01].pivot_table("points", "dataset", "method", sort=False)
    if TWIN not in table:
        return None
    rivals = table.reindex(columns=[*SUPERVISED, *SELF_SUPERVISED])
    enough = rivals[SUPERVISED].notna().any(axis=1) & rivals[SELF_SUPERVISED].notna().any(axis=1)
    table = table[enough & table[TWIN].notna()]
    if table.empty:
        return None
    others = table[[name for name in table if name in {*SUPERVISED, "FSL", *SELF_SUPERVISED, GROUP, BATCH}]]
    gains, best = table[TWIN] - others.max(axis=1), others.idxmax(axis=1)
    gains.index = [f"{dataset}, {best[dataset]}" for dataset in gains.index]
    return bool((gains > 0).all()), f"above the best of {len(others.columns)} others by {listed(gains)}"


@table_claim("mfcl-table2-best-at-01", "table2")
def not_best_at_01(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """That is what holds: at xi = 0.1 others are ahead. It names data sets, and is judged on those."""
    table = _at(cells, 0.1, [TWIN, "FeatARC", *SUPERVISED])
    if table is None or not {"CIFAR-10", "CIFAR-100", "Tiny ImageNet"} <= {*table.index}:
        return None
    above = table.drop(columns=TWIN).sub(table[TWIN], axis=0)
    arc, supervised = above.loc[["CIFAR-10", "CIFAR-100"], "FeatARC"], above.loc[["CIFAR-100", "Tiny ImageNet"]]
    holds = (arc >= -DIGITS).all() and (supervised[SUPERVISED] > 0).all(axis=None)
    least = supervised[SUPERVISED].min(axis=1)
    return bool(holds), f"FeatARC {listed(arc)}; the least of {', '.join(SUPERVISED)} {listed(least)}"


@training_claim("mfcl-table2-norm-order", "table2")
def norm_order(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Data sets with both xi. That BN is below 20 percent counts for CIFAR-10."""
    if (table := _at_all(cells, SEVERE, NORMS)) is None:
        return None
    holds = _rising(table[[BATCH, GROUP, TWIN]]).all()
    if ("CIFAR-10", 0.01) in table.index:
        holds = holds and table.loc[("CIFAR-10", 0.01), BATCH] < 20
    gaps = {f"{above} above {below}": table[above] - table[below] for above, below in ((TWIN, GROUP), (GROUP, BATCH))}
    return bool(holds), "; ".join(f"{name} by {listed(points)}" for name, points in gaps.items())


@training_claim("mfcl-table2-bn-recovers", "table2")
def batch_norm_recovers(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """BN > TN > GN, but on Tiny ImageNet TN > GN > BN."""
    if (table := _at(cells, HOMOGENEOUS, NORMS)) is None:
        return None
    tiny = table.index == "Tiny ImageNet"
    holds = _rising(table.loc[~tiny, [GROUP, TWIN, BATCH]]).all()
    holds = holds and _rising(table.loc[tiny, [BATCH, GROUP, TWIN]]).all()
    return bool(holds), _rows_in_words(table)


@training_claim("mfcl-table2-supervised-wins-homogeneous", "table2")
def supervised_wins(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _at(cells, HOMOGENEOUS, [TWIN, *SUPERVISED])) is None:
        return None
    least = table[SUPERVISED].min(axis=1) - table[TWIN]
    return bool((least > 0).all()), f"the least of {', '.join(SUPERVISED)} above {TWIN} by {listed(least)}"


@training_claim("mfcl-table2-stability", "table2")
def stability(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Quoted losses count for the data sets they name; below every supervised method, of which there must be one."""
    quoted = {"CIFAR-10": 1.2, "CIFAR-100": 3.4, "Tiny ImageNet": 9.1}
    methods = [TWIN, *(name for name in SUPERVISED if name in set(cells["method"]))]
    table = _at_all(cells, [0.01, HOMOGENEOUS], methods)
    if table is None or len(methods) == 1:
        return None
    lost = table.xs(HOMOGENEOUS, level="xi") - table.xs(0.01, level="xi")
    holds = lost[methods[1:]].gt(lost[TWIN], axis=0).all(axis=None)
    holds = holds and all(abs(lost.loc[name, TWIN] - quoted[name]) <= ROOM for name in lost.index if name in quoted)
    return bool(holds), f"points lost from xi = 200 to 0.01: {_rows_in_words(lost)}"


@training_claim("mfcl-table14-monotone", "table14")
def monotone(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """The three normalisations of data sets that have all three xi."""
    if (table := _at_all(cells, [0.1, 0.5, HOMOGENEOUS], NORMS)) is None:
        return None
    curves = table.unstack("xi").stack("method", future_stack=True)[[0.1, 0.5, HOMOGENEOUS]]
    between = (curves.diff(axis=1).iloc[:, 1:] >= -DIGITS).all(axis=1)
    value = ", ".join(f"{method} on {dataset}" for dataset, method in between.index[~between])
    return bool(between.all()), f"{between.sum()} of {len(between)} curves rise{'; not ' + value if value else ''}"


# ----------------------------------------------------------------- tables 4, 5 and 15: other schemes, norms, backbones


@training_claim("mfcl-table4-tradeoff", "table4")
def tradeoff(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Mean accuracy over the data sets; resources are the printed ones, of which three rows are quoted there."""
    quoted = {"HeteroFL": 34.8, "Split-Mix": 33.4, "FedPAC": 22.4}
    if (table := _at(cells, 0.01, [TWIN, *quoted])) is None:
        return None
    gains = table[[*quoted]].rsub(table[TWIN], axis=0).mean()
    alpha, beta, gamma = (
        {name: printed_cell("table4", metric, name, architecture="ResNet-18") for name in ("MFCL", *quoted)}
        for metric in ("alpha_communication", "beta_compute", "gamma_memory")
    )
    holds = all(abs(gains[name] - points) <= ROOM for name, points in quoted.items())
    holds = holds and min(gamma, key=gamma.get) == "MFCL"
    holds = holds and alpha["FedPAC"] < alpha["MFCL"] < min(alpha["HeteroFL"], alpha["Split-Mix"])
    holds = holds and beta["Split-Mix"] < beta["MFCL"] < min(beta["HeteroFL"], beta["FedPAC"])
    return bool(holds), f"{TWIN} above {listed(gains)}"


@training_claim("mfcl-table5-tn-in-fedsimclr", "table5")
def twin_norm_in_simclr(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Data sets with both xi."""
    variants = [f"FedSimCLR({norm})" for norm in ("BN", "GN", "TN")]
    if (table := _at_all(cells, SEVERE, [*variants, TWIN])) is None:
        return None
    holds = _rising(table[variants]).all() and (table[TWIN] > table[variants].max(axis=1)).all()
    return bool(holds), _rows_in_words(table)


@training_claim("mfcl-table15-vgg", "table15")
def vgg(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Mean accuracy over data sets that have both xi; costs are counted at the paper's sizes."""
    if (table := _at_all(cells, [0.01, HOMOGENEOUS], ["FedSimCLR", TWIN])) is None:
        return None
    gains = (table[TWIN] - table["FedSimCLR"]).groupby("xi").mean()
    stated, alpha = vgg_traffic()
    holds = same_client_costs() and stated
    holds = holds and abs(gains[0.01] - 17.1) <= ROOM and abs(gains[HOMOGENEOUS] - 2.2) <= ROOM
    value = f"{TWIN} above FedSimCLR by {listed(gains.rename(index='xi={:g}'.format))}"
    return bool(holds), f"{value}; counted alpha of FedSimCLR {alpha:.3g} bits"


# ------------------------------------------------------------------- tables 6, 7, 16 and 17: privacy, FedEMA, settings


@training_claim("mfcl-table6-privacy-cost", "table6")
def privacy_cost(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Mean accuracy over the data sets."""
    kinds = {(0, 0): "none", (1, 0): "SA", (0, 1): "DM", (1, 1): "SA+DM"}
    rows = cells[cells["method"] == TWIN].dropna(subset=["secure_aggregation", "datamix"])
    keys = zip(rows["secure_aggregation"].astype(int), rows["datamix"].astype(int), strict=True)
    table = rows.assign(privacy=[kinds[key] for key in keys]).pivot_table("points", "dataset", "privacy")
    means = table.reindex(columns=[*kinds.values()]).dropna().mean()
    if means.isna().any():
        return None
    lost = means["none"] - means.drop("none")
    holds = ((lost - pd.Series({"SA": 0, "DM": 1.7, "SA+DM": 1.7})).abs() <= ROOM).all()
    return bool(holds), f"points lost: {in_words(lost)}"


@training_claim("mfcl-table7-fedema-setting", "table7")
def fedema_setting(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Rows of this setting alone: 5 clients, a fifth of the classes each."""
    table = _points(cells, "dataset", ["FedEMA", TWIN])
    if table.empty:
        return None
    gains = table[TWIN] - table["FedEMA"]
    holds = (gains > 0).all() and ("CIFAR-100" not in gains or gains["CIFAR-100"] < 1)
    return bool(holds), f"above FedEMA by {listed(gains)}"


@training_claim("mfcl-table16-batch-size", "table16")
def batch_size(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Mean over the data sets that have all K; at least two K."""
    table = cells[cells["method"] == TWIN].pivot_table("points", "dataset", "K").dropna()
    if table.empty or len(table.columns) < 2:
        return None
    means = table.mean()
    spread = means.max() - means.min()
    return bool(
        spread <= 0.2 + DIGITS
    ), f"range {spread:.2f} points over K = {', '.join(f'{k:g}' for k in means.index)}"


@training_claim("mfcl-table17-group-size", "table17")
def group_size(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Mean over the data sets; of the sizes 2, 4 and one of 8 and 16 are needed."""
    tables = _points(cells, ["dataset", "channels_per_group"], [GROUP, TWIN])
    table = tables.groupby("channels_per_group").mean().sort_index()
    if not {2, 4} <= {*table.index} or not {8, 16} & {*table.index}:
        return None
    twin, group = table[TWIN], table[GROUP]
    above = twin - group
    best = twin.index[twin >= twin.max() - DIGITS]
    holds = (above > 0).all() and twin[2] > group[4] and twin.min() > group.max() and best.isin([8, 16]).all()
    value = f"TN above GN by {span(above, '+.2f')}, with 2 against 4 by {signed(twin[2] - group[4])}"
    return bool(holds), f"{value}; TN is best at {', '.join(f'{size:g}' for size in best)}"
