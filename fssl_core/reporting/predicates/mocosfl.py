"""Claims of MocoSFL (Li et al., ICLR 2023) as predicates on recorded results.

Each function restates the ``check`` text of its claim in ``mocosfl_claims.yaml``. Accuracies come as fractions and
are compared in points (100 x fraction), means over seeds first. A claim with ``compute: table_arithmetic`` is about
the paper's own table: it is judged on the printed numbers, reads no result, and its value starts with "printed".
"""

from collections.abc import Sequence

import pandas as pd

from fssl_core.federation.participation import auto_adjust
from fssl_core.reporting.predicate import in_words, listed, predicate, signed, span
from fssl_core.reporting.reference import paper_table
from fssl_core.reporting.tables import MIB

# ------------------------------------------------------------- fig1: batch, number of clients, negatives, components
# One frame; ``panel`` ("a", "b", "c", "components", "variants") says which of the columns below a row fills.


@predicate("mocosfl-fig1a-batch-size")
def batch_size(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Panel a: method, batch (images of a client's step), knn_accuracy."""
    table = _points(results[results["panel"] == "a"], "knn_accuracy", "method", "batch")
    if 128 not in table or table.shape[1] < 2 or table.isna().any(axis=None):
        return None
    gain = table[128] - table.iloc[:, 0]
    falls = -table.diff(axis=1).min(axis=1)
    return bool(
        (gain >= 10).all() and (falls <= 1).all()
    ), f"{in_words(gain, '+.1f')} points from batch {table.columns[0]:g} to 128"


@predicate("mocosfl-fig1b-client-count")
def client_count(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Panel b: method, clients, images_per_client, knn_accuracy; one method."""
    rows = results[(results["panel"] == "b") & (results["method"] == "FL-MoCoV2")]
    accuracy = 100 * rows.groupby("images_per_client")["knn_accuracy"].mean()  # the fewest images, most clients, first
    if not {500, 10_000} <= set(accuracy.index):
        return None
    few, many = accuracy[500], accuracy[10_000]
    holds = accuracy.is_monotonic_increasing and few <= 40 and many - few >= 30
    return bool(holds), f"{many:.1f} % with 10,000 images a client, {few:.1f} % with 500"


@predicate("mocosfl-fig1c-hard-negatives")
def hard_negatives(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Panel c: negatives (what the queue holds), hard (fresh or many: True; few or easy: False), knn_accuracy."""
    rows = results[results["panel"] == "c"]
    accuracy = (100 * rows.groupby(["hard", "negatives"])["knn_accuracy"].mean()).reset_index()
    hard, easy = (accuracy[accuracy["hard"].astype(bool) == kind] for kind in (True, False))
    if hard.empty or easy.empty:
        return None
    value = ", ".join(f"{row.negatives} {row.knn_accuracy:.1f} %" for row in (*hard.itertuples(), *easy.itertuples()))
    return bool(hard["knn_accuracy"].min() > easy["knn_accuracy"].max()), value


@predicate("mocosfl-fig2-components")
def components(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Panel components: component, counted, expected.

    ``concatenation`` counts the images of a server's batch (expected: N x B), ``queue`` the clients whose keys it
    holds (N), ``sync`` the largest difference between client models after a sync (0).
    """
    rows = results[results["panel"] == "components"]
    if not {"concatenation", "queue", "sync"} <= set(rows["component"]):
        return None
    value = ", ".join(f"{row.component} {row.counted:g} of {row.expected:g}" for row in rows.itertuples())
    return bool((rows["counted"] == rows["expected"]).all()), value


@predicate("mocosfl-alg1-one-server-step")
def one_server_step(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Panel variants: variant, clients (that take part), server_updates_per_step (of a run's summary)."""
    rows = results[results["panel"] == "variants"]
    if not {"SFL-V1", "SFL-V2"} <= set(rows["variant"]):
        return None
    expected = rows["clients"].where(rows["variant"] == "SFL-V2", 1)
    value = ", ".join(
        f"{row.variant}: {row.server_updates_per_step:g} with {row.clients:g} clients" for row in rows.itertuples()
    )
    return bool((rows["server_updates_per_step"] == expected).all()), value


# ---------------------------------------------------------------------------- fig3: divergence, and cost of a client
# Rows of non-IID runs: scheme ("FL-SSL" or "MocoSFL"), cut_layer (missing for FL-SSL), syncs_per_epoch and
# divergence (Eq. 4). Rows of costs: as ``costs.compute_table`` gives them.


def _divergence(results: pd.DataFrame) -> pd.DataFrame:
    """Of MocoSFL: rows syncs_per_epoch, columns cut_layer."""
    return results[results["scheme"] == "MocoSFL"].pivot_table("divergence", "syncs_per_epoch", "cut_layer")


@predicate("mocosfl-fig3a-small-client-model-small-divergence")
def small_divergence(results: pd.DataFrame) -> tuple[bool, str] | None:
    """At every frequency that was run."""
    whole = results.loc[results["scheme"] == "FL-SSL", "divergence"].mean()
    table = _divergence(results)
    if pd.isna(whole) or not {1, 3} <= set(table.columns) or table.isna().any(axis=None):
        return None
    holds = (table[[1, 3]] < whole).all(axis=None) and (table.diff(axis=1).iloc[:, 1:] > 0).all(axis=None)
    value = ", ".join(f"{span(table[cut], '.3g')} at cut {cut:g}" for cut in table.columns)
    return bool(holds), f"{value}; FL-SSL {whole:.3g}"


@predicate("mocosfl-fig3a-frequency-lowers-divergence")
def frequency_lowers_divergence(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = _divergence(results).reindex(index=[1, 2, 5, 10], columns=[1, 3])
    if table.isna().any(axis=None):
        return None
    value = "; ".join(f"cut {cut}: " + ", ".join(f"{v:.3g}" for v in table[cut]) for cut in (1, 3))
    return bool((table.diff().iloc[1:] <= 0).all(axis=None)), f"{value} with 1, 2, 5, 10 syncs per epoch"


def _costs(results: pd.DataFrame, norm: str) -> pd.DataFrame:
    """ResNet-18 at 32 pixels: FL-SSL and MocoSFL-3, by scheme and batch."""
    rows = results[(results["architecture"] == "resnet18") & (results["image_size"] == 32) & (results["norm"] == norm)]
    return rows[(rows["scheme"] == "FL-SSL") | (rows["cut_layer"] == 3)].set_index(["scheme", "batch"]).sort_index()


def _by_norm(results: pd.DataFrame, scheme: str, column: str) -> dict[str, float]:
    """A quantity of one image, which no batch changes, for each norm that was counted."""
    rows = {norm: _costs(results, norm) for norm in ("group", "batch")}
    return {norm: part.loc[scheme, column].iloc[0] for norm, part in rows.items() if scheme in part.index}


@predicate("mocosfl-fig3b-flops-share")
def flops_share(results: pd.DataFrame) -> tuple[bool, str] | None:
    shares = _by_norm(results, "MocoSFL", "share_of_whole")
    if not shares:
        return None
    holds = all(0.134 <= round(share, 3) <= 0.140 for share in shares.values())
    return holds, ", ".join(f"{100 * share:.2f} % ({norm} norm)" for norm, share in shares.items())


@predicate("mocosfl-fig3b-flops-absolute")
def flops_absolute(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Within 1 percent; the reference notes that the authors' own calculator does not give the number."""
    macs = {norm: value / 1e6 for norm, value in _by_norm(results, "FL-SSL", "forward_macs").items()}
    if not macs:
        return None
    value = ", ".join(f"{count:.1f} ({norm} norm)" for norm, count in macs.items())
    holds = any(abs(count / 590.6 - 1) <= 0.01 for count in macs.values())
    return holds, f"{value} million multiply-adds; paper 590.6"


@predicate("mocosfl-fig3b-memory-share")
def memory_share(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _memory_ratio(results, ("MocoSFL", 128), ("FL-SSL", 128), 0.15, 0.30, ".3f")


@predicate("mocosfl-fig3b-memory-288x")
def memory_288x(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _memory_ratio(results, ("FL-SSL", 128), ("MocoSFL", 1), 200, 400, ".0f")


def _memory_ratio(
    results: pd.DataFrame, over: tuple[str, int], under: tuple[str, int], low: float, high: float, form: str
) -> tuple[bool, str] | None:
    """Of two rows (scheme, batch), with group norm as MocoSFL trains."""
    memory = _costs(results, "group")["memory_bytes"]
    if not {over, under} <= set(memory.index):
        return None
    first, second = memory[over].mean(), memory[under].mean()
    value = f"{first / MIB:,.1f} / {second / MIB:,.1f} MiB = {first / second:{form}}"
    return bool(low <= first / second <= high), value


# --------------------------------------------------------------------------------------------- hardness: Eq. 2 and 3


@predicate("mocosfl-eq3-hardness")
def hardness_grows(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Columns batch, memory, eta, gamma, hardness (Eq. 3) and summed_hardness (Eq. 2).

    Growth with the batch is judged where it divides the memory, so that the formula counts every key.
    """
    rows = results.drop_duplicates(["batch", "memory", "eta", "gamma"]).sort_values(["batch", "memory"])
    whole = rows[rows["memory"] % rows["batch"] == 0]
    with_batch, anywhere = (_steps(part, ["eta", "gamma", "memory"]) for part in (whole, rows))
    with_memory = _steps(rows, ["eta", "gamma", "batch"])
    if with_batch.empty or with_memory.empty:
        return None
    error = (rows["hardness"] - rows["summed_hardness"]).abs() / rows["summed_hardness"].clip(lower=1)
    value = f"largest difference {error.max():.0e}; a larger batch gives more in {(with_batch > 0).mean():.0%} of steps"
    value += f" between divisors of M, in {(anywhere > 0).mean():.0%} between any batches"
    return bool(error.max() <= 1e-9 and (with_batch > 0).all() and (with_memory >= 0).all()), value


def _steps(rows: pd.DataFrame, fixed: Sequence[str]) -> pd.Series:
    """How hardness changes from one row to the next, with these columns fixed."""
    return rows.groupby(list(fixed))["hardness"].diff().dropna()


# ------------------------------------------------------------------------------------------------ fig4: sync frequency


@predicate("mocosfl-fig4-sync-frequency")
def sync_frequency(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Columns partition, cut_layer, syncs_per_epoch and linear_probe_accuracy."""
    table = _points(results[results["partition"] != "iid"], "linear_probe_accuracy", "cut_layer", "syncs_per_epoch")
    table = table.reindex(index=[1, 3], columns=[1, 10])
    if table.isna().any(axis=None):
        return None
    gain = table[10] - table[1]
    value = ", ".join(f"cut {cut}: {signed(gain[cut], 1)}" for cut in gain.index)
    return bool((gain > 0).all()), f"{value} points from 1 to 10 syncs per epoch"


# ----------------------------------------------------------------------------------------------- table1: cross-silo


def _printed(table: str, columns: Sequence[str], index: Sequence[str]) -> pd.DataFrame:
    """A table of the paper in points, rows ``index``, one column for each value of ``columns``."""
    cells = paper_table("mocosfl", table)
    return cells.pivot(index=list(index), columns=list(columns), values="value")


def _gaps_to_byol() -> pd.DataFrame:
    """Rows data set and clients; columns MocoSFL-1 and MocoSFL-3, points above FL-BYOL."""
    table = _printed("table1", ["method"], ["dataset", "clients"])
    return table[["MocoSFL-1", "MocoSFL-3"]].sub(table["FL-BYOL"], axis=0)


@predicate("mocosfl-sec42-accuracy-gain")
def accuracy_gain(_: pd.DataFrame) -> tuple[bool, str]:
    gap = _gaps_to_byol()["MocoSFL-3"]
    return bool(gap.between(2, 10).all()), f"printed, MocoSFL-3 - FL-BYOL: {listed(gap)}"


@predicate("mocosfl-table1-beats-fl-byol")
def beats_fl_byol(_: pd.DataFrame) -> tuple[bool, str]:
    gaps = _gaps_to_byol()
    exception = ("CIFAR-100", 5)
    holds = (gaps.drop(index=exception) > 0).all(axis=None) and (gaps.loc[exception] < 0).all()
    return bool(holds), f"printed, MocoSFL-1 - FL-BYOL: {listed(gaps['MocoSFL-1'])}"


@predicate("mocosfl-table1-cut1-above-cut3")
def cut1_above_cut3(_: pd.DataFrame) -> tuple[bool, str]:
    table = _printed("table1", ["method"], ["dataset", "clients"])
    gap = table["MocoSFL-1"] - table["MocoSFL-3"]
    return bool((gap >= 0).all()), f"printed, MocoSFL-1 - MocoSFL-3: {listed(gap)}"


# -------------------------------------------------------------------------------------------- table2: cross-client


@predicate("mocosfl-autoadjust-constant-steps")
def constant_steps(_: pd.DataFrame) -> tuple[bool, str]:
    """The rule as the engine has it, at the paper's sizes. Needs no result."""
    rules = {clients: auto_adjust(clients) for clients in (100, 200, 1000)}
    steps = {clients: rule.steps_between_syncs(50_000, clients) for clients, rule in rules.items()}
    value = ", ".join(f"{clients} clients: {count}" for clients, count in steps.items())
    return set(steps.values()) == {50} and all(rule.client_batch == 1 for rule in rules.values()), value


@predicate("mocosfl-abs-1000-clients")
def thousand_clients(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Columns dataset, official_data, clients, partition, cut_layer and linear_probe_accuracy; CIFAR-10 only."""
    rows = results[(results["dataset"] == "cifar10") & results["official_data"].astype(bool)]
    rows = rows[(rows["clients"] == 1000) & (rows["partition"] != "iid")]
    accuracy = 100 * rows.groupby("cut_layer")["linear_probe_accuracy"].mean().reindex([1, 3])
    if accuracy.isna().any():
        return None
    return bool((accuracy > 84).all()), f"{accuracy[1]:.2f} % at cut 1, {accuracy[3]:.2f} % at cut 3"


def _cross_client(partition: str) -> pd.DataFrame:
    """Printed accuracies of one partition: rows method and data set, a column for each number of clients."""
    return _printed("table2", ["clients"], ["partition", "method", "dataset"]).loc[partition]


@predicate("mocosfl-table2-iid-flat")
def iid_flat(_: pd.DataFrame) -> tuple[bool, str]:
    table = _cross_client("iid")
    change = table[1000] - table[100]
    return bool((change.abs() <= 0.5).all()), f"printed, 1000 - 100 clients: {listed(change)}"


@predicate("mocosfl-table2-noniid-drop")
def noniid_drop(_: pd.DataFrame) -> tuple[bool, str]:
    """A drop that rounds to 1 point is about 1."""
    table = _cross_client("non_iid_class")
    drop = table[100] - table[1000]
    return bool((drop.round() == 1).all()), f"printed, 100 - 1000 clients: {listed(drop)}"


@predicate("mocosfl-table2-divergence-direction")
def more_clients_cost(_: pd.DataFrame) -> tuple[bool, str]:
    table = _cross_client("non_iid_class")
    drop = table[100] - table[1000]
    return bool((drop > 0).all()), f"printed, 100 - 1000 clients: {span(drop, '+.2f')} points"


# ------------------------------------------------------------------------------------------------ table3: ResNet-50


@predicate("mocosfl-table3-resnet50-gain")
def resnet50_gain(_: pd.DataFrame) -> tuple[bool, str]:
    table = _printed("table3", ["architecture"], ["method", "clients", "partition"])
    gain = table["ResNet-50"] - table["ResNet-18"]
    holds = len(gain) == 12 and gain.between(2, 5).all() and 3 <= gain.mean() <= 3.6
    return bool(holds), f"printed: {span(gain, '+.2f')} points in {len(gain)} pairs, mean {signed(gain.mean())}"


# --------------------------------------------------------------------------------------------- table4: few labels


@predicate("mocosfl-table4-one-percent-gain")
def one_percent_gain(_: pd.DataFrame) -> tuple[bool, str]:
    table = _printed("table4", ["method"], ["architecture", "clients", "label_fraction"])
    row = table.loc[("ResNet-18", 5, 0.01)]
    gain = row[["MocoSFL-1", "MocoSFL-3"]] - row["FL-BYOL"]
    return bool(gain.between(9, 12).all()), f"printed, above FL-BYOL: {in_words(gain, '+.2f')} points"


@predicate("mocosfl-table4-20-clients-dip")
def twenty_clients_dip(_: pd.DataFrame) -> tuple[bool, str]:
    table = _printed("table4", ["clients"], ["method", "architecture", "label_fraction"]).dropna()
    dip = table[[5, 100]].min(axis=1) - table[20]
    return bool((dip > 0).all()), f"printed: 20 clients {span(dip, '.2f')} points below both in {len(dip)} cases"


# ---------------------------------------------------------------------------------------------------------- helpers


def _points(rows: pd.DataFrame, value: str, index: str, columns: str) -> pd.DataFrame:
    """Mean accuracy over seeds in points; columns in ascending order."""
    return 100 * rows.pivot_table(value, index, columns)
