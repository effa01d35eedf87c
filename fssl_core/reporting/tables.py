"""Tables for readers: our numbers beside the paper's, and any table shown plainly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fssl_core.errors import SettingError
from fssl_core.papers.names import as_printed
from fssl_core.settings import check_choice

NOT_RUN = "not run"


@dataclass(frozen=True)
class Quantity:
    """One number of ours and the paper's value of it.

    Args:
        name: what it is, with its setting, e.g. ``"linear probe, cut 11, MonAcoSFL"``.
        ours: a value, one per seed, or None when not run. NaNs count as not run.
        paper: the paper's value in the same unit as ours, or None when the paper states none.
        unit: ``"%"`` for fractions, which are shown as percent; any other unit is written as it is.
        protocol: how ours was measured.
        digits: digits after the point.
    """

    name: str
    ours: float | Sequence[float] | None
    paper: float | None = None
    unit: str = ""
    protocol: str = ""
    digits: int = 1


def beside_paper(quantities: Iterable[Quantity], *, profile: str) -> pd.DataFrame:
    """Our values beside the paper's.

    Returns:
        One row per quantity, all text, with the columns quantity, ours (mean ± sample standard deviation over seeds,
        with their number), paper, difference (ours - paper; percent differ by points), protocol, profile.
    """
    rows = []
    for quantity in quantities:
        values = _values(quantity.ours)
        if len(values) == 0:
            ours = NOT_RUN
        elif len(values) == 1:
            ours = _number(values[0], quantity) + _unit(quantity)
        else:
            spread = _number(values.std(ddof=1), quantity)
            ours = f"{_number(values.mean(), quantity)} ± {spread}{_unit(quantity)} (n={len(values)})"
        paper, difference = "not stated", ""
        if quantity.paper is not None:
            paper = _number(quantity.paper, quantity) + _unit(quantity)
            if len(values):
                unit = " points" if quantity.unit == "%" else _unit(quantity)
                difference = _number(values.mean() - quantity.paper, quantity, "+") + unit
        rows.append([quantity.name, ours, paper, difference, quantity.protocol, profile])
    return pd.DataFrame(rows, columns=["quantity", "ours", "paper", "difference", "protocol", "profile"])


def beside_cells(
    results: pd.DataFrame,
    cells: pd.DataFrame,
    *,
    on: Sequence[str],
    profile: str,
    value: str = "linear_probe_accuracy",
    missing: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """A row for each cell of a paper's table and for each setting of ours: nothing is left out, nothing filled.

    Ours stands beside a printed number only where all columns ``on`` agree, so a stand-in for the paper's data has
    rows of its own, first, and no difference; the paper's cells follow in its order.

    Args:
        results: a row per run with the columns ``on`` and ``value``, a fraction.
        cells: from :func:`~fssl_core.papers.reference.paper_table`, in percent.
        on: columns that name a cell, "dataset" among them. Both frames are taken :func:`as_printed`.
        profile: of the results.
        value: column of ours; its name is the protocol shown, unless ours has a column ``protocol``.
        missing: settings that could not be run, with the columns ``on`` and ``reason``.

    Returns:
        The columns ``on`` and those of :func:`beside_paper` in place of ``quantity``. What the paper quotes from
        another work is marked so.

    Raises:
        SettingError: two printed cells agree in all columns ``on``.
    """
    on = list(on)
    results = as_printed(results)
    ours = {_cell(key): rows[value].to_numpy() for key, rows in results.groupby(on, sort=False, dropna=False)}
    protocol = ", ".join(results["protocol"].unique()) if "protocol" in results else value.replace("_", " ")
    printed = as_printed(cells)
    named = [_cell(key) for key in printed[on].itertuples(index=False, name=None)]
    if len({*named}) < len(named):
        raise SettingError("on", on, "columns that tell all cells of the paper's table apart")
    reasons: dict[tuple, str] = {}
    if missing is not None and not missing.empty:
        rows = as_printed(missing)[[*on, "reason"]].itertuples(index=False, name=None)
        for *key, reason in rows:
            reasons.setdefault(_cell(key), reason)
    keys = [key for key in ours if key not in {*named}] + named
    printed_values = dict(zip(named, printed["value"] / 100, strict=True))
    quantities = [Quantity("", ours.get(key), printed_values.get(key), "%", protocol, 2) for key in keys]
    table = beside_paper(quantities, profile=profile).drop(columns=["quantity", *({"protocol"} & {*on})])
    quoted = dict(zip(named, printed["cited_from"].notna(), strict=True)) if "cited_from" in printed else {}
    table["paper"] += [" (quoted)" if quoted.get(key) else "" for key in keys]
    table["ours"] = [
        f"{shown}: {reasons[key]}" if key in reasons and not len(_values(ours.get(key))) else shown
        for shown, key in zip(table["ours"], keys, strict=True)
    ]
    return pd.concat([pd.DataFrame(keys, columns=on), table], axis=1)


def _values(ours: float | Sequence[float] | None) -> np.ndarray:
    """Those that there are."""
    values = np.atleast_1d(np.array([] if ours is None else ours, dtype=float))
    return values[~np.isnan(values)]


def _cell(key: Iterable[Any]) -> tuple:
    """A key that is equal to itself where it lacks something."""
    return tuple(None if pd.isna(part) else part for part in key)


def _number(value: float, quantity: Quantity, sign: str = "") -> str:
    return format(100 * value if quantity.unit == "%" else value, f"{sign},.{quantity.digits}f")


def _unit(quantity: Quantity) -> str:
    return f" {quantity.unit}" if quantity.unit else ""


class Table:
    """A data frame as a notebook shows it: no index, whole texts, wrapped in the browser."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __repr__(self) -> str:
        return self.frame.to_string(index=False, max_colwidth=60)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):  # pandas cuts texts at 50 characters otherwise
            html = self.frame.to_html(index=False, border=0, justify="left", na_rep="")
        return html.replace("<td>", '<td style="text-align: left; white-space: normal; max-width: 26em">')


def show(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Table:
    """Show a table, or some of its columns, without the index and with long texts wrapped.

    Raises:
        SettingError: if a column does not exist.
    """
    for column in columns or ():
        check_choice("column", column, list(frame.columns))
    return Table(frame if columns is None else frame[list(columns)])
