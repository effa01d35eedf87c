import pandas as pd

from fssl_core.experiments import ldawa_settings
from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.ldawa.fig4 import layers
from tests.notebooks.prose.recorded import behind_by, comparisons, record, rows, verdict

DIRICHLET = "dirichlet:0.1"
PARTS = {"first": r"encoder\.\d+\.stem\.0\.weight", "all": r"encoder\..*\.0\.weight", "shifts": r"encoder\..*\.1\.bias"}


def of_part(pattern: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Norm and mean cosine of some layers together in Figure 4's runs with SimCLR: means over seeds by round."""
    table = rows(layers(), ssl_method="SimCLR")
    runs = table[table.layer.str.fullmatch(pattern)].groupby(["method", "seed", "round"])
    norm = runs.norm.agg(lambda norms: (norms**2).sum() ** 0.5).groupby(["round", "method"]).mean()
    return norm.unstack(), runs.cosine.mean().groupby(["round", "method"]).mean().unstack()


def numbers():
    ours = 100 * record("ldawa/table3").pivot_table("accuracy", ["ssl_method", "partition", "seed"], "method")
    behind, after = (ours["FedAvg"] - ours[method] for method in ("L-DAWA", "L-DAWA after FedAvg"))
    barlow = comparisons("ldawa-table3-ldawa-wins", "the paper")[3]
    simclr = comparisons("ldawa-table3-ldawa-wins", "the authors")[1]
    means = ours.groupby(["ssl_method", "partition"]).mean().loc["SimCLR"]
    norm, cosine = of_part(PARTS["first"])
    whole, shifts = of_part(PARTS["all"])[0], of_part(PARTS["shifts"])[0]
    stated = ldawa_settings("laptop", method="FedAvg", ssl_method="Barlow Twins")
    printed = rows(printed_cells("ldawa", "table3"), method="FedAvg")
    printed = printed.pivot_table("value", ["ssl_method", "local_epochs"], "partition")
    harder = printed[DIRICHLET] - printed["one-class"]
    rules = 100 * record("ldawa/beyond_aggregation").groupby("method").accuracy.mean()
    cell = ["ssl_method", "local_epochs", "partition", "method"]
    recorded = 100 * record("ldawa/table3", "workstation").groupby(cell).accuracy.mean()
    real, five, twins = recorded["SimCLR", 2], recorded["SimCLR", 5], recorded["Barlow Twins", 2]
    same = verdict("ldawa-table3-ldawa-same-at-e5", "the paper", "workstation")
    single, mixed = comparisons("ldawa-table3-ldawa-wins", "the paper", "workstation")
    single_after, mixed_after = comparisons("ldawa-table3-ldawa-wins", "the authors", "workstation")
    fairer = comparisons("ldawa-table3-more-fair", "the paper", "workstation")[0]
    worse = comparisons("ldawa-table3-fedavg-worse-single-class", profile="workstation")[0]
    return {
        "1.4 points behind FedAvg": -mixed.value,
        "of 0.5 to 2.3 at the 97.5 %": (*behind_by(mixed, 0.975)[1:], 97.5),
        "0.0 points behind, from 0.6 ahead to 0.6 behind": [abs(part) for part in behind_by(single)],
        "behind, at 44.4 %": real["one-class"]["L-DAWA"],
        "0.4 points behind with one class each, 0.8 behind": (-single_after.value, -mixed_after.value),
        "by 2.9 points with an interval of 1.5 to 4.2": (worse.value, *worse.interval()),
        "has 43.2 % with one class each and 42.1 on": [twins[name]["FedAvg"] for name in ("one-class", DIRICHLET)],
        "SimCLR loses 1.4 points": real[DIRICHLET]["L-DAWA"] - real["one-class"]["L-DAWA"],
        "1.4 fewer than FedAvg (0.6 to 2.2)": (fairer.value, *fairer.interval()),
        "45.0 % with one class each, 45.7 % on": [five[name]["L-DAWA"] for name in ("one-class", DIRICHLET)],
        "0.6 below to 2.0 above zero": (-same.low, same.high),
        "which has 41.2 %": 100 * record("ldawa/table3", "workstation").untrained.mean(),
        "8.3, 10.2 and 8.2 points": [*behind["SimCLR", DIRICHLET]],
        "6.8, 5.7 and 1.4": [*behind["SimCLR", "one-class"]],
        "3.2, 7.9 and 13.8 points": [*behind["Barlow Twins", "one-class"]],
        "from 17.5 ahead to 43.9 behind": [abs(bound) for bound in behind_by(barlow)[1:]],
        "24 to 29 %": 100 * record("ldawa/table3").untrained.max(),
        "is 1.1 points ahead": -after.loc["SimCLR", "one-class"].mean(),
        "SimCLR by 3.7 points, from 2.6 ahead to 10.0 behind": [abs(part) for part in behind_by(simclr)],
        "by 12.0 points in the mean": means["FedAvg"][DIRICHLET] - means["FedAvg"]["one-class"],
        "49.9 and 57.6 %": [*means["L-DAWA"][["one-class", DIRICHLET]]],
        "cosine is 0.47": cosine["L-DAWA"][1],
        "a norm of 2.41": norm["FedAvg"][1],
        "with 0.83. From": norm["L-DAWA"][1],
        "cosine is 0.98 in round 2": cosine["FedAvg"][2],
        "it is 0.70, and 0.42 in": [*cosine["L-DAWA"][[2, 10]]],
        "a norm of 0.31 instead of 2.73": [*norm.loc[10][["L-DAWA", "FedAvg"]]],
        "norm is 0.15, under FedAvg 0.61": [*shifts.loc[10][["L-DAWA", "FedAvg"]]],
        "21.1 instead of 24.6": [*whole.loc[10][["L-DAWA", "FedAvg"]]],
        "(0.003)": stated.learning_rate,
        "(0.1) than": stated.objective.redundancy_weight,
        "by 1.70 to 5.36 points": (harder.min(), harder.max()),
        "has 63.0 %": rules["uniform"],
        "63.8,": rules["L-DAWA normalised"],
        "55.7 and": rules["shrinking only"],
        "together, 56.3. FedAvg has 66.3": [*rules[["L-DAWA", "FedAvg"]]],
        "norm is 0.31 under L-DAWA and 2.73 under FedAvg": [*norm.loc[10][["L-DAWA", "FedAvg"]]],
    }
