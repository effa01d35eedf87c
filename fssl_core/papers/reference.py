"""The papers' own numbers, settings and claims, as the package data in ``fssl_core/papers/data`` state them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import pandas as pd
import yaml

from fssl_core.errors import DataError, SettingError
from fssl_core.settings import check_choice

COMPUTE = ("analytic", "table_arithmetic", "untrained", "toy", "training")


@dataclass(frozen=True)
class Paper:
    """What a title line needs: full title, where it appeared, and the short citation."""

    title: str
    venue: str
    citation: str


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, in our words, that a notebook can test.

    Args:
        id: unique name, starting with the paper's key.
        artifact: the notebook that shows it, without the key, e.g. ``"fig6"``.
        claim: the statement.
        check: what decides it.
        settings: the settings it is about.
        compute: what a verdict needs, one of :data:`COMPUTE`.
        source_check: what checking it against formulas, tables or the authors' code showed.
    """

    id: str
    artifact: str
    claim: str
    check: str
    settings: Mapping[str, Any] = field(hash=False)
    compute: str
    source_check: str = ""


PAPERS: dict[str, Paper] = {
    "mocosfl": Paper(
        "MocoSFL: enabling cross-client collaborative self-supervised learning", "ICLR 2023", "Li et al., 2023"
    ),
    "monacosfl": Paper(
        "A deep cut into Split Federated Self-supervised Learning", "ECML PKDD 2024", "Przewięźlikowski et al., 2024"
    ),
    "ldawa": Paper(
        "L-DAWA: Layer-wise Divergence Aware Weight Aggregation in Federated Self-Supervised Visual "
        "Representation Learning",
        "ICCV 2023",
        "Rehman et al., 2023",
    ),
    "lwfedssl": Paper(
        "LW-FedSSL: Resource-efficient Layer-wise Federated Self-supervised Learning",
        "arXiv:2401.11647",
        "Tun et al., 2024",
    ),
    "mfcl": Paper(
        "Modular Federated Contrastive Learning with Twin Normalization for Resource-limited Clients",
        "TMLR",
        "Motamedi and Kim, TMLR",
    ),
}

WORKS: dict[str, Paper] = PAPERS | {  # what has notebooks of figures and tables
    "benchmark": Paper("One table: every method under one protocol", "", "no paper, but a comparison of our own"),
}


def paper_table(key: str, table: str) -> pd.DataFrame:
    """A table of a paper in long format, one printed cell per row.

    Args:
        key: the paper, one of :data:`PAPERS`.
        table: e.g. ``"table2"``.

    Returns:
        Columns as in ``<key>_<table>.csv``; ``value`` is what the paper prints, in the row's ``unit``
        (so accuracies are in percent here, unlike ours).

    Raises:
        SettingError: if the paper has no such table; the message lists those it has.
    """
    check_choice("paper", key, PAPERS)
    prefix, suffix = f"{key}_table", ".csv"
    names = [file.name for file in _folder().iterdir()]
    numbers = [name[len(prefix) : -len(suffix)] for name in names if name.startswith(prefix) and name.endswith(suffix)]
    available = [f"table{number}" for number in sorted(numbers, key=int)]
    if table not in available:
        raise SettingError(
            "table", table, f"one of {', '.join(available)}" if available else "none: it prints no table"
        )
    with (_folder() / f"{key}_{table}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def paper_value(key: str, table: str, metric: str, method: str, **where: Any) -> float:
    """One printed number of a table: of this metric and method, in the cell that has these values in its columns."""
    cells = paper_table(key, table)
    for name, value in {"metric": metric, "method": method, **where}.items():
        cells = cells[cells[name] == value]
    return float(cells["value"].item())


_OURS = {  # by paper: a column of its tables, and the like one of our runs' cells
    "ldawa": {"pretrain_dataset": "dataset"},
    "lwfedssl": {"pretrain_dataset": "dataset", "dataset": "eval_dataset"},
    "mfcl": {"cut_layer": "cut", "batch_size_k": "K"},
}


def printed_cells(paper: str, table: str, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """What a paper's table prints, under the columns of our runs' cells, a row each.

    Args:
        paper: ``"ldawa"``, ``"lwfedssl"`` or ``"mfcl"``.
        table: for example ``"table2"``.
        metrics: those of the column metric that are wanted; None: the accuracies, whatever the paper calls them.

    Returns:
        The columns of :func:`paper_table`, so accuracies are in percent; methods have
        their norm in their name, as in ``"MFCL(TN)"``. Averages over data sets are no cells of their own: left out.
    """
    check_choice("paper", paper, _OURS)
    cells = paper_table(paper, table).rename(columns=_OURS[paper])
    cells = cells[cells["metric"].isin(metrics) if metrics else cells["metric"].str.endswith("accuracy")]
    if "eval_dataset" in cells:
        cells = cells[cells["eval_dataset"] != "average"]
    if "normalization" in cells:
        cells = cells.assign(method=cells["method"] + ("(" + cells["normalization"] + ")").fillna(""))
    if "alpha" in cells:
        partition = cells["partition"].replace("single_class_per_client", "one-class")
        dirichlet = "dirichlet:" + cells["alpha"].astype(str).str.removesuffix(".0")  # as a Scheme is written
        cells = cells.assign(partition=partition.mask(partition == "dirichlet", dirichlet))
    return cells


def paper_settings(key: str) -> dict[str, Any]:
    """A paper's settings: what it states, what it leaves open with our default, and what the authors' code does."""
    return _yaml(key, "settings")


def paper_claims(key: str) -> list[Claim]:
    """The testable claims of a paper, in the order of its claims file; none of a work that is no paper.

    Raises:
        DataError: an entry has a field too many or too few, or says of none of :data:`COMPUTE` that it needs it.
    """
    if key in WORKS and key not in PAPERS:
        return []
    claims = []
    for entry in _yaml(key, "claims")["claims"]:
        try:
            claims.append(Claim(**entry))
        except TypeError as error:  # a field too many or too few
            raise DataError(f"{key}_claims.yaml, {entry.get('id')}: {error}.") from error
        if claims[-1].compute not in COMPUTE:
            expected = f"compute has to be one of {', '.join(COMPUTE)}"
            raise DataError(f"{key}_claims.yaml, {claims[-1].id}: {expected}, not {claims[-1].compute!r}.")
    return claims


def _folder() -> Traversable:
    return resources.files("fssl_core.papers").joinpath("data")


def _yaml(key: str, what: str) -> dict[str, Any]:
    check_choice("paper", key, PAPERS)
    try:
        return yaml.safe_load((_folder() / f"{key}_{what}.yaml").read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise DataError(f"{key}_{what}.yaml is no YAML: {error}") from error
