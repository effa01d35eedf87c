"""Claims of LW-FedSSL (Tun et al., arXiv:2401.11647) on the accuracies of its tables as predicates on our runs.

Each rule restates the ``check`` text of its claim in ``lwfedssl_claims.yaml``; how it is judged:
:mod:`fssl_core.reporting.accuracy_claims`. Where the check names resources too, they are counted at the paper's sizes.
All but Table 2 has MoCoV3 alone, and ``"FedMoCoV3"`` in a check is its end-to-end training: a run with another SSL
method is judged against end-to-end training with that one, and the verdict names it.

Our runs are rows with the columns method as the tables print it (``"FedMoCoV3"``, ``"LW-FedSSL"``, ``"Prog-FedSSL"``,
``"FedBYOL"``, ``"FedSimCLR"``, ``"Scratch"``, ...; centralised training has the name of its SSL method, ``"MoCoV3"``),
eval_dataset (downstream), protocol, accuracy (a fraction), and of the following those that a rule names: ssl_method,
architecture, layers_per_stage, add_on, participating, dropout_probability, image_size, batch_size, beta. They are
compared in points (100 x fraction): means over seeds, then over the data sets that all compared rows have. A rule whose
check names levels of a column is judged on the levels there are, at least two, and says which; one that names data sets
needs them.
"""

from collections.abc import Callable

import pandas as pd

from fssl_core.reporting import accuracy_claims
from fssl_core.reporting.predicate import Predicate, in_words, listed, span
from fssl_core.reporting.predicates.lwfedssl import (
    FULL,
    INPUTS,
    LAYERWISE,
    PROGRESSIVE,
    cost,
    input_ratios,
    printed_cell,
    resources_rise_with_depth,
)

END_TO_END = {"MoCoV3": "FedMoCoV3", "BYOL": "FedBYOL", "SimCLR": "FedSimCLR"}
WHOLE = "end-to-end"  # FedMoCoV3, FedBYOL and FedSimCLR
ROLES = [WHOLE, LAYERWISE, PROGRESSIVE]
MEDICAL = ["PathMNIST", "BloodMNIST", "DermaMNIST", "OrganAMNIST"]


def training_claim(claim_id: str, *tables: str) -> Callable[[Predicate], Predicate]:
    """As :func:`~fssl_core.reporting.accuracy_claims.training_claim`, end-to-end training having one name.

    Each SSL method is judged for itself, but for Table 2, whose claims are about all of them.
    """
    by = ["protocol"] if tables == ("table2",) else ["ssl_method", "protocol"]
    one_name = dict.fromkeys(END_TO_END.values(), WHOLE)

    def register(rule: Predicate) -> Predicate:
        accuracy_claims.training_claim(claim_id, *tables, by=by)(
            lambda cells: rule(cells.replace({"method": one_name}))
        )
        return rule

    return register


def _means(cells: pd.DataFrame, *keys: str) -> pd.Series:
    """Points of each combination of keys: the mean over the data sets that all combinations have."""
    table = cells.pivot_table("points", "eval_dataset", list(keys)).dropna()
    means = table.mean()
    return means.iloc[:0] if table.empty else means


def _levels(cells: pd.DataFrame, level: str) -> pd.DataFrame | None:
    """Mean points: a row for each level of a column, at least two, that has all three methods, a column for each."""
    cells = cells[cells["method"].isin(ROLES) & cells[level].notna()]
    means = _means(cells, level, "method")
    if means.empty:
        return None
    table = means.unstack("method").reindex(columns=ROLES).dropna()
    return table if len(table) >= 2 else None


# ------------------------------------------------------------------------------------------------ table2: three methods


def _by_role(cells: pd.DataFrame, *roles: str) -> pd.DataFrame:
    """Points: rows ssl_method and eval_dataset that have all roles."""
    table = cells.pivot_table("points", ["ssl_method", "eval_dataset"], "method")
    return table.reindex(columns=[*roles]).dropna().reindex([*END_TO_END], level="ssl_method")


@training_claim("lwfedssl-table2-lw-comparable", "table2")
def layerwise_comparable(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """For the SSL methods there are; the gap on Caltech-101, to whole points, is 5 or 6."""
    table = _by_role(cells, WHOLE, LAYERWISE)
    gaps = (table[WHOLE] - table[LAYERWISE]).unstack("eval_dataset")
    if gaps.empty or "Caltech-101" not in gaps or gaps["Caltech-101"].isna().any():
        return None
    average, caltech = gaps.mean(axis=1), gaps["Caltech-101"]
    holds = average.between(0, 3).all() and (gaps.idxmax(axis=1) == "Caltech-101").all()
    holds = holds and caltech.round().between(5, 6).all()
    return bool(holds), f"below end-to-end by {listed(average)}; on Caltech-101 by {span(caltech, '.2f')}"


@training_claim("lwfedssl-table2-prog-better", "table2")
def progressive_better(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """For the SSL methods there are; most single data sets are three quarters of them."""
    table = _by_role(cells, WHOLE, PROGRESSIVE)
    if table.empty:
        return None
    gains = table[PROGRESSIVE] - table[WHOLE]
    average, won = gains.groupby("ssl_method", sort=False).mean(), (gains > 0).groupby("ssl_method", sort=False)
    holds = (average > 0).all() and (won.mean() >= 0.75).all()
    shares = ", ".join(f"{wins} of {count}" for wins, count in zip(won.sum(), won.size(), strict=True))
    return bool(holds), f"{listed(average)}; ahead on {shares} data sets"


@training_claim("lwfedssl-table2-pretraining-helps", "table2")
def pretraining_helps(cells: pd.DataFrame) -> tuple[bool, str] | None:
    means = _means(cells, "method", "ssl_method")
    if "Scratch" not in means.index.unique("method") or len(means) < 2:
        return None
    gains = means.drop("Scratch", level="method") - means["Scratch"].item()
    return bool((gains >= 20).all()), f"{span(gains, '+.2f')} points above Scratch, {len(gains)} rows"


@training_claim("lwfedssl-table2-centralized-upper", "table2")
def centralised_upper(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """For the SSL methods there are."""
    above = {}
    for ssl_method in END_TO_END:
        means = _means(cells[cells["ssl_method"] == ssl_method], "method")
        if {ssl_method, PROGRESSIVE} <= {*means.index}:
            above[ssl_method] = means[ssl_method] - means.drop(ssl_method)
    if not above:
        return None
    first = all((gaps > 0).all() for gaps in above.values())
    progressive = pd.Series({ssl_method: gaps[PROGRESSIVE] for ssl_method, gaps in above.items()})
    value = f"above the best federated row by {listed({s: gaps.min() for s, gaps in above.items()})}"
    return first and bool((progressive < 1.1).all()), f"{value}; above {PROGRESSIVE} by {span(progressive, '.2f')}"


# -------------------------------------------------------------------------- table3: layers per stage, table4: ResNet-18


def _by_depth(cells: pd.DataFrame, method: str) -> pd.Series:
    """Mean points by layers per stage, in ascending order."""
    rows = cells[(cells["method"] == method) & cells["layers_per_stage"].notna()]
    return _means(rows.astype({"layers_per_stage": int}), "layers_per_stage").sort_index()


@training_claim("lwfedssl-table3-depth-tradeoff", "table3")
def depth_tradeoff(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Accuracy at three settings or more; resources, memory included, are counted for the paper's five."""
    points = {method: _by_depth(cells, method) for method in (LAYERWISE, PROGRESSIVE)}
    if any(len(series) < 3 for series in points.values()):
        return None
    rises = all(series.is_monotonic_increasing and series.is_unique for series in points.values())
    value = "; ".join(
        f"{method} {', '.join(f'{point:.2f} (k={k})' for k, point in series.items())}"
        for method, series in points.items()
    )
    return rises and resources_rise_with_depth(), value


@training_claim("lwfedssl-table3-crossing", "table3")
def crossing(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """With one layer per stage and at least one other number."""
    rows = cells[cells["method"].isin([WHOLE, LAYERWISE])]
    rows = rows.assign(k=rows["layers_per_stage"].where(rows["method"] == LAYERWISE, 0).astype(int))
    means = _means(rows, "k")
    if not {0, 1} < {*means.index}:
        return None
    gains = means.drop(0) - means[0]
    value = f"above end-to-end by {listed(gains.rename(index='k={}'.format))}"
    return bool(gains[1] < 0 and (gains.drop(1) >= 0).all()), value


@training_claim("lwfedssl-table4-resnet", "table4")
def resnet(cells: pd.DataFrame) -> tuple[bool, str] | None:
    rows = cells[(cells["architecture"] == "ResNet-18") & cells["method"].isin(ROLES)]
    means = _means(rows, "method").reindex(ROLES)
    if means.isna().any():
        return None
    costs = [cost(method, architecture="ResNet-18", rounds=120) for method in (LAYERWISE, FULL, PROGRESSIVE)]
    lowest = all(
        costs[0].macs < cost.macs and costs[0].communication_bytes < cost.communication_bytes for cost in costs[1:]
    )
    return lowest and bool(means[WHOLE] < means[LAYERWISE] < means[PROGRESSIVE]), in_words(means)


# ------------------------------------------------------------------------------------------------------ table6: add-ons


def _add_ons(cells: pd.DataFrame, *add_ons: str) -> pd.DataFrame | None:
    """Mean points less those without add-on: rows LW-FedSSL and Prog-FedSSL, a column for each add-on."""
    rows = cells[cells["method"].isin(ROLES[1:]) & cells["add_on"].isin(["none", *add_ons])]
    means = _means(rows, "method", "add_on")
    if len(means) != 2 * (1 + len(add_ons)):
        return None
    table = means.unstack("add_on")
    return table[[*add_ons]].sub(table["none"], axis=0)


@training_claim("lwfedssl-table6-depth-dropout", "table6")
def depth_dropout(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (changes := _add_ons(cells, "depth dropout")) is None:
        return None
    pairs = {m: (cost(m, add_on="depth dropout"), cost(m)) for m in ROLES[1:]}
    flops = [round(dropped.macs / plain.macs, 2) for dropped, plain in pairs.values()]
    dropped, plain = pairs[PROGRESSIVE]
    traffic = round(dropped.communication_bytes / plain.communication_bytes, 2)
    memory = printed_cell("table6", "peak_memory", PROGRESSIVE, add_on="depth dropout")
    memory = round(memory / printed_cell("table6", "peak_memory", PROGRESSIVE, add_on="none"), 2)
    holds = (flops, memory, traffic) == ([0.80, 0.73], 0.60, 0.79)
    change = changes["depth dropout"]
    return holds and bool((change.abs() <= 0.6).all()), f"{listed(change)} points; GFLOPs x {flops[0]} and x {flops[1]}"


@training_claim("lwfedssl-table6-alignment", "table6")
def alignment(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (changes := _add_ons(cells, "proximal alignment", "representation alignment")) is None:
        return None
    proximal, representation = changes["proximal alignment"], changes["representation alignment"]
    holds = (proximal < 0).all() and representation[LAYERWISE] < 0 < representation[PROGRESSIVE]
    return bool(holds), f"proximal {listed(proximal)}; representation {listed(representation)}"


# -------------------------------------------------------------------------------- tables 7 and 8: partial participation


def _far_ahead(
    cells: pd.DataFrame, level: str, enough: Callable[[pd.Series], pd.Series], name: str
) -> tuple[bool, str] | None:
    """Whether LW-FedSSL is far enough above end-to-end, in points, and Prog-FedSSL above it, at all levels."""
    if (table := _levels(cells, level)) is None:
        return None
    above = table[LAYERWISE] - table[WHOLE]
    holds = enough(above).all() and (table[PROGRESSIVE] > table[LAYERWISE]).all()
    value = f"above {WHOLE} by {listed(above.rename(index=(name + '={:g}').format))}"
    return bool(holds), f"{value}; {PROGRESSIVE} {span(table[PROGRESSIVE] - table[LAYERWISE], '+.2f')} beyond"


@training_claim("lwfedssl-table7-partial-participation", "table7")
def partial_participation(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _far_ahead(cells, "participating", lambda above: above >= 10, "participating")


@training_claim("lwfedssl-table8-client-dropout", "table8")
def client_dropout(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _far_ahead(cells, "dropout_probability", lambda above: above > 9, "dropout")


@training_claim("lwfedssl-table7-8-robust", "table7", "table8")
def robust_to_participation(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """Two levels of each kind of participation: rows have either participating or dropout_probability."""
    kinds = [_levels(cells, name) for name in ("participating", "dropout_probability")]
    if any(table is None for table in kinds):
        return None
    spread = _spread(pd.concat(kinds))
    return bool((spread < 1).all()), f"{in_words(spread)} points between {sum(map(len, kinds))} settings"


def _spread(table: pd.DataFrame) -> pd.Series:
    return table.max() - table.min()


# --------------------------------------------------------------------------------------- tables 9 to 13: medical images


@training_claim("lwfedssl-table9-medical", "table9")
def medical(cells: pd.DataFrame) -> tuple[bool, str] | None:
    table = cells.pivot_table("points", "eval_dataset", "method").reindex(MEDICAL, columns=ROLES)
    if table.isna().any(axis=None):
        return None
    gains = table[LAYERWISE] - table[WHOLE]
    best, worst = table.idxmax(axis=1), table.idxmin(axis=1)
    holds = (gains > 0).all() and (best.drop("DermaMNIST") == PROGRESSIVE).all() and worst["DermaMNIST"] == PROGRESSIVE
    value = f"{LAYERWISE} above {WHOLE} by {listed(gains)}; best: "
    return bool(holds), value + ", ".join(f"{method} ({dataset})" for dataset, method in best.items())


def _in_order(table: pd.DataFrame) -> bool:
    return bool(((table[WHOLE] < table[LAYERWISE]) & (table[LAYERWISE] < table[PROGRESSIVE])).all())


@training_claim("lwfedssl-table11-input-size", "table11")
def input_size(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _levels(cells, "image_size")) is None:
        return None
    ratios = [input_ratios(size) for size in INPUTS]
    saved = all(round(flops, 2) == 0.24 and round(traffic, 2) in (0.19, 0.20) for flops, traffic in ratios)
    return saved and _in_order(table), _level_points(table, "px")


def _level_points(table: pd.DataFrame, name: str) -> str:
    return "; ".join(f"{name} {level:g}: {in_words(row)}" for level, row in table.iterrows())


def _order_and_spread(cells: pd.DataFrame, level: str, most: float) -> tuple[bool, str] | None:
    if (table := _levels(cells, level)) is None:
        return None
    spread = _spread(table)
    value = f"{_level_points(table, level)}; range {in_words(spread)}"
    return _in_order(table) and bool((spread < most).all()), value


@training_claim("lwfedssl-table12-batch-size", "table12")
def batch_size(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _order_and_spread(cells, "batch_size", 1.6)


@training_claim("lwfedssl-table13-heterogeneity", "table13")
def heterogeneity(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _order_and_spread(cells, "beta", 1.4)
