"""Claims of MFCL (Motamedi and Kim, TMLR) on its figures, its scheme and its attacks as predicates on recorded results.

Each function restates the ``check`` text of its claim in ``mfcl_claims.yaml``; the columns that it reads stand above
it. Methods are named as the paper prints them: ``"MFCL(BN)"``, ``"MFCL(GN)"``, ``"MFCL(TN)"``; ``xi`` is the
concentration of the Dirichlet partition, ``missing`` the share (0 to 1) of clients that deliver no representations.
Values are means over seeds.
"""

from itertools import pairwise

import pandas as pd

from fssl_core.reporting.accuracy_claims import run_points
from fssl_core.reporting.predicate import in_words, predicate

NORMS = ["MFCL(BN)", "MFCL(GN)", "MFCL(TN)"]
BATCH, GROUP, TWIN = NORMS
ROUNDING = 1e-5  # of a few steps in single precision
SHAPE = 2.0  # points by which curves of similar shape may part
UNIFORM = 0.01  # total variation up to which labels are balanced

# --------------------------------------------------------------------------------------- architecture: the two phases
# Rows with property and value, several of a property where it has a value for each client. fig1: "client gradients in
# phase 2", how many parameters of the client module the loss of phase 2 leaves a gradient in, and "transfers of
# representations", in how many epochs of the ledger a client sends any, for each client. fig2: "views per image" in a
# batch of phase 1, "misplaced views" there (against all first views, then all second ones of the same images), "change
# of the client module" in phase 2 and "difference of representations" that phase 2 trains on to the frozen client
# module's output (largest absolute ones).


def _properties(results: pd.DataFrame, *names: str) -> pd.DataFrame | None:
    """Smallest and largest value of each, rows in the order of the names."""
    values = results.dropna(subset="property").groupby("property")["value"].agg(["min", "max"]).reindex([*names])
    return None if values.isna().any(axis=None) else values


@predicate("mfcl-fig1-schemes")
def one_transfer_no_gradient(results: pd.DataFrame) -> tuple[bool, str] | None:
    if (values := _properties(results, "client gradients in phase 2", "transfers of representations")) is None:
        return None
    gradients, least, most = values.iloc[0]["max"], *values.iloc[1]
    counts = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    return bool(gradients == 0 and least == most == 1), f"{gradients:g} gradients; {counts} transfer per client"


@predicate("mfcl-fig2-two-phases")
def batches_and_representations(results: pd.DataFrame) -> tuple[bool, str] | None:
    names = ["views per image", "misplaced views", "change of the client module", "difference of representations"]
    if (values := _properties(results, *names)) is None:
        return None
    views, most = values.loc["views per image"], values["max"]
    holds = (views == 2).all() and most["misplaced views"] == most["change of the client module"] == 0
    holds = holds and most["difference of representations"] <= ROUNDING
    return bool(holds), "; ".join(f"{name} {value:.3g}" for name, value in most.items())


# ---------------------------------------------------------------------------- fig3: what a normalisation pools together
# Rows with norm ("BN", "GN", "TN"), perturbed ("other sample", "twin view") and output_change, the largest absolute
# one of the maps of an unperturbed view.


@predicate("mfcl-fig3-normalization-sets")
def normalisation_sets(results: pd.DataFrame) -> tuple[bool, str] | None:
    changes = results.dropna(subset="perturbed").groupby(["norm", "perturbed"])["output_change"].max()
    moved = {("BN", "other sample"), ("TN", "twin view")}
    kept = {("GN", "other sample"), ("TN", "other sample"), ("GN", "twin view")}
    if not moved | kept <= {*changes.index}:
        return None
    holds = all(changes[key] > ROUNDING for key in moved) and all(changes[key] <= ROUNDING for key in kept)
    return holds, "; ".join(f"{norm}, {what}: {change:.2g}" for (norm, what), change in changes.items())


# ------------------------------------------------------------------------------------------------- fig4: saliency maps
# A row per map: method, client (1, 2), seed and rare_half_share, the share (0 to 1) of the absolute gradient of the
# input that lies on the half of the image with the client's rare class.


@predicate("mfcl-fig4-saliency")
def rare_class_is_seen(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = results.pivot_table("rare_half_share", "client", "method").reindex([1, 2], columns=[BATCH, TWIN])
    if table.isna().any(axis=None):
        return None
    value = "; ".join(f"client {c}: BN {row[BATCH]:.3f}, TN {row[TWIN]:.3f}" for c, row in table.iterrows())
    return bool((table[TWIN] > table[BATCH]).all()), f"share on the rare class, {value}"


# -------------------------------------------------------------------------------------------- fig6: balance, fig7: data
# fig6: rows with case ("a" to "e"), missing and total_variation (0 to 1), of the pooled labels to the uniform
# distribution. fig7: a row for each xi, seed, client and class with images, the client's number of that class.


@predicate("mfcl-fig6-balance-cases")
def balance_cases(results: pd.DataFrame) -> tuple[bool, str] | None:
    """With all clients: what the check says."""
    distances = results[results["missing"] == 0].groupby("case")["total_variation"].max().reindex([*"abcde"])
    if distances.isna().any():
        return None
    uniform = distances <= UNIFORM
    holds = uniform[["a", "c", "e"]].all() and not uniform[["b", "d"]].any()
    return bool(holds), "total variation " + in_words(distances, ".3f")


@predicate("mfcl-fig7-partitions")
def classes_of_a_client(results: pd.DataFrame) -> tuple[bool, str] | None:
    """ "About 2" is 1.5 to 2.5."""
    rows = results.dropna(subset="xi")
    sizes = rows.groupby(["xi", "seed", "client"])["images"].transform("sum")
    held = (rows["images"] >= 0.01 * sizes) & (rows["images"] > 0)
    classes = held.groupby([rows["xi"], rows["seed"], rows["client"]]).sum().groupby("xi").median()
    if not {0.01, 0.1, 200} <= {*classes.index}:
        return None
    holds = 1.5 <= classes[0.01] <= 2.5 and 4 <= classes[0.1] <= 5 and classes[200] == 10
    value = ", ".join(f"{count:g} (xi={xi:g})" for xi, count in classes.items())
    return bool(holds and classes.is_monotonic_increasing), f"median number of classes {value}"


# ------------------------------------------------------------------------------------------ fig8: clients that are lost
# A row per run: method, dataset, xi, missing, seed and accuracy (a fraction).


def _curves(results: pd.DataFrame, xi: float) -> pd.DataFrame | None:
    """Points: rows missing, from 0 on, a column for each norm; the mean over data sets that have them all."""
    runs = run_points(results)
    runs = runs[(runs["xi"] == xi) & runs["method"].isin(NORMS)]
    table = runs.pivot_table("points", "dataset", ["missing", "method"]).dropna().mean()
    if table.empty:
        return None
    table = table.unstack("method").reindex(columns=NORMS).dropna().sort_index()
    return table if len(table) >= 2 and table.index[0] == 0 else None


@predicate("mfcl-fig8a-client-loss-homogeneous")
def loss_of_clients_homogeneous(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Of similar shape are curves whose distance varies by ``SHAPE`` points or less."""
    if (table := _curves(results, 200)) is None:
        return None
    lead, apart = table[BATCH] - table[TWIN], table[TWIN] - table[GROUP]
    holds = lead.iloc[0] > 0 and lead.iloc[0] > lead.iloc[-1] and apart.max() - apart.min() <= SHAPE
    value = f"BN above TN by {lead.iloc[0]:+.2f}, with {table.index[-1]:.0%} missing {lead.iloc[-1]:+.2f}"
    return bool(holds), f"{value}; TN above GN by {apart.min():+.2f} to {apart.max():+.2f}"


@predicate("mfcl-fig8b-client-loss-heterogeneous")
def loss_of_clients_heterogeneous(results: pd.DataFrame) -> tuple[bool, str] | None:
    """At xi = 0.01, of the prose, and 0.1, of the caption: of those there are, each."""
    holds, parts = True, []
    for xi in (0.01, 0.1):
        if (table := _curves(results, xi)) is None:
            continue
        least = (table[TWIN] - table[[BATCH, GROUP]].max(axis=1)).min()
        holds &= bool(least >= 0)
        parts.append(f"xi={xi:g}: TN at least {least:+.2f} above the others, {len(table)} shares")
    return (holds, "; ".join(parts)) if parts else None


# --------------------------------------------------------------------------------------- fig9: clusters, table8: attack
# fig9: a row per run: method, seed, cluster_quality (silhouette, or k-NN purity on the plane) and separated_classes,
# how many classes stand apart there. table8: rows with case ("C1D0", "C1D1", "C0D0", "C0D1": C1 the servers collude,
# D1 DataMix) and mse of a reconstruction.


@predicate("mfcl-fig9-tsne")
def clusters(results: pd.DataFrame) -> tuple[bool, str] | None:
    table = results.groupby("method")[["cluster_quality", "separated_classes"]].mean().reindex(NORMS)
    if table.isna().any(axis=None):
        return None
    quality, separated = table["cluster_quality"], table["separated_classes"]
    holds = quality[BATCH] < quality[GROUP] < quality[TWIN] and separated[TWIN] >= separated[GROUP]
    value = ", ".join(f"{name} {quality[name]:.3f} and {separated[name]:g} classes" for name in NORMS)
    return bool(holds), f"cluster quality: {value}"


@predicate("mfcl-table8-attacks")
def attacks(results: pd.DataFrame) -> tuple[bool, str] | None:
    errors = results.dropna(subset="case").groupby("case")["mse"].mean().reindex(["C1D0", "C1D1", "C0D0", "C0D1"])
    if errors.isna().any():
        return None
    holds = errors["C1D0"] <= errors["C1D1"]
    holds &= all(errors[low] <= errors[high] for low, high in pairwise(["C1D0", "C0D0", "C0D1"]))
    return bool(holds), "mean squared error " + in_words(errors, ".4f")
