"""Runs and printed cells under one set of columns, so that they can be matched, judged and drawn together.

For papers whose tables compare federated methods by what a probe finds on their models: L-DAWA and the works after it.
"""

import pandas as pd

from fssl_core.experiments.profiles import SSL_METHODS
from fssl_core.reporting.reference import paper_table
from fssl_core.training.averaging import method_name

_PREFIX = "pretraining."
_SSL_NAMES = {name: printed for printed, name in SSL_METHODS.items()}


def run_cells(results: pd.DataFrame) -> pd.DataFrame:
    """Linear probes of federated averaging, a row each.

    Args:
        results: what ``run_all`` gave for ``ProbeSettings`` on top of ``AveragingSettings``.

    Returns:
        The columns method and ssl_method (as the tables print them), dataset (of the pre-training), eval_dataset,
        partition, alpha (None where it is not Dirichlet's), local_epochs, rounds, clients, label_fraction, seed,
        protocol, accuracy (a fraction), official_data and key.
    """
    own = results.filter(like=_PREFIX).rename(columns=lambda name: name.removeprefix(_PREFIX))
    scheme = own["partition"].str.split(":")
    dirichlet = scheme.str[0] == "dirichlet"
    rules = own[["aggregation", "client_update.name", "proximal"]].itertuples(index=False, name=None)
    return pd.DataFrame(
        {
            "method": [method_name(*rule) for rule in rules],
            "ssl_method": own["objective.name"].replace(_SSL_NAMES),
            "dataset": own["dataset"],
            "eval_dataset": results["dataset"].fillna(own["dataset"]),
            "partition": own["partition"].mask(dirichlet, scheme.str[:2].str.join(":")),
            "alpha": pd.to_numeric(scheme.str[1].where(dirichlet)),
            **{name: own[name] for name in ("local_epochs", "rounds", "clients")},
            "label_fraction": results["label_fraction"],
            "seed": own["seed"],
            "protocol": "linear probe, " + results["features"],
            "accuracy": results["linear_probe_accuracy"],
            "official_data": results["official_data"],
            "key": results["key"],
        }
    )


def printed_cells(paper: str, table: str) -> pd.DataFrame:
    """The accuracies of a paper's table, in percent, under the columns of :func:`run_cells`."""
    cells = paper_table(paper, table).rename(columns={"pretrain_dataset": "dataset"})
    cells = cells[cells["metric"] == "linear_probe_accuracy"]
    partition = cells["partition"].replace("single_class_per_client", "one-class")
    return cells.assign(partition=partition.mask(partition == "dirichlet", "dirichlet:" + cells["alpha"].astype(str)))
