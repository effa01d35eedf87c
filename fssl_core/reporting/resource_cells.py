"""LW-FedSSL's printed resources beside our count: Tables 2, 3, 4, 5, 6, 10 and 11 (Tun et al., arXiv:2401.11647)."""

from typing import Any

import pandas as pd

from fssl_core.costs.layerwise import Resources, resources
from fssl_core.papers.reference import paper_table

UNITS = {
    "flops": ("GFLOPs", "gflops", 0),
    "communication": ("traffic, GB", "communication_gb", 2),
}  # name, ours, digits
MEMORY = "memory, GB (printed)"
NAMES = ("method", "ssl_method", "setting", "image_size", "patch_size", "layers_per_stage", "add_on")


def resources_of(row: Any, **changes: Any) -> Resources:
    """What the federation of a printed row costs a client, in closed form.

    Args:
        row: of a table from :func:`~fssl_core.papers.reference.paper_table`, with its columns as attributes.
        changes: arguments of :func:`~fssl_core.costs.layerwise.resources` that replace the row's.
    """
    settings = {
        "method": row.method,
        "ssl_method": row.ssl_method,
        "architecture": row.architecture,
        "image_size": int(row.image_size),
        "patch_size": int(getattr(row, "patch_size", 4)),
        "stages": None if pd.isna(row.stages) else int(row.stages),
        "rounds": int(row.rounds),
        "batch_size": int(row.batch_size),
        "add_on": getattr(row, "add_on", "none"),
        "worst_case": "worst case" in row.setting,
    }
    return resources(**settings | changes)


def beside_resources(table: str) -> pd.DataFrame:
    """A row for each federation of a table whose resources the paper prints: ours, and the printed cell in brackets.

    Args:
        table: for example ``"table2"``.

    Returns:
        All text: the columns of ``NAMES`` in which rows differ, GFLOPs and traffic as ``"139.41 (139)"``, with ``!=``
        where ours does not round to the printed digits, and the printed peak of memory, which no formula gives.
    """
    cells = paper_table("lwfedssl", table)
    cells = cells[cells["metric"].isin([*UNITS, "peak_memory"])]
    names = [name for name in NAMES if name in cells and (name == "method" or cells[name].nunique(dropna=False) > 1)]
    rows = []
    for key, row_cells in cells.groupby(names, sort=False, dropna=False):
        printed = row_cells.set_index("metric")["value"]
        ours = resources_of(next(row_cells.itertuples()))
        row = {name: _plain(value) for name, value in zip(names, key, strict=True)}
        for metric, (name, attribute, digits) in UNITS.items():
            value = getattr(ours, attribute)
            text = f"{value:.{digits + 2}f}"
            if metric in printed:
                unequal = " !=" if round(value, digits) != printed[metric] else ""
                text += f"{unequal} ({printed[metric]:.{digits}f})"
            row[name] = text
        row[MEMORY] = f"{printed['peak_memory']:.2f}" if "peak_memory" in printed else ""
        rows.append(row)
    return pd.DataFrame(rows)


def _plain(value: Any) -> Any:
    return "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else value
