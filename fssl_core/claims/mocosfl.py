"""Claims of MocoSFL (Li et al., ICLR 2023): each check restates the ``check`` text in ``mocosfl_claims.yaml``."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from fssl_core.claims.accuracies import in_points
from fssl_core.claims.estimation import Cells, NotRun
from fssl_core.claims.judge import Rule, claim
from fssl_core.claims.rules import (
    Outcome,
    across,
    ahead,
    any_of,
    doubted,
    equivalent,
    every,
    fact,
    ordered,
    with_each,
    within,
)
from fssl_core.federation.participation import auto_adjust
from fssl_core.papers.names import MIB, as_printed
from fssl_core.papers.reference import paper_table

SPLIT = ["MocoSFL-1", "MocoSFL-3"]
BY = ["method", "architecture", "dataset", "partition", "clients", "label_fraction"]
WEAK = "weak side"  # method of runs of which a claim says that they fail, so that they need not have learned


def _accuracies(value: str) -> Callable[[pd.DataFrame], Cells]:
    """Our accuracies in points under printed names; ``value``: the column, a fraction."""

    def ours(results: pd.DataFrame) -> Cells:
        if value not in results:
            raise NotRun(f"no {value} is recorded")
        return in_points(as_printed(results.dropna(subset=value)), [*BY, "syncs_per_epoch"], value)

    return ours


def _table_claim(id: str, table: str, *, scale: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for the accuracies of a printed table, the paper's and ours."""

    def printed() -> Cells:
        return Cells(as_printed(paper_table("mocosfl", table)), "value", BY, exact=True)

    value = "semi_supervised_accuracy" if table == "table4" else "linear_probe_accuracy"
    return claim(id, ours=_accuracies(value), printed=printed, scale=scale)


# -------------------------------------------------------------- fig1: batch, number of clients, negatives, components
# One frame; ``panel`` says which of the columns a row fills.


def _panel(results: pd.DataFrame, name: str) -> pd.DataFrame:
    rows = results[results["panel"] == name]
    if rows.empty:
        raise NotRun(f"needs panel {name}")
    return rows


def _knn(rows: pd.DataFrame, by: list[str], weak: pd.Series) -> Cells:
    """kNN accuracies in points; the column ``scheme`` has the method of all runs, also of the weak ones."""
    rows = rows.assign(scheme=rows["method"], method=rows["method"].mask(weak, WEAK))
    return in_points(rows, ["method", "scheme", *by], "knn_accuracy", failing=[WEAK])


@claim("mocosfl-fig1a-batch-size")
def batch_size(results: pd.DataFrame) -> Outcome:
    rows = _panel(results, "a")
    cells = _knn(rows, ["batch"], rows["batch"] == rows["batch"].min())
    batches = cells.levels("batch")
    if len(batches) < 2 or batches[-1] != 128:
        raise NotRun("needs batch 128 and a smaller one")
    drop = ahead(cells, [128], [batches[0]], each=["scheme"], by=10, column="batch")
    return every([drop, ordered(cells, "batch", each=["scheme"], slack=1)])


@claim("mocosfl-fig1b-client-count")
def client_count(results: pd.DataFrame) -> Outcome:
    rows = _panel(results, "b")
    rows = rows[rows["method"] == "FL-MoCoV2"]
    cells = _knn(rows, ["images_per_client"], rows["images_per_client"] == rows["images_per_client"].min())
    images = cells.levels("images_per_client")
    if len(images) < 2:
        raise NotRun("needs two numbers of clients")
    few, most = (cells.mean(images_per_client=count) for count in (images[0], images[-1]))
    name = f"{images[-1]:g} − {images[0]:g} images a client"
    parts = [within(cells, most - few, name, low=0.0, strict=True), ordered(cells, "images_per_client", slack=1)]
    if {500, 10_000} <= set(images) and set(rows["dataset"]) == {"cifar10"}:
        parts += [
            within(cells, cells.mean(images_per_client=500), "500 images a client", high=40),
            ahead(cells, [10_000], [500], by=30, column="images_per_client"),
        ]
    return every(parts)


@claim("mocosfl-fig1c-hard-negatives")
def hard_negatives(results: pd.DataFrame) -> Outcome:
    rows = _panel(results, "c")
    hard = rows["hard"].astype(bool)
    cells = _knn(rows, ["negatives"], ~hard)
    return ahead(
        cells, [*rows.loc[hard, "negatives"].unique()], [*rows.loc[~hard, "negatives"].unique()], column="negatives"
    )


@claim("mocosfl-fig2-components")
def components(results: pd.DataFrame) -> Outcome:
    rows = _panel(results, "components").set_index("component")
    counts = {
        "concatenation": "images in the server's batch",
        "queue": "clients whose keys the queue holds",
        "sync": "largest difference between client models after a sync",
    }
    if not set(counts) <= set(rows.index):
        raise NotRun(f"needs {', '.join(counts)}")
    expected = rows["expected"]
    return every(fact(text, rows["counted"][name], expected[name], expected[name]) for name, text in counts.items())


@claim("mocosfl-alg1-one-server-step")
def one_server_step(results: pd.DataFrame) -> Outcome:
    rows = _panel(results, "variants")
    if not {"SFL-V1", "SFL-V2"} <= set(rows["variant"]):
        raise NotRun("needs SFL-V1 and SFL-V2")
    expected = rows["clients"].where(rows["variant"] == "SFL-V2", 1)
    return every(
        fact(f"server updates a step, {row.variant} with {row.clients:g} clients", row.server_updates_per_step, n, n)
        for row, n in zip(rows.itertuples(), expected, strict=True)
    )


# -------------------------------------------------------------------------- fig3: divergence, and costs of a client


def _divergence(results: pd.DataFrame) -> Cells:
    """log2 of Eq. 4, since its noise grows with it; cut 0 stands for FL-SSL, which has no cut."""
    rows = results.dropna(subset="divergence")
    rows = rows.assign(doublings=np.log2(rows["divergence"]), cut_layer=rows["cut_layer"].fillna(0))
    by = ["method", "scheme", "cut_layer", "syncs_per_epoch"]
    return Cells(rows, "doublings", by, unit="doublings", accuracy="knn_accuracy")


@claim("mocosfl-fig3a-small-client-model-small-divergence", ours=_divergence)
def small_divergence(cells: Cells) -> Outcome:
    whole = cells.mean(scheme="FL-SSL")
    return every(
        within(part, whole - part.mean(), f"FL-SSL − MocoSFL, {where}", low=1.0)
        for cut in (1, 3)
        for where, part in cells.where(scheme="MocoSFL", cut_layer=cut).each("cut_layer", "syncs_per_epoch")
    )


@claim("mocosfl-fig3a-frequency-lowers-divergence", ours=_divergence)
def frequency_lowers_divergence(cells: Cells) -> Outcome:
    return every(
        ordered(cells.where(scheme="MocoSFL", cut_layer=cut), "syncs_per_epoch", [10, 5, 2, 1], each=["cut_layer"])
        for cut in (1, 3)
    )


def _costs(results: pd.DataFrame, norm: str) -> pd.DataFrame:
    """ResNet-18 at 32 pixels: the whole model and the part of cut 3, by scheme and batch."""
    rows = results[(results["architecture"] == "resnet18") & (results["image_size"] == 32) & (results["norm"] == norm)]
    rows = rows[(rows["scheme"] == "FL-SSL") | (rows["cut_layer"] == 3)].dropna(subset="forward_macs")
    return rows.set_index(["scheme", "batch"]).sort_index()


def _by_norm(results: pd.DataFrame, scheme: str, column: str) -> Iterable[tuple[str, float]]:
    """A number of one image, which no batch changes, for each norm that was counted."""
    for norm in ("group", "batch"):
        rows = _costs(results, norm)
        if scheme in rows.index:
            yield f"{norm} norm", rows.loc[scheme, column].iloc[0]


@claim("mocosfl-fig3b-flops-share")
def flops_share(results: pd.DataFrame) -> Outcome:
    return every(
        fact(f"multiply-adds of 3 layers / whole, {norm}", 100 * share, 13.4, 14.0, "percent")
        for norm, share in _by_norm(results, "MocoSFL", "share_of_whole")
    )


@claim("mocosfl-fig3b-flops-absolute")
def flops_absolute(results: pd.DataFrame) -> Outcome:
    facts = [
        fact(f"forward pass of one image, {norm}", macs / 1e6, 0.99 * 590.6, 1.01 * 590.6, "million multiply-adds")
        for norm, macs in _by_norm(results, "FL-SSL", "forward_macs")
    ]
    if not facts:
        raise NotRun("needs the costs of ResNet-18")
    return any_of(facts)


@claim("mocosfl-fig3b-memory-absolute")
def memory_absolute(results: pd.DataFrame) -> Outcome:
    facts = []
    for norm in ("group", "batch"):
        memory = _costs(results, norm)["memory_bytes"]
        if ("FL-SSL", 128) in memory.index:
            name = f"memory of FL-SSL at batch 128, {norm} norm"
            facts.append(fact(name, memory[("FL-SSL", 128)].mean() / 1e6, low=1100, unit="MB", strict=True))
    if not facts:
        raise NotRun("needs the memory of ResNet-18 at batch 128")
    found = any_of(facts)
    return found if found.answer() else doubted(found, "the count is a lower bound of the peak")


@claim("mocosfl-fig3b-memory-share")
def memory_share(results: pd.DataFrame) -> Outcome:
    return _memory_ratio(results, ("MocoSFL", 128), ("FL-SSL", 128), 0.15, 0.30)


@claim("mocosfl-fig3b-memory-288x")
def memory_288x(results: pd.DataFrame) -> Outcome:
    return _memory_ratio(results, ("FL-SSL", 128), ("MocoSFL", 1), 200, 400)


def _memory_ratio(results: pd.DataFrame, over: tuple, under: tuple, low: float, high: float) -> Outcome:
    """Of two rows (scheme, batch), with group norm as MocoSFL trains."""
    memory = _costs(results, "group")["memory_bytes"]
    if not {over, under} <= set(memory.index):
        raise NotRun("needs the memory of ResNet-18 at batch 128 and 1")
    first, second = (memory[row].mean() / MIB for row in (over, under))
    (scheme, batch), (other, small) = over, under
    name = f"memory of {scheme} at batch {batch} / {other} at {small} ({first:,.1f} / {second:,.1f} MiB)"
    return fact(name, first / second, low, high)


# ----------------------------------------------------------------------------------------------- hardness: Eq. 2 and 3


@claim("mocosfl-eq3-hardness")
def hardness_grows(results: pd.DataFrame) -> Outcome:
    rows = results.drop_duplicates(["batch", "memory", "eta", "gamma"]).sort_values(["batch", "memory"])
    whole = rows[rows["memory"] % rows["batch"] == 0]
    with_batch = whole.groupby(["eta", "gamma", "memory"])["hardness"].diff().dropna()
    with_memory = rows.groupby(["eta", "gamma", "batch"])["hardness"].diff().dropna()
    if with_batch.empty or with_memory.empty:
        raise NotRun("needs two batches and two sizes of the memory")
    error = (rows["hardness"] - rows["summed_hardness"]).abs() / rows["summed_hardness"].clip(lower=1)
    return every(
        [
            fact("largest difference of Eq. 3 and the sum", error.max(), high=1e-9),
            fact("least growth to the next batch that divides M", with_batch.min(), low=0.0, strict=True),
            fact("least growth to the next size of the memory", with_memory.min(), low=0.0),
        ]
    )


# ------------------------------------------------------------------- fig4: sync frequency, table1: few clients, table3


@claim("mocosfl-fig4-sync-frequency", ours=_accuracies("linear_probe_accuracy"))
def sync_frequency(cells: Cells) -> Outcome:
    part = cells.where(partition="non-IID")
    return every(across(part.where(method=name), "syncs_per_epoch", 1, 10, low=0.0, each=["method"]) for name in SPLIT)


@_table_claim("mocosfl-sec42-accuracy-gain", "table1", scale=True)
def accuracy_gain(cells: Cells) -> Outcome:
    columns = [part for _, part in cells.each("dataset", "clients") if not _is_exception(part)]
    return every(ahead(part, "MocoSFL-3", "FL-BYOL", each=["dataset", "clients"], by=2, upto=10) for part in columns)


def _is_exception(column: Cells) -> bool:
    """Section 5.1: better "despite on the CIFAR-100 dataset" with 5 clients."""
    return column.levels("dataset") == ["CIFAR-100"] and column.levels("clients") == [5]


@_table_claim("mocosfl-table1-beats-fl-byol", "table1")
def beats_fl_byol(cells: Cells) -> Outcome:
    parts = []
    for _, part in cells.each("dataset", "clients"):
        sides = ("FL-BYOL", SPLIT) if _is_exception(part) else (SPLIT, "FL-BYOL")
        parts.append(ahead(part, *sides, each=["dataset", "clients"]))
    return every(parts)


@_table_claim("mocosfl-table1-cut1-above-cut3", "table1")
def cut1_above_cut3(cells: Cells) -> Outcome:
    return ordered(cells, "method", ["MocoSFL-3", "MocoSFL-1"], each=["dataset", "clients"], slack=0.0)


@_table_claim("mocosfl-table3-resnet50-gain", "table3", scale=True)
def resnet50_gain(cells: Cells) -> Outcome:
    each = ["method", "clients", "partition"]
    larger, smaller = {"architecture": "ResNet-50"}, {"architecture": "ResNet-18"}
    gains = [part.difference(larger, smaller) for _, part in cells.each(*each)]
    mean = sum(gains[1:], gains[0]) * (1 / len(gains))
    in_each = ahead(cells, "ResNet-50", "ResNet-18", each=each, column="architecture")
    return every([within(cells, mean, "mean gain of ResNet-50", 2.5, 3.5), in_each])


# ----------------------------------------------------------------------------- table2: many clients, table4: few labels


@claim("mocosfl-autoadjust-constant-steps")
def constant_steps(_: pd.DataFrame) -> Outcome:
    """The rule as the engine has it, at the paper's sizes. Needs no result."""
    facts = []
    for clients in (100, 200, 1000):
        rule = auto_adjust(clients)
        steps = rule.steps_between_syncs(50_000, clients)
        facts += [
            fact(f"steps between syncs, {clients} clients", steps, 50, 50),
            fact(f"images a batch, {clients} clients", rule.client_batch, 1, 1),
        ]
    return every(facts)


@_table_claim("mocosfl-abs-1000-clients", "table2", scale=True)
def thousand_clients(cells: Cells) -> Outcome:
    part = cells.where(dataset="CIFAR-10", clients=1000, partition="non-IID")
    return every(within(part, part.mean(method=name), f"{name}, 1000 clients", low=84, strict=True) for name in SPLIT)


@_table_claim("mocosfl-table2-iid-flat", "table2")
def iid_flat(cells: Cells) -> Outcome:
    return equivalent(cells.where(partition="IID"), 1000, 100, 0.5, each=["method", "dataset"], column="clients")


@_table_claim("mocosfl-table2-noniid-drop", "table2", scale=True)
def noniid_drop(cells: Cells) -> Outcome:
    part = cells.where(partition="non-IID")
    return across(part, "clients", 100, 1000, low=-1.5, high=-0.5, each=["method", "dataset"])


@_table_claim("mocosfl-table2-divergence-direction", "table2")
def more_clients_cost(cells: Cells) -> Outcome:
    def cost(part: Cells) -> Outcome:
        return across(part, "clients", 1000, 100, low=0.0, each=["method", "dataset"])

    return with_each(cells.where(partition="non-IID"), "method", SPLIT, cost)


@_table_claim("mocosfl-table4-one-percent-gain", "table4", scale=True)
def one_percent_gain(cells: Cells) -> Outcome:
    part = cells.where(architecture="ResNet-18", dataset="CIFAR-10", clients=5, label_fraction=0.01)
    return ahead(part, SPLIT, "FL-BYOL", by=8, upto=12)


@_table_claim("mocosfl-table4-20-clients-dip", "table4")
def twenty_clients_dip(cells: Cells) -> Outcome:
    cells.where(clients=100)  # without them there is no dip
    return ahead(cells, [5, 100], [20], each=["method", "architecture", "label_fraction"], column="clients")
