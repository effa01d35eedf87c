"""Claims of L-DAWA (Ur Rehman et al., ICCV 2023) on its tables as predicates, and its headline.

Each rule restates the ``check`` text of its claim in ``ldawa_claims.yaml``. As these claims have ``compute:
table_arithmetic``, the verdict is that of the rule on the paper's printed numbers, at every profile, and what it finds
on our runs stands beside it (:func:`fssl_core.reporting.accuracy_claims.table_claim`). Ours is "not run" at smoke and
without rows that the rule needs.

Our runs are rows with the columns method (as printed: ``"L-DAWA_FedAvg"``), ssl_method (``"SimCLR"``, ``"Barlow
Twins"``), dataset (that of the pre-training), eval_dataset, partition (``"dirichlet:0.1"``, ``"one-class"``), alpha,
local_epochs, clients, label_fraction, protocol and accuracy (a fraction), of which a rule reads those it names. They
are compared in points (100 x fraction), means over seeds first. A rule that lists settings needs all of them; one that
speaks of all columns of a table is judged on those there are, and says how many.
"""

from collections.abc import Iterable, Sequence
from itertools import product

import pandas as pd

from fssl_core.reporting.accuracy_claims import table_claim
from fssl_core.reporting.predicate import listed, predicate, signed, span
from fssl_core.reporting.reference import paper_table

BASELINES = ["FedAvg", "Loss", "FedU", "EUC"]
VARIANTS = ["L-DAWA", "L-DAWA_FedAvg", "L-DAWA_Loss", "L-DAWA_FedU"]
COMBINED = {"FedAvg": "L-DAWA_FedAvg", "Loss": "L-DAWA_Loss", "FedU": "L-DAWA_FedU"}
SSL = ["SimCLR", "Barlow Twins"]
CIFAR = ["CIFAR-10", "CIFAR-100"]
EPOCHS = [1, 5, 10]
PARTITIONS = ["one-class", "dirichlet:0.1"]
COLUMN = ["dataset", "ssl_method", "label_fraction"]  # of Table 2


def _table(cells: pd.DataFrame, index: list[str], methods: list[str], **needed: Sequence) -> pd.DataFrame | None:
    """Points: rows ``index`` that have all ``methods``, a column for each; means over the seeds.

    Of the levels ``needed`` only these values, which must come in all combinations: else None.
    """
    table = cells.pivot_table("points", index, "method").reindex(columns=methods).dropna()
    for level, values in needed.items():
        table = table[table.index.get_level_values(level).isin(values)]
    have = set(table.reset_index()[[*needed]].itertuples(index=False, name=None))
    return None if table.empty or not set(product(*needed.values())) <= have else table


def _gain(table: pd.DataFrame, above: list[str], below: list[str]) -> pd.Series:
    """The best of some methods over the best of others."""
    return table[above].max(axis=1) - table[below].max(axis=1)


def _equal(gains: pd.Series, stated: Iterable[float], digits: int = 2) -> bool:
    """Whether gains round to the stated numbers, which have as many digits."""
    return gains.round(digits).to_list() == list(stated)


# --------------------------------------------------------------------------------------------------- table1: ablation


def _ablation(cells: pd.DataFrame) -> pd.DataFrame | None:
    """Rows local_epochs and dataset, one column per method."""
    return _table(cells, ["local_epochs", "dataset"], ["FedAvg", "M-DAWA", "L-DAWA"], local_epochs=EPOCHS)


@table_claim("ldawa-table1-both-beat-fedavg", "table1")
def both_beat_fedavg(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _ablation(cells)) is None:
        return None
    gains = table[["M-DAWA", "L-DAWA"]].sub(table["FedAvg"], axis=0)
    value = ", ".join(f"{method} {span(gains[method], '+.2f')}" for method in gains)
    return bool((gains > 0).all(axis=None)), f"{value} above FedAvg"


@table_claim("ldawa-table1-ldawa-best-e1-e10", "table1")
def best_by_local_epochs(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _ablation(cells)) is None:
        return None
    best = table.idxmax(axis=1)
    expected = best.index.get_level_values("local_epochs").map({1: "L-DAWA", 5: "M-DAWA", 10: "L-DAWA"})
    return bool((best == expected).all()), ", ".join(f"E={epochs:g}: {name}" for (epochs, _), name in best.items())


@predicate("ldawa-table1-time-ratios")
def time_ratios(results: pd.DataFrame) -> tuple[bool, str] | None:
    """The printed ratios and the order in our benchmark: column aggregation_seconds, of one aggregation."""
    cells = paper_table("ldawa", "table1")
    stated = cells[cells["metric"] == "aggregation_time"].set_index("method")["value"]
    to_ldawa, to_fedavg = (round(stated["M-DAWA"] / stated[method]) for method in ("L-DAWA", "FedAvg"))
    methods = ["FedAvg", "L-DAWA", "M-DAWA"]
    ours = 1e3 * results.groupby("method")["aggregation_seconds"].mean().reindex(methods)
    if ours.isna().any():
        return None
    value = f"printed: M-DAWA takes {to_ldawa} x L-DAWA, {to_fedavg} x FedAvg; ours: "
    value += ", ".join(f"{method} {milliseconds:.3g} ms" for method, milliseconds in ours.items())
    return (to_ldawa, to_fedavg) == (60, 78) and ours.is_monotonic_increasing, value


# ------------------------------------------------------------------------------------------------ table2: cross-silo


@table_claim("ldawa-table2-headline-100", "table2")
def headline_all_labels(cells: pd.DataFrame) -> tuple[bool, str] | None:
    table = _table(cells, COLUMN, BASELINES + VARIANTS, dataset=CIFAR, ssl_method=SSL, label_fraction=[1.0])
    if table is None:
        return None
    gains = _gain(table, VARIANTS, BASELINES).groupby("dataset").max().loc[CIFAR]
    return _equal(gains, [5.21, 6.19]), listed(gains)


@table_claim("ldawa-table2-headline-semi", "table2")
def headline_few_labels(cells: pd.DataFrame) -> tuple[bool, str] | None:
    needed = {"dataset": CIFAR, "label_fraction": [0.01, 0.1]}
    table = _table(cells[cells["ssl_method"] == "SimCLR"], [*needed], BASELINES + VARIANTS, **needed)
    if table is None:
        return None
    gains = _gain(table, VARIANTS, BASELINES)
    return _equal(gains, [2.32, 3.38, 0.52, 2.62]), listed(gains)


@table_claim("ldawa-table2-all-settings", "table2")
def all_settings(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _table(cells, COLUMN, [*BASELINES, "L-DAWA"])) is None:
        return None
    gains = _gain(table, ["L-DAWA"], BASELINES)
    value = f"ahead in {(gains > 0).sum()} of {len(gains)} columns, least {listed(gains.nsmallest(1))}"
    return bool((gains > 0).all()), value


@table_claim("ldawa-table2-ssl-agnostic", "table2")
def ssl_agnostic(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _table(cells, COLUMN, BASELINES + VARIANTS, ssl_method=SSL)) is None:
        return None
    gains = _gain(table, VARIANTS, BASELINES).groupby("ssl_method").mean().loc[SSL]
    holds = (gains > 0).all() and 0.3 <= gains["SimCLR"] / gains["Barlow Twins"] <= 3
    return bool(holds), f"mean gain {listed(gains)}"


@table_claim("ldawa-table2-variant-ranking", "table2")
def variant_ranking(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _table(cells, COLUMN, VARIANTS, label_fraction=[1.0, 0.01])) is None:
        return None
    best = table.idxmax(axis=1)
    all_labels, few = (best.xs(fraction, level="label_fraction") for fraction in (1.0, 0.01))
    holds = all_labels.isin(["L-DAWA_Loss", "L-DAWA_FedU"]).all() and (few == "L-DAWA_FedAvg").all()
    parts = {"all labels": all_labels, "1 percent": few}
    value = "; ".join(
        f"{name}: " + ", ".join(f"{method} ({', '.join(column)})" for column, method in winners.items())
        for name, winners in parts.items()
    )
    return bool(holds), value


@table_claim("ldawa-table2-variants-beat-own-base", "table2")
def variants_beat_own_base(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _combined_above_base(cells, COLUMN)


def _combined_above_base(cells: pd.DataFrame, index: list[str], **needed: Sequence) -> tuple[bool, str] | None:
    if (table := _table(cells, index, [*COMBINED, *COMBINED.values()], **needed)) is None:
        return None
    gains = pd.concat([table[variant] - table[base] for base, variant in COMBINED.items()])
    value = f"ahead in {(gains > 0).sum()} of {len(gains)} comparisons, {span(gains, '+.2f')} points"
    return bool((gains > 0).all()), value


# ---------------------------------------------------------------------------------------------------- table3: fairness


def _by_partition(cells: pd.DataFrame, method: str, **needed: Sequence) -> pd.DataFrame | None:
    """Points of one method: rows ssl_method and local_epochs that have both partitions, a column for each."""
    table = _table(cells, ["ssl_method", "local_epochs", "partition"], [method], partition=PARTITIONS, **needed)
    return None if table is None else table[method].unstack("partition").dropna()


@table_claim("ldawa-table3-ldawa-wins", "table3")
def wins_on_both_partitions(cells: pd.DataFrame) -> tuple[bool, str] | None:
    index = ["ssl_method", "partition", "local_epochs"]
    return _above_fedavg(_table(cells, index, ["FedAvg", "L-DAWA"], partition=PARTITIONS))


def _above_fedavg(table: pd.DataFrame | None) -> tuple[bool, str] | None:
    if table is None:
        return None
    gains = table["L-DAWA"] - table["FedAvg"]
    return bool((gains > 0).all()), f"{span(gains, '+.2f')} points in {len(gains)} pairs"


@table_claim("ldawa-table3-fedavg-worse-single-class", "table3")
def fedavg_worse_on_one_class(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _by_partition(cells, "FedAvg")) is None:
        return None
    loss = table["dirichlet:0.1"] - table["one-class"]
    return bool((loss > 0).all()), f"{span(loss, '.2f')} points lost in {len(loss)} pairs"


@table_claim("ldawa-table3-ldawa-same-at-e5", "table3")
def same_at_five_epochs(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _by_partition(cells, "L-DAWA", ssl_method=SSL, local_epochs=[5])) is None:
        return None
    difference = (table["dirichlet:0.1"] - table["one-class"]).droplevel("local_epochs").loc[SSL]
    return bool((difference.abs() <= 2).all()), listed(difference)


# ----------------------------------------------------------------------------------------------- table4: heterogeneity


def _by_alpha(cells: pd.DataFrame) -> pd.DataFrame | None:
    needed = {"ssl_method": SSL, "alpha": [0.1, 0.2, 0.4, 0.6]}
    return _table(cells, [*needed], ["FedAvg", "L-DAWA"], **needed)


@table_claim("ldawa-table4-ldawa-wins-all-alphas", "table4")
def wins_at_all_alphas(cells: pd.DataFrame) -> tuple[bool, str] | None:
    table = _by_alpha(cells)
    if (outcome := _above_fedavg(table)) is None:
        return None
    gain = table["L-DAWA"]["SimCLR", 0.1] - table["FedAvg"]["SimCLR", 0.1]
    return bool(outcome[0] and round(gain, 2) == 9.37), f"{outcome[1]}, {signed(gain)} with SimCLR at alpha 0.1"


@table_claim("ldawa-table4-weak-trend", "table4")
def weak_trend(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (table := _by_alpha(cells)) is None:
        return None
    rows = table.unstack("alpha").stack("method", future_stack=True)  # ssl_method and method by alpha
    best = rows.xs("L-DAWA", level="method").idxmax(axis=1)
    rise = rows[0.6] - rows[0.1]
    value = f"{span(rise, '+.2f')} points from alpha 0.1 to 0.6; L-DAWA is best at "
    return bool((rise > 0).all() and (best == 0.2).all()), value + ", ".join(f"{a:g} ({s})" for s, a in best.items())


# ------------------------------------------------------------------- table5: Tiny ImageNet, table6: cross-device


def _tiny_imagenet(cells: pd.DataFrame) -> pd.Series | None:
    """Of L-DAWA, by local_epochs."""
    cells = cells[(cells["dataset"] == "Tiny ImageNet") & (cells["ssl_method"] == "SimCLR")]
    table = _table(cells, ["local_epochs"], ["FedAvg", "Loss", "FedU", "L-DAWA"], local_epochs=EPOCHS)
    return None if table is None else _gain(table, ["L-DAWA"], ["FedAvg", "Loss", "FedU"])


@table_claim("ldawa-table5-tiny-imagenet-gains", "table5")
def tiny_imagenet_gains(cells: pd.DataFrame) -> tuple[bool, str] | None:
    if (gains := _tiny_imagenet(cells)) is None:
        return None
    return _equal(gains, [6.25, 3.50, 4.35]), listed(gains.rename(index="E={:g}".format))


@table_claim("ldawa-table6-cross-device-gains", "table6")
def cross_device_gains(cells: pd.DataFrame) -> tuple[bool, str] | None:
    needed, baselines = {"ssl_method": SSL, "dataset": CIFAR}, ["FedAvg", "Loss", "FedU"]
    if (table := _table(cells, [*needed], baselines + VARIANTS, **needed)) is None:
        return None
    gains = _gain(table, VARIANTS, baselines).loc[[*product(SSL, CIFAR)]]
    return _equal(gains, [1.26, 0.25, 0.25, 0.85]), listed(gains)


# ---------------------------------------------------------------------------------------------------- table7: transfer


@table_claim("ldawa-table7-transfer-gains", "table7")
def transfer_gains(cells: pd.DataFrame) -> tuple[bool, str] | None:
    """With one digit, as the claim has them."""
    if (table := _transfer(cells, ["FedAvg", "L-DAWA"])) is None:
        return None
    gains = table["L-DAWA"] - table["FedAvg"]
    return _equal(gains, [4.4, 5.7], 1), listed(gains)


def _transfer(cells: pd.DataFrame, methods: list[str]) -> pd.DataFrame | None:
    return _table(cells[cells["dataset"] == "Tiny ImageNet"], ["eval_dataset"], methods, eval_dataset=CIFAR)


@table_claim("ldawa-table7-variants-boost", "table7")
def variants_transfer_better(cells: pd.DataFrame) -> tuple[bool, str] | None:
    return _combined_above_base(cells, ["dataset", "eval_dataset"], eval_dataset=CIFAR)


# ------------------------------------------------------------------------------------------------------------ headline
# Beside runs: rows of the two properties, with ``property`` ("metadata" or "identical clients"), method and
# ``largest_change``, that of a parameter of the new global model: from what it is with other sample counts and losses,
# or from the model that every client returned.


@table_claim("ldawa-abs-headline", "table2", "table5")
def headline(cells: pd.DataFrame) -> tuple[bool, str] | None:
    columns, tiny = headline_all_labels(cells), _tiny_imagenet(cells)
    if columns is None or tiny is None:
        return None
    holds, value = columns
    return holds and _equal(tiny, [6.25, 3.50, 4.35]), f"{value}, {signed(tiny.max())} (Tiny ImageNet)"


@predicate("ldawa-sec32-no-metadata")
def no_metadata(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _largest_change(results, "metadata", 0.0)


@predicate("ldawa-eq-identical-clients")
def identical_clients(results: pd.DataFrame) -> tuple[bool, str] | None:
    """With room for the rounding of a cosine in single precision."""
    return _largest_change(results, "identical clients", 1e-5)


def _largest_change(results: pd.DataFrame, name: str, most: float) -> tuple[bool, str] | None:
    """Of L-DAWA; what other rules do stands beside it."""
    rows = results[results["property"] == name]
    change = rows.groupby("method", sort=False)["largest_change"].max()
    if "L-DAWA" not in change:
        return None
    value = ", ".join(f"{method} {size:.1e}" if size else f"{method} 0" for method, size in change.items())
    return bool(change["L-DAWA"] <= most), f"largest change: {value}"
